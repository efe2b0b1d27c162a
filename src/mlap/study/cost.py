"""What a sweep will cost: estimated from runs that are done, and from a few timed training steps."""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mlap.graphs import GraphSet
from mlap.study.search import Search, propose
from mlap.study.store import RunRecord
from mlap.training import Recipe, train

#: scoring a graph costs about this part of training on it: the forward pass of forward, backward and update
_SCORING = 1 / 3
#: recipes of a space, drawn at random, that are timed to say what a search will cost
TIMED = 12
#: fields that do not change the time of a training step
_FREE = ("layers", "seed", "epochs", "lr", "lr_decay", "lr_decay_every", "weight_decay", "dropout")

Family = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Cost:
    """The estimated cost of some runs.

    Args:
        seconds: of one core, for each recipe.
        calibration: seconds that the estimate itself took.
        measured: how many kinds of network were timed for it.
    """

    seconds: list[float]
    calibration: float
    measured: int

    @property
    def core_hours(self) -> float:
        """The cost of all of them."""
        return sum(self.seconds) / 3600


def estimate(
    recipes: Sequence[Recipe],
    graphs: GraphSet,
    known: Iterable[RunRecord] = (),
    *,
    device: str = "cpu",
    budget: float = 20.0,
) -> Cost:
    """Estimate what recipes cost on this machine.

    Networks that differ in depth alone are timed at their largest, smallest and a middle depth; between these, time
    is taken as a power of depth. Finished runs of the same kind and depth on this machine count as timings.

    Args:
        recipes: what is to be run.
        graphs: on what.
        known: runs of the study, finished ones on the same data among them.
        device: the torch device.
        budget: seconds after which no further network is timed; the rest is taken from those that were. The first one
            does not count: on a new machine the kernels are compiled for it.
    """
    began = time.perf_counter()
    timings = _from_runs(known, graphs, device)
    depths: dict[Family, set[int]] = defaultdict(set)
    example = {}
    for recipe in recipes:
        depths[family(recipe)].add(recipe.layers)
        example[family(recipe)] = recipe
    measured = 0
    left = budget
    for pick in (_middle, max, min):  # the most telling ones first, should the budget end
        for kind, found in depths.items():
            layers = pick(found)
            if layers not in timings[kind] and left > 0:
                start = time.perf_counter()
                timings[kind][layers] = time_per_graph(example[kind].replace(layers=layers), graphs, device)
                left -= time.perf_counter() - start if measured else 0
                measured += 1
    shares = _shares(graphs)
    # Of a kind that was not timed at all: the usual time per graph and layer.
    usual = float(np.median([t / layers for kind in timings.values() for layers, t in kind.items()] or [0]))
    seconds = [
        (_at(timings[family(recipe)], recipe.layers) or usual * recipe.layers)
        * (recipe.epochs * (shares["train"] + _SCORING * shares["valid"]) + _SCORING * shares["test"])
        for recipe in recipes
    ]
    return Cost(seconds, time.perf_counter() - began, measured)


def search_seconds(search: Search, *, device: str = "cpu") -> float:
    """The estimated seconds of one core for the trials to come of a search, from `TIMED` recipes of its space."""
    if not search.left:
        return 0.0
    drawn = [propose(search.space, [], False, "random", seed) for seed in range(TIMED)]
    return search.left * sum(estimate(drawn, search.graphs, search.records, device=device).seconds) / len(drawn)


def family(recipe: Recipe) -> Family:
    """What networks have in common whose training steps differ in depth alone."""
    return tuple((name, value) for name, value in recipe.as_dict().items() if name not in _FREE)


def time_per_graph(recipe: Recipe, graphs: GraphSet, device: str = "cpu", steps: int = 3) -> float:
    """Seconds of a training step per graph in it, on one thread: the fastest of a few steps after a first one."""
    # On a CPU the time that this process computes, whatever else the machine does meanwhile.
    clock = time.process_time if device == "cpu" else time.perf_counter
    ticks: list[float] = []

    def on_step(step: int, _: int) -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize()  # a step returns before the GPU has done it
        ticks.append(clock())
        if step > steps or (step > 1 and ticks[-1] - ticks[0] > 0.5):
            raise _EnoughError

    order = graphs.split("train")
    size = min(recipe.batch_size, len(order))
    # The training graphs again and again, where there are too few for the steps.
    order = np.resize(order, size * (steps + 1))
    few = dataclasses.replace(graphs, splits={**graphs.splits, "train": order})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(recipe.replace(epochs=1, stages="", batch_size=size), few, device=device, on_step=on_step)
    except _EnoughError:
        pass
    finally:
        torch.set_num_threads(threads)
    return min(np.diff(ticks)) / size


class _EnoughError(Exception):
    """Stops a training that was started to time its steps."""


def _from_runs(known: Iterable[RunRecord], graphs: GraphSet, device: str) -> dict[Family, dict[int, float]]:
    """Seconds per training graph by kind and depth, from the finished runs on these graphs and this machine."""
    found: dict[Family, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    shares = _shares(graphs)
    for run in known:
        if run.status == "done" and run.seconds and (run.host, run.device) == (platform.node(), device):
            graphs_seen = (run.epochs or 1) * (shares["train"] + _SCORING * shares["valid"])
            found[family(run.recipe)][run.layers].append(run.seconds / graphs_seen)
    timings: dict[Family, dict[int, float]] = defaultdict(dict)
    for kind, by_depth in found.items():
        timings[kind] = {layers: float(np.mean(values)) for layers, values in by_depth.items()}
    return timings


def _shares(graphs: GraphSet) -> dict[str, int]:
    return {name: len(graphs.splits.get(name, ())) for name in ("train", "valid", "test")}


def _middle(depths: Iterable[int]) -> int:
    """The depth nearest to the geometric middle of the smallest and the largest."""
    ordered = sorted(depths)
    return min(ordered, key=lambda depth: abs(math.log(depth * depth / (ordered[0] * ordered[-1]))))


def _at(timings: dict[int, float], layers: int) -> float:
    """The time at a depth, from the times at some; 0 if there are none."""
    if len(timings) < 2:
        return sum(t * layers / depth for depth, t in timings.items())
    depths = sorted(timings)
    return float(np.exp(np.interp(np.log(layers), np.log(depths), np.log([timings[depth] for depth in depths]))))
