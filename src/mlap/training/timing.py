"""How long a training step takes, from a few of them."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import torch

from mlap.graphs import GraphSet
from mlap.training.loop import train
from mlap.training.recipe import Recipe

#: scoring a graph costs about this part of training on it: the forward pass of forward, backward and update
SCORING = 1 / 3


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
