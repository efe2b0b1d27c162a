from __future__ import annotations

import dataclasses
import math

import pytest

from mlap.errors import UsageError
from mlap.paper import PROTOCOLS
from mlap.training import Recipe


def test_the_papers_protocol() -> None:
    """SPEC section 3: epochs, learning rate, decay each 15 epochs, batch; d = 200, dropout .5 for all."""
    table = {
        "synthetic": (65, 1e-3, 0.2, 50),
        "ogbg-molhiv": (50, 1e-4, 0.5, 20),
        "ogbg-ppa": (50, 1e-3, 0.2, 50),
        "MCF-7": (50, 1e-4, 0.5, 20),
    }
    assert set(table) == set(PROTOCOLS)
    for name, (epochs, lr, decay, batch) in table.items():
        recipe = Recipe.paper(name)
        assert (recipe.epochs, recipe.lr, recipe.lr_decay, recipe.batch_size) == (epochs, lr, decay, batch)
        assert (recipe.width, recipe.dropout, recipe.lr_decay_every, recipe.backbone) == (200, 0.5, 15, "gin")
        assert recipe.weight_decay == 0
        assert not recipe.residual


def test_learning_rate_decays_after_every_fifteen_epochs() -> None:
    recipe = Recipe.paper("synthetic")
    for epoch in range(1, 66):
        assert math.isclose(
            recipe.lr_at(epoch),
            1e-3 * 0.2 ** ([15, 30, 45, 60, 65].index(min(end for end in (15, 30, 45, 60, 65) if epoch <= end))),
        )


def test_recipes_are_frozen_and_hashable() -> None:
    recipe = Recipe()
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.layers = 3  # type: ignore[misc]
    assert {recipe, Recipe()} == {recipe}
    assert recipe.replace(layers=3) == Recipe(layers=3) != recipe


def test_values_may_be_text() -> None:
    recipe = Recipe.of({"layers": "3", "lr": "1e-2", "residual": "true", "norm": "batch"})
    assert recipe == Recipe(layers=3, lr=0.01, residual=True, norm="batch")
    assert Recipe.of(recipe.as_dict()) == recipe


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer": 3}, "unknown field of a recipe 'layer'; did you mean 'layers'"),
        ({"architecture": "mlap-sun"}, "unknown architecture 'mlap-sun'; did you mean 'mlap-sum'"),
        ({"norm": "grph"}, "unknown norm 'grph'; did you mean 'graph'"),
        ({"backbone": "gine"}, "unknown backbone 'gine'; did you mean 'gin'"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"layers": 2.5}, "layers must be a whole number, got 2.5"),
        ({"layers": "three"}, "layers must be a whole number, got 'three'"),
        ({"layers": True}, "layers must be a whole number, got True"),
        ({"dropout": 1.5}, "dropout must be at most 1, got 1.5"),
        ({"lr": -1}, "lr must be at least 0, got -1.0"),
        ({"lr": "nan"}, "lr must be at most 100, got nan"),
        ({"residual": "maybe"}, "residual must be true or false, got 'maybe'"),
        ({"architecture": 3}, "architecture must be a name, got 3"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"pooling": "atention"}, "unknown pooling 'atention'; did you mean 'attention'"),
        ({"inner_norm": "graph"}, "unknown inner norm 'graph'"),
        ({"walk_features": -1}, "walk_features must be at least 0, got -1"),
        ({"descriptors": "yes"}, "descriptors must be true or false, got 'yes'"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        Recipe.of(fields)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_only_the_papers_data_sets_have_the_papers_recipe() -> None:
    with pytest.raises(UsageError, match="unknown data set of the paper 'molhiv'; did you mean 'ogbg-molhiv'"):
        Recipe.paper("molhiv")


def test_presets() -> None:
    assert Recipe.preset("ogbg-molhiv", layers=3) == Recipe.paper("ogbg-molhiv", layers=3)
    assert Recipe.preset("synthetic-variant") == Recipe.paper("synthetic")
    assert Recipe.preset("mine") == Recipe()
