"""`mlap data` on tables: what people see of their own file, and every option that says how to read it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.conftest import Command

from mlap.graphs import packed

pytest.importorskip("rdkit")

CHAINS = [f"{'C' * length}{end}" for length in range(1, 11) for end in ("O", "N", "F", "Cl")]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cleaned is not the user's cache."""
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "user"))


def write(name: str = "t.csv", **columns: list[Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    Path(name).write_text(text.getvalue())
    return name


@pytest.fixture
def binary(mlap: Command) -> str:
    """Forty molecules and three rows that are left out; the last row repeats the first with another label."""
    smiles = [*CHAINS, "C(C", "", "CCC", "OC"]
    labels = ["Active" if "N" in text or "F" in text else "Inactive" for text in CHAINS]
    return write(smiles=smiles, id=range(44), Activity=[*labels, "Active", "Active", "", "Active"])


def test_what_people_see(mlap: Command, binary: str) -> None:
    answer = mlap("data", "info", binary)
    assert answer.code == 0
    for fact in ("41 molecules", "3 rows", "2 invalid", "1 without a label", "Inactive 20 (49 %)", "Active 21 (51 %)"):
        assert fact in answer.out
    for fact in ("1 molecule is repeated, in 2 rows", "contradictory", "train 33", "% Active"):
        assert fact in answer.out
    assert "'Active' is the positive class" in answer.err
    assert "line 42" in answer.err
    assert "Traceback" not in answer.err


def test_the_same_as_json(mlap: Command, binary: str) -> None:
    answer = mlap("data", "info", binary, "--json")
    assert answer.err == ""
    found = answer.json["summary"]
    assert (found["invalid"], found["unlabelled"], found["repeated"], found["contradictory"]) == (2, 1, 1, 1)
    assert found["labels"][0]["classes"] == {"Inactive": 20, "Active": 21}
    assert sum(part["size"] for part in found["parts"].values()) == 41
    assert mlap("data", "info", binary, "--quiet").err == ""


def test_all_rows_that_are_left_out_in_a_file(mlap: Command, binary: str) -> None:
    assert mlap("data", "info", binary, "--invalid-rows", "out.csv", "--quiet").code == 0
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["place"] for row in rows] == ["line 42", "line 43", "line 44"]
    assert "--invalid skip" in mlap("data", "info", binary, "--invalid", "error").error
    assert mlap("data", "info", binary, "--invalid-rows", "new/out.csv", "--quiet").code == 0  # folders are made
    assert Path("new/out.csv").is_file()
    assert mlap("data", "info", binary, "--invalid-rows", "out.csv/under-a-file", "--quiet").code == 1


def test_one_file_is_one_entry_of_the_cache(mlap: Command, binary: str) -> None:
    first = mlap("data", "info", binary).err
    folder = Path("data/packed").absolute()
    assert str(folder) in first
    for path in (Path(binary).absolute(), f"./{binary}", f"../{Path.cwd().name}/{binary}"):
        again = mlap("data", "info", path).err
        assert str(folder) not in again  # said once
        assert "again" not in again
    assert len(os.listdir(folder)) == 1
    cleaned = mlap("data", "clean", "--json").json
    assert cleaned["removed"] == 1
    assert cleaned["bytes"] > 0
    assert os.listdir(folder) == []
    assert mlap("data", "info", binary, "--no-cache").code == 0
    assert os.listdir(folder) == []
    assert mlap("data", "clean").out.startswith("0 packed copies")


def test_clean_leaves_what_people_packed_themselves(mlap: Command, binary: str) -> None:
    Path("data/packed").mkdir(parents=True)
    Path("data/packed/notes.graphs").mkdir()
    assert mlap("data", "pack", binary, "--out", "mine.graphs", "--quiet").code == 0
    assert mlap("data", "clean", "--data-root", "data").code == 0
    assert Path("mine.graphs").is_dir()
    assert Path("data/packed/notes.graphs").is_dir()


def test_labels_that_must_be_named_do_not_hide_the_rest(mlap: Command) -> None:
    Path("t.smi").write_text("CCO ethanol\nCCN\nC(C\nOCC\n")
    answer = mlap("data", "info", "t.smi")
    assert answer.code == 0
    assert "--target" in answer.err
    for fact in ("3 molecules", "1 invalid", "1 molecule is repeated"):
        assert fact in answer.out
    write(smiles=CHAINS, a=[number / 7 for number in range(40)], b=[number / 3 for number in range(40)])
    assert "columns 'a', 'b'" in mlap("data", "info", "t.csv").err
    named = mlap("data", "info", "t.csv", "--target", "b", "--json").json["summary"]
    assert named["labels"][0]["target"] == "b"
    assert mlap("data", "info", "t.csv", "--target", "c").code == 2


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ({"active": [0, 1] * 20}, (), ("binary", ["0", "1"])),
        ({"y": ["low", "mid", "high", "mid"] * 10}, ("--target", "y"), ("multiclass", ["high", "low", "mid"])),
        (
            {"y": ["red", "blue"] * 20},
            ("-t", "y", "--positive", "red", "--task", "binary"),
            ("binary", ["blue", "red"]),
        ),
        ({"a": [0, 1] * 20, "b": [1, ""] * 20}, (), ("binary", None)),
        ({"logS": [number / 7 for number in range(40)]}, (), ("regression", None)),
        ({"n": [0, 1] * 20}, ("--target", "n", "--task", "regression"), ("regression", None)),
    ],
)
def test_packed_tables(
    mlap: Command, columns: dict[str, list[Any]], options: tuple[str, ...], expected: tuple[str, list[str] | None]
) -> None:
    write(molecule=CHAINS, **columns)
    answer = mlap("data", "pack", "t.csv", "--smiles-column", "molecule", *options, "--no-cache", "--out", "p.graphs")
    assert answer.code == 0, answer.err
    assert "40 graphs of t written to p.graphs" in answer.out
    graphs = packed.load("p.graphs")
    assert graphs.task is not None
    assert graphs.task.kind == expected[0]
    if graphs.task.kind == "multiclass":
        assert list(graphs.task.names) == expected[1]
    elif graphs.task.labels:
        assert list(graphs.task.labels[0]) == expected[1]
    assert mlap("data", "info", "p.graphs", "--json").json["fingerprint"] == graphs.fingerprint


def test_ways_to_split(mlap: Command) -> None:
    write(smiles=CHAINS, active=[0, 1] * 20, where=["train"] * 20 + ["val"] * 10 + ["test"] * 10)
    Path("s.json").write_text('{"train": [0, 1, 2], "valid": [3], "test": [4, 5]}')

    def sizes(*options: object) -> list[int]:
        facts = mlap("data", "info", "t.csv", "--target", "active", *options, "--json").json
        return list(facts["splits"].values())

    assert sizes("--split-sizes", "0.5,0.25,0.25") == [20, 10, 10]
    assert sizes("--split-by", "column:where") == [20, 10, 10]
    assert sizes("--splits-file", "s.json") == [3, 1, 2]
    assert sizes("--split-by", "stratified", "--split-seed", 3) == [32, 4, 4]
    one, other = (
        mlap("data", "info", "t.csv", "-t", "active", "--split-seed", seed, "--json").json["fingerprint"]
        for seed in (0, 1)
    )
    assert one != other
    assert "--split-sizes" in mlap("data", "info", "t.csv", "-t", "active", "--split-sizes", "1,2").error
    assert "--split-sizes" in mlap("data", "info", "t.csv", "-t", "active", "--split-sizes", "a,b,c").error
    assert (
        "--splits-file"
        in mlap("data", "info", "t.csv", "-t", "active", "--splits-file", "s.json", "--split-by", "random").error
    )
    assert "absent.json" in mlap("data", "info", "t.csv", "-t", "active", "--splits-file", "absent.json").error


def test_standard_input(mlap: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"smiles\tactive\nCCO\t1\nC\t0\nCC\t1\nCN\t0\n")))
    facts = mlap("data", "info", "-", "--json").json
    assert (facts["name"], facts["graphs"]) == ("stdin", 4)


def test_a_packed_set_that_lies_is_one_line(mlap: Command, tiny: Path) -> None:
    """Its first edge leads far away, and its checksums are right; compiled loops would follow it."""
    edges = np.fromfile(tiny / "edges.bin", np.uint8).astype("<u4")
    edges[0] = 4_000_000_000
    edges.tofile(tiny / "edges.bin")
    header = json.loads((tiny / "header.json").read_text())
    header["set"]["arrays"]["edges"].update(dtype="<u4", crc32=zlib.crc32(edges.tobytes()))
    content = json.dumps(header["set"], sort_keys=True)
    header["sha256"] = hashlib.sha256(content.encode()).hexdigest()
    (tiny / "header.json").write_text(json.dumps(header))
    for command in (("data", "info"), ("train",)):
        answer = mlap(*command, tiny)
        assert answer.code == 1
        assert "node 4000000000" in answer.error
