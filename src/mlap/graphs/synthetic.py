"""The paper's synthetic data set (section 4.1): the class lies in local and global structure together.

A graph has 25 nodes: a *centre* component of five nodes, and five *peripheral* components, each sharing one of its
nodes with a different node of the centre. A component is a path 0-1-2-3-4 plus one extra edge; which one is its
type. All peripheral components have the same type, and class = 3 · centre type + peripheral type. Five random edges
make the graphs of a class differ. Neither nodes nor edges have features.

The figure that shows the three types is not part of the paper's text, and the text leaves open which node is shared,
whether appended edges pass messages one way or both, and whether a random edge may repeat another. Each of these is a
parameter here; the defaults are the reading that comes nearest to the published error rates (research/generator.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlap.errors import UsageError
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.splits import random_split
from mlap.graphs.task import Task

NUM_NODES = 25
PATH = ((0, 1), (1, 2), (2, 3), (3, 4))
EXTRA_EDGES = ((0, 2), (1, 4), (0, 4))
VARIANT = "synthetic-variant"


def synthetic(
    graphs_per_class: int = 1000,
    *,
    extra_edges: Sequence[tuple[int, int]] = EXTRA_EDGES,
    shared_node: int | str = 0,
    random_edges: int = 5,
    one_way: str = "random",
    repeats: bool = False,
    seed: int = 0,
) -> GraphSet:
    """Generate the synthetic data set; the same arguments give the same bytes on every machine.

    Args:
        graphs_per_class: graphs of each class, no two of them with the same arcs.
        extra_edges: the edge that each type of component adds to its path; the default makes a triangle, a square
            and a pentagon. With k types there are k² classes.
        shared_node: which node of a peripheral component (0 to 4) lies on the centre; `"index"` for the i-th node
            of the i-th component, `"random"` for a new choice in every graph and component.
        random_edges: random edges per graph.
        one_way: which edges are single arcs: `"appended"`, the random ones and the extra ones, from their first node to
            their second; `"random"`, those alone; `"none"`. The others pass messages both ways, as paths always do.
        repeats: whether a random edge is uniform among all pairs of nodes, so that it may repeat another edge or lead
            from a node to itself, or among the pairs of distinct nodes not yet joined; the former for single arcs only.
        seed: of the random edges, of the order of the graphs and of the 8:1:1 split.

    The set is called `synthetic`, and `synthetic-variant` where anything but the seed differs from the defaults, so
    that another reading is never taken for the paper's set.
    """
    _check(graphs_per_class, extra_edges, shared_node, random_edges, one_way, repeats)
    rng = np.random.RandomState(seed)  # a frozen stream: see mlap.graphs.splits
    extra_edges = tuple(extra_edges)
    reading = (graphs_per_class, extra_edges, shared_node, random_edges, one_way, repeats)
    papers = reading == (1000, EXTRA_EDGES, 0, 5, "random", False)
    num_types = len(extra_edges)
    blocks, labels = [], []
    for label in range(num_types**2):
        centre, peripheral = divmod(label, num_types)
        components = _components(extra_edges[centre], extra_edges[peripheral])
        blocks.append(_unique_graphs(rng, graphs_per_class, components, shared_node, random_edges, one_way, repeats))
        labels.append(np.full(graphs_per_class, label))

    order = rng.permutation(graphs_per_class * num_types**2)
    graphs = np.concatenate(blocks)[order]  # (G, edges, 2)
    y = np.concatenate(labels)[order].astype(np.int64)
    num_graphs, num_edges, _ = graphs.shape
    return GraphSet(
        node_ptr=np.arange(num_graphs + 1, dtype=np.int64) * NUM_NODES,
        edge_ptr=np.arange(num_graphs + 1, dtype=np.int64) * num_edges,
        edges=np.ascontiguousarray(graphs.reshape(-1, 2).T.astype(np.uint8)),
        directed=one_way != "none",
        y=y,
        task=Task("multiclass", num_types**2, "error_rate"),
        splits=random_split(num_graphs, seed=seed),
        name="synthetic" if papers else VARIANT,
    ).validate()


def _check(
    graphs_per_class: int,
    extra_edges: Sequence[tuple[int, int]],
    shared: int | str,
    random: int,
    one_way: str,
    repeats: bool,
) -> None:
    if graphs_per_class < 1:
        raise UsageError(f"graphs_per_class must be at least 1, got {graphs_per_class}")
    taken = {frozenset(edge) for edge in PATH}
    if not extra_edges:
        raise UsageError("extra_edges must name at least one type of component, got none")
    for edge in extra_edges:
        if len(edge) != 2 or not all(0 <= end <= 4 for end in edge) or edge[0] == edge[1] or {*edge} in taken:
            raise UsageError(f"an extra edge joins two of the nodes 0 to 4 that the path does not, got {edge}")
    if shared not in (0, 1, 2, 3, 4, "index", "random"):
        raise UsageError(f"shared_node must be 0 to 4, 'index' or 'random', got {shared!r}")
    if not 0 <= random <= 100:
        raise UsageError(f"random_edges must be 0 to 100, got {random}")
    if one_way not in ("appended", "random", "none"):
        raise UsageError(f"one_way must be 'appended', 'random' or 'none', got {one_way!r}")
    if repeats and one_way == "none":
        raise UsageError("random edges that pass messages both ways cannot repeat others: choose repeats=False")


def _components(centre: tuple[int, int], peripheral: tuple[int, int]) -> NDArray[np.int64]:
    """The edges of the six components, `(6, 5, 2)`, in each component's own numbering."""
    return np.array([[*PATH, centre]] + 5 * [[*PATH, peripheral]])


def _unique_graphs(
    rng: np.random.RandomState,
    count: int,
    components: NDArray[np.int64],
    shared_node: int | str,
    random_edges: int,
    one_way: str,
    repeats: bool,
) -> NDArray[np.int64]:
    """`count` graphs of one class, `(count, edges, 2)`, no two with the same edges."""
    found = np.empty((0, 0, 2), dtype=np.int64)
    for _ in range(30):  # of `count` draws each: enough to meet every graph, should there be just `count`
        drawn = _draw(rng, count, components, shared_node, random_edges, one_way, repeats)
        found = np.concatenate((found, drawn)) if len(found) else drawn
        ends = np.sort(found, axis=2) if one_way == "none" else found
        codes = np.sort(ends[:, :, 0] * NUM_NODES + ends[:, :, 1], axis=1)
        _, first = np.unique(codes, axis=0, return_index=True)
        found = found[np.sort(first)][:count]
        if len(found) == count:
            return found
    raise UsageError(f"there are not {count} different graphs per class with {random_edges} random edges")


def _draw(
    rng: np.random.RandomState,
    count: int,
    components: NDArray[np.int64],
    shared_node: int | str,
    random_edges: int,
    one_way: str,
    repeats: bool,
) -> NDArray[np.int64]:
    """`count` random graphs of one class: component edges first, random ones last."""
    shared = rng.randint(0, 5, (count, 5))  # drawn in any case, so that all readings see the same random edges
    if shared_node == "index":
        shared = np.tile(np.arange(5), (count, 1))
    elif shared_node != "random":
        shared = np.full((count, 5), int(shared_node))
    # Node numbers: 0–4 are the centre; the four nodes that component i has for itself are 5 + 4i and on.
    local = np.arange(5)
    own = 5 + 4 * np.arange(5)[None, :, None] + local - (local > shared[:, :, None])
    periphery = np.where(local == shared[:, :, None], np.arange(5)[None, :, None], own)
    numbers = np.concatenate((np.broadcast_to(local, (count, 1, 5)), periphery), axis=1)  # (count, 6, 5)
    edges = numbers[:, np.arange(6)[:, None, None], components]  # (count, 6, 5, 2)
    fixed = edges.reshape(count, -1, 2)
    if one_way != "none":
        back = (edges[:, :, :-1] if one_way == "appended" else edges)[..., ::-1]
        fixed = np.concatenate((fixed, back.reshape(count, -1, 2)), axis=1)
    if repeats:
        return np.concatenate((fixed, rng.randint(0, NUM_NODES, (count, random_edges, 2))), axis=1)

    # A random key for every pair, and out of reach where no edge may go: the smallest keys are a uniform choice.
    keys = rng.random_sample((count, NUM_NODES, NUM_NODES))
    keys[:, np.arange(NUM_NODES), np.arange(NUM_NODES)] = np.inf
    graph = np.arange(count)[:, None]
    keys[graph, fixed[:, :, 0], fixed[:, :, 1]] = np.inf
    if one_way == "none":
        keys[graph, fixed[:, :, 1], fixed[:, :, 0]] = np.inf
        keys[(slice(None), *np.tril_indices(NUM_NODES))] = np.inf
    chosen = np.sort(np.argpartition(keys.reshape(count, -1), random_edges, axis=1)[:, :random_edges], axis=1)
    extra = np.stack(np.divmod(chosen, NUM_NODES), axis=2)
    return np.concatenate((fixed, extra), axis=1)
