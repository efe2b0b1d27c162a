"""Tasks: which metric scores which kind, and errors for those that do not go together."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mlap.errors import UsageError
from mlap.graphs import Task
from mlap.names import METRICS, TASKS

#: metric → whether higher is better, for tasks of classes and for quantities
CLASSES = {
    "rocauc": True,
    "ap": True,
    "accuracy": True,
    "error_rate": False,
    "balanced_accuracy": True,
    "mcc": True,
    "f1": True,
    "log_loss": False,
    "brier": False,
    "calibration_error": False,
}
SCORES = {
    "multiclass": CLASSES,
    "binary": CLASSES,
    "regression": {"rmse": False, "mae": False, "r2": True, "spearman": True},
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", TASKS)
def test_which_metric_scores_which_kind_and_which_way(kind: str, metric: str) -> None:
    if metric in SCORES[kind]:
        assert Task(kind, 2, metric).higher_is_better is SCORES[kind][metric]
        return
    expected = f"metric '{metric}' does not score a {kind} task; use one of {', '.join(SCORES[kind])}"
    with pytest.raises(UsageError, match=f"^{expected}$"):
        Task(kind, 2, metric)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("multi-class", 2, "accuracy"), r"^unknown kind of task 'multi-class'; did you mean 'multiclass'\?"),
        (("binary", 2, "auc"), r"^unknown metric 'auc'; .*Known: .*error_rate, "),
        (("binary", 0, "rocauc"), r"^a task needs at least one output, got 0$"),
        (("binary", 2, "rocauc", ("only one",)), r"^got 1 names for 2 outputs$"),
    ],
)
def test_wrong_tasks(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Task(*arguments)


def test_is_a_value() -> None:
    task = Task("binary", 2, "rocauc", ("a", "b"))
    assert task == Task("binary", 2, "rocauc", ("a", "b"))
    assert len({task, Task(**dataclasses.asdict(task))}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.kind = "regression"
