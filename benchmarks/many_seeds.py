"""Does it help to train several seeds of one recipe at once, their weights stacked (`torch.func`)?

    python benchmarks/many_seeds.py [--rounds 4]

A training step of K networks that differ in their initial weights, on the same batch of 50 synthetic graphs: `stacked`,
one forward and backward under `torch.vmap` over the stacked weights and one Adam step for all; and `one by one`, K
steps as `mlap train` does them, with the compiled kernels and without. Without dropout, so that losses can be compared
first. One thread, processor time, the fastest of several rounds. Writes `research/results/many_seeds.csv`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from records import made_by, write
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from mlap import kernels
from mlap.graphs import synthetic
from mlap.nn import GraphNetwork, graph_network

SEEDS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    batch = synthetic(graphs_per_class=100).batch(range(50))
    rows = []
    for width, layers in ((16, 3), (64, 3), (200, 3)):
        runs = {"stacked": stacked(width, layers, batch)}
        runs["one by one, torch"] = one_by_one(width, layers, batch, fast=False)
        runs["one by one"] = one_by_one(width, layers, batch, fast=True)
        losses = [run() for run in runs.values()]
        for other in losses[1:]:
            torch.testing.assert_close(other, losses[0], rtol=1e-3, atol=1e-4)
        times = dict.fromkeys(runs, float("inf"))
        for _ in range(options.rounds):
            for name, run in runs.items():
                started = time.process_time()
                run()
                times[name] = min(times[name], time.process_time() - started)
        rows.append(
            {
                "width": width,
                "layers": layers,
                "seeds": SEEDS,
                **{f"{name} (ms)": round(seconds * 1e3, 1) for name, seconds in times.items()},
                "one by one over stacked": round(times["one by one"] / times["stacked"], 2),
            }
        )
        print(rows[-1], flush=True)
    write("many_seeds.csv", rows, made_by("torch"))


def networks(width: int, layers: int) -> list[GraphNetwork]:
    """The same network with the initial weights of each seed."""
    made = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        made.append(graph_network(num_layers=layers, channels=width, out_channels=9, norm="graph", dropout=0.0))
    return made


def stacked(width: int, layers: int, batch: Any) -> Callable[[], Tensor]:
    """A step of all networks together; it returns their losses."""
    made = networks(width, layers)
    parameters, buffers = stack_module_state(made)  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(parameters.values(), 1e-3, fused=True)

    def one(parameters: Any, buffers: Any) -> Tensor:
        return F.cross_entropy(functional_call(made[0], (parameters, buffers), (batch,)), batch.y)

    def step() -> Tensor:
        optimizer.zero_grad()
        losses = vmap(one)(parameters, buffers)
        losses.sum().backward()
        optimizer.step()
        return losses.detach()

    return step


def one_by_one(width: int, layers: int, batch: Any, fast: bool) -> Callable[[], Tensor]:
    """A step of each network after the other; it returns their losses."""
    made = networks(width, layers)
    optimizers = [torch.optim.Adam(network.parameters(), 1e-3, fused=True) for network in made]

    def step() -> Tensor:
        losses = []
        for network, optimizer in zip(made, optimizers, strict=True):
            optimizer.zero_grad()
            with nullcontext() if fast else kernels.disabled():
                loss = F.cross_entropy(network(batch), batch.y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    return step


if __name__ == "__main__":
    main()
