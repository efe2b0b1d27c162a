"""Molecules from SMILES, against OGB's own `smiles2graph` and OGB's own files."""

from __future__ import annotations

import csv
import gzip
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlap.errors import DataError, MlapError, UsageError
from mlap.graphs import _smiles
from mlap.graphs.molecules import ATOM_CARDINALITIES, BOND_CARDINALITIES, molecules

pytest.importorskip("rdkit")


def ogb_module(name: str) -> Any:
    """A module of OGB; without `outdated` it starts no update check over the network."""
    present = sys.modules.get("outdated")
    sys.modules["outdated"] = None  # type: ignore[assignment]  # makes its import fail
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        pytest.skip("the ogb package, with which the features are compared, is not installed")
    finally:
        del sys.modules["outdated"]
        if present is not None:
            sys.modules["outdated"] = present


@pytest.fixture(scope="module")
def smiles2graph() -> Iterator[Callable[[str], dict[str, Any]]]:
    from rdkit import rdBase

    function = ogb_module("ogb.utils.mol").smiles2graph
    with rdBase.BlockLogs():
        yield function


@pytest.fixture(scope="module")
def hiv(shared_data: Path) -> list[str]:
    with gzip.open(shared_data / "moleculenet" / "HIV.csv.gz", "rt") as file:
        return [row["smiles"] for row in csv.DictReader(file)]


def graph(smiles: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Atom features, bond ends and bond features of one molecule."""
    found = molecules([smiles]).graphs
    return found.node_features.values, found.edges, found.edge_features.values


def assert_same_as_ogb(smiles: list[str], smiles2graph: Callable[[str], dict[str, Any]]) -> None:
    found = molecules(smiles, on_invalid="skip", processes=1)
    graphs = found.graphs
    for number, index in enumerate(found.kept):
        expected = smiles2graph(smiles[index])
        atoms = slice(*graphs.node_ptr[number : number + 2])
        bonds = slice(*graphs.edge_ptr[number : number + 2])
        assert np.array_equal(graphs.node_features.values[atoms], expected["node_feat"]), smiles[index]
        # OGB lists each bond in both directions, one after the other.
        assert np.array_equal(graphs.edges[:, bonds], expected["edge_index"][:, ::2]), smiles[index]
        assert np.array_equal(graphs.edge_features.values[bonds], expected["edge_feat"][::2]), smiles[index]


def test_vocabulary_has_the_sizes_of_ogb() -> None:
    features = ogb_module("ogb.utils.features")
    assert list(ATOM_CARDINALITIES) == features.get_atom_feature_dims()
    assert list(BOND_CARDINALITIES) == features.get_bond_feature_dims()


def test_real_molecules_are_as_ogb_reads_them(hiv: list[str], smiles2graph: Callable[[str], dict[str, Any]]) -> None:
    assert_same_as_ogb(hiv[::12], smiles2graph)
    # Metals, charges and isotopes are where shortcuts would fail: all molecules with an unusual bracket.
    unusual = [text for text in hiv if any(mark in text for mark in ("[Cu", "[Fe", "[Pt", "[Sn", "[2H", "[13", "[Zn"))]
    assert len(unusual) > 100
    assert_same_as_ogb(unusual, smiles2graph)


@pytest.mark.parametrize(
    "smiles",
    [
        "C",
        "[H]",
        "[H][H]",
        "[2H]O",
        "[13CH3][14C](=O)O",
        "*",
        "*c1ccccc1",
        "[Na+].[Cl-]",
        "CC(=O)O.CCN.[Zn+2]",
        "[NH3]->[Fe]",
        "[NH3][Fe]",
        "N->B",
        "[Cu]<-N",
        "C~C",
        "C$C",
        "C#N",
        "CN(=O)=O",
        "[U+20]",
        "[C-100]",
        "[CH3]",
        "[O][O]",
        "C[C@H](N)C(=O)O",
        "C[C@@H](N)C(=O)O",
        "F[S@OH26](F)(Cl)(Br)(I)O",
        "[C@SP1](F)(Cl)(Br)I",
        "C/C=C/C",
        "C/C=C\\C",
        "CC=CC |ctu:1|",
        "CC=CC |t:1|",
        "CC(F)Cl |o1:1,wU:1.0|",
        "CCO |^1:0|",
        "FC=CF |c:1|",
        "CCO ethanol",
        "[Xe]",
        "[Og]",
        "c1cc[nH]c1",
        "C1CC1",
        "FS(F)(F)(F)(F)F",
        "FP(F)(F)(F)F",
        "F[Si-2](F)(F)(F)(F)F",
        "O=C=O",
        "C12C3C4C1C5C2C3C45",
    ],
)
def test_unusual_molecules_are_as_ogb_reads_them(smiles: str, smiles2graph: Callable[[str], dict[str, Any]]) -> None:
    assert_same_as_ogb([smiles], smiles2graph)
    assert len(molecules([smiles]).graphs) == 1


def test_features_mean_what_the_vocabulary_says() -> None:
    atoms, ends, bonds = graph("C[C@H](N)C(=O)[O-]")
    assert atoms[:, 0].tolist() == [5, 5, 6, 5, 7, 7]  # elements, hydrogen first
    assert atoms[1, 1] in (1, 2)  # clockwise or not
    assert atoms[:, 2].tolist() == [4, 4, 3, 3, 1, 1]  # degree, with hydrogens
    assert atoms[:, 3].tolist() == [5, 5, 5, 5, 5, 4]  # charge + 5
    assert atoms[:, 4].tolist() == [3, 1, 2, 0, 0, 0]  # hydrogens
    assert ends.T.tolist() == [[0, 1], [1, 2], [1, 3], [3, 4], [3, 5]]
    assert bonds[:, 0].tolist() == [0, 0, 0, 1, 0]
    assert graph("*")[0][0, 0] == 118  # no element
    assert graph("[Fe+9]")[0][0, 3] == 11  # a charge out of range
    assert graph("[NH3]->[Fe]")[2][0, 0] == 4  # neither single, double, triple nor aromatic


def test_a_single_atom_has_no_bonds() -> None:
    found = molecules(["C", "CC", "O"]).graphs
    assert found.node_ptr.tolist() == [0, 1, 3, 4]
    assert found.edge_ptr.tolist() == [0, 0, 1, 1]
    assert found[0].edge_index.shape == (2, 0)
    assert found.ids == ["C", "CC", "O"]


def test_no_smiles_are_an_empty_set() -> None:
    found = molecules([])
    assert len(found.graphs) == 0
    assert found.graphs.node_features.values.shape == (0, 9)


def test_the_official_arrays_of_molhiv(shared_data: Path) -> None:
    """Elements, order of atoms and bonds never differ; what RDKit perceives does, between its versions, for few."""
    folder = shared_data / "ogbg_molhiv"
    first = 3000
    with gzip.open(folder / "mapping" / "mol.csv.gz", "rt") as file:
        smiles = [row["smiles"] for row, _ in zip(csv.DictReader(file), range(first), strict=False)]

    def head(name: str, rows: int) -> np.ndarray:
        with gzip.open(folder / "raw" / f"{name}.csv.gz", "rt") as file:
            return np.loadtxt(file, delimiter=",", dtype=np.int64, max_rows=rows, ndmin=2)

    num_nodes, num_edges = head("num-node-list", first).ravel(), head("num-edge-list", first).ravel()
    x, edge, edge_attr = (
        np.split(head(name, counts.sum()), np.cumsum(counts)[:-1])
        for name, counts in (("node-feat", num_nodes), ("edge", num_edges), ("edge-feat", num_edges))
    )
    found = molecules(smiles, on_invalid="skip", processes=1)
    graphs = found.graphs
    same = 0
    for number, index in enumerate(found.kept):
        atoms = graphs.node_features.values[slice(*graphs.node_ptr[number : number + 2])]
        bonds = slice(*graphs.edge_ptr[number : number + 2])
        assert np.array_equal(atoms[:, [0, 3]], x[index][:, [0, 3]]), smiles[index]
        assert np.array_equal(graphs.edges[:, bonds].T, edge[index]), smiles[index]
        same += np.array_equal(atoms, x[index]) and np.array_equal(graphs.edge_features.values[bonds], edge_attr[index])
    assert len(found.invalid) <= 5
    assert same >= 0.98 * first


# ---- invalid ---------------------------------------------------------------------------------------------------------


def test_invalid_smiles_are_refused_with_index_text_and_reason(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        DataError, match=r"2 of 3 SMILES .* index 1, 'N\(C\)\(C\)\(C\)\(C\)C': Explicit valence .* N, 5"
    ):
        molecules(["C", "N(C)(C)(C)(C)C", "C(C"])
    assert capfd.readouterr() == ("", "")  # RDKit is silent


def test_invalid_smiles_are_skipped_and_reported() -> None:
    given: list[Any] = ["C", "", "C(C", None, "CC", float("nan"), " ", "c1ccccc", "C\x00C", "\ud800", "x" * 500, "CCO"]
    found = molecules(given, on_invalid="skip")
    assert found.kept.tolist() == [0, 4, 11]
    assert found.graphs.ids == ["C", "CC", "CCO"]
    assert [failure.index for failure in found.invalid] == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    reasons = {failure.index: failure.reason for failure in found.invalid}
    assert reasons[1] == reasons[6] == "it is empty"
    assert reasons[2] == reasons[7] == "it is not written as SMILES"
    assert reasons[3] == reasons[5] == "it is not text"
    assert len(str(found.invalid[-1])) < 120


def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match=r"\['CCO'\]"):
        molecules("CCO")
    with pytest.raises(UsageError, match="did you mean 'skip'"):
        molecules(["C"], on_invalid="skipp")
    with pytest.raises(UsageError, match="at least 1, got 0"):
        molecules(["C"], processes=0)


def test_rdkit_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(UsageError, match=r"pip install 'mlap\[chem\]'"):
        molecules(["C"])


# ---- several processes -----------------------------------------------------------------------------------------------


def test_several_processes_give_the_same(hiv: list[str]) -> None:
    smiles = [*hiv[:1200], "C(C", *hiv[1200:1300]]  # 137 and 987 are invalid as well
    one = molecules(smiles, on_invalid="skip", processes=1)
    two = molecules(smiles, on_invalid="skip", processes=2)
    assert two.graphs.fingerprint == one.graphs.fingerprint
    assert two.graphs.ids == one.graphs.ids
    assert two.invalid == one.invalid
    assert [failure.index for failure in two.invalid] == [137, 987, 1200]


def test_processes_need_no_main_guard_and_leave_stderr_alone(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from mlap.graphs.molecules import molecules\n"
        "print(len(molecules(['CCO', 'C(C'] * 600, processes=2, on_invalid='skip').graphs))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("600\n", "", 0)


def test_a_worker_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_smiles, "__file__", os.devnull)  # a worker that ends at once
    with pytest.raises(MlapError, match="processes=1"):
        molecules(["C"] * 1200, processes=2)


def test_few_molecules_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    assert len(molecules(["C"] * 1200).graphs) == 1200


def test_progress_is_reported_to_the_end() -> None:
    calls: list[tuple[str, int, int | None]] = []
    molecules(["C"] * 1200, progress=lambda *call: calls.append(call))
    assert [done for _, done, _ in calls] == [500, 1000, 1200]
    assert {total for _, _, total in calls} == {1200}
