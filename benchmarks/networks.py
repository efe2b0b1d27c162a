"""A training step and an evaluation of the paper's networks, side by side with plain PyG and the limit of the machine.

    python benchmarks/networks.py [--datasets synthetic ogbg-molhiv] [--layers 1 5 10] [--threads 1 2] …
    python benchmarks/networks.py --recommended

Four take turns, with the same weights and the same batches:

- `mlap`: this package;
- `pyg` and `ogb`: the same network of PyG's modules and in the manner of OGB's reference code (`peers.py`), with PyG's
  `DataLoader` and torch's Adam;
- `limit`: the matrix products of the PyG network's step alone, recorded from it and done again with nothing between.

Before anything is timed, logits and gradients of the three are compared, in double precision and without dropout. A
step is: assemble the batch, forward, loss, backward, Adam. An evaluation is the logits of 250 graphs, as each does it
(`mlap` with its batches assembled once, as during training). The fastest of several rounds counts, in processor time
for one thread and on the clock for more: use more only on a machine that does nothing else. `--memory` measures instead
the peak resident memory that training steps add, each in a process of its own; `--profile` says where the time of a
step goes. `--recommended` takes the network for molecules that the package recommends instead of the paper's: BatchNorm
inside and after each layer, d = 64, batches of 64 graphs. Writes `networks.csv`,
`networks_memory.csv`, `networks_profile.csv` or `networks_recommended.csv` in `research/results/`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from peers import OGB, PyG, copy_weights, differences
from records import DATA, made_by, write
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.loader import DataLoader

from mlap import kernels
from mlap.graphs import GraphSet, load_graphs
from mlap.graphs.convert import to_pyg
from mlap.names import PAPER_ARCHITECTURES
from mlap.nn import GraphNetwork, graph_network
from mlap.training.batches import evaluation_batches

BATCH = {"synthetic": 50, "ogbg-molhiv": 20}
PAPER = {"inner_norm": "none", "residual": False, "width": 200}
RECOMMENDED = {"inner_norm": "batch", "residual": False, "width": 64, "batch": 64}
STEPS = 2  # per round, each of another batch
EVALUATED = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(BATCH), choices=list(BATCH))
    parser.add_argument("--architectures", nargs="+", default=list(PAPER_ARCHITECTURES))
    parser.add_argument("--layers", nargs="+", type=int, default=[1, 5, 10])
    parser.add_argument("--norms", nargs="+", default=["none", "graph"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recommended", action="store_true", help="the recommended network for molecules")
    parser.add_argument("--out", help="another name for the file in research/results/")
    parser.add_argument("--memory", action="store_true", help="measure memory, not time")
    parser.add_argument("--profile", action="store_true", help="say where the time goes, with one thread")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(step_memory(**json.loads(options.child)))
        return
    if options.recommended:
        options.datasets, options.norms, options.layers = ["ogbg-molhiv"], ["batch"], [5]
        options.architectures = ["naive", "jk-sum", "mlap-sum", "mlap-weighted"]
    grid = itertools.product(options.datasets, options.norms, options.layers, options.architectures)
    rows: list[dict[str, Any]] = []
    kind = "_memory" if options.memory else "_profile" if options.profile else ""
    kind = "_recommended" if options.recommended else kind
    out = options.out or f"networks{kind}.csv"
    common = made_by("torch", "torch_geometric")
    loaded: dict[str, GraphSet] = {}
    for dataset, norm, layers, architecture in grid:
        case = {"dataset": dataset, "architecture": architecture, "layers": layers, "norm": norm}
        case |= RECOMMENDED if options.recommended else {**PAPER, "batch": BATCH[dataset]}
        if options.memory:
            rows.append({**case, **compare_memory(case)})
            write(out, rows, common)
            continue
        graphs = loaded.get(dataset) or loaded.setdefault(dataset, load(dataset))
        if options.profile:
            rows += [{**case, **row} for row in compare_profiles(graphs, case)]
        else:
            rows += [{**case, **row} for row in compare_times(graphs, case, options.threads, options.rounds)]
        write(out, rows, common)


# ---- the networks ------------------------------------------------------------------------------------------------


def load(dataset: str) -> GraphSet:
    """A data set as every user has it."""
    return load_graphs(dataset, root=DATA)


def make(graphs: GraphSet, case: dict[str, Any], dropout: float) -> dict[str, nn.Module]:
    """The three networks with the same weights."""
    assert graphs.task is not None
    nodes, edges = (
        None if features is None else features.cardinalities
        for features in (graphs.node_features, graphs.edge_features)
    )
    torch.manual_seed(0)
    ours = graph_network(
        case["architecture"],
        num_layers=case["layers"],
        channels=case["width"],
        out_channels=graphs.task.num_outputs,
        nodes=nodes,
        edges=edges,
        norm=case["norm"],
        dropout=dropout,
        residual=case["residual"],
        inner_norm=case["inner_norm"],
    )
    made: dict[str, nn.Module] = {"mlap": ours}
    for name, kind in (("pyg", PyG), ("ogb", OGB)):
        arguments = (case["architecture"], case["layers"], case["width"], graphs.task.num_outputs, case["norm"])
        made[name] = kind(*arguments, dropout, nodes or (), edges or (), case["inner_norm"], case["residual"])
        copy_weights(ours, made[name])
    return made


def for_pyg(graphs: GraphSet, indices: Any) -> list[Any]:
    """Graphs as PyG's users have them: where there are no features, zeros for an embedding to look up."""
    data = to_pyg(graphs.subset(indices))
    for item in data:
        if item.x is None:
            item.x = torch.zeros(item.num_nodes, 1, dtype=torch.long)
        if item.edge_attr is None:
            item.edge_attr = torch.zeros(item.edge_index.size(1), 1, dtype=torch.long)
    return data


def loss_of(logits: Tensor, y: Tensor) -> Tensor:
    """The paper's losses."""
    if logits.size(1) > 1:
        return F.cross_entropy(logits, y)
    return F.binary_cross_entropy_with_logits(logits, y.view_as(logits).to(logits))


def check(graphs: GraphSet, case: dict[str, Any]) -> None:
    """All three give the same logits and gradients, in double precision; that makes their times comparable."""
    made = {name: network.double() for name, network in make(graphs, case, dropout=0.0).items()}
    batch = graphs.batch(range(20))
    data = next(iter(DataLoader(for_pyg(graphs, range(20)), batch_size=20)))
    logits = {name: network(batch if name == "mlap" else data) for name, network in made.items()}
    for name, network in made.items():
        loss_of(logits[name], batch.y).backward()
        torch.testing.assert_close(logits[name], logits["mlap"], rtol=1e-7, atol=1e-9)
        if name != "mlap":
            assert isinstance(network, PyG)
            assert isinstance(made["mlap"], GraphNetwork)
            worst = differences(made["mlap"], network)
            assert worst < 1e-7, f"{case} {name}: gradients differ by {worst:.1e} of the largest"


# ---- time --------------------------------------------------------------------------------------------------------


class Products(TorchDispatchMode):
    """Records the matrix products of what runs inside, to do them again alone."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Tensor, Tensor]] = []
        self.operands: dict[Any, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("mm", "addmm", "addmm_", "bmm"):
            self._add(*args[-2:])
        elif name == "mkldnn_rnn_layer":
            x, weight_x, weight_h = args[:3]
            self._add(x.flatten(0, 1), weight_x.t())
            for step in x:
                self._add(step.new_empty(len(step), weight_h.size(1)), weight_h.t())
        elif name == "mkldnn_rnn_layer_backward":
            x, weight_x, weight_h = args[:3]
            grad = x.new_empty(x[..., 0].numel(), len(weight_x))
            self._add(grad, weight_x)
            self._add(grad.t(), x.flatten(0, 1))
            for step in grad.chunk(len(x)):
                self._add(step, weight_h)
                self._add(step.t(), step.new_empty(len(step), weight_h.size(1)))
        return func(*args, **(kwargs or {}))

    def _add(self, left: Tensor, right: Tensor) -> None:
        """Remember a product of such matrices."""
        self.calls.append((self._like(left, 0), self._like(right, 1)))

    def _like(self, tensor: Tensor, side: int) -> Tensor:
        key = side, tensor.shape, tensor.stride()
        if key not in self.operands:
            self.operands[key] = torch.empty_strided(tensor.shape, tensor.stride()).normal_()
        return self.operands[key]

    def __call__(self) -> None:
        for left, right in self.calls:
            torch.matmul(left, right)


def compare_times(graphs: GraphSet, case: dict[str, Any], threads: list[int], rounds: int) -> Iterator[dict[str, Any]]:
    """The times of a step and of an evaluation, for each number of threads."""
    torch.set_num_threads(max(threads))
    check(graphs, case)
    made = make(graphs, case, dropout=0.5)
    order = np.random.RandomState(0).permutation(graphs.split("train"))
    steps = steppers(graphs, made, order, case["batch"])
    with Products() as products:
        steps["pyg"]()
    steps["limit"] = products

    chosen = order[:EVALUATED]
    assembled = [graphs.batch(part) for part in evaluation_batches(graphs, chosen)]
    evaluation = DataLoader(for_pyg(graphs, chosen), batch_size=case["batch"])
    evaluations = {
        name: evaluator(network, assembled if name == "mlap" else evaluation) for name, network in made.items()
    }
    with Products() as products:
        evaluations["pyg"]()
    evaluations["limit"] = products
    for count in threads:
        torch.set_num_threads(count)
        for what, runs in (("training step", steps), ("evaluation", evaluations)):
            training = runs is steps
            for network in made.values():
                network.train(training)
            clock = time.process_time if count == 1 else time.perf_counter
            times = take_turns(runs, rounds, STEPS if training else 1, clock)
            yield report(case, count, what, times)


def steppers(graphs: GraphSet, made: dict[str, nn.Module], order: Any, size: int) -> dict[str, Callable[[], None]]:
    """A training step of each network; they all see the same few batches of a size, again and again."""
    batches = [list(range(start, start + size)) for start in range(0, STEPS * size, size)]
    loader = DataLoader(for_pyg(graphs, order[: STEPS * size]), batch_sampler=batches)  # type: ignore[arg-type]
    steps = {}
    for name, network in made.items():
        optimizer = torch.optim.Adam(network.parameters(), 1e-3, fused=name == "mlap" or None)
        ours = (graphs.batch(order[part]) for part in itertools.cycle(batches))
        theirs = (batch for _ in itertools.count() for batch in loader)
        steps[name] = stepper(network, optimizer, ours if name == "mlap" else theirs)
    return steps


def stepper(network: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[Any]) -> Callable[[], None]:
    """A function that does one training step of a network in training mode."""

    def step() -> None:
        batch = next(batches)
        optimizer.zero_grad()
        loss_of(network(batch), batch.y).backward()
        optimizer.step()

    return step


def evaluator(network: nn.Module, batches: Any) -> Callable[[], None]:
    """A function that computes the logits of all batches with a network in evaluation mode."""

    def evaluate() -> None:
        with torch.no_grad():
            for batch in batches:
                network(batch)

    return evaluate


def take_turns(
    runs: dict[str, Callable[[], None]], rounds: int, repeats: int, clock: Callable[[], float]
) -> dict[str, float]:
    """The seconds of one call of each: the mean of `repeats` calls, the smallest of all rounds."""
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            started = clock()
            for _ in range(repeats):
                run()
            best[name] = min(best[name], (clock() - started) / repeats)
    return best


def report(case: dict[str, Any], threads: int, what: str, times: dict[str, float]) -> dict[str, Any]:
    """One row, also printed."""
    row = {
        "threads": threads,
        "what": what,
        **{f"{name}_ms": round(seconds * 1e3, 2) for name, seconds in times.items()},
        "pyg_over_mlap": round(times["pyg"] / times["mlap"], 2),
        "ogb_over_mlap": round(times["ogb"] / times["mlap"], 2),
        "limit_over_mlap": round(times["limit"] / times["mlap"], 2),
        "limit_over_pyg": round(times["limit"] / times["pyg"], 2),
    }
    print(" ".join(str(value) for value in (*case.values(), *row.values())), flush=True)
    return row


# ---- where it goes -----------------------------------------------------------------------------------------------

#: what the operators of a step are for, by parts of their names; the first that fits counts
PURPOSES = {
    "matrix products": ("mm", "mv", "rnn"),
    "random numbers": ("bernoulli", "random", "dropout"),
    "gather, scatter, inside of f_NN": ("index", "scatter", "gather", "embedding", "_GinLayer", "_TwoLayers"),
    "normalisation, activation, dropout": ("_Finish", "relu", "threshold", "pow", "sqrt", "div"),
    "attention": ("_Attend", "softmax", "exp"),
    "Adam": ("adam", "Adam", "lerp", "addcmul", "addcdiv", "foreach"),
}


def compare_profiles(graphs: GraphSet, case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The milliseconds that a step spends on each purpose, ours with kernels and without, and PyG's."""
    torch.set_num_threads(1)
    order = np.random.RandomState(0).permutation(graphs.split("train"))
    steps = steppers(graphs, make(graphs, case, dropout=0.5), order, case["batch"])
    for name, fast in (("pyg", True), ("mlap, torch operations", False), ("mlap", True)):
        step = steps[name.partition(",")[0]]
        with nullcontext() if fast else kernels.disabled():
            step()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                for _ in range(STEPS):
                    step()
        spent = dict.fromkeys([*PURPOSES, "others, batches, Python"], 0.0)
        for event in profile.key_averages():
            fitting = (purpose for purpose, parts in PURPOSES.items() if any(part in event.key for part in parts))
            spent[next(fitting, "others, batches, Python")] += event.self_cpu_time_total / STEPS / 1e3
        row = {"network": name, **{purpose: round(ms, 2) for purpose, ms in spent.items()}}
        row["matrix products (%)"] = round(100 * spent["matrix products"] / sum(spent.values()))
        print(" ".join(str(value) for value in (*case.values(), *row.values())), flush=True)
        yield row


# ---- memory ------------------------------------------------------------------------------------------------------


def compare_memory(case: dict[str, Any]) -> dict[str, Any]:
    """The megabytes that training steps add, ours and PyG's."""
    row: dict[str, Any] = {}
    for name in ("mlap", "pyg"):
        child = json.dumps({"case": case, "name": name})
        command = [sys.executable, __file__, "--child", child]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row[f"{name}_mb"] = round(float(done.stdout) / 1024, 1)
    row["mlap_over_pyg"] = round(row["mlap_mb"] / row["pyg_mb"], 2)
    print(" ".join(str(value) for value in (*case.values(), *row.values())), flush=True)
    return row


def step_memory(case: dict[str, Any], name: str) -> int:
    """The kilobytes that steps add to the peak of this process, over what it needed for one of a single graph."""
    torch.set_num_threads(1)
    graphs = load(case["dataset"])
    network = make(graphs, case, dropout=0.5)[name]
    order = np.random.RandomState(0).permutation(graphs.split("train"))[: STEPS * case["batch"]]
    optimizer = torch.optim.Adam(network.parameters(), 1e-3, fused=name == "mlap")
    parts = [order[:1], *np.split(order, STEPS)]
    if name == "mlap":
        batches = iter([graphs.batch(part) for part in parts])
    else:
        batches = iter([next(iter(DataLoader(for_pyg(graphs, part), batch_size=len(part)))) for part in parts])
    step = stepper(network, optimizer, batches)
    step()  # gradients, moments, compiled code
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(STEPS):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


if __name__ == "__main__":
    main()
