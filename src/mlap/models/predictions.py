"""What a model answers: one row for each row of the input, in its order."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from mlap.files import write_text
from mlap.graphs import Task

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for the rows of an input. Invalid rows stay, with the reason, and have no values.

    Args:
        task: what is predicted.
        values: `(rows, outputs)`: the probability of *yes* for each binary target, of each class, or the values of a
            regression; NaN where a row is invalid.
        names: what each row is called: its SMILES, or its number.
        invalid: row → why it could not be predicted.
        columns: the input's own columns, in their order, one text for each row.
        spread: `(rows, outputs)`, the standard deviation over the members of an ensemble; `None` for single models.
        more: further columns of ours, one value for each row (conformal sets, say).
        label: what the names are: `smiles` or `graph`.

    Example:
        >>> task = Task("binary", 1, "rocauc", ("active",), (("no", "yes"),))
        >>> predictions = Predictions(task, np.array([[0.9], [np.nan]]), ("CCO", "?"), {1: "empty"}, label="smiles")
        >>> print(predictions.to_csv(), end="")
        smiles,active_prediction,active_probability,error
        CCO,yes,0.9,
        ?,,,empty
    """

    task: Task
    values: Array
    names: Sequence[str]
    invalid: Mapping[int, str] = field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    spread: Array | None = None
    more: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    label: str = "graph"

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.values, dtype=dtype)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, each as column → value, with the input's own columns first."""
        return iter(self.rows())

    def __repr__(self) -> str:
        what = ", ".join(self.task.names) or self.task.kind
        bad = f", {len(self.invalid)} invalid" if self.invalid else ""
        return f"{type(self).__name__}({len(self)} rows, {what}{bad})"

    @property
    def probabilities(self) -> Array:
        """`values`, for the classifier that they are from."""
        if self.task.kind == "regression":
            raise AttributeError("a regression has values, not probabilities")
        return self.values

    @property
    def labels(self) -> Array:
        """The predicted class of each row, `(rows,)` or, with several targets, `(rows, targets)`; values as they are.

        Classes have the names that the training data gave them, else numbers; `None` where a row is invalid.
        """
        if self.task.kind == "regression":
            return self.values[:, 0] if self.values.shape[1] == 1 else self.values
        known = ~np.isnan(self.values[:, :1])
        if self.task.kind == "multiclass":
            names = np.array(self.task.names or range(self.task.num_outputs), dtype=object)
            chosen: Array = names[np.nan_to_num(self.values, nan=-1.0).argmax(axis=1)]
            chosen[~known[:, 0]] = None
            return chosen
        words = self.task.labels or ((0, 1),) * self.task.num_outputs
        found = np.empty(self.values.shape, dtype=object)
        for target, (no, yes) in enumerate(words):
            found[:, target] = [yes if value > 0.5 else no for value in self.values[:, target]]
        found[~known[:, 0]] = None
        return found[:, 0] if self.task.num_outputs == 1 else found

    def table(self, extra_columns: bool = True) -> dict[str, list[Any]]:
        """Column → one value for each row: the input's own columns first, then ours.

        Ours are called by the target; a name that the input already uses gets a number.
        """
        table: dict[str, list[Any]] = {}
        if extra_columns and self.columns:
            table.update({name: list(cells) for name, cells in self.columns.items()})
        else:
            table[self.label] = list(self.names)
        for name, values in self._own_columns().items():
            table[_unused(name, table)] = values
        return table

    def _own_columns(self) -> dict[str, list[Any]]:
        labels = self.labels.reshape(len(self), -1)
        own: dict[str, list[Any]] = {}
        if self.task.kind == "multiclass":
            own["prediction"] = labels[:, 0].tolist()
            for number, name in enumerate(self.task.names or range(self.task.num_outputs)):
                own[f"p({name})"] = _numbers(self.values[:, number])
                if self.spread is not None:
                    own[f"p({name})_spread"] = _numbers(self.spread[:, number])
        else:
            for number, prefix in enumerate(self.task.prefixes):
                if self.task.kind == "regression":
                    own[f"{prefix}prediction"] = _numbers(self.values[:, number])
                else:
                    own[f"{prefix}prediction"] = labels[:, number].tolist()
                    own[f"{prefix}probability"] = _numbers(self.values[:, number])
                if self.spread is not None:
                    own[f"{prefix}spread"] = _numbers(self.spread[:, number])
        own.update({name: list(values) for name, values in self.more.items()})
        own["error"] = [self.invalid.get(row) for row in range(len(self))]
        return own

    def rows(self, extra_columns: bool = True) -> list[dict[str, Any]]:
        """One column → value for each row; what is unknown is `None`."""
        table = self.table(extra_columns)
        return [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]

    def to_csv(self, path: str | Path | TextIO | None = None, extra_columns: bool = True, header: bool = True) -> str:
        """The predictions as CSV: returned and, if a path or an open file is given, written there.

        Args:
            path: a file, written in one step; `-` for standard output.
            extra_columns: whether to keep the input's own columns.
            header: whether the first line names the columns.
        """
        table = self.table(extra_columns)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if header:
            writer.writerow(table)
        writer.writerows([["" if cell is None else cell for cell in row] for row in zip(*table.values(), strict=True)])
        if path == "-":
            path = sys.stdout
        if isinstance(path, str | Path):
            write_text(Path(path), text.getvalue())
        elif path is not None:
            path.write(text.getvalue())
        return text.getvalue()

    def to_frame(self, extra_columns: bool = True) -> Any:
        """The predictions as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.table(extra_columns))


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    """The name, with a number if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _numbers(values: Array) -> list[float | None]:
    """Numbers with as many digits as mean something; `None` for NaN."""
    return [None if np.isnan(value) else round(float(value), 6) for value in values]
