"""Graphs of PyG and networkx come in, and go out again, as they were: compared arc by arc, attributes and all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from mlap.errors import DataError
from mlap.graphs import Features, GraphSet, Task, random_split, synthetic
from mlap.graphs.convert import from_networkx, from_pyg, to_pyg


def arcs_of(data: Data) -> Counter[Any]:
    """The arcs of a graph with their attributes, one by one: the slow and obvious form that all tests compare."""
    attributes = columns(data.edge_attr, data.num_edges) or [()] * data.num_edges
    ends = zip(*([[], []] if data.edge_index is None else data.edge_index.tolist()), strict=True)
    return Counter((u, v, *row) for (u, v), row in zip(ends, attributes, strict=True))


def is_undirected(graphs: list[Data]) -> bool:
    """Every arc as often as its reverse, and no loop."""
    counts = [arcs_of(data) for data in graphs]
    return all(u != v and count[(u, v, *row)] == count[(v, u, *row)] for count in counts for u, v, *row in count)


@st.composite
def data_lists(draw: st.DrawFn) -> list[Data]:
    """Small graphs with everything in them: no nodes, isolated nodes, parallel edges, loops, one-way edges."""
    node_kind, edge_kind = (draw(st.sampled_from(["none", "int", "flat", "float"])) for _ in range(2))
    symmetric = draw(st.booleans())
    graphs = []
    for _ in range(draw(st.integers(0, 5))):
        n = draw(st.integers(0, 4))
        ends = st.integers(0, max(n - 1, 0))
        pairs = draw(st.lists(st.tuples(ends, ends, st.integers(0, 2)), max_size=6)) if n else []
        if symmetric:
            pairs = [pair for u, v, a in pairs if u != v for pair in ((u, v, a), (v, u, a))]
        pairs = draw(st.permutations(pairs))
        data = Data(num_nodes=n, edge_index=torch.tensor([p[:2] for p in pairs], dtype=torch.int64).reshape(-1, 2).T)
        if node_kind != "none":
            data.x = torch.tensor(draw(st.lists(st.integers(0, 300), min_size=n, max_size=n)), dtype=torch.int64)
        if edge_kind != "none":
            data.edge_attr = torch.tensor([p[2] for p in pairs], dtype=torch.int64)
        for key, kind in (("x", node_kind), ("edge_attr", edge_kind)):
            if kind in ("int", "float"):
                data[key] = torch.stack((data[key], data[key] % 2), dim=1).to(
                    {"int": torch.int32}.get(kind, torch.float64)
                )
        graphs.append(data)
    return graphs


def columns(values: torch.Tensor | None, rows: int) -> list[Any]:
    return [] if values is None or rows == 0 else values.reshape(rows, -1).tolist()


@given(graphs=data_lists())
@settings(deadline=None, max_examples=150)
def test_pyg_round_trip(graphs: list[Data]) -> None:
    graph_set = from_pyg(graphs)
    assert graph_set.directed == (not is_undirected(graphs))
    assert graph_set.num_edges == sum(data.num_edges for data in graphs) // (1 if graph_set.directed else 2)
    back = to_pyg(graph_set)
    assert len(back) == len(graphs)
    for one, other in zip(back, graphs, strict=True):
        assert one.num_nodes == other.num_nodes
        assert arcs_of(one) == arcs_of(other)
        assert columns(one.x, one.num_nodes) == columns(other.x, other.num_nodes)
    again = from_pyg(back)
    assert again.directed == graph_set.directed
    assert [arcs_of(data) for data in again] == [arcs_of(data) for data in graph_set]


@given(graphs=data_lists())
@settings(deadline=None, max_examples=60)
def test_networkx_says_the_same(graphs: list[Data]) -> None:
    """The same graphs by way of networkx multigraphs, directed, and undirected where they are."""
    attrs = [] if any(data.edge_attr is None for data in graphs) else ["a", "b"]
    undirected = is_undirected(graphs)
    converted = []
    for data in graphs:
        graph = nx.MultiGraph() if undirected else nx.MultiDiGraph()
        graph.add_nodes_from(f"node {n}" for n in range(data.num_nodes))
        for (u, v, *row), count in arcs_of(data).items():
            if not undirected or u < v:
                named = dict(zip(attrs, [*row, *row], strict=False))
                graph.add_edges_from(count * [(f"node {u}", f"node {v}", named)])
        converted.append(graph)
    graph_set = from_networkx(converted, edge_attrs=attrs)
    assert graph_set.directed == (not undirected)
    for one, other in zip(graph_set, graphs, strict=True):
        assert one.num_nodes == other.num_nodes
        ends = lambda data: Counter(tuple(arc[:3]) for arc in arcs_of(data).elements())  # noqa: E731
        assert ends(one) == ends(other)


def test_every_kind_of_set_survives_pyg() -> None:
    original = synthetic(5)
    again = from_pyg(to_pyg(original), task=original.task, splits=original.splits, name=original.name)
    assert again.directed
    assert again.fingerprint == original.fingerprint
    molecules = GraphSet(
        node_ptr=np.array([0, 2, 2, 3]),
        edge_ptr=np.array([0, 1, 1, 1]),
        edges=np.array([[0], [1]], dtype=np.uint8),
        node_features=Features.categories(np.array([[5, 1], [7, 0], [0, 0]])),
        edge_features=Features.categories(np.array([[2]])),
        y=np.array([[1, np.nan], [0, 1], [np.nan, 0]], dtype=np.float32),
        task=Task("binary", 2, "rocauc"),
        splits=random_split(3),
        ids=["CO", "", "C"],
    ).validate()
    again = from_pyg(to_pyg(molecules), splits=molecules.splits)
    assert again.fingerprint == molecules.fingerprint
    assert again.ids == molecules.ids


def labelled(*labels: Any) -> list[Data]:
    return [Data(num_nodes=1, y=label) for label in labels]


@pytest.mark.parametrize(
    ("labels", "kind", "outputs", "y"),
    [
        ([torch.tensor(2), torch.tensor([0])], "multiclass", 3, [2, 0]),
        ([1, 0], "multiclass", 2, [1, 0]),
        ([1.0, float("nan")], "binary", 1, [[1.0], [None]]),
        ([torch.tensor([1.5]), torch.tensor([0.0])], "regression", 1, [[1.5], [0.0]]),
        ([torch.tensor([[1]]), torch.tensor([[0]])], "binary", 1, [[1.0], [0.0]]),
        ([torch.tensor([[1, 0, 1]]), torch.tensor([[0, 0, 1]])], "binary", 3, [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]),
        ([torch.tensor([[1.0, 7.0]]), torch.tensor([[0.0, float("nan")]])], "regression", 2, [[1.0, 7.0], [0.0, None]]),
        ([torch.tensor(True), torch.tensor(False)], "binary", 1, [[1.0], [0.0]]),
    ],
)
def test_labels_say_what_the_task_is(labels: Any, kind: str, outputs: int, y: Any) -> None:
    graph_set = from_pyg(labelled(*labels))
    assert graph_set.task is not None
    assert graph_set.y is not None
    assert (graph_set.task.kind, graph_set.task.num_outputs) == (kind, outputs)
    assert np.array_equal(graph_set.y, np.array(y, dtype=graph_set.y.dtype), equal_nan=graph_set.y.dtype.kind == "f")
    assert graph_set.y.dtype == (np.int64 if kind == "multiclass" else np.float32)


def test_a_given_task_overrides() -> None:
    binary = from_pyg(labelled(1, 0), task=Task("binary", 1, "ap"))
    assert binary.y is not None
    assert binary.y.tolist() == [[1.0], [0.0]]
    classes = from_pyg(labelled(torch.tensor([[2.0]]), 0.0), task=Task("multiclass", 5, "error_rate"))
    assert classes.y is not None
    assert classes.y.tolist() == [2, 0]
    with pytest.raises(DataError, match="single integers"):
        from_pyg(labelled(0.5), task=Task("multiclass", 5, "error_rate"))
    with pytest.raises(DataError, match="no labels"):
        from_pyg([Data(num_nodes=1)], task=Task("multiclass", 5, "error_rate"))


def pair(**more: Any) -> Data:
    return Data(**{"num_nodes": 2, "edge_index": torch.tensor([[0, 1], [1, 0]]), **more})


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([pair(), HeteroData()], "graph 1 is a HeteroData"),
        ([pair(x=torch.ones(3))], r"graph 0: x is float32 \(3,\), expected 2 rows"),
        ([pair(x=torch.ones(2)), pair(x=torch.ones(2, dtype=torch.int64))], "graph 1: x is int64"),
        ([pair(x=torch.ones(2)), pair(x=torch.ones(2, 2))], r"graph 1: x is float32 \(2, 2\)"),
        ([pair(x=torch.ones(2)), pair()], "graph 1 has no x"),
        ([pair(x=torch.tensor([0, -1]))], "node features: category -1"),
        ([pair(edge_attr=torch.tensor([1.0, float("nan")]))], "edge feature 0 is nan"),
        ([pair(y=1), pair()], "graph 1 has no label"),
        ([pair(y=torch.tensor([1, 2]))], r"graph 0: y is int64 \(2,\)"),
        ([pair(y=torch.tensor([[1, 2]])), pair(y=1)], "graph 1: y is"),
        ([pair(y=torch.tensor([[1, 2]])), pair(y=torch.tensor([[1]]))], "graph 1: y is"),
        ([pair(y=-1)], "label -1 is out of range"),
        ([pair(edge_index=torch.tensor([[0, 2], [2, 0]]))], "graph 0: an edge points to node 2"),
        ([pair(edge_index=torch.tensor([[0, -1], [-1, 0]]))], "graph 0: an edge points to node -1"),
        ([pair(edge_index=torch.tensor([0, 1]))], "graph 0: edge_index is"),
        ([pair(edge_index=torch.ones(2, 2))], "graph 0: edge_index is torch.float32"),
        ([Data(num_nodes=2, adj_t=torch.eye(2))], "adj_t"),
    ],
)
def test_malformed_pyg_data(graphs: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_pyg(graphs)


def test_nodes_are_counted_with_care() -> None:
    isolated = from_pyg([pair(num_nodes=4), Data(pos=torch.zeros(2, 3)), Data(num_nodes=0)])
    assert np.diff(isolated.node_ptr).tolist() == [4, 2, 0]
    assert np.diff(from_pyg([Data(x=torch.zeros(3, 1)), Data(num_nodes=0)]).node_ptr).tolist() == [3, 0]
    with pytest.warns(UserWarning, match=r"2 graphs \(the first is graph 1\) have neither num_nodes nor x"):
        guessed = from_pyg([pair(), Data(edge_index=torch.tensor([[0], [4]])), Data()])
    assert np.diff(guessed.node_ptr).tolist() == [2, 5, 0]


def test_a_dataset_object() -> None:
    class Pairs(InMemoryDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(None)
            self.data, self.slices = self.collate([pair(y=label, smiles="CC") for label in (0, 1, 2)])

    graph_set = from_pyg(Pairs(), name="pairs")
    assert (len(graph_set), graph_set.num_edges, graph_set.name, graph_set.ids) == (3, 3, "pairs", 3 * ["CC"])
    assert graph_set.task == Task("multiclass", 3, "accuracy")


def test_networkx_attributes_labels_and_types() -> None:
    path = nx.path_graph(["a", "b", "c"])
    nx.set_node_attributes(path, {"a": 3, "b": 1, "c": 0}, "element")
    nx.set_node_attributes(path, 1, "charge")
    nx.set_edge_attributes(path, 0.5, "length")
    empty = nx.Graph()
    graph_set = from_networkx(
        [path, empty], ["ring", "chain"], node_attrs=["charge", "element"], edge_attrs=["length"], ids=["p", "e"]
    )
    assert not graph_set.directed
    assert graph_set.task == Task("multiclass", 2, "accuracy", ("chain", "ring"))
    assert graph_set.y is not None
    assert graph_set.y.tolist() == [1, 0]
    assert graph_set[0].x.tolist() == [[1, 3], [1, 1], [1, 0]]
    assert arcs_of(graph_set[0]) == Counter([(0, 1, 0.5), (1, 0, 0.5), (1, 2, 0.5), (2, 1, 0.5)])
    assert graph_set.ids == ["p", "e"]
    nx.set_node_attributes(path, {"a": 2.5}, "charge")
    mixed = from_networkx([path], [[1.0, 0.0]], node_attrs=["charge", "element"])
    assert mixed[0].x.tolist() == [[2.5, 3], [1, 1], [1, 0]]
    assert mixed.task == Task("binary", 2, "rocauc")


def test_networkx_loops_and_directed_graphs_make_arcs() -> None:
    loop = nx.Graph([(0, 0), (0, 1)])
    mixed = from_networkx([loop, nx.DiGraph([(0, 1)]), nx.Graph([(0, 1)])])
    assert mixed.directed
    expected = [[(0, 0), (0, 1), (1, 0)], [(0, 1)], [(0, 1), (1, 0)]]
    assert [arcs_of(data) for data in mixed] == [Counter(arcs) for arcs in expected]


def test_malformed_networkx() -> None:
    graph = nx.path_graph(2)
    with pytest.raises(DataError, match="graph 0, node 0 has no attribute 'element'; it has none"):
        from_networkx([graph], node_attrs=["element"])
    nx.set_edge_attributes(graph, "single", "bond")
    with pytest.raises(DataError, match="edge 0 – 1: bond is 'single', expected a number; number the categories"):
        from_networkx([graph], edge_attrs=["bond"])
    with pytest.raises(DataError, match="got 2 labels for 1 graphs"):
        from_networkx([graph], [1, 2])
    with pytest.raises(DataError, match="class 'x' is not one of a, b"):
        from_networkx([graph], ["x"], task=Task("multiclass", 2, "accuracy", ("a", "b")))
    with pytest.raises(DataError, match="'train' names graph 5"):
        from_networkx([graph], splits={"train": [5]})
