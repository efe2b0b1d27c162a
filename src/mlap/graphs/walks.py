"""Random-walk features of nodes: how likely a walk is back where it began (RWSE; Dwivedi et al., arXiv:2110.07875)."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mlap.graphs.graph_set import GraphSet, rows_of_graphs

Rows = NDArray[np.float32]

#: set → number of steps → the features of all nodes, and of which graphs they are known so far
_KNOWN: WeakKeyDictionary[GraphSet, dict[int, tuple[Rows, NDArray[np.bool_]]]] = WeakKeyDictionary()


def walk_features(num_nodes: int, arcs: NDArray[np.int64], steps: int) -> Rows:
    r"""The features of the nodes of one graph, `(num_nodes, steps)`.

    .. math::
        \left( (D^{-1} A)_{nn}, \; (D^{-1} A)^2_{nn}, \; \dots, \; (D^{-1} A)^k_{nn} \right)

    A walk ends where no arc leads on.

    Args:
        num_nodes: the number of nodes.
        arcs: `(2, arcs)`; an undirected edge is two.
        steps: the length k of the longest walk.
    """
    adjacency = np.zeros((num_nodes, num_nodes), np.float32)
    np.add.at(adjacency, (arcs[0], arcs[1]), 1)
    step = adjacency / np.maximum(adjacency.sum(axis=1, keepdims=True), 1)
    found = np.empty((num_nodes, steps), np.float32)
    walk = step
    for number in range(steps):
        found[:, number] = walk.diagonal()
        walk = walk @ step
    return found


def walks_of(graphs: GraphSet, indices: NDArray[np.int64], steps: int) -> Rows:
    """The features `(nodes, steps)` of all nodes of graphs of a set; each graph is walked once."""
    by_steps = _KNOWN.setdefault(graphs, {})
    if steps not in by_steps:
        by_steps[steps] = np.empty((graphs.num_nodes, steps), np.float32), np.zeros(len(graphs), np.bool_)
    rows, known = by_steps[steps]
    for graph in np.unique(indices[~known[indices]]):
        nodes = slice(graphs.node_ptr[graph], graphs.node_ptr[graph + 1])
        arcs = graphs.edges[:, graphs.edge_ptr[graph] : graphs.edge_ptr[graph + 1]].astype(np.int64)
        if not graphs.directed:
            arcs = np.concatenate((arcs, arcs[::-1]), axis=1)
        rows[nodes] = walk_features(nodes.stop - nodes.start, arcs, steps)
        known[graph] = True
    found: Rows = rows[rows_of_graphs(graphs.node_ptr, indices)[2]]
    return found
