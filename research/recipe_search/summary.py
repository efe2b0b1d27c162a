"""Tables of the search: for each configuration its scores by set, mean rank and mean gain over a reference.

    python research/recipe_search/summary.py [--rule last|ema|best] [--stage STAGE …] [--reference JSON]

A gain is relative to the reference of the same cell (set, split, size): of the error, 1 − ROC-AUC or RMSE, in per cent;
more is better. Only cells in which all the listed configurations have run count.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

RUNS = Path(__file__).with_name("runs.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", default="last", choices=("last", "ema", "best"))
    parser.add_argument("--stage", nargs="*", help="only configurations and cells of these stages")
    parser.add_argument("--reference", help="a configuration as in the table; the stage's first unless given")
    parser.add_argument("--sets", nargs="*")
    options = parser.parse_args()
    with RUNS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = [r for r in rows if not options.stage or r["stage"] in options.stage]
    configs = list(dict.fromkeys(r["config"] for r in chosen))
    scores: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for row in rows:
        if row["config"] in configs and (not options.sets or row["set"] in options.sets):
            cell = (row["set"], row["train_size"], row["split"], row["seed"])
            scores[row["config"]][cell] = float(row[options.rule])
    reference = options.reference or configs[0]
    configs = [c for c in configs if scores[c]]
    cells = sorted(set.intersection(*(set(scores[c]) for c in configs)))
    print(f"{len(cells)} cells in which all have run; rule: {options.rule}; reference: {reference}")
    table = np.array([[error(cell, scores[c][cell]) for cell in cells] for c in configs])
    ranks = table.argsort(0).argsort(0).mean(1) + 1
    base = table[configs.index(reference)]
    gains = 100 * (1 - table / base)
    names = list(dict.fromkeys(cell[0] for cell in cells))
    print(f"{'gain %':>7} {'± s.e.':>6} {'rank':>5}  " + " ".join(f"{n:>6}" for n in names))
    for place in np.argsort(-gains.mean(1)):
        by_set = [np.mean([scores[configs[place]][c] for c in cells if c[0] == n]) for n in names]
        spread = gains[place].std(ddof=1) / len(cells) ** 0.5 if len(cells) > 1 else 0.0
        print(
            f"{gains[place].mean():7.2f} {spread:6.2f} {ranks[place]:5.2f}  "
            + " ".join(f"{value:6.4f}" for value in by_set)
            + "  "
            + configs[place]
        )


def error(cell: tuple[str, ...], score: float) -> float:
    """What is to be small: the RMSE, or what the ROC-AUC lacks of 1."""
    return score if cell[0] == "esol" else 1 - score


if __name__ == "__main__":
    main()
