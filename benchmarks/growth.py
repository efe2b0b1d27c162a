"""How the time and the memory of a training step grow with the graphs in a batch, their size, the depth and the width.

    python benchmarks/growth.py [--rounds 5]

MLAP-Sum with GraphNorm on random graphs with two arcs per node and no features, one thread. One quantity grows while
the others stay at 50 graphs, 25 nodes, 5 layers and width 100. The time is the processor's, the fastest of several
steps; the memory is the peak that steps add to a process of their own. The exponent is the slope of the last doubling:
1 is linear, 2 quadratic. Writes `research/results/growth.csv` and `research/growth.png`.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from typing import Any

import matplotlib
import numpy as np
import torch
from records import ROOT, made_by, write
from torch.nn import functional as F

from mlap.graphs import GraphSet
from mlap.nn import graph_network

USUAL = {"graphs": 50, "nodes": 25, "layers": 5, "width": 100}
VALUES = {
    "graphs": [50, 100, 200, 400, 800],
    "nodes": [25, 50, 100, 200, 400],
    "layers": [2, 4, 8, 16, 32],
    "width": [50, 100, 200, 400, 800],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(**json.loads(options.child))))
        return
    rows = []
    for name, values in VALUES.items():
        before: dict[str, float] = {}
        for value in values:
            child = json.dumps({**USUAL, name: value, "rounds": options.rounds})
            done = subprocess.run(
                [sys.executable, __file__, "--child", child], capture_output=True, text=True, check=True
            )
            got = json.loads(done.stdout)
            exponents = {
                f"{key}_exponent": round(math.log2(got[key] / before[key]), 2) if before else "" for key in got
            }
            rows.append({"grows": name, "value": value, **{k: round(v, 2) for k, v in got.items()}, **exponents})
            print(*rows[-1].values(), flush=True)
            before = got
    write("growth.csv", rows, made_by("torch"))
    draw(rows)


def measure(graphs: int, nodes: int, layers: int, width: int, rounds: int) -> dict[str, float]:
    """Milliseconds of a step, and the megabytes that steps add."""
    torch.set_num_threads(1)
    network = graph_network("mlap-sum", num_layers=layers, channels=width, out_channels=2, norm="graph")
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    times = []
    for round_number in range(rounds + 1):
        batch = random_graphs(1 if round_number == 0 else graphs, nodes).batch(
            range(1 if round_number == 0 else graphs)
        )
        started = time.process_time()
        optimizer.zero_grad()
        F.cross_entropy(network(batch), torch.zeros(batch.num_graphs, dtype=torch.long)).backward()
        optimizer.step()
        times.append(time.process_time() - started)
        if round_number == 0:  # of a single graph: gradients, moments, compiled code
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"step_ms": min(times[1:]) * 1e3, "memory_mb": max(added, 1) / 1024}


def random_graphs(graphs: int, nodes: int) -> GraphSet:
    """Random directed graphs with two arcs per node."""
    pointer = np.arange(graphs + 1, dtype=np.int64)
    edges = np.random.RandomState(0).randint(0, nodes, (2, 2 * nodes * graphs))
    return GraphSet(pointer * nodes, pointer * 2 * nodes, edges, directed=True)


def draw(rows: list[dict[str, Any]]) -> None:
    """Time and memory against each quantity, on logarithmic axes, with a line of slope one."""
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    from mlap.plotting import styled

    titles = {"graphs": "graphs in a batch", "nodes": "nodes per graph", "layers": "layers", "width": "width"}
    with styled():
        figure, axes = plt.subplots(2, len(VALUES), figsize=(9, 4), sharex="col", sharey="row", layout="constrained")
        for column, name in enumerate(VALUES):
            mine = [row for row in rows if row["grows"] == name]
            for line, key in enumerate(("step_ms", "memory_mb")):
                values, got = [row["value"] for row in mine], [row[key] for row in mine]
                axis = axes[line, column]
                axis.loglog(values, got, marker="o", base=2)
                axis.loglog(values, [got[0] * value / values[0] for value in values], "--", color="0.6", base=2)
                axis.set_yscale("log", base=10)
                axis.set_xticks(values, [str(value) for value in values])
            axes[1, column].set_xlabel(titles[name])
        axes[0, 0].set_ylabel("training step (ms)")
        axes[1, 0].set_ylabel("memory (MB)")
        figure.savefig(ROOT / "research" / "growth.png", dpi=150)


if __name__ == "__main__":
    main()
