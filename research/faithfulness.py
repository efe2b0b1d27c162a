"""Faithfulness of explanations on ogbg-molhiv: remove the atoms with the highest shares, or others, and compare.

    python -m research.faithfulness                # trains two short runs (minutes on one core), then measures
    python -m research.faithfulness --run RUN …    # measures trained runs

Writes `research/results/faithfulness.csv`: for each run, place and order of removal, the mean change of the logit over
test molecules and its standard error. The short runs are kept in `runs/faithfulness` and not trained again. The data
are looked for in $MLAP_TEST_DATA, by default `../shared/data` beside the checkout.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import mlap
from benchmarks.records import DATA, ROOT, made_by, write
from mlap.analysis.faithfulness import measure_faithfulness
from mlap.graphs.sources import load_graphs
from mlap.models import Run, load
from mlap.training import Recipe, train


def main() -> None:
    """Train or load, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA / "ogbg_molhiv", help="the data set")
    parser.add_argument(
        "--run", type=Path, nargs="+", default=[], help="trained runs; short ones are made unless given"
    )
    parser.add_argument("--epochs", type=int, default=6, help="of the short runs")
    parser.add_argument("--graphs", type=int, default=1000, help="test molecules, drawn at random")
    parser.add_argument("--out", default="faithfulness.csv", help="the file in research/results/")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    graphs = load_graphs(arguments.data)
    large_enough = graphs.split("test")[np.diff(graphs.node_ptr)[graphs.split("test")] >= 2]
    chosen = np.random.RandomState(0).permutation(large_enough)[: arguments.graphs]
    rows = []
    for path in arguments.run or [short_run(graphs, norm, arguments.epochs) for norm in ("none", "graph")]:
        run = load(path)
        for removal in measure_faithfulness(run.network, graphs, chosen):
            row = {
                **describe(run),
                "removed_from": removal.place,
                "order": removal.order,
                "fraction_removed": removal.fraction,
                "nodes_removed": round(removal.nodes, 3),
                "molecules": removal.change.n,
                "logit_change": round(removal.change.mean, 5),
                "logit_change_standard_error": round(removal.change.standard_error or 0, 5),
                "size_of_change": round(removal.size.mean, 5),
                "size_of_change_standard_error": round(removal.size.standard_error or 0, 5),
            }
            rows.append(row)
            print(*row.values(), sep="  ", flush=True)
    write(arguments.out, rows, made_by("torch"))


def short_run(graphs: mlap.GraphSet, norm: str, epochs: int) -> Path:
    """A small network, trained for a few epochs: far from the paper's, good enough to be explained."""
    recipe = Recipe.paper(
        "ogbg-molhiv", layers=3, width=64, norm=norm, epochs=epochs, batch_size=64, lr=1e-3, dropout=0.2
    )
    path = ROOT / "runs" / "faithfulness" / f"{norm}-{epochs}-epochs"
    train(recipe, graphs, path, resume=True, on_epoch=lambda epoch: print(f"norm {norm}: {epoch}", flush=True))
    return path


def describe(run: Run) -> dict[str, object]:
    """What the rows say about a run."""
    result = run.result or {}
    return {
        "architecture": run.recipe.architecture,
        "layers": run.recipe.layers,
        "width": run.recipe.width,
        "norm": run.recipe.norm,
        "epochs": run.recipe.epochs,
        "test_rocauc": round(result.get("test_score") or float("nan"), 4),
    }


if __name__ == "__main__":
    main()
