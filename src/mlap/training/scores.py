"""Scores: how good predictions are, by the measures that people expect for a task.

The formulas are scikit-learn's. A target's unknown labels (NaN) count in none of its scores. A score that the labels do
not define (ROC-AUC where only one class occurs) is NaN, and means over targets leave it out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError
from mlap.graphs import Task
from mlap.names import METRICS

Array = NDArray[Any]

#: bins of equal width for the calibration error
BINS = 10


class Answers(NamedTuple):
    """Predictions for graphs whose labels are known: of one target, or of all classes.

    Args:
        labels: `(G,)`: the class, 0 or 1, or the value.
        predictions: `(G,)` probabilities of *yes* or values; `(G, classes)` probabilities of the classes.
        ranks: `(G,)` or `(G, classes)`: what sorts graphs as the predictions do, without their rounding (logits).
        classes: how many classes there are; 2 for a binary target, 0 for regression.
    """

    labels: Array
    predictions: Array
    ranks: Array
    classes: int

    @property
    def labels_given(self) -> Array:
        """The predicted class of each graph."""
        if self.ranks.ndim == 2:
            return np.asarray(self.ranks.argmax(axis=1))
        return (self.ranks > 0).astype(np.int64)

    @property
    def probabilities(self) -> Array:
        """`(G, classes)`, in double precision and summing to one."""
        given = self.predictions.astype(np.float64)
        if given.ndim == 1:
            return np.stack((1 - given, given), axis=1)
        normalised: Array = given / given.sum(axis=1, keepdims=True)
        return normalised


@dataclass(frozen=True)
class Scores:
    """The scores of a model on some graphs.

    Args:
        metric: the metric that the model was selected by.
        values: metric → score, the mean over targets; NaN where the labels do not define it.
        by_target: target → metric → score; the one entry of a multiclass task is called "".
        graphs: how many graphs were scored.
        part: which part of the data: `train`, `valid`, `test` or `all`.
        data: the name of the data.
    """

    metric: str
    values: dict[str, float]
    by_target: dict[str, dict[str, float]]
    graphs: int = 0
    part: str = "all"
    data: str = ""

    @property
    def score(self) -> float:
        """The score by which the model was selected."""
        return self.values[self.metric]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an undefined score is `None`."""

        def plain(values: Mapping[str, float]) -> dict[str, float | None]:
            return {name: None if math.isnan(value) else value for name, value in values.items()}

        return {
            "data": self.data,
            "part": self.part,
            "graphs": self.graphs,
            "metric": self.metric,
            "score": plain(self.values)[self.metric],
            "scores": plain(self.values),
            "by_target": {target: plain(values) for target, values in self.by_target.items()},
        }


def score(task: Task, predictions: Array, ranks: Array, y: Array, metric: str | None = None) -> float:
    """One score, the mean over targets; an error where no target defines it.

    Args:
        task: the task.
        predictions: probabilities or values, `(G, outputs)`.
        ranks: the logits they were made of, `(G, outputs)`.
        y: the labels.
        metric: one of `mlap.names.METRICS`; the task's unless given.
    """
    metric = metric or task.metric
    value = _mean([_SCORES[metric](each) for each in _by_target(task, predictions, ranks, y).values()])
    if math.isnan(value):
        raise DataError(
            f"{METRICS[metric].label} is not defined on these {len(y)} graphs: it needs "
            + ("different values" if task.kind == "regression" else "graphs of both classes")
        )
    return value


def scores(task: Task, predictions: Array, ranks: Array, y: Array) -> Scores:
    """All scores of the task; the arguments are those of `score`."""
    wanted = [name for name, metric in METRICS.items() if task.kind in metric.kinds]
    by_target = {
        target: {name: _SCORES[name](answers) for name in wanted}
        for target, answers in _by_target(task, predictions, ranks, y).items()
    }
    means = {name: _mean([values[name] for values in by_target.values()]) for name in wanted}
    return Scores(task.metric, means, by_target, len(y))


def _by_target(task: Task, predictions: Array, ranks: Array, y: Array) -> dict[str, Answers]:
    if task.kind == "multiclass":
        return {"": Answers(y, predictions, ranks, task.num_outputs)}
    names = task.names or tuple(str(number) for number in range(task.num_outputs))
    found = {}
    for number, name in enumerate(names):
        known = ~np.isnan(y[:, number])
        classes = 2 if task.kind == "binary" else 0
        found[name] = Answers(y[known, number], predictions[known, number], ranks[known, number], classes)
    return found


def _mean(values: list[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def _some(measure: Callable[[Answers], float]) -> Callable[[Answers], float]:
    """A measure that needs at least one graph."""
    return lambda answers: float(measure(answers)) if len(answers.labels) else math.nan


def _varied(measure: Callable[[Answers], float]) -> Callable[[Answers], float]:
    """A measure that needs labels which are not all the same."""
    return lambda answers: float(measure(answers)) if len(np.unique(answers.labels)) > 1 else math.nan


def _all_classes(measure: Callable[[Answers], float]) -> Callable[[Answers], float]:
    """A measure that needs every class."""
    return lambda answers: float(measure(answers)) if len(np.unique(answers.labels)) == answers.classes else math.nan


def _rocauc(answers: Answers) -> float:
    from sklearn.metrics import roc_auc_score  # takes a second to import

    if answers.predictions.ndim == 1:
        return float(roc_auc_score(answers.labels, answers.ranks))
    return float(roc_auc_score(answers.labels, answers.probabilities, multi_class="ovr"))


def _average_precision(answers: Answers) -> float:
    from sklearn.metrics import average_precision_score

    if answers.predictions.ndim == 1:
        return float(average_precision_score(answers.labels, answers.ranks))
    one_hot = np.eye(answers.classes)[answers.labels]
    return float(average_precision_score(one_hot, answers.probabilities, average="macro"))


def _accuracy(answers: Answers) -> float:
    return float(np.mean(answers.labels_given == answers.labels))


def _error_rate(answers: Answers) -> float:
    return float(np.mean(answers.labels_given != answers.labels))


def _balanced_accuracy(answers: Answers) -> float:
    from sklearn.metrics import balanced_accuracy_score

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a predicted class that does not occur among the labels
        return float(balanced_accuracy_score(answers.labels, answers.labels_given))


def _mcc(answers: Answers) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(answers.labels.astype(np.int64), answers.labels_given))


def _f1(answers: Answers) -> float:
    from sklearn.metrics import f1_score

    average = "binary" if answers.predictions.ndim == 1 else "macro"
    return float(f1_score(answers.labels, answers.labels_given, average=average, zero_division=0))


def _log_loss(answers: Answers) -> float:
    from sklearn.metrics import log_loss

    return float(log_loss(answers.labels, answers.probabilities, labels=np.arange(answers.classes)))


def _brier(answers: Answers) -> float:
    """The mean squared error of the probabilities: of *yes* in a binary task, summed over classes in others."""
    if answers.predictions.ndim == 1:
        return float(np.mean((answers.predictions.astype(np.float64) - answers.labels) ** 2))
    one_hot = np.eye(answers.classes)[answers.labels]
    return float(np.mean(((answers.probabilities - one_hot) ** 2).sum(axis=1)))


def reliability(confidence: Array, correct: Array, bins: int = BINS) -> list[tuple[float, float, int]]:
    """The points of a reliability diagram: mean confidence, share that is right, and graphs of each used bin."""
    bin_of = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    points = []
    for number in range(bins):
        chosen = bin_of == number
        if chosen.any():
            points.append((float(confidence[chosen].mean()), float(correct[chosen].mean()), int(chosen.sum())))
    return points


def _calibration_error(answers: Answers) -> float:
    """The expected calibration error: how far confidence and truth are apart, on average over bins of equal width.

    In a binary task confidence is the probability of *yes*; with several classes that of the predicted class.
    """
    if answers.predictions.ndim == 1:
        confidence, correct = answers.predictions.astype(np.float64), answers.labels
    else:
        confidence, correct = answers.probabilities.max(axis=1), answers.labels_given == answers.labels
    points = reliability(confidence, correct)
    return sum(number * abs(mean - share) for mean, share, number in points) / len(confidence)


def _rmse(answers: Answers) -> float:
    return float(np.sqrt(np.mean((answers.predictions - answers.labels) ** 2)))


def _mae(answers: Answers) -> float:
    return float(np.mean(np.abs(answers.predictions - answers.labels)))


def _r2(answers: Answers) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(answers.labels, answers.predictions))


def _spearman(answers: Answers) -> float:
    from scipy.stats import spearmanr

    if len(np.unique(answers.predictions)) < 2:
        return math.nan
    return float(spearmanr(answers.labels, answers.predictions).statistic)


_SCORES: dict[str, Callable[[Answers], float]] = {
    "rocauc": _all_classes(_rocauc),
    "ap": _all_classes(_average_precision),
    "accuracy": _some(_accuracy),
    "error_rate": _some(_error_rate),
    "balanced_accuracy": _some(_balanced_accuracy),
    "mcc": _varied(_mcc),
    "f1": _some(_f1),
    "log_loss": _some(_log_loss),
    "brier": _some(_brier),
    "calibration_error": _some(_calibration_error),
    "rmse": _some(_rmse),
    "mae": _some(_mae),
    "r2": _varied(_r2),
    "spearman": _varied(_spearman),
}
