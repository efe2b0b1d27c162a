"""A table as columns of text, whatever it was made from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlap.errors import DataError, UsageError, unknown

#: What stands for "no value", in lower case.
MISSING = ("", "nan", "na", "n/a", "#n/a", "<na>", "nat", "null")

_TRUTH = {"true": 1.0, "false": 0.0}
_LARGEST = float(np.finfo(np.float32).max)
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Cells:
    """A table's columns as texts, or a piece of one.

    Args:
        file: what to call the table.
        columns: the cells of each column; the spaces around them are dropped.
        lines: the line of the file on which each row ends, or `None` where there are no lines.
        first: the number of the piece's first row, counted from 0.
        decimal_comma: whether `3,5` is a number.
        notes: what the user should know about how the table was read.
    """

    file: str
    columns: dict[str, list[str]]
    lines: Sequence[int] | None = None
    first: int = 0
    decimal_comma: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def place(self, row: int) -> str:
        """What to call a row, counted from 0, to the user."""
        return f"row {self.first + row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def check(self, name: str, field: str) -> str:
        """Return the name of a column that the argument `field` gives, or raise if there is none of that name."""
        if name not in self.columns:
            raise unknown(f"column of {self.file}", name, self.columns, field)
        return name

    def known(self, name: str) -> list[str]:
        """The cells of a column that hold a value."""
        return [cell for cell in self.columns[name] if cell.lower() not in MISSING]

    def number(self, cell: str) -> float | None:
        """The number that a cell holds (1 and 0 for true and false), or `None`."""
        if self.decimal_comma and _DECIMAL_COMMA.fullmatch(cell):
            cell = cell.replace(",", ".")
        return number(cell)


def number(cell: str) -> float | None:
    """The number that a text is (1 and 0 for true and false), or `None`."""
    try:
        value = float(cell)
    except ValueError:
        return _TRUTH.get(cell.lower())
    return value if abs(value) <= _LARGEST and "_" not in cell else None


def quoted(text: str) -> str:
    """A cell or a name in a sentence: on one line, cut where it goes on for long."""
    return repr(text if len(text) <= 60 else text[:59] + "…")


def shown(names: Sequence[str]) -> str:
    """Names of columns in a sentence.

    >>> shown(["a", "b"])
    "columns 'a', 'b'"
    """
    listed = ", ".join(map(quoted, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"column{'s' if len(names) != 1 else ''} {listed}"


# ---- tables in memory ------------------------------------------------------------------------------------------------


def is_frame(x: Any) -> bool:
    """Whether something is a data frame: pandas' or one that looks like it. Neither library is imported."""
    return hasattr(x, "columns") and hasattr(x, "__getitem__") and hasattr(x, "shape") and not isinstance(x, Mapping)


def frame_cells(frame: Any) -> Cells:
    """The cells of a data frame."""
    names = [str(name).strip() for name in frame.columns]
    check_names("the data frame", names)
    return Cells(
        "the data frame",
        {name: texts(frame[column]) for name, column in zip(names, list(frame.columns), strict=True)},
    )


def label_cells(smiles: Sequence[Any], labels: Any = None, names: Sequence[str] | None = None) -> Cells:
    """The cells of a list of SMILES and, if there are any, their labels.

    Args:
        smiles: one for each row.
        labels: one per row, or a row of several; or a mapping or data frame of several columns.
        names: what to call the columns of labels; `label`, or `label 1` and so on, unless given.
    """
    columns = {"smiles": texts(smiles)}
    if labels is None:
        return Cells("the list", columns)
    if isinstance(labels, Mapping) or is_frame(labels):
        given = {str(name): texts(labels[name]) for name in (labels if isinstance(labels, Mapping) else labels.columns)}
    else:
        rows = [list(row) if np.ndim(row) == 1 else [row] for row in labels]
        widths = {len(row) for row in rows}
        if len(widths) > 1:
            raise UsageError(f"{{field}} have rows of {' and '.join(map(str, sorted(widths)))} values", field="labels")
        width = widths.pop() if widths else 1
        names = list(names or (["label"] if width == 1 else [f"label {place + 1}" for place in range(width)]))
        if len(names) != width:
            raise UsageError(f"got {len(names)} {{field}} for {width} columns of labels", field="names")
        given = {name: texts(row[place] for row in rows) for place, name in enumerate(names)}
    for name, column in given.items():
        if len(column) != len(columns["smiles"]):
            raise UsageError(f"got {len(column)} {{field}} for {len(columns['smiles'])} SMILES", field="labels")
        if name == "smiles":
            raise UsageError("a column of labels cannot be called 'smiles'", field="names")
    return Cells("the list", columns | given)


def texts(values: Iterable[Any]) -> list[str]:
    """The cells of a column of any values; `None`, NaN and their kin are empty."""
    return [text(value) for value in values]


def text(value: Any) -> str:
    """A value as a cell holds it."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    # numpy and pandas have their own kinds of truth and whole numbers: 1.0 where a column has a gap
    if isinstance(value, float | np.floating) and float(value).is_integer() and abs(float(value)) < 1e15:
        return str(int(value))
    content = str(value).strip()
    return "" if content in ("<NA>", "NaT") else content


def check_names(file: str, names: Sequence[str]) -> None:
    """Raise unless the names of a table's columns are different."""
    if len(set(names)) < len(names):
        name, number = Counter(names).most_common(1)[0]
        raise DataError(f"{file} has {number} columns named {quoted(name)}; expected one name for each")
