"""Tables of any length: shards, what a killed process leaves, one file in the end, here and on a Ray cluster."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.molecule_models import BROKEN, SMILES, small_run, write_library

import mlap
from mlap.errors import MlapError, UsageError
from mlap.files import aside
from mlap.graphs.inputs import iter_inputs, read_inputs
from mlap.models import Run, shards
from mlap.models.merging import merge
from mlap.models.ray_shards import ray_engine
from mlap.models.shards import MANIFEST, iter_predictions, merge_shards, predict_shards, shards_of, write_predictions

pytest.importorskip("rdkit")

ROWS = 130


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("model") / "run")


@pytest.fixture(scope="module")
def model(run: Path) -> Run:
    return mlap.load(run)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_library(tmp_path_factory.mktemp("table") / "library.csv", ROWS)


@pytest.fixture(scope="module")
def expected(model: Run, library: Path) -> list[dict[str, str]]:
    """All predictions at once."""
    return list(csv.DictReader(io.StringIO(model.predict(str(library)).to_csv())))


def same(rows: list[dict[str, str]], expected: list[dict[str, str]]) -> bool:
    """Whether rows are equal, but for the rounding of networks that see other graphs beside."""
    close = [
        abs(float(row.pop("label_probability") or 2) - float(other["label_probability"] or 2)) < 1e-4
        for row, other in zip(rows, expected, strict=True)
    ]
    return all(close) and rows == [{k: v for k, v in row.items() if k != "label_probability"} for row in expected]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# ---- reading in pieces -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
def test_the_pieces_of_a_table_are_the_table(library: Path, processes: int) -> None:
    whole = read_inputs(str(library), molecules=True)
    pieces = list(iter_inputs(library, rows=40, processes=processes))
    assert [piece.first for piece in pieces] == [0, 40, 80, 120]
    assert sum(piece.num_rows for piece in pieces) == ROWS
    assert {piece.first + row for piece in pieces for row in piece.invalid} == set(whole.invalid)
    assert np.array_equal(np.concatenate([piece.first + piece.kept for piece in pieces]), whole.kept)
    assert [smiles for piece in pieces for smiles in piece.smiles or ()] == whole.smiles
    assert np.array_equal(
        np.concatenate([piece.graphs.node_features.values for piece in pieces]), whole.graphs.node_features.values
    )


def test_unwanted_pieces_are_left_out(library: Path) -> None:
    assert [piece.first for piece in iter_inputs(library, rows=40, skip={0, 2})] == [40, 120]


def test_an_error_in_the_middle_of_a_table_reaches_the_caller(tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("smiles,name\n" + "CC,a\n" * 50 + "CC\n")
    pieces = iter_inputs(broken, rows=20)
    assert next(pieces).num_rows == 20
    with pytest.raises(MlapError, match="line 52"):
        list(pieces)


def test_who_stops_reading_leaves_no_process(library: Path) -> None:
    import psutil

    pieces = iter_inputs(library, rows=10, processes=2)
    next(pieces)
    assert len(psutil.Process().children()) >= 2
    pieces.close()  # type: ignore[attr-defined]
    assert not [child for child in psutil.Process().children() if "_smiles.py" in " ".join(child.cmdline())]


# ---- shards ----------------------------------------------------------------------------------------------------------


def test_shards_hold_every_row_once_and_in_order(
    model: Run, library: Path, expected: list[dict[str, str]], tmp_path: Path
) -> None:
    told: list[tuple[int, int, int | None]] = []
    summary = predict_shards(model, library, tmp_path / "out", rows=50, on_rows=lambda *numbers: told.append(numbers))
    broken = list(range(BROKEN - 1, ROWS, BROKEN))
    assert (summary.rows, summary.invalid, summary.found) == (ROWS, len(broken), 0)
    assert summary.first_invalid is not None
    assert summary.first_invalid[0] == broken[0]
    parts = shards_of(tmp_path / "out")
    assert [len(rows_of(part)) for part in parts] == [50, 50, 30]
    assert [done for done, _, _ in told] == [0, 50, 100, 130]
    rows = [row for part in parts for row in rows_of(part)]
    assert [row for row, content in enumerate(rows) if content["error"]] == broken
    assert same(rows, expected)
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest["complete"] == {"rows": ROWS, "shards": 3, "invalid": len(broken)}
    assert manifest["model"]["fingerprint"] == shards.model_fingerprint(model.path)


def test_what_is_there_is_kept_and_what_is_missing_is_made(model: Run, library: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    predict_shards(model, library, out, rows=30)
    before = {part.name: (part.read_bytes(), part.stat().st_mtime_ns) for part in shards_of(out)}
    manifest = json.loads((out / MANIFEST).read_text())
    (out / MANIFEST).write_text(json.dumps({**manifest, "complete": None}))
    (out / "000002.csv").unlink()
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    half = str(aside(out / "000003.csv")).replace(f".{os.getpid()}-", f".{killed.pid}-")  # what it leaves
    Path(half).write_text("half a sha")
    summary = predict_shards(model, library, out, rows=30)
    assert (summary.rows, summary.found) == (ROWS, ROWS - 30)
    after = {part.name: (part.read_bytes(), part.stat().st_mtime_ns) for part in shards_of(out)}
    assert {name for name in before if before[name][1] != after[name][1]} == {"000002.csv"}
    assert all(before[name][0] == after[name][0] for name in before)
    assert not list(out.glob(".0*"))
    again = predict_shards(model, library, out, rows=30)
    assert (again.rows, again.found, again.invalid) == (ROWS, ROWS, summary.invalid)


@pytest.mark.parametrize("change", ["model", "table", "rows", "columns", "confidence"])
def test_other_predictions_are_not_mixed_in(model: Run, library: Path, tmp_path: Path, change: str) -> None:
    out, table = tmp_path / "out", tmp_path / "table.csv"
    table.write_bytes(library.read_bytes())
    if change == "confidence":
        model = mlap.load(small_run(tmp_path / "calibrated"))
        model.calibrate(mlap.load_graphs(SMILES, labels=[int("O" in smiles) for smiles in SMILES]))
    predict_shards(model, table, out, rows=50)
    options: dict[str, Any] = {"rows": 50}
    other = model
    if change == "model":
        other = mlap.load(small_run(tmp_path / "other"))
        (tmp_path / "other" / "extra.json").write_text("{}")
    elif change == "table":
        table.write_bytes(library.read_bytes() + b"x,CC,1\n")
    elif change == "rows":
        options["rows"] = 60
    elif change == "confidence":
        options["confidence"] = 0.9
    else:
        options["extra_columns"] = False
    with pytest.raises(UsageError) as caught:
        predict_shards(other, table, out, **options)
    assert (caught.value.field, caught.value.suggest) == ("overwrite", True)
    assert predict_shards(other, table, out, overwrite=True, **options).found == 0


def test_a_folder_of_something_else_is_left_alone(model: Run, library: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="neither empty"):
        predict_shards(model, library, tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()
    with pytest.raises(UsageError, match="is a file"):
        predict_shards(model, library, tmp_path / "thesis.txt")
    for source in ("-", "CCO"):
        with pytest.raises(UsageError) as caught:
            predict_shards(model, source, tmp_path / "out")
        assert caught.value.field == "out"


# ---- a process that is killed ----------------------------------------------------------------------------------------


def command(run: Path, library: Path, out: Path) -> list[str]:
    settings = ("--out", f"{out}/", "--shard-rows", "40", "--processes", "2", "--threads", "1", "--quiet")
    return [sys.executable, "-m", "mlap", "predict", str(run), str(library), *settings]


@pytest.mark.slow
def test_a_process_killed_at_any_moment_is_continued(run: Path, model: Run, tmp_path: Path) -> None:
    import psutil

    library = write_library(tmp_path / "library.csv", 4000)
    out, whole = tmp_path / "out", tmp_path / "whole"
    predict_shards(model, library, whole, rows=40)
    expected = {part.name: part.read_text() for part in shards_of(whole)}
    kills, chance = 0, random.Random(0)
    seen: dict[str, int] = {}
    while not (out / MANIFEST).exists() or json.loads((out / MANIFEST).read_text())["complete"] is None:
        process = subprocess.Popen(command(run, library, out))
        at_least = len(seen) + 1 + chance.randrange(8)
        while process.poll() is None and len(shards_of(out)) < at_least:
            time.sleep(0.002)
        time.sleep(chance.random() * 0.05)
        readers = psutil.Process(process.pid).children() if process.poll() is None else []
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        assert process.wait() in (0, -signal.SIGKILL)
        psutil.wait_procs(readers, timeout=30)
        assert not any(reader.is_running() for reader in readers)
        found = {part.name: part.stat().st_mtime_ns for part in shards_of(out)}
        assert all(found.get(name) == time_ for name, time_ in seen.items())  # nothing was made twice
        for part in shards_of(out):  # and what is there is whole
            assert len(rows_of(part)) == 40
        seen = found
        if kills == 4:
            subprocess.run(command(run, library, out), check=True)
    assert kills >= 2
    assert {part.name for part in shards_of(out)} == set(expected)
    assert same(
        [row for part in shards_of(out) for row in rows_of(part)],
        [row for part in shards_of(whole) for row in rows_of(part)],
    )


def test_two_processes_do_not_write_to_one_folder(model: Run, library: Path, tmp_path: Path) -> None:
    from mlap.locking import locked

    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out" / ".lock"), pytest.raises(MlapError, match="in use"):
        predict_shards(model, library, tmp_path / "out")


# ---- one file --------------------------------------------------------------------------------------------------------


def test_shards_become_one_csv_or_parquet_file(
    model: Run, library: Path, expected: list[dict[str, str]], tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out"
    predict_shards(model, library, out, rows=40)
    merge_shards(out, tmp_path / "all.csv")
    assert same(rows_of(tmp_path / "all.csv"), expected)
    merge_shards(out, tmp_path / "all.parquet")
    table = parquet.read_table(tmp_path / "all.parquet")
    assert {name: str(kind) for name, kind in zip(table.schema.names, table.schema.types, strict=True)} == {
        "name": "string",
        "smiles": "string",
        "code": "string",  # 0012 is a code, not a number
        "label_prediction": "int64",
        "label_probability": "double",
        "error": "string",
    }
    assert table["name"].to_pylist() == [row["name"] for row in expected]
    assert table["label_probability"].null_count == sum(bool(row["error"]) for row in expected)
    with pytest.raises(UsageError, match=r"\.csv or \.parquet"):
        merge_shards(out, tmp_path / "all.txt")
    with pytest.raises(UsageError, match="not hold all"):
        merge_shards(tmp_path, tmp_path / "all.csv")


def test_kinds_of_columns_are_those_of_all_their_cells(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "0.csv").write_text("id,a,b,c,d\n1,,1,1,\n2,3,2,2,\n")
    (tmp_path / "1.csv").write_text('id,a,b,c,d\n3,4,2.5,x,\n4,,,"",\n')
    merge([tmp_path / "0.csv", tmp_path / "1.csv"], tmp_path / "out.parquet", 1)
    assert parquet.read_table(tmp_path / "out.parquet").to_pydict() == {
        "id": ["1", "2", "3", "4"],
        "a": [None, 3, 4, None],
        "b": [1.0, 2.0, 2.5, None],
        "c": ["1", "2", "x", None],
        "d": [None] * 4,
    }


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_is_there_when_it_is_whole(model: Run, library: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"out.{suffix}"
    out.write_text("what was there before")
    pieces = iter_predictions(model, library, rows=40)

    def failing() -> Iterator[Any]:
        yield next(pieces)
        yield next(pieces)
        raise MlapError("the disk is full")

    with pytest.raises(MlapError, match="disk is full"):
        write_predictions(failing(), out)
    assert out.read_text() == "what was there before"
    assert os.listdir(tmp_path) == [out.name]
    assert write_predictions(iter_predictions(model, library, rows=40), out).rows == ROWS
    assert os.listdir(tmp_path) == [out.name]


def test_a_stream_has_one_header(model: Run, library: Path, expected: list[dict[str, str]]) -> None:
    text = io.StringIO()
    write_predictions(iter_predictions(model, library, rows=40), text)
    assert same(list(csv.DictReader(io.StringIO(text.getvalue()))), expected)


# ---- on a Ray cluster ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and one more node, each with one processor, with this process connected to them."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'mlap[ray]'")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    small = {"num_cpus": 1, "object_store_memory": 80 << 20}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will have it; until then it warns
        started = cluster_utils.Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
        try:
            started.second = started.add_node(**small)
            ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
            yield started
        finally:
            ray.shutdown()
            started.shutdown()


@pytest.mark.slow
def test_a_node_is_killed_and_every_row_is_there_once(cluster: Any, run: Path, model: Run, tmp_path: Path) -> None:
    library = write_library(tmp_path / "library.csv", 8000)
    out = tmp_path / "out"

    def on_rows(done: int, found: int, total: int | None) -> None:
        if done >= 2000 and cluster.second is not None:
            cluster.remove_node(cluster.second, allow_graceful=False)
            cluster.second = None

    summary = predict_shards(model, library, out, rows=500, engine=ray_engine(run), on_rows=on_rows)
    assert cluster.second is None
    assert (summary.rows, len(shards_of(out))) == (8000, 16)
    merge_shards(out, tmp_path / "ray.csv")
    predict_shards(model, library, tmp_path / "here", rows=500)
    merge_shards(tmp_path / "here", tmp_path / "here.csv")
    assert same(rows_of(tmp_path / "ray.csv"), rows_of(tmp_path / "here.csv"))


def test_an_error_on_a_node_is_told(cluster: Any, run: Path, model: Run, library: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlap.models.ray_shards.source_digest", lambda: "beef")
        with pytest.raises(MlapError, match="beef"):
            predict_shards(model, library, tmp_path / "out", engine=ray_engine(run))
    assert shards_of(tmp_path / "out") == []
