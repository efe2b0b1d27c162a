from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mlap.errors import DataError
from mlap.graphs import GraphSet, Task
from mlap.models import Predictions
from mlap.training import Objective
from mlap.training.scores import reliability, score

rng = np.random.default_rng(0)
NAN = math.nan


def slow_auc(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    """The share of (positive, negative) pairs in the right order; a tie counts one half."""
    pairs = [(p, n) for p in scores[labels == 1] for n in scores[labels == 0]]
    return sum((p > n) + 0.5 * (p == n) for p, n in pairs) / len(pairs)


def slow_average_precision(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    """The mean, over the positives, of the precision among those that score at least as high."""
    return float(np.mean([labels[scores >= score].mean() for score in scores[labels == 1]]))


def test_multiclass() -> None:
    logits = torch.tensor([[2.0, 0, 1], [0, 3, 1], [0, 0, 5], [1, 0, 0]])
    y = np.array([0, 2, 2, 1])
    assert Objective(Task("multiclass", 3, "accuracy")).score(logits, y) == 0.5
    objective = Objective(Task("multiclass", 3, "error_rate"))
    assert objective.score(logits, y) == 0.5
    expected = np.mean(
        [math.log(sum(math.exp(z) for z in row)) - row[c] for row, c in zip(logits.tolist(), y, strict=True)]
    )
    assert objective.loss(logits, torch.from_numpy(y)).item() == pytest.approx(expected)
    assert objective.predict(logits).sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize(("metric", "slow"), [("rocauc", slow_auc), ("ap", slow_average_precision)])
def test_binary_scores_against_their_definitions(metric: str, slow: Any) -> None:
    y = rng.integers(0, 2, (60, 3)).astype(np.float32)
    y[rng.random((60, 3)) < 0.2] = NAN
    logits = torch.from_numpy(np.round(rng.normal(size=(60, 3)), 1).astype(np.float32))  # rounding makes ties
    known = [~np.isnan(column) for column in y.T]
    expected = np.mean([slow(y[k, t], logits.numpy()[k, t]) for t, k in enumerate(known)])
    assert Objective(Task("binary", 3, metric)).score(logits, y) == pytest.approx(expected)


def test_binary_targets_of_one_class_are_left_out() -> None:
    task = Task("binary", 2, "rocauc")
    y = np.array([[0, 1], [1, 1], [0, NAN]], dtype=np.float32)
    logits = torch.tensor([[0.1, 3.0], [0.2, 1.0], [0.3, 2.0]])
    assert Objective(task).score(logits, y) == 0.5
    with pytest.raises(DataError, match="both classes"):
        Objective(task).score(logits[2:], y[2:])


def test_binary_accuracy_and_loss_ignore_unknown_labels() -> None:
    objective = Objective(Task("binary", 2, "accuracy"))
    y = np.array([[0, NAN], [1, 1]], dtype=np.float32)
    logits = torch.tensor([[1.0, 9.0], [2.0, -1.0]], requires_grad=True)
    assert objective.score(logits.detach(), y) == 0.25  # the mean of 1/2 and 0/1
    loss = objective.loss(logits, torch.from_numpy(y))
    expected = np.mean([math.log1p(math.exp(1)), math.log1p(math.exp(-2)), math.log1p(math.exp(1))])
    assert loss.item() == pytest.approx(expected)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[0, 1] == 0
    assert (gradient[[0, 1, 1], [0, 0, 1]] != 0).all()


def test_a_batch_without_any_known_label_has_no_loss() -> None:
    logits = torch.zeros(2, 1, requires_grad=True)
    loss = Objective(Task("binary", 1, "rocauc")).loss(logits, torch.full((2, 1), NAN))
    assert loss.item() == 0
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient == 0).all()


def regression_set(y: NDArray[np.float32], metric: str = "rmse") -> GraphSet:
    number = len(y)
    return GraphSet(
        node_ptr=np.arange(number + 1),
        edge_ptr=np.zeros(number + 1, dtype=np.int64),
        edges=np.empty((2, 0), dtype=np.uint8),
        y=y,
        task=Task("regression", y.shape[1], metric),
        splits={"train": np.arange(number - 1), "valid": np.array([number - 1])},
    ).validate()


def test_regression_is_trained_on_standardised_targets() -> None:
    y = np.array([[10, 1], [20, NAN], [30, 3], [1000, 1000]], dtype=np.float32)
    objective = Objective.of(regression_set(y))
    logits = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.0, 2.0]])
    std = math.sqrt(200 / 3)  # of 10, 20, 30: the last graph is not in the training split
    assert objective.predict(logits)[:, 0] == pytest.approx([20 - std, 20, 20 + std])
    scaled = [(10 - 20) / std, 0, (30 - 20) / std]
    errors = [(-1 - scaled[0]) ** 2, 0, (1 - scaled[2]) ** 2, 1, 1]  # the second target is ±1 where it is known
    assert objective.loss(logits, torch.from_numpy(y[:3])).item() == pytest.approx(np.mean(errors), rel=1e-5)


@pytest.mark.parametrize(("metric", "expected"), [("rmse", (math.sqrt(12.5) + 2) / 2), ("mae", (3.5 + 2) / 2)])
def test_regression_scores(metric: str, expected: float) -> None:
    objective = Objective(Task("regression", 2, metric), np.zeros(2), np.ones(2))
    y = np.array([[3, 2], [4, NAN]], dtype=np.float32)
    assert objective.score(torch.zeros(2, 2), y) == pytest.approx(expected)


def test_a_set_without_labels_has_no_objective() -> None:
    graphs = regression_set(np.ones((3, 1), dtype=np.float32))
    unlabelled = GraphSet(graphs.node_ptr, graphs.edge_ptr, graphs.edges, name="bare")
    with pytest.raises(DataError, match="bare has no labels"):
        Objective.of(unlabelled)


def test_targets_that_are_all_the_same_are_predicted_as_they_are() -> None:
    """The standard deviation has a floor, so that nothing is divided by zero; it is small enough to change nothing."""
    objective = Objective.of(regression_set(np.full((4, 1), 7.0, dtype=np.float32)))
    assert objective.std is not None
    assert objective.std.tolist() == [pytest.approx(1e-6)]
    logits = torch.tensor([[0.0], [1.0]])
    assert objective.predict(logits)[:, 0] == pytest.approx([7.0, 7.0], abs=1e-5)
    assert objective.loss(logits, torch.full((2, 1), 7.0)).item() == pytest.approx(0.5)


def test_a_logit_of_zero_is_a_no() -> None:
    """A half is no yes: neither for the score nor, in `Predictions`, for the label."""
    y = np.array([[0.0], [1.0]], dtype=np.float32)
    assert Objective(Task("binary", 1, "accuracy")).score(torch.tensor([[0.0], [1.0]]), y) == 1.0
    assert Predictions(Task("binary", 1, "accuracy"), np.array([[0.5]]), ("0",)).labels.tolist() == [0]


def test_class_weights_count_each_label_by_its_own_class() -> None:
    weights = np.array([[2.0], [5.0]])
    objective = Objective(Task("binary", 1, "rocauc"), class_weights=weights)
    loss = objective.loss(torch.zeros(2, 1), torch.tensor([[0.0], [1.0]]))
    assert loss.item() == pytest.approx((2 + 5) / 2 * math.log(2))


def test_weights_of_classes_and_graphs_multiply_the_loss_of_each_graph() -> None:
    logits = torch.from_numpy(rng.normal(size=(5, 3)))
    y = torch.tensor([0, 2, 2, 1, 0])
    classes, graphs = np.array([1.0, 4.0, 0.5]), torch.tensor([1.0, 0.0, 2.0, 3.0, 1.0], dtype=torch.float64)
    each = [math.log(sum(math.exp(z) for z in row)) - row[label] for row, label in zip(logits.tolist(), y, strict=True)]
    task = Task("multiclass", 3, "accuracy")
    for class_weights in (None, classes):
        for weights in (None, graphs):
            factor = (1 if class_weights is None else classes[y]) * (1 if weights is None else graphs.numpy())
            loss = Objective(task, class_weights=class_weights).loss(logits, y, weights)
            assert loss.item() == pytest.approx(np.mean(factor * np.array(each)))


def test_balanced_classes_weigh_as_scikit_learn_says() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    y = (rng.random((40, 2)) < (0.2, 0.7)).astype(np.float32)
    y[:7, 1] = NAN
    splits = {"train": np.arange(30), "valid": np.arange(30, 40)}
    pointers = np.arange(41), np.zeros(41, dtype=np.int64), np.empty((2, 0), dtype=np.uint8)
    binary = GraphSet(*pointers, y=y, task=Task("binary", 2, "rocauc"), splits=splits)
    found = Objective.of(binary, class_weight="balanced").class_weights
    for target, known in enumerate((y[:30, 0], y[7:30, 1])):
        expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=known)
        assert np.asarray(found)[:, target] == pytest.approx(expected)
    labels = rng.integers(0, 3, 40)
    several = GraphSet(*pointers, y=labels, task=Task("multiclass", 4, "accuracy"), splits=splits)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels[:30]) * 3 / 4  # the fourth has no graph
    assert np.asarray(Objective.of(several, class_weight="balanced").class_weights)[:3] == pytest.approx(expected)
    assert Objective.of(several).class_weights is None


def test_a_point_of_a_reliability_diagram_is_a_bin() -> None:
    confidence = np.array([0.04, 0.05, 0.15, 0.95, 1.0])
    correct = np.array([0, 1, 1, 1, 0])
    points = reliability(confidence, correct)
    assert points == [(pytest.approx(0.045), 0.5, 2), (pytest.approx(0.15), 1.0, 1), (pytest.approx(0.975), 0.5, 2)]
    task = Task("binary", 1, "calibration_error")
    logits = np.log(confidence[:4] / (1 - confidence[:4]))[:, None]
    expected = (2 * abs(0.045 - 0.5) + abs(0.15 - 1) + abs(0.95 - 1)) / 4
    assert score(task, confidence[:4, None], logits, correct[:4, None].astype(float)) == pytest.approx(expected)
