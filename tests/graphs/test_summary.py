"""What is said about a set before it is trained on."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from mlap.graphs import load_graphs, synthetic
from mlap.graphs.summary import summary, write_left_out

pytest.importorskip("rdkit")

SMILES = ["CCO", "CCN", "c1ccccc1", "CC(=O)O", "C1CC1", "CCCC", "OCCO", "CNC", "Clc1ccccc1", "C#N"]


def test_repeats_contradictions_and_mixtures() -> None:
    smiles = [*SMILES, "OCC", "C(C)O", "NCC", "CC(=O)[O-].[Na+]", "C.C |$a;b$|", "CCCCC |^1:0,1.2|"]
    labels = [0] * 10 + [1, 0, 0, 1, 1, 1]
    found = summary(load_graphs(smiles, labels=labels))
    assert (found.graphs, found.repeated, found.repeats) == (16, 2, 5)  # ethanol three times, ethylamine twice
    assert found.contradictory == 1
    assert found.mixtures == 2  # the point in the last one's extension joins nothing
    assert found.labels[0].classes == {"negative": 12, "positive": 4}
    text = "\n".join(found.lines())
    assert "16 molecules" in text
    assert "4 (25 %)" in text


def test_a_table_says_what_it_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{smiles},{'Active' if number % 2 else 'Inactive'}" for number, smiles in enumerate(SMILES)]
    path.write_text("\n".join(["smiles,Activity", *rows, "C(C,Active", '"x, ""y""",Active', "CCCCC,"]) + "\n")
    graphs = load_graphs(path, cache=False)
    found = summary(graphs)
    assert (found.invalid, found.unlabelled) == (2, 1)
    assert found.labels[0].classes == {"Inactive": 5, "Active": 5}
    assert "3 rows" in found.lines()[0]
    write_left_out(graphs, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [(row["place"], row["smiles"]) for row in written] == [
        ("line 12", "C(C"),
        ("line 13", 'x, "y"'),
        ("line 14", "CCCCC"),
    ]
    assert all(row["reason"] for row in written)


def test_quantities_have_a_histogram() -> None:
    values = [*np.linspace(0, 1, 9), 9.0]
    found = summary(load_graphs(SMILES, labels=values))
    (labels,) = found.labels
    assert labels.values == pytest.approx({"smallest": 0, "median": 0.5625, "mean": 1.35, "largest": 9}, abs=1e-6)
    assert (sum(labels.histogram), labels.histogram[-1]) == (10, 1)
    assert "0 to 9" in labels.line()
    assert {name: part.mean is not None for name, part in found.parts.items()} == dict.fromkeys(found.parts, True)


@pytest.mark.parametrize(("values", "expected"), [([0, 10, 5, 6], 0), ([0, 10, 0, 9], 1)])
def test_values_contradict_when_they_are_far_apart(values: list[float], expected: int) -> None:
    found = summary(
        load_graphs(["C", "CC", "CCC", "C(C)C"], labels=[values[0], values[1], *values[2:]], task="regression")
    )
    assert (found.repeated, found.contradictory) == (1, expected)


def test_which_part_lacks_a_class(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    parts = ["train"] * 6 + ["valid"] * 2 + ["test"] * 2
    kinds = ["a", "b", "c", "a", "b", "c", "a", "b", "c", "c"]
    rows = [",".join(row) for row in zip(SMILES, kinds, parts, strict=True)]
    path.write_text("\n".join(["smiles,class,split", *rows]) + "\n")
    found = summary(load_graphs(path, cache=False, split="column:split"))
    assert {name: part.lacks for name, part in found.parts.items()} == {
        "train": (),
        "valid": ("c",),
        "test": ("a", "b"),
    }
    assert found.lines()[-2:] == ["valid has no c", "test has no a, b"]


def test_many_targets_and_many_classes_take_one_line() -> None:
    labels = np.tile([[0.0, 1, 0, 1, np.nan]], (10, 1))
    labels[0] = 1
    found = summary(load_graphs(SMILES, labels=labels, task="binary"))
    assert found.unknown == pytest.approx(9 / 50)
    assert len([line for line in found.lines() if "target" in line]) == 1
    assert "18 %" in found.lines()[1]
    nine = summary(synthetic(3))
    assert not nine.molecules
    assert "9 classes of 3 each" in nine.lines()[1]


def test_without_labels_and_without_graphs() -> None:
    assert summary(load_graphs(["CCO", "C.C"])).lines()[0].startswith("2 molecules")
    assert summary(load_graphs(["CCO"]).subset([])).lines() == ["0 molecules"]
