"""Ensembles of networks with forests or WL features, from the outputs that `search.py` and `members.py` left.

    python research/recipe_search/ensembles.py --data DATA

Writes `ensembles.csv`: validation scores of one network, of five, of the other member, and of both under three rules
for the weights: `equal` (half each), `standardised` (half each after division by the spread of the logits; the spread
is that of the scored graphs, no label is used), and `fitted` (the weight between 0 and 1 that is best on one half of
the validation graphs, scored on the other half, both ways; compare with `halves equal`). The five networks share
their seed and differ in pooling.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import sets
from fit import score
from numpy.typing import NDArray
from plans import MEMBER_CELLS, QUICK
from search import as_text, outputs_path

TABLE = Path(__file__).with_name("ensembles.csv")
NETWORKS = [
    QUICK,
    *(QUICK | {"pooling": pooling} for pooling in ("mean", "attention-n", "gated")),
    QUICK | {"pooling": "sum", "head": "mlp"},
]
GRID = np.linspace(0, 1, 21)
Array = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets' folders")
    sets.DATA = parser.parse_args().data
    rows: list[dict[str, object]] = []
    for cell in MEMBER_CELLS:
        data = sets.search_set(cell.set)
        valid = data.split(cell.split, cell.train_size or None)[1]
        truth, regression = data.graphs.y[valid, 0].astype(float), data.regression
        networks = np.stack([np.load(outputs_path(cell, as_text(c)))["outputs"][0] for c in NETWORKS])
        others = ["wl-linear"] if data.graphs.ids is None else ["rf-morgan", "rf-assay", "wl-linear"]
        five = networks.mean(0)
        for other in others:
            out = np.load(outputs_path(cell, other))["outputs"][0]
            fitted, halves = by_halves(five, out, truth, regression)
            found = {
                "one network": score(truth, networks[0], regression),
                "mean of single networks": float(np.mean([score(truth, n, regression) for n in networks])),
                "five networks": score(truth, five, regression),
                "other": score(truth, out, regression),
                "equal": score(truth, (five + out) / 2, regression),
                "standardised": score(truth, standard(five, out, regression), regression),
                "halves equal": halves,
                "fitted": fitted,
            }
            rows.append(
                {"set": cell.set, "split": cell.split, "member": other} | {k: f"{v:.4f}" for k, v in found.items()}
            )
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(TABLE.read_text())


def standard(a: Array, b: Array, regression: bool) -> Array:
    """Half each, logits on one scale; values have one already."""
    return (a + b) / 2 if regression else a / a.std() + b / b.std()


def by_halves(a: Array, b: Array, truth: Array, regression: bool) -> tuple[float, float]:
    """The score with the weight that the other half chose, and with half each, as means over the halves."""
    first = np.zeros(len(truth), dtype=bool)
    first[np.argsort(truth, kind="stable")[::2]] = True
    fitted, equal = [], []
    for mine in (first, ~first):
        tried = [score(truth[~mine], (w * a + (1 - w) * b)[~mine], regression) for w in GRID]
        w = GRID[int(np.argmin(tried) if regression else np.argmax(tried))]
        fitted.append(score(truth[mine], (w * a + (1 - w) * b)[mine], regression))
        equal.append(score(truth[mine], ((a + b) / 2)[mine], regression))
    return float(np.mean(fitted)), float(np.mean(equal))


if __name__ == "__main__":
    main()
