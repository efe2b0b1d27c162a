"""How much faster two workers finish a grid than one, and what the engine itself costs per run.

    python benchmarks/sweep_scaling.py [--repeats 2]

Scaling: a grid of 24 runs on 900 synthetic graphs (3 architectures × 2 depths × 4 seeds, width 64), once short (4
epochs) and once longer (16), with one and with two workers in turn; the fastest of each counts. `seconds` is the whole
sweep, with the seconds that a worker needs to import torch, which weigh more the shorter the grid is; `seconds_running`
counts from the first finished epoch, as in a sweep of hours; `estimated_core_seconds` is what `mlap sweep` says
beforehand that the grid will cost.

Overhead: 60 runs that hardly train (54 graphs, width 4, one epoch) with one worker, from the first finished run to the
last, against the same calls of `train` one after the other in this process: what remains is the engine, the driver and
the study file. `ms_per_run` is the mean. Writes `research/results/sweep_scaling.csv`. It wants an idle machine: the
load before each measurement is written beside it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
from records import made_by, write

from mlap.graphs import GraphSet, packed, synthetic
from mlap.study import LocalEngine, Plan, estimate, sweep
from mlap.study.driver import Started
from mlap.study.engine import Done, EpochDone, Event
from mlap.training import train

GRID = {"architecture": "naive,jk-sum,mlap-sum", "layers": "2,4", "seed": "0-3", "width": 64}
EPOCHS = (4, 16)
TRIVIAL = {"architecture": "naive", "layers": 1, "seed": "0-59", "width": 4, "epochs": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2, help="of the grid with each number of workers")
    parser.add_argument("--epochs", type=int, nargs="+", default=EPOCHS, help="of the runs, a grid for each number")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for epochs in options.epochs for row in scaling(Path(folder), options.repeats, epochs)]
        rows += overhead(Path(folder))
    write("sweep_scaling.csv", rows, made_by("torch"))
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


def scaling(folder: Path, repeats: int, epochs: int) -> list[dict[str, object]]:
    """The grid with one and with two workers, in turn."""
    source, graphs = saved(synthetic(100), folder / f"grid-{epochs}.graphs")
    plan = Plan.of("synthetic", **GRID, epochs=epochs)
    estimated = sum(estimate(plan.recipes(), graphs).seconds)
    times: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
    for repeat in range(repeats):
        for workers in times:
            load = os.getloadavg()[0]
            whole, running, _ = timed_sweep(plan, source, graphs, folder / f"{epochs}-{repeat}-{workers}.db", workers)
            times[workers].append((whole, running, load))
            print(
                f"{epochs} epochs, {workers} workers: {whole:.1f} s, {running:.1f} s running (load {load:.1f} before)"
            )
    best = {workers: min(found) for workers, found in times.items()}
    return [
        {
            "what": f"grid of {len(plan)} runs of {epochs} epochs",
            "workers": workers,
            "seconds": round(whole, 2),
            "speedup": round(best[1][0] / whole, 3),
            "seconds_running": round(running, 2),
            "speedup_running": round(best[1][1] / running, 3),
            "estimated_core_seconds": round(estimated, 2),
            "load_before": round(load, 2),
        }
        for workers, (whole, running, load) in best.items()
    ]


def overhead(folder: Path) -> list[dict[str, object]]:
    """Trivial runs through the engine, and the same calls of `train`."""
    source, graphs = saved(synthetic(6), folder / "trivial.graphs")
    plan = Plan.of("synthetic", **TRIVIAL)
    load = os.getloadavg()[0]
    _, _, between = timed_sweep(plan, source, graphs, folder / "trivial.db", 1)
    swept = between / (len(plan) - 1)
    alone = {}
    for what, out in (("train() without files", None), ("train() with its run directory", folder / "alone")):
        recipes = plan.recipes()
        train(recipes[0], graphs)  # the first call of all is slower
        began = time.perf_counter()
        for recipe in recipes:
            train(recipe, graphs, None if out is None else out / str(recipe.seed))
        alone[what] = (time.perf_counter() - began) / len(recipes)
    measured = {"a run of a sweep": swept, **alone, "the sweep's own share": swept - list(alone.values())[-1]}
    return [
        {"what": what, "workers": 1, "ms_per_run": round(1000 * seconds, 2), "load_before": round(load, 2)}
        for what, seconds in measured.items()
    ]


def timed_sweep(plan: Plan, source: str, graphs: GraphSet, study: Path, workers: int) -> tuple[float, float, float]:
    """Seconds of a whole sweep, of it after the first finished epoch, and after the first finished run."""
    seen: dict[type, float] = {}

    def on_event(event: Started | Event) -> None:
        seen.setdefault(type(event), time.perf_counter())

    began = time.perf_counter()
    outcome = sweep(plan, source, study, engine=LocalEngine(workers), graphs=graphs, on_event=on_event)
    ended = time.perf_counter()
    assert outcome.ran == len(plan)
    return ended - began, ended - seen[EpochDone], ended - seen[Done]


def saved(graphs: GraphSet, path: Path) -> tuple[str, GraphSet]:
    """The set where workers find it."""
    packed.save(graphs, path)
    return str(path), graphs


if __name__ == "__main__":
    main()
