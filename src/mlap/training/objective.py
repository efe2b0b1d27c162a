"""What a network's logits mean for a task: the loss, the predictions and the score."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mlap.errors import DataError, UsageError
from mlap.graphs import GraphSet, Task
from mlap.training.scores import score

Array = NDArray[Any]


class Objective:
    """The loss, the predictions and the score of a task; unknown labels (NaN) count in none of them.

    A regression network is trained on standardised targets; `mean` and `std` bring its logits back to the data's own
    units.

    Args:
        task: the task.
        mean: the mean of each target over the training graphs (regression only).
        std: the standard deviation likewise.
        class_weights: what a label counts in the loss: `(classes,)`, or `(2, targets)` for binary targets.
        calibration: makes probabilities of logits instead of σ or softmax; learnt after training.
    """

    def __init__(
        self,
        task: Task,
        mean: Array | None = None,
        std: Array | None = None,
        class_weights: Array | None = None,
        calibration: Callable[[Array], Array] | None = None,
    ) -> None:
        self.task = task
        self.mean = mean
        self.std = std
        self.class_weights = class_weights
        self.calibration = calibration
        self._constants: dict[str, Tensor] = {}  # where the labels are: a copy in every step would make the host wait

    @classmethod
    def of(cls, graphs: GraphSet, metric: str = "", class_weight: str = "none") -> Objective:
        """The objective of a labelled set.

        Args:
            graphs: the set; regression targets are standardised by its training graphs.
            metric: what scores; the set's own metric if empty.
            class_weight: `balanced` weighs every class by the inverse of its share among the training labels.
        """
        if graphs.task is None or graphs.y is None:
            raise DataError(f"{graphs.name} has no labels to train on or to score against")
        task = dataclasses.replace(graphs.task, metric=metric) if metric else graphs.task
        targets = graphs.y[graphs.split("train")]
        if task.kind != "regression":
            return cls(task, class_weights=_balance(task, targets) if class_weight == "balanced" else None)
        if class_weight == "balanced":
            raise UsageError("a regression task has no classes to balance", "class_weight", "none")
        if np.isnan(targets).all(axis=0).any():
            missing = int(np.isnan(targets).all(axis=0).argmax())
            name = repr(task.names[missing]) if task.names else str(missing)
            raise DataError(f"target {name} has no label among the {len(targets)} training graphs")
        mean, std = np.nanmean(targets, axis=0), np.maximum(np.nanstd(targets, axis=0), 1e-6)
        return cls(task, mean.astype(np.float64), std.astype(np.float64))  # as a stored run reads them again

    def loss(self, logits: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """The mean loss over all known labels, each counting as often as the weight `(B,)` of its graph says."""
        if self.task.kind == "multiclass":
            if self.class_weights is None and weights is None:
                return F.cross_entropy(logits, y)
            losses = F.cross_entropy(logits, y, reduction="none")
            if self.class_weights is not None:
                losses = losses * self._constant("class_weights", logits)[y]
            return (losses if weights is None else losses * weights).mean()
        known = ~y.isnan()
        if self.task.kind == "binary":
            losses = F.binary_cross_entropy_with_logits(logits, y.nan_to_num(), reduction="none")
            if self.class_weights is not None:
                negative, positive = self._constant("class_weights", logits)
                losses = losses * torch.where(y > 0.5, positive, negative)
        else:
            mean, std = self._constant("mean", y), self._constant("std", y)
            losses = F.mse_loss(logits, ((y - mean) / std).nan_to_num(), reduction="none")
        if weights is not None:
            losses = losses * weights[:, None]
        return (losses * known).sum() / known.sum().clamp(min=1)

    def _constant(self, name: str, like: Tensor) -> Tensor:
        """One of the objective's arrays as a tensor, where and as exact as another tensor is."""
        kept = self._constants.get(name)
        if kept is None or kept.device != like.device or kept.dtype != like.dtype:
            kept = self._constants[name] = torch.from_numpy(np.asarray(getattr(self, name))).to(like)
        return kept

    def known_labels(self, y: Array) -> int:
        """The number of labels that the mean loss runs over."""
        return y.size if self.task.kind == "multiclass" else int((~np.isnan(y)).sum())

    def predict(self, logits: Tensor) -> Array:
        """Probabilities of the classes `(B, classes)`, of *yes* `(B, targets)`, or values `(B, targets)`."""
        if self.calibration is not None:
            return self.calibration(logits.numpy())
        if self.task.kind == "multiclass":
            return logits.softmax(-1).numpy()
        if self.task.kind == "binary":
            return logits.sigmoid().numpy()
        with np.errstate(over="ignore"):  # what is no number afterwards is looked at by whoever asked
            values: Array = logits.numpy() * self.std + self.mean
        return values

    def calibrated(self, calibration: Callable[[Array], Array] | None) -> Objective:
        """The same objective with another way from logits to probabilities; `None` for the plain one."""
        return Objective(self.task, self.mean, self.std, self.class_weights, calibration)

    def score(self, logits: Tensor, y: Array) -> float:
        """The task's metric of these logits against these labels."""
        return score(self.task, self.predict(logits), logits.numpy(), y)

    def as_dict(self) -> dict[str, Any] | None:
        """What `mean` and `std` are, for a run's configuration."""
        if self.mean is None or self.std is None:
            return None
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}


def _balance(task: Task, y: Array) -> Array:
    """The weight of each class such that all count alike, and labels weigh 1 on average (scikit-learn's `balanced`)."""
    if task.kind == "multiclass":
        counts = np.bincount(y, minlength=task.num_outputs)
        return len(y) / (task.num_outputs * np.maximum(counts, 1))
    counts = np.stack([(y == 0).sum(axis=0), (y == 1).sum(axis=0)])
    weights: Array = counts.sum(axis=0) / (2 * np.maximum(counts, 1))
    return weights
