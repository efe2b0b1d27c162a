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
    batch: Any,
    edge_index: Tensor | None = None,
    edge_attr: Tensor | None = None,
    index: Tensor | None = None,
    dim_size: int | None = None,
    rw: Tensor | None = None,
    graph_attr: Tensor | None = None,
) -> Graphs:
    """The graphs of a batch: a `GraphBatch`, a PyG `Batch`, a single `Data`, or features `x` with the other tensors."""
    if isinstance(batch, Graphs):
        return batch
    if edge_index is not None:
        x, ptr = batch, None
        num_nodes = _num_nodes(x, index, edge_index)
    else:
        if isinstance(batch, Tensor):
            raise UsageError("node features need edge_index beside them; or give a batch object")
        x, edge_index, edge_attr = batch.x, batch.edge_index, getattr(batch, "edge_attr", None)
        index, ptr = getattr(batch, "batch", None), getattr(batch, "ptr", None)
        rw, graph_attr = getattr(batch, "rw", None), getattr(batch, "graph_attr", None)
        num_nodes = batch.num_nodes
        dim_size = 1 if index is None else batch.num_graphs
    if index is None:
        index = edge_index.new_zeros(num_nodes, dtype=torch.long)
        dim_size = 1
    elif dim_size is None:
        dim_size = int(index.max()) + 1 if index.numel() else 0
    return Graphs(x, edge_index, edge_attr, index.long(), dim_size, num_nodes, ptr, rw, graph_attr)


def _num_nodes(x: Tensor | None, index: Tensor | None, edge_index: Tensor) -> int:
    if x is not None:
        return x.size(0)
    if index is not None:
        return index.size(0)
    return int(edge_index.max()) + 1 if edge_index.numel() else 0
