"""Calibration and conformal sets as parts of a model: what predictions say, what is measured, what is stored."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax

from mlap.errors import DataError, UsageError
from mlap.graphs import GraphSet, Task, molecules
from mlap.models import Model, load, train
from mlap.models.calibrated import alpha_of
from mlap.models.conformal import Conformal

Array = NDArray[Any]

METRICS = {"binary": "rocauc", "multiclass": "accuracy", "regression": "rmse"}
PIECES = ["C", "N", "O", "CC", "C(=O)", "c1ccccc1", "S", "C(F)", "C#C"]


def labelled(kind: str, count: int = 460) -> GraphSet:
    """Small molecules with labels that noise makes hard; two thirds of them are for validation."""
    rng = np.random.default_rng(1)
    smiles = ["".join(rng.choice(PIECES, size=rng.integers(2, 7))) for _ in range(count)]
    graphs = molecules(smiles).graphs
    amounts = np.array([[text.count("N"), text.count("O")] for text in smiles], np.float32)
    amounts += rng.normal(scale=0.7, size=amounts.shape).astype(np.float32)
    y: Array
    if kind == "multiclass":
        y = np.digitize(amounts[:, 0], [0.5, 1.5]).astype(np.int64)
        task = Task(kind, 3, METRICS[kind], ("none", "one", "more"))
    elif kind == "binary":
        y = (amounts > 0.8).astype(np.float32)
        task = Task(kind, 2, METRICS[kind], ("N", "O"), (("no N", "with N"), ("no O", "with O")))
    else:
        y = amounts * 10
        task = Task(kind, 2, METRICS[kind], ("N", "O"))
    splits = {"train": np.arange(100), "valid": np.arange(100, 300), "test": np.arange(300, count)}
    return dataclasses.replace(graphs, y=y, task=task, splits=splits).validate()


@pytest.fixture(scope="module", params=METRICS)
def made(request: pytest.FixtureRequest) -> tuple[GraphSet, Model]:
    graphs = labelled(request.param)
    model = train(graphs, layers=2, width=16, epochs=25, batch_size=20, lr=0.01, device="cpu")
    return graphs, model


def log_loss(model: Model, graphs: GraphSet, part: str) -> float:
    return model.evaluate(graphs, part).values["log_loss"]


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_probabilities_become_truer_and_logits_stay(kind: str, method: str) -> None:
    graphs = labelled(kind)
    model = train(graphs, layers=2, width=16, epochs=25, batch_size=20, lr=0.01, device="cpu")
    before, logits = log_loss(model, graphs, "valid"), model.logits(graphs)
    model.calibrate(graphs, "valid", method=method)
    assert model.calibrated is not None
    assert model.calibrated.method == method
    assert log_loss(model, graphs, "valid") < before + 1e-9
    np.testing.assert_array_equal(model.logits(graphs), logits)
    values = model.predict(graphs).values
    assert ((values >= 0) & (values <= 1)).all()
    if kind == "multiclass":
        np.testing.assert_allclose(values.sum(axis=1), 1)
    model.calibrate(graphs, "valid", method="none")
    assert model.calibrated.method == "none"
    assert log_loss(model, graphs, "valid") == pytest.approx(before, rel=1e-5)


def test_a_temperature_changes_no_decision(made: tuple[GraphSet, Model]) -> None:
    graphs, model = made
    model.calibrated = None
    plain, before = model.predict(graphs), model.evaluate(graphs, "test")
    model.calibrate(graphs, "valid")
    after = model.evaluate(graphs, "test")
    np.testing.assert_array_equal(model.predict(graphs).labels, plain.labels)
    kept = ("accuracy", "mcc", "f1") if model.task.kind != "regression" else ("rmse", "r2")
    assert [after.values[name] for name in kept] == [before.values[name] for name in kept]


def test_labels_and_scores_agree_whatever_the_map() -> None:
    """A steep offset moves the border between yes and no; evaluate and predict must move it alike."""
    graphs = labelled("binary")
    model = train(graphs, baseline="wl-linear")
    model.calibrate(graphs, "valid", method="isotonic")
    rows = graphs.split("test")
    found = model.predict(graphs.subset(rows)).labels
    assert graphs.y is not None
    expected = np.mean([np.mean((found[:, t] == "with " + "NO"[t]) == (graphs.y[rows, t] > 0.5)) for t in (0, 1)])
    assert model.evaluate(graphs, "test").values["accuracy"] == pytest.approx(expected)


def test_sets_and_intervals_are_those_of_split_conformal_prediction(made: tuple[GraphSet, Model]) -> None:
    """The oracle is `Conformal` on plain probabilities, which has tests of its own against crepes."""
    graphs, model = made
    kind, valid = model.task.kind, graphs.split("valid")
    model.calibrate(graphs, "valid", method="temperature")
    logits = np.asarray(model.logits(graphs), np.float64)
    model_values = model.predict(graphs).values if kind == "regression" else logits
    values = {"binary": expit, "multiclass": lambda z: softmax(z, axis=1), "regression": np.asarray}[kind](model_values)
    assert graphs.y is not None
    oracle = Conformal.fit(kind, values[valid], graphs.y[valid])
    found = model.predict(graphs, confidence=0.8).more
    if kind == "regression":
        ends = oracle.intervals(values, 0.2)
        np.testing.assert_allclose(found["N_lower"], ends[:, 0, 0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["O_upper"], ends[:, 1, 1], rtol=1e-4, atol=1e-4)
    elif kind == "binary":
        sets = oracle.sets(values, 0.2)[:, 1]
        names = {(True, True): "no O or with O", (True, False): "no O", (False, True): "with O", (False, False): "none"}
        assert found["O_conformal_set"] == [names[tuple(row)] for row in sets.tolist()]
    else:
        sets = oracle.sets(values, 0.2)
        words = np.array(["none", "one", "more"], object)
        assert found["conformal_set"] == [" or ".join(words[row]) or "none" for row in sets]


def test_measured_coverage(made: tuple[GraphSet, Model]) -> None:
    """On fresh graphs of the same kind the promise holds, up to the luck of 160 of them."""
    graphs, model = made
    model.calibrate(graphs, "valid")
    found = model.evaluate(graphs, "test", confidence=0.8).coverage
    assert found is not None
    targets = [each for each in found if each.label is None]
    assert len(targets) == (1 if model.task.kind == "multiclass" else 2)
    assert all(each.graphs == 160 for each in targets)
    assert all(0.7 < each.covered < 0.95 for each in targets)
    if model.task.kind != "regression":
        counts = [each.graphs for each in found if each.label is not None and each.target == 0]
        assert sum(counts) == 160


def test_few_graphs_promise_nothing_and_say_so() -> None:
    graphs = labelled("binary")
    model = train(graphs, baseline="wl-linear")
    calibrated = model.calibrate(graphs.subset(np.arange(100, 108)))
    assert any("too few" in note for note in calibrated.notes)
    assert any("too few" in note for note in calibrated.warnings(model.task, 0.9))
    found = model.predict(graphs, confidence=0.9).more["N_conformal_set"]
    assert set(found) == {"no N or with N"}


def test_whoever_asks_the_objective_gets_calibrated_probabilities() -> None:
    graphs = labelled("multiclass")
    model = train(graphs, baseline="wl-linear")
    plain = model.predict(graphs).values
    model.calibrate(graphs, "valid", method="platt")
    found = model.objective.predict(torch.from_numpy(model.logits(graphs)))
    np.testing.assert_array_equal(found, model.predict(graphs).values)
    assert (found != plain).any()
    model.calibrated = None
    np.testing.assert_array_equal(model.predict(graphs).values, plain)


def test_reliability_is_that_of_the_bins() -> None:
    graphs = labelled("binary")
    model = train(graphs, baseline="wl-linear")
    found = model.evaluate(graphs, "test")
    rows = graphs.split("test")
    assert graphs.y is not None
    p, y = model.predict(graphs.subset(rows)).values[:, 0], graphs.y[rows, 0]
    points = {round(mean, 9): (share, number) for mean, share, number in found.reliability["N"]}
    for low in np.arange(10) / 10:
        inside = (p >= low) & (p < low + 0.1)
        if inside.any():
            share, number = points.pop(round(float(p[inside].mean()), 9))
            assert share == pytest.approx(y[inside].mean())
            assert number == inside.sum()
    assert not points
    error = sum(number * abs(mean - share) for mean, share, number in found.reliability["N"]) / len(rows)
    assert found.by_target["N"]["calibration_error"] == pytest.approx(error)


def test_stored_beside_the_model(made: tuple[GraphSet, Model], tmp_path: Path) -> None:
    graphs, model = made
    model.calibrate(graphs, "valid")
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.calibrated == model.calibrated
    np.testing.assert_array_equal(again.predict(graphs).values, model.predict(graphs).values)
    assert again.predict(graphs, confidence=0.9).more == model.predict(graphs, confidence=0.9).more
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    again.calibrate(graphs.subset(np.arange(100, 250)))  # new data exchange it
    third = load(tmp_path / "model")
    assert third.calibrated is not None
    assert third.calibrated.data["graphs"] == 150
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "fact"),
    [({"format": 9}, "9"), ({"conformal": {}}, "calibration.json"), ({"calibration": {"maps": 3}}, "calibration.json")],
)
def test_damaged_files(change: dict[str, Any], fact: str, tmp_path: Path) -> None:
    graphs = labelled("multiclass")
    model = train(graphs, baseline="wl-linear", out=tmp_path / "m")
    model.calibrate(graphs, "valid")
    file = tmp_path / "m" / "calibration.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, **change}))
    with pytest.raises(DataError, match=fact):
        load(tmp_path / "m")
    other = labelled("binary")
    train(other, baseline="wl-linear", out=tmp_path / "other").calibrate(other, "valid")
    file.write_text((tmp_path / "other" / "calibration.json").read_text())
    with pytest.raises(DataError, match="another task"):
        load(tmp_path / "m")


def test_other_weights_void_a_calibration(tmp_path: Path) -> None:
    graphs, out = labelled("binary"), tmp_path / "run"
    small = {"layers": 1, "width": 8, "lr": 0.01, "device": "cpu", "out": out}
    train(graphs, epochs=1, **small).calibrate(graphs, "valid")
    train(graphs, epochs=1, resume=True, **small)  # nothing to be done: it stays
    assert load(out).calibrated is not None
    train(graphs, epochs=6, resume=True, **small)
    assert load(out).calibrated is None


def test_mistakes() -> None:
    graphs = labelled("binary")
    model = train(graphs, baseline="wl-linear")
    for verb in (model.predict, model.evaluate):
        with pytest.raises(UsageError) as raised:
            verb(graphs, confidence=0.9)
        assert raised.value.field == "confidence"
    with pytest.raises(UsageError) as raised:
        model.calibrate(graphs, "valid", method="magic")
    assert raised.value.field == "method"
    with pytest.raises(UsageError, match="in memory"):
        model.calibrate()
    model.calibrate(graphs, "valid")
    for wrong in (0.0, 1.0, 90.0):
        with pytest.raises(UsageError) as raised:
            model.predict(graphs, confidence=wrong)
        assert (raised.value.field, raised.value.suggest) == ("confidence", 0.9)


def test_confidence_is_taken_as_it_is_written() -> None:
    assert [alpha_of(each) for each in (0.9, 0.7, 0.95)] == [0.1, 0.3, 0.05]
