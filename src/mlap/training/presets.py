"""From a graph set to what it is trained with: presets, what they cost, and how a budget of time is spent."""

from __future__ import annotations

import importlib.util
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlap.errors import DataError, UsageError, unknown
from mlap.graphs import GraphSet
from mlap.graphs.descriptors import FEW_DESCRIBED, descriptors
from mlap.graphs.molecules import are_molecules
from mlap.machines import usable_cores
from mlap.names import PRESETS
from mlap.paper import PROTOCOLS
from mlap.training.recipe import Recipe, paper_name
from mlap.training.timing import SCORING, time_per_graph

#: networks of the recommended ensemble
MEMBERS = 5
#: epochs below which more networks are not worth it
LEAST_EPOCHS = 10


def preset_of(graphs: GraphSet) -> str:
    """The preset unless told otherwise: the paper's recipe for the paper's data sets, ours for others."""
    return "paper" if paper_name(graphs.name) in PROTOCOLS else "recommended"


def recipe_for(graphs: GraphSet, preset: str | None = None, **changes: Any) -> Recipe:
    """The recipe of a preset for a labelled set, with the given fields changed.

    Args:
        graphs: what is trained on.
        preset: one of `mlap.names.PRESETS`; see `preset_of` unless given. `paper` is the paper's recipe for one of its
            data sets, and for others the settings that these have in common.
        changes: fields to change.
    """
    preset = preset or preset_of(graphs)
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS, "preset")
    if preset == "paper":
        return Recipe.preset(graphs.name, **changes)
    if graphs.task is None:
        raise DataError(f"{graphs.name} has no labels to train on")
    make = Recipe.recommended if preset == "recommended" else Recipe.quick
    return make(graphs.task.kind, len(graphs.split("train")), has_descriptors(graphs), **changes)


def baselines_for(graphs: GraphSet) -> tuple[str, ...]:
    """The simple models that belong to the recommended ensemble: each beats single networks on some sets."""
    return ("rf-morgan", "wl-linear") if has_descriptors(graphs) else ("wl-linear",)


def has_descriptors(graphs: GraphSet) -> bool:
    """Whether RDKit can describe the graphs."""
    return are_molecules(graphs) and importlib.util.find_spec("rdkit") is not None


@dataclass(frozen=True)
class Cost:
    """Estimated seconds.

    Args:
        network: to train one network, on one core.
        descriptors: to describe all molecules, on all cores; once, however many networks there are.
    """

    network: float
    descriptors: float

    def seconds(self, networks: int = 1, at_a_time: int = 1) -> float:
        """The time for so many networks, of which some train at a time."""
        return self.descriptors + self.network * math.ceil(networks / max(1, min(at_a_time, networks)))


def cost_of(recipe: Recipe, graphs: GraphSet, device: str = "cpu") -> Cost:
    """What a recipe will cost, from a few timed training steps and a few molecules."""
    parts = {name: len(graphs.splits.get(name, ())) for name in ("train", "valid", "test")}
    seen = recipe.epochs * (parts["train"] + SCORING * parts["valid"]) + SCORING * parts["test"]
    network = time_per_graph(recipe.replace(descriptors=False), graphs, device) * seen
    return Cost(network, _describing(graphs) if recipe.descriptors else 0.0)


def _describing(graphs: GraphSet, sample: int = 24) -> float:
    """Seconds to describe the molecules of a set."""
    assert graphs.ids is not None
    chosen = np.linspace(0, len(graphs) - 1, min(sample, len(graphs))).astype(int)
    texts = [graphs.ids[index] for index in chosen]
    descriptors(texts[:1])  # RDKit's own preparations
    started = time.perf_counter()
    descriptors(texts)
    each = (time.perf_counter() - started) / max(1, len(texts))
    return each * len(graphs) / (usable_cores() if len(graphs) > FEW_DESCRIBED else 1)


def within(minutes: float, recipe: Recipe, cost: Cost, networks: int, at_a_time: int = 1) -> tuple[Recipe, int]:
    """A recipe and a number of networks for a budget: as many networks as fit, and fewer epochs where none does.

    Args:
        minutes: the budget.
        recipe: what to train, if there is time.
        cost: what that costs.
        networks: how many, if there is time.
        at_a_time: networks that train at a time.
    """
    if not minutes > 0:
        raise UsageError(f"{{field}} must be more than 0 minutes, got {minutes:g}", "time")
    left = max(0.0, 60 * minutes - cost.descriptors)
    while networks > 1 and cost.seconds(networks, at_a_time) > 60 * minutes:
        networks -= 1
    if cost.network <= left:
        return recipe, networks
    epochs = max(1, min(recipe.epochs, math.floor(recipe.epochs * left / max(cost.network, 1e-9))))
    warmup = recipe.warmup * epochs / recipe.epochs
    return recipe.replace(epochs=epochs, warmup=warmup), networks
