"""The weights with which the members of an ensemble add up on the logit scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts load when they are used, so predictions by networks do not wait for them
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError, unknown
from mlap.names import TASKS

Array = NDArray[Any]
Floats = NDArray[np.float64]

#: known labels per member below which weights are not fitted
LABELS_PER_MEMBER = 20


@dataclass(frozen=True)
class Weights:
    """One weight for each member, none negative, summing to one.

    Args:
        values: the weights.
        fitted: whether they were fitted, or are equal.
        note: why they are equal, though fitting was asked for; empty otherwise.
    """

    values: tuple[float, ...]
    fitted: bool
    note: str = ""

    @classmethod
    def equal(cls, members: int, note: str = "") -> Weights:
        """The same weight for all."""
        return cls((1 / members,) * members, False, note)


def fit_weights(kind: str, logits: Array, y: Array) -> Weights:
    """The weights of the least loss on graphs that no member was trained on.

    The loss of `Σ_m w_m logits_m` is the log loss over all known labels, or the squared error of values, each target in
    units of its standard deviation so that none outweighs the others. It is convex in the weights, so the least is
    found from any start; the search draws nothing by chance.

    Args:
        kind: `"binary"`, `"multiclass"` or `"regression"`.
        logits: `(members, G, outputs)`; values in the data's own units for a regression.
        y: labels `(G, outputs)` with NaN for unknown, or class ids `(G,)`.
    """
    if kind not in TASKS:
        raise unknown("kind of task", kind, TASKS, "kind")
    logits, y = np.asarray(logits, np.float64), np.asarray(y)
    if logits.ndim != 3 or not len(logits):
        raise UsageError(f"{{field}} must be (members, graphs, outputs), got {logits.shape}", field="logits")
    expected = logits.shape[1:2] if kind == "multiclass" else logits.shape[1:]
    if y.shape != expected:
        raise DataError(f"got logits of shape {logits.shape} and labels of shape {y.shape}")
    if not np.isfinite(logits).all():
        raise DataError("logits to weigh must be finite numbers")
    members = len(logits)
    if members == 1:
        return Weights.equal(1)
    known = np.ones(len(y), np.bool_) if kind == "multiclass" else ~np.isnan(y)
    count, least = int(known.sum()), LABELS_PER_MEMBER * members
    if count < least:
        return Weights.equal(members, f"{count} labels are too few to weigh {members} members (it takes {least})")
    if kind != "regression" and len(np.unique(y[known])) < 2:
        return Weights.equal(members, f"all {count} labels are of one class: members weigh the same")

    if kind == "multiclass":
        loss_of = _softmax_loss(logits, y.astype(np.int64))
    elif kind == "binary":
        loss_of = _sigmoid_loss(logits[:, known], y[known])
    else:
        scale = np.broadcast_to(_scale(y), y.shape)
        loss_of = _squared_loss(logits[:, known] / scale[known], y[known] / scale[known])
    # From the best of equal weights and each member alone, in units of the loss there: one member that has diverged
    # would otherwise set the scale of the search.
    starts = [np.full(members, 1 / members), *np.eye(members)]
    start = min(starts, key=lambda w: loss_of(w)[0])
    unit = loss_of(start)[0] or 1.0
    found = scipy.optimize.minimize(
        lambda w: tuple(part / unit for part in loss_of(w)),
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * members,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    values = np.clip(found.x, 0, None)
    values /= values.sum()
    if not loss_of(values)[0] <= unit:  # a search that went astray
        values = start
    return Weights(tuple(values.tolist()), True)


def fit_group_weights(kind: str, logits: Array, y: Array, groups: Sequence[int]) -> Weights:
    """The weights of the least loss among those with which members of one group weigh the same.

    Networks that differ in their seed alone are one group: which of them happens to be better on a few hundred labels
    says nothing, and fewer weights need fewer labels.

    Args:
        kind: see `fit_weights`.
        logits: see `fit_weights`.
        y: see `fit_weights`.
        groups: the group of each member.
    """
    logits = np.asarray(logits, np.float64)
    if len(groups) != len(logits):
        raise UsageError(f"{{field}} must be of {len(logits)} members, got {len(groups)}", field="groups")
    names, group, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    means = np.stack([logits[group == number].mean(axis=0) for number in range(len(names))])
    found = fit_weights(kind, means, y)
    values = np.array(found.values)[group] / sizes[group]
    return Weights(tuple(values.tolist()), found.fitted, found.note)


def _sigmoid_loss(logits: Floats, y: Array) -> Any:
    """The mean log loss and its gradient, of `(members, labels)`."""

    def loss(w: Floats) -> tuple[float, Floats]:
        z = w @ logits
        return float(np.mean(np.logaddexp(0, z) - y * z)), logits @ (scipy.special.expit(z) - y) / len(y)

    return loss


def _softmax_loss(logits: Floats, y: NDArray[np.int64]) -> Any:
    rows = np.arange(len(y))

    def loss(w: Floats) -> tuple[float, Floats]:
        log_p = scipy.special.log_softmax(np.tensordot(w, logits, 1), axis=1)
        excess = np.exp(log_p)
        excess[rows, y] -= 1
        return -float(np.mean(log_p[rows, y])), np.tensordot(logits, excess, 2) / len(y)

    return loss


def _squared_loss(values: Floats, y: Array) -> Any:
    def loss(w: Floats) -> tuple[float, Floats]:
        error = w @ values - y
        return float(np.mean(error**2)), 2 * values @ error / len(y)

    return loss


def _scale(y: Array) -> Floats:
    """The standard deviation of each target; 1 for one that is constant or has no labels."""
    deviation = np.array([np.std(column[~np.isnan(column)]) if (~np.isnan(column)).any() else 0.0 for column in y.T])
    return np.where(deviation > 0, deviation, 1.0)
