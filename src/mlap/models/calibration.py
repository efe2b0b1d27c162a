"""Calibration: a monotone map from logits to probabilities that are true, learnt on graphs not used for training.

Three maps of the logit z of a target, each for one number of unknowns:

- `temperature`: σ(z / T), which changes no decision (Guo et al., "On Calibration of Modern Neural Networks", 2017);
- `platt`: σ(a z + b) with Platt's smoothed labels (1999), as scikit-learn fits it;
- `isotonic`: scikit-learn's isotonic regression of the labels on z, linear between its steps. A probability of exactly
  0 or 1 is never deserved, so the ends are drawn in to 1 / (n + 2) and 1 − 1 / (n + 2), n the number of labels.

With several exclusive classes, temperature divides all logits before the softmax. The other two map each class's
log-odds against all other classes, and the results are divided by their sum, as scikit-learn does it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts load when they are used, so predictions by networks do not wait for them
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError, unknown

Array = NDArray[Any]
Floats = NDArray[np.float64]

#: method → the fewest labels that it is fitted to; with fewer, logits stay as they are
LEAST = {"temperature": 10, "platt": 20, "isotonic": 100}
METHODS = tuple(LEAST)
#: the range of temperatures; where a model never errs on the calibration set, the best one would be 0
TEMPERATURES = (0.01, 100.0)


@dataclass(frozen=True)
class Map:
    """The map of one target, or of one class.

    Args:
        method: `"identity"` (the plain σ or softmax) or one of `METHODS`.
        numbers: of a temperature its value, of Platt's map `(a, b)`.
        x, y: of an isotonic map the logits and probabilities between which it is linear.
        reason: why it is the identity.
    """

    method: str
    numbers: tuple[float, ...] = ()
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()
    reason: str = ""

    @property
    def temperature(self) -> float:
        """What logits are divided by; 1 for the identity."""
        return self.numbers[0] if self.method == "temperature" else 1.0

    def apply(self, logits: Floats) -> Floats:
        """The probabilities for logits of any shape."""
        if self.method == "isotonic":
            return np.interp(logits, self.x, self.y)
        return np.asarray(scipy.special.expit(self.log_odds(logits)))

    def log_odds(self, logits: Floats) -> Floats:
        """The log-odds of the probabilities, without their rounding."""
        if self.method == "isotonic":
            return np.asarray(scipy.special.logit(self.apply(logits)))
        slope, offset = self.numbers if self.method == "platt" else (1 / self.temperature, 0.0)
        return slope * logits + offset

    def check(self) -> None:
        """Raise a `DataError` unless this is a rising map of a known kind."""
        lengths = {"identity": 0, "temperature": 1, "platt": 2, "isotonic": 0}
        numbers = np.array((*self.numbers, *self.x, *self.y))
        sound = (
            len(self.numbers) == lengths.get(self.method, -1)
            and np.isfinite(numbers).all()
            and (not self.numbers or self.numbers[0] > 0)
            and len(self.x) == len(self.y)
            and bool(self.x) == (self.method == "isotonic")
            and all(np.all(np.diff(values) >= 0) for values in (self.x, self.y))
            and all(0 <= value <= 1 for value in self.y)
        )
        if not sound:
            raise DataError(f"the stored calibration is damaged: {self.method!r} is not a rising map of known kind")


@dataclass(frozen=True)
class Calibration:
    """How logits become probabilities.

    Args:
        kind: `"binary"` or `"multiclass"`.
        method: what was asked for; a map can still be the identity, with its reason.
        maps: one for each target of a binary task; of a multiclass task one (temperature) or one for each class.
        outputs: the number of targets or classes.
    """

    kind: str
    method: str
    maps: tuple[Map, ...]
    outputs: int

    @classmethod
    def identity(cls, kind: str, outputs: int, reason: str = "") -> Calibration:
        """No calibration: σ or softmax of the logits."""
        return cls(kind, "identity", (Map("identity", reason=reason),) * (outputs if kind == "binary" else 1), outputs)

    @classmethod
    def fit(cls, kind: str, logits: Array, y: Array, method: str = "temperature") -> Calibration:
        """Learn the map on graphs that were used neither for training nor for choosing the model.

        Args:
            kind: `"binary"` or `"multiclass"`.
            logits: `(G, targets)` or `(G, classes)`.
            y: labels `(G, targets)` with NaN for unknown, or class ids `(G,)`.
            method: one of `METHODS`.
        """
        if kind not in ("binary", "multiclass"):
            raise UsageError(f"probabilities can be calibrated, but this is a {kind} task", field="method")
        if method not in METHODS:
            raise unknown("calibration", method, METHODS, "method")
        logits, y = np.asarray(logits, np.float64), np.asarray(y)
        expected = logits.shape if kind == "binary" else logits.shape[:1]
        if logits.ndim != 2 or y.shape != expected:
            raise DataError(f"got logits of shape {logits.shape} and labels of shape {y.shape}")
        if not np.isfinite(logits).all():
            raise DataError("logits to calibrate must be finite numbers")
        outputs = logits.shape[1]
        if kind == "binary":
            columns = [(column, target) for column, target in zip(logits.T, y.T, strict=True)]
            maps = [_fit_map(method, z[~np.isnan(t)], t[~np.isnan(t)]) for z, t in columns]
            return cls(kind, method, tuple(maps), outputs)
        if method == "temperature":
            return cls(kind, method, (_fit_softmax(logits, y.astype(np.int64)),), outputs)
        odds = _log_odds(logits)
        maps = [_fit_map(method, odds[:, number], (y == number).astype(np.float64)) for number in range(outputs)]
        return cls(kind, method, tuple(maps), outputs)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why maps are the identity, where they are."""
        what = "target" if self.kind == "binary" else "class"
        many = len(self.maps) > 1
        told = [(f"{what} {number}: " if many else "") + each.reason for number, each in enumerate(self.maps)]
        return tuple(text for text, each in zip(told, self.maps, strict=True) if each.reason)

    def apply(self, logits: Array) -> Floats:
        """Probabilities of *yes* `(G, targets)` or of the classes `(G, classes)`; NaN stays NaN."""
        logits = np.asarray(logits, np.float64)
        if logits.ndim != 2 or logits.shape[1] != self.outputs:
            raise DataError(f"expected logits of shape (graphs, {self.outputs}), got {logits.shape}")
        if self.kind == "multiclass":
            if len(self.maps) == 1:
                return np.asarray(scipy.special.softmax(logits / self.maps[0].temperature, axis=1))
            logits = _log_odds(logits)
        mapped = np.stack([each.apply(column) for each, column in zip(self.maps, logits.T, strict=True)], axis=1)
        return mapped / mapped.sum(axis=1, keepdims=True) if self.kind == "multiclass" else mapped

    def ranks(self, logits: Array) -> Floats:
        """What sorts graphs as the probabilities do, without their rounding: log-odds, or logits of the classes."""
        logits = np.asarray(logits, np.float64)
        if self.kind == "multiclass":
            return logits if len(self.maps) == 1 else np.log(self.apply(logits))
        return np.stack([each.log_odds(column) for each, column in zip(self.maps, logits.T, strict=True)], axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Calibration:
        """What `to_dict` wrote, perhaps through JSON; anything else is a `DataError`."""
        try:
            maps = []
            for entry in content["maps"]:
                numbers = {name: tuple(map(float, entry[name])) for name in ("numbers", "x", "y")}
                maps.append(Map(**{**entry, **numbers}))
            made = cls(**{**content, "maps": tuple(maps)})
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the stored calibration is damaged: {error!r}") from error
        lengths = {"binary": (made.outputs,), "multiclass": (1, made.outputs)}.get(made.kind, ())
        if len(made.maps) not in lengths:
            raise DataError(f"the stored calibration has {len(made.maps)} maps for {made.outputs} outputs")
        for each in made.maps:
            each.check()
        return made


def _fit_map(method: str, z: Floats, y: Array) -> Map:
    """The map of one target, from the logits and labels (0 or 1) of graphs with a label."""
    if reason := _too_little(method, y, 2):
        return Map("identity", reason=reason)
    if method == "temperature":
        return _temperature(lambda beta: float(np.mean(np.logaddexp(0, beta * z) - y * beta * z)))
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        fitted = IsotonicRegression(y_min=1 / (len(y) + 2), y_max=1 - 1 / (len(y) + 2)).fit(z, y)
        return Map("isotonic", x=tuple(fitted.X_thresholds_.tolist()), y=tuple(fitted.y_thresholds_.tolist()))
    return _platt(z, y)


def _platt(z: Floats, y: Array) -> Map:
    from sklearn.linear_model import LogisticRegression

    # Platt's labels lie within (0, 1); a logistic regression takes them as weights of both answers for every graph.
    positive = float(y.sum())
    negative = len(y) - positive
    smooth = np.where(y > 0, (positive + 1) / (positive + 2), 1 / (negative + 2))
    centre, scale = float(z.mean()), float(z.std()) or 1.0
    twice = np.concatenate((z, z))[:, None]
    answers, weights = np.repeat((1, 0), len(z)), np.concatenate((smooth, 1 - smooth))
    # C this large is no penalty at all; infinity is spelt differently from version to version of scikit-learn.
    model = LogisticRegression(C=1e10, tol=1e-8, max_iter=1000).fit((twice - centre) / scale, answers, weights)
    slope = float(model.coef_[0, 0]) / scale
    if slope <= 0:
        return Map("identity", reason="a higher logit does not go with a higher share of yes: nothing to calibrate")
    return Map("platt", (slope, float(model.intercept_[0]) - slope * centre))


def _fit_softmax(logits: Floats, y: NDArray[np.int64]) -> Map:
    if reason := _too_little("temperature", y, logits.shape[1]):
        return Map("identity", reason=reason)
    true = logits[np.arange(len(y)), y]
    return _temperature(lambda beta: float(np.mean(scipy.special.logsumexp(beta * logits, axis=1) - beta * true)))


def _temperature(loss: Any) -> Map:
    """The temperature of the least log loss, which is convex in β = 1 / T."""
    low, high = (float(np.log(1 / limit)) for limit in reversed(TEMPERATURES))
    found = scipy.optimize.minimize_scalar(
        lambda exponent: loss(float(np.exp(exponent))), bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    return Map("temperature", (float(np.exp(-found.x)),))


def _too_little(method: str, y: Array, classes: int) -> str:
    """Why these labels cannot teach a map; empty if they can."""
    if len(y) < LEAST[method]:
        return f"{len(y)} labels are too few for {method} (it takes {LEAST[method]}): not calibrated"
    if len(np.unique(y)) < 2:
        return f"all {len(y)} labels are of one class: not calibrated"
    return ""


def _log_odds(logits: Floats) -> Floats:
    """The log-odds of each class against all others: what is left of logits that mean the same when all are shifted."""
    log_p = scipy.special.log_softmax(logits, axis=1)
    number = np.arange(logits.shape[1])
    others = np.stack([scipy.special.logsumexp(log_p[:, number != each], axis=1) for each in number], axis=1)
    return np.asarray(log_p - others)
