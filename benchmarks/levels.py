"""What a subset of the levels costs, side by side with all of them.

    python benchmarks/levels.py [--repeats 7]

MLAP-Sum and JK-Sum of 8 layers and 64 or 200 channels on 100 graphs of the synthetic set: a training step, an
evaluation, the bytes that the forward pass keeps for the backward pass, and the parameters. `learned` is a network that
was trained with a learned subset and has kept levels 1 to 3; the layers above are gone in evaluation, and are all there
in training. The networks take turns; the fastest of each counts. One thread, processor time. Writes
`research/results/levels_cost.csv`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from records import made_by, write
from torch import Tensor
from torch.nn import functional as F

from mlap.graphs import GraphBatch, synthetic
from mlap.nn import GraphNetwork, graph_network

LAYERS = 8
#: what is read; the first is what others are compared with
CHOICES = ("", "1+3+5", "1+2+3", "last:4", "last:2", "learned")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="of each measurement")
    parser.add_argument("--graphs", type=int, default=100, help="in the batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    graphs = synthetic(graphs_per_class=max(10, options.graphs // 9 + 1))
    batch = graphs.batch(range(options.graphs))
    rows = []
    for architecture in ("mlap-sum", "jk-sum"):
        for channels in (64, 200):
            rows += measure(architecture, channels, batch, options.repeats)
    for row in rows:
        print(
            f"{row['architecture']:<9} width {row['width']:>3}  levels {row['levels']:<8} "
            f"step {row['step_ms']:>7} ms ({row['step_ratio']})  evaluation {row['evaluation_ms']:>7} ms "
            f"({row['evaluation_ratio']})  kept {row['kept_mb']:>6} MB ({row['kept_ratio']})"
        )
    write("levels_cost.csv", rows, {"repeats": options.repeats, "graphs": options.graphs, **made_by("torch", "numba")})


def measure(architecture: str, channels: int, batch: GraphBatch, repeats: int) -> list[dict[str, Any]]:
    """All choices of one kind of network, which take turns."""
    networks = {levels: make(architecture, channels, levels) for levels in CHOICES}
    # In training a learned subset still has all its levels; afterwards the rest is gone.
    settled = {levels: network for levels, network in networks.items() if levels != "learned"}
    settled["learned"] = settle(make(architecture, channels, "learned"))
    kept = {levels: bytes_kept(network, batch) for levels, network in networks.items()}
    steps = fastest({name: lambda n=n: step(n, batch) for name, n in networks.items()}, repeats)
    evaluations = fastest({name: lambda n=n: evaluate(n, batch) for name, n in settled.items()}, repeats)
    return [
        {
            "architecture": architecture,
            "layers": LAYERS,
            "width": channels,
            "levels": levels or "all",
            "parameters": sum(p.numel() for p in settled[levels].parameters()),
            "step_ms": round(1000 * steps[levels], 2),
            "step_ratio": round(steps[levels] / steps[""], 2),
            "evaluation_ms": round(1000 * evaluations[levels], 2),
            "evaluation_ratio": round(evaluations[levels] / evaluations[""], 2),
            "kept_mb": round(kept[levels] / 1e6, 2),
            "kept_ratio": round(kept[levels] / kept[""], 2),
        }
        for levels in CHOICES
    ]


def make(architecture: str, channels: int, levels: str) -> GraphNetwork:
    """A network of the paper's kind."""
    torch.manual_seed(0)
    return graph_network(
        architecture, num_layers=LAYERS, channels=channels, out_channels=9, norm="graph", levels=levels
    )


def settle(network: GraphNetwork) -> GraphNetwork:
    """The network as if its training had kept levels 1 to 3."""
    with torch.no_grad():
        network.readout.join.scores[3:] = -1.0
    network.settle()
    return network


def step(network: GraphNetwork, batch: GraphBatch) -> None:
    """Forward and backward."""
    network.train()
    network.zero_grad()
    assert batch.y is not None
    F.cross_entropy(network(batch), batch.y).backward()


def evaluate(network: GraphNetwork, batch: GraphBatch) -> None:
    """Forward alone."""
    network.eval()
    with torch.inference_mode():
        network(batch)


def bytes_kept(network: GraphNetwork, batch: GraphBatch) -> int:
    """The bytes of all tensors that autograd keeps for the backward pass, each once, parameters aside."""
    own = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    sizes: dict[int, int] = {}
    tensors = []  # alive until the end, so that no two share an address

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
            tensors.append(tensor)
        return tensor

    network.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = network(batch)
        assert batch.y is not None
        F.cross_entropy(logits, batch.y)
    return sum(sizes.values())


def fastest(calls: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """The processor seconds of the fastest call of each, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(repeats + 1):
        for name, call in calls.items():
            started = time.process_time()
            call()
            if number:
                times[name].append(time.process_time() - started)
    return {name: min(found) for name, found in times.items()}


if __name__ == "__main__":
    main()
