"""`mlap predict` and `mlap embed`, as a user calls them."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import Command
from models.molecule_models import BROKEN, SMILES, small_run, write_library

import mlap as library_of
from mlap.models.shards import MANIFEST

pytest.importorskip("rdkit")

ROWS = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("model") / "run")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_library(tmp_path / "table.csv", ROWS)


def test_smiles_are_answered_on_stdout(mlap: Command, run: Path) -> None:
    answer = mlap("predict", run, "CCO", "C(C")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    expected = library_of.load(run).predict(["CCO"]).values[0, 0]
    assert answer.code == 0
    assert float(rows[0]["label_probability"]) == pytest.approx(expected, abs=1e-5)
    assert rows[1]["label_probability"] == ""
    assert "1 row" in answer.err
    assert "row 1" in answer.err


def test_a_single_molecule_waits_for_nothing_that_it_does_not_need(run: Path) -> None:
    code = (
        "import sys; from mlap.cli import main\n"
        f"sys.argv = ['mlap', 'predict', {str(run)!r}, 'CCO', '--quiet']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "unneeded = ('sklearn', 'matplotlib', 'scipy.stats', 'scipy.optimize', 'mlap.kernels.run', 'rdkit.Chem.Draw')\n"
        "print([name for name in unneeded if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("smiles,")
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_table_on_stdout_in_a_file_and_as_json(mlap: Command, run: Path, table: Path, tmp_path: Path) -> None:
    printed = mlap("predict", run, table, "--quiet")
    assert mlap("predict", run, table, "--out", "out.csv").code == 0
    assert (tmp_path / "out.csv").read_bytes().decode() == printed.out
    rows = mlap("predict", run, table, "--json").json["predictions"]
    assert [row["name"] for row in rows] == [f"no. {row},\nalias {row}" for row in range(ROWS)]
    assert [bool(row["error"]) for row in rows] == [row % BROKEN == BROKEN - 1 for row in range(ROWS)]
    short = mlap("predict", run, table, "--drop-extra-columns", "--quiet").out
    assert short.splitlines()[0] == "smiles,label_prediction,label_probability,error"


def test_shards_are_continued_and_merged(mlap: Command, run: Path, table: Path, tmp_path: Path) -> None:
    call = ("predict", run, table, "--out", "scores/", "--shard-rows", "25")
    first = mlap(*call)
    assert first.code == 0
    assert f"{ROWS} rows written to scores/" in first.err
    assert "of 60 rows" in first.err
    assert sorted(path.name for path in (tmp_path / "scores").glob("[!.]*")) == [
        *("000000.csv", "000001.csv", "000002.csv", MANIFEST)
    ]
    again = mlap(*call, "--merge", "all.csv")
    assert f"{ROWS} were there" in again.err
    with (tmp_path / "all.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == ROWS
    refused = mlap("predict", run, table, "--out", "scores/", "--shard-rows", "10")
    assert refused.code == 2
    assert "--overwrite" in refused.error
    assert mlap("predict", run, table, "--out", "scores/", "--shard-rows", "10", "--overwrite").code == 0
    assert len(list((tmp_path / "scores").glob("0*.csv"))) == 6


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("--merge", "all.csv"), "--merge"),
        (("--engine", "ray"), "--engine"),
        (("--engine", "slurm"), "slurm"),
        (("--out", "out.txt"), "--out"),
        (("--out", "scores/", "--merge", "all.xlsx"), "--merge"),
        (("--out", "scores/", "--json"), "--json"),
        (("--out", "scores/", "--engine", "ray", "--address", "nonsense"), "--address"),
    ],
)
def test_wrong_calls(mlap: Command, run: Path, table: Path, arguments: tuple[str, ...], facts: str) -> None:
    answer = mlap("predict", run, table, *arguments, "--quiet")
    assert answer.code == 2
    assert facts in answer.error


def test_vectors_are_written(mlap: Command, run: Path, table: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = library_of.load(run).embed(str(table))
    assert mlap("embed", run, table, "--out", "final.parquet").code == 0
    columns = parquet.read_table(tmp_path / "final.parquet").to_pydict()
    assert list(columns) == ["smiles", *map(str, range(8))]
    vectors = np.array([columns[str(channel)] for channel in range(8)], dtype=float).T
    assert np.allclose(vectors, found.final, atol=1e-5, equal_nan=True)
    assert np.isnan(vectors[BROKEN - 1]).all()
    assert mlap("embed", run, table, "--level", "2", "--out", "level.csv").code == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "level.csv").read_text())))
    kept = [row for row in range(ROWS) if row % BROKEN != BROKEN - 1]
    assert len(rows) == ROWS
    assert np.allclose(
        [[float(rows[row][str(c)]) for c in range(8)] for row in kept], found.of_level(2)[kept], atol=1e-5
    )
    assert rows[BROKEN - 1]["0"] == "nan"


@pytest.mark.parametrize(
    ("arguments", "fact"), [(("--level", "3", "--out", "a.csv"), "1 to 2"), (("--out", "a.npy"), "--out")]
)
def test_wrong_embeddings(mlap: Command, run: Path, arguments: tuple[str, ...], fact: str) -> None:
    answer = mlap("embed", run, *SMILES[:2], *arguments, "--quiet")
    assert answer.code == 2
    assert fact in answer.error


def test_the_manifest_says_what_made_it(mlap: Command, run: Path, table: Path, tmp_path: Path) -> None:
    mlap("predict", run, table, "--out", "scores/", "--quiet")
    manifest = json.loads((tmp_path / "scores" / MANIFEST).read_text())
    assert manifest["made_by"].startswith("mlap ")
    assert manifest["input"]["bytes"] == table.stat().st_size
