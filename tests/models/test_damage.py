"""Damaged models: they answer with numbers or with one of our own errors, and nothing in them is executed."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from damage import answered, damaged_files, damaged_tree, trials
from molecule_models import SMILES, write_library

import mlap
from mlap.arrays import read_arrays, write_arrays
from mlap.errors import DataError
from mlap.files import read_json, write_json
from mlap.graphs import GraphSet
from mlap.models import Ensemble
from mlap.models.shards import merge_shards, predict_shards

pytest.importorskip("rdkit")

MODELS = ("regression", "binary", "forest", "linear", "ensemble")
#: what of a run's directory is read when it is continued
RESUMED = ("last.ckpt", "config.json", "history.csv", "model.safetensors", "result.json", "splits.json")


def graph_set(regression: bool) -> GraphSet:
    smiles = SMILES * 3
    labels = (
        [len(text) + row % 3 / 4 for row, text in enumerate(smiles)] if regression else ["O" in text for text in smiles]
    )
    graphs = mlap.load_graphs(smiles, labels=[float(label) if regression else int(label) for label in labels])
    return dataclasses.replace(graphs, splits={"train": np.arange(20), "valid": np.arange(20, 30)})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small models of all kinds, with their calibrations."""
    folder = tmp_path_factory.mktemp("models")
    values, classes = graph_set(True), graph_set(False)
    settings: dict[str, Any] = {"layers": 2, "width": 8, "epochs": 2}
    mlap.train(values, out=folder / "regression", **settings).calibrate(values, "valid").write(folder / "regression")
    run = mlap.train(classes, out=folder / "binary", descriptors=False, **settings)
    run.calibrate(classes, "valid", method="platt").write(folder / "binary")
    mlap.train(classes, baseline="rf-morgan", out=folder / "forest")
    linear = mlap.train(classes, baseline="wl-linear", out=folder / "linear")
    Ensemble.of([run, linear], data=classes, part="valid").save(folder / "ensemble")
    return folder


def use(path: Path) -> None:
    """Read a model, predict, evaluate, explain."""
    model = mlap.load(path)
    repr(model)
    predictions = model.predict(["CCO", "c1ccccc1N"], confidence=0.5 if model.calibrated else None)
    assert all(np.isfinite(values).all() or row in predictions.invalid for row, values in enumerate(predictions.values))
    predictions.to_csv()
    model.evaluate(graph_set("regression" in path.name), "valid")
    if model.explains and not predictions.invalid:
        list(model.explain(["CCO"]))


@pytest.mark.parametrize("kind", MODELS)
def test_damaged_files(models: Path, kind: str) -> None:
    use(models / kind)
    for file in sorted(path for path in (models / kind).rglob("*") if path.suffix in (".json", ".csv", ".safetensors")):
        for trial in damaged_files(file, trials(12)):
            message = answered(lambda: use(models / kind))
            assert message is not None or file.suffix != ".safetensors", (file, trial)


@pytest.mark.parametrize("name", RESUMED)
def test_damaged_files_of_a_run_that_is_resumed(models: Path, tmp_path: Path, name: str) -> None:
    graphs, recipe = graph_set(True), mlap.load(models / "regression").recipe  # type: ignore[attr-defined]
    for _ in damaged_files(models / "regression" / name, trials(12), seed=1):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(models / "regression", tmp_path / "copy")
        answered(lambda: mlap.train(graphs, recipe, out=tmp_path / "copy", resume=True))


def test_checkpoints_that_lie(models: Path, tmp_path: Path) -> None:
    """Checksums are right, the content is not: a checkpoint is refused, or what it leads to is a sound run."""
    out = tmp_path / "run"
    shutil.copytree(models / "binary", out)
    (out / "result.json").unlink()
    whole = torch.load(out / "last.ckpt", weights_only=True)
    graphs, recipe = graph_set(False), mlap.load(models / "binary").recipe.replace(patience=1)  # type: ignore[attr-defined]
    cut = {**whole, "history": whole["history"][:1], "best_epoch": 1}  # so that an epoch is left to train
    for trial in range(trials(60)):
        torch.save(damaged_tree(cut, np.random.default_rng([2, trial])), out / "last.ckpt")
        message = answered(lambda: mlap.train(graphs, recipe, out=out, resume=True))
        if message is None:
            use(out)


@pytest.mark.parametrize("damage", [lambda array: array * np.nan, lambda array: array + np.inf])
def test_weights_that_are_no_numbers(models: Path, tmp_path: Path, damage: Callable[[Any], Any]) -> None:
    shutil.copytree(models / "binary", tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    arrays = read_arrays(path)
    arrays["head.weight"] = damage(arrays["head.weight"])
    write_arrays(path, arrays)
    message = answered(lambda: mlap.load(tmp_path / "run"))
    assert message is not None
    assert "head.weight" in message


@pytest.mark.parametrize(("name", "value"), [("layers", 1000), ("width", 100_000)])
def test_sizes_that_fill_no_memory(models: Path, tmp_path: Path, name: str, value: int) -> None:
    """A network of terabytes is refused before it is built."""
    shutil.copytree(models / "binary", tmp_path / "run")
    config = read_json(tmp_path / "run" / "config.json")
    config["recipe"][name] = value
    write_json(tmp_path / "run" / "config.json", config)
    message = answered(lambda: mlap.load(tmp_path / "run"))
    assert message is not None
    assert "model.safetensors" in message


@pytest.mark.parametrize("name", ["manifest.json", "000000.csv", "000001.csv"])
def test_damaged_shards(models: Path, tmp_path: Path, name: str) -> None:
    table = write_library(tmp_path / "library.csv", 50)
    whole = tmp_path / "whole"
    predict_shards(mlap.load(models / "binary"), table, whole, rows=20, processes=1)
    model = mlap.load(models / "binary")

    def finish() -> None:
        predict_shards(model, table, tmp_path / "shards", rows=20, processes=1)
        merge_shards(tmp_path / "shards", tmp_path / "merged.csv")

    for _ in damaged_files(whole / name, trials(40)):
        shutil.rmtree(tmp_path / "shards", ignore_errors=True)
        shutil.copytree(whole, tmp_path / "shards")
        answered(finish)


def test_an_answer_that_is_no_number(models: Path, tmp_path: Path) -> None:
    """A row without a finite answer says so; labelled graphs without one cannot be scored."""
    shutil.copytree(models / "regression", tmp_path / "run")
    config = read_json(tmp_path / "run" / "config.json")
    config["targets"]["std"] = [1e308]
    config["targets"]["mean"] = [1.7e308]
    write_json(tmp_path / "run" / "config.json", config)
    model = mlap.load(tmp_path / "run")
    found = model.predict([*SMILES, "C("], confidence=0.5)
    assert np.isfinite(found.values).all(axis=1).tolist() == [row not in found.invalid for row in range(len(found))]
    assert "finite" in found.invalid[0]
    assert found.table()["label_lower"][0] is None
    with pytest.raises(DataError, match="graph 20"):
        model.evaluate(graph_set(True), "valid")
