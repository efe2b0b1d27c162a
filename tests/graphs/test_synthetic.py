"""The synthetic data set: its structure read back from the arcs, chance that is uniform, bytes that never change."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mlap.errors import UsageError
from mlap.graphs import GraphSet, synthetic

PATH = [(0, 1), (1, 2), (2, 3), (3, 4)]
FIXED = 60  # arcs of the components: 30 edges both ways
P_VALUE = 1e-7  # a test of chance fails by chance once in ten million


@pytest.fixture(scope="module")
def default() -> GraphSet:
    return synthetic()


def arcs_of(graphs: GraphSet, index: int) -> list[tuple[int, int]]:
    """The stored arcs (or edges) of a graph: those of the components first, the random ones last."""
    own = slice(graphs.edge_ptr[index], graphs.edge_ptr[index + 1])
    return [(int(u), int(v)) for u, v in graphs.edges[:, own].T]


def members(component: int) -> list[int]:
    """The nodes of the centre (component 5) or of the i-th peripheral component, of which node i is the shared one."""
    return list(range(5)) if component == 5 else [component, *range(5 + 4 * component, 9 + 4 * component)]


def component_nodes(shared: int, component: int) -> list[int]:
    """The numbers of the nodes 0 to 4 of the i-th peripheral component, which are numbered in the order of the path."""
    fresh = iter(range(5 + 4 * component, 9 + 4 * component))
    return [component if local == shared else next(fresh) for local in range(5)]


def expected_component(extra: tuple[int, int], shared: int, component: int) -> set[frozenset[int]]:
    """The edges of the i-th peripheral component."""
    number = component_nodes(shared, component)
    return {frozenset((number[u], number[v])) for u, v in [*PATH, extra]}


def expected_arcs(centre: Any, peripheral: Any, shared_node: Any, one_way: str) -> list[tuple[int, int]]:
    """All that is not random in a graph with these extra edges; for `"none"`, each edge once."""
    arcs = []
    for component in range(6):
        shared = component if shared_node == "index" else shared_node
        number = list(range(5)) if component == 5 else component_nodes(shared, component)
        *path, extra = [(number[u], number[v]) for u, v in [*PATH, centre if component == 5 else peripheral]]
        back = {"appended": path, "random": [*path, extra], "none": []}[one_way]
        arcs += [*path, extra, *((v, u) for u, v in back)]
    return arcs


# ---- the default -------------------------------------------------------------------------------------------------


def test_sizes(default: GraphSet) -> None:
    assert len(default) == 9000
    assert default.directed
    assert (np.diff(default.node_ptr) == 25).all()
    assert (np.diff(default.edge_ptr) == FIXED + 5).all()
    assert default.node_features is None
    assert default.edge_features is None
    assert default.task is not None
    assert (default.task.kind, default.task.num_outputs, default.task.metric) == ("multiclass", 9, "error_rate")
    assert default.y is not None
    assert np.bincount(default.y).tolist() == [1000] * 9


def test_split(default: GraphSet) -> None:
    assert {name: len(part) for name, part in default.splits.items()} == {"train": 7200, "valid": 900, "test": 900}
    assert sorted(np.concatenate(list(default.splits.values()))) == list(range(9000))
    assert default.y is not None
    for part in default.splits.values():  # shuffled: every class has its share, within chance
        counts = np.bincount(default.y[part], minlength=9)
        assert stats.chisquare(counts).pvalue > P_VALUE


def test_structure_of_every_graph(default: GraphSet) -> None:
    """Built again from the class, by the rules of the text."""
    assert default.y is not None
    source, target = default.edges.astype(int).reshape(2, 9000, -1)
    assert ((source >= 0) & (source < 25) & (target >= 0) & (target < 25)).all()
    codes = np.sort(25 * source[:, :FIXED] + target[:, :FIXED], axis=1)
    for label in range(9):
        centre, peripheral = (((0, 2), (1, 4), (0, 4))[kind] for kind in divmod(label, 3))
        arcs = expected_arcs(centre, peripheral, 0, "random")
        assert len(set(arcs)) == FIXED
        assert (codes[default.y == label] == sorted(25 * u + v for u, v in arcs)).all()


def test_graphs_of_a_class_are_unique(default: GraphSet) -> None:
    source, target = default.edges.astype(int).reshape(2, 9000, -1)
    assert len(np.unique(np.sort(25 * source + target, axis=1), axis=0)) == 9000


def test_random_arcs_are_uniform(default: GraphSet) -> None:
    """Within every class, over the 25 · 24 − 60 arcs that are free."""
    assert default.y is not None
    ends = default.edges.astype(int).reshape(2, 9000, 65)
    codes = 25 * ends[0] + ends[1]
    assert (np.diff(np.sort(codes, axis=1), axis=1) > 0).all()  # no arc twice
    for label in range(9):
        own = codes[default.y == label]
        free = set(range(625)) - {26 * n for n in range(25)} - set(own[0, :60])
        assert len(free) == 540
        drawn = own[:, 60:].ravel()
        counts = np.bincount(drawn, minlength=625)[sorted(free)]
        assert counts.sum() == 5000
        assert stats.chisquare(counts).pvalue > P_VALUE
        for end in (np.floor_divide, np.remainder):
            expected = np.bincount(end(sorted(free), 25), minlength=25) * 5000 / 540
            assert stats.chisquare(np.bincount(end(drawn, 25), minlength=25), expected).pvalue > P_VALUE


def test_random_arcs_of_a_graph_are_independent(default: GraphSet) -> None:
    """The ten pairs of its five random arcs share a source as often as chance has it."""
    sources = default.edges[0].reshape(9000, 65)[:, 60:].astype(int)
    free = {label: np.zeros(25) for label in range(9)}
    assert default.y is not None
    for label in range(9):
        fixed = default.edges[0].reshape(9000, 65)[np.argmax(default.y == label), :60]
        free[label] = 24 - np.bincount(fixed, minlength=25)
    chance = np.mean([(f * (f - 1)).sum() / (540 * 539) for f in free.values()])
    pairs = [(sources[:, a] == sources[:, b]) for a, b in combinations(range(5), 2)]
    found, trials = int(np.sum(pairs)), 9000 * 10
    assert stats.binomtest(found, trials, chance).pvalue > P_VALUE


def test_random_arcs_that_may_repeat_others_are_uniform_and_independent() -> None:
    """Over all 25 · 25 pairs in every class; and each of a graph's five independent of the others."""
    graphs = synthetic(repeats=True)
    assert graphs.y is not None
    ends = graphs.edges.astype(int).reshape(2, 9000, -1)[:, :, FIXED:]
    codes = 25 * ends[0] + ends[1]
    for label in range(9):
        drawn = codes[graphs.y == label].ravel()
        assert stats.chisquare(np.bincount(drawn, minlength=625)).pvalue > P_VALUE
        for end in (np.floor_divide, np.remainder):  # the source, the target: few cells, so a sharper look
            assert stats.chisquare(np.bincount(end(drawn, 25), minlength=25)).pvalue > P_VALUE
    for one, other in combinations(range(5), 2):
        for end in ends:
            table = np.bincount(25 * end[:, one] + end[:, other], minlength=625)
            assert stats.chisquare(table).pvalue > P_VALUE


# ---- the same bytes ----------------------------------------------------------------------------------------------


def content(graphs: GraphSet) -> str:
    arrays = [graphs.node_ptr, graphs.edge_ptr, graphs.edges, graphs.y, *graphs.splits.values()]
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def test_the_same_bytes_everywhere(default: GraphSet) -> None:
    """The one recorded value: whoever generates this set, anywhere, has the same graphs, order and split."""
    assert default.fingerprint == "53ee492db96896be"


def test_the_same_bytes_in_another_process() -> None:
    code = "from mlap.graphs import synthetic; print(synthetic(7, shared_node='random', seed=3).fingerprint)"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == synthetic(7, shared_node="random", seed=3).fingerprint


def test_seeds() -> None:
    assert content(synthetic(20, seed=1)) == content(synthetic(20, seed=1))
    assert content(synthetic(20, seed=1)) != content(synthetic(20, seed=2))


# ---- other readings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared_node", [0, 1, 2, 3, 4, "index", np.int64(3)])
@pytest.mark.parametrize(
    ("one_way", "repeats"), [("appended", True), ("appended", False), ("random", False), ("none", False)]
)
@pytest.mark.parametrize("extra_edges", [((0, 2), (1, 4), (0, 4)), ((4, 2), (0, 3)), ((1, 3),)])
def test_readings(extra_edges: Any, one_way: str, repeats: bool, shared_node: Any) -> None:
    graphs = synthetic(
        3, extra_edges=extra_edges, shared_node=shared_node, one_way=one_way, repeats=repeats, random_edges=4
    )
    types = len(extra_edges)
    assert graphs.directed is (one_way != "none")
    assert graphs.y is not None
    assert np.bincount(graphs.y).tolist() == [3] * types**2
    for index in range(len(graphs)):
        arcs = arcs_of(graphs, index)
        fixed, random = arcs[:-4], arcs[-4:]
        assert len(fixed) == {"appended": 54, "random": 60, "none": 30}[one_way]
        centre, peripheral = divmod(int(graphs.y[index]), types)
        expected = expected_arcs(extra_edges[centre], extra_edges[peripheral], shared_node, one_way)
        assert sorted(fixed) == sorted(expected)
        if not repeats:
            assert len(set(arcs)) == len(arcs)
            assert all(u != v for u, v in random)
        if one_way == "none":
            assert len({frozenset(edge) for edge in arcs}) == 34


def test_a_shared_node_at_random_is_uniform_and_each_component_has_its_own() -> None:
    graphs = synthetic(1000, extra_edges=[(1, 4)], shared_node="random", one_way="random", random_edges=1)
    found = np.empty((1000, 5), dtype=int)
    for index in range(1000):
        edges = {frozenset(arc) for arc in arcs_of(graphs, index)[:60]}
        for component in range(5):
            inside = {edge for edge in edges if edge <= set(members(component))}
            (found[index, component],) = (k for k in range(5) if expected_component((1, 4), k, component) == inside)
    for component in range(5):
        assert stats.chisquare(np.bincount(found[:, component], minlength=5)).pvalue > P_VALUE
    for first, second in combinations(range(5), 2):
        table = np.bincount(5 * found[:, first] + found[:, second], minlength=25)
        assert stats.chisquare(table).pvalue > P_VALUE


def test_random_edges_both_ways_are_uniform() -> None:
    graphs = synthetic(2000, extra_edges=[(0, 2)], one_way="none", repeats=False, random_edges=3)
    codes = [25 * min(e) + max(e) for index in range(2000) for e in arcs_of(graphs, index)[30:]]
    fixed = {25 * min(edge) + max(edge) for edge in arcs_of(graphs, 0)[:30]}
    free = sorted({25 * u + v for u, v in combinations(range(25), 2)} - fixed)
    counts = np.bincount(codes, minlength=625)[free]
    assert counts.sum() == 6000
    assert stats.chisquare(counts).pvalue > P_VALUE


@pytest.mark.parametrize("random_edges", [0, 1, 100])
@pytest.mark.parametrize(
    ("one_way", "repeats", "fixed"), [("appended", True, 54), ("random", False, 60), ("none", False, 30)]
)
def test_numbers_of_random_edges(random_edges: int, one_way: str, repeats: bool, fixed: int) -> None:
    graphs = synthetic(1, random_edges=random_edges, one_way=one_way, repeats=repeats)
    assert (np.diff(graphs.edge_ptr) == fixed + random_edges).all()


@pytest.mark.parametrize(
    ("one_way", "repeats", "free"), [("appended", True, 625), ("random", False, 540), ("none", False, 270)]
)
def test_unique_also_where_chance_is_scarce(one_way: str, repeats: bool, free: int) -> None:
    """Of one class there are just so many graphs with one random edge: all of them are found."""
    options: dict[str, Any] = {"extra_edges": [(0, 2)], "random_edges": 1, "one_way": one_way, "repeats": repeats}
    graphs = synthetic(free, **options)
    assert len({tuple(sorted(arcs_of(graphs, index))) for index in range(free)}) == free
    with pytest.raises(UsageError, match=f"^there are not {free + 1} different graphs per class with 1 random edges$"):
        synthetic(free + 1, **options)


def test_a_triangle_shared_at_either_of_its_free_corners_is_the_same_graph() -> None:
    """Nodes 0 and 1 of the first type play the same part: 4 different components, 4⁵ different graphs."""
    graphs = synthetic(900, extra_edges=[(0, 2)], shared_node="random", random_edges=0, one_way="none", repeats=False)
    found = {frozenset(frozenset(edge) for edge in arcs_of(graphs, index)) for index in range(900)}
    assert len(found) == 900


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graphs_per_class": 0}, r"graphs_per_class must be at least 1, got 0"),
        ({"shared_node": 5}, r"shared_node must be 0 to 4, 'index' or 'random', got 5"),
        ({"shared_node": "first"}, r"shared_node must be 0 to 4, 'index' or 'random', got 'first'"),
        ({"random_edges": -1}, r"random_edges must be 0 to 100, got -1"),
        ({"random_edges": 101}, r"random_edges must be 0 to 100, got 101"),
        ({"one_way": True}, r"one_way must be 'appended', 'random' or 'none', got True"),
        (
            {"one_way": "none", "repeats": True},
            r"random edges that pass messages both ways cannot",
        ),
        ({"extra_edges": []}, r"extra_edges must name at least one type of component, got none"),
        ({"extra_edges": [(0, 2), (2, 1)]}, r"an extra edge joins two of the nodes 0 to 4 .*, got \(2, 1\)"),
        ({"extra_edges": [(3, 3)]}, r"an extra edge joins two of the nodes 0 to 4 .*, got \(3, 3\)"),
        ({"extra_edges": [(0, 5)]}, r"an extra edge joins two of the nodes 0 to 4 .*, got \(0, 5\)"),
        ({"graphs_per_class": 2, "random_edges": 0}, r"there are not 2 different graphs per class with 0 random edges"),
    ],
)
def test_wrong_calls(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        synthetic(**options)
