"""Split conformal prediction: sets of classes and intervals that hold the truth as often as they promise.

Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World" (2005). On n graphs that the model has not seen in
training, note the probability that it gave to each one's true class. A class is in the set of a new graph unless its
probability is lower than nearly all of those: with α = 0.1, lower than all but the lowest tenth. If the new graph is
exchangeable with the n (drawn from the same population), the set misses the truth with probability at most α, for any
model and any n. Class-conditional (Mondrian) sets compare a class only with graphs of that class, so that the promise
holds for rare actives too, not only on average.

The rank is exact: the k-th smallest of n nonconformity scores with k = ⌈(n + 1)(1 − α)⌉. Where k > n, that is where
n < 1/α − 1, only the set of everything keeps the promise, and that is the set given.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError, unknown
from mlap.names import TASKS

Array = NDArray[Any]


def rank(n: int, alpha: float) -> int:
    """⌈(n + 1)(1 − α)⌉ for α as it is written: 0.3 is three tenths, not the double next to it.

    >>> rank(9, 0.1), rank(9, 0.3), rank(8, 0.1)
    (9, 7, 9)
    """
    _check_alpha(alpha)
    return math.ceil((n + 1) * (1 - Fraction(repr(float(alpha)))))


@dataclass(frozen=True)
class Conformal:
    """What a calibration set taught: its scores, by target and class.

    Args:
        kind: `"binary"`, `"multiclass"` or `"regression"`.
        outputs: the number of targets, or of classes of a multiclass task.
        conditional: whether each class has scores of its own.
        normalised: whether intervals scale with a spread that the caller gives (regression only).
        scores: nonconformity scores in rising order, one tuple per target and class: `scores[target][class]`.
            Multiclass sets have one target. Where classes are not told apart, and in regression, a target has one
            tuple. The score of a class is 1 − p, that of a value |y − ŷ| or |y − ŷ| / spread.
    """

    kind: str
    outputs: int
    conditional: bool
    normalised: bool
    scores: tuple[tuple[tuple[float, ...], ...], ...]

    # ---- fitting -------------------------------------------------------------------------------------------------

    @classmethod
    def fit(
        cls, kind: str, predicted: Array, y: Array, *, conditional: bool = True, spread: Array | None = None
    ) -> Conformal:
        """Take the scores of graphs that were used neither for training nor for choosing the model.

        Args:
            kind: the task's kind.
            predicted: probabilities of *yes* `(G, targets)`, of the classes `(G, classes)`, or values `(G, targets)`.
            y: labels, `(G, targets)` with NaN for unknown, or class ids `(G,)`.
            conditional: whether to promise coverage for each class, or only over all.
            spread: `(G, targets)`, positive: how uncertain each value is thought to be (regression only).
        """
        if kind not in TASKS:
            raise unknown("kind of task", kind, TASKS, "kind")
        predicted = np.asarray(predicted, np.float64)
        expected = (len(predicted),) if kind == "multiclass" else predicted.shape
        if predicted.ndim != 2 or y.shape != expected:
            raise DataError(f"got predictions of shape {predicted.shape} and labels of shape {y.shape}")
        if not np.isfinite(predicted).all():
            raise DataError("predictions to calibrate on must be finite numbers")
        if kind == "regression":
            residuals = np.abs(y - predicted) / _spread(spread, predicted.shape, spread is not None)
            scores = tuple((_sorted(column[~np.isnan(column)]),) for column in residuals.T)
            return cls(kind, predicted.shape[1], False, spread is not None, scores)
        if spread is not None:
            raise UsageError("{field} is for regression; sets of classes have none", field="spread")
        per_target = []
        for strangeness, labels in _targets(kind, 1 - _both(kind, predicted), np.asarray(y)):
            known = ~np.isnan(labels)
            classes = labels[known].astype(np.int64)
            true = np.take_along_axis(strangeness[known], classes[:, None], axis=1)[:, 0]
            pools = [classes == c for c in range(strangeness.shape[1])] if conditional else [classes >= 0]
            per_target.append(tuple(_sorted(true[pool]) for pool in pools))
        return cls(kind, predicted.shape[1], conditional, False, tuple(per_target))

    # ---- using ---------------------------------------------------------------------------------------------------

    def p_values(self, probabilities: Array) -> NDArray[np.float64]:
        """How usual each class would be, `(G, targets, 2)` or `(G, classes)`.

        (1 + the number of calibration graphs of that class at least as strange) / (n + 1): no smoothing by chance.
        """
        strangeness = self._strangeness(probabilities)
        out = np.empty_like(strangeness)
        for place, pool in self._pools(strangeness.shape):
            at_least = len(pool) - np.searchsorted(pool, strangeness[place], side="left")
            out[place] = (at_least + 1) / (len(pool) + 1)
        return out

    def sets(self, probabilities: Array, alpha: float = 0.1) -> NDArray[np.bool_]:
        """Which classes cannot be excluded, `(G, targets, 2)` or `(G, classes)`: those with a p-value above α."""
        strangeness = self._strangeness(probabilities)
        out = np.empty(strangeness.shape, np.bool_)
        for place, pool in self._pools(strangeness.shape):
            out[place] = strangeness[place] <= _quantile(pool, alpha)
        return out

    def intervals(self, values: Array, alpha: float = 0.1, spread: Array | None = None) -> NDArray[np.float64]:
        """The lower and upper ends, `(G, targets, 2)`; infinite where there are too few graphs for the promise."""
        values = np.asarray(values, np.float64)
        if self.kind != "regression":
            raise UsageError(f"intervals are for regression; this is a {self.kind} task: ask for sets")
        if values.ndim != 2 or values.shape[1] != self.outputs:
            raise DataError(f"expected values of shape (graphs, {self.outputs}), got {values.shape}")
        scale = _spread(spread, values.shape, self.normalised)
        half = scale * np.array([_quantile(np.array(pool), alpha) for (pool,) in self.scores])
        return np.stack((values - half, values + half), axis=2)

    def notes(self, alpha: float, names: Sequence[str] = ()) -> tuple[str, ...]:
        """A sentence for each target and class with too few graphs for the promise.

        Args:
            alpha: one minus the promised coverage.
            names: of the targets, or of the classes of a multiclass task.
        """
        told = []
        for target, pools in enumerate(self.scores):
            for number, pool in enumerate(pools):
                if rank(len(pool), alpha) > len(pool):
                    what = "every interval is infinite" if self.kind == "regression" else "every set contains it"
                    who = self._who(target, number, names)
                    told.append(
                        f"{who}: {len(pool)} graphs to calibrate on are too few for a coverage of {1 - alpha:g} "
                        f"(it takes {_least(alpha)}); {what}"
                    )
        return tuple(told)

    def _who(self, target: int, number: int, names: Sequence[str]) -> str:
        if self.kind == "multiclass":
            if not self.conditional:
                return "all classes"
            return f"class {names[number] if names else number}"
        name = f"target {names[target] if names else target}"
        return f"{name}, class {number}" if self.conditional else name

    def _strangeness(self, probabilities: Array) -> NDArray[np.float64]:
        if self.kind == "regression":
            raise UsageError("sets and p-values are for classes; this is a regression task: ask for intervals")
        probabilities = np.asarray(probabilities, np.float64)
        if probabilities.ndim != 2 or probabilities.shape[1] != self.outputs:
            raise DataError(f"expected probabilities of shape (graphs, {self.outputs}), got {probabilities.shape}")
        return 1 - _both(self.kind, probabilities)

    def _pools(self, shape: tuple[int, ...]) -> list[tuple[Any, NDArray[np.float64]]]:
        """Each class's place in an array of that shape, and the scores that it is compared with."""
        places = []
        for target, pools in enumerate(self.scores):
            for number in range(shape[-1]):
                pool = np.array(pools[number if self.conditional else 0], np.float64)
                places.append(((..., number) if self.kind == "multiclass" else (slice(None), target, number), pool))
        return places

    # ---- storing -------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Conformal:
        """What `to_dict` wrote, perhaps through JSON; anything else is a `DataError`."""
        try:
            scores = tuple(tuple(tuple(map(float, pool)) for pool in pools) for pools in content["scores"])
            made = cls(**{**content, "scores": scores})
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the stored conformal scores are damaged: {error!r}") from error
        targets = 1 if made.kind == "multiclass" else made.outputs
        classes = {"regression": 1, "binary": 2, "multiclass": made.outputs}.get(made.kind) if made.conditional else 1
        if made.kind not in TASKS or len(scores) != targets or any(len(pools) != classes for pools in scores):
            raise DataError(
                f"the stored conformal scores are not those of a {made.kind} task of {made.outputs} outputs"
            )
        pools = [np.array(pool) for target in scores for pool in target]
        if any(not np.isfinite(pool).all() or (np.diff(pool) < 0).any() for pool in pools):
            raise DataError("the stored conformal scores are damaged: they must be finite and in rising order")
        return made


@dataclass(frozen=True)
class Coverage:
    """How often sets or intervals held the truth, for one target and class, or for one target.

    Args:
        target: the number of the target (0 for a multiclass task).
        label: the class, or `None` for all graphs of the target.
        graphs: how many graphs have that label.
        covered: the share of them whose set holds it; NaN where there are none.
        size: the mean number of classes in their sets, or the median width of their intervals.
        single: the share of them whose set is a single class; NaN for intervals.
    """

    target: int
    label: int | None
    graphs: int
    covered: float
    size: float
    single: float


def coverage_of_sets(sets: NDArray[np.bool_], y: Array) -> list[Coverage]:
    """The measured coverage of each target: over all graphs, then class by class.

    Args:
        sets: as `Conformal.sets` makes them.
        y: class ids `(G,)` or labels `(G, targets)` with NaN for unknown.
    """
    kind = "multiclass" if sets.ndim == 2 else "binary"
    found = []
    for target, (chosen, labels) in enumerate(_targets(kind, sets, np.asarray(y))):
        known = ~np.isnan(labels)
        chosen, classes = chosen[known], labels[known].astype(np.int64)
        holds = np.take_along_axis(chosen, classes[:, None], axis=1)[:, 0]
        sizes = chosen.sum(axis=1)
        for label in (None, *range(sets.shape[-1])):
            rows = classes == label if label is not None else classes >= 0
            means = [_mean(part[rows]) for part in (holds, sizes, sizes == 1)]
            found.append(Coverage(target, label, int(rows.sum()), *means))
    return found


def coverage_of_intervals(intervals: Array, y: Array) -> list[Coverage]:
    """The measured coverage of each target's intervals."""
    found = []
    for target, labels in enumerate(np.asarray(y, np.float64).T):
        known = ~np.isnan(labels)
        low, high = intervals[known, target, 0], intervals[known, target, 1]
        holds = (low <= labels[known]) & (labels[known] <= high)
        width = float(np.median(high - low)) if known.any() else math.nan
        found.append(Coverage(target, None, int(known.sum()), _mean(holds), width, math.nan))
    return found


def _both(kind: str, probabilities: Array) -> Array:
    """The probability of every class: of *no* and *yes* `(G, targets, 2)`, or as they are."""
    return probabilities if kind == "multiclass" else np.stack((1 - probabilities, probabilities), axis=2)


def _targets(kind: str, by_class: Array, y: Array) -> list[tuple[Array, NDArray[np.float64]]]:
    """For each target what there is of each class `(G, classes)`, and its labels."""
    y = y.astype(np.float64)
    if kind == "multiclass":
        return [(by_class, y)]
    return [(by_class[:, target], y[:, target]) for target in range(y.shape[1])]


def _quantile(pool: NDArray[np.float64], alpha: float) -> float:
    """The k-th smallest score with the exact rank k, or infinity where there are fewer than k."""
    k = rank(len(pool), alpha)
    return float(pool[k - 1]) if k <= len(pool) else math.inf


def _least(alpha: float) -> int:
    """The fewest graphs with which a coverage of 1 − α can be promised: n ≥ 1/α − 1."""
    return math.ceil(1 / Fraction(repr(float(alpha)))) - 1


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise UsageError(f"{{field}} must lie between 0 and 1, got {alpha}", field="alpha", suggest=0.1)


def _spread(spread: Array | None, shape: tuple[int, ...], wanted: bool) -> Array:
    if (spread is not None) != wanted:
        was = "with" if wanted else "without"
        raise UsageError(f"the intervals were calibrated {was} {{field}} and must be made so", field="spread")
    if spread is None:
        return np.ones(shape)
    spread = np.asarray(spread, np.float64)
    if spread.shape != shape or not (np.isfinite(spread) & (spread > 0)).all():
        raise UsageError(f"{{field}} must be positive numbers of shape {shape}, got {spread.shape}", field="spread")
    return spread


def _sorted(scores: Array) -> tuple[float, ...]:
    return tuple(np.sort(scores).tolist())


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else math.nan
