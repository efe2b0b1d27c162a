"""What a set of graphs is, where it comes from, and how it is split."""

from mlap.graphs.graph_set import Features, GraphBatch, GraphSet
from mlap.graphs.splits import random_split
from mlap.graphs.synthetic import synthetic
from mlap.graphs.task import Task

__all__ = ["Features", "GraphBatch", "GraphSet", "Task", "random_split", "synthetic"]
