"""GraphSet: batches against a plain loop, PyG's own batches, fingerprints, and an error for every fault."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from mlap.errors import DataError, MlapError, UsageError
from mlap.graphs import Features, GraphBatch, GraphSet, Task

# ---- sets and what they should contain ---------------------------------------------------------------------------


@dataclass
class Plain:
    """One graph in Python's own types."""

    num_nodes: int
    edges: list[tuple[int, int]]
    node_rows: list[list[float]]
    edge_rows: list[list[float]]
    label: int


@dataclass
class Kind:
    """What the graphs of a set have in common."""

    directed: bool
    nodes: str | None  # "categories", "reals" or "scaled"
    edges: str | None


def rows(kind: str | None, count: int) -> st.SearchStrategy[list[list[float]]]:
    """Features as they come out: categories, multiples of 1/8, or thousandths."""
    element = {
        None: st.just(0),
        "categories": st.integers(0, 5),
        "reals": st.integers(-40, 40).map(lambda eighths: eighths / 8),
        "scaled": st.integers(0, 1000).map(lambda thousandths: thousandths / 1000),
    }[kind]
    return st.lists(st.lists(element, min_size=2, max_size=2), min_size=count, max_size=count)


@st.composite
def graphs_of_a_kind(draw: st.DrawFn) -> tuple[Kind, list[Plain]]:
    names = st.sampled_from([None, "categories", "reals", "scaled"])
    kind = Kind(draw(st.booleans()), draw(names), draw(names))
    graphs = []
    for _ in range(draw(st.integers(0, 5))):
        num_nodes = draw(st.integers(0, 4))
        ends = [(u, v) for u in range(num_nodes) for v in range(num_nodes) if kind.directed or u != v]
        edges = draw(st.lists(st.sampled_from(ends), max_size=6)) if ends else []
        graphs.append(
            Plain(
                num_nodes,
                edges,
                draw(rows(kind.nodes, num_nodes)),
                draw(rows(kind.edges, len(edges))),
                draw(st.integers(0, 2)),
            )
        )
    return kind, graphs


def packed_features(kind: str | None, table: list[list[float]]) -> Features | None:
    if kind is None:
        return None
    values = np.array(table).reshape(-1, 2)
    if kind == "categories":
        return Features.categories(values.astype(np.int64), (6, 6))
    if kind == "reals":
        return Features.reals(values)
    return Features.reals(np.rint(values * 1000).astype(np.uint16), divisor=1000)


def pack(kind: Kind, graphs: list[Plain]) -> GraphSet:
    return GraphSet(
        node_ptr=np.cumsum([0, *(graph.num_nodes for graph in graphs)]),
        edge_ptr=np.cumsum([0, *(len(graph.edges) for graph in graphs)]),
        edges=np.array([edge for graph in graphs for edge in graph.edges], dtype=np.uint8).reshape(-1, 2).T,
        directed=kind.directed,
        node_features=packed_features(kind.nodes, [row for graph in graphs for row in graph.node_rows]),
        edge_features=packed_features(kind.edges, [row for graph in graphs for row in graph.edge_rows]),
        y=np.array([graph.label for graph in graphs], dtype=np.int64),
        task=Task("multiclass", 3, "accuracy"),
    ).validate()


def assembled(kind: Kind, graphs: list[Plain]) -> dict[str, Any]:
    """A batch, one item at a time: all edges one way first, then all the other way."""
    ptr, batch, x, forth, back, attr = [0], [], [], [], [], []
    for number, graph in enumerate(graphs):
        for source, target in graph.edges:
            forth.append([ptr[-1] + source, ptr[-1] + target])
            back.append([ptr[-1] + target, ptr[-1] + source])
        attr += graph.edge_rows
        x += graph.node_rows
        batch += [number] * graph.num_nodes
        ptr.append(ptr[-1] + graph.num_nodes)
    return {
        "x": None if kind.nodes is None else x,
        "edge_index": forth if kind.directed else forth + back,
        "edge_attr": None if kind.edges is None else attr if kind.directed else attr + attr,
        "batch": batch,
        "ptr": ptr,
        "num_nodes": len(batch),
        "num_graphs": len(graphs),
        "y": [graph.label for graph in graphs],
    }


def check_batch(batch: GraphBatch, kind: Kind, graphs: list[Plain]) -> None:
    expected = assembled(kind, graphs)
    assert batch.edge_index.shape == (2, len(expected["edge_index"]))
    assert batch.edge_index.T.tolist() == expected["edge_index"]
    for name in ("batch", "ptr", "y"):
        assert getattr(batch, name).tolist() == expected[name]
        assert getattr(batch, name).dtype == torch.long
    for name in ("num_nodes", "num_graphs"):
        assert getattr(batch, name) == expected[name]
    for name, features in (("x", kind.nodes), ("edge_attr", kind.edges)):
        table = getattr(batch, name)
        if features is None:
            assert table is None
            continue
        dtype = torch.long if features == "categories" else torch.float
        assert table.dtype == dtype
        assert torch.equal(table, torch.tensor(expected[name], dtype=dtype).reshape(-1, 2))


SAMPLE = (
    Kind(False, "categories", "reals"),
    [
        Plain(3, [(0, 1), (2, 1)], [[0, 1], [2, 5], [3, 3]], [[0.5, -1.0], [2.0, 0.25]], 0),
        Plain(1, [], [[4, 0]], [], 1),
        Plain(0, [], [], [], 2),
        Plain(2, [(1, 0)], [[1, 1], [5, 0]], [[3.0, 3.5]], 1),
    ],
)


def sample(**changes: Any) -> GraphSet:
    """A small sound set, or one with something replaced."""
    splits = {"train": np.array([0, 2]), "valid": np.array([1]), "test": np.array([3])}
    return dataclasses.replace(pack(*SAMPLE), **{"splits": splits, "ids": ["a", "b", "c", "d"], **changes})


# ---- graphs out of a set -----------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(graphs_of_a_kind(), st.data())
def test_a_batch_is_its_graphs_one_after_the_other(drawn: tuple[Kind, list[Plain]], data: st.DataObject) -> None:
    """Any graphs in any order, some of them twice, or none."""
    kind, graphs = drawn
    packed = pack(kind, graphs)
    indices = data.draw(st.lists(st.integers(0, len(graphs) - 1), max_size=7)) if graphs else []
    chosen = [graphs[index] for index in indices]
    check_batch(packed.batch(indices), kind, chosen)
    check_batch(packed.batch(np.array(indices, dtype=np.uint8)), kind, chosen)
    check_batch(packed.subset(indices).validate().batch(range(len(indices))), kind, chosen)


@settings(max_examples=30)
@given(graphs_of_a_kind())
def test_items_are_pyg_graphs_and_pyg_batches_them_alike(drawn: tuple[Kind, list[Plain]]) -> None:
    kind, graphs = drawn
    packed = pack(kind, graphs)
    assert len(packed) == len(graphs)
    items = list(packed)
    for number, (item, graph) in enumerate(zip(items, graphs, strict=True)):
        expected = assembled(kind, [graph])
        assert item.num_nodes == graph.num_nodes
        assert item.edge_index.T.tolist() == expected["edge_index"]
        assert item.y.tolist() == [graph.label]
        assert set(item.keys()) == {"num_nodes", "edge_index", "y"} | ({"x"} if kind.nodes else set()) | (
            {"edge_attr"} if kind.edges else set()
        )
        check_batch(packed.batch([number]), kind, [graph])
    if not items:
        return
    theirs, ours = Batch.from_data_list(items), packed.batch(range(len(packed)))
    for name in ("x", "batch", "ptr", "y"):
        expected, got = getattr(theirs, name), getattr(ours, name)
        assert (got is None) if expected is None else torch.equal(got, expected)
    assert (theirs.num_nodes, theirs.num_graphs) == (ours.num_nodes, ours.num_graphs)

    def arcs(batch: Any) -> list[tuple[Any, ...]]:
        attr = [()] * batch.edge_index.size(1) if batch.edge_attr is None else map(tuple, batch.edge_attr.tolist())
        return sorted(zip(*batch.edge_index.tolist(), attr, strict=True))

    assert arcs(theirs) == arcs(ours)  # PyG keeps the arcs of a graph together, we those of one direction


@settings(max_examples=30)
@given(graphs_of_a_kind(), st.integers(0, 5))
def test_concatenating_parts_gives_the_whole(drawn: tuple[Kind, list[Plain]], cut: int) -> None:
    kind, graphs = drawn
    whole = pack(kind, graphs)
    parts = [pack(kind, graphs[:cut]), pack(kind, graphs[cut:])]
    joined = GraphSet.concatenate(parts).validate()
    check_batch(joined.batch(range(len(graphs))), kind, graphs)
    assert joined.fingerprint == whole.fingerprint


def test_concatenating_keeps_what_all_parts_have() -> None:
    both = GraphSet.concatenate([sample(), sample()])
    assert both.ids == ["a", "b", "c", "d"] * 2
    assert both.splits == {}
    assert GraphSet.concatenate([sample(), sample(ids=None)]).validate().ids is None


@pytest.mark.parametrize(
    "changes",
    [
        {"directed": True},
        {"node_features": None},
        {"edge_features": Features.reals(np.ones((3, 2), dtype=np.uint8), divisor=10)},
        {"task": Task("multiclass", 4, "accuracy")},
    ],
)
def test_sets_of_different_kinds_are_not_joined(changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"^the sets differ in task, direction or features and cannot be joined$"):
        GraphSet.concatenate([sample(), sample(**changes)])


def test_subset_keeps_ids_and_drops_splits() -> None:
    part = sample().subset([3, 0])
    assert part.ids == ["d", "a"]
    assert part.splits == {}
    assert part.task == sample().task


@pytest.mark.parametrize("index", [4, -5])
def test_an_item_that_is_not_there(index: int) -> None:
    with pytest.raises(IndexError, match=f"graph {index} of 4"):
        sample()[index]


def test_items_count_from_the_end_too() -> None:
    assert sample()[-1].edge_index.tolist() == sample()[3].edge_index.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("indices", [[0, 4], [-1], [0, -2]])
def test_a_batch_of_graphs_that_are_not_there(indices: list[int]) -> None:
    """In a batch nothing counts from the end: -2 would silently be the last graph."""
    for method in (sample().batch, sample().subset):
        with pytest.raises(IndexError):
            method(indices)


@pytest.mark.parametrize(
    ("y", "task", "dtype"),
    [
        (np.array([0, 1, 2, 1], dtype=np.uint8), Task("multiclass", 3, "accuracy"), torch.long),
        (np.array([[0.0], [1.0], [np.nan], [1.0]]), Task("binary", 1, "rocauc"), torch.float),
        (np.array([[0.5], [-1.0], [np.nan], [9.0]], dtype=np.float16), Task("regression", 1, "rmse"), torch.float),
    ],
)
def test_labels_come_in_the_types_that_losses_take(y: Any, task: Task, dtype: torch.dtype) -> None:
    batch = sample(y=y, task=task).validate().batch([3, 0])
    assert batch.y is not None
    assert batch.y.dtype == dtype
    assert batch.y.tolist() == y[[3, 0]].tolist()


def test_moving_a_batch() -> None:
    batch = sample().batch([0, 3])
    moved = batch.to("meta")
    assert moved.edge_index.device.type == moved.batch.device.type == "meta"
    assert (moved.num_nodes, moved.num_graphs) == (batch.num_nodes, batch.num_graphs)


def test_what_it_says_of_itself() -> None:
    graphs = sample(name="few")
    assert repr(graphs) == "GraphSet('few', 4 graphs, 6 nodes, 3 edges)"
    assert graphs.split("test").tolist() == [3]
    with pytest.raises(UsageError, match=r"^few has no part 'dev'; it has train, valid, test$"):
        graphs.split("dev")
    with pytest.raises(UsageError, match=r"^graphs has no part 'dev'; it has no splits$"):
        sample(splits={}).split("dev")


# ---- features ----------------------------------------------------------------------------------------------------


def test_thousandths_are_exactly_the_decimal_text() -> None:
    stored = Features.reals(np.arange(1001, dtype=np.uint16), divisor=1000)
    expected = [np.float32(f"{number // 1000}.{number % 1000:03d}") for number in range(1001)]
    assert stored.tensor().flatten().numpy().tobytes() == np.array(expected).tobytes()
    assert stored.values.dtype == np.uint16
    assert stored.tensor(np.array([1000, 7])).tolist() == [[1.0], [np.float32(0.007)]]


@pytest.mark.parametrize(("largest", "dtype"), [(1, "u1"), (255, "u1"), (256, "u2"), (65535, "u2"), (65536, "u4")])
@pytest.mark.parametrize("given_as", ["i8", "smallest"])
def test_categories_are_stored_small(largest: int, dtype: str, given_as: str) -> None:
    made = Features.categories(np.array([0, largest], dtype=dtype if given_as == "smallest" else given_as))
    assert made.values.dtype == np.dtype(dtype)
    assert made.cardinalities == (largest + 1,)
    assert made.tensor().tolist() == [[0], [largest]]
    assert made.tensor().dtype == torch.long


def test_no_rows_at_all() -> None:
    """A set of graphs without edges still says what its edges would be like."""
    assert Features.categories(np.empty((0, 3), dtype=np.int64), (5, 6, 2)).tensor().shape == (0, 3)
    assert Features.reals(np.empty((0, 7))).tensor().shape == (0, 7)


def test_a_negative_category() -> None:
    with pytest.raises(DataError, match=r"^category -1 in row 1, column 0: categories count from 0$"):
        Features.categories(np.array([[0, 0], [-1, 2]]))


# ---- fingerprints ------------------------------------------------------------------------------------------------

EDGES = np.array([[0, 2, 1], [1, 1, 0]])
TASK = Task("multiclass", 3, "accuracy")


def replaced(array: Any, place: Any, value: Any) -> Any:
    array = np.array(array)
    array[place] = value
    return array


CHANGES: dict[str, dict[str, Any]] = {
    "a label": {"y": np.array([0, 1, 2, 0])},
    "an edge": {"edges": replaced(EDGES, (0, 1), 0)},
    "the direction of an edge": {"edges": EDGES[::-1]},
    "whose edge it is": {"edge_ptr": np.array([0, 3, 3, 3, 3])},
    "whose node it is": {"node_ptr": np.array([0, 3, 3, 4, 6])},
    "directed": {"directed": True},
    "a split": {"splits": {"train": np.array([0, 1]), "valid": np.array([2]), "test": np.array([3])}},
    "the order of a split": {"splits": {"train": np.array([2, 0]), "valid": np.array([1]), "test": np.array([3])}},
    "the name of a split": {"splits": {"train": np.array([0, 2]), "dev": np.array([1]), "test": np.array([3])}},
    "no splits": {"splits": {}},
    "no node features": {"node_features": None},
    "a category": {"node_features": Features(replaced(pack(*SAMPLE).node_features.values, (0, 0), 1), (6, 6))},
    "a cardinality": {"node_features": Features(pack(*SAMPLE).node_features.values, (6, 7))},
    "a real": {"edge_features": Features.reals(np.array([[0.5, -1.0], [2.0, 0.25], [3.0, 3.25]]))},
    "a divisor": {"edge_features": Features.reals(np.array([[1, 2], [3, 4], [5, 6]]), divisor=10)},
    "another divisor": {"edge_features": Features.reals(np.array([[1, 2], [3, 4], [5, 6]]), divisor=100)},
    "categories of that number": {"edge_features": Features(np.array([[1, 2], [3, 4], [5, 6]]), (10, 10))},
    "one column of categories": {"edge_features": Features(np.array([[1], [2], [3]]), (1000,))},
    "one column of thousandths": {"edge_features": Features(np.array([[1], [2], [3]]), None, 1000)},
    "the metric": {"task": Task("multiclass", 3, "error_rate")},
    "no labels": {"y": None, "task": None},
}


def test_a_fingerprint_changes_with_any_content() -> None:
    prints = {"the set itself": sample().fingerprint} | {
        what: sample(**changes).fingerprint for what, changes in CHANGES.items()
    }
    assert len(set(prints.values())) == len(prints), prints
    assert all(len(print_) == 16 and set(print_) <= set("0123456789abcdef") for print_ in prints.values())


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8"])
def test_a_fingerprint_does_not_change_with_storage(dtype: str) -> None:
    graphs = sample()
    assert graphs.node_features is not None
    assert graphs.edge_features is not None
    assert graphs.y is not None
    stored = sample(
        edges=np.asfortranarray(graphs.edges.astype(dtype)),
        node_features=dataclasses.replace(graphs.node_features, values=graphs.node_features.values.astype(dtype)),
        edge_features=dataclasses.replace(graphs.edge_features, values=graphs.edge_features.values.astype(np.float64)),
        y=graphs.y.astype(dtype),
        splits={name: part.astype(dtype) for name, part in reversed(graphs.splits.items())},
        name="another name",
        ids=None,
    )
    assert stored.fingerprint == graphs.fingerprint


def test_a_fingerprint_covers_long_arrays_to_the_end() -> None:
    size = (1 << 18) + 5

    def long(last: int) -> GraphSet:
        return GraphSet(np.array([0, 9]), np.array([0, size]), replaced(np.zeros((2, size), np.uint8), (1, -1), last))

    assert long(1).fingerprint != long(2).fingerprint


# ---- faults ------------------------------------------------------------------------------------------------------

REALS = np.array([[0.5, -1.0], [2.0, 0.25], [3.0, 3.5]])
BINARY = Task("binary", 2, "rocauc")

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "label too high": ({"y": np.array([0, 1, 3, 1])}, r"graph 2: label 3 is out of range, expected 0 to 2"),
    "label negative": ({"y": np.array([0, -1, 2, 1])}, r"graph 1: label -1 is out of range, expected 0 to 2"),
    "label not an integer": (
        {"y": np.array([0.0, 1.0, 2.0, 1.0])},
        r"class labels must be 4 integers, got float64 \(4,\)",
    ),
    "too few labels": ({"y": np.array([0, 1])}, r"class labels must be 4 integers, got int64 \(2,\)"),
    "binary label": (
        {"y": np.array([[0, 1], [np.nan, 1], [0, 2], [1, 0.5]]), "task": BINARY},
        r"graph 2: label 2.0 is out of range, expected 0, 1 or NaN \(unknown\)",
    ),
    "infinite target": (
        {"y": np.array([[0.5], [np.nan], [np.inf], [1]]), "task": Task("regression", 1, "rmse")},
        r"graph 2: label inf is out of range, expected a finite number or NaN \(unknown\)",
    ),
    "shape of targets": (
        {"y": np.zeros((4, 3)), "task": BINARY},
        r"targets must be floats of shape \(4, 2\), got float64 \(4, 3\)",
    ),
    "labels without a task": ({"task": None}, r"labels and a task go together: give both or neither"),
    "a task without labels": ({"y": None}, r"labels and a task go together: give both or neither"),
    "NaN": (
        {"edge_features": Features.reals(replaced(REALS, (2, 1), np.nan))},
        r"graph 3: edge feature 1 is nan; features must be finite",
    ),
    "infinity": (
        {"edge_features": Features.reals(replaced(REALS, (0, 0), -np.inf))},
        r"graph 0: edge feature 0 is -inf; features must be finite",
    ),
    "category too high": (
        {"node_features": Features(np.array([[0, 1], [2, 5], [3, 3], [4, 6], [1, 1], [5, 0]]), (6, 6))},
        r"graph 1: node feature 1 is category 6, expected 0 to 5",
    ),
    "category negative": (
        {"node_features": Features(np.array([[0, 1], [2, 5], [3, 3], [4, 0], [1, 1], [-5, 0]]), (6, 6))},
        r"graph 3: node feature 0 is category -5, expected 0 to 5",
    ),
    "cardinalities": (
        {"node_features": Features(np.zeros((6, 2), dtype=np.uint8), (6,))},
        r"got 1 cardinalities for 2 columns",
    ),
    "rows of node features": (
        {"node_features": Features(np.zeros((5, 2), dtype=np.uint8), (6, 6))},
        r"node features must have 6 rows, got shape \(5, 2\)",
    ),
    "shape of edge features": (
        {"edge_features": Features(REALS[:, 0])},
        r"edge features must have 3 rows, got shape \(3,\)",
    ),
    "an edge outside": (
        {"edges": replaced(EDGES, (0, 2), 2)},
        r"graph 3: an edge points to node 2, but the graph has 2 nodes, counted from 0",
    ),
    "a negative end": (
        {"edges": replaced(EDGES, (1, 0), -1)},
        r"graph 0: an edge points to node -1, but the graph has 3 nodes",
    ),
    "the first of two edges outside": (
        {"edges": np.array([[0, 2, 9], [7, 1, 0]])},
        r"graph 0: an edge points to node 7",
    ),
    "a self-loop": (
        {"edges": replaced(EDGES, (1, 2), 1)},
        r"graph 3: an undirected set has no self-loops; store arcs \(directed=True\)",
    ),
    "shape of edges": ({"edges": EDGES.T}, r"edges must be \(2, 3\), got \(3, 2\)"),
    "pointer falls": ({"node_ptr": np.array([0, 4, 3, 4, 6])}, r"node_ptr must rise from 0 and have 5 entries"),
    "pointer starts late": ({"node_ptr": np.array([1, 3, 4, 4, 6])}, r"node_ptr must rise from 0 and have 5 entries"),
    "pointer too short": ({"edge_ptr": np.array([0, 2, 3])}, r"edge_ptr must rise from 0 and have 5 entries"),
    "ids": ({"ids": ["a"]}, r"got 1 ids for 4 graphs"),
    "overlapping splits": (
        {"splits": {"train": np.array([0, 1]), "test": np.array([1, 2])}},
        r"graph 1 is in more than one part, or twice in one",
    ),
    "a graph twice in a split": ({"splits": {"train": np.array([2, 2])}}, r"graph 2 is in more than one part"),
    "a split beyond the end": ({"splits": {"test": np.array([0, 4])}}, r"part 'test' names graph 4"),
    "a negative split": ({"splits": {"test": np.array([0, -1])}}, r"part 'test' names graph"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault: str) -> None:
    changes, message = FAULTS[fault]
    with pytest.raises(MlapError, match=f"^{message}") as caught:
        sample(**changes).validate()
    assert "\n" not in str(caught.value)


def test_a_sound_set_is_returned_itself() -> None:
    graphs = sample()
    assert graphs.validate() is graphs


def test_what_an_undirected_set_may_not_have_a_directed_one_may() -> None:
    sample(edges=replaced(EDGES, (1, 2), 1), directed=True).validate()
