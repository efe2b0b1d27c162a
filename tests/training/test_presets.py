"""Presets: which recipe a set gets, what it costs, and how time is traded."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import mlap
from mlap.errors import UsageError
from mlap.graphs import GraphSet, Task, molecules, random_split, synthetic
from mlap.training import Recipe, recipe_for
from mlap.training.presets import Cost, cost_of, within


def chains(kind: str = "binary") -> GraphSet:
    pytest.importorskip("rdkit", reason="SMILES need RDKit")
    graphs = molecules(["C" * (n + 1) + ("O" if n % 2 else "") for n in range(30)]).graphs
    y = np.array([[float(n % 2)] for n in range(30)], np.float32)
    task = Task(kind, 1, "rocauc" if kind == "binary" else "rmse")
    return dataclasses.replace(graphs, y=y, task=task, splits=random_split(30))


def own() -> GraphSet:
    return dataclasses.replace(synthetic(graphs_per_class=4), name="mine")


def test_the_papers_sets_have_the_papers_recipe_and_others_ours() -> None:
    assert recipe_for(synthetic(graphs_per_class=2)) == Recipe.paper("synthetic")
    assert recipe_for(own()) == Recipe.recommended("multiclass", len(own().split("train")))
    assert recipe_for(own(), "paper") == Recipe()
    assert recipe_for(synthetic(graphs_per_class=2), "quick", seed=3).seed == 3
    with pytest.raises(UsageError, match="recommended") as error:
        recipe_for(own(), "recomended")
    assert error.value.field == "preset"


def test_what_is_recommended_depends_on_the_task_and_on_molecules() -> None:
    classes, values = recipe_for(chains()), recipe_for(chains("regression"))
    assert (classes.pooling, classes.select) == ("attention", "last")
    assert (values.pooling, values.select) == ("attention-n", "best")
    assert classes.descriptors
    assert values.descriptors
    assert not recipe_for(own()).descriptors


def test_warm_up_is_a_tenth_unless_told_otherwise() -> None:
    assert Recipe.recommended("binary", 1000).warmup == 4
    assert Recipe.recommended("binary", 1000, epochs="20").warmup == 2
    assert Recipe.recommended("binary", 1000, epochs=20, warmup=5).warmup == 5


def test_what_a_change_implies() -> None:
    for change in ({"patience": 3}, {"select_metric": "ap"}):
        assert Recipe.recommended("binary", 1000, **change).select == "best"
        assert Recipe.recommended("binary", 1000, select="last", **change).select == "last"
    assert Recipe.recommended("binary", 1000, backbone="gcn").inner_norm == "none"
    assert mlap.train(own(), backbone="gcn", width=8, epochs=1).recipe.norm == "batch"


def test_small_sets_are_seen_more_often_and_large_ones_less() -> None:
    epochs = [Recipe.recommended("binary", number).epochs for number in (0, 10, 300, 640, 100_000, 10**6, 10**9)]
    assert epochs == [160, 160, 85, 40, 40, 5, 5]
    quick = [Recipe.quick("binary", number).epochs for number in (0, 2000, 10_000, 10**6)]
    assert quick == [20, 20, 4, 2]


def test_every_preset_trains() -> None:
    for preset in ("recommended", "quick", "paper"):
        run = mlap.train(chains(), preset=preset, epochs=1, width=8)
        assert run.recipe == recipe_for(chains(), preset, epochs=1, width=8)
    values = mlap.train(chains("regression"), epochs=2, width=8)
    assert values.recipe.pooling == "attention-n"
    assert np.isfinite(values.predict(["CCO"]).values).all()
    with pytest.raises(UsageError) as error:
        mlap.train(chains(), Recipe(), preset="quick")
    assert error.value.field == "preset"


def test_time_is_spent_on_networks_first_and_then_on_epochs() -> None:
    recipe, cost = Recipe(epochs=40, warmup=4), Cost(network=100, descriptors=20)
    assert cost.seconds(5, 2) == 20 + 3 * 100
    assert within(60, recipe, cost, 5, 2) == (recipe, 5)
    assert within(4, recipe, cost, 5, 2) == (recipe, 4)
    assert within(2, recipe, cost, 5, 2) == (recipe, 2)
    assert within(2, recipe, cost, 5) == (recipe, 1)
    half, networks = within(70 / 60, recipe, cost, 1)
    assert (half.epochs, half.warmup, networks) == (20, 2, 1)
    assert within(0.001, recipe, cost, 1)[0].epochs == 1
    with pytest.raises(UsageError) as error:
        within(0, recipe, cost, 1)
    assert error.value.field == "time"


def test_cost_grows_with_epochs_and_counts_descriptors() -> None:
    graphs = chains()
    recipe = recipe_for(graphs, width=8, epochs=10)
    cost = cost_of(recipe, graphs)
    assert cost.network > 0
    assert cost.descriptors > 0
    assert cost_of(recipe.replace(descriptors=False), graphs).descriptors == 0
