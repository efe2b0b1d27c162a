"""Extremes of data and of networks: a right answer or a refusal, never a number that is none."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from small import random_graphs

from mlap.errors import MlapError
from mlap.graphs import Features, GraphSet, Task
from mlap.models import Run, train
from mlap.nn import MultiLevelAttentionPooling
from mlap.training import Recipe

TASKS = {
    "binary": Task("binary", 1, "accuracy"),
    "multiclass": Task("multiclass", 3, "accuracy"),
    "regression": Task("regression", 1, "rmse"),
}
SMALL = Recipe(layers=2, width=4, epochs=2, batch_size=4)


def graphs_of(sizes: list[int], task: str = "binary", **options: Any) -> GraphSet:
    return random_graphs(sizes, task=TASKS[task], **options)


def finite(run: Run, graphs: GraphSet) -> None:
    """All that a run says is a number: its history, its scores, its answers."""
    assert np.isfinite([[epoch.train_loss, epoch.valid_loss, epoch.valid_score] for epoch in run.history]).all()
    predictions = run.predict(graphs)
    assert not predictions.invalid
    assert np.isfinite(predictions.values).all()
    assert all(np.isfinite(parameter.detach().numpy()).all() for parameter in run.network.parameters())


SIZES = {
    "a graph without nodes": [0, 3, 0, 4, 5, 0, 2, 3, 0, 1],
    "graphs of one node": [1] * 10,
    "no nodes at all": [0] * 20,
    "one large graph": [2000, *([3] * 9)],
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("norm", ["none", "graph", "batch", "layer", "pair"])
def test_sizes(sizes: str, task: str, norm: str) -> None:
    graphs = graphs_of(SIZES[sizes], task, density=0.002 if max(SIZES[sizes]) > 100 else 0.4)
    finite(train(graphs, SMALL.replace(norm=norm), device="cpu"), graphs)


def test_a_graph_of_fifty_thousand_nodes() -> None:
    graphs = graphs_of([4] * 10)
    run = train(graphs, SMALL, device="cpu")
    ends = np.stack((np.arange(49_999), np.arange(1, 50_000)))
    rng = np.random.default_rng(0)
    large = GraphSet(
        np.array([0, 50_000]),
        np.array([0, ends.shape[1]]),
        ends,
        node_features=Features.categories(rng.integers(0, (4, 3), (50_000, 2)), (4, 3)),
        edge_features=Features.reals(rng.normal(size=(ends.shape[1], 2))),
        name="large",
    ).validate()
    assert np.isfinite(run.predict(large).values).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 1},
        {"layers": 50},
        {"batch_size": 1},
        {"batch_size": 1, "norm": "batch"},
        {"width": 1, "norm": "layer"},
        {"layers": 50, "norm": "none"},
        {"dropout": 0.99},
        {"pooling": "sum"},
        {"pooling": "attention-n"},
    ],
)
@pytest.mark.parametrize("architecture", ["naive", "jk-sum", "mlap-sum", "mlap-weighted"])
def test_shapes_of_networks(architecture: str, changes: dict[str, Any]) -> None:
    graphs = graphs_of([5, 6, 2, 7, 3, 4, 6, 2, 5, 3])
    finite(train(graphs, SMALL.replace(architecture=architecture, epochs=1, **changes), device="cpu"), graphs)


@pytest.mark.parametrize("task", TASKS)
def test_constant_features_and_labels(task: str) -> None:
    graphs = graphs_of([4] * 10, task)
    assert graphs.node_features is not None
    assert graphs.y is not None
    same = Features.categories(np.zeros_like(graphs.node_features.values), (4, 3))
    graphs = dataclasses.replace(graphs, node_features=same, y=np.ones_like(graphs.y))
    if task == "binary":  # nothing to learn from one class
        with pytest.raises(MlapError, match="train"):
            train(graphs, SMALL, device="cpu")
    else:
        finite(train(graphs, SMALL, device="cpu"), graphs)


@pytest.mark.parametrize("part", ["train", "valid"])
@pytest.mark.parametrize("task", ["binary", "regression"])
def test_parts_without_labels_or_graphs_are_refused(part: str, task: str) -> None:
    graphs = graphs_of([4] * 10, task)
    assert graphs.y is not None
    unknown = graphs.y.copy()
    unknown[graphs.split(part)] = np.nan
    empty = {**graphs.splits, part: np.zeros(0, np.int64)}
    for wrong in (dataclasses.replace(graphs, y=unknown), dataclasses.replace(graphs, splits=empty)):
        with pytest.raises(MlapError) as error:
            train(wrong, SMALL.replace(select_metric="rocauc" if task == "binary" else ""), device="cpu")
        assert part in str(error.value)


def test_divergence_is_told_and_not_kept() -> None:
    graphs = graphs_of([4] * 10, "regression")
    with pytest.raises(MlapError) as error:
        finite(train(graphs, SMALL.replace(norm="none", lr=100.0, layers=30, epochs=50), device="cpu"), graphs)
    assert error.value.field == "lr"


@pytest.mark.parametrize("score", [1e4, -1e4])
def test_attention_scores_of_ten_thousand(score: float) -> None:
    """The softmax subtracts the largest score; all of the attention goes to one node, or equally to all."""
    pooling = MultiLevelAttentionPooling(3, num_levels=2)
    with torch.no_grad():
        for parameter in pooling.parameters():
            parameter.fill_(score)
    levels = [torch.rand(5, 3) + 0.5 for _ in range(2)]
    out = pooling(levels, torch.tensor([0, 0, 0, 1, 1]))
    assert torch.isfinite(out).all()
