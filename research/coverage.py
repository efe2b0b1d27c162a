"""Promised and measured coverage, and calibration, on ogbg-molhiv and NCI83.

    python -m research.coverage

Each model is calibrated on the validation part and measured on the test part, which it has not seen. ogbg-molhiv is
measured on its own scaffold split, where test molecules differ from validation molecules and the promise of conformal
sets need not hold, and on a random split, where it should. The models are a forest and short runs (a few epochs): the
question is what they promise, not how good they are. Writes `research/results/coverage.csv`, a row for each data set,
split, model, confidence and class; the data are looked for in $MLAP_TEST_DATA.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from benchmarks.records import made_by, real_data, write
from mlap.graphs import GraphSet, load_graphs, random_split
from mlap.models import Ensemble, Model, train

CONFIDENCES = (0.8, 0.9, 0.95)


def main() -> None:
    """Train, calibrate, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5, help="of the runs on ogbg-molhiv; those on NCI83 have 3 times")
    parser.add_argument("--out", default="coverage.csv", help="the file in research/results/")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for data, split, graphs in sets():
        for name, model in models(graphs, arguments.epochs * (3 if data == "NCI83" else 1)):
            for row in measured(model, graphs):
                rows.append({"data": data, "split": split, "model": name, **row})
                print(*rows[-1].values(), sep="  ", flush=True)
            write(arguments.out, rows, made_by("torch", "scikit-learn"))


def sets() -> Iterator[tuple[str, str, GraphSet]]:
    """The data sets with the splits that they are measured on."""
    yield "NCI83", "random", load_graphs(real_data("NCI83"))
    hiv = load_graphs(real_data("ogbg_molhiv"))
    yield "ogbg-molhiv", "scaffold", hiv
    yield "ogbg-molhiv", "random", dataclasses.replace(hiv, splits=random_split(len(hiv)))


def models(graphs: GraphSet, epochs: int) -> Iterator[tuple[str, Model]]:
    """A baseline, a short run, and both together."""
    baseline = "wl-linear" if graphs.ids is None else "rf-assay"
    simple = train(graphs, baseline=baseline, n_jobs=2)
    yield baseline, simple
    network = train(
        graphs, architecture="mlap-sum", layers=3, width=64, epochs=epochs, batch_size=128, device="cpu", progress=False
    )
    yield f"mlap-sum, {epochs} epochs", network
    yield f"{baseline} and mlap-sum", Ensemble.of([simple, network], weights="fitted", data=graphs, part="valid")


def measured(model: Model, graphs: GraphSet) -> Iterator[dict[str, Any]]:
    """Calibration before and after, and coverage at each confidence."""
    model.calibrate(graphs, "valid", method="none")
    before = model.evaluate(graphs, "test")
    model.calibrate(graphs, "valid", method="temperature")
    for confidence in CONFIDENCES:
        after = model.evaluate(graphs, "test", confidence=confidence)
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
