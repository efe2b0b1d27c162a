"""What a network's logits mean for a task: the loss, the predictions and the score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mlap.errors import DataError
from mlap.graphs import GraphSet, Task

Array = NDArray[Any]


class Objective:
    """The loss, the predictions and the score of a task; unknown labels (NaN) count in none of them.

    A regression network is trained on standardised targets; `mean` and `std` bring its logits back to the data's own
    units.

    Args:
        task: the task.
        mean: the mean of each target over the training graphs (regression only).
        std: the standard deviation likewise.
    """

    def __init__(self, task: Task, mean: Array | None = None, std: Array | None = None) -> None:
        self.task = task
        self.mean = mean
        self.std = std
        self._scale: Tensor | None = None  # both, where the targets are: a copy in every step would make the host wait

    @classmethod
    def of(cls, graphs: GraphSet) -> Objective:
        """The objective of a labelled set; regression targets are standardised by its training graphs."""
        if graphs.task is None or graphs.y is None:
            raise DataError(f"{graphs.name} has no labels to train on or to score against")
        if graphs.task.kind != "regression":
            return cls(graphs.task)
        targets = graphs.y[graphs.split("train")]
        return cls(graphs.task, np.nanmean(targets, axis=0), np.maximum(np.nanstd(targets, axis=0), 1e-6))

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """The mean loss over all known labels."""
        if self.task.kind == "multiclass":
            return F.cross_entropy(logits, y)
        known = ~y.isnan()
        if self.task.kind == "binary":
            losses = F.binary_cross_entropy_with_logits(logits, y.nan_to_num(), reduction="none")
        else:
            losses = F.mse_loss(logits, self._standardised(y).nan_to_num(), reduction="none")
        return (losses * known).sum() / known.sum().clamp(min=1)

    def _standardised(self, y: Tensor) -> Tensor:
        """Targets as a regression network is trained on them."""
        if self._scale is None or self._scale.device != y.device or self._scale.dtype != y.dtype:
            self._scale = torch.from_numpy(np.stack((self.mean, self.std))).to(y)  # type: ignore[arg-type]
        return (y - self._scale[0]) / self._scale[1]

    def known_labels(self, y: Array) -> int:
        """The number of labels that the mean loss runs over."""
        return y.size if self.task.kind == "multiclass" else int((~np.isnan(y)).sum())

    def predict(self, logits: Tensor) -> Array:
        """Probabilities of the classes `(B, classes)`, of *yes* `(B, targets)`, or values `(B, targets)`."""
        if self.task.kind == "multiclass":
            return logits.softmax(-1).numpy()
        if self.task.kind == "binary":
            return logits.sigmoid().numpy()
        values: Array = logits.numpy() * self.std + self.mean
        return values

    def score(self, logits: Tensor, y: Array) -> float:
        """The task's metric of these logits against these labels."""
        return float(_SCORES[self.task.metric](self, logits, y))

    def as_dict(self) -> dict[str, Any] | None:
        """What `mean` and `std` are, for a run's configuration."""
        if self.mean is None or self.std is None:
            return None
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}


def _accuracy(objective: Objective, logits: Tensor, y: Array) -> float:
    return float(np.mean(_correct(objective, logits, y)))


def _error_rate(objective: Objective, logits: Tensor, y: Array) -> float:
    return float(np.mean(~_correct(objective, logits, y)))


def _correct(objective: Objective, logits: Tensor, y: Array) -> NDArray[np.bool_]:
    if objective.task.kind == "multiclass":
        return np.asarray(logits.argmax(-1).numpy() == y)
    known = ~np.isnan(y)
    return np.asarray((logits.numpy() > 0)[known] == y[known])


def _by_target(measure: Callable[[Array, Array], float], objective: Objective, logits: Tensor, y: Array) -> float:
    """The mean of a measure over the targets of which both answers occur, as OGB does it."""
    values = []
    for target, score in zip(y.T, logits.numpy().T, strict=True):
        known = ~np.isnan(target)
        if len(np.unique(target[known])) == 2:
            values.append(measure(target[known], score[known]))
    if not values:
        raise DataError(
            f"{objective.task.metric} needs graphs of both classes, but these {len(y)} graphs have only one; "
            "choose another split"
        )
    return float(np.mean(values))


def _rocauc(objective: Objective, logits: Tensor, y: Array) -> float:
    from sklearn.metrics import roc_auc_score  # takes a second to import

    return _by_target(roc_auc_score, objective, logits, y)


def _average_precision(objective: Objective, logits: Tensor, y: Array) -> float:
    from sklearn.metrics import average_precision_score

    return _by_target(average_precision_score, objective, logits, y)


def _rmse(objective: Objective, logits: Tensor, y: Array) -> float:
    """The mean over targets of each target's root mean square error."""
    return float(np.mean(np.sqrt(np.nanmean((objective.predict(logits) - y) ** 2, axis=0))))


def _mae(objective: Objective, logits: Tensor, y: Array) -> float:
    return float(np.mean(np.nanmean(np.abs(objective.predict(logits) - y), axis=0)))


_SCORES: dict[str, Callable[[Objective, Tensor, Array], float]] = {
    "error_rate": _error_rate,
    "accuracy": _accuracy,
    "rocauc": _rocauc,
    "ap": _average_precision,
    "rmse": _rmse,
    "mae": _mae,
}
