"""Promised and measured coverage, and calibration, on ogbg-molhiv and NCI83.

    python -m research.coverage

Each model is calibrated on graphs that it was not trained on, and measured on others. On NCI83 these are the
validation and the test part of a random split. On ogbg-molhiv they are those of its own scaffold split, where test
molecules differ from validation molecules, so that the promise of conformal sets need not hold; and for the same model
two random halves of both parts together, where it should. Writes `research/results/coverage.csv`, a row for each data
set, way to divide, model, confidence and class; the data are looked for in $MLAP_TEST_DATA. The network on NCI83 is a
short run: the question is what it promises, not how good it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.records import made_by, real_data, write
from mlap.graphs import GraphSet, load_graphs
from mlap.models import Ensemble, Model, train
from mlap.training import Recipe

CONFIDENCES = (0.8, 0.9, 0.95)


def main() -> None:
    """Train, calibrate, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15, help="of the network")
    parser.add_argument("--out", default="coverage.csv", help="the file in research/results/")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for data, name, model, divided, fresh, test in cases(arguments.epochs):
        for row in measured(model, fresh, test):
            rows.append({"data": data, "divided": divided, "model": name, **row})
            print(*rows[-1].values(), sep="  ", flush=True)
        write(arguments.out, rows, made_by("torch", "scikit-learn"))


def cases(epochs: int) -> Iterator[tuple[str, str, Model, str, GraphSet, GraphSet]]:
    """Data, model, and the graphs to calibrate on and to measure on."""
    nci = load_graphs(real_data("NCI83"))
    simple = train(nci, baseline="wl-linear")
    recipe = Recipe(architecture="mlap-sum", layers=3, width=64, epochs=epochs, batch_size=128)
    network = train(nci, recipe, device="cpu", progress=False)
    both = Ensemble.of([simple, network], weights="fitted", data=nci, part="valid")
    for name, model in (
        ("wl-linear", simple),
        (f"mlap-sum, {epochs} epochs", network),
        ("wl-linear and mlap-sum", both),
    ):
        yield "NCI83", name, model, "random split", nci.subset(nci.split("valid")), nci.subset(nci.split("test"))
    hiv = load_graphs(real_data("ogbg_molhiv"))
    forest = train(hiv, baseline="rf-assay")
    valid, test = hiv.split("valid"), hiv.split("test")
    yield "ogbg-molhiv", "rf-assay", forest, "scaffold split", hiv.subset(valid), hiv.subset(test)
    mixed = np.random.default_rng(0).permutation(np.concatenate((valid, test)))
    halves = (hiv.subset(np.sort(half)) for half in np.array_split(mixed, 2))
    yield "ogbg-molhiv", "rf-assay", forest, "random halves of valid and test", *halves


def measured(model: Model, fresh: GraphSet, test: GraphSet) -> Iterator[dict[str, Any]]:
    """Calibration before and after, and coverage at each confidence."""
    model.calibrate(fresh, method="none")
    before = model.evaluate(test)
    model.calibrate(fresh, method="temperature")
    for confidence in CONFIDENCES:
        after = model.evaluate(test, confidence=confidence)
        assert after.coverage is not None
        for each in after.coverage:
            yield {
                "rocauc": round(after.values["rocauc"], 4),
                "calibration_error_before": round(before.values["calibration_error"], 4),
                "calibration_error": round(after.values["calibration_error"], 4),
                "log_loss_before": round(before.values["log_loss"], 4),
                "log_loss": round(after.values["log_loss"], 4),
                "confidence": confidence,
                "class": "all" if each.label is None else each.label,
                "graphs": each.graphs,
                "calibration_graphs": _calibration_graphs(model, each.label),
                "coverage": round(each.covered, 4),
                "classes_in_a_set": round(each.size, 4),
                "sets_of_one_class": round(each.single, 4),
            }


def _calibration_graphs(model: Model, label: int | None) -> int:
    """The graphs that a class was calibrated on."""
    assert model.calibrated is not None
    pools: Sequence[Sequence[float]] = model.calibrated.conformal.scores[0]
    return sum(map(len, pools)) if label is None else len(pools[label])


if __name__ == "__main__":
    main()
