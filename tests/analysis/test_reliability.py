"""The reliability diagram shows the points that were measured."""

from __future__ import annotations

import numpy as np
import pytest

from mlap.analysis.reliability import reliability_plot
from mlap.errors import UsageError
from mlap.graphs import Task
from mlap.models.evaluation import evaluation


def test_a_panel_for_each_target() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, (200, 2))
    y = (rng.uniform(size=(200, 2)) < p).astype(np.float32)
    y[:50, 1] = np.nan
    found = evaluation(Task("binary", 2, "rocauc", ("a", "b")), p, np.log(p / (1 - p)), y)
    plot = reliability_plot(found)
    assert len(plot.figure.axes) == 2
    assert {row["target"] for row in plot.rows} == {"a", "b"}
    assert sum(row["graphs"] for row in plot.rows if row["target"] == "b") == 150
    points = plot.figure.axes[0].collections[0].get_offsets()
    shown = [(row["predicted"], row["came_true"]) for row in plot.rows if row["target"] == "a"]
    np.testing.assert_allclose(np.asarray(points), shown)


def test_a_regression_has_none() -> None:
    found = evaluation(Task("regression", 1, "rmse"), np.zeros((3, 1)), np.zeros((3, 1)), np.arange(3.0)[:, None])
    with pytest.raises(UsageError) as raised:
        reliability_plot(found)
    assert raised.value.field == "plot"
