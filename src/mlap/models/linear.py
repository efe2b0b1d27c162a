"""Linear models on sparse counts: logistic or ridge regression with the strength of the penalty from validation data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from mlap.errors import DataError
from mlap.models._arrays import take

Array = NDArray[Any]
Floats = NDArray[np.float64]

#: strengths that are tried, from simple to complex: C of logistic regression, 1 / alpha of ridge regression
STRENGTHS = tuple(10.0**exponent for exponent in range(-3, 4))
#: the strength where there are no validation labels to choose by
MIDDLE = 1.0


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear model of hashed counts, of one target or of all classes.

    Args:
        columns: `(kept,)` int64 in rising order: the columns that occur in training; the others would have weight 0.
        weight: `(outputs, kept)` float64.
        bias: `(outputs,)` float64.
        strength: that was chosen (`STRENGTHS`).
        losses: the validation loss of each strength tried; empty where there was nothing to choose by.
    """

    columns: NDArray[np.int64]
    weight: Floats
    bias: Floats
    strength: float = MIDDLE
    losses: tuple[float, ...] = ()

    def predict(self, features: sparse.csr_matrix) -> Floats:
        """Logits or values `(rows, outputs)`."""
        if len(self.columns) and features.shape[1] <= self.columns[-1]:
            raise DataError(f"got {features.shape[1]} features; the model needs at least {self.columns[-1] + 1}")
        return np.asarray(features[:, self.columns] @ self.weight.T) + self.bias

    def arrays(self, prefix: str = "") -> dict[str, Array]:
        """What to store, by name."""
        return {f"{prefix}{name}": getattr(self, name) for name in ("columns", "weight", "bias")}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], num_features: int, outputs: int, prefix: str = "") -> Linear:
        """The model in stored arrays, or a `DataError` if they are not one."""
        columns = take(arrays, f"{prefix}columns", "int64", None)
        weight = take(arrays, f"{prefix}weight", "float64", outputs, len(columns))
        bias = take(arrays, f"{prefix}bias", "float64", outputs)
        if len(columns) and not (0 <= columns[0] and columns[-1] < num_features and (np.diff(columns) > 0).all()):
            raise DataError(f"the columns of the linear model do not rise from 0 to at most {num_features - 1}")
        return cls(columns, weight, bias)


def fit_linear(
    kind: str,
    features: sparse.csr_matrix,
    y: Array,
    valid_features: sparse.csr_matrix,
    valid_y: Array,
    num_classes: int = 2,
) -> Linear:
    """Fit one target, or all classes, with each strength, and keep the one of the least validation loss.

    The loss is the log loss or the squared error; of equal losses the simpler model's counts. The fit is that of the
    training rows alone, so that the validation rows stay fresh for calibration.

    Args:
        kind: `"binary"`, `"multiclass"` or `"regression"`.
        features: `(rows, columns)` of the training graphs.
        y: `(rows,)` labels, all known.
        valid_features: of the validation graphs; there may be none.
        valid_y: their labels, all known.
        num_classes: for `"multiclass"`; some may not occur in `y`.
    """
    columns = np.unique(features.indices).astype(np.int64)
    train, valid = features[:, columns], valid_features[:, columns]
    outputs = num_classes if kind == "multiclass" else 1
    if kind != "regression" and len(np.unique(y)) < 2:
        return _constant(kind, y, outputs)
    fitted = []
    losses = []
    for strength in STRENGTHS if len(valid_y) else (MIDDLE,):
        start = fitted[-1] if fitted else None
        weight, bias = _fit(kind, train, y, strength, outputs, start)
        fitted.append((weight, bias))
        if len(valid_y):
            losses.append(_loss(kind, np.asarray(valid @ weight.T) + bias, valid_y))
    best = int(np.argmin(losses)) if losses else 0
    strength = STRENGTHS[best] if losses else MIDDLE
    return Linear(columns, *fitted[best], strength, tuple(losses))


def _fit(
    kind: str, x: Any, y: Array, strength: float, outputs: int, start: tuple[Floats, Floats] | None
) -> tuple[Floats, Floats]:
    """Weights `(outputs, columns)` and biases `(outputs,)`; the search may start from those of a simpler model."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge

    if kind == "regression":
        ridge = Ridge(alpha=1 / strength, solver="sparse_cg", tol=1e-8).fit(x, y)
        return np.atleast_2d(ridge.coef_).astype(np.float64), np.atleast_1d(ridge.intercept_).astype(np.float64)
    classes = np.unique(y).astype(np.int64)
    model = LogisticRegression(C=strength, max_iter=500, warm_start=True)
    if start is not None:
        weight, bias = start
        rows = classes if kind == "multiclass" and len(classes) > 2 else None
        if kind == "multiclass" and rows is None:
            weight, bias = (each[classes[1:]] - each[classes[:1]] for each in start)
        model.coef_, model.intercept_ = (weight, bias) if rows is None else (weight[rows], bias[rows])
    with warnings.catch_warnings():
        # Strong models of separable data end before the last digit; the validation loss judges them as they are.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y.astype(np.int64))
    coef, intercept = model.coef_.astype(np.float64), model.intercept_.astype(np.float64)
    if kind == "binary":
        return coef, intercept
    if len(classes) == 2:  # scikit-learn keeps the difference of the two classes' logits
        coef, intercept = np.concatenate((-coef, coef)) / 2, np.concatenate((-intercept, intercept)) / 2
    weight, bias = np.zeros((outputs, coef.shape[1])), np.full(outputs, intercept.min() + _absent(len(y)))
    weight[classes], bias[classes] = coef, intercept
    return weight, bias


def _constant(kind: str, y: Array, outputs: int) -> Linear:
    """Nothing but a bias, for labels of a single class: as sure of it as n equal answers make one."""
    nothing = np.zeros(0, np.int64)
    sure = -_absent(len(y))
    if kind == "binary":
        bias = np.array([sure if y[0] else -sure])
    else:
        bias = np.zeros(outputs)
        bias[int(y[0])] = sure
    return Linear(nothing, np.zeros((outputs, 0)), bias)


def _absent(rows: int) -> float:
    """The logit of what did not occur in so many rows: odds of a half to rows + a half, Krichevsky and Trofimov's."""
    return float(np.log(0.5 / (rows + 0.5)))


def _loss(kind: str, answers: Floats, y: Array) -> float:
    if kind == "regression":
        return float(np.mean((answers[:, 0] - y) ** 2))
    if kind == "binary":
        return float(np.mean(np.logaddexp(0, answers[:, 0]) - y * answers[:, 0]))
    log_p = special.log_softmax(answers, axis=1)
    return -float(np.mean(log_p[np.arange(len(y)), y.astype(np.int64)]))
