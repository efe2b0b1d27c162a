"""What the labels of a table are: yes or no, classes or quantities; as numbers, with the task that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError
from mlap.graphs._cells import MISSING, Cells, quoted, shown
from mlap.graphs.task import Task
from mlap.names import DEFAULT_METRICS

MOST_CLASSES = 20  # more different whole numbers than this are quantities rather than classes

#: Words for yes and for no, in lower case.
YES = frozenset(("1", "true", "yes", "active", "positive", "pos", "+", "toxic", "hit", "mutagenic", "binder"))
NO = frozenset(("0", "-1", "false", "no", "inactive", "negative", "neg", "-", "nontoxic", "non-toxic", "decoy", "safe"))
#: Letters say it only together: I beside A is inactive, but B beside A is another class.
LETTERS = {frozenset("ai"): "a", frozenset("yn"): "y", frozenset("tf"): "t", frozenset("pn"): "p"}
#: What turns a word into its opposite.
PREFIXES = ("in", "non", "non-", "non ", "not ", "not-", "not_", "no ", "un")

#: the words for no and for yes
Words = tuple[str, str]


def read_labels(
    cells: Cells,
    targets: Sequence[str],
    task: Task | str | None = None,
    metric: str | None = None,
    positive: str | None = None,
) -> tuple[NDArray[Any], Task, list[str]]:
    """Labels of all rows, what they mean, and what was guessed about them.

    Args:
        cells: the table.
        targets: the columns of the labels.
        task: a kind of task; or a whole one, which also fixes the classes, or the words for yes and no; or a guess.
        metric: what scores the task, unless by the default of its kind.
        positive: the value that means yes.

    Returns:
        Class ids with −1 for unknown, or `(rows, targets)` with NaN; the task; sentences for the user.
    """
    kind = task.kind if isinstance(task, Task) else task or _guess_kind(cells, targets)
    measure = metric or (task.metric if isinstance(task, Task) else DEFAULT_METRICS[kind])
    if positive is not None and kind != "binary":
        raise UsageError(f"{{field}} is for binary tasks; this one is {kind}", field="positive")
    if isinstance(task, Task) and kind != "multiclass" and task.num_outputs != len(targets):
        raise UsageError(f"the task has {task.num_outputs} targets, got {shown(targets)}", field="targets")
    notes: list[str] = []
    if kind == "multiclass":
        if len(targets) != 1:
            raise UsageError(f"a multiclass task has one target, got {shown(targets)}", field="targets")
        if not isinstance(task, Task):
            y, classes = _classes(cells, targets[0])
            return y, Task(kind, len(classes), measure, classes), notes
        y, _ = _classes(cells, targets[0], task.names or tuple(map(str, range(task.num_outputs))))
        return y, replace(task, metric=measure), notes
    if kind == "regression":
        y = np.stack([_numbers(cells, name) for name in targets], axis=1)
        if cells.decimal_comma and any("," in cell for name in targets for cell in cells.columns[name]):
            notes.append("numbers are written with decimal commas")
        return y, _of_targets(task, kind, targets, measure), notes

    given = task.labels if isinstance(task, Task) and task.labels else (None,) * len(targets)
    columns = []
    for name, words in zip(targets, given, strict=True):
        column, words, why = _yes_no(cells, name, words, positive)
        columns.append((column, words))
        if why:
            notes.append(f"{quoted(words[1])} is the positive class of column {quoted(name)} ({why})")
    y = np.stack([column for column, _ in columns], axis=1)
    labels = tuple(words for _, words in columns)
    meaning = _of_targets(task, kind, targets, measure)
    if not isinstance(task, Task) and any(words != ("0", "1") for words in labels):
        meaning = replace(meaning, labels=labels)
    return y, meaning, notes


def _of_targets(task: Task | str | None, kind: str, targets: Sequence[str], metric: str) -> Task:
    if isinstance(task, Task):
        return replace(task, metric=metric)
    return Task(kind, len(targets), metric, tuple(targets))


# ---- the kind of task ------------------------------------------------------------------------------------------------


def _guess_kind(cells: Cells, targets: Sequence[str]) -> str:
    """Binary for two values, multiclass for one column of words or of few whole numbers, else regression."""
    values = {name: _values(cells, name) for name in targets}
    if empty := [name for name in targets if not values[name]]:
        raise DataError(f"{cells.file}: column {quoted(empty[0])} has no values", field="targets")
    only = targets[0]
    if len(targets) == 1 and len(set(values[only].values())) == 1:
        value = next(iter(values[only].values()))
        raise DataError(
            f"{cells.file}: column {quoted(only)} is {quoted(value)} in every row; there is nothing to learn",
            field="targets",
        )
    binary = [name for name in targets if _is_binary(set(values[name].values()))]
    if len(binary) == len(targets):
        return "binary"
    if len(targets) == 1 and is_text(cells, only):
        return "multiclass"
    columns = {name: _numbers(cells, name) for name in targets if name not in binary}
    if binary:
        real = next(iter(columns))
        words = " and ".join(map(quoted, sorted(set(values[binary[0]].values()))))
        raise UsageError(
            f"{cells.file}: target {quoted(binary[0])} is {words}, but {quoted(real)} is not of two values; "
            "name {field} of one kind, or say that the task is regression",
            field="targets",
        )
    distinct = np.unique(columns[only][~np.isnan(columns[only])])
    whole = len(targets) == 1 and (distinct == np.rint(distinct)).all()
    return "multiclass" if whole and len(distinct) <= min(MOST_CLASSES, len(cells) // 2) else "regression"


def _is_binary(words: set[str]) -> bool:
    """Whether values are those of a question of yes or no: two words or two whole numbers, or 0 or 1 alone."""
    if words <= {"0", "1"}:
        return True
    return len(words) == 2 and not any("." in word and _is_number(word) for word in words)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def is_text(cells: Cells, name: str) -> bool:
    """Whether a column holds words rather than numbers, a few of which may be damaged."""
    known = cells.known(name)
    return sum(cells.number(cell) is None for cell in known) > len(known) / 2


def yes_or_no(cells: Cells, name: str) -> bool:
    """Whether a column's values are 0 and 1, or words that are known to mean yes and no."""
    words = {word.lower() for word in _values(cells, name).values()}
    if words <= {"0", "1"}:
        return True
    return len(words) == 2 and (frozenset(words) in LETTERS or (len(words & YES) == 1 and len(words & NO) == 1))


def _values(cells: Cells, name: str) -> dict[str, str]:
    """Each different cell of a column, and the value it stands for: 2 and 2.0 are one, and so are Yes and yes.

    Words that differ in case only are the same if there are two of them then; classes may be told apart by it.
    """
    counts = Counter(cells.known(name))
    numbers = {cell: value for cell in counts if (value := cells.number(cell)) is not None}
    if len(numbers) == len(counts) and not any(cell.lower() in ("true", "false") for cell in counts):
        return {cell: str(int(value) if value.is_integer() else value) for cell, value in numbers.items()}
    spelling: dict[str, str] = {}
    for cell, _ in counts.most_common():
        spelling.setdefault(cell.lower(), cell)
    if len(spelling) <= 2:
        return {cell: spelling[cell.lower()] for cell in counts}
    return {cell: cell for cell in counts}


# ---- yes or no -------------------------------------------------------------------------------------------------------


def _yes_no(
    cells: Cells, name: str, words: Words | None, positive: str | None
) -> tuple[NDArray[np.float32], Words, str]:
    """A column as 1 for yes, 0 for no and NaN for unknown; the words; and why the one is yes, if that was guessed."""
    values = _values(cells, name)
    why = ""
    if words is None:
        words, why = _no_and_yes(cells, name, values, positive)
    meaning = {words[0].lower(): 0.0, words[1].lower(): 1.0}
    if not any(map(_is_number, words)):  # what learned Active and Inactive may be shown 0 and 1
        meaning |= {"0": 0.0, "1": 1.0}
    y = np.full(len(cells), np.nan, dtype=np.float32)
    for row, cell in enumerate(cells.columns[name]):
        if cell.lower() in MISSING:
            continue
        value = meaning.get(values[cell].lower())
        if value is None:
            raise DataError(
                f"{cells.file}, {cells.place(row)}, column {quoted(name)}: got {quoted(cell)}, "
                f"expected {quoted(words[0])}, {quoted(words[1])} or nothing (a binary task)",
                field="targets",
            )
        y[row] = value
    return y, words, why


def _no_and_yes(cells: Cells, name: str, values: dict[str, str], positive: str | None) -> tuple[Words, str]:
    """The words for no and yes of a column, and why if that was guessed."""
    found = set(values.values())
    if found <= {"0", "1"} and positive in (None, "0", "1"):
        return (("1", "0") if positive == "0" else ("0", "1")), ""
    if len(found) != 2:
        if all(_is_number(word) for word in found):
            return ("0", "1"), ""  # the first cell that is neither is an error
        several = ", ".join(map(quoted, sorted(found)[:5]))
        raise DataError(
            f"{cells.file}: column {quoted(name)} has {len(found)} different values ({several}); a binary task has two",
            field="task",
            suggest="multiclass",
        )
    if positive is not None:
        chosen = [word for cell, word in values.items() if positive.lower() in (cell.lower(), word.lower())]
        if not chosen:
            raise UsageError(
                f"{cells.file}: column {quoted(name)} has no value {quoted(positive)}; it has "
                f"{' and '.join(map(quoted, sorted(found)))}",
                field="positive",
            )
        yes, why = chosen[0], ""
    else:
        yes, why = guess_positive(Counter(values[cell] for cell in cells.known(name)))
    (no,) = found - {yes}
    return (no, yes), why


def guess_positive(counts: Counter[str]) -> tuple[str, str]:
    """Which of two values is the positive one, and why.

    By a known word (active, yes, true, toxic …), by one being the other's opposite (soluble, insoluble), the larger
    of two numbers; else the rarer, as hits mostly are, and of equally rare ones the last in the alphabet.

    >>> guess_positive(Counter(Inactive=5, Active=2))[0]
    'Active'
    >>> guess_positive(Counter(red=5, blue=2))
    ('blue', 'guessed: the rarer one')
    """
    by_lower = {word.lower(): word for word in counts}
    if letter := LETTERS.get(frozenset(by_lower)):
        return by_lower[letter], "guessed from its name"
    for word, other in (sorted(by_lower), sorted(by_lower, reverse=True)):
        opposite = any(other == prefix + word for prefix in PREFIXES)
        if opposite or (word in YES and other not in YES) or (other in NO and word not in NO):
            return by_lower[word], "guessed from its name"
    if all(map(_is_number, counts)):
        return max(counts, key=float), "guessed: the larger one"
    return max(counts, key=lambda word: (-counts[word], word)), "guessed: the rarer one"


# ---- quantities and classes ------------------------------------------------------------------------------------------


def _numbers(cells: Cells, name: str) -> NDArray[np.float32]:
    """A column as numbers, NaN where there is none."""
    values = np.full(len(cells), np.nan, dtype=np.float32)
    for row, cell in enumerate(cells.columns[name]):
        if cell.lower() in MISSING:
            continue
        value = cells.number(cell)
        if value is None:
            comma = "; write decimals with a point" if "," in cell and not cells.decimal_comma else ""
            raise DataError(
                f"{cells.file}, {cells.place(row)}, column {quoted(name)}: got {quoted(cell)}, "
                f"expected a number{comma}",
                field="targets",
            )
        values[row] = value
    return values


def _classes(cells: Cells, name: str, classes: Sequence[str] = ()) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """A column as class ids, −1 where there is none; and the classes, as given or sorted (numbers by value)."""
    values = _values(cells, name)
    found = sorted(set(values.values()), key=float if all(map(_is_number, values.values())) else None)
    if not classes and not 2 <= len(found) <= max(2, len(cells) // 2):
        raise DataError(
            f"{cells.file}: column {quoted(name)} has {len(found)} different values in {len(cells)} rows; "
            "classes must be at least 2 and have some rows each",
            field="targets",
        )
    ids = {label: number for number, label in enumerate(classes or found)}
    y = np.full(len(cells), -1, dtype=np.int64)
    for row, cell in enumerate(cells.columns[name]):
        if cell in values:
            label = cell if cell in ids else values[cell]
            if label not in ids:
                raise DataError(
                    f"{cells.file}, {cells.place(row)}, column {quoted(name)}: got class {quoted(cell)}, "
                    f"expected one of {', '.join(map(quoted, list(ids)[:20]))}",
                    field="targets",
                )
            y[row] = ids[label]
    return y, tuple(ids)
