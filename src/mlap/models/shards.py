"""Predictions for a table of any length, in memory that does not grow with it.

A folder of shards holds

    manifest.json   the model and the input by their fingerprints, how the rows are cut, and at the end what came out
    000000.csv …    the predictions for so many consecutive rows each

A shard is there whole or not at all, and says nothing that depends on when it was made. So a command that was killed at
any moment is simply given again: what is there stays, what is missing is made.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from mlap.checks import expect, need
from mlap.errors import DataError, MlapError, UsageError, short
from mlap.files import aside, first_line, read_json, remove, remove_abandoned, write_json, write_text, write_whole
from mlap.graphs.inputs import STDIN, Cells, Inputs, about_rows, is_table, iter_cells, iter_inputs, iter_pieces
from mlap.locking import locked
from mlap.models.merging import check_suffix, merge
from mlap.models.model import Model
from mlap.models.predictions import Predictions
from mlap.provenance import made_by
from mlap.training.run import check_fits

FORMAT = 1
MANIFEST = "manifest.json"
#: rows of a shard: some seconds of work, some megabytes of text
ROWS = 20_000
#: what of a model's directory decides about its predictions
_MODEL_FILES = (".json", ".safetensors")
_CHUNK = 1 << 20  # bytes

#: called with the rows that are done, those of them that were done before, and about how many there are
OnRows = Callable[[int, int, int | None], None]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Shard:
    """The predictions for some consecutive rows.

    Args:
        number: which of the shards, counted from 0.
        text: the predictions as CSV, with a header.
        rows: how many.
        invalid: row of the whole table, counted from 0 → why it could not be read.
    """

    number: int
    text: str
    rows: int
    invalid: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """What was written.

    Args:
        rows: the rows of the input.
        invalid: how many of them could not be read.
        first_invalid: the first of these, counted from 0, and why; `None` if there is none, or if it was known before.
        found: the rows that were there from an earlier call.
    """

    rows: int
    invalid: int
    first_invalid: tuple[int, str] | None = None
    found: int = 0


#: makes shards of the pieces of a table, in any order: `(pieces, rows of a shard) → shards`
Engine = Callable[[Iterator[tuple[Cells, str]], int], Iterator[Shard]]


def predict_shards(
    model: Model,
    path: str | Path,
    out: str | Path,
    *,
    rows: int = ROWS,
    smiles: str | None = None,
    extra_columns: bool = True,
    confidence: float | None = None,
    processes: int | None = None,
    overwrite: bool = False,
    engine: Engine | None = None,
    on_rows: OnRows | None = None,
    say: Say | None = None,
) -> Summary:
    """Predict the rows of a table into a folder of shards; continue if some of them are there.

    Args:
        model: one that was read from its directory.
        path: the table: a file that `mlap.graphs.read_table` reads.
        out: the folder.
        rows: of a shard.
        smiles: the column of the SMILES; inferred unless given.
        extra_columns: whether to keep the input's own columns.
        confidence: how often conformal sets or intervals are to hold the truth; see `Model.predict`.
        processes: how many read SMILES; one for each core that this process may use unless given.
        overwrite: start over if the folder holds other predictions.
        engine: who predicts, see `mlap.models.ray_shards`; this process unless given.
        on_rows: called after each shard.
        say: called with a sentence for the user at a time.
    """
    path, out = _checked(path), Path(out)
    with _held(out):
        manifest = _manifest(model, path, rows, smiles, extra_columns, confidence)
        _open(out, manifest, overwrite)
        there = {int(shard.stem): shard for shard in shards_of(out)}
        total = about_rows(path)
        last = max(there, default=0)
        counted = [_count(shard, rows, number == last) for number, shard in there.items()]
        found, invalid = sum(rows for rows, _ in counted), sum(bad for _, bad in counted)
        done, first_invalid = found, None
        if on_rows is not None:
            on_rows(done, found, total)
        if not _is_complete(_read_manifest(out), there):
            if engine is None:
                made = _here(model, path, rows, smiles, extra_columns, confidence, there, processes, say)
            else:
                made = engine(iter_pieces(path, rows, smiles=smiles, skip=there, say=say), rows)
            for shard in made:
                write_text(out / f"{shard.number:06}.csv", shard.text)
                done += shard.rows
                invalid += len(shard.invalid)
                if shard.invalid:
                    first_invalid = min(first_invalid or (sys.maxsize, ""), next(iter(shard.invalid.items())))
                if on_rows is not None:
                    on_rows(done, found, total)
            complete = {"rows": done, "shards": len(shards_of(out)), "invalid": invalid}
            write_json(out / MANIFEST, {**manifest, "complete": complete})
    return Summary(done, invalid, first_invalid, found)


def merge_shards(folder: str | Path, out: str | Path) -> None:
    """Write the predictions of a whole folder of shards into one `.csv` or `.parquet` file, in one step."""
    folder, out = Path(folder), Path(out)
    manifest = _read_manifest(folder) if (folder / MANIFEST).exists() else None
    if manifest is None or not _is_complete(manifest, shards_of(folder)):
        raise UsageError(f"{folder} does not hold all predictions yet; run the same command to continue", "out")
    merge(shards_of(folder), out, manifest["input_columns"])


def write_predictions(
    pieces: Iterable[tuple[int, Predictions]],
    out: Path | TextIO,
    *,
    extra_columns: bool = True,
    total: int | None = None,
    on_rows: OnRows | None = None,
) -> Summary:
    """Write predictions into one `.csv` or `.parquet` file, which is there when it is whole, or as CSV into a stream.

    Args:
        pieces: the predictions, each with the number of its first row: those of `iter_predictions`, or `[(0, all)]`.
        out: where to.
        extra_columns: whether to keep the input's own columns.
        total: about how many rows there are, for `on_rows`.
        on_rows: called after each piece.
    """
    done = invalid = 0
    texts = 1
    first_invalid: tuple[int, str] | None = None

    def write(file: TextIO) -> None:
        nonlocal done, invalid, first_invalid, texts
        for first, predictions in pieces:
            file.write(predictions.to_csv(extra_columns=extra_columns, header=not done))
            texts = max(1, len(predictions.columns)) if extra_columns else 1
            done += len(predictions)
            invalid += len(predictions.invalid)
            if predictions.invalid and first_invalid is None:
                row, reason = next(iter(predictions.invalid.items()))
                first_invalid = (first + row, reason)
            if on_rows is not None:
                on_rows(done, 0, total)

    def write_file(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            write(file)

    if not isinstance(out, Path):
        write(out)
        return Summary(done, invalid, first_invalid)
    check_suffix(out, "out")
    if out.suffix == ".csv":
        write_whole(out, write_file)
    else:
        as_csv = aside(out)
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_file(as_csv)
            merge([as_csv], out, texts)
        finally:
            remove(as_csv)
    return Summary(done, invalid, first_invalid)


def iter_predictions(
    model: Model,
    path: str | Path,
    *,
    rows: int = ROWS,
    smiles: str | None = None,
    confidence: float | None = None,
    skip: Container[int] = (),
    processes: int | None = None,
    say: Say | None = None,
) -> Iterator[tuple[int, Predictions]]:
    """Predictions for the pieces of a table, each with the number of its first row; see `mlap.graphs.inputs`."""
    for inputs in iter_inputs(
        path,
        rows=rows,
        molecules=model.reads_molecules,
        descriptors=model.reads_descriptors,
        smiles=smiles,
        skip=skip,
        processes=processes,
        say=say,
    ):
        yield inputs.first, predict_piece(model, inputs, confidence)


def predict_piece(model: Model, inputs: Inputs, confidence: float | None = None) -> Predictions:
    """Predictions for a piece of a table."""
    if len(inputs.graphs):
        check_fits(model.config, inputs.graphs)
    return model.predict_inputs(inputs, confidence)


def shard_of(first: int, rows: int, predictions: Predictions, extra_columns: bool) -> Shard:
    """The shard of a piece that begins with row `first`."""
    invalid = {first + row: reason for row, reason in predictions.invalid.items()}
    return Shard(first // rows, predictions.to_csv(extra_columns=extra_columns), len(predictions), invalid)


def _here(
    model: Model,
    path: Path,
    rows: int,
    smiles: str | None,
    extra_columns: bool,
    confidence: float | None,
    skip: Container[int],
    processes: int | None,
    say: Say | None,
) -> Iterator[Shard]:
    for first, predictions in iter_predictions(
        model, path, rows=rows, smiles=smiles, confidence=confidence, skip=skip, processes=processes, say=say
    ):
        yield shard_of(first, rows, predictions, extra_columns)


# ---- the folder ------------------------------------------------------------------------------------------------------


def shards_of(folder: Path) -> list[Path]:
    """The shards of a folder, in the order of their rows."""
    return sorted(folder.glob("[0-9]*.csv"), key=lambda shard: int(shard.stem))


def _checked(path: str | Path) -> Path:
    if str(path) == STDIN or not is_table(path):
        raise UsageError(
            f"shards are made of a table in a file, got {str(path)!r}; give {{field}} a file's name", "out"
        )
    if not Path(path).is_file():
        raise UsageError(f"there is no file {path}")
    return Path(path)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Make the folder and hold it: one process at a time writes to it."""

    def busy() -> None:
        raise MlapError(f"{folder} is in use by another process")

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, where {{field}} should be a folder", "out")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", busy):
        yield


def _manifest(
    model: Model, path: Path, rows: int, smiles: str | None, extra_columns: bool, confidence: float | None
) -> dict[str, Any]:
    if model.path is None:
        raise UsageError("shards say by which model they were made, but this model was not read from a directory")
    columns = len(next(iter_cells(path, 1)).columns) if extra_columns else 1
    return {
        "format": FORMAT,
        "model": {"path": str(model.path.absolute()), "fingerprint": model_fingerprint(model.path)},
        "input": {"path": str(path.absolute()), "bytes": path.stat().st_size, "fingerprint": _digest([path])},
        "rows_per_shard": rows,
        "smiles": smiles,
        "extra_columns": extra_columns,
        "confidence": confidence,
        "input_columns": columns,
        "made_by": made_by(),
        "complete": None,
    }


def _open(folder: Path, manifest: dict[str, Any], overwrite: bool) -> None:
    """Begin a folder, or make sure that it holds the same predictions."""
    remove_abandoned(folder)
    if (folder / MANIFEST).exists() and not overwrite:
        before = _read_manifest(folder)
        for what, was, now in (
            ("by another model", before["model"]["fingerprint"], manifest["model"]["fingerprint"]),
            ("for another table", before["input"]["fingerprint"], manifest["input"]["fingerprint"]),
            ("with other rows in a shard", before["rows_per_shard"], manifest["rows_per_shard"]),
            ("with other SMILES", before["smiles"], manifest["smiles"]),
            ("with other columns", before["extra_columns"], manifest["extra_columns"]),
            ("with another confidence", before["confidence"], manifest["confidence"]),
        ):
            if was != now:
                raise UsageError(
                    f"{folder} holds predictions that were made {what} ({short(was)}, now {short(now)}); choose "
                    "another folder, or start over",
                    "overwrite",
                    True,
                )
        return
    if not (folder / MANIFEST).exists() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise UsageError(f"{folder} is neither empty nor a folder of shards; choose another one for {{field}}", "out")
    (folder / MANIFEST).unlink(missing_ok=True)
    for shard in shards_of(folder):
        shard.unlink()
    write_json(folder / MANIFEST, manifest)


def model_files(folder: Path) -> list[Path]:
    """What of a model's directory decides about its predictions."""
    return sorted(path for path in folder.rglob("*") if path.suffix in _MODEL_FILES and path.is_file())


def model_fingerprint(folder: Path) -> str:
    """A digest of a model: of its files that decide about predictions."""
    return _digest(model_files(folder), folder)


def _digest(files: Iterable[Path], folder: Path | None = None) -> str:
    found = hashlib.sha256()
    for path in files:
        if folder is not None:
            found.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(_CHUNK):
                found.update(block)
    return found.hexdigest()[:16]


def _read_manifest(folder: Path) -> dict[str, Any]:
    content = read_json(folder / MANIFEST)
    if content.get("format") != FORMAT:
        raise UsageError(f"{folder} was written by another version of mlap", "overwrite", True)
    try:
        need(
            content, {"model": dict, "input": dict, "rows_per_shard": int, "input_columns": int, "extra_columns": bool}
        )
        need(content, {"smiles": (str, type(None)), "complete": (dict, type(None))})
        for what in ("model", "input"):
            need(content[what], {"fingerprint": str}, what)
        if content["complete"] is not None:
            need(content["complete"], {"rows": int, "shards": int, "invalid": int}, "complete")
        expect(content["input_columns"] >= 1, "input_columns", content["input_columns"])
    except ValueError as error:
        raise DataError(f"{folder / MANIFEST} is damaged: {error}", "overwrite", True) from error
    return content


def _is_complete(manifest: Mapping[str, Any], shards: Collection[Any]) -> bool:
    """Whether all shards were made, and are still there."""
    return manifest["complete"] is not None and manifest["complete"]["shards"] == len(shards)


def _count(shard: Path, rows: int, last: bool) -> tuple[int, int]:
    """The rows of a shard, and how many of them are invalid."""
    try:
        with shard.open(encoding="utf-8", newline="") as file:
            cells = csv.reader(file)
            columns = len(next(cells))
            lines = list(cells)
        if (len(lines) != rows and not (last and len(lines) < rows)) or any(len(line) != columns for line in lines):
            raise ValueError(f"it does not have {rows} whole rows")
    except (ValueError, csv.Error, StopIteration) as error:
        raise DataError(f"{shard} is damaged: {first_line(error)}; delete it, and it is made again") from error
    return len(lines), sum(bool(line[-1]) for line in lines)
