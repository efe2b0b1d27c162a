"""Batches of few different shapes, for `torch.compile` and CUDA graphs, which prepare for one shape at a time."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from mlap.graphs.graph_set import GraphBatch, GraphSet

#: a bucket holds so many times what the one before it holds: at most a fifth of a full bucket is padding
GROWTH = 1.25


class Buckets:
    """Sizes to which batches are padded: 1, 1.25, 1.25², … average graphs of a set.

    Padding is one more graph, the last of the batch, of isolated nodes with self-loops. No message passes between it
    and the others; with a normalisation over single nodes or graphs the network's answers for the others are the same,
    and with a loss over these alone, its gradients. `BatchNorm` looks at all nodes together and would see the padding.

    Args:
        nodes: the nodes of an average graph.
        arcs: its arcs.
    """

    def __init__(self, nodes: float, arcs: float) -> None:
        self.nodes = nodes
        self.arcs = arcs
        # Many arcs on few padding nodes would make the sums there, which nobody needs, overflow in deep networks.
        self.most_arcs_per_node = 8 + math.ceil(2 * arcs / nodes) if nodes else 0

    @classmethod
    def of(cls, graphs: GraphSet) -> Buckets:
        """The buckets for batches of a set."""
        number = max(1, len(graphs))
        arcs = graphs.num_edges if graphs.directed else 2 * graphs.num_edges
        return cls(graphs.num_nodes / number, arcs / number)

    def size(self, nodes: int, arcs: int) -> tuple[int, int]:
        """The nodes and arcs of the smallest bucket that holds so many, and a node of padding."""
        graphs = 1.0
        while True:
            most_nodes, most_arcs = 1 + math.ceil(graphs * self.nodes), math.ceil(graphs * self.arcs)
            free_nodes, free_arcs = most_nodes - nodes, most_arcs - arcs
            if free_nodes > 0 and 0 <= free_arcs <= free_nodes * self.most_arcs_per_node:
                return most_nodes, most_arcs
            graphs *= GROWTH

    def pad(self, batch: GraphBatch) -> GraphBatch:
        """The batch with a last graph that fills its bucket."""
        nodes, arcs = batch.num_nodes, batch.edge_index.size(1)
        most_nodes, most_arcs = self.size(nodes, arcs)
        free_nodes, free_arcs = most_nodes - nodes, most_arcs - arcs
        loops = nodes + torch.arange(free_arcs, device=batch.ptr.device) % free_nodes
        return dataclasses.replace(
            batch,
            x=_with_zeros(batch.x, free_nodes),
            edge_index=torch.cat((batch.edge_index, loops.expand(2, -1)), dim=1),
            edge_attr=_with_zeros(batch.edge_attr, free_arcs),
            batch=F.pad(batch.batch, (0, free_nodes), value=batch.num_graphs),
            ptr=F.pad(batch.ptr, (0, 1), value=most_nodes),
            num_nodes=most_nodes,
            num_graphs=batch.num_graphs + 1,
            padded=True,
            rw=_with_zeros(batch.rw, free_nodes),
            graph_attr=_with_zeros(batch.graph_attr, 1),
        )


def _with_zeros(features: Tensor | None, rows: int) -> Tensor | None:
    """The features with rows of zeros below: a category that every column has, or a real number like any."""
    return None if features is None else F.pad(features, (0, 0, 0, rows))
