"""Molecules from a table with a column of SMILES and, to train on, one or more columns of labels.

What the caller leaves out is inferred from the columns' names and contents, and `Table.notes` says what was inferred.
A guess is only made where there is one sensible reading; otherwise the error lists the columns to choose from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, unknown
from mlap.graphs._cells import Cells, shown
from mlap.graphs._columns import choose_smiles, choose_targets
from mlap.graphs._formats import read_cells, table_name
from mlap.graphs._labels import read_labels
from mlap.graphs.dividing import Division, divide
from mlap.graphs.graph_set import GraphSet, LeftOut
from mlap.graphs.molecules import ON_INVALID, Invalid, molecules
from mlap.graphs.progress import Progress
from mlap.graphs.task import Task
from mlap.names import TASKS

#: Why a row without labels is left out.
NO_LABEL = "no label"


@dataclass(frozen=True)
class Table:
    """The molecules of a table, and how it was read.

    Args:
        graphs: the molecules, with labels, task and splits unless there are no targets; `graphs.rows` are the rows of
            the table that they were, and `graphs.left_out` the others.
        num_rows: the rows of the table.
        smiles: the column of the SMILES.
        targets: the columns of the labels.
        notes: what was guessed and what was left out, a sentence each, for the user to read.
    """

    graphs: GraphSet
    num_rows: int
    smiles: str
    targets: tuple[str, ...]
    notes: tuple[str, ...]


def read_table(
    path: str | Path,
    *,
    smiles: str | None = None,
    targets: str | Sequence[str] | None = None,
    task: Task | str | Mapping[str, Any] | None = None,
    metric: str | None = None,
    positive: str | None = None,
    split: str | None = None,
    split_seed: int | None = None,
    split_sizes: Sequence[float] | None = None,
    splits_file: str | Path | None = None,
    folds: int | None = None,
    fold: int | None = None,
    on_invalid: str = "skip",
    processes: int | None = None,
    progress: Progress | None = None,
) -> Table:
    """Read a table of molecules.

    Args:
        path: a `.csv`, `.tsv`, `.smi` or `.sdf` file (gzipped or not), a `.parquet` or `.xlsx` file; `-` for standard
            input.
        smiles: the column of the SMILES; guessed if `None`.
        targets: the column or columns of the labels; guessed if `None`, and none at all (to predict them) if empty. An
            empty cell is an unknown label.
        task: `"binary"`, `"multiclass"` or `"regression"`; guessed from the labels if `None`: two values are binary,
            whatever they are called. A whole `Task`, such as that of a trained network, also fixes the classes and
            their order, or the words for yes and no.
        metric: what scores the task; by default ROC-AUC, accuracy or root mean squared error.
        positive: which of a binary target's two values is the positive class; guessed if `None`, see
            `mlap.graphs._labels.guess_positive`.
        split: see `mlap.graphs.dividing.Division`, as for the next five. Without targets there is no split.
        split_seed: likewise.
        split_sizes: likewise.
        splits_file: likewise.
        folds: likewise.
        fold: likewise.
        on_invalid: `"skip"` to leave out the rows whose SMILES are no molecules, `"error"` to raise a `DataError`.
        processes: see `mlap.graphs.molecules.molecules`.
        progress: called as the work goes on.
    """
    division = Division(split, split_seed, split_sizes, splits_file, folds, fold)
    _check(task, on_invalid)
    return table_of(
        read_cells(path),
        table_name(path),
        division,
        smiles=smiles,
        targets=targets,
        task=task,
        metric=metric,
        positive=positive,
        on_invalid=on_invalid,
        processes=processes,
        progress=progress,
    )


def _check(task: object, on_invalid: str) -> None:
    """Raise for what can be known to be wrong before the table is read."""
    if on_invalid not in ON_INVALID:
        raise unknown("way to treat invalid SMILES", on_invalid, ON_INVALID, "on_invalid")
    if isinstance(task, str) and task not in TASKS:
        raise unknown("kind of task", task, TASKS, "task")


def table_of(
    cells: Cells,
    name: str,
    division: Division,
    *,
    smiles: str | None = None,
    targets: str | Sequence[str] | None = None,
    task: Task | str | Mapping[str, Any] | None = None,
    metric: str | None = None,
    positive: str | None = None,
    on_invalid: str = "skip",
    processes: int | None = None,
    progress: Progress | None = None,
) -> Table:
    """The molecules of a table that has been read; see `read_table`."""
    _check(task, on_invalid)
    task = Task.from_dict(task) if isinstance(task, Mapping) else task
    targets = (targets,) if isinstance(targets, str) else targets
    smiles, notes = choose_smiles(cells, smiles)
    notes = [*cells.notes, *notes]
    if targets is None and isinstance(task, Task) and task.kind != "multiclass" and task.names:
        targets = task.names
    if division.column is not None:
        cells.check(division.column, "split")
    targets, guessed = choose_targets(cells, targets, smiles, division.column)
    notes += guessed
    labelled = np.ones(len(cells), dtype=bool)
    y: NDArray[Any] | None = None
    meaning = None
    if targets:
        y, meaning, guessed = read_labels(cells, targets, task, metric, positive)
        labelled = y >= 0 if meaning.kind == "multiclass" else ~np.isnan(y).all(axis=1)
        if not labelled.any():
            raise DataError(f"{cells.file}: no row has a label in {shown(targets)}", field="targets")
        if task is None:
            notes.append(f"the task is {meaning.kind}, scored by {meaning.metric_label} (guessed)")
        notes += guessed

    chosen = np.flatnonzero(labelled)
    texts = [cells.columns[smiles][row] for row in chosen.tolist()]
    read = molecules(texts, on_invalid="skip", processes=processes, progress=progress, name=name)
    invalid = [replace(failure, index=int(chosen[failure.index])) for failure in read.invalid]
    if invalid and (on_invalid == "error" or not len(read.graphs)):
        raise _no_molecules(cells, smiles, invalid, some_are=len(read.graphs) > 0)
    left_out = [LeftOut(bad.index, cells.place(bad.index), bad.smiles, bad.reason) for bad in invalid]
    left_out += [
        LeftOut(row, cells.place(row), cells.columns[smiles][row], NO_LABEL)
        for row in np.flatnonzero(~labelled).tolist()
    ]
    graphs = replace(
        read.graphs,
        rows=chosen[read.kept],
        left_out=tuple(sorted(left_out, key=lambda entry: entry.row)),
        y=None if y is None else y[chosen[read.kept]],
        task=meaning,
    )
    notes += _left_out(graphs)
    if targets:
        division = division.of_table(graphs)
        splits = divide(graphs, division, cells, processes=processes, progress=progress)
        graphs = replace(graphs, splits=splits)
    return Table(graphs.validate(), len(cells), smiles, targets, tuple(notes))


def _no_molecules(cells: Cells, smiles: str, invalid: Sequence[Invalid], some_are: bool) -> DataError:
    more = f" (and {len(invalid) - 1} more {'row' if len(invalid) == 2 else 'rows'})" if len(invalid) > 1 else ""
    message = f"{cells.file}, {cells.place(invalid[0].index)}: no molecule in column {smiles!r}, {invalid[0]}{more}"
    if not some_are:
        return DataError(message, field="smiles")
    return DataError(f"{message}; correct them or leave them out", field="on_invalid", suggest="skip")


def _left_out(graphs: GraphSet) -> list[str]:
    """What is not in the set, in sentences: the first invalid rows by name, and how many there are."""
    invalid = [entry for entry in graphs.left_out if entry.reason != NO_LABEL]
    unlabelled = [entry for entry in graphs.left_out if entry.reason == NO_LABEL]
    notes = [f"{bad.place} is left out, {Invalid(bad.row, bad.text, bad.reason)}" for bad in invalid[:5]]
    if len(invalid) > 5:
        rest = len(invalid) - 5
        notes.append(f"{rest} more {_rows_are(rest)} left out: their SMILES are no molecules")
    if unlabelled:
        etc = " …" if len(unlabelled) > 1 else ""
        notes.append(
            f"{len(unlabelled)} {_rows_are(len(unlabelled))} left out, without a label ({unlabelled[0].place}{etc})"
        )
    return notes


def _rows_are(number: int) -> str:
    return "row is" if number == 1 else "rows are"
