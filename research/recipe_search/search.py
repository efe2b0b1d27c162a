"""Train what `plans.py` lists and append a row for each run to `runs.csv`.

    python research/recipe_search/search.py --data DATA [--until HH:MM]

Scores are of validation graphs only; the test graphs are never predicted. The same command continues where it was
stopped. Plans are read again before each run, so a stage added to them meanwhile is found. One thread.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import hashlib
import importlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import plans
import sets
import torch
from fit import fit
from network import Config
from plans import Cell

RUNS = Path(__file__).with_name("runs.csv")
FIELDS = (
    "stage set train_size split seed config last ema best last_halves train_loss seconds".split()  # noqa: SIM905
)
Key = tuple[str, str, str, str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets' folders")
    parser.add_argument("--until", default="99", help="start no run after this time of day")
    options = parser.parse_args()
    sets.DATA = options.data
    torch.set_num_threads(1)
    while time.strftime("%H:%M") < options.until:
        importlib.reload(plans)
        todo = next(unfinished(), None)
        if todo is None:
            break
        run(*todo)


def unfinished() -> Iterator[tuple[str, Cell, dict[str, object]]]:
    """The runs of all plans that have no row yet, in the plans' order."""
    done: set[Key] = set()
    if RUNS.exists():
        with RUNS.open(newline="") as file:
            done = {(r["set"], r["train_size"], r["split"], r["seed"], r["config"]) for r in csv.DictReader(file)}
    for stage, configs, cells in plans.STAGES:
        for cell in cells:
            for config in configs:
                if config.get("descriptors") and cell.set not in ("bace", "bbbp", "esol", "hiv"):
                    continue
                if (cell.set, str(cell.train_size), str(cell.split), str(cell.seed), as_text(config)) not in done:
                    yield stage, cell, config


def as_text(config: dict[str, object]) -> str:
    """What differs from the defaults of `Config`."""
    defaults = dataclasses.asdict(Config())
    return json.dumps({k: v for k, v in sorted(config.items()) if v != defaults[k]})


def run(stage: str, cell: Cell, overrides: dict[str, object]) -> None:
    """Train once; the row goes to the table, the outputs for the validation graphs to the scratch folder."""
    data = sets.search_set(cell.set)
    train, valid = data.split(cell.split, cell.train_size or None)
    fitted = fit(data, train, valid, Config(**overrides), cell.seed)
    row = {
        "stage": stage,
        "set": cell.set,
        "train_size": cell.train_size,
        "split": cell.split,
        "seed": cell.seed,
        "config": as_text(overrides),
        **{k: f"{getattr(fitted, k):.5f}" for k in ("last", "ema", "best", "last_halves", "train_loss")},
        "seconds": f"{fitted.seconds:.1f}",
    }
    new = not RUNS.exists()
    with RUNS.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
    path = outputs_path(cell, as_text(overrides))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, valid=valid, outputs=fitted.outputs, history=fitted.history)
    print(*row.values(), flush=True)


def outputs_path(cell: Cell, config: str) -> Path:
    """Where a run's outputs for the validation graphs are."""
    key = f"{cell.set}|{cell.train_size}|{cell.split}|{cell.seed}|{config}"
    return sets.CACHE / "outputs" / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.npz"


if __name__ == "__main__":
    main()
