"""Molecules from a table: CSV, TSV or Parquet, with a SMILES column and, to train on, one or more label columns.

What the caller does not say is guessed from the columns' names and contents, and `Table.notes` says what was guessed.
A guess is only made where there is one sensible reading; otherwise the error lists the columns to choose from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError, unknown
from mlap.graphs import _smiles
from mlap.graphs._cells import MISSING, Cells, number, read_cells
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.molecules import ON_INVALID, Invalid, molecules
from mlap.graphs.splits import SYNONYMS, Split, column_split, random_split, scaffold_split, stratified_split
from mlap.graphs.task import Task
from mlap.names import DEFAULT_METRICS, TASKS

SPLITS = ("random", "stratified", "scaffold", "column:NAME")

#: The measure of a kind of task, unless the caller names another.

CLEAR_NAMES = ("smiles", "canonical_smiles", "isomeric_smiles")
LIKELY_NAMES = ("smi", "mol", "molecule", "structure", "compound")
TARGET_NAMES = ("label", "target", "y", "class", "active", "activity")
OTHER_NAMES = re.compile(r"((.*[\W_])?([acs]?id|idx|index|row|num|name|split|fold|set|weight))?|unnamed.*")

MOST_CLASSES = 20  # more different whole numbers than this are quantities rather than classes


@dataclass(frozen=True)
class Table:
    """The molecules of a table, and how it was read.

    Args:
        graphs: the molecules, with labels, task and splits unless there are no targets.
        rows: `(len(graphs),)`, the row of the table that each graph was, counted from 0 below the header.
        num_rows: the rows of the table.
        smiles: the column of the SMILES.
        targets: the columns of the labels.
        invalid: rows that were left out because their SMILES are no molecules.
        unlabelled: rows that were left out because no label of theirs is known.
        notes: what was guessed and what was left out, a sentence each, for the user to read.
    """

    graphs: GraphSet
    rows: NDArray[np.int64]
    num_rows: int
    smiles: str
    targets: tuple[str, ...]
    invalid: tuple[Invalid, ...]
    unlabelled: tuple[int, ...]
    notes: tuple[str, ...]


def read_table(
    path: str | Path,
    *,
    smiles: str | None = None,
    targets: Sequence[str] | None = None,
    task: Task | str | None = None,
    metric: str | None = None,
    split: str | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    split_seed: int | None = None,
    on_invalid: str = "error",
    processes: int | None = None,
    progress: bool = False,
) -> Table:
    """Read a table of molecules.

    Args:
        path: a `.csv`, `.tsv` (either may be gzipped) or `.parquet` file whose columns have names.
        smiles: the column of the SMILES; guessed if `None`.
        targets: the columns of the labels; guessed if `None`, and none at all (to predict them) if empty. An empty
            cell is an unknown label.
        task: `"binary"`, `"multiclass"` or `"regression"`; guessed from the labels if `None`. A whole `Task`, such as
            that of a trained network, also fixes the classes and their order.
        metric: what scores the task; by default ROC-AUC, accuracy or root mean squared error.
        split: `"random"` (the default), `"stratified"`, `"scaffold"` or `"column:NAME"` for a column that holds
            train, valid and test. Without targets there is no split.
        fractions: the shares of train, valid and test, unless a column says it.
        split_seed: of a random or stratified split, 0 unless given; the others are the same every time.
        on_invalid: `"error"` to raise a `DataError` if there are invalid SMILES, `"skip"` to leave their rows out.
        processes: see `mlap.graphs.molecules.molecules`.
        progress: likewise.
    """
    path = Path(path)
    if isinstance(targets, str):
        raise UsageError(f"targets must be a list of column names, got one text; write [{targets!r}]")
    if on_invalid not in ON_INVALID:
        raise unknown("on_invalid", on_invalid, ON_INVALID)
    if isinstance(task, str) and task not in TASKS:
        raise unknown("kind of task", task, TASKS)
    if split is not None and split not in SPLITS and not split.startswith("column:"):
        raise unknown("split", split, SPLITS)
    if split_seed is not None and split not in (None, "random", "stratified"):
        raise UsageError(f"split_seed is for random and stratified splits; {split!r} is the same with every seed")

    cells = read_cells(path)
    split_column = split.removeprefix("column:") if split is not None and split.startswith("column:") else None
    smiles, targets, notes = _choose_columns(cells, smiles, targets, task, split_column)
    labelled = np.ones(len(cells), dtype=bool)
    if targets:
        y, meaning = _labels(cells, targets, task, metric)
        labelled = y >= 0 if meaning.kind == "multiclass" else ~np.isnan(y).all(axis=1)
        if not labelled.any():
            raise DataError(f"{cells.file}: no row has a label in {_columns(targets)}")
        if task is None:
            notes.append(f"the task is {meaning.kind}, scored by {meaning.metric} (guessed)")

    chosen = np.flatnonzero(labelled)
    texts = [cells.columns[smiles][row] for row in chosen.tolist()]
    read = molecules(texts, on_invalid="skip", processes=processes, progress=progress)
    invalid = tuple(replace(failure, index=int(chosen[failure.index])) for failure in read.invalid)
    if invalid and (on_invalid == "error" or not len(read.graphs)):
        raise DataError(
            f"{cells.file}, {cells.place(invalid[0].index)}: no molecule in column {smiles!r}, {invalid[0]}"
            + (f" (and {len(invalid) - 1} more rows)" if len(invalid) > 1 else "")
            + ("; correct them, or leave them out with on_invalid='skip'" if len(read.graphs) else "")
        )
    rows = chosen[read.kept]
    unlabelled = tuple(np.flatnonzero(~labelled).tolist())
    notes += _left_out(cells, invalid, unlabelled, read.graphs)

    graphs = replace(read.graphs, name=path.name.removesuffix(".gz").rpartition(".")[0])
    if targets:
        graphs = replace(graphs, y=y[rows], task=meaning)
        graphs = replace(
            graphs, splits=_split(cells, graphs, rows, split, fractions, split_seed or 0, processes, progress)
        )
    return Table(graphs.validate(), rows, len(cells), smiles, targets, invalid, unlabelled, tuple(notes))


# ---- columns ---------------------------------------------------------------------------------------------------------


def _choose_columns(
    cells: Cells, smiles: str | None, targets: Sequence[str] | None, task: Task | str | None, split: str | None
) -> tuple[str, tuple[str, ...], list[str]]:
    """The column of the SMILES and those of the labels, as given or guessed, and what was guessed."""
    notes = []
    if split is not None:
        cells.check(split)
    if smiles is None:
        smiles = _guess_smiles(cells)
        notes.append(f"SMILES are taken from column {smiles!r} (guessed)")
    cells.check(smiles)
    if targets is None and isinstance(task, Task) and task.kind != "multiclass" and task.names:
        targets = task.names
    elif targets is None:
        targets = _guess_targets(cells, taken={smiles, split})
        notes.append(f"labels are taken from {_columns(targets)} (guessed)")
    for name in targets:
        cells.check(name)
    if len(set(targets)) < len(targets) or smiles in targets:
        raise UsageError(f"each target must be a column of its own, got {', '.join(targets)} with SMILES in {smiles}")
    return smiles, tuple(targets), notes


def _guess_smiles(cells: Cells) -> str:
    """By name, if a column's name says it; by content otherwise."""
    by_name = {name.lower().replace(" ", "_"): name for name in reversed(cells.columns)}
    clear = [name for name in cells.columns if "smiles" in name.lower()]
    if len(clear) > 1:
        clear = [by_name[known] for known in CLEAR_NAMES if known in by_name][:1] or clear
    likely = [by_name[known] for known in LIKELY_NAMES if known in by_name and _holds_molecules(cells, by_name[known])]
    found = clear or likely[:1] or [name for name in cells.columns if _holds_molecules(cells, name)]
    if len(found) > 1:
        raise UsageError(f"{cells.file}: {_columns(found)} could all be SMILES; name one with smiles=")
    if not clear and not likely and any(map(_is_molecule, found or cells.columns)):
        raise DataError(
            f"{cells.file}: the first line looks like data ({', '.join(cells.columns)[:60]}); "
            "expected the names of the columns, such as smiles,label"
        )
    if not found:
        raise UsageError(f"{cells.file}: none of {_columns(tuple(cells.columns))} holds SMILES; name one with smiles=")
    return found[0]


def _holds_molecules(cells: Cells, name: str) -> bool:
    """Whether most of the first cells are molecules, and not only a few codes that could be (CI is iodomethane)."""
    sample = [cell for cell in cells.columns[name] if cell.lower() not in MISSING][:50]
    few = len(sample) >= 20 and len(set(sample)) < 5
    return not few and sum(map(_is_molecule, sample)) > len(sample) / 2


def _is_molecule(text: str) -> bool:
    return number(text) is None and not next(_smiles.run("featurise", [text]))[0]


def _guess_targets(cells: Cells, taken: set[str | None]) -> tuple[str, ...]:
    """The numeric columns that can only be labels: a single one, or several that are all 0/1, or one named so."""
    numeric: dict[str, bool] = {}  # column → whether it is 0/1
    for name, column in cells.columns.items():
        if name in taken or OTHER_NAMES.fullmatch(name.lower()):
            continue
        values = [number(cell) for cell in column if cell.lower() not in MISSING]
        if not values or None in values or _counts_rows(values):
            continue
        numeric[name] = {*values} <= {0.0, 1.0}
    named = [name for name in numeric if name.lower() in TARGET_NAMES]
    if len(numeric) > 1 and len(named) == 1 and not all(numeric.values()):
        return (named[0],)
    if len(numeric) == 1 or (numeric and all(numeric.values())):
        return tuple(numeric)
    if numeric:
        raise UsageError(f"{cells.file}: {_columns(tuple(numeric))} could all be labels; name the targets")
    others = tuple(name for name in cells.columns if name not in taken)
    raise UsageError(
        f"{cells.file}: no column of numbers looks like labels; name the targets"
        + (f" among {_columns(others)}" if others else "")
    )


def _counts_rows(values: Sequence[float | None]) -> bool:
    """Whether the values are the numbers of the rows."""
    return len(values) > 2 and values in ([*range(len(values))], [*range(1, len(values) + 1)])


# ---- labels ----------------------------------------------------------------------------------------------------------


def _labels(
    cells: Cells, targets: Sequence[str], task: Task | str | None, metric: str | None
) -> tuple[NDArray[Any], Task]:
    """Labels of all rows and what they mean: class ids with −1 for unknown, or `(rows, targets)` with NaN."""
    kind = task.kind if isinstance(task, Task) else task or _guess_kind(cells, targets)
    measure = metric or (task.metric if isinstance(task, Task) else DEFAULT_METRICS[kind])
    if kind == "multiclass":
        if len(targets) != 1:
            raise UsageError(f"a multiclass task has one target, got {_columns(targets)}")
        if not isinstance(task, Task):
            y, classes = _classes(cells, targets[0])
            return y, Task(kind, len(classes), measure, classes)
        y, _ = _classes(cells, targets[0], task.names or tuple(map(str, range(task.num_outputs))))
        return y, replace(task, metric=measure)

    y = np.stack([_numbers(cells, name) for name in targets], axis=1)
    if kind == "binary" and (wrong := ~(np.isnan(y) | np.isin(y, (0, 1)))).any():
        row, column = np.argwhere(wrong)[0]
        cell = cells.columns[targets[column]][row]
        raise DataError(
            f"{cells.file}, {cells.place(row)}, column {targets[column]!r}: got {cell!r}, "
            "expected 0, 1 or nothing (a binary task)"
        )
    if isinstance(task, Task):
        if task.num_outputs != len(targets):
            raise UsageError(f"the task has {task.num_outputs} targets, got {_columns(targets)}")
        return y, replace(task, metric=measure)
    return y, Task(kind, len(targets), measure, tuple(targets))


def _guess_kind(cells: Cells, targets: Sequence[str]) -> str:
    """Binary for 0/1, multiclass for one column of text or of few whole numbers, else regression."""
    if len(targets) == 1 and _is_text(cells.columns[targets[0]]):
        return "multiclass"
    columns = {name: _numbers(cells, name) for name in targets}
    values = {name: np.unique(column[~np.isnan(column)]) for name, column in columns.items()}
    if empty := [name for name in targets if not len(values[name])]:
        raise DataError(f"{cells.file}: column {empty[0]!r} has no values")
    if len(targets) == 1 and len(values[targets[0]]) == 1:
        only = values[targets[0]][0]
        raise DataError(f"{cells.file}: column {targets[0]!r} is {only:g} in every row; there is nothing to learn")
    binary = [name for name in targets if np.isin(values[name], (0, 1)).all()]
    if len(binary) == len(targets):
        return "binary"
    if binary:
        real = next(name for name in targets if name not in binary)
        raise UsageError(
            f"{cells.file}: target {binary[0]!r} is 0/1 but {real!r} is not; "
            "name targets of one kind, or say task='regression'"
        )
    distinct = values[targets[0]]
    whole = len(targets) == 1 and (distinct == np.rint(distinct)).all()
    return "multiclass" if whole and len(distinct) <= min(MOST_CLASSES, len(cells) // 2) else "regression"


def _is_text(column: Sequence[str]) -> bool:
    """Whether a column holds names rather than numbers, a few of which may be damaged."""
    known = [cell for cell in column if cell.lower() not in MISSING]
    return sum(number(cell) is None for cell in known) > len(known) / 2


def _numbers(cells: Cells, name: str) -> NDArray[np.float32]:
    """A column as numbers, NaN where there is none."""
    values = np.full(len(cells), np.nan, dtype=np.float32)
    for row, cell in enumerate(cells.columns[name]):
        if cell.lower() in MISSING:
            continue
        value = number(cell)
        if value is None:
            raise DataError(f"{cells.file}, {cells.place(row)}, column {name!r}: got {cell!r}, expected a number")
        values[row] = value
    return values


def _classes(cells: Cells, name: str, classes: Sequence[str] = ()) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """A column as class ids, −1 where there is none; and the classes, as given or sorted (numbers by value)."""
    column = cells.columns[name]
    known = {cell for cell in column if cell.lower() not in MISSING}
    values = {cell: value for cell in known if (value := number(cell)) is not None}
    if len(values) == len(known):  # 2 and 2.0 are one class
        key = {cell: str(int(value) if value.is_integer() else value) for cell, value in values.items()}
        found = sorted({*key.values()}, key=float)
    else:
        key = {cell: cell for cell in known}
        found = sorted(known)
    if not classes and not 2 <= len(found) <= max(2, len(column) // 2):
        raise DataError(
            f"{cells.file}: column {name!r} has {len(found)} different values in {len(column)} rows; "
            "classes must be at least 2 and have some rows each"
        )
    ids = {label: number for number, label in enumerate(classes or found)}
    y = np.full(len(cells), -1, dtype=np.int64)
    for row, cell in enumerate(column):
        if cell in known:
            if key[cell] not in ids:
                raise DataError(
                    f"{cells.file}, {cells.place(row)}, column {name!r}: got class {cell!r}, "
                    f"expected one of {', '.join(ids)}"
                )
            y[row] = ids[key[cell]]
    return y, tuple(ids)


# ---- splits and notes ------------------------------------------------------------------------------------------------


def _split(
    cells: Cells,
    graphs: GraphSet,
    rows: NDArray[np.int64],
    split: str | None,
    fractions: Sequence[float],
    seed: int,
    processes: int | None,
    progress: bool,
) -> Split:
    assert graphs.task is not None
    assert graphs.y is not None
    assert graphs.ids is not None
    if split is None or split == "random":
        return random_split(len(graphs), seed, fractions)
    if split == "scaffold":
        return scaffold_split(graphs.ids, fractions, processes=processes, progress=progress)
    if split == "stratified":
        if graphs.task.kind == "regression" or graphs.y.size != len(graphs):
            raise UsageError("a stratified split needs one target of classes; use split='random' or 'scaffold'")
        return stratified_split(graphs.y.ravel(), seed, fractions)
    name = split.removeprefix("column:")
    values = [cells.columns[name][row] for row in rows.tolist()]
    for row, value in zip(rows.tolist(), values, strict=True):
        if value.lower() not in SYNONYMS:
            raise DataError(
                f"{cells.file}, {cells.place(row)}, column {name!r}: got {value!r}, expected train, valid or test"
            )
    return column_split(values)


def _left_out(cells: Cells, invalid: Sequence[Invalid], unlabelled: Sequence[int], graphs: GraphSet) -> list[str]:
    notes = [f"{cells.place(failure.index)} is left out, {failure}" for failure in invalid[:5]]
    if len(invalid) > 5:
        notes.append(f"{len(invalid) - 5} more rows are left out because their SMILES are no molecules")
    if unlabelled:
        notes.append(f"{len(unlabelled)} rows are left out because they have no label ({cells.place(unlabelled[0])} …)")
    repeated = len(graphs) - len(set(graphs.ids or ()))
    if repeated:
        notes.append(f"{repeated} rows repeat the SMILES of another row")
    return notes


def _columns(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"column{'s' if len(names) != 1 else ''} {shown}"
