"""Predictions in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlap.graphs import Task


def output_names(task: Task) -> list[str]:
    """What the outputs are called.

    >>> output_names(Task("binary", 1, "rocauc"))
    ['yes']
    """
    if task.names:
        return list(task.names)
    if task.kind == "multiclass":
        return [f"class {number}" for number in range(task.num_outputs)]
    if task.num_outputs == 1:
        return ["yes" if task.kind == "binary" else "value"]
    return [f"target {number}" for number in range(task.num_outputs)]


def classes_of(task: Task, target: int) -> tuple[str, str]:
    """The words for no and yes of a binary target.

    >>> classes_of(Task("binary", 1, "rocauc", ("toxic",)), 0)
    ('not toxic', 'toxic')
    """
    if task.labels:
        no, yes = task.labels[target]
        if {no.lower(), yes.lower()} - {"0", "1", "no", "yes", "false", "true"}:
            return no, yes
    name = output_names(task)[target]
    return ("no", "yes") if name == "yes" else (f"not {name}", name)


def label_words(task: Task, labels: Any) -> list[str | float | None]:
    """True labels as people say them: one for each target, or the one class."""
    if task.kind == "multiclass":
        return [output_names(task)[int(labels)]]
    known = [None if np.isnan(value) else float(value) for value in np.atleast_1d(labels)]
    if task.kind == "regression":
        return list(known)
    return [None if value is None else classes_of(task, target)[value > 0.5] for target, value in enumerate(known)]


def predicted(task: Task, values: Sequence[float]) -> list[str | float]:
    """The class or value that is predicted for each target."""
    if task.kind == "multiclass":
        return [output_names(task)[int(np.argmax(values))]]
    if task.kind == "regression":
        return [float(value) for value in values]
    return [classes_of(task, target)[value > 0.5] for target, value in enumerate(values)]


def sentence(task: Task, values: Sequence[float], more: Mapping[str, Any], confidence: float | None = None) -> str:
    """A prediction in one sentence.

    Args:
        task: what is predicted.
        values: of one graph.
        more: what the model's calibration adds: the conformal set, or the ends of the interval.
        confidence: of these.

    >>> task = Task("binary", 1, "rocauc", ("active",))
    >>> sentence(task, [0.93], {"active_conformal_set": "1"}, 0.9)
    'active, with 90 % confidence'
    >>> sentence(task, [0.6], {"active_conformal_set": "0 or 1"}, 0.9)
    'cannot tell with 90 % confidence; rather active (60 %)'
    >>> sentence(task, [0.6], {})
    'rather active (60 %)'
    """
    best = predicted(task, values)
    sure = "" if confidence is None else f" with {100 * confidence:g} % confidence"
    if task.kind == "regression":
        said = ", ".join(f"{name} {value:.3g}" for name, value in zip(output_names(task), best, strict=True))
        ends = [value for name, value in more.items() if name.endswith(("lower", "upper"))]
        if len(best) == 1 and len(ends) == 2 and None not in ends:
            said += f", between {ends[0]:.3g} and {ends[1]:.3g}{sure}"
        return said
    if task.kind == "binary" and len(best) > 1:
        yes = [name for name, value in zip(output_names(task), values, strict=True) if value > 0.5]
        return f"{len(yes)} of {len(best)}: {', '.join(yes[:5])}{', …' if len(yes) > 5 else ''}" if yes else "none"
    likely = max(values) if task.kind == "multiclass" else max(values[0], 1 - values[0])
    plain = f"{'rather ' if likely < 0.8 else ''}{best[0]} ({100 * likely:.0f} %)"
    chosen = next((value for name, value in more.items() if name.endswith("conformal_set")), None)
    if chosen is None:
        return plain
    if chosen == "none":
        return f"unlike every class{sure}; nearest to {plain}"
    said_as = _names_in_sets(task)
    return f"{said_as[chosen]},{sure}" if chosen in said_as else f"cannot tell{sure}; {plain}"


def _names_in_sets(task: Task) -> dict[str, str]:
    """A class as conformal sets write it → as people say it."""
    if task.kind == "multiclass":
        written = task.names or tuple(str(number) for number in range(task.num_outputs))
        return dict(zip(written, output_names(task), strict=True))
    return dict(zip(task.labels[0] if task.labels else ("0", "1"), classes_of(task, 0), strict=True))
