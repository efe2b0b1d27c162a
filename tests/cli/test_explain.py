from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

TRAIN = ("--layers", 2, "--width", 6, "--epochs", 1, "--quiet", "--device", "cpu")
SMILES = ("CCO", "c1ccccc1O", "CC(=O)N", "CCN", "CCCl", "OCC(O)CO", "c1ccncc1", "CC(C)C", "C#N", "O=C=O")


@pytest.fixture
def run(mlap: Any, tiny: Path) -> str:
    """A network of synthetic graphs."""
    assert mlap("train", tiny, *TRAIN, "--out", "run").code == 0
    return "run"


@pytest.fixture
def molecule_run(mlap: Any, tmp_path: Path) -> str:
    """A network of molecules."""
    rows = [f"{'C' * (number // 10)}{smiles},{number % 2}" for number, smiles in enumerate(SMILES * 4)]
    (tmp_path / "molecules.csv").write_text("smiles,active\n" + "\n".join(rows) + "\n")
    answer = mlap("train", "molecules.csv", *TRAIN, "--out", "chem", "--set", "norm=none")
    assert answer.code == 0, answer.err
    return "chem"


def test_synthetic_graphs(mlap: Any, run: str, tiny: Path, tmp_path: Path) -> None:
    answer = mlap(
        "explain",
        run,
        tiny,
        "--graphs",
        "3,0,10-11",
        "--class",
        7,
        "--out",
        "here",
        "--max",
        1,
        "--atom-numbers",
        "--threads",
        1,
    )
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == ["row 3", "row 0", "row 10", "row 11"]
    assert "; logit of class 7 " in lines[0]
    assert lines[4].startswith("4 graphs explained, 1 picture, written to here; sums are exact to")
    here = {path.name for path in (tmp_path / "here").iterdir()}
    assert here == {"explanations.csv", "explanations.json", "graph-3.svg", "graph-3.png", "graph-3.csv"}
    with (tmp_path / "here" / "explanations.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 4 * 25 * 2


def test_smiles(mlap: Any, molecule_run: str, tmp_path: Path) -> None:
    answer = mlap("explain", molecule_run, "CC(=O)Oc1ccccc1C(=O)O", "[Na+].[Cl-]", "--json")
    assert answer.code == 0, answer.err
    content = answer.json
    aspirin, salt = content["explanations"]
    assert aspirin["id"] == "CC(=O)Oc1ccccc1C(=O)O"
    assert salt["elements"] == ["Na", "Cl"]
    for one in (aspirin, salt):
        assert sum(one["terms"].values()) == pytest.approx(one["logit"], abs=1e-4)
        assert one["output_name"] == "active"
    assert json.loads((tmp_path / "explanations" / "explanations.json").read_text()) == content["explanations"]
    assert (tmp_path / "explanations" / "graph-1.png").exists()


def test_a_table_without_labels(mlap: Any, molecule_run: str, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("smiles\nCCO\nCCCO\n")
    answer = mlap("explain", molecule_run, "new.csv", "--max", 0, "--quiet")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("2 graphs explained, 0 pictures, written to explanations")
    assert answer.out.count("\n") == 1


def test_mistakes_are_one_line(mlap: Any, run: str, tiny: Path) -> None:
    assert "takes numbers and ranges such as 0,5,10-19" in mlap("explain", run, tiny, "--graphs", "one").error
    assert "there is no row 54; synthetic-variant has 54" in mlap("explain", run, tiny, "--graphs", "53-54").error
    assert "--class must be 0 to 8, got '9'" in mlap("explain", run, tiny, "--class", "9").error
    assert "was not trained on molecules" in mlap("explain", run, "CCO").error
    assert "no run directory" in mlap("explain", "nothing", tiny).error
