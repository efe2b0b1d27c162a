"""The networks of two checkouts side by side: did a change make a step or an evaluation slower?

    python benchmarks/before_after.py OTHER_CHECKOUT [--rounds 12] [--threads 1 2] [--layers 2 5] …

Two processes, one with the sources of each checkout, take turns: a few training steps (forward, loss, backward, Adam),
then the logits of 250 graphs. They have the same seed, weights and batches, and what they compute is compared: the
logits before, and the losses of the first steps, with dropout. Times are processor times, of all threads, the smallest
of all rounds, so that a machine that others use can be measured on; threads that wait do not spin
(`OMP_WAIT_POLICY=passive`). Writes `before_after.csv` in `research/results/`: one row for each cell;
`before_over_after` above 1 is faster now.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BATCH = {"synthetic": 50, "ogbg-molhiv": 20}
STEPS = 2  # of a round, each with another batch
EVALUATED = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of the project before the change")
    parser.add_argument("--datasets", nargs="+", default=list(BATCH), choices=list(BATCH))
    parser.add_argument("--architectures", nargs="+", default=["naive", "jk-lstm", "mlap-weighted"])
    parser.add_argument("--layers", nargs="+", type=int, default=[2, 5])
    parser.add_argument("--norms", nargs="+", default=["none", "graph"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", default="before_after.csv", help="the file in research/results/")
    options = parser.parse_args()
    from records import made_by, write

    arguments = [commit(options.other), *sys.argv[2:]]  # where the other checkout lies says nothing to a reader
    common = {**made_by("torch", "torch_geometric", "numba", arguments=arguments)}
    common |= {"before": commit(options.other), "after": commit(ROOT)}
    workers = {"before": Worker(options.other), "after": Worker(ROOT)}
    rows: list[dict[str, Any]] = []
    grid = itertools.product(options.datasets, options.norms, options.layers, options.architectures, options.threads)
    for dataset, norm, layers, architecture, threads in grid:
        case = {"dataset": dataset, "architecture": architecture, "layers": layers, "norm": norm, "threads": threads}
        for row in compare(workers, {**case, "width": options.width}, options.rounds):
            rows.append({**case, "width": options.width, **row})
            print(" ".join(str(value) for value in rows[-1].values()), flush=True)
        write(options.out, rows, common)
    for worker in workers.values():
        worker.close()
    ratios = [row["before_over_after"] for row in rows]
    print(f"{len(ratios)} cells: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


def compare(workers: dict[str, Worker], case: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    """A row for training and one for evaluation."""
    first = {name: worker.ask("make", case) for name, worker in workers.items()}
    for before, after in zip(first["before"], first["after"], strict=True):
        assert abs(before - after) <= 1e-3 * max(1, abs(before)), f"{case}: {first}"
    rows = []
    for what in ("training step", "evaluation"):
        best = dict.fromkeys(workers, float("inf"))
        for number in range(rounds):
            for name in workers if number % 2 else reversed(workers):  # whoever begins has no advantage
                best[name] = min(best[name], workers[name].ask("time", what))
        times = {f"{name}_ms": round(1e3 * seconds, 3) for name, seconds in best.items()}
        rows.append({"what": what, **times, "before_over_after": round(best["before"] / best["after"], 3)})
    return rows


def commit(checkout: Path) -> str:
    """The commit of a checkout; with a + if there are changes to its sources."""
    git = ["git", "-C", str(checkout)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    changed = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=True).stdout
    return name.strip() + ("+" if changed else "")


class Worker:
    """A process with the sources of a checkout."""

    def __init__(self, checkout: Path) -> None:
        sources = str(checkout.resolve() / "src")
        environment = {**os.environ, "PYTHONPATH": sources, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2"}
        environment["NUMBA_CACHE_DIR"] = str(checkout.resolve() / "build" / "numba")
        code = f"import sys; sys.path.insert(1, {str(Path(__file__).parent)!r}); import before_after as b; b.work()"
        command = [sys.executable, "-c", code]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, verb: str, about: Any) -> Any:
        """The worker's answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([verb, about]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# ---- in the worker -----------------------------------------------------------------------------------------------


def work() -> None:
    """Answer requests until there are none."""
    runs: dict[str, Callable[[], list[float]]] = {}
    for line in sys.stdin:
        verb, about = json.loads(line)
        if verb == "make":
            runs, answer = make(about)
        else:
            runs[about]()
            started = time.process_time()
            runs[about]()
            answer = time.process_time() - started
        print(json.dumps(answer), flush=True)


def make(case: dict[str, Any]) -> tuple[dict[str, Callable[[], list[float]]], list[float]]:
    """What is timed, and numbers that must be the same in both checkouts."""
    import numpy as np
    import torch
    from torch.nn import functional as F

    from mlap.nn import graph_network

    torch.set_num_threads(case["threads"])
    graphs = load(case["dataset"])
    assert graphs.task is not None
    nodes, edges = (
        None if features is None else features.cardinalities
        for features in (graphs.node_features, graphs.edge_features)
    )
    torch.manual_seed(0)
    sizes = {"num_layers": case["layers"], "channels": case["width"], "out_channels": graphs.task.num_outputs}
    network = graph_network(case["architecture"], **sizes, nodes=nodes, edges=edges, norm=case["norm"])
    optimizer = torch.optim.Adam(network.parameters(), 1e-4, fused=True)
    order = np.random.RandomState(0).permutation(graphs.split("train"))
    size = BATCH[case["dataset"]]
    batches = [graphs.batch(order[start : start + size]) for start in range(0, STEPS * size, size)]
    evaluated = [graphs.batch(part) for part in np.array_split(order[:EVALUATED], 2)]

    def step(batch: Any) -> float:
        optimizer.zero_grad()
        logits = network(batch)
        loss = (
            F.cross_entropy(logits, batch.y)
            if logits.size(1) > 1
            else F.binary_cross_entropy_with_logits(logits, batch.y.view_as(logits).to(logits))
        )
        loss.backward()
        optimizer.step()
        return loss.item()

    def train() -> list[float]:
        network.train()
        return [step(batch) for batch in batches]

    def evaluate() -> list[float]:
        network.eval()
        with torch.no_grad():
            return [network(batch).sum().item() for batch in evaluated]

    return {"training step": train, "evaluation": evaluate}, evaluate() + train()


def load(dataset: str) -> Any:
    """A data set, loaded once."""
    from mlap.graphs import load_graphs

    if dataset not in _loaded:
        from records import DATA

        _loaded[dataset] = load_graphs(dataset, root=DATA)
    return _loaded[dataset]


_loaded: dict[str, Any] = {}


if __name__ == "__main__":
    main()
