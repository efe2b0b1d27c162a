from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from small import random_graphs

from mlap.analysis import inspect_runs, layer_weights, tsne_maps, write_inspection
from mlap.errors import DataError, UsageError
from mlap.graphs import GraphSet, Task, synthetic
from mlap.models import Run, load
from mlap.training import Recipe, train


def make_runs(graphs: GraphSet, folder: Path, seeds: int = 2, **fields: object) -> list[Run]:
    runs = []
    for seed in range(seeds):
        recipe = Recipe.of({"layers": 2, "width": 6, "epochs": 1, "norm": "none", "seed": seed, **fields})
        path = folder / f"{recipe.architecture}-{recipe.layers}-{seed}"
        train(recipe, graphs, path)
        runs.append(load(path))
    return runs


def test_everything_about_synthetic_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlap.analysis.inspection.tsne_maps", partial(tsne_maps, iterations=250))
    graphs = synthetic(graphs_per_class=6)
    runs = make_runs(graphs, tmp_path, architecture="mlap-weighted")
    steps: list[tuple[str, int, int]] = []
    found = inspect_runs(runs, graphs, epochs=2, max_mapped=30, on_step=lambda *step: steps.append(step))
    assert list(found.tables) == ["class", "centre type", "peripheral type"]
    assert [row.level for row in found.table] == ["1", "2", "aggregate"]
    assert found.table[0].test.n == 2
    assert found.weights is not None
    np.testing.assert_allclose(found.weights[1], layer_weights(runs[1].network))
    assert found.maps is not None
    assert found.maps.points.shape == (3, 30, 2)
    assert [done for _, done, _ in steps] == list(range(11))  # 2 × (representations and 3 probes), 3 maps
    assert {total for _, _, total in steps} == {11}

    files = write_inspection(found, tmp_path / "out")
    names = {"probe", "probe-types", "smoothing", "weights", "tsne"}
    assert {path.name for path in files} == {f"{name}.{kind}" for name in names for kind in ("svg", "png", "csv")}
    assert all(path.stat().st_size > 0 for path in files)
    with (tmp_path / "out" / "smoothing.csv").open(newline="") as file:
        rows = {(row["measure"], row["level"]): row for row in csv.DictReader(file)}
    assert len(rows) == 6
    assert float(rows["neighbours", "2"]["mean"]) == pytest.approx(
        np.mean([one.neighbours[1] for one in found.smoothings])
    )


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_a_naive_network_of_any_task_has_one_probe(kind: str, tmp_path: Path) -> None:
    task = Task(kind, 2, "rocauc" if kind == "binary" else "mae")
    graphs = random_graphs([3, 4, 5] * 20, task=task)
    (run,) = make_runs(graphs, tmp_path, seeds=1, architecture="naive")
    found = inspect_runs([run], graphs, epochs=1)
    assert [row.level for row in found.table] == ["aggregate"]
    assert found.weights is found.maps is None
    assert len(found.smoothings[0].neighbours) == 2
    assert {path.stem for path in write_inspection(found, tmp_path / "out")} == {"probe", "smoothing"}


def test_runs_must_be_seeds_of_one_recipe(tmp_path: Path) -> None:
    graphs = random_graphs([3, 4, 5] * 10, task=Task("multiclass", 2, "accuracy"))
    first, second = make_runs(graphs, tmp_path)
    (deeper,) = make_runs(graphs, tmp_path, seeds=1, layers=3)
    with pytest.raises(UsageError, match=r"differ in layers \(3 and 2\)"):
        inspect_runs([first, deeper], graphs)
    with pytest.raises(UsageError, match="seeds 0, 1, 0"):
        inspect_runs([first, second, first], graphs)
    with pytest.raises(UsageError, match="at least one run"):
        inspect_runs([], graphs)
    with pytest.raises(DataError, match="does not fit the network"):
        inspect_runs([first], synthetic(graphs_per_class=2))
