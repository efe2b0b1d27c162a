"""How a graph set is divided into train, valid and test: what the user may say, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError, unknown
from mlap.files import write_text
from mlap.graphs._cells import Cells, quoted, shown
from mlap.graphs._formats import read_cells
from mlap.graphs.duplicates import first_alike
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.molecules import are_molecules
from mlap.graphs.progress import Progress
from mlap.graphs.splits import (
    NAMES,
    SIZES,
    SYNONYMS,
    Split,
    column_split,
    random_folds,
    random_split,
    scaffold_folds,
    scaffold_split,
    split_of_folds,
    stratified_folds,
    stratified_split,
)
from mlap.graphs.task import Task

SPLITS = ("random", "stratified", "scaffold", "column:NAME")

#: Metrics that have no value where there is only one class.
_NEED_BOTH_CLASSES = ("rocauc", "ap")


@dataclass(frozen=True)
class Division:
    """How to divide a graph set. Wrong combinations are an error before any data are read.

    Args:
        split: `"random"`, `"stratified"` (each part has the classes in the set's proportions),
            `"scaffold"` (no two parts share a scaffold) or `"column:NAME"` (a table's column says it).
        split_seed: random seed of a random or stratified split, 0 unless given; the others know no chance.
        split_sizes: the shares of train, valid and test.
        splits_file: a file that says it; see `read_splits`.
        folds: the number of folds of a cross-validation.
        fold: which fold to test, from 0; the next one validates and the others train.
    """

    split: str | None = None
    split_seed: int | None = None
    split_sizes: Sequence[float] | None = None
    splits_file: str | Path | None = None
    folds: int | None = None
    fold: int | None = None

    def __post_init__(self) -> None:
        if self.split is not None and self.split not in SPLITS and self.column is None:
            raise unknown("split", self.split, SPLITS, "split")
        if self.split_seed is not None and self.split not in (None, "random", "stratified"):
            raise UsageError(
                f"{{field}} is for random and stratified splits; {self.split!r} is the same with every seed",
                field="split_seed",
            )
        if self.splits_file is not None and {self.split, self.split_seed, self.split_sizes, self.folds} != {None}:
            raise UsageError("{field} says it all: give no other way to split beside it", field="splits_file")
        if self.split_sizes is not None:
            random_split(0, 0, self.split_sizes)  # raises if they are wrong
            if self.folds is not None or self.column is not None:
                other = "folds" if self.folds is not None else "a column"
                raise UsageError(f"{{field}} cannot be given beside {other}, which decides it", field="split_sizes")
        if self.folds is not None:
            if self.folds < 3:
                raise UsageError(
                    f"{{field}} must be at least 3, to train, validate and test; got {self.folds}", "folds"
                )
            if self.column is not None:
                raise UsageError("{field} are drawn at random, stratified or by scaffold, not from a column", "folds")
        if self.fold is not None:
            if self.folds is None:
                raise UsageError("{field} says which of several folds to test; say how many there are", "fold")
            if not 0 <= self.fold < self.folds:
                raise UsageError(f"{{field}} must be 0 to {self.folds - 1}, got {self.fold}", "fold")

    def of_table(self, graphs: GraphSet) -> Division:
        """The same, where a table with one target of classes is divided by them unless told otherwise."""
        told = self.split is not None or self.splits_file is not None
        return self if told or not _has_one_class_each(graphs) else replace(self, split="stratified")

    @property
    def column(self) -> str | None:
        """The column of the table that states the parts, if one does."""
        return self.split.removeprefix("column:") if self.split and self.split.startswith("column:") else None


def divide(
    graphs: GraphSet,
    division: Division,
    cells: Cells | None = None,
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Split:
    """The parts of a graph set. Identical molecules are never in different parts, unless a column or file says so.

    Args:
        graphs: the set.
        division: how to divide it.
        cells: the table that the graphs come from, for a column of it.
        processes: how many processes read SMILES; see `mlap.graphs.molecules.molecules`.
        progress: called as the work goes on.
    """
    if division.splits_file is not None:
        return read_splits(division.splits_file, graphs)
    if division.column is not None:
        return _stated(graphs, division.column, cells)
    how, seed, sizes = division.split or "random", division.split_seed or 0, division.split_sizes or SIZES
    if how == "scaffold":
        smiles = _molecules_only(graphs)
        if division.folds is None:
            return scaffold_split(smiles, sizes, processes=processes, progress=progress)
        fold_of = scaffold_folds(smiles, division.folds, processes=processes, progress=progress)
    else:
        first = first_alike(graphs, processes=processes, progress=progress) if are_molecules(graphs) else None
        if division.folds is None and how == "random":
            return random_split(len(graphs), seed, sizes, first=first)
        if division.folds is None:
            return stratified_split(_one_class_each(graphs), seed, sizes, first=first)
        if how == "random":
            fold_of = random_folds(len(graphs), division.folds, seed, first=first)
        else:
            fold_of = stratified_folds(_one_class_each(graphs), division.folds, seed, first=first)
    return split_of_folds(fold_of, division.folds, division.fold or 0)


def _molecules_only(graphs: GraphSet) -> Sequence[str]:
    if not are_molecules(graphs) or graphs.ids is None:
        raise UsageError(f"{graphs.name} has no molecules, so there are no scaffolds to split by", field="split")
    return graphs.ids


def fold_split(
    graphs: GraphSet,
    folds: int,
    fold: int,
    *,
    split: str = "random",
    seed: int | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Split:
    """The parts of one fold of a cross-validation: fold `fold` to test, the next to validate, the others to train.

    Args:
        graphs: the set.
        folds: how many folds there are, at least 3.
        fold: which one to test, from 0.
        split: `"random"`, `"stratified"` or `"scaffold"`.
        seed: random seed of random and stratified folds.
        processes: how many processes read SMILES; see `mlap.graphs.molecules.molecules`.
        progress: called as the work goes on.
    """
    division = Division(split, split_seed=seed, folds=folds, fold=fold)
    return divide(graphs, division, processes=processes, progress=progress)


def _has_one_class_each(graphs: GraphSet) -> bool:
    return (
        graphs.y is not None
        and graphs.y.size == len(graphs)
        and graphs.task is not None
        and graphs.task.kind != "regression"
    )


def _one_class_each(graphs: GraphSet) -> NDArray[np.float64]:
    if not _has_one_class_each(graphs):
        raise UsageError("a stratified split needs one target of classes", field="split", suggest="random")
    return np.asarray(graphs.y, dtype=np.float64).ravel()


def _stated(graphs: GraphSet, name: str, cells: Cells | None) -> Split:
    if cells is None:
        raise UsageError(f"{graphs.name} is no table, so it has no column {name!r} to split by", field="split")
    values = cells.columns[cells.check(name, "split")]
    rows = row_numbers(graphs).tolist()
    for row in rows:
        if values[row].lower() not in SYNONYMS:
            raise DataError(
                f"{cells.file}, {cells.place(row)}, column {quoted(name)}: got {quoted(values[row])}, "
                "expected train, valid or test",
                field="split",
            )
    return column_split([values[row] for row in rows])


# ---- splits in files -------------------------------------------------------------------------------------------------


def row_numbers(graphs: GraphSet) -> NDArray[np.int64]:
    """The row of the table that each graph was, or its own number, counted from 0."""
    return np.arange(len(graphs)) if graphs.rows is None else graphs.rows


def write_splits(path: Path, graphs: GraphSet) -> None:
    """Write the parts of a set as `{"train": [row numbers], "valid": …}`, which `read_splits` reads."""
    rows = row_numbers(graphs)
    write_text(path, json.dumps({name: rows[part].tolist() for name, part in graphs.splits.items()}) + "\n")


def read_splits(path: str | Path, graphs: GraphSet) -> Split:
    """The parts that a file states for a set. Graphs that it does not name are in no part.

    A JSON file holds `{"train": [row numbers], "valid": […], "test": […]}`, as a run's own `splits.json`. A table has a
    column `split` (or `part`) of train, valid and test, and a column `row` of row numbers or `smiles` (or `id`) of the
    graphs' ids. Rows of a table of molecules are counted from 0 below its header, those that were left out as well.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"there is no file {path}", field="splits_file")
    part_of = _parts_in_json(path) if path.suffix.lower() == ".json" else _parts_in_table(path, graphs)
    rows = row_numbers(graphs)
    known = {*rows.tolist(), *(entry.row for entry in graphs.left_out)}
    if strange := sorted(part_of.keys() - known):
        raise DataError(
            f"{path.name} names row {strange[0]}, which {graphs.name} does not have ({len(known)} rows from 0)",
            field="splits_file",
        )
    stated = [part_of.get(row) for row in rows.tolist()]
    split = {name: np.flatnonzero([part == name for part in stated]) for name in NAMES}
    if not len(split["train"]):
        raise DataError(f"{path.name} puts no graph of {graphs.name} into train", field="splits_file")
    return split


def _parts_in_json(path: Path) -> dict[int, str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        listed = [(SYNONYMS[name.lower()], row) for name, rows in content.items() for row in rows]
        if not all(type(row) is int for _, row in listed):
            raise ValueError("rows are not whole numbers")
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, OSError) as error:
        raise DataError(
            f'{path.name} is no split; expected {{"train": [row numbers], "valid": […], "test": […]}} '
            f"({type(error).__name__}: {str(error)[:80]})",
            field="splits_file",
        ) from None
    part_of = {row: name for name, row in listed}
    if len(part_of) < len(listed):
        raise DataError(f"{path.name} names a row twice", field="splits_file")
    return part_of


def _parts_in_table(path: Path, graphs: GraphSet) -> dict[int, str]:
    cells = read_cells(path)
    by_name = {name.lower(): name for name in cells.columns}
    part = next((by_name[name] for name in ("split", "part") if name in by_name), None)
    key = next((by_name[name] for name in ("row", "smiles", "id") if name in by_name), None)
    if part is None or key is None:
        raise DataError(
            f"{path.name} needs a column 'split' and one of 'row', 'smiles' or 'id'; "
            f"it has {shown(tuple(cells.columns))}",
            field="splits_file",
        )
    rows_of: dict[str, list[int]] = {}
    if key.lower() != "row":
        for row, text in zip(row_numbers(graphs).tolist(), graphs.ids or (), strict=True):
            rows_of.setdefault(text, []).append(row)
    part_of: dict[int, str] = {}
    for place, (text, name) in enumerate(zip(cells.columns[key], cells.columns[part], strict=True)):
        if name.lower() not in SYNONYMS:
            raise DataError(
                f"{path.name}, {cells.place(place)}: got {quoted(name)}, expected train, valid or test",
                field="splits_file",
            )
        if key.lower() == "row" and not (text.isascii() and text.isdigit() and len(text) < 19):
            raise DataError(
                f"{path.name}, {cells.place(place)}: got row {quoted(text)}, expected a number", "splits_file"
            )
        # SMILES of the file that are not in the set may be of rows that were left out.
        for row in [int(text)] if key.lower() == "row" else rows_of.get(text, ()):
            part_of[row] = SYNONYMS[name.lower()]
    return part_of


# ---- is it fit to train on? ------------------------------------------------------------------------------------------


def check_parts(graphs: GraphSet, metric: str | None = None) -> None:
    """Raise unless the parts can be trained and validated on; to be called before anything is written.

    Neither may be empty, without labels, or lack a class that learning or scoring needs. A part that lacks one of many
    classes, or one of several targets, is fine.

    Args:
        graphs: the set, with labels.
        metric: the validation score, unless that of the task.
    """
    task, y = graphs.task, graphs.y
    if task is None or y is None:
        raise UsageError(f"{graphs.name} has no labels to train on", field="targets")
    for part in ("train", "valid"):
        if not len(graphs.splits.get(part, ())):
            raise UsageError(f"{graphs.name}: {part} has no graphs; it needs some", field="split")
        if task.kind == "regression":
            _check_values(graphs, task, y[graphs.splits[part]], part)
        if task.kind == "binary" and (part == "train" or (metric or task.metric) in _NEED_BOTH_CLASSES):
            _check_both_classes(graphs, task, y, part)


def _check_values(graphs: GraphSet, task: Task, y: NDArray[Any], part: str) -> None:
    """Each target needs a value to learn from, and one of them a value to score."""
    known = ~np.isnan(y).all(axis=0)
    if known.all() or (part == "valid" and known.any()):
        return
    target = task.names[int(np.argmin(known))] if task.names else f"target {int(np.argmin(known))}"
    raise UsageError(f"{graphs.name}: {part} has no label of {target!r}; it needs some", field="split")


def _check_both_classes(graphs: GraphSet, task: Task, y: NDArray[Any], part: str) -> None:
    """One target at least needs both classes."""
    own = y[graphs.splits[part]]
    if ((own == 1).any(axis=0) & (own == 0).any(axis=0)).any():
        return
    lacking = 1 if not (own == 1).any() else 0
    word = task.labels[0][lacking] if task.labels else str(lacking)
    held = ", ".join(f"{int((y[chosen] == lacking).sum())} in {name}" for name, chosen in graphs.splits.items())
    purpose = "learned" if part == "train" else f"scored by {task.metric_label}"
    # Another split helps if there are enough of the rarest class for train and valid.
    enough = y.shape[1] == 1 and min(int((y == value).sum()) for value in (0, 1)) >= 10
    raise UsageError(
        f"{graphs.name}: {part} has no {word!r} ({held}), so it cannot be {purpose}",
        field="split",
        **({"suggest": "stratified"} if enough else {}),
    )
