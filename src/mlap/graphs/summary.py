"""What is in a graph set that its owner should know before training: balance, repeats, contradictions, the split."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.files import write_whole
from mlap.graphs.duplicates import first_alike
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.molecules import are_molecules
from mlap.graphs.progress import Progress
from mlap.graphs.tables import NO_LABEL
from mlap.graphs.task import Task

_FEW = 3  # targets that get a line each
_MOST_CLASSES = 8  # classes that are counted one by one
_BARS = "▁▂▃▄▅▆▇█"
_BINS = 16


@dataclass(frozen=True)
class Labels:
    """The labels of one target.

    Args:
        target: its name.
        known: how many graphs have a label.
        classes: class → how many graphs have it; empty for quantities.
        values: smallest, median, mean and largest of quantities; empty for classes.
        histogram: how many quantities fall into each of sixteen equal steps from the smallest to the largest.
    """

    target: str
    known: int
    classes: dict[str, int] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    histogram: tuple[int, ...] = ()

    def line(self) -> str:
        """The labels in one line."""
        if self.values:
            low, median, high = (f"{self.values[key]:.4g}" for key in ("smallest", "median", "largest"))
            return f"{self.target}: {low} to {high}, median {median}  {_drawn(self.histogram)}"
        shown = [f"{name} {count:,} ({_percent(count, self.known)})" for name, count in self.classes.items()]
        if len(shown) > _MOST_CLASSES:
            by_count = sorted(self.classes.items(), key=lambda entry: entry[1])
            (rare, least), (common, most) = by_count[0], by_count[-1]
            if least == most:
                return f"{self.target}: {len(shown)} classes of {most:,} each"
            return f"{self.target}: {len(shown)} classes, from {least:,} ({rare}) to {most:,} ({common}) each"
        return f"{self.target}: {', '.join(shown)}"


@dataclass(frozen=True)
class Part:
    """One part of the split: its size, its classes or mean value if there is one target, the classes it lacks."""

    size: int
    classes: dict[str, int] = field(default_factory=dict)
    mean: float | None = None
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """What `summary` finds.

    Args:
        name: of the set.
        graphs: how many there are.
        molecules: whether they are molecules.
        invalid: rows of the table that are no molecules, and are left out.
        unlabelled: rows of the table without a label, which are left out too.
        labels: of each target.
        unknown: the share of labels that are missing in the graphs of the set.
        repeated: different molecules that stand in the set more than once.
        repeats: graphs that are one of those.
        contradictory: how many of the repeated molecules have different labels.
        mixtures: molecules of several parts, such as salts.
        parts: of the split.
    """

    name: str
    graphs: int
    molecules: bool
    invalid: int
    unlabelled: int
    labels: tuple[Labels, ...]
    unknown: float
    repeated: int
    repeats: int
    contradictory: int
    mixtures: int
    parts: dict[str, Part]

    def lines(self) -> list[str]:
        """The summary in a few short lines for people."""
        lines = [_counted(self.graphs, "molecule" if self.molecules else "graph") + self._left_out()]
        lines += self._label_lines()
        if self.repeated:
            same = _counted(self.repeated, "molecule")
            lines.append(f"{same} {'is' if self.repeated == 1 else 'are'} repeated, in {self.repeats:,} rows")
        if self.contradictory:
            lines[-1] += f"; {self.contradictory:,} of them with contradictory labels"
        if self.mixtures:
            lines.append(
                f"{_counted(self.mixtures, 'molecule')} {_is(self.mixtures)} of several parts (salts, mixtures)"
            )
        if self.parts:
            lines.append("split: " + ", ".join(_part_text(name, part) for name, part in self.parts.items()))
        for name, part in self.parts.items():
            if part.lacks:
                lines.append(f"{name} has no {', '.join(part.lacks[:_MOST_CLASSES])}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON holds it."""
        return asdict(self)

    def _left_out(self) -> str:
        reasons = [f"{self.invalid:,} invalid"] * (self.invalid > 0)
        reasons += [f"{self.unlabelled:,} without a label"] * (self.unlabelled > 0)
        rows = self.invalid + self.unlabelled
        return f"; {_counted(rows, 'row')} {_is(rows)} left out ({', '.join(reasons)})" if rows else ""

    def _label_lines(self) -> list[str]:
        missing = f"{_percent(self.unknown, 1)} of the labels are missing" if self.unknown else ""
        if len(self.labels) <= _FEW:
            return [entry.line() for entry in self.labels] + [missing] * (missing != "" and len(self.labels) > 1)
        text = f"{len(self.labels)} targets"
        if all(len(entry.classes) == 2 for entry in self.labels):
            by_share = sorted(self.labels, key=lambda entry: list(entry.classes.values())[1] / max(1, entry.known))
            ends = [
                f"{_percent(list(entry.classes.values())[1], entry.known)} ({entry.target})"
                for entry in (by_share[0], by_share[-1])
            ]
            text += f", positive in {' to '.join(ends)}"
        return [f"{text}; {missing}" if missing else text]


def summary(graphs: GraphSet, *, processes: int | None = None, progress: Progress | None = None) -> Summary:
    """Look at a graph set as its owner should before training on it.

    Args:
        graphs: the set.
        processes: how many processes read SMILES; see `mlap.graphs.molecules.molecules`.
        progress: called as the work goes on.

    >>> from mlap.graphs import load_graphs
    >>> found = summary(load_graphs(["CCO", "OCC", "C.C", "CCN"], labels=["yes", "no", "no", "no"]))
    >>> found.repeated, found.contradictory, found.mixtures
    (1, 1, 1)
    """
    molecules = are_molecules(graphs)
    first = first_alike(graphs, processes=processes, progress=progress) if molecules else np.arange(len(graphs))
    alike = np.bincount(first, minlength=len(graphs)) > 1
    repeated = np.flatnonzero(alike)
    unlabelled = sum(entry.reason == NO_LABEL for entry in graphs.left_out)
    columns = [] if graphs.task is None else _columns(graphs, graphs.task)
    known = sum(int((~np.isnan(values)).sum()) for _, values, _ in columns)
    return Summary(
        name=graphs.name,
        graphs=len(graphs),
        molecules=molecules,
        invalid=len(graphs.left_out) - unlabelled,
        unlabelled=unlabelled,
        labels=tuple(_labels(target, values, words) for target, values, words in columns),
        unknown=1 - known / max(1, len(columns) * len(graphs)) if columns else 0.0,
        repeated=len(repeated),
        repeats=int(alike[first].sum()),
        contradictory=len(np.intersect1d(_contradictions(columns, first), repeated)),
        mixtures=sum(map(_is_mixture, graphs.ids or ())) if molecules else 0,
        parts={name: _part(part, columns) for name, part in graphs.splits.items()},
    )


def write_left_out(graphs: GraphSet, path: Path) -> None:
    """Write the rows of a table that are not in the set as CSV: their place, their text, and why."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("place", "smiles", "reason"))
            writer.writerows((entry.place, entry.text, entry.reason) for entry in graphs.left_out)

    write_whole(path, write)


#: a target's name, its values (NaN where unknown; of classes their numbers), and the classes' names
_Column = tuple[str, NDArray[np.float64], tuple[str, ...]]


def _columns(graphs: GraphSet, task: Task) -> list[_Column]:
    assert graphs.y is not None
    y = np.asarray(graphs.y, dtype=np.float64)
    if task.kind == "multiclass":
        return [("classes", y, task.names or tuple(map(str, range(task.num_outputs))))]
    names = task.names or tuple(f"target {number}" for number in range(task.num_outputs))
    words: Sequence[tuple[str, ...]] = ((),) * len(names)
    if task.kind == "binary":
        words = task.labels or (("negative", "positive"),) * len(names)
    return [(name, y[:, place], words[place]) for place, name in enumerate(names)]


def _labels(target: str, values: NDArray[np.float64], words: tuple[str, ...]) -> Labels:
    known = values[~np.isnan(values)]
    if words:
        return Labels(target, len(known), _class_counts(known, words))
    if not len(known):
        return Labels(target, 0)
    facts = {"smallest": known.min(), "median": np.median(known), "mean": known.mean(), "largest": known.max()}
    histogram, _ = np.histogram(known, bins=_BINS)
    return Labels(
        target, len(known), {}, {key: float(value) for key, value in facts.items()}, tuple(histogram.tolist())
    )


def _class_counts(known: NDArray[np.float64], words: tuple[str, ...]) -> dict[str, int]:
    counts = np.bincount(known.astype(np.int64), minlength=len(words)).tolist()
    return dict(zip(words, counts, strict=True))


def _part(part: NDArray[np.int64], columns: Sequence[_Column]) -> Part:
    if len(columns) != 1:
        lacks = tuple(target for target, values, _ in columns if np.isnan(values[part]).all()) if len(part) else ()
        return Part(len(part), lacks=tuple(f"labels of {target}" for target in lacks))
    _, values, words = columns[0]
    known = values[part][~np.isnan(values[part])]
    if not words:
        return Part(len(part), mean=float(known.mean()) if len(known) else None)
    counts = _class_counts(known, words)
    present = set(values[~np.isnan(values)].astype(np.int64).tolist())  # a class that nobody has is nobody's lack
    lacks = tuple(word for number, word in enumerate(words) if number in present and not counts[word])
    return Part(len(part), counts, lacks=lacks if len(part) else ())


def _contradictions(columns: Sequence[_Column], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first of those graphs that are the same and differ in a class, or in a value by a standard deviation."""
    found = [np.zeros(0, dtype=np.int64)]
    for _, values, words in columns:
        known = ~np.isnan(values)
        lowest, highest = np.full(len(values), np.inf), np.full(len(values), -np.inf)
        np.minimum.at(lowest, first[known], values[known])
        np.maximum.at(highest, first[known], values[known])
        allowed = 0.0 if words or not known.any() else float(values[known].std())
        found.append(np.flatnonzero(highest - lowest > allowed))
    return np.unique(np.concatenate(found))


def _is_mixture(smiles: str) -> bool:
    return "." in smiles.partition(" ")[0]  # behind a blank stands an extension or a name


# ---- words -----------------------------------------------------------------------------------------------------------


def _part_text(name: str, part: Part) -> str:
    text = f"{name} {part.size:,}"
    if len(part.classes) == 2 and part.size:
        positive = list(part.classes)[1]
        return f"{text} ({_percent(part.classes[positive], sum(part.classes.values()))} {positive})"
    return text if part.mean is None else f"{text} (mean {part.mean:.4g})"


def _drawn(histogram: Sequence[int]) -> str:
    """A histogram in a few characters.

    >>> _drawn([0, 1, 8, 4])
    ' ▁█▄'
    """
    highest = max(histogram, default=0) or 1
    return "".join(" " if not count else _BARS[max(0, -(-count * len(_BARS) // highest) - 1)] for count in histogram)


def _percent(part: float, whole: float) -> str:
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f} %" if share >= 1 or share == 0 else f"{share:.1g} %"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
