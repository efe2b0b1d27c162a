"""The table that people really have: everything at once, read at the first try, with every row accounted for."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from mlap.graphs import GraphSet, load_graphs
from mlap.graphs.inputs import iter_inputs, read_inputs
from mlap.graphs.summary import summary

pytest.importorskip("rdkit")

CHAINS = [f"{'C' * length}{end}" for length in range(1, 11) for end in ("O", "N", "Cl", "C(=O)O")]
#: index below the header → what is wrong with the row
INVALID = {3: "C(C", 17: "", 30: "not a molecule"}
UNLABELLED = {5: "", 21: "NA"}
NUM_ROWS = 46


def messy_text() -> str:
    """46 rows: 40 chains with three spoilt, two without a label; two salts, four repeats (two of them in disguise)."""
    rows: list[list[str]] = []
    for number, smiles in enumerate(CHAINS):
        label = "Active" if "N" in smiles or "Cl" in smiles else "Inactive"
        rows.append([f"CMP-{number}", INVALID.get(number, smiles), 'a; b, "c"', UNLABELLED.get(number, label)])
    rows.append(["SALT-1", "CC(=O)[O-].[Na+]", "", "Inactive"])
    rows.append(["SALT-2", "C[NH3+].[Cl-]", "two\r\nlines", "active "])
    rows.append(["AGAIN-1", "OC", "", "inactive"])
    rows.append(["AGAIN-2", "CO", "", "Inactive"])
    rows.append(["AGAIN-3", "NCC", "", "Inactive"])  # contradicts
    rows.append(["AGAIN-4", " CCN", "", "Active"])
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", lineterminator="\r\n")
    writer.writerow(["Compound ID", "Smiles ", "Remark", "Activity"])
    writer.writerows(rows)
    return text.getvalue()


@pytest.fixture(params=["t.csv", "t.csv.gz"])
def messy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    content = messy_text().encode("utf-8-sig")
    path: Path = tmp_path / request.param
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture
def graphs(messy: Path, tmp_path: Path) -> GraphSet:
    return load_graphs(messy, root=tmp_path)


def test_every_row_is_accounted_for(graphs: GraphSet) -> None:
    assert graphs.rows is not None
    left_out = {entry.row: entry for entry in graphs.left_out}
    assert sorted([*graphs.rows.tolist(), *left_out]) == list(range(NUM_ROWS))
    assert left_out.keys() == INVALID.keys() | UNLABELLED.keys()
    assert all(left_out[row].place == f"line {row + 2}" for row in left_out)


def test_the_labels_are_understood(graphs: GraphSet) -> None:
    assert graphs.task is not None
    assert graphs.y is not None
    assert (graphs.task.kind, graphs.task.metric, graphs.task.names) == ("binary", "rocauc", ("Activity",))
    assert graphs.task.labels == (("Inactive", "Active"),)
    by_row = dict(zip(graphs.rows.tolist(), graphs.y.ravel().tolist(), strict=True))  # type: ignore[union-attr]
    assert (by_row[0], by_row[1], by_row[41], by_row[42]) == (0, 1, 1, 0)


def test_what_is_said_about_it(graphs: GraphSet) -> None:
    found = summary(graphs)
    assert (found.graphs, found.invalid, found.unlabelled) == (41, 3, 2)
    # Row 5 is one of the unlabelled: ethylamine stands there only in its two repeats.
    assert (found.repeated, found.repeats, found.contradictory, found.mixtures) == (2, 5, 1, 2)


@pytest.mark.parametrize("split", ["random", "stratified"])
@pytest.mark.parametrize("seed", range(5))
def test_repeats_stay_in_one_part(messy: Path, tmp_path: Path, split: str, seed: int) -> None:
    graphs = load_graphs(messy, root=tmp_path, split=split, split_seed=seed)
    assert graphs.rows is not None
    part_of = {int(graphs.rows[index]): name for name, part in graphs.splits.items() for index in part}
    assert len(part_of) == len(graphs)
    assert part_of[0] == part_of[42] == part_of[43]
    assert part_of[44] == part_of[45]


def test_prediction_keeps_every_row_and_column(messy: Path) -> None:
    found = read_inputs(messy, molecules=True)
    assert (found.num_rows, sorted(found.invalid)) == (NUM_ROWS, sorted(INVALID))
    assert sorted([*found.kept.tolist(), *found.invalid]) == list(range(NUM_ROWS))
    assert list(found.columns) == ["Compound ID", "Smiles", "Remark", "Activity"]
    assert found.columns["Remark"][0] == 'a; b, "c"'
    pieces = list(iter_inputs(messy, rows=7))
    assert [piece.first for piece in pieces] == list(range(0, NUM_ROWS, 7))
    assert [piece.first + row for piece in pieces for row in piece.invalid] == sorted(INVALID)
    together = np.concatenate([piece.first + piece.kept for piece in pieces])
    assert together.tolist() == found.kept.tolist()
    assert [name for piece in pieces for name in piece.columns["Compound ID"]] == found.columns["Compound ID"]
    assert list(messy.parent.iterdir()) == [messy]  # nothing of it is kept
