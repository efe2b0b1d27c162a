"""A table file – CSV, TSV or Parquet – as columns of text."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlap.errors import DataError, UsageError, unknown

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")

#: What stands for "no value", in lower case.
MISSING = ("", "nan", "na", "n/a", "null")

_TRUTH = {"true": 1.0, "false": 0.0}
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Cells:
    """A table's columns as texts. A row is called by its line in the file, or its number where there are no lines."""

    file: str
    columns: dict[str, list[str]]
    lines: Sequence[int] | None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def place(self, row: int) -> str:
        """What to call a row, counted from 0, to the user."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def check(self, name: str) -> str:
        """Return the name of a column, or raise if there is none of that name."""
        if name not in self.columns:
            raise unknown(f"column of {self.file}", name, self.columns)
        return name


def read_cells(path: Path) -> Cells:
    """Read a table; blank lines and the spaces around cells are dropped."""
    if not path.name.lower().endswith(SUFFIXES):
        raise UsageError(f"{path.name} is not a table that can be read; expected a file in {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    cells = _read_parquet(path) if path.name.lower().endswith(".parquet") else _read_text(path)
    if not len(cells):
        raise DataError(f"{path.name} has no rows below its header")
    return cells


def number(cell: str) -> float | None:
    """The number that a cell holds (1 and 0 for true and false), or `None`."""
    try:
        value = float(cell)
    except ValueError:
        return _TRUTH.get(cell.lower())
    return value if abs(value) <= _LARGEST and "_" not in cell else None


def _read_text(path: Path) -> Cells:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            delimiter = max(",", ";", "\t", key=file.readline().count)  # a German Excel writes semicolons
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for row in reader:
                if any(cell.strip() for cell in row):
                    rows.append([cell.strip() for cell in row])
                    lines.append(reader.line_num)
    except UnicodeError as error:
        raise DataError(f"{path.name} is not UTF-8 text; save it as CSV in UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path.name}, line {reader.line_num}: {error}") from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path.name} cannot be read: {error}") from error
    if not rows:
        raise DataError(f"{path.name} is empty; expected a header and rows")

    header = rows.pop(0)
    lines.pop(0)
    _check_names(path, header)
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(header):
            raise DataError(f"{path.name}, line {line}: got {len(row)} cells, but the header has {len(header)}")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(header)}
    return Cells(path.name, columns, lines)


def _read_parquet(path: Path) -> Cells:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError("Parquet files need pyarrow, which is not installed: pip install 'mlap[chem]'") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path.name} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    _check_names(path, table.column_names)
    columns = {
        str(name): ["" if cell is None else str(cell).strip() for cell in table.column(name).to_pylist()]
        for name in table.column_names
    }
    return Cells(path.name, columns, None)


def _check_names(path: Path, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path.name} has {names.count(name)} columns named {name!r}; expected one name for each")
