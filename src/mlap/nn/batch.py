"""What a network is given: some graphs as one disconnected graph, in any of the ways in which PyG's users say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlap.errors import UsageError


@dataclass
class Graphs:
    """Some graphs as one.

    Args:
        x: node features `(N, columns)`, or `None`.
        edge_index: `(2, arcs)`.
        edge_attr: edge features `(arcs, columns)`, or `None`.
        index: `(N,)`, the graph of each node.
        dim_size: the number of graphs B.
        num_nodes: the number of nodes N.
        ptr: `(B + 1,)`, where each graph's nodes begin, if they are known to be sorted by graph.
        rw: random-walk features of the nodes `(N, k)`, or `None`.
        graph_attr: features of the graphs `(B, k)`, or `None`.
    """

    x: Tensor | None
    edge_index: Tensor
    edge_attr: Tensor | None
    index: Tensor
    dim_size: int
    num_nodes: int
    ptr: Tensor | None = None
    rw: Tensor | None = None
    graph_attr: Tensor | None = None


def graphs_of(
    x: Any,
    edge_index: Tensor | None = None,
    edge_attr: Tensor | None = None,
    batch: Tensor | None = None,
    batch_size: int | None = None,
    rw: Tensor | None = None,
    graph_attr: Tensor | None = None,
) -> Graphs:
    """The graphs of a batch: a `GraphBatch`, a PyG `Batch`, a single `Data`, or features with the other tensors.

    The arguments are those of `GraphNetwork.forward`.
    """
    if isinstance(x, Graphs):
        return x
    ptr = None
    if edge_index is not None:
        num_nodes = _num_nodes(x, batch, edge_index)
    else:
        if isinstance(x, Tensor):
            raise UsageError("node features need edge_index beside them; or give a batch object")
        given = x
        x, edge_index, edge_attr = given.x, given.edge_index, getattr(given, "edge_attr", None)
        batch, ptr = getattr(given, "batch", None), getattr(given, "ptr", None)
        rw, graph_attr = getattr(given, "rw", None), getattr(given, "graph_attr", None)
        num_nodes = given.num_nodes
        batch_size = 1 if batch is None else given.num_graphs
    if batch is None:
        batch, batch_size = edge_index.new_zeros(num_nodes, dtype=torch.long), 1
    elif batch_size is None:
        batch_size = int(batch.max()) + 1 if batch.numel() else 0
    return Graphs(x, edge_index, edge_attr, batch.long(), batch_size, num_nodes, ptr, rw, graph_attr)


def _num_nodes(x: Tensor | None, index: Tensor | None, edge_index: Tensor) -> int:
    if x is not None:
        return x.size(0)
    if index is not None:
        return index.size(0)
    return int(edge_index.max()) + 1 if edge_index.numel() else 0
