"""Pack, load and train on a data set of ogbg-ppa's shape: how long it takes, and in how much memory.

    python benchmarks/ppa_scale.py [--scale 0.1] [--folder DIR] [--steps 20] [--keep]

Makes the data set (`ppa_like.py`), then runs each stage in a process of its own through the code that `mlap` itself
uses: read and pack the text, load the packed set, go through all training graphs in shuffled batches of 50 (once with
the packed files out of the system's file cache, once with them in it), and train the paper's network of one layer.

Resident memory is the peak that Linux reports for the process (VmHWM), everything included: the interpreter and torch
alone take nearly 400 MB of it. Of this, anonymous memory is what the process has for itself; the rest are pages of
files. Writes `research/results/ppa_scale.csv`, in which figures for the full size are measured or, if they never were,
extrapolated; it says which.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from records import RESULTS, ROOT, made_by
from records import write as write_table

STAGES = ("pack", "load", "batches, cold", "batches, warm", "train")
BATCH = 50
EXTRAPOLATED = "extrapolated: memory as measured, the rest in proportion"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1, help="the share of ogbg-ppa's graphs")
    parser.add_argument("--folder", type=Path, help="where to work  [default: a temporary folder]")
    parser.add_argument("--steps", type=int, default=20, help="training steps")
    parser.add_argument("--keep", action="store_true", help="leave the data in --folder, and use what is there")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not Path("/proc/self/status").exists():
        sys.exit("memory is measured by way of /proc, which this system does not have")
    if options.stage:
        run_stage(options.stage, options.folder, options.steps)
        return

    folder = options.folder or Path(tempfile.mkdtemp(prefix="ppa-"))
    data = folder / "ogbg_ppa"
    if not (options.keep and data.exists()):
        subprocess.run([sys.executable, ROOT / "benchmarks/ppa_like.py", data, f"--scale={options.scale}"], check=True)
    results = []
    for stage in STAGES:
        call = [sys.executable, __file__, "--stage", stage, "--folder", str(folder), "--steps", str(options.steps)]
        done = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True)
        results.append({"stage": stage, **json.loads(done.stdout)})
        print(" | ".join(f"{key} {value}" for key, value in results[-1].items()), flush=True)
    write(results, options.scale, options.steps)
    if not options.keep:
        shutil.rmtree(data)
        shutil.rmtree(folder / "packed")


# ---- a stage, in a process of its own ------------------------------------------------------------------------------


def run_stage(stage: str, folder: Path, steps: int) -> None:
    """Run a stage and print what was measured as JSON."""
    import torch

    from mlap.graphs.sources import load_graphs

    torch.set_num_threads(1)
    data = folder / "ogbg_ppa"
    if stage == "pack":
        shutil.rmtree(folder / "packed", ignore_errors=True)
    if stage == "batches, cold":
        forget(folder / "packed")
    at_start = status("VmRSS")
    with Peak() as peak:
        clock = Clock()
        graphs = load_graphs(data, root=folder)
        extra: dict[str, Any] = {}
        if stage.startswith("batches"):
            clock = Clock()
            extra = go_through(graphs)
        elif stage == "train":
            clock = Clock()
            extra = train(graphs, steps)
        seconds, cpu_seconds = clock.read()
    result = {
        "graphs": len(graphs),
        "edges": graphs.num_edges,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "peak_resident_mb": status("VmHWM"),
        "peak_anonymous_mb": peak.anonymous,
        "resident_at_start_mb": at_start,
        "text_mb": megabytes(data),
        "packed_mb": megabytes(folder / "packed"),
        **extra,
    }
    print(json.dumps(result))


def go_through(graphs: Any) -> dict[str, Any]:
    """One epoch of batches without a network."""
    import numpy as np

    order = np.random.default_rng(0).permutation(graphs.split("train"))
    clock = Clock()
    for start in range(0, len(order), BATCH):
        graphs.batch(order[start : start + BATCH])
    _, cpu_seconds = clock.read()
    return {"cpu_ms_per_batch": round(1000 * cpu_seconds / math.ceil(len(order) / BATCH), 2)}


def train(graphs: Any, steps: int) -> dict[str, Any]:
    """The paper's recipe with one layer, on `steps` random batches and a few validation graphs, all over the files."""
    import numpy as np

    from mlap.graphs import GraphSet
    from mlap.training import Recipe
    from mlap.training import train as train_network

    rng = np.random.default_rng(0)
    sizes = {"train": steps * BATCH, "valid": BATCH}
    few = {name: np.sort(rng.permutation(graphs.split(name))[:size]) for name, size in sizes.items()}
    waited = [0.0]
    batch = GraphSet.batch

    def timed_batch(self: GraphSet, indices: Any) -> Any:
        begun = time.perf_counter()
        assembled = batch(self, indices)
        waited[0] += time.perf_counter() - begun
        return assembled

    GraphSet.batch = timed_batch  # type: ignore[method-assign]
    recipe = Recipe.paper("ogbg-ppa", layers=1, epochs=1)
    clock = Clock()
    train_network(recipe, dataclasses.replace(graphs, splits=few))
    share = round(100 * waited[0] / clock.read()[0], 2)
    return {"steps": math.ceil(len(few["train"]) / BATCH), "percent_waiting_for_batches": share}


class Clock:
    """Seconds since it was made: on the wall, and of this process's own work, whatever else the machine does."""

    def __init__(self) -> None:
        self._started = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._started[0], time.process_time() - self._started[1]


class Peak:
    """The most anonymous memory that the process has, in MB, looked at a hundred times a second."""

    def __enter__(self) -> Peak:
        self.anonymous = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.anonymous = max(self.anonymous, status("RssAnon"))

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self.anonymous = max(self.anonymous, status("RssAnon"))


def status(key: str) -> int:
    """A figure of the process from /proc, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(f"{key}:"))


def forget(folder: Path) -> None:
    """Ask the system to drop the files of a folder from its cache."""
    for file in folder.rglob("*.bin"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def megabytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) >> 20


# ---- the table -----------------------------------------------------------------------------------------------------


def write(results: list[dict[str, Any]], scale: float, steps: int) -> None:
    """Write what was measured and what follows for the full size, unless that was measured; other scales are kept."""
    common = made_by("torch", "numpy", arguments=["--scale", f"{scale:g}", "--steps", str(steps)])
    target = RESULTS / "ppa_scale.csv"
    rows: list[dict[str, Any]] = []
    if target.exists():
        with target.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["basis"] == "measured" and float(row["scale"]) != scale]
    rows += [{"scale": f"{scale:g}", "basis": "measured", **result, **common} for result in results]
    if all(row["scale"] != "1" for row in rows):
        rows += [{"scale": "1", "basis": EXTRAPOLATED, **at_full_size(result, scale), **common} for result in results]
    write_table(target.name, rows, common)


def at_full_size(result: dict[str, Any], scale: float) -> dict[str, Any]:
    """What is to be expected of a stage at full size: see `EXTRAPOLATED`."""
    grown = {key: round(result[key] / scale) for key in ("graphs", "edges", "text_mb", "packed_mb")}
    if result["stage"] not in ("load", "train"):  # the steps of training are given
        grown |= {key: round(result[key] / scale) for key in ("seconds", "cpu_seconds")}
    return {**result, **grown}


if __name__ == "__main__":
    main()
