"""Weisfeiler–Lehman subtree features: how often each rooted neighbourhood occurs in a graph, hashed into columns.

Shervashidze et al., "Weisfeiler–Lehman Graph Kernels", JMLR 12 (2011). A node begins with the colour of its
categories; in each round its new colour is made of its own and of the multiset of its neighbours' colours, each with
the category of the edge between. A graph's features count the colours of all rounds.

Colours are 64-bit numbers, mixed rather than looked up, so that no dictionary has to be kept or agreed upon: the same
neighbourhood has the same column in every set, process and version. A multiset is the sum of its mixed members, which
does not depend on their order. Messages go along arcs, as in the networks: in a directed set a node sees those that
point to it. Real features are not categories and do not take part.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy  # its parts load when they are used, so predictions by networks do not wait for them
from numpy.typing import NDArray

from mlap.errors import UsageError
from mlap.graphs import Features, GraphSet

Colours = NDArray[np.uint64]

MOST_ROUNDS = 5
#: columns as a power of two; the distinct colours of 40,000 molecules after four rounds are about half a million
BITS = 20
#: nodes that are coloured together; bounds the memory
NODES = 1 << 20


def wl_features(graphs: GraphSet, *, rounds: int = 4, bits: int = BITS) -> scipy.sparse.csr_matrix:
    """The counts of all colours of rounds 0 to `rounds`, `(graphs, 2 ** bits)` float32.

    Args:
        graphs: with categories of nodes and of edges, or of one of them, or of neither.
        rounds: how far a node sees, 0 to 5.
        bits: the number of columns as a power of two, 8 to 24; two colours share one with probability 2 ** -bits.
    """
    if not 0 <= rounds <= MOST_ROUNDS:
        raise UsageError(f"{{field}} must be 0 to {MOST_ROUNDS}, got {rounds}", field="rounds")
    if not 8 <= bits <= 24:
        raise UsageError(f"{{field}} must be 8 to 24, got {bits}", field="bits")
    blocks = [scipy.sparse.csr_matrix((0, 1 << bits), dtype=np.float32)]
    for part in _parts(graphs):
        colours = wl_colours(part, rounds)
        columns = (colours >> np.uint64(64 - bits)).astype(np.int64).ravel()
        rows = np.tile(np.repeat(np.arange(len(part)), np.diff(part.node_ptr)), rounds + 1)
        ones = np.ones(len(columns), np.float32)
        blocks.append(scipy.sparse.coo_matrix((ones, (rows, columns)), (len(part), 1 << bits)).tocsr())
    return scipy.sparse.vstack(blocks, format="csr")


def wl_colours(graphs: GraphSet, rounds: int) -> Colours:
    """The colour of each node after each round, `(rounds + 1, nodes)`; colours of different rounds never agree."""
    sources, targets, kinds = _arcs(graphs)
    colour = _rows(graphs.node_features, graphs.num_nodes)
    colours = np.empty((rounds + 1, graphs.num_nodes), np.uint64)
    colours[0] = colour
    for number in range(1, rounds + 1):
        received = np.zeros(graphs.num_nodes, np.uint64)
        np.add.at(received, targets, _mix(_mix(colour[sources]) ^ kinds))
        colour = _mix(_mix(colour + np.uint64(number)) + received)
        colours[number] = colour
    return colours


def ignored_features(graphs: GraphSet) -> tuple[str, ...]:
    """What of a set's features takes no part, being real numbers: `"node"`, `"edge"`, both or neither."""
    named = (("node", graphs.node_features), ("edge", graphs.edge_features))
    return tuple(name for name, features in named if features is not None and not features.categorical)


def _parts(graphs: GraphSet) -> Iterator[GraphSet]:
    """The graphs in pieces of about a million nodes, and at least one graph each."""
    start = 0
    while start < len(graphs):
        end = int(np.searchsorted(graphs.node_ptr, graphs.node_ptr[start] + NODES, side="right")) - 1
        end = min(max(end, start + 1), len(graphs))
        yield graphs if end - start == len(graphs) else graphs.subset(np.arange(start, end))
        start = end


def _arcs(graphs: GraphSet) -> tuple[NDArray[np.int64], NDArray[np.int64], Colours]:
    """The sources, targets and kinds of all arcs, with nodes counted over all graphs."""
    first = np.repeat(graphs.node_ptr[:-1], np.diff(graphs.edge_ptr))
    begin, end = (graphs.edges[side].astype(np.int64) + first for side in (0, 1))
    kinds = _rows(graphs.edge_features, graphs.num_edges)
    if graphs.directed:
        return begin, end, kinds
    return np.concatenate((begin, end)), np.concatenate((end, begin)), np.concatenate((kinds, kinds))


def _rows(features: Features | None, count: int) -> Colours:
    """One number per row of categories; the same for all rows where there are none."""
    colour = np.zeros(count, np.uint64)
    if features is not None and features.categorical:
        for column in features.values.T:
            colour = _mix(colour + column.astype(np.uint64) + np.uint64(1))
    return _mix(colour)


def _mix(numbers: Colours) -> Colours:
    """A fixed shuffle of all 64-bit numbers: the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
