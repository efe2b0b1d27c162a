"""Calibration: scikit-learn's own maps as the oracle, a slow search, monotony, too little data, storing."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.isotonic import IsotonicRegression

from mlap.errors import DataError, UsageError
from mlap.models.calibration import METHODS, TEMPERATURES, Calibration

frozen = pytest.importorskip("sklearn.frozen", reason="the oracle needs scikit-learn 1.6")

Array = NDArray[Any]


class Logits(ClassifierMixin, BaseEstimator):
    """A classifier whose decision function is its input."""

    def fit(self, X: Array, y: Array) -> Logits:
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X: Array) -> Array:
        return X[:, 0] if X.shape[1] == 1 else X

    def predict(self, X: Array) -> Array:
        return self.classes_[(X[:, 0] > 0).astype(int) if X.shape[1] == 1 else X.argmax(axis=1)]


def peer(method: str, logits: Array, y: Array, fresh: Array) -> Array:
    estimator = Logits().fit(logits, y)
    fitted = CalibratedClassifierCV(frozen.FrozenEstimator(estimator), method=method).fit(logits, y)
    return fitted.predict_proba(fresh)


def binary(graphs: int, seed: int = 0) -> tuple[Array, Array]:
    """Logits that are three times too large and shifted."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(graphs, 1))
    return 3 * true + 1, (rng.random((graphs, 1)) < expit(true)).astype(float)


def classes(graphs: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    true = 1.5 * rng.normal(size=(graphs, 3))
    return 2 * true, np.array([rng.choice(3, p=row) for row in softmax(true, axis=1)])


# ---- the maps --------------------------------------------------------------------------------------------------------


def test_platt_is_scikit_learns() -> None:
    (z, y), (fresh, _) = binary(300), binary(50, seed=1)
    found = Calibration.fit("binary", z, y, "platt").apply(fresh)
    np.testing.assert_allclose(found[:, 0], peer("sigmoid", z, y[:, 0], fresh)[:, 1], atol=1e-4)


def test_platt_is_the_least_loss_of_smoothed_labels() -> None:
    z, y = binary(300)
    positive = y.sum()
    smooth = np.where(y > 0, (positive + 1) / (positive + 2), 1 / (len(y) - positive + 2))
    a, b = Calibration.fit("binary", z, y, "platt").maps[0].numbers

    def loss(a: float, b: float) -> float:
        return float(np.mean(np.logaddexp(0, a * z + b) - smooth * (a * z + b)))

    steps = [(da, db) for da in (-1e-3, 0, 1e-3) for db in (-1e-3, 0, 1e-3)]
    assert min(steps, key=lambda step: loss(a + step[0], b + step[1])) == (0, 0)


def test_isotonic_is_scikit_learns_with_its_ends_drawn_in() -> None:
    (z, y), (fresh, _) = binary(300), binary(200, seed=1)
    fresh = np.concatenate((fresh, [[-99.0], [99.0]]))
    found = Calibration.fit("binary", z, y, "isotonic").apply(fresh)[:, 0]
    plain = IsotonicRegression(out_of_bounds="clip").fit(z[:, 0], y[:, 0]).predict(fresh[:, 0])
    inside = (plain > 0.05) & (plain < 0.95)
    np.testing.assert_allclose(found[inside], plain[inside], atol=1e-9)
    assert found.min() == pytest.approx(1 / 302)
    assert found.max() == pytest.approx(1 - 1 / 302)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_temperature_against_a_slow_search(kind: str) -> None:
    z, y = binary(400) if kind == "binary" else classes(400)

    def loss(temperature: float) -> float:
        if kind == "binary":
            return float(np.mean(np.logaddexp(0, z / temperature) - y * z / temperature))
        return -float(np.mean(log_softmax(z / temperature, axis=1)[np.arange(len(y)), y]))

    (found,) = Calibration.fit(kind, z, y).maps[0].numbers
    grid = np.geomspace(*TEMPERATURES, 20001)
    assert found == pytest.approx(min(grid, key=loss), rel=1e-3)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_temperature_is_scikit_learns(kind: str) -> None:
    (z, y), (fresh, _) = (binary(300), binary(50, 1)) if kind == "binary" else (classes(300), classes(50, 1))
    try:
        expected = peer("temperature", z, y.ravel(), fresh)
    except ValueError as error:
        pytest.skip(f"scikit-learn before 1.8 has no temperature: {error}")
    found = Calibration.fit(kind, z, y).apply(fresh)
    np.testing.assert_allclose(found, expected[:, 1:] if kind == "binary" else expected, atol=1e-5)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_classes_are_mapped_one_by_one_and_normalised(method: str) -> None:
    (z, y), (fresh, _) = classes(300), classes(40, seed=1)
    found = Calibration.fit("multiclass", z, y, method).apply(fresh)
    parts = []
    for number in range(3):
        p, fresh_p = (softmax(each, axis=1)[:, number] for each in (z, fresh))
        odds, fresh_odds = (np.log(each / (1 - each))[:, None] for each in (p, fresh_p))
        alone = Calibration.fit("binary", odds, (y == number).astype(float)[:, None], method)
        parts.append(alone.apply(fresh_odds))
    together = np.concatenate(parts, axis=1)
    np.testing.assert_allclose(found, together / together.sum(axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_shift_of_all_classes_means_nothing(method: str) -> None:
    (z, y), (fresh, _) = classes(300), classes(40, seed=1)
    shift = np.random.default_rng(2).normal(size=(300, 1))
    one, other = (Calibration.fit("multiclass", each, y, method).apply(fresh + 7) for each in (z, z + shift))
    np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_probabilities_become_truer(method: str) -> None:
    (z, y), (fresh, fresh_y) = binary(2000), binary(4000, seed=1)
    found = Calibration.fit("binary", z, y, method).apply(fresh)

    def loss(p: Array) -> float:
        return -float(np.mean(np.where(fresh_y > 0, np.log(p), np.log1p(-p))))

    assert loss(found) < loss(expit(fresh)) - 0.05


# ---- properties ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(10, 150), st.sampled_from(METHODS), st.floats(-3, 3))
def test_every_map_rises_whatever_the_labels(seed: int, graphs: int, method: str, slope: float) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(scale=4, size=(graphs, 1)).round(1)
    y = (rng.random((graphs, 1)) < expit(slope * z)).astype(float)
    fitted = Calibration.fit("binary", z, y, method)
    line = np.linspace(-50, 50, 400)[:, None]
    p = fitted.apply(line)[:, 0]
    assert (np.diff(p) >= 0).all()
    assert ((p >= 0) & (p <= 1)).all()
    assert fitted.maps[0].method == method or fitted.notes


def test_targets_are_calibrated_on_their_known_labels() -> None:
    (z, y), (fresh, _) = binary(300), binary(20, seed=1)
    hole = y.copy()
    hole[:100] = np.nan
    both = Calibration.fit("binary", np.hstack((z, z)), np.hstack((y, hole)), "platt")
    alone = Calibration.fit("binary", z[100:], y[100:], "platt")
    np.testing.assert_allclose(both.apply(np.hstack((fresh, fresh)))[:, 1:], alone.apply(fresh))
    assert both.maps[0] != both.maps[1]


# ---- too little data -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "graphs"), [("temperature", 9), ("platt", 19), ("isotonic", 99)])
def test_too_few_labels_change_nothing_and_say_so(method: str, graphs: int) -> None:
    z, y = binary(graphs)
    fitted = Calibration.fit("binary", z, y, method)
    np.testing.assert_array_equal(fitted.apply(z), expit(z))
    assert str(graphs) in fitted.notes[0]
    assert method in fitted.notes[0]
    assert Calibration.fit("binary", *binary(graphs + 1), method).notes == ()


@pytest.mark.parametrize("method", METHODS)
def test_one_class_changes_nothing_and_says_so(method: str) -> None:
    z, y = binary(200)
    fitted = Calibration.fit("binary", np.hstack((z, z)), np.hstack((y, np.ones_like(y))), method)
    np.testing.assert_array_equal(fitted.apply(np.hstack((z, z)))[:, 1], expit(z[:, 0]))
    (note,) = fitted.notes
    assert "target 1" in note
    one = Calibration.fit("multiclass", np.zeros((200, 3)), np.ones(200, int))
    np.testing.assert_allclose(one.apply(np.zeros((1, 3))), 1 / 3)
    assert len(one.notes) == 1


def test_logits_that_rank_the_wrong_way_are_not_turned_round() -> None:
    z, y = binary(300)
    fitted = Calibration.fit("binary", -z, y, "platt")
    np.testing.assert_array_equal(fitted.apply(z), expit(z))
    assert len(fitted.notes) == 1


def test_a_model_that_never_errs_has_a_finite_temperature() -> None:
    z = np.linspace(-5, 5, 50)[:, None]
    fitted = Calibration.fit("binary", z, (z > 0).astype(float))
    assert fitted.maps[0].numbers[0] == pytest.approx(TEMPERATURES[0], rel=1e-3)
    assert np.isfinite(fitted.apply(z)).all()


# ---- storing, mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_through_json(kind: str, method: str) -> None:
    fitted = Calibration.fit(kind, *(binary(200) if kind == "binary" else classes(200)), method)
    assert Calibration.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


def test_the_identity() -> None:
    z = np.array([[0.5, -2.0]])
    np.testing.assert_allclose(Calibration.identity("binary", 2).apply(z), expit(z))
    np.testing.assert_allclose(Calibration.identity("multiclass", 2).apply(z), softmax(z, axis=1))
    assert np.isnan(Calibration.identity("binary", 2).apply(z * np.nan)).all()
    assert (
        Calibration.from_dict(Calibration.identity("binary", 2, "no labels").to_dict()).notes[0].endswith("no labels")
    )


@pytest.mark.parametrize(
    "damage",
    [
        {"method": "platt", "numbers": [-1.0, 0.0]},
        {"method": "platt", "numbers": [1.0]},
        {"method": "temperature", "numbers": [0.0]},
        {"method": "temperature", "numbers": [math.nan]},
        {"method": "isotonic", "numbers": [], "x": [0.0, 1.0], "y": [0.5, 0.4]},
        {"method": "isotonic", "numbers": [], "x": [1.0, 0.0], "y": [0.4, 0.5]},
        {"method": "isotonic", "numbers": [], "x": [0.0, 1.0], "y": [0.4, 1.5]},
        {"method": "isotonic", "numbers": []},
        {"method": "other", "numbers": []},
        {"numbers": ["one"]},
        {"surprise": 1},
    ],
)
def test_damaged_maps_are_refused(damage: dict[str, Any]) -> None:
    content = Calibration.fit("binary", *binary(200)).to_dict()
    content["maps"] = [{**content["maps"][0], **damage}]
    with pytest.raises(DataError):
        Calibration.from_dict(content)


def test_maps_that_are_too_many_are_refused() -> None:
    content = Calibration.fit("binary", *binary(200)).to_dict()
    with pytest.raises(DataError, match="2 maps for 1"):
        Calibration.from_dict({**content, "maps": content["maps"] * 2})


def test_mistakes() -> None:
    z, y = binary(30)
    with pytest.raises(UsageError, match="platt"):
        Calibration.fit("binary", z, y, "plat")
    with pytest.raises(UsageError, match="regression"):
        Calibration.fit("regression", z, y)
    with pytest.raises(DataError, match=r"\(30, 1\).*\(29, 1\)"):
        Calibration.fit("binary", z, y[1:])
    with pytest.raises(DataError, match="finite"):
        Calibration.fit("binary", z * np.inf, y)
    with pytest.raises(DataError, match=r"30, 3"):
        Calibration.fit("binary", z, y).apply(np.zeros((30, 3)))
