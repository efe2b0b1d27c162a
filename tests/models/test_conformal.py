"""Conformal sets and intervals: crepes as the oracle, plain loops, the promise kept over many draws, small sets."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from crepes import ConformalClassifier, ConformalRegressor
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError
from mlap.models.conformal import Conformal, coverage_of_intervals, coverage_of_sets, rank

Array = NDArray[Any]


def binary(rng: np.random.Generator, graphs: int, targets: int = 1, decimals: int = 2) -> tuple[Array, Array]:
    """Rounded probabilities, so that there are ties, and labels of which some are unknown where there are targets."""
    p = rng.beta(0.5, 1.5, (graphs, targets))
    y = (rng.random(p.shape) < p).astype(float)
    if targets > 1:
        y[rng.random(y.shape) < 0.2] = np.nan
    return p.round(decimals), y


def multiclass(rng: np.random.Generator, graphs: int, classes: int = 4) -> tuple[Array, Array]:
    p = rng.dirichlet(np.full(classes, 0.6), graphs)
    y = np.array([rng.choice(classes, p=row) for row in p])
    return p.round(2), y


# ---- the rank --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 500), st.integers(1, 999))
def test_the_rank_is_exact_for_alpha_as_written(n: int, thousandths: int) -> None:
    exact = Fraction(n + 1) * Fraction(1000 - thousandths, 1000)
    assert rank(n, thousandths / 1000) == math.ceil(exact)


def test_a_rank_that_doubles_get_wrong() -> None:
    assert math.ceil(10 * (1 - 0.7)) == 4  # what a careless program says
    assert rank(9, 0.7) == 3


# ---- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conditional", [True, False])
def test_binary_p_values_are_those_of_crepes(conditional: bool) -> None:
    rng = np.random.default_rng(0)
    (p, y), (fresh, _) = binary(rng, 150), binary(rng, 60)
    both, fresh_both = (np.stack((1 - each[:, 0], each[:, 0]), axis=1) for each in (p, fresh))
    assert_like_crepes(Conformal.fit("binary", p, y, conditional=conditional), both, y[:, 0], fresh, fresh_both)


@pytest.mark.parametrize("conditional", [True, False])
def test_multiclass_p_values_are_those_of_crepes(conditional: bool) -> None:
    rng = np.random.default_rng(1)
    (p, y), (fresh, _) = multiclass(rng, 200), multiclass(rng, 50)
    assert_like_crepes(Conformal.fit("multiclass", p, y, conditional=conditional), p, y, fresh, fresh)


def assert_like_crepes(ours: Conformal, p: Array, y: Array, fresh: Array, fresh_p: Array) -> None:
    y = y.astype(int)
    scores = 1 - p[np.arange(len(y)), y]
    found = ours.p_values(fresh).reshape(fresh_p.shape)
    expected = np.empty_like(fresh_p)
    for label in range(p.shape[1]):
        cal = scores[y == label] if ours.conditional else scores
        peer = ConformalClassifier().fit(cal)
        expected[:, label] = peer.predict_p(1 - fresh_p[:, [label]], smoothing=False)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    for alpha in (0.02, 0.1, 0.25, 0.5):
        # crepes keeps a class whose p-value is α itself; the rank ⌈(n + 1)(1 − α)⌉ does not need it
        clear = np.abs(expected - alpha) > 1e-9
        sets = ours.sets(fresh, alpha).reshape(fresh_p.shape)
        np.testing.assert_array_equal(sets[clear], (expected > alpha)[clear])
        assert not sets[~clear].any()


def test_each_target_is_calibrated_on_its_own_known_labels() -> None:
    rng = np.random.default_rng(2)
    (p, y), (fresh, _) = binary(rng, 200, targets=3), binary(rng, 20, targets=3)
    together = Conformal.fit("binary", p, y).p_values(fresh)
    assert together.shape == (20, 3, 2)
    for target in range(3):
        known = ~np.isnan(y[:, target])
        alone = Conformal.fit("binary", p[known][:, [target]], y[known][:, [target]])
        np.testing.assert_array_equal(together[:, [target]], alone.p_values(fresh[:, [target]]))


@given(st.integers(0, 30), st.integers(0, 1000), st.sampled_from([0.05, 0.1, 0.2, 0.5]))
def test_a_set_is_where_the_p_value_is_above_alpha(graphs: int, seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    p, y = binary(rng, graphs, decimals=1)
    fresh = np.linspace(0, 1, 21)[:, None]
    fitted = Conformal.fit("binary", p, y)
    counts = fitted.p_values(fresh) * (np.array([len(pool) for pool in fitted.scores[0]]) + 1)
    above = counts.round().astype(int) > np.array(
        [math.floor(Fraction(str(alpha)) * (len(pool) + 1)) for pool in fitted.scores[0]]
    )
    np.testing.assert_array_equal(fitted.sets(fresh, alpha), above)


@pytest.mark.parametrize("conditional", [True, False])
@pytest.mark.parametrize("n", [12, 25, 80])
def test_the_promise_is_kept_over_many_draws(n: int, conditional: bool) -> None:
    """Exchangeable data, a model that is wrong: coverage, per class if so promised, is at least 1 − α."""
    rng = np.random.default_rng(3)
    alpha, draws = 0.1, 1500
    held = {0: [], 1: [], None: []}
    for _ in range(draws):
        x = rng.normal(size=n + 1)
        y = (x + rng.normal(size=n + 1) > 0.7).astype(float)[:, None]
        p = 1 / (1 + np.exp(-3 * x - 1))[:, None]
        sets = Conformal.fit("binary", p[:n], y[:n], conditional=conditional).sets(p[n:], alpha)
        held[int(y[n, 0])].append(sets[0, 0, int(y[n, 0])])
        held[None].append(held[int(y[n, 0])][-1])
    for label in (0, 1) if conditional else (None,):
        covered, count = float(np.mean(held[label])), len(held[label])
        assert covered >= 1 - alpha - 3 * math.sqrt(alpha * (1 - alpha) / count)
    if not conditional and n == 80:  # nor are the sets needlessly large: at most α + 1 / (n + 1) is given away
        assert np.mean(held[None]) <= 1 - alpha + 1 / (n + 1) + 3 * math.sqrt(alpha * (1 - alpha) / draws)


def test_too_few_graphs_give_the_full_set_and_a_note() -> None:
    p, y = np.array([[0.9]] * 8 + [[0.1]] * 9), np.array([[1.0]] * 8 + [[0.0]] * 9)
    fitted = Conformal.fit("binary", p, y)
    sets = fitted.sets(np.array([[0.0], [1.0]]), alpha=0.1)
    assert sets[:, 0, 1].all()  # eight actives: 9 × 0.9 rounds up to rank 9
    assert sets[:, 0, 0].tolist() == [True, False]  # nine inactives are just enough
    (note,) = fitted.notes(0.1, ["toxic"])
    assert "toxic" in note
    assert "8 graphs" in note
    assert "takes 9" in note
    assert fitted.notes(0.2) == ()


def test_nothing_to_calibrate_on() -> None:
    fitted = Conformal.fit("multiclass", np.zeros((0, 3)), np.zeros(0, int))
    assert fitted.sets(np.eye(3), 0.1).all()
    np.testing.assert_array_equal(fitted.p_values(np.eye(3)), 1)
    assert len(fitted.notes(0.1, ["a", "b", "c"])) == 3


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalised", [False, True])
def test_intervals_are_those_of_crepes(normalised: bool) -> None:
    rng = np.random.default_rng(4)
    predicted, y = rng.normal(size=(97, 1)), rng.normal(size=(97, 1))
    spread, fresh, fresh_spread = rng.uniform(0.5, 2, (97, 1)), rng.normal(size=(11, 1)), rng.uniform(0.5, 2, (11, 1))
    sigmas = (spread, fresh_spread) if normalised else (None, None)
    ours = Conformal.fit("regression", predicted, y, spread=sigmas[0])
    peer = ConformalRegressor().fit((y - predicted)[:, 0], sigmas=spread[:, 0] if normalised else None)
    for confidence in (0.5, 0.75, 0.875):  # exact in binary: crepes computes its rank in doubles
        expected = peer.predict_int(fresh[:, 0], fresh_spread[:, 0] if normalised else None, confidence=confidence)
        np.testing.assert_allclose(ours.intervals(fresh, 1 - confidence, sigmas[1])[:, 0], expected, rtol=1e-12)


def test_intervals_by_hand_with_unknown_labels() -> None:
    y = np.array([[1.0, np.nan], [2.0, 5.0], [4.0, np.nan], [np.nan, np.nan]])
    fitted = Conformal.fit("regression", np.zeros((4, 2)), y)
    found = fitted.intervals(np.array([[10.0, 20.0]]), alpha=0.5)
    np.testing.assert_array_equal(found[0], [[8, 12], [15, 25]])  # rank 2 of |1|, |2|, |4|; rank 1 of |5|
    found = fitted.intervals(np.array([[10.0, 20.0]]), alpha=0.25)
    np.testing.assert_array_equal(found[0], [[6, 14], [-math.inf, math.inf]])
    (note,) = fitted.notes(0.25)
    assert "target 1" in note
    assert "infinite" in note


def test_intervals_keep_the_promise() -> None:
    rng = np.random.default_rng(5)
    held = []
    for _ in range(2000):
        x = rng.normal(size=(21, 1))
        y = x**2 + rng.standard_t(3, size=(21, 1))
        low, high = Conformal.fit("regression", x[:20], y[:20]).intervals(x[20:], 0.2)[0, 0]
        held.append(low <= y[20, 0] <= high)
    assert abs(np.mean(held) - 17 / 21) < 3 * math.sqrt(0.16 / 2000)  # rank 17 of 20: exactly 17 in 21


# ---- coverage --------------------------------------------------------------------------------------------------------


def test_coverage_of_sets_against_a_loop() -> None:
    rng = np.random.default_rng(6)
    sets, y = rng.random((40, 2, 2)) < 0.6, rng.integers(0, 2, (40, 2)).astype(float)
    y[:7, 1] = np.nan
    found = {(each.target, each.label): each for each in coverage_of_sets(sets, y)}
    assert list(found) == [(t, label) for t in (0, 1) for label in (None, 0, 1)]
    for (target, label), each in found.items():
        rows = [i for i in range(40) if not np.isnan(y[i, target]) and label in (None, y[i, target])]
        assert each.graphs == len(rows)
        assert each.covered == pytest.approx(np.mean([sets[i, target, int(y[i, target])] for i in rows]))
        assert each.size == pytest.approx(np.mean([sets[i, target].sum() for i in rows]))
        assert each.single == pytest.approx(np.mean([sets[i, target].sum() == 1 for i in rows]))


def test_coverage_of_several_classes_and_of_none() -> None:
    sets = np.array([[True, False, True], [False, False, True]])
    overall, *by_class = coverage_of_sets(sets, np.array([0, 1]))
    assert (overall.graphs, overall.covered, overall.size, overall.single) == (2, 0.5, 1.5, 0.5)
    assert [each.graphs for each in by_class] == [1, 1, 0]
    assert math.isnan(by_class[2].covered)


def test_coverage_of_intervals() -> None:
    intervals = np.array([[[0.0, 1.0]], [[0.0, 3.0]], [[0.0, 9.0]]])
    (found,) = coverage_of_intervals(intervals, np.array([[1.0], [4.0], [np.nan]]))
    assert (found.graphs, found.covered, found.size) == (2, 0.5, 2.0)


# ---- storing, mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conditional", [True, False])
@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
def test_through_json(kind: str, conditional: bool) -> None:
    rng = np.random.default_rng(7)
    p, y = multiclass(rng, 30) if kind == "multiclass" else binary(rng, 30, targets=2)
    fitted = Conformal.fit(kind, p, y, conditional=conditional)
    assert Conformal.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


@pytest.mark.parametrize(
    "change",
    [
        {"scores": [[[0.1, 0.2], [0.3]]], "outputs": 2},
        {"scores": [[[0.2, 0.1], [0.3]]]},
        {"scores": [[[0.1, None], [0.3]]]},
        {"scores": [[[0.1, math.nan], [0.3]]]},
        {"scores": [[[0.1]]]},
        {"kind": "other"},
        {"extra": 1},
    ],
)
def test_damaged_scores_are_refused(change: dict[str, Any]) -> None:
    sound = {"kind": "binary", "outputs": 1, "conditional": True, "normalised": False, "scores": [[[0.1, 0.2], [0.3]]]}
    assert Conformal.from_dict(sound).scores == (((0.1, 0.2), (0.3,)),)
    with pytest.raises(DataError):
        Conformal.from_dict({**sound, **change})


def test_mistakes() -> None:
    p, y = np.full((20, 1), 0.5), np.tile([[0.0], [1.0]], (10, 1))
    fitted, values = Conformal.fit("binary", p, y), Conformal.fit("regression", p, y)
    with pytest.raises(UsageError) as raised:
        fitted.sets(p, 1.0)
    assert raised.value.field == "alpha"
    with pytest.raises(DataError, match=r"20, 2"):
        fitted.sets(np.full((20, 2), 0.5))
    with pytest.raises(DataError, match=r"\(20, 1\).*\(19, 1\)"):
        Conformal.fit("binary", p, y[1:])
    with pytest.raises(DataError, match="finite"):
        Conformal.fit("binary", np.full((20, 1), np.nan), y)
    with pytest.raises(UsageError, match="sets"):
        fitted.intervals(p)
    with pytest.raises(UsageError, match="intervals"):
        values.sets(p)
    for wrong in (lambda: values.intervals(p, spread=p), lambda: Conformal.fit("binary", p, y, spread=p)):
        with pytest.raises(UsageError) as raised:
            wrong()
        assert raised.value.field == "spread"
    with pytest.raises(UsageError, match="positive"):
        Conformal.fit("regression", p, y, spread=np.zeros((20, 1)))
    with pytest.raises(UsageError, match="multiclass"):
        Conformal.fit("multi", p, y)
