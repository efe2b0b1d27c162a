"""What a model may be asked about: every row stays, and nothing but our own errors is raised."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from mlap.errors import MlapError, UsageError
from mlap.graphs import molecules, packed, sources, synthetic
from mlap.graphs.inputs import iter_inputs, read_inputs

pytest.importorskip("rdkit")

SMILES = ["CCO", "C(C", "c1ccccc1", "", "CN"]


def test_smiles_in_every_container() -> None:
    containers: list[Any] = [SMILES, tuple(SMILES), np.array(SMILES)]
    try:
        import pandas
    except ImportError:
        pass
    else:
        containers += [
            pandas.Series(SMILES, index=list("vwxyz")),
            pandas.DataFrame({"Smiles ": SMILES, "id": range(5)}),
        ]
    for given in containers:
        found = read_inputs(given, molecules=True)
        assert (found.num_rows, found.kept.tolist(), sorted(found.invalid)) == (5, [0, 2, 4], [1, 3])
        assert found.smiles == SMILES
        assert found.graphs.ids == ["CCO", "c1ccccc1", "CN"]


def test_one_molecule() -> None:
    found = read_inputs("CCO", molecules=True)
    assert (found.num_rows, len(found.graphs)) == (1, 1)
    with pytest.raises(UsageError, match="'CCX' is neither a data set nor valid SMILES"):
        read_inputs("CCX", molecules=True)
    with pytest.raises(UsageError, match="not trained on molecules"):
        read_inputs("CCO", molecules=False)
    with pytest.raises(UsageError, match="not trained on molecules"):
        read_inputs(["CCO"], molecules=False)


@pytest.mark.parametrize("length", [300, 2000, 5000])
def test_a_long_molecule_is_no_path(length: int) -> None:
    assert len(read_inputs("C" * length, molecules=True).graphs) == 1
    assert len(read_inputs("C" * (length // 2) + "/C=C/" + "C" * (length // 2 - 3), molecules=True).graphs) == 1


@pytest.mark.parametrize("text", ["C" * 5001, "C" * 200_000, "C(" * 100_000 + "C" + ")" * 100_000])
def test_molecules_that_are_too_large_are_invalid(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_inputs(text, molecules=True)
    assert "at most" in str(caught.value)
    assert len(str(caught.value)) < 300
    assert list(read_inputs(["C", text], molecules=True).invalid) == [1]


@pytest.mark.parametrize("text", ["\0", "a\0b", "~nobody/x", "x" * 5000, "/" * 300, "\ud800", "", " ", "-1", "XYZ"])
def test_strange_texts_are_expected_errors(text: str) -> None:
    with pytest.raises(MlapError):
        read_inputs(text, molecules=True)


def test_graphs_of_other_libraries() -> None:
    ring = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), y=torch.tensor([7]))
    for given in (ring, [ring, ring]):
        found = read_inputs(given, molecules=False)
        assert found.num_rows == len(found.graphs) == (2 if isinstance(given, list) else 1)
        assert found.graphs.y is None
    assert read_inputs([networkx.path_graph(4)], molecules=False).graphs.num_nodes == 4
    assert read_inputs(synthetic(1), molecules=False).num_rows == 9
    for nonsense in (3, None, object()):
        with pytest.raises(UsageError, match="expected a path, SMILES"):
            read_inputs(nonsense, molecules=True)


def test_packed_sets_and_their_smiles(tmp_path: Path) -> None:
    packed.save(molecules(["CCO", "CN"]).graphs, tmp_path / "m.graphs")
    found = read_inputs(tmp_path / "m.graphs", molecules=True)
    assert (found.smiles, found.kept.tolist()) == (["CCO", "CN"], [0, 1])


def test_nothing_of_a_table_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME", "MLAP_DATA"):
        monkeypatch.setenv(variable, str(tmp_path / "user"))
    (tmp_path / "t.csv").write_text("smiles\nCCO\n")
    monkeypatch.setattr(sources, "_cached", None)
    read_inputs(tmp_path / "t.csv", molecules=True)
    list(iter_inputs(tmp_path / "t.csv", rows=1))
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"id;smiles\n1;CCO\n2;C(C\n")))
    found = read_inputs("-", molecules=True)
    assert (found.columns["id"], sorted(found.invalid)) == (["1", "2"], [1])


def test_pieces(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("smiles,n\n" + "".join(f"{text},{number}\n" for number, text in enumerate(SMILES)))
    said: list[str] = []
    pieces = list(iter_inputs(tmp_path / "t.csv", rows=2, say=said.append))
    assert [(piece.first, piece.num_rows) for piece in pieces] == [(0, 2), (2, 2), (4, 1)]
    assert [piece.first + row for piece in pieces for row in piece.invalid] == [1, 3]
    assert len(said) == len(set(said)) == 1  # said of the first piece only
    with pytest.raises(UsageError, match="rows must be at least 1"):
        next(iter_inputs(tmp_path / "t.csv", rows=0))


def test_a_later_piece_that_is_all_invalid_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,n\nCCO,1\nCCN,2\nhello,3\nworld,4\n")
    pieces = list(iter_inputs(tmp_path / "t.csv", rows=2))
    assert [sorted(piece.invalid) for piece in pieces] == [[], [0, 1]]
