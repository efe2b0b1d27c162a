"""What a set of graphs is, where it comes from, and how it is split."""

from mlap.graphs.convert import from_networkx, from_pyg, to_pyg
from mlap.graphs.graph_set import Features, GraphBatch, GraphSet
from mlap.graphs.molecules import molecules
from mlap.graphs.ogb import read_ogb
from mlap.graphs.padding import Buckets
from mlap.graphs.places import data_root
from mlap.graphs.resident import ResidentGraphs
from mlap.graphs.sources import known_datasets, load_graphs
from mlap.graphs.splits import column_split, random_split, scaffold_split, stratified_split
from mlap.graphs.synthetic import synthetic
from mlap.graphs.tables import read_table
from mlap.graphs.task import Task
from mlap.graphs.tu import read_tu

__all__ = [
    "Buckets",
    "Features",
    "GraphBatch",
    "GraphSet",
    "ResidentGraphs",
    "Task",
    "column_split",
    "data_root",
    "from_networkx",
    "from_pyg",
    "known_datasets",
    "load_graphs",
    "molecules",
    "random_split",
    "read_ogb",
    "read_table",
    "read_tu",
    "scaffold_split",
    "stratified_split",
    "synthetic",
    "to_pyg",
]
