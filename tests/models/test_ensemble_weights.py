"""Weights of members: brute force on a grid, the slopes at the least loss, too few labels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError
from mlap.models.weights import LABELS_PER_MEMBER, Weights, fit_group_weights, fit_weights

Array = NDArray[Any]
KINDS = ("binary", "multiclass", "regression")


def members(kind: str, seed: int = 0, graphs: int = 120, count: int = 3) -> tuple[Array, Array]:
    """Members that know the truth more or less well, two outputs (three classes), and labels, some unknown."""
    rng = np.random.default_rng(seed)
    outputs = 3 if kind == "multiclass" else 2
    truth = 2 * rng.normal(size=(graphs, outputs))
    noise = rng.uniform(0.3, 4, count)
    logits = truth + noise[:, None, None] * rng.normal(size=(count, graphs, outputs))
    if kind == "multiclass":
        p = np.exp(truth) / np.exp(truth).sum(axis=1, keepdims=True)
        return logits, np.array([rng.choice(3, p=row) for row in p])
    y = (rng.random(truth.shape) < 1 / (1 + np.exp(-truth))).astype(float) if kind == "binary" else truth * [1, 100]
    y[rng.random(y.shape) < 0.1] = np.nan
    return logits * ([1, 100] if kind == "regression" else 1), y


def loss(kind: str, weights: Any, logits: Array, y: Array) -> float:
    """The loss, label by label."""
    z = sum(w * each for w, each in zip(weights, logits, strict=True))
    if kind == "multiclass":
        return float(np.mean([np.log(np.exp(row - row[label]).sum()) for row, label in zip(z, y, strict=True)]))
    deviation = np.nanstd(y, axis=0)
    losses = []
    for graph, target in itertools.product(range(len(y)), range(y.shape[1])):
        if not np.isnan(y[graph, target]):
            score, label = z[graph, target], y[graph, target]
            if kind == "binary":
                losses.append(np.log1p(np.exp(-score if label else score)))
            else:
                losses.append(((score - label) / deviation[target]) ** 2)
    return float(np.mean(losses))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_weights_on_a_grid_do_better(kind: str, seed: int) -> None:
    logits, y = members(kind, seed)
    found = fit_weights(kind, logits, y)
    assert found.fitted
    steps = 20
    grid = [(a / steps, b / steps, (steps - a - b) / steps) for a in range(steps + 1) for b in range(steps + 1 - a)]
    losses = {point: loss(kind, point, logits, y) for point in grid}
    best = min(losses, key=lambda point: losses[point])
    assert loss(kind, found.values, logits, y) <= losses[best] + 1e-9
    assert np.abs(np.array(best) - found.values).max() <= 1.5 / steps


@given(st.sampled_from(KINDS), st.integers(0, 10_000), st.integers(2, 5))
@settings(max_examples=40)
def test_weights_are_none_negative_sum_to_one_and_beat_equal_ones(kind: str, seed: int, count: int) -> None:
    logits, y = members(kind, seed, count=count)
    found = fit_weights(kind, logits, y)
    assert min(found.values) >= 0
    assert sum(found.values) == pytest.approx(1)
    assert loss(kind, found.values, logits, y) <= loss(kind, [1 / count] * count, logits, y) + 1e-12
    assert fit_weights(kind, logits, y) == found
    turned = fit_weights(kind, logits[::-1], y)
    np.testing.assert_allclose(turned.values[::-1], found.values, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_that_knows_nothing_weighs_nothing(kind: str) -> None:
    logits, y = members(kind, graphs=400, count=2)
    nothing = 50 * np.random.default_rng(9).normal(size=logits.shape[1:])
    assert fit_weights(kind, np.stack((*logits, nothing * np.abs(logits).max())), y).values[2] < 1e-3


def test_too_few_labels_or_one_class_weigh_all_the_same_and_say_so() -> None:
    logits, y = members("binary", count=3, graphs=40)
    few = y.copy()
    known = np.flatnonzero(~np.isnan(few.ravel()))
    few.ravel()[known[3 * LABELS_PER_MEMBER - 1 :]] = np.nan
    found = fit_weights("binary", logits, few)
    assert found.values == (1 / 3,) * 3
    assert not found.fitted
    assert str(3 * LABELS_PER_MEMBER - 1) in found.note
    one = fit_weights("binary", logits, np.zeros_like(y))
    assert not one.fitted
    assert "one class" in one.note


def test_a_single_member_weighs_one() -> None:
    logits, y = members("binary", count=1)
    assert fit_weights("binary", logits, y) == Weights((1.0,), False)


def test_mistakes() -> None:
    logits, y = members("binary")
    with pytest.raises(DataError, match=r"\(3, 120, 2\).*\(119, 2\)"):
        fit_weights("binary", logits, y[1:])
    with pytest.raises(DataError, match="finite"):
        fit_weights("binary", logits * np.inf, y)
    with pytest.raises(UsageError) as raised:
        fit_weights("binary", logits[0], y)
    assert raised.value.field == "logits"
    with pytest.raises(UsageError, match="binary"):
        fit_weights("binari", logits, y)


@pytest.mark.parametrize("kind", KINDS)
def test_members_of_a_group_weigh_the_same_and_groups_the_best_they_can(kind: str) -> None:
    logits, y = members(kind, count=5)
    groups = [1, 0, 1, 2, 0]
    found = fit_group_weights(kind, logits, y, groups).values
    assert sum(found) == pytest.approx(1)
    assert found[0] == found[2]
    assert found[1] == found[4]
    least = loss(kind, found, logits, y)
    for a, b in itertools.product(np.linspace(0, 1, 21), repeat=2):
        if a + b <= 1:
            other = (a / 2, b / 2, a / 2, 1 - a - b, b / 2)
            assert least <= loss(kind, other, logits, y) + 1e-9


def test_groups_need_labels_for_groups_only() -> None:
    logits, y = members("regression", graphs=2 * LABELS_PER_MEMBER, count=6)
    assert not fit_weights("regression", logits[:, :, :1], y[:, :1]).fitted
    assert fit_group_weights("regression", logits, y, [0] * 5 + [1]).fitted
    with pytest.raises(UsageError) as error:
        fit_group_weights("regression", logits, y, [0, 1])
    assert error.value.field == "groups"
