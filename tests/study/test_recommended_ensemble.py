"""The recommended ensemble: who its members are, and that networks of one recipe weigh the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from mlap.errors import UsageError
from mlap.graphs import GraphSet, synthetic
from mlap.models import Baseline, Run
from mlap.study import train_ensemble
from mlap.training import Recipe

TINY = {"layers": 2, "width": 8, "epochs": 2}


@pytest.fixture(scope="module")
def graphs() -> GraphSet:
    return dataclasses.replace(synthetic(graphs_per_class=60), name="mine")


def test_networks_and_a_simple_model_weighed_by_validation_graphs(graphs: GraphSet, tmp_path: Path) -> None:
    made = train_ensemble(graphs, members=2, out=tmp_path / "model", seed=3, **TINY)
    first, second, linear = made.members
    assert isinstance(first, Run)
    assert isinstance(second, Run)
    assert isinstance(linear, Baseline)
    assert (first.recipe.seed, second.recipe.seed, linear.name) == (3, 4, "wl-linear")
    assert first.recipe == Recipe.recommended("multiclass", len(graphs.split("train")), seed=3, **TINY)
    assert made.weights.fitted
    assert made.weights.values[0] == made.weights.values[1]
    expected = sum(w * m.logits(graphs) for w, m in zip(made.weights.values, made.members, strict=True))
    np.testing.assert_allclose(made.logits(graphs), expected, atol=1e-5)
    again = train_ensemble(graphs, members=2, out=tmp_path / "model", seed=3, resume=True, **TINY)
    np.testing.assert_allclose(again.logits(graphs), made.logits(graphs), atol=1e-6)
    with pytest.raises(UsageError) as error:
        train_ensemble(graphs, members=2, out=tmp_path / "model", seed=3, resume=True, baselines=(), **TINY)
    assert error.value.field == "overwrite"


def test_a_recipe_of_ones_own_has_networks_only(graphs: GraphSet) -> None:
    made = train_ensemble(graphs, Recipe(**TINY), members=2)
    assert [member.name for member in made.members] == ["mlap-sum", "mlap-sum"]
    assert not made.weights.fitted
    made = train_ensemble(graphs, Recipe(**TINY), members=1, baselines=["wl-linear"])
    assert [member.name for member in made.members] == ["mlap-sum", "wl-linear"]
