from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlap.analysis import tsne_maps
from mlap.errors import DataError, UsageError
from mlap.models import Levels


def clusters(graphs: int = 40, num_levels: int = 1) -> Levels:
    """Two groups of graphs, far apart in every representation."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(graphs, num_levels, 4))
    x[graphs // 2 :] += 50
    return Levels(x.astype(np.float32), x.sum(1).astype(np.float32))


def test_what_is_far_apart_stays_apart() -> None:
    seen: list[str] = []
    maps = tsne_maps(clusters(), perplexity=5, iterations=400, on_map=seen.append)
    assert maps.points.shape == (2, 40, 2)
    assert seen == ["1", "aggregate"] == list(maps.names)
    for points in maps.points:
        distances = np.linalg.norm(points[:, None] - points, axis=2)
        np.fill_diagonal(distances, np.inf)
        nearest = distances.argmin(1)
        assert ((nearest < 20) == (np.arange(40) < 20)).mean() > 0.9


def test_a_draw_says_what_was_drawn() -> None:
    maps = tsne_maps(clusters(), perplexity=5, iterations=250, max_graphs=15)
    assert maps.num_graphs == 40
    assert maps.points.shape == (2, 15, 2)
    assert len(np.unique(maps.rows)) == 15
    assert (np.diff(maps.rows) > 0).all()


def test_equal_representations_can_be_mapped() -> None:
    levels = Levels(np.zeros((20, 0, 3), np.float32), np.ones((20, 3), np.float32))
    assert np.isfinite(tsne_maps(levels, perplexity=5, iterations=250).points).all()


def test_too_few_graphs_and_values_that_are_not_finite() -> None:
    with pytest.raises(UsageError, match="perplexity 20 needs more graphs than that, got 12"):
        tsne_maps(clusters(12))
    levels = clusters(30)
    levels.aggregate[3] = np.inf
    with pytest.raises(DataError, match="aggregate"):
        tsne_maps(levels, iterations=250)


@pytest.mark.parametrize("option", ["n_iter", "max_iter"])
def test_the_papers_settings_whatever_scikit_learn_calls_them(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    names = f"learning_rate, perplexity, init, random_state, {option}"
    recorded = {"calls": calls, "np": np}
    source = (
        f"class TSNE:\n"
        f"    def __init__(self, *, {names}):\n"
        f"        calls.append(dict(learning_rate=learning_rate, perplexity=perplexity, iterations={option}))\n"
        f"    def fit_transform(self, x):\n"
        f"        return np.zeros((len(x), 2))\n"
    )
    exec(source, recorded)
    monkeypatch.setattr("sklearn.manifold.TSNE", recorded["TSNE"])
    tsne_maps(clusters())
    assert calls == [{"learning_rate": 50, "perplexity": 20, "iterations": 3000}] * 2
