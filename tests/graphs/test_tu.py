"""TU's layout: real sets against PyG's reader, small ones against what was written, malformed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.io import read_tu_data

from mlap.errors import DataError
from mlap.graphs import GraphSet, Task, random_split
from mlap.graphs.tu import read_tu


def write(folder: Path, **files: str) -> Path:
    """A set called S; each file is given as its lines, separated by semicolons."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, lines in files.items():
        (folder / f"S_{part}.txt").write_text("".join(f"{line}\n" for line in lines.split(";") if lines))
    return folder


# A path of three nodes and an edge: nodes 1–3 and 4–5.
SMALL = {
    "A": "1, 2;2, 1;2, 3;3, 2;5, 4;4, 5",
    "graph_indicator": "1;1;1;2;2",
    "graph_labels": "-1;1",
}


# ---- real sets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "num_graphs"), [("NCI1", 4110), ("NCI83", 3918)])
def test_real_sets_are_what_pyg_reads(shared_data: Path, name: str, num_graphs: int) -> None:
    if not (shared_data / name).is_dir():
        pytest.skip(f"no {shared_data / name}")
    graphs = read_tu(shared_data / name)
    assert len(graphs) == num_graphs
    assert graphs.name == name
    assert graphs.task == Task("binary", 1, "rocauc")
    assert not graphs.directed
    for part, expected in random_split(num_graphs, seed=0).items():
        np.testing.assert_array_equal(graphs.split(part), expected)

    data, slices, _ = read_tu_data(str(shared_data / name / "raw"), name)
    assert graphs.y is not None
    assert graphs.node_features is not None
    assert torch.equal(torch.from_numpy(graphs.y[:, 0]).long(), data.y)
    np.testing.assert_array_equal(graphs.node_ptr, slices["x"])
    # PyG's categories are one-hot from the smallest label to the largest, with a column for labels that do not occur.
    np.testing.assert_array_equal(graphs.node_features.values[:, 0], ranks(data.x))

    assert 2 * graphs.num_edges == data.edge_index.shape[1]
    np.testing.assert_array_equal(2 * graphs.edge_ptr, slices["edge_index"])
    whole = graphs.batch(np.arange(num_graphs))
    offsets = np.repeat(graphs.node_ptr[:-1], np.diff(slices["edge_index"]))
    expected_arcs = data.edge_index.numpy() + offsets
    columns = [*whole.edge_index.numpy()]
    expected_columns = [*expected_arcs]
    assert (data.edge_attr is None) == (whole.edge_attr is None) == (name == "NCI1")
    if whole.edge_attr is not None:
        columns.append(whole.edge_attr[:, 0].numpy())
        expected_columns.append(ranks(data.edge_attr))
    np.testing.assert_array_equal(in_order(columns), in_order(expected_columns))


def ranks(one_hot: torch.Tensor) -> np.ndarray:
    return np.unique(one_hot.argmax(dim=1).numpy(), return_inverse=True)[1]


def in_order(columns: list[np.ndarray]) -> np.ndarray:
    table = np.stack(columns)
    return table[:, np.lexsort(table[::-1])]


# ---- small sets ----------------------------------------------------------------------------------------------


def edges_of(graphs: GraphSet) -> list[list[tuple[int, int]]]:
    pairs = [tuple(pair) for pair in graphs.edges.T.tolist()]
    return [pairs[start:stop] for start, stop in zip(graphs.edge_ptr[:-1], graphs.edge_ptr[1:], strict=True)]


@pytest.mark.parametrize("where", ["", "raw"])
def test_each_undirected_edge_is_stored_once(tmp_path: Path, where: str) -> None:
    write(tmp_path / where, **SMALL)
    graphs = read_tu(tmp_path)
    assert graphs.name == "S"
    assert not graphs.directed
    assert edges_of(graphs) == [[(0, 1), (1, 2)], [(0, 1)]]
    assert graphs.y is not None
    assert graphs.y.tolist() == [[0], [1]]
    assert graphs.node_features is None


def test_three_classes_keep_their_names(tmp_path: Path) -> None:
    graphs = read_tu(write(tmp_path, A="1,2;2,1", graph_indicator="1;1;2;3;4", graph_labels="7;-2;10;7"))
    assert graphs.task == Task("multiclass", 3, "accuracy", ("-2", "7", "10"))
    assert graphs.y is not None
    assert graphs.y.tolist() == [1, 0, 2, 1]


def test_labels_become_consecutive_categories(tmp_path: Path) -> None:
    write(tmp_path, **SMALL, node_labels="5;-1;5;9;9", edge_labels="3, 0;3, 0;8, 0;8, 0;3, 0;3, 0")
    graphs = read_tu(tmp_path)
    assert graphs.node_features is not None
    assert graphs.edge_features is not None
    assert graphs.node_features.values.tolist() == [[1], [0], [1], [2], [2]]
    assert graphs.node_features.cardinalities == (3,)
    assert graphs.edge_features.values.tolist() == [[0, 0], [1, 0], [0, 0]]
    assert graphs.edge_features.cardinalities == (2, 1)


def test_attributes_come_before_one_hot_labels(tmp_path: Path) -> None:
    write(tmp_path, **SMALL, node_labels="5;4;5;7;7", node_attributes="0.5,1;-1,2;1e2,3;0,4;0,5")
    write(tmp_path, edge_attributes="0.25;0.25;1.5;1.5;-2;-2")
    graphs = read_tu(tmp_path)
    assert graphs.node_features is not None
    assert graphs.edge_features is not None
    assert graphs.node_features.tensor().tolist() == [
        [0.5, 1, 0, 1, 0],
        [-1, 2, 1, 0, 0],
        [100, 3, 0, 1, 0],
        [0, 4, 0, 0, 1],
        [0, 5, 0, 0, 1],
    ]
    assert not graphs.directed
    assert graphs.edge_features.tensor().tolist() == [[0.25], [1.5], [-2]]


def test_attributes_and_labels_are_pygs(tmp_path: Path) -> None:
    write(tmp_path, **SMALL, node_labels="1;0;1;2;2", node_attributes="0.5,1;-1,2;1e2,3;0,4;0,5")
    graphs = read_tu(tmp_path)
    data, *_ = read_tu_data(str(tmp_path), "S")
    assert graphs.node_features is not None
    assert torch.equal(graphs.node_features.tensor(), data.x)


@pytest.mark.parametrize(
    ("arcs", "stored"),
    [
        ("1,2;2,1;2,3;4,5;5,4", [[(0, 1), (1, 0), (1, 2)], [(0, 1), (1, 0)]]),  # 2 → 3 is one way
        ("1,2;2,1;3,3", [[(0, 1), (1, 0), (2, 2)], []]),
        ("4,5;3,1", [[(2, 0)], [(0, 1)]]),
    ],
)
def test_one_way_arcs_and_loops_make_a_directed_set(tmp_path: Path, arcs: str, stored: Any) -> None:
    graphs = read_tu(write(tmp_path, **{**SMALL, "A": arcs}))
    assert graphs.directed
    assert edges_of(graphs) == stored


def test_a_pair_with_different_labels_makes_a_directed_set(tmp_path: Path) -> None:
    graphs = read_tu(write(tmp_path, **SMALL, edge_labels="0;1;0;0;0;0"))
    assert graphs.directed
    assert graphs.num_edges == 6
    assert graphs.edge_features is not None
    assert graphs.edge_features.values[:, 0].tolist() == [0, 1, 0, 0, 0, 0]


def test_a_repeated_arc_is_stored_once(tmp_path: Path) -> None:
    arcs = SMALL["A"] + ";1,2;2,1;1,2"
    graphs = read_tu(write(tmp_path, **{**SMALL, "A": arcs}, edge_labels="1;1;2;2;1;1;1;1;1"))
    assert edges_of(graphs) == [[(0, 1), (1, 2)], [(0, 1)]]
    assert graphs.edge_features is not None
    assert graphs.edge_features.values[:, 0].tolist() == [0, 1, 0]
    write(tmp_path, edge_labels="1;1;2;2;1;1;1;2;1")
    with pytest.raises(DataError, match=r"S_A.txt, line 8: got 2,1; an earlier line has this arc with other features"):
        read_tu(tmp_path)


def test_graphs_without_edges_or_nodes(tmp_path: Path) -> None:
    graphs = read_tu(write(tmp_path, A="", graph_indicator="1;3", graph_labels="0;1;0"))
    assert np.diff(graphs.node_ptr).tolist() == [1, 0, 1]
    assert graphs.num_edges == 0


def test_real_targets_and_no_targets(tmp_path: Path) -> None:
    write(tmp_path, A=SMALL["A"], graph_indicator=SMALL["graph_indicator"])
    assert read_tu(tmp_path).task is None
    graphs = read_tu(write(tmp_path, graph_attributes="0.5,1;-2,3"))
    assert graphs.task == Task("regression", 2, "mae")
    assert graphs.y is not None
    assert graphs.y.tolist() == [[0.5, 1], [-2, 3]]


@given(st.data())
def test_any_undirected_set_comes_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=6))
    starts = np.concatenate(([0], np.cumsum(sizes)))
    expected, arcs = [], []
    for size, start in zip(sizes, starts, strict=False):
        pairs = [(u, v) for u in range(size) for v in range(u + 1, size)]
        chosen = sorted(data.draw(st.sets(st.sampled_from(pairs)))) if pairs else []
        expected.append(chosen)
        for u, v in chosen:
            arcs += [(start + u + 1, start + v + 1), (start + v + 1, start + u + 1)]
    arcs = data.draw(st.permutations(arcs))
    folder = write(
        tmp_path_factory.mktemp("tu"),
        A=";".join(f"{u}, {v}" for u, v in arcs),
        graph_indicator=";".join(str(g + 1) for g, size in enumerate(sizes) for _ in range(size)),
        graph_labels=";".join(str(g % 2) for g in range(len(sizes))),
    )
    graphs = read_tu(folder)
    assert edges_of(graphs) == expected
    assert not graphs.directed


# ---- malformed sets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": "1,2;2,1;1,4;4,1"}, r"S_A.txt, line 3: got 1,4; the two nodes are in different graphs"),
        ({"A": "1,2;2,1;1,6"}, r"S_A.txt, line 3: got 1,6; nodes are counted from 1 to 5"),
        ({"A": "1,2;0,1"}, r"S_A.txt, line 2: got 0,1; nodes are counted from 1"),
        ({"A": "1,2;2,one"}, r"S_A.txt, line 2: expected 2 numbers, got '2,one'"),
        ({"A": "1,2;2"}, r"S_A.txt, line 2: expected 2 values, got 1"),
        ({"A": "1,2;2,1.5"}, r"S_A.txt, line 2: expected an integer, got 1.5"),
        ({"graph_indicator": "1;1;2;1;2"}, r"S_graph_indicator.txt, line 4: got 1; the nodes must be in the order"),
        ({"graph_indicator": "0;1;1;2;2"}, r"S_graph_indicator.txt, line 1: got 0; graphs are counted from 1"),
        ({"graph_indicator": "1;1;1;2"}, r"S_A.txt, line 5: got 5,4; nodes are counted from 1 to 4"),
        ({"graph_labels": "0"}, r"S_graph_labels.txt has 1 lines, expected 2"),
        ({"graph_labels": "0;1;1"}, r"S_graph_labels.txt has 3 lines, expected 2"),
        ({"graph_labels": "0;0"}, r"S_graph_labels.txt has only one class"),
        ({"graph_labels": "0;?"}, r"S_graph_labels.txt, line 2"),
        ({"node_labels": "1;1;1;1"}, r"S_node_labels.txt has 4 lines, expected 5"),
        ({"node_labels": "1;1;;1;1"}, r"S_node_labels.txt, line 3: expected 1 numbers, got ''"),
        ({"edge_labels": "1;1"}, r"S_edge_labels.txt has 2 lines, expected 6"),
        ({"node_attributes": "1;1;nan;1;1"}, r"S_node_attributes.txt, line 3: got nan; expected finite"),
        ({"node_attributes": "1;1;1"}, r"S_node_attributes.txt has 3 lines, expected 5"),
        ({"edge_attributes": "1,2;1"}, r"S_edge_attributes.txt, line 2: expected 2 values"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, change: dict[str, str], message: str) -> None:
    write(tmp_path, **{**SMALL, **change})
    with pytest.raises(DataError, match=message):
        read_tu(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must have the files of one TU set"):
        read_tu(tmp_path)
    write(tmp_path, A="1,2")
    with pytest.raises(DataError, match=r"S_graph_indicator.txt is missing"):
        read_tu(tmp_path)
    with pytest.raises(DataError, match=r"T_graph_indicator.txt is missing"):
        read_tu(tmp_path, "T")
    (tmp_path / "T_A.txt").write_text("1,2\n")
    with pytest.raises(DataError, match="must have the files of one TU set"):
        read_tu(tmp_path)
