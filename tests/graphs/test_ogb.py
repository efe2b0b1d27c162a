"""OGB's layout: real molhiv against OGB's own reader, generated sets against the arrays they were written from."""

from __future__ import annotations

import gzip
import shutil
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlap.errors import DataError, UsageError
from mlap.graphs import GraphSet, Task
from mlap.graphs.download import OGB_URL
from mlap.graphs.molecules import ATOM_CARDINALITIES, BOND_CARDINALITIES
from mlap.graphs.ogb import OGB_SETS, ogb_chunks, ogb_splits, read_ogb, required_files


@pytest.fixture(scope="session")
def ogb() -> Any:
    """The `ogb` package, kept from asking the network whether it is up to date."""
    pytest.importorskip("pandas")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setitem(sys.modules, "outdated", None)
        package = pytest.importorskip("ogb")
        import ogb.graphproppred
        import ogb.io.read_graph_raw
        import ogb.utils.features  # noqa: F401
    return package


@pytest.fixture(scope="session")
def molhiv_folder(shared_data: Path) -> Path:
    folder = shared_data / "ogbg_molhiv"
    if not folder.is_dir():
        pytest.skip(f"no ogbg-molhiv at {folder}, where MLAP_TEST_DATA says that real data lie")
    return folder


@pytest.fixture(scope="session")
def molhiv(molhiv_folder: Path) -> GraphSet:
    return read_ogb(molhiv_folder)


def write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 1))


def write_rows(path: Path, rows: Any) -> None:
    write(path, (",".join(map(str, row)) for row in rows))


class Made:
    """A random set, as lists of graphs, written in OGB's layout."""

    def __init__(self, folder: Path, graphs: int = 23, seed: int = 0, nodes: int = 40) -> None:
        rng = np.random.RandomState(seed)
        self.folder = folder
        self.num_nodes = rng.randint(2, nodes, graphs)
        self.num_nodes[3] = 0  # a graph without nodes, and below one without edges
        self.edges = []
        for size in self.num_nodes:
            pairs = np.array([(u, v) for u in range(size) for v in range(u)]).reshape(-1, 2)
            chosen = pairs[rng.permutation(len(pairs))[: 2 * size]]
            self.edges.append(np.where(rng.rand(len(chosen), 1) < 0.5, chosen, chosen[:, ::-1]))
        self.edges[5] = np.empty((0, 2), dtype=np.int64)
        raw = folder / "raw"
        write(raw / "num-node-list.csv.gz", map(str, self.num_nodes))
        write(raw / "num-edge-list.csv.gz", (str(len(e)) for e in self.edges))
        write_rows(raw / "edge.csv.gz", np.concatenate(self.edges))

    @property
    def total_nodes(self) -> int:
        return int(self.num_nodes.sum())

    @property
    def total_edges(self) -> int:
        return sum(map(len, self.edges))

    def splits(self, name: str = "species") -> dict[str, list[int]]:
        order = np.random.RandomState(1).permutation(len(self.num_nodes)).tolist()
        parts = {"train": order[:15], "valid": order[15:19], "test": order[19:]}
        for part, chosen in parts.items():
            write(self.folder / "split" / name / f"{part}.csv.gz", map(str, chosen))
        return parts


def make_ppa(folder: Path, graphs: int = 23) -> tuple[Made, np.ndarray, np.ndarray]:
    """A set in ogbg-ppa's layout, its edge features in thousandths and its classes."""
    made = Made(folder, graphs, nodes=300)
    rng = np.random.RandomState(2)
    features = np.where(rng.rand(made.total_edges, 7) < 0.5, 1, rng.randint(0, 1001, (made.total_edges, 7)))
    write_rows(folder / "raw" / "edge-feat.csv.gz", features / 1000)
    classes = rng.randint(0, 37, graphs)
    write(folder / "raw" / "graph-label.csv.gz", map(str, classes))
    made.splits()
    return made, features, classes


# ---- the table -----------------------------------------------------------------------------------------------


def test_the_table_is_ogbs(ogb: Any) -> None:
    pandas = pytest.importorskip("pandas")
    master = pandas.read_csv(Path(ogb.__file__).parent / "graphproppred" / "master.csv", index_col=0)
    assert set(OGB_SETS) == set(master.columns) - {"ogbg-code2"}
    for name, known in OGB_SETS.items():
        facts = master[name]
        assert facts["url"].replace("http:", "https:") == f"{OGB_URL}/{known.archive}"  # the host offers both
        assert facts["task type"].split()[0] == known.task.kind
        assert int(facts["num classes" if known.task.kind == "multiclass" else "num tasks"]) == known.task.num_outputs
        assert {"acc": "accuracy"}.get(facts["eval metric"], facts["eval metric"]) == known.task.metric
        assert facts["split"] == known.split
        assert (facts["data type"] == "mol") == known.molecular == (facts["has_node_attr"] == "True")
        assert facts["has_edge_attr"] == "True"
        assert facts["add_inverse_edge"] == "True"  # each undirected edge is stored once


def test_the_vocabulary_is_ogbs(ogb: Any) -> None:
    assert list(ATOM_CARDINALITIES) == ogb.utils.features.get_atom_feature_dims()
    assert list(BOND_CARDINALITIES) == ogb.utils.features.get_bond_feature_dims()


def test_code2_is_another_kind_of_task(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ogbg-code2 asks for a sequence"):
        read_ogb(tmp_path, "ogbg-code2")


# ---- molhiv --------------------------------------------------------------------------------------------------


def test_facts_about_molhiv(molhiv: GraphSet) -> None:
    assert len(molhiv) == 41_127
    assert round(molhiv.num_nodes / len(molhiv), 2) == 25.51
    assert round(molhiv.num_edges / len(molhiv), 2) == 27.47
    assert molhiv.y is not None
    assert molhiv.y.sum() == 1443
    assert {name: len(part) for name, part in molhiv.splits.items()} == {"train": 32901, "valid": 4113, "test": 4113}
    assert [molhiv.y[molhiv.split(name)].sum() for name in ("train", "valid", "test")] == [1232, 81, 130]
    assert molhiv.task == Task("binary", 1, "rocauc", ("HIV_active",))
    assert not molhiv.directed
    assert molhiv.node_features is not None
    assert molhiv.edge_features is not None
    assert molhiv.node_features.cardinalities == ATOM_CARDINALITIES
    assert molhiv.edge_features.cardinalities == BOND_CARDINALITIES
    assert molhiv.ids is not None
    assert molhiv.ids[0] == "CCC1=[O+][Cu-3]2([O+]=C(CC)C1)[O+]=C(CC)CC(CC)=[O+]2"
    molhiv.validate()


def test_molhiv_stores_each_edge_once(molhiv: GraphSet) -> None:
    owner = np.repeat(np.arange(len(molhiv)), np.diff(molhiv.edge_ptr))
    low, high = np.sort(molhiv.edges, axis=0).astype(np.int64)
    assert len(np.unique((owner * 256 + low) * 256 + high)) == molhiv.num_edges


def test_molhiv_is_what_ogb_reads(molhiv: GraphSet, molhiv_folder: Path, ogb: Any, capsys: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graphs = ogb.io.read_graph_raw.read_csv_graph_raw(str(molhiv_folder / "raw"))
    capsys.readouterr()
    assert len(graphs) == len(molhiv)
    assert molhiv.node_features is not None
    assert molhiv.edge_features is not None
    for index, graph in enumerate(graphs):
        nodes = slice(molhiv.node_ptr[index], molhiv.node_ptr[index + 1])
        edges = slice(molhiv.edge_ptr[index], molhiv.edge_ptr[index + 1])
        assert graph["num_nodes"] == nodes.stop - nodes.start
        assert np.array_equal(graph["edge_index"], molhiv.edges[:, edges])
        assert np.array_equal(graph["node_feat"], molhiv.node_features.values[nodes])
        assert np.array_equal(graph["edge_feat"], molhiv.edge_features.values[edges])


def test_molhivs_labels_and_splits_are_what_pandas_reads(molhiv: GraphSet, molhiv_folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    labels = pandas.read_csv(molhiv_folder / "raw" / "graph-label.csv.gz", header=None).values
    np.testing.assert_array_equal(molhiv.y, labels)
    for name, part in molhiv.splits.items():
        expected = pandas.read_csv(molhiv_folder / "split" / "scaffold" / f"{name}.csv.gz", header=None).values[:, 0]
        np.testing.assert_array_equal(part, expected)
    smiles = pandas.read_csv(molhiv_folder / "mapping" / "mol.csv.gz")["smiles"]
    assert list(smiles) == list(molhiv.ids or ())


def test_molhiv_in_pieces_is_the_same_set(molhiv: GraphSet, molhiv_folder: Path) -> None:
    pieces = list(ogb_chunks(molhiv_folder, graphs_per_chunk=10_000))
    assert [len(piece) for piece in pieces] == [10_000] * 4 + [1127]
    joined = GraphSet.concatenate(pieces)
    assert joined.fingerprint == GraphSet.concatenate([molhiv]).fingerprint
    assert all(not piece.splits for piece in pieces)


# ---- a set like ogbg-ppa -------------------------------------------------------------------------------------


def test_ppa_layout(tmp_path: Path) -> None:
    made, features, classes = make_ppa(tmp_path / "ogbg_ppa")
    splits = made.splits()
    graphs = read_ogb(made.folder)
    assert graphs.name == "ogbg-ppa"
    assert graphs.task == Task("multiclass", 37, "accuracy")
    assert graphs.node_features is None
    assert graphs.ids is None
    assert not graphs.directed
    np.testing.assert_array_equal(graphs.y, classes)
    np.testing.assert_array_equal(np.diff(graphs.node_ptr), made.num_nodes)
    np.testing.assert_array_equal(graphs.edges, np.concatenate(made.edges).T)
    assert {name: part.tolist() for name, part in graphs.splits.items()} == splits
    assert graphs.edge_features is not None
    assert graphs.edge_features.values.dtype == np.uint16
    # Dividing gives exactly the number that reading the text as a float gives.
    np.testing.assert_array_equal(graphs.edge_features.tensor().numpy(), (features / 1000).astype(np.float32))


@pytest.mark.parametrize("size", [1, 5, 23, 100])
def test_pieces_agree_and_add_up(tmp_path: Path, size: int) -> None:
    made, *_ = make_ppa(tmp_path / "ogbg_ppa")
    pieces = list(ogb_chunks(made.folder, graphs_per_chunk=size))
    assert sum(map(len, pieces)) == 23
    assert max(map(len, pieces)) == min(size, 23)
    for piece in pieces:
        piece.validate()
        assert piece.edges.dtype == pieces[0].edges.dtype
        assert piece.edge_features is not None
        assert piece.edge_features.values.dtype == np.uint16
    whole = read_ogb(made.folder)
    joined = GraphSet.concatenate(pieces)
    for attribute in ("node_ptr", "edge_ptr", "edges", "y"):
        np.testing.assert_array_equal(getattr(joined, attribute), getattr(whole, attribute))


def test_real_edge_features_with_more_decimals_are_floats(tmp_path: Path) -> None:
    made, *_ = make_ppa(tmp_path / "ogbg_ppa")
    values = np.random.RandomState(0).rand(made.total_edges, 7)
    write_rows(made.folder / "raw" / "edge-feat.csv.gz", values)
    features = read_ogb(made.folder).edge_features
    assert features is not None
    assert features.values.dtype == np.float32
    np.testing.assert_array_equal(features.tensor().numpy(), values.astype(np.float32))


def test_a_later_value_that_does_not_fit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlap.graphs._csv.BLOCK_BYTES", 1000)
    made, features, _ = make_ppa(tmp_path / "ogbg_ppa")
    rows = (features / 1000).tolist()
    rows[500][3] = 0.12345
    write_rows(made.folder / "raw" / "edge-feat.csv.gz", rows)
    with pytest.raises(DataError, match=r"edge-feat\.csv\.gz, line 501: expected at most three decimals, got 0.12345"):
        read_ogb(made.folder)


# ---- molecules with several targets --------------------------------------------------------------------------


def make_molecules(folder: Path, targets: int, seed: int = 3) -> tuple[Made, np.ndarray, np.ndarray]:
    made = Made(folder)
    rng = np.random.RandomState(seed)
    atoms = np.stack([rng.randint(0, count, made.total_nodes) for count in ATOM_CARDINALITIES], axis=1)
    bonds = np.stack([rng.randint(0, count, made.total_edges) for count in BOND_CARDINALITIES], axis=1)
    write_rows(folder / "raw" / "node-feat.csv.gz", atoms)
    write_rows(folder / "raw" / "edge-feat.csv.gz", bonds)
    made.splits("scaffold")
    smiles = [f"C{'C' * index}" for index in range(23)]
    header = ",".join([f"target {index}" for index in range(targets)] + ["smiles", "mol_id"])
    write(folder / "mapping" / "mol.csv.gz", [header] + [f"{',' * targets}{s}," for s in smiles])
    return made, atoms, bonds


@pytest.mark.parametrize("number", ["{:.0f}", "{:.1f}"])
def test_several_targets_with_missing_labels(tmp_path: Path, number: str) -> None:
    made, atoms, bonds = make_molecules(tmp_path / "ogbg_moltox21", 12)
    rng = np.random.RandomState(0)
    labels = np.where(rng.rand(23, 12) < 0.4, np.nan, rng.randint(0, 2, (23, 12)))
    cells = [["" if np.isnan(value) else number.format(value) for value in row] for row in labels]
    write_rows(made.folder / "raw" / "graph-label.csv.gz", cells)
    graphs = read_ogb(made.folder)
    np.testing.assert_array_equal(graphs.y, labels.astype(np.float32))
    assert graphs.y is not None
    assert graphs.y.dtype == np.float32
    assert graphs.task == Task("binary", 12, "rocauc", tuple(f"target {index}" for index in range(12)))
    assert graphs.node_features is not None
    assert graphs.edge_features is not None
    np.testing.assert_array_equal(graphs.node_features.values, atoms)
    np.testing.assert_array_equal(graphs.edge_features.values, bonds)
    assert graphs.ids is not None
    assert graphs.ids[2] == "CCC"


def test_regression(tmp_path: Path) -> None:
    made, *_ = make_molecules(tmp_path / "ogbg_molesol", 1)
    y = np.random.RandomState(0).normal(size=23)
    write(made.folder / "raw" / "graph-label.csv.gz", map(repr, y.tolist()))
    graphs = read_ogb(made.folder)
    np.testing.assert_array_equal(graphs.y, y[:, None].astype(np.float32))
    assert graphs.task is not None
    assert (graphs.task.kind, graphs.task.metric) == ("regression", "rmse")


def test_the_name_says_which_set_a_folder_is(tmp_path: Path) -> None:
    made, *_ = make_molecules(tmp_path / "renamed", 1)
    write(made.folder / "raw" / "graph-label.csv.gz", ["0", "1"] * 11 + ["0"])
    own = read_ogb(made.folder)
    assert own.name == "renamed"
    official = read_ogb(made.folder, "ogbg-molhiv")
    assert official.name == "ogbg-molhiv"
    assert official.node_features is not None
    assert official.node_features.cardinalities == ATOM_CARDINALITIES
    assert {name: part.tolist() for name, part in official.splits.items()} == {
        name: part.tolist() for name, part in own.splits.items()
    }


def test_the_required_files_are_required(tmp_path: Path) -> None:
    made, *_ = make_molecules(tmp_path / "ogbg_molhiv", 1)
    write(made.folder / "raw" / "graph-label.csv.gz", ["0"] * 23)
    read_ogb(made.folder)
    for file in required_files("ogbg-molhiv"):
        path = made.folder / file
        path.rename(tmp_path / "aside")
        with pytest.raises(DataError, match=rf"{path.name} is missing"):
            read_ogb(made.folder)
        (tmp_path / "aside").rename(path)


# ---- somebody's own data -------------------------------------------------------------------------------------


def test_own_data_without_anything_but_edges(tmp_path: Path) -> None:
    made = Made(tmp_path / "mine")
    graphs = read_ogb(made.folder)
    assert graphs.task is None
    assert graphs.y is None
    assert graphs.node_features is graphs.edge_features is None
    assert graphs.splits == {}
    np.testing.assert_array_equal(graphs.edges, np.concatenate(made.edges).T)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["0", "1"] * 11 + ["1"], Task("binary", 1, "rocauc")),
        (["0", "", "1.0"] + ["1"] * 20, Task("binary", 1, "rocauc")),
        (["0,1", ",1"] + ["1,"] * 21, Task("binary", 2, "rocauc")),
        (["0", "1", "2"] * 7 + ["0"] * 2, Task("multiclass", 3, "accuracy")),
        (["0", "2"] * 11 + ["0"], Task("regression", 1, "rmse")),
        (["0", "1", "2", ""] + ["1"] * 19, Task("regression", 1, "rmse")),
        (["-1", "1"] * 11 + ["1"], Task("regression", 1, "rmse")),
        (["0.5"] * 23, Task("regression", 1, "rmse")),
        (["0,2"] * 23, Task("regression", 2, "rmse")),
    ],
)
def test_the_task_is_guessed_from_the_labels(tmp_path: Path, labels: list[str], expected: Task) -> None:
    made = Made(tmp_path / "mine")
    write(made.folder / "raw" / "graph-label.csv.gz", labels)
    graphs = read_ogb(made.folder)
    assert graphs.task == expected
    numbers = np.array([[float(cell or "nan") for cell in line.split(",")] for line in labels])
    np.testing.assert_array_equal(np.reshape(graphs.y, numbers.shape), numbers.astype(np.float32))


def test_the_kind_of_features_is_guessed(tmp_path: Path) -> None:
    made = Made(tmp_path / "mine")
    rng = np.random.RandomState(0)

    def read(values: np.ndarray) -> Any:
        write_rows(made.folder / "raw" / "node-feat.csv.gz", values)
        features = read_ogb(made.folder).node_features
        assert features is not None
        np.testing.assert_array_equal(features.tensor().numpy(), values.astype(np.float32))
        return features

    categories = read(rng.randint(0, 7, (made.total_nodes, 3)) * [1, 100, 0])
    assert categories.cardinalities == (7, 601, 1)
    assert read(rng.randint(0, 1001, (made.total_nodes, 3)) / 1000).divisor == 1000
    for values in (
        rng.randint(-3, 3, (made.total_nodes, 2)),
        rng.randint(0, 100_000, (made.total_nodes, 2)),
        rng.normal(size=(made.total_nodes, 2)),
    ):
        features = read(values)
        assert features.cardinalities is None
        assert features.values.dtype == np.float32


def test_self_loops_and_pairs_listed_both_ways_make_arcs(tmp_path: Path) -> None:
    made = Made(tmp_path / "mine")
    assert not read_ogb(made.folder).directed
    for extra in (made.edges[7][:1, ::-1], np.array([[0, 0]])):
        edges = [*made.edges[:7], np.concatenate((made.edges[7], extra)), *made.edges[8:]]
        write(made.folder / "raw" / "num-edge-list.csv.gz", (str(len(e)) for e in edges))
        write_rows(made.folder / "raw" / "edge.csv.gz", np.concatenate(edges))
        graphs = read_ogb(made.folder)
        assert graphs.directed
        np.testing.assert_array_equal(graphs.edges, np.concatenate(edges).T)


def test_splits_of_ones_own(tmp_path: Path) -> None:
    made = Made(tmp_path / "mine")
    assert ogb_splits(made.folder) == {}
    first = made.splits("first")
    assert {name: part.tolist() for name, part in ogb_splits(made.folder).items()} == first
    made.splits("second")
    with pytest.raises(UsageError, match="several splits, choose one of them: first, second"):
        ogb_splits(made.folder)
    assert ogb_splits(made.folder, "second").keys() == first.keys()
    with pytest.raises(UsageError, match=r"unknown split of .* 'thrid'"):
        ogb_splits(made.folder, "thrid")


# ---- what is wrong with it -----------------------------------------------------------------------------------


def change(path: Path, line: int, text: str | None) -> None:
    """Replace a line, counted from 1, leave it out, or add one at the end (line 0)."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    if line == 0:
        line = len(lines) + 1
    lines[line - 1 : line] = [] if text is None else [text]
    write(path, lines)


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("raw/edge.csv.gz", 9, "0,x", r"edge.csv.gz, line 9: expected 2 numbers, got '0,x'"),
        ("raw/edge.csv.gz", 9, "0", r"edge.csv.gz, line 9: expected 2 values, got 1"),
        ("raw/edge.csv.gz", 9, "0,293", r"edge.csv.gz, line 9: the edge 0,293 leaves its graph \(graph 0, which has"),
        ("raw/edge.csv.gz", 9, "0,299", r"edge.csv.gz, line 9: expected node numbers below 294, .* got 299"),
        ("raw/edge.csv.gz", 9, "0,70000", r"edge.csv.gz, line 9: expected 0 to 65535, got 70000"),
        ("raw/edge.csv.gz", 9, "1,1", r"edge.csv.gz, line 9: the edge 1,1 is a self-loop"),
        ("raw/edge.csv.gz", 9, "0,-1", r"edge.csv.gz, line 9: expected"),
        ("raw/edge.csv.gz", 9, None, r"edge.csv.gz has \d+ lines, expected \d+: num-edge-list.csv.gz adds up to"),
        ("raw/edge.csv.gz", 0, "0,1", r"edge.csv.gz has more than \d+ lines, but num-edge-list"),
        ("raw/edge-feat.csv.gz", 4, None, r"edge-feat.csv.gz has \d+ lines, expected"),
        ("raw/edge-feat.csv.gz", 4, "0,0,0,0,0,0,nan", r"edge-feat.csv.gz, line 4: expected"),
        ("raw/graph-label.csv.gz", 4, "37", r"graph-label.csv.gz, line 4: expected a class from 0 to 36, got 37"),
        ("raw/graph-label.csv.gz", 4, "-1", r"graph-label.csv.gz, line 4: expected a class from 0 to 36, got -1"),
        ("raw/graph-label.csv.gz", 4, "1.5", r"graph-label.csv.gz, line 4: expected an integer, got 1.5"),
        ("raw/graph-label.csv.gz", 23, None, r"graph-label.csv.gz has 22 lines, expected 23"),
        ("raw/num-node-list.csv.gz", 2, "-5", r"num-node-list.csv.gz, line 2: got -5"),
        ("raw/num-node-list.csv.gz", 2, None, r"num-edge-list.csv.gz has 23 lines, expected 22"),
        ("raw/num-edge-list.csv.gz", 2, "100000", r"edge.csv.gz has \d+ lines, expected"),
        ("split/species/valid.csv.gz", 2, "23", r"valid.csv.gz, line 2: got 23; expected one of 23 graphs"),
        ("split/species/valid.csv.gz", 2, "a", r"valid.csv.gz, line 2: expected 1 numbers"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, file: str, line: int, text: str | None, message: str) -> None:
    made, *_ = make_ppa(tmp_path / "ogbg_ppa")
    change(made.folder / file, line, text)
    with pytest.raises(DataError, match=message):
        read_ogb(made.folder)


def test_a_graph_twice_in_the_split_is_named(tmp_path: Path) -> None:
    made, *_ = make_ppa(tmp_path / "ogbg_ppa")
    parts = made.splits()
    change(made.folder / "split" / "species" / "test.csv.gz", 3, str(parts["train"][4]))
    with pytest.raises(
        DataError, match=rf"test.csv.gz, line 3: got {parts['train'][4]}; the split lists this graph twice"
    ):
        ogb_splits(made.folder)


def test_malformed_molecules_are_named(tmp_path: Path) -> None:
    made, *_ = make_molecules(tmp_path / "ogbg_molhiv", 1)
    labels, atoms = made.folder / "raw" / "graph-label.csv.gz", made.folder / "raw" / "node-feat.csv.gz"
    write(labels, ["0"] * 10 + ["2"] + ["0"] * 12)
    with pytest.raises(DataError, match=r"graph-label.csv.gz, line 11: expected 0, 1 or nothing, got 2"):
        read_ogb(made.folder)
    write(labels, ["0"] * 23)
    before = atoms.read_bytes()
    change(atoms, 6, "0,5,0,0,0,0,0,0,0")
    with pytest.raises(DataError, match=r"node-feat.csv.gz, line 6: expected categories below 119, 5, .* got 5"):
        read_ogb(made.folder)
    atoms.write_bytes(before)
    smiles = made.folder / "mapping" / "mol.csv.gz"
    change(smiles, 24, None)
    with pytest.raises(DataError, match=r"mol.csv.gz has 22 molecules, expected 23"):
        read_ogb(made.folder)
    change(smiles, 23, ",C,\n,C,\n,C,")
    with pytest.raises(DataError, match=r"mol.csv.gz has more than 23 molecules"):
        read_ogb(made.folder)
    write(smiles, ["HIV_active,mol_id"])
    with pytest.raises(DataError, match=r"mol.csv.gz, line 1: expected a column 'smiles'"):
        read_ogb(made.folder)
    smiles.write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(DataError, match=r"mol.csv.gz is damaged"):
        read_ogb(made.folder)


def test_a_quoted_smiles_is_read(tmp_path: Path) -> None:
    made, *_ = make_molecules(tmp_path / "ogbg_molhiv", 1)
    write(made.folder / "raw" / "graph-label.csv.gz", ["0"] * 23)
    change(made.folder / "mapping" / "mol.csv.gz", 2, '0,"C,C",mol')
    ids = read_ogb(made.folder).ids
    assert ids is not None
    assert ids[:2] == ["C,C", "CC"]


def test_a_damaged_or_missing_folder(tmp_path: Path, molhiv_folder: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        read_ogb(tmp_path / "ogbg_molhiv")
    shutil.copytree(molhiv_folder, tmp_path / "ogbg_molhiv", copy_function=shutil.copyfile)
    edges = tmp_path / "ogbg_molhiv" / "raw" / "edge.csv.gz"
    edges.chmod(0o644)
    edges.write_bytes(edges.read_bytes()[:-1000])
    with pytest.raises(DataError, match=r"edge.csv.gz is damaged"):
        read_ogb(tmp_path / "ogbg_molhiv")
    with pytest.raises(UsageError, match="graphs_per_chunk"):
        ogb_chunks(molhiv_folder, graphs_per_chunk=0)
