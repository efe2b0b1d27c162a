"""The messy table from end to end: `data info → train → evaluate → predict → explain`, at the first try."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from cli.conftest import Command
from graphs.test_messy import INVALID, NUM_ROWS, UNLABELLED, messy_text

pytest.importorskip("rdkit")

#: a small network, and a split that leaves every part both classes
FAST = ("--layers", "2", "--width", "8", "--epochs", "2", "--split-sizes", "0.6,0.2,0.2", "--threads", "1")
USED = NUM_ROWS - len(INVALID) - len(UNLABELLED)


@pytest.fixture
def messy(tmp_path: Path) -> str:
    (tmp_path / "messy.csv").write_bytes(messy_text().encode("utf-8-sig"))
    return "messy.csv"


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_the_messy_table_from_end_to_end(mlap: Command, messy: str, tmp_path: Path) -> None:
    info = mlap("data", "info", messy, "--invalid-rows", "left-out.csv")
    assert info.code == 0
    assert "Smiles" in info.err  # what was inferred is said
    assert "Active" in info.out
    assert f"{USED} molecules" in info.out
    assert "contradictory" in info.out
    left_out = rows_of((tmp_path / "left-out.csv").read_text(encoding="utf-8"))
    assert [row["place"] for row in left_out] == [f"line {row + 2}" for row in sorted(INVALID.keys() | UNLABELLED)]

    trained = mlap("train", messy, *FAST, "--out", "run")
    assert trained.code == 0
    for fact in (f"{USED} molecules", "3 invalid", "Inactive", "contradictory", "several parts", "split:"):
        assert fact in trained.err, fact
    assert "ROC-AUC" in trained.out

    scores = mlap("evaluate", "run", "--split", "all", "--json")
    assert scores.code == 0
    assert scores.json["graphs"] == USED

    predicted = mlap("predict", "run", messy, "--out", "answers.csv")
    assert predicted.code == 0
    answers = rows_of((tmp_path / "answers.csv").read_bytes().decode())
    given = list(csv.DictReader(io.StringIO(messy_text(), newline=""), delimiter=";"))
    assert [row["Compound ID"] for row in answers] == [row["Compound ID"] for row in given]  # all rows, in order
    assert [row["Remark"] for row in answers] == [row["Remark"] for row in given]
    assert [number for number, row in enumerate(answers) if row["error"]] == sorted(INVALID)
    assert {row["Activity_prediction"] for row in answers} <= {"Active", "Inactive", ""}
    printed = mlap("predict", "run", messy, "--json").json["predictions"]
    assert len(printed) == NUM_ROWS

    explained = mlap("explain", "run", messy, "--graphs", "0-5", "--max", "2", "--out", "looked-at")
    assert explained.code == 0
    assert "5 graphs explained" in explained.out  # row 3 is no molecule
    content = json.loads((tmp_path / "looked-at" / "explanations.json").read_text(encoding="utf-8"))
    assert [entry["graph"] for entry in content] == [0, 1, 2, 4, 5]


def test_the_positive_class_is_said_and_can_be_chosen(mlap: Command, messy: str) -> None:
    call = ("train", messy, "--task", "binary", *FAST, "--out", "run")
    assert "Active" in mlap(*call).err
    said = mlap(*call, "--positive", "Inactive", "--overwrite", "--no-cache")
    assert said.code == 0
    answer = rows_of(mlap("predict", "run", "CCO", "--quiet").out)[0]
    expected = "Inactive" if float(answer["Activity_probability"]) >= 0.5 else "Active"
    assert answer["Activity_prediction"] == expected


def test_a_run_is_not_replaced_unasked(mlap: Command, messy: str) -> None:
    call = ("train", messy, *FAST, "--out", "run", "--quiet")
    assert mlap(*call).code == 0
    refused = mlap(*call)
    assert refused.code == 2
    assert "--resume" in refused.error
    assert "run" in refused.error


def test_invalid_rows_can_be_an_error(mlap: Command, messy: str, tmp_path: Path) -> None:
    refused = mlap("train", messy, *FAST, "--invalid", "error", "--out", "run")
    assert refused.code == 1
    line = refused.err.splitlines()[-1]
    assert "line 5" in line
    assert "--invalid skip" in line
    assert not (tmp_path / "run").exists()
    assert mlap("data", "pack", messy, "--invalid", "error", "--out", "mine.graphs").code == 1
    assert not (tmp_path / "mine.graphs").exists()


@pytest.mark.parametrize("how", [("random", "--split-seed", 3), ("stratified",)])
def test_a_packed_table_keeps_its_split(mlap: Command, messy: str, how: tuple[object, ...]) -> None:
    sizes = ("--split-sizes", "0.5,0.25,0.25")
    packed = mlap("data", "pack", messy, "--split-by", *how, *sizes, "--out", "a.graphs", "--json")
    assert packed.code == 0
    parts = packed.json["splits"]
    assert sum(parts.values()) == USED
    assert parts["train"] == pytest.approx(USED / 2, abs=3)
    assert mlap("data", "info", "a.graphs", "--json").json["splits"] == parts


def test_a_splits_file_divides_a_table(mlap: Command, messy: str, tmp_path: Path) -> None:
    usable = [row for row in range(NUM_ROWS) if row not in INVALID.keys() | UNLABELLED.keys()]
    parts = {"train": usable[:20], "valid": usable[20:30], "test": usable[30:]}
    (tmp_path / "parts.json").write_text(json.dumps(parts), encoding="utf-8")
    call = ("--splits-file", "parts.json")
    expected = {name: len(part) for name, part in parts.items()}
    assert mlap("data", "info", messy, *call, "--json").json["splits"] == expected
    assert mlap("data", "pack", messy, *call, "--out", "a.graphs", "--json").json["splits"] == expected


def test_a_table_whose_smiles_column_has_to_be_named(mlap: Command, messy: str, tmp_path: Path) -> None:
    """A model does not care what a later table calls its columns: it can be told."""
    assert mlap("train", messy, *FAST, "--out", "run", "--quiet").code == 0
    (tmp_path / "odd.csv").write_text("what,structure\na,CCO\nb,CCN\n", encoding="utf-8")
    named = ("--smiles-column", "structure", "--device", "cpu", "--quiet")
    answers = mlap("predict", "run", "odd.csv", *named)
    assert [row["what"] for row in rows_of(answers.out)] == ["a", "b"]
    root = ("--data-root", tmp_path)
    assert mlap("explain", "run", "odd.csv", *named, *root, "--out", "why").code == 0
    assert mlap("embed", "run", "odd.csv", *named, *root, "--threads", "1", "--out", "vectors.csv").code == 0
    assert len(rows_of((tmp_path / "vectors.csv").read_text(encoding="utf-8"))) == 2
    here, there = (mlap("evaluate", "run", *device, "--json").json for device in ((), ("--device", "cpu")))
    assert here == there


def test_a_run_that_has_not_ended_is_used_and_said(mlap: Command, messy: str, tmp_path: Path) -> None:
    assert mlap("train", messy, *FAST, "--out", "run", "--quiet").code == 0
    modes = {oct((tmp_path / "run" / name).stat().st_mode)[-3:] for name in ("model.safetensors", "config.json")}
    assert len(modes) == 1  # whoever may read one file may read the other
    (tmp_path / "run" / "result.json").unlink()
    for call in (("predict", "run", "CCO"), ("evaluate", "run"), ("explain", "run", "CCO")):
        answer = mlap(*call)
        assert answer.code == 0
        assert "unfinished: 2 of 2 epochs" in answer.err


@pytest.mark.parametrize("verb", ["train", "predict", "data pack", "explain", "embed"])
def test_an_output_below_a_file_is_one_line(mlap: Command, messy: str, tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    out = ("--out", "file/below.csv")
    if verb in ("train", "data pack"):
        call: tuple[object, ...] = (*verb.split(), messy, *(FAST if verb == "train" else ()), *out)
    else:
        assert mlap("train", messy, *FAST, "--out", "run", "--quiet").code == 0
        call = (verb, "run", "CCO", *out)
    answer = mlap(*call)
    assert answer.code in (1, 2)
    (*_, line) = answer.err.splitlines()
    assert line.startswith("mlap: ")
    assert "file" in line
    assert "Traceback" not in answer.err
    assert (tmp_path / "file").read_text(encoding="utf-8") == "in the way"
    made = mlap(*call[:-1], "new/folder/below.csv")  # folders are made
    assert made.code == 0, made.err
