"""Linear models on sparse counts: logistic or ridge regression, the penalty chosen on validation data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts load when they are used, so predictions by networks do not wait for them
from numpy.typing import NDArray

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

    def predict(self, features: scipy.sparse.csr_matrix) -> Floats:
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
        if len(columns) and not (columns[0] >= 0 and columns[-1] < num_features and (np.diff(columns) > 0).all()):
            raise DataError(f"the columns of the linear model do not rise from 0 to at most {num_features - 1}")
        return cls(columns, weight, bias)


def fit_linear(
    kind: str,
    features: scipy.sparse.csr_matrix,
    y: Array,
    valid_features: scipy.sparse.csr_matrix,
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
    train, valid = (each[:, columns].astype(np.float64) for each in (features, valid_features))
    outputs = num_classes if kind == "multiclass" else 1
    if kind != "regression" and len(np.unique(y)) < 2:
        return _constant(kind, y, outputs)
    solver = _Solver(kind, outputs)
    if not len(valid_y):
        return Linear(columns, *solver.fit(train, y, MIDDLE))
    fitted = [solver.fit(train, y, strength) for strength in STRENGTHS]
    losses = [_loss(kind, np.asarray(valid @ weight.T) + bias, valid_y) for weight, bias in fitted]
    best = int(np.argmin(losses))
    return Linear(columns, *fitted[best], STRENGTHS[best], tuple(losses))


class _Solver:
    """scikit-learn's solver of a kind of task; each logistic fit starts where the one before it ended."""

    def __init__(self, kind: str, outputs: int) -> None:
        from sklearn.linear_model import LogisticRegression, Ridge

        self.kind = kind
        self.outputs = outputs
        if kind == "regression":
            self.model = Ridge(solver="sparse_cg", tol=1e-8)
        else:
            self.model = LogisticRegression(tol=1e-6, max_iter=500, warm_start=True)

    def fit(self, x: Any, y: Array, strength: float) -> tuple[Floats, Floats]:
        """Weights `(outputs, columns)` and biases `(outputs,)`."""
        from sklearn.exceptions import ConvergenceWarning

        regression = self.kind == "regression"
        self.model.set_params(**({"alpha": 1 / strength} if regression else {"C": strength}))
        with warnings.catch_warnings():
            # Strong models of separable data end before the last digit; the validation loss judges them as they are.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(x, y if regression else y.astype(np.int64))
        weight = np.array(self.model.coef_, np.float64, ndmin=2)
        bias = np.array(self.model.intercept_, np.float64, ndmin=1)
        return self._of_all_classes(weight, bias, len(y)) if self.kind == "multiclass" else (weight, bias)

    def _of_all_classes(self, weight: Floats, bias: Floats, rows: int) -> tuple[Floats, Floats]:
        """A row for each class, whether it occurred or not."""
        classes = self.model.classes_
        if len(classes) == 2:  # scikit-learn keeps the difference of their logits
            weight, bias = np.concatenate((-weight, weight)) / 2, np.concatenate((-bias, bias)) / 2
        all_weights = np.zeros((self.outputs, weight.shape[1]))
        all_biases = np.full(self.outputs, bias.min() + _absent(rows))
        all_weights[classes], all_biases[classes] = weight, bias
        return all_weights, all_biases


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
    log_p = scipy.special.log_softmax(answers, axis=1)
    return -float(np.mean(log_p[np.arange(len(y)), y.astype(np.int64)]))
