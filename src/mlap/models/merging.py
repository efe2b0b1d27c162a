"""CSV files with the same header as one table: a CSV or a Parquet file, in memory that does not grow with them."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mlap.errors import DataError, UsageError
from mlap.files import write_whole

SUFFIXES = (".csv", ".parquet")


def check_suffix(path: Path, field: str) -> None:
    """Raise unless a file is of a kind that can be written, and can be written if it is."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{{field}} must end in .csv or .parquet, got {path.name!r}", field)
    if path.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise UsageError(
                "Parquet files need pyarrow, which is not installed: pip install 'mlap[chem]'", field
            ) from None


def merge(parts: Sequence[Path], out: Path, text_columns: int) -> None:
    """Write the rows of some CSV files, one after the other, into one file, in one step.

    Args:
        parts: CSV files as `Predictions.to_csv` writes them, all with the same header.
        out: a `.csv` or `.parquet` file.
        text_columns: how many of the first columns stay texts in a Parquet file. The others are whole numbers, numbers
            or texts, whatever all their cells can be; an empty cell is null there.
    """
    check_suffix(out, "out")
    if out.suffix == ".csv":
        write_whole(out, lambda temporary: _to_csv(parts, temporary))
    else:
        write_whole(out, lambda temporary: _to_parquet(parts, temporary, text_columns))


def _header(part: Path) -> tuple[list[str], bytes]:
    """The names of the columns, and the bytes in which they are written."""
    with part.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader(file), [])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(names)
    return names, text.getvalue().encode()


def _to_csv(parts: Sequence[Path], out: Path) -> None:
    _, header = _header(parts[0])
    with out.open("wb") as whole:
        whole.write(header)
        for part in parts:
            with part.open("rb") as file:
                if file.read(len(header)) != header:
                    raise DataError(f"{part} has another header than {parts[0]}")
                shutil.copyfileobj(file, whole)


def _to_parquet(parts: Sequence[Path], out: Path, text_columns: int) -> None:
    import pyarrow
    from pyarrow import csv as tables
    from pyarrow import parquet

    names, _ = _header(parts[0])
    kinds = {"whole": pyarrow.int64(), "number": pyarrow.float64(), "text": pyarrow.string()}
    found = ["text"] * text_columns + _kinds(parts, text_columns)
    types: dict[str, Any] = {name: kinds[kind] for name, kind in zip(names, found, strict=True)}
    convert = tables.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=True
    )
    parse = tables.ParseOptions(newlines_in_values=True)
    with parquet.ParquetWriter(out, pyarrow.schema(types.items())) as writer:
        for part in parts:
            with tables.open_csv(part, parse_options=parse, convert_options=convert) as batches:
                for batch in batches:
                    writer.write_batch(batch)


def _kinds(parts: Sequence[Path], first: int) -> list[str]:
    """What the columns from `first` on can be, for all of their cells; those that are empty are texts."""
    kinds: list[str | None] = []
    for part in parts:
        with part.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            names = next(rows)
            kinds = kinds or [None] * (len(names) - first)
            for row in rows:
                for place, cell in enumerate(row[first:]):
                    if cell and kinds[place] != "text":
                        kinds[place] = _kind(cell, kinds[place])
    return [kind or "text" for kind in kinds]


def _kind(cell: str, so_far: str | None) -> str:
    """What a cell and those before it can be."""
    for kind, reads in _READERS.items():
        if so_far in (None, kind) or (so_far, kind) == ("whole", "number"):
            try:
                reads(cell)
            except ValueError:
                continue
            return kind
    return "text"


_READERS: dict[str, Callable[[str], object]] = {"whole": int, "number": float}
