"""How good and how honest predictions are: scores, reliability, and coverage beside what was promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.graphs import Task
from mlap.models.conformal import Coverage
from mlap.training import Scores
from mlap.training.scores import reliability, scores

Array = NDArray[Any]


@dataclass(frozen=True)
class Evaluation(Scores):
    """The scores of a model on some graphs, and how far its probabilities and sets can be believed.

    Args:
        reliability: target → (mean confidence, share that is right, graphs) of each bin in use; empty for regression.
            In a binary task confidence is the probability of *yes*; with several classes that of the predicted class.
        coverage: how often sets or intervals hold the truth; `None` if no confidence was asked for.
    """

    reliability: dict[str, list[tuple[float, float, int]]] = field(default_factory=dict)
    coverage: Sequence[Coverage] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is undefined is `None`."""
        points = {
            target: [{"confidence": mean, "share": share, "graphs": number} for mean, share, number in bins]
            for target, bins in self.reliability.items()
        }
        more: dict[str, Any] = {"reliability": points} if points else {}
        if self.coverage is not None:
            more["coverage"] = [
                {
                    key: None if isinstance(value, float) and not math.isfinite(value) else value
                    for key, value in vars(each).items()
                }
                for each in self.coverage
            ]
        return {**super().as_dict(), **more}


def evaluation(
    task: Task,
    values: Array,
    ranks: Array,
    y: Array,
    *,
    part: str = "all",
    data: str = "",
    coverage: Sequence[Coverage] | None = None,
) -> Evaluation:
    """Score predictions; see `mlap.training.scores.scores` for `values`, `ranks` and `y`."""
    found = scores(task, values, ranks, y)
    return Evaluation(
        found.metric, found.values, found.by_target, len(y), part, data, _points(task, values, y), coverage
    )


def _points(task: Task, values: Array, y: Array) -> dict[str, list[tuple[float, float, int]]]:
    values = np.asarray(values, np.float64)
    if task.kind == "regression":
        return {}
    if task.kind == "multiclass":
        return {"": reliability(values.max(axis=1), values.argmax(axis=1) == y)}
    points = {}
    for number, name in enumerate(task.names or map(str, range(task.num_outputs))):
        known = ~np.isnan(y[:, number])
        points[name] = reliability(values[known, number], y[known, number])
    return points
