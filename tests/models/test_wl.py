"""Weisfeiler–Lehman features against a slow refinement with dictionaries, and their invariances."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlap.errors import UsageError
from mlap.graphs import Features, GraphSet
from mlap.models import wl
from mlap.models.wl import ignored_features, wl_colours, wl_features

ROUNDS = 3


@dataclasses.dataclass
class Plain:
    """One graph in Python's own types."""

    nodes: list[tuple[int, int]]  # two categories of each node
    edges: list[tuple[int, int, int]]  # source, target, category


def packed(graphs: list[Plain], directed: bool, nodes: bool = True, edges: bool = True) -> GraphSet:
    node_rows = np.array([row for graph in graphs for row in graph.nodes], np.int64).reshape(-1, 2)
    edge_rows = np.array([row for graph in graphs for row in graph.edges], np.int64).reshape(-1, 3)
    return GraphSet(
        node_ptr=np.cumsum([0, *(len(graph.nodes) for graph in graphs)]),
        edge_ptr=np.cumsum([0, *(len(graph.edges) for graph in graphs)]),
        edges=edge_rows[:, :2].T.astype(np.uint8),
        directed=directed,
        node_features=Features.categories(node_rows, (3, 3)) if nodes else None,
        edge_features=Features.categories(edge_rows[:, 2], (3,)) if edges else None,
    ).validate()


def slow(graph: Plain, directed: bool, rounds: int, nodes: bool = True, edges: bool = True) -> list[list[Any]]:
    """The colour of each node after each round, as nested tuples that tell the whole neighbourhood."""
    colours: list[Any] = [row if nodes else None for row in graph.nodes]
    arcs = [(u, v, c if edges else None) for u, v, c in graph.edges]
    if not directed:
        arcs += [(v, u, c) for u, v, c in arcs]
    history = [colours]
    for _ in range(rounds):
        heard: list[list[Any]] = [[] for _ in colours]
        for source, target, kind in arcs:
            heard[target].append((repr(colours[source]), kind))
        colours = [(old, tuple(sorted(map(repr, new)))) for old, new in zip(colours, heard, strict=True)]
        history.append(colours)
    return history


@st.composite
def some_graphs(draw: st.DrawFn) -> tuple[bool, list[Plain]]:
    directed = draw(st.booleans())
    graphs = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(0, 5))
        ends = [(u, v) for u in range(count) for v in range(count) if directed or u != v]
        edge = (
            st.tuples(st.sampled_from(ends), st.integers(0, 1)).map(lambda e: (*e[0], e[1])) if ends else st.nothing()
        )
        rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=count, max_size=count)
        graphs.append(Plain(draw(rows), draw(st.lists(edge, max_size=7 if ends else 0))))
    return directed, graphs


@given(some_graphs(), st.booleans(), st.booleans())
@settings(max_examples=150)
def test_nodes_share_a_colour_exactly_where_the_slow_refinement_says_so(
    made: tuple[bool, list[Plain]], nodes: bool, edges: bool
) -> None:
    directed, graphs = made
    fast = wl_colours(packed(graphs, directed, nodes, edges), ROUNDS)
    histories = [slow(graph, directed, ROUNDS, nodes, edges) for graph in graphs]
    for number in range(ROUNDS + 1):
        named = [repr(colour) for history in histories for colour in history[number]]
        pairs = set(zip(fast[number].tolist(), named, strict=True))
        assert len(pairs) == len(set(fast[number].tolist())) == len(set(named))


@given(some_graphs())
@settings(max_examples=60)
def test_features_are_the_counts_of_colours(made: tuple[bool, list[Plain]]) -> None:
    directed, graphs = made
    features = wl_features(packed(graphs, directed), rounds=ROUNDS, bits=24)
    for row, graph in zip(features, graphs, strict=True):
        counts = Counter(repr((n, c)) for n, level in enumerate(slow(graph, directed, ROUNDS)) for c in level)
        assert sorted(row.data.tolist()) == sorted(counts.values())


@given(some_graphs(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_edges_and_graphs_does_not_matter(made: tuple[bool, list[Plain]], random: Any) -> None:
    directed, graphs = made
    shuffled = []
    for graph in graphs:
        places = list(range(len(graph.nodes)))
        random.shuffle(places)
        rows = [graph.nodes[places.index(place)] for place in range(len(places))]
        edges = [(places[u], places[v], c) for u, v, c in graph.edges]
        random.shuffle(edges)
        if not directed:
            edges = [(v, u, c) if random.random() < 0.5 else (u, v, c) for u, v, c in edges]
        shuffled.append(Plain(rows, edges))
    before = wl_features(packed(graphs, directed), rounds=ROUNDS)
    after = wl_features(packed(shuffled[::-1], directed), rounds=ROUNDS)[::-1]
    assert (before != after).nnz == 0


def test_an_arc_is_seen_from_its_target_only() -> None:
    arc, back = Plain([(0, 0), (1, 0)], [(0, 1, 0)]), Plain([(0, 0), (1, 0)], [(1, 0, 0)])
    directed = wl_features(packed([arc, back], True), rounds=1).toarray()
    assert (directed[0] != directed[1]).any()
    undirected = wl_features(packed([arc, back], False), rounds=1).toarray()
    np.testing.assert_array_equal(undirected[0], undirected[1])


def test_columns_are_fixed_for_ever() -> None:
    """A stored model would be worthless if these numbers, found with Python's own integers, moved."""
    features = wl_features(packed([Plain([(0, 1), (2, 0)], [(0, 1, 1)])], False), rounds=2, bits=16)
    assert features.indices.tolist() == [2424, 46632, 48844, 49399, 56720, 59022]
    assert features.data.tolist() == [1.0] * 6


def test_pieces_make_the_same_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = packed([Plain([(i % 2, 0)] * (i % 4), []) for i in range(12)], False)
    whole = wl_features(graphs, rounds=1)
    monkeypatch.setattr(wl, "NODES", 2)
    assert (wl_features(graphs, rounds=1) != whole).nnz == 0


def test_real_features_take_no_part_and_are_named() -> None:
    plain = packed([Plain([(0, 0), (0, 0)], [(0, 1, 0)])], False, nodes=False, edges=False)
    real = dataclasses.replace(
        plain, node_features=Features.reals(np.ones((2, 1))), edge_features=Features.reals(np.ones((1, 1)))
    )
    assert ignored_features(plain) == ()
    assert ignored_features(real) == ("node", "edge")
    assert (wl_features(real) != wl_features(plain)).nnz == 0


def test_no_graphs() -> None:
    assert wl_features(packed([], False)).shape == (0, 2**20)


@pytest.mark.parametrize("wrong", [{"rounds": 6}, {"rounds": -1}, {"bits": 7}, {"bits": 30}])
def test_mistakes(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError) as raised:
        wl_features(packed([], False), **wrong)
    assert raised.value.field in wrong
    assert str(next(iter(wrong.values()))) in str(raised.value)
