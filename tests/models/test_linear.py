"""Linear models on sparse counts: the least loss by its slopes, the choice of strength, storing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, log_softmax, softmax

from mlap.errors import DataError
from mlap.models.linear import MIDDLE, STRENGTHS, Linear, fit_linear

Array = NDArray[Any]
KINDS = ("binary", "multiclass", "regression")


def problem(kind: str, rows: int = 160, seed: int = 0) -> tuple[sparse.csr_matrix, Array]:
    """Counts in 12 of 400 columns, and labels that depend on three of them."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.7, (rows, 12))
    score = counts[:, 0] - counts[:, 1] + 0.5 * counts[:, 2] - 0.3 + 0.7 * rng.normal(size=rows)
    y = score if kind == "regression" else np.digitize(score, [0.0] if kind == "binary" else [-0.4, 0.6])
    wide = np.zeros((rows, 400), np.float32)
    wide[:, 7::33] = counts
    return sparse.csr_matrix(wide), y.astype(float)


def fit(kind: str, **options: Any) -> Linear:
    x, y = problem(kind)
    return fit_linear(kind, x, y, *problem(kind, 80, seed=1), 3, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_the_penalised_loss_has_no_slope_left(kind: str) -> None:
    """scikit-learn's: C · Σ log loss + ½‖w‖², or Σ squared error + ‖w‖² / strength; the bias is free."""
    (x, y), model = problem(kind), fit(kind)
    dense = x.toarray()[:, model.columns].astype(np.float64)
    z = dense @ model.weight.T + model.bias
    if kind == "regression":
        excess = z - y[:, None]
        slope = excess.T @ dense + model.weight / model.strength
    else:
        excess = softmax(z, axis=1) - np.eye(3)[y.astype(int)] if kind == "multiclass" else expit(z) - y[:, None]
        slope = model.strength * excess.T @ dense + model.weight
    scale = np.abs(excess.T @ dense).max() + np.abs(model.weight).max()
    assert np.abs(slope).max() < 2e-3 * max(1, scale) * max(1, model.strength)
    assert np.abs(excess.sum(axis=0)).max() < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_the_strength_of_the_least_validation_loss_is_chosen(kind: str) -> None:
    model = fit(kind)
    valid_x, valid_y = problem(kind, 80, seed=1)
    assert len(model.losses) == len(STRENGTHS)
    assert model.strength == STRENGTHS[int(np.argmin(model.losses))]
    z = model.predict(valid_x)
    if kind == "regression":
        slow = np.mean((z[:, 0] - valid_y) ** 2)
    elif kind == "binary":
        slow = np.mean(-np.log(np.where(valid_y > 0, expit(z[:, 0]), expit(-z[:, 0]))))
    else:
        slow = -np.mean(log_softmax(z, axis=1)[np.arange(80), valid_y.astype(int)])
    assert min(model.losses) == pytest.approx(slow)
    assert max(model.losses) > min(model.losses) + 1e-3  # the choice is one


@pytest.mark.parametrize("kind", KINDS)
def test_only_columns_of_the_training_rows_are_kept(kind: str) -> None:
    x, _ = problem(kind)
    model = fit(kind)
    np.testing.assert_array_equal(model.columns, np.unique(x.nonzero()[1]))
    dense = np.zeros((model.weight.shape[0], 400))
    dense[:, model.columns] = model.weight
    strange = sparse.csr_matrix(np.random.default_rng(5).poisson(1, (6, 400)).astype(np.float32))
    np.testing.assert_allclose(model.predict(strange), strange.toarray() @ dense.T + model.bias)


def test_without_validation_rows_the_middle_strength() -> None:
    x, y = problem("binary")
    model = fit_linear("binary", x, y, x[:0], y[:0])
    assert model.strength == MIDDLE
    assert model.losses == ()


def test_two_of_several_classes() -> None:
    x, y = problem("binary")
    two = fit_linear("multiclass", x, np.where(y > 0, 3, 1), *problem("binary", 0, 1), 5)
    one = fit_linear("binary", x, y, *problem("binary", 0, 1))
    z = two.predict(x)
    np.testing.assert_allclose(z[:, 3] - z[:, 1], one.predict(x)[:, 0], rtol=1e-9)
    assert (softmax(z, axis=1)[:, [0, 2, 4]].max(axis=1) < 0.01).all()


@pytest.mark.parametrize("only", [0.0, 1.0])
def test_a_single_class_is_a_bias(only: float) -> None:
    x, _ = problem("binary")
    model = fit_linear("binary", x, np.full(160, only), x, np.full(160, only))
    p = expit(model.predict(x))
    np.testing.assert_allclose(p, (160 * only + 0.5) / 161)
    three = softmax(fit_linear("multiclass", x, np.full(160, only), x[:0], x[:0, 0], 3).predict(x), axis=1)
    assert (three.argmax(axis=1) == only).all()


@pytest.mark.parametrize("kind", KINDS)
def test_through_arrays(kind: str) -> None:
    model = fit(kind)
    again = Linear.of_arrays(model.arrays("2."), 400, len(model.bias), "2.")
    x, _ = problem(kind, 30, seed=3)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"columns": np.array([3, 2, *range(4, 14)])}, "rise"),
        ({"columns": np.arange(389, 401)}, "399"),
        ({"columns": np.arange(-1, 11)}, "rise"),
        ({"columns": np.arange(11)}, "weight"),
        ({"bias": np.array([np.nan])}, "nan"),
        ({"bias": np.zeros(2)}, "bias"),
    ],
)
def test_stored_arrays_that_are_no_model(change: dict[str, Array], fact: str) -> None:
    with pytest.raises(DataError, match=fact):
        Linear.of_arrays({**fit("binary").arrays(), **change}, 400, 1)


def test_a_matrix_that_is_too_narrow() -> None:
    with pytest.raises(DataError, match="100 features"):
        fit("binary").predict(problem("binary")[0][:, :100])
