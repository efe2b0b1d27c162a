"""Trained networks on the synthetic validation graphs, without dropout as always, and with it left on.

    python -m research.evaluation_dropout STUDY.runs

STUDY.runs is the folder in which `mlap sweep synthetic --keep-models` keeps its networks. Writes
`research/results/evaluation_dropout.csv`: for each finished one the error rate without dropout; that with dropout, the
mean of `DRAWS`; and that of the mean of their probabilities.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.records import made_by, write
from mlap.graphs import GraphSet, synthetic
from mlap.models import Run, load
from mlap.training.run import RESULT

DRAWS = 20


def main() -> None:
    """Score every network, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="STUDY.runs", type=Path)
    folder = parser.parse_args().runs

    torch.set_num_threads(1)
    graphs = synthetic()
    runs = [load(result.parent) for result in folder.glob(f"*/{RESULT}")]
    runs.sort(key=lambda run: (run.recipe.norm, run.recipe.layers, run.recipe.architecture, run.recipe.seed))
    rows = [score(run, graphs) for run in runs]
    write("evaluation_dropout.csv", rows, made_by("torch", arguments=[folder.name]))


@torch.no_grad()
def score(run: Run, graphs: GraphSet) -> dict[str, Any]:
    """The error rates of a network on the validation graphs."""
    valid = graphs.split("valid")
    batch = graphs.batch(valid)
    assert graphs.y is not None
    classes = torch.from_numpy(graphs.y[valid])

    def error(scores: torch.Tensor) -> float:
        return float((scores.argmax(-1) != classes).double().mean())

    without = error(run.network.eval()(batch))
    torch.manual_seed(0)
    run.network.train()
    draws = [run.network(batch).softmax(-1) for _ in range(DRAWS)]
    row = {
        **{name: getattr(run.recipe, name) for name in ("architecture", "layers", "norm", "seed")},
        "without": without,
        "with_dropout": float(np.mean([error(draw) for draw in draws])),
        "mean_of_draws": error(torch.stack(draws).mean(0)),
    }
    print(row)
    return row


if __name__ == "__main__":
    main()
