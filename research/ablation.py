"""What each means of the recommended recipe adds, on validation graphs alone.

    python research/ablation.py --data DATA [--splits 1 2 3]      # hours; the same command continues
    python research/ablation.py --page                             # ablation.md from the CSV alone

The first stages go from the paper's recipe to the recommended one, each with one thing more. The others change one
thing of the recommended recipe: how levels are read (MLAP, JK, naive), and means that it leaves out. Sets, held-out
test graphs and splits are those of `research/recipe_search`: train and valid are divided anew, molecules by scaffold;
large sets give 1,000 to 1,500 training graphs. Scores are those of the last epoch, which nothing was chosen by; `best`
is that of the best epoch, and so too good. One thread, one seed for each split.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import mlap
from mlap.graphs import GraphSet
from mlap.statistics import summarise
from mlap.training import Recipe, recipe_for

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "recipe_search"))

import sets  # noqa: E402  (its folder is on the path only now)

RESULTS = HERE / "results" / "ablation.csv"
PAGE = HERE / "ablation.md"
FIELDS = ("stage", "set", "train_size", "split", "metric", "last", "best", "seconds", "changes", "commit")
#: set → how many training graphs; 0 for all
SETS = {"esol": 0, "bace": 0, "bbbp": 0, "nci1": 1000, "mutag": 1000, "nci83": 1000, "tox21": 1500}
PAPER = "the paper's recipe"
RECOMMENDED = "recommended"
#: what changes the recommended recipe
CHANGES: dict[str, dict[str, Any]] = {
    "naive: the last level alone": {"architecture": "naive"},
    "JK: sum of levels, pooled once": {"architecture": "jk-sum"},
    "MLAP, weighted": {"architecture": "mlap-weighted"},
    "3 layers": {"layers": 3},
    "virtual node": {"virtual_node": True},
    "level 0": {"input_level": True},
    "16 random-walk features": {"walk_features": 16},
    "residual": {"residual": True},
    "gated sum": {"pooling": "gated-sum"},
    "moving average of weights (.99)": {"ema": 0.99},
    "no weight decay": {"weight_decay": 0.0},
    "width 128": {"width": 128},
}


def stages(graphs: GraphSet) -> dict[str, Recipe]:
    """The recipes for a set, by what they are called; a stage that changes nothing for a set is left out."""
    ours = recipe_for(graphs, "recommended")
    paper = Recipe.paper("ogbg-molhiv")
    schedule = ("optimizer", "lr", "weight_decay", "schedule", "warmup", "clip", "batch_size", "epochs")
    steps = {
        "+ AdamW 1e-3, warm-up, cosine, clipping, batch 64": schedule,
        "+ width 64, dropout .2": ("width", "dropout"),
        "+ BatchNorm inside and after": ("norm", "inner_norm"),
        "+ pooling that counts": ("pooling",),
        "+ descriptors": ("descriptors",),
    }
    now = paper.replace(select="last")
    found = {PAPER: now}
    for name, fields in steps.items():
        then = now.replace(**{field: getattr(ours, field) for field in fields})
        if then != now:
            found[name] = now = then
    found.popitem()  # the last step ends at the recommended recipe
    found[RECOMMENDED] = now
    assert now == ours.replace(select="last")
    return found | {name: now.replace(**change) for name, change in CHANGES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the sets' folders")
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.page:
        sets.DATA = options.data
        torch.set_num_threads(1)
        for split in options.splits:
            for name, size in SETS.items():
                measure(name, size, split)
    PAGE.write_text(page(rows()))


def measure(name: str, size: int, split: int) -> None:
    """Train what is not in the CSV yet, of one set and split."""
    done = {(row["stage"], row["set"], row["split"]) for row in rows()}
    data = sets.search_set(name)
    train, valid = data.split(split, size or None)
    graphs = dataclasses.replace(data.graphs, splits={"train": train, "valid": valid})
    for stage, recipe in stages(graphs).items():
        if (stage, name, str(split)) in done:
            continue
        started = time.perf_counter()
        run = mlap.train(graphs, recipe, seed=split, device="cpu", progress=False)
        scores = [epoch.valid_score for epoch in run.history]
        best = max(scores) if run.task.higher_is_better else min(scores)
        changed = {key: value for key, value in run.recipe.as_dict().items() if value != getattr(Recipe(), key)}
        append(
            {
                "stage": stage,
                "set": name,
                "train_size": len(train),
                "split": split,
                "metric": run.task.metric,
                "last": f"{scores[-1]:.5f}",
                "best": f"{best:.5f}",
                "seconds": f"{time.perf_counter() - started:.1f}",
                "changes": " ".join(f"{key}={value}" for key, value in changed.items()),
            }
        )


def rows() -> list[dict[str, str]]:
    """What is in the CSV."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def append(row: dict[str, Any]) -> None:
    """Add a row to the CSV."""
    from recommended import commit

    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row | {"commit": commit()})
    print(row, flush=True)


def page(found: list[dict[str, str]]) -> str:
    """The page that shows the CSV."""
    lines = [
        "# What each means adds",
        "",
        "Made by `python research/ablation.py --page` from `results/ablation.csv`: validation graphs alone, the last",
        "epoch, one seed for each split. A cell is the mean over splits: ROC-AUC, and RMSE for esol. *Gain* is the",
        "relative gain over the recommended recipe in percent, of 1 − ROC-AUC or RMSE, mean ± s.e. over all cells that",
        "both have.",
        "",
        "| recipe | " + " | ".join(SETS) + " | gain |",
        "| --- |" + " --- |" * (len(SETS) + 1),
    ]
    scores = {(row["stage"], row["set"], row["split"]): float(row["last"]) for row in found}
    for stage in dict.fromkeys(row["stage"] for row in found):
        shown, gains = [], []
        for name in SETS:
            values = {s: v for (g, n, s), v in scores.items() if (g, n) == (stage, name)}
            shown.append(f"{fmean(values.values()):.3f}" if values else "")
            for split, value in values.items():
                ours = scores.get((RECOMMENDED, name, split))
                if ours is not None:
                    gains.append(100 * (1 - error(name, value) / error(name, ours)))
        told = summarise(gains) if gains else None
        spread = "" if told is None or told.standard_error is None else f" ± {told.standard_error:.1f}"
        gain = "" if told is None or stage == RECOMMENDED else f"{told.mean:+.1f}{spread}"
        lines.append(f"| {stage} | " + " | ".join(shown) + f" | {gain} |")
    return "\n".join([*lines, ""])


def error(name: str, score: float) -> float:
    """What is to be small: the RMSE, or what the ROC-AUC lacks of 1."""
    return score if name == "esol" else 1 - score


if __name__ == "__main__":
    main()
