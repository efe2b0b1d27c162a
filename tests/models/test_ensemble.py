"""Ensembles: what they answer, that explanations add up, and that a directory is whole or refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax

import mlap
from mlap.errors import DataError, UsageError
from mlap.graphs import GraphSet, Task, _smiles, molecules
from mlap.models import Baseline, Ensemble, Model, load, train
from mlap.models.ensemble import _combined
from mlap.models.explanation import Explanation
from mlap.models.weights import Weights
from mlap.training import Recipe

Array = NDArray[Any]

METRICS = {"binary": "rocauc", "multiclass": "accuracy", "regression": "rmse"}
PIECES = ["C", "N", "O", "CC", "C(=O)", "c1ccccc1", "S", "C(F)", "C#C"]
SMALL = Recipe(width=8, epochs=2, batch_size=20, layers=2)


def labelled(kind: str, count: int = 160) -> GraphSet:
    """Small molecules; labels tell whether, or how much, nitrogen and oxygen there is."""
    rng = np.random.default_rng(0)
    smiles = ["".join(rng.choice(PIECES, size=rng.integers(2, 7))) for _ in range(count)]
    graphs = molecules(smiles).graphs
    amounts = np.array([[text.count("N"), text.count("O")] for text in smiles], np.float32)
    outputs = 3 if kind == "multiclass" else 2
    y: Array
    if kind == "multiclass":
        y = np.clip(amounts[:, 0], 0, 2).astype(np.int64)
    elif kind == "binary":
        y = (amounts > 0).astype(np.float32)
        y[::7, 1] = np.nan
    else:
        y = amounts * np.array([3, 100], np.float32) + np.array([0, 1000], np.float32)
    splits = {"train": np.arange(40), "valid": np.arange(40, 140), "test": np.arange(140, count)}
    return dataclasses.replace(graphs, y=y, task=Task(kind, outputs, METRICS[kind]), splits=splits).validate()


def members_of(graphs: GraphSet) -> list[Model]:
    """Two networks of different depth and family, one that is no sum over nodes, and a linear model."""
    return [
        train(graphs, SMALL, architecture="mlap-sum", seed=0, device="cpu"),
        train(graphs, SMALL, architecture="mlap-weighted", layers=3, norm="none", seed=1, device="cpu"),
        train(graphs, SMALL, architecture="jk-concat", seed=2, device="cpu"),
        train(graphs, baseline="wl-linear"),
    ]


@pytest.fixture(scope="module", params=METRICS)
def made(request: pytest.FixtureRequest) -> tuple[GraphSet, list[Model]]:
    graphs = labelled(request.param)
    return graphs, members_of(graphs)


def own_units(model: Model, graphs: GraphSet) -> Array:
    """A member's logits, or its values if it is a regression."""
    logits = np.asarray(model.logits(graphs), np.float64)
    return model.predict(graphs).values if model.task.kind == "regression" else logits


def test_logits_are_the_weighted_sum(made: tuple[GraphSet, list[Model]]) -> None:
    graphs, members = made
    ensemble = Ensemble.of(members, data=graphs, part="valid", weights="fitted")
    assert len(ensemble.weights.values) == 4
    assert min(ensemble.weights.values) >= 0
    assert sum(ensemble.weights.values) == pytest.approx(1)
    assert ensemble.weights.fitted
    expected = sum(
        weight * own_units(member, graphs) for weight, member in zip(ensemble.weights.values, members, strict=True)
    )
    np.testing.assert_allclose(ensemble.logits(graphs), expected, rtol=1e-5, atol=1e-5)
    rows = np.array([7, 3])
    np.testing.assert_allclose(ensemble.logits(graphs, rows), ensemble.logits(graphs)[rows], rtol=1e-5, atol=1e-6)


def test_fitted_weights_lose_to_no_member_on_the_validation_data() -> None:
    graphs = labelled("multiclass")
    members = members_of(graphs)
    fitted = Ensemble.of(members, data=graphs, part="valid", weights="fitted", method="none")
    alone = [member.evaluate(graphs, "valid").values["log_loss"] for member in members]
    assert fitted.evaluate(graphs, "valid").values["log_loss"] <= min(alone) + 1e-6


def test_predictions_have_mean_and_spread(made: tuple[GraphSet, list[Model]]) -> None:
    graphs, members = made
    ensemble = Ensemble(members[:2], Weights((0.25, 0.75), True))
    found = ensemble.predict(graphs)
    first, second = (own_units(member, graphs) for member in members[:2])
    kind = ensemble.task.kind

    def meaning(z: Array) -> Array:
        return {"binary": expit, "multiclass": lambda x: softmax(x, axis=1), "regression": np.asarray}[kind](z)

    np.testing.assert_allclose(found.values, meaning(0.25 * first + 0.75 * second), rtol=1e-4, atol=1e-6)
    # The standard deviation of two values a and b with weights w and 1 - w is |a - b| sqrt(w (1 - w)).
    expected = np.abs(meaning(first) - meaning(second)) * np.sqrt(0.25 * 0.75)
    assert found.spread is not None
    np.testing.assert_allclose(found.spread, expected, rtol=1e-3, atol=1e-5)
    assert any("spread" in name for name in found.table())
    assert members[0].predict(graphs).spread is None


def test_explanations_add_up(made: tuple[GraphSet, list[Model]]) -> None:
    graphs, members = made
    ensemble = Ensemble(members, Weights((0.4, 0.3, 0.2, 0.1), True))
    logits = ensemble.logits(graphs)
    rows = [0, 5, 17]
    for row, found in zip(rows, ensemble.explain_graphs(graphs, rows), strict=True):
        assert found.graph == row
        assert found.shares is not None
        assert found.levels == (1, 2, 3)
        assert set(found.others) == {"wl-linear"}
        total = found.bias + found.shares.sum(axis=(0, 1)) + sum(found.others.values())
        if found.graph_share is not None:  # of descriptors
            total = total + found.graph_share
        np.testing.assert_allclose(total, logits[row], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.logits, logits[row], rtol=1e-5, atol=1e-5)
        assert found.residual < 1e-3 * max(1, np.abs(logits[row]).max())
        np.testing.assert_allclose(found.others["wl-linear"], 0.1 * own_units(members[3], graphs)[row], rtol=1e-6)
        nodes = int(np.diff(graphs.node_ptr)[row])
        assert found.shares.shape == (nodes, 3, ensemble.task.num_outputs)
        assert found.attention.shape[0] == nodes


def test_shares_are_the_averaged_shares_of_the_networks() -> None:
    graphs = labelled("binary")
    members = [train(graphs, SMALL, architecture="mlap-sum", seed=seed, device="cpu") for seed in (0, 1)]
    ensemble = Ensemble(members, Weights((0.25, 0.75), True))
    (found,) = ensemble.explain_graphs(graphs, [4])
    first, second = (next(iter(member.explain_graphs(graphs, [4]))) for member in members)
    assert found.shares is not None
    assert first.shares is not None
    assert second.shares is not None
    np.testing.assert_allclose(found.shares, 0.25 * first.shares + 0.75 * second.shares, rtol=1e-6)
    np.testing.assert_allclose(found.attention, 0.25 * first.attention + 0.75 * second.attention, rtol=1e-6)


def test_terms_of_whole_graphs_are_averaged_too() -> None:
    """Numbers of our own: one network has features of whole graphs, one has none, one is no sum over nodes."""
    rng = np.random.default_rng(0)

    def explanation(shares: bool, graph_share: bool, levels: tuple[int, ...]) -> Explanation:
        bias, each, whole = rng.normal(size=2), rng.normal(size=(4, len(levels), 2)), rng.normal(size=2)
        logits = bias + each.sum(axis=(0, 1)) + (whole if graph_share else 0)
        parts = each if shares else None
        return Explanation(7, logits, bias, np.full((4, 1), 0.25), parts, levels, "", whole if graph_share else None)

    found = [explanation(True, True, (0, 2)), explanation(True, False, (1, 2)), explanation(False, False, (1,))]
    term = rng.normal(size=2)
    weights = (0.5, 0.2, 0.2)
    made = _combined([(name, w, each) for name, w, each in zip("abc", weights, found, strict=True)], [("d", term)])
    expected = sum(w * each.logits for w, each in zip(weights, found, strict=True)) + term
    np.testing.assert_allclose(made.logits, expected)
    assert made.levels == (0, 1, 2)
    assert set(made.others) == {"c", "d"}
    assert made.graph_share is not None
    assert found[0].graph_share is not None
    np.testing.assert_allclose(made.graph_share, 0.5 * found[0].graph_share)
    assert made.residual < 1e-12


def test_ensembles_of_ensembles_add_up(tmp_path: Path) -> None:
    graphs = labelled("binary")
    members = members_of(graphs)
    inner = Ensemble(members[1:], Weights((0.5, 0.25, 0.25), True))
    outer = Ensemble([members[0], inner], Weights((0.5, 0.5), False))
    (found,) = outer.explain_graphs(graphs, [3])
    assert set(found.others) == {"ensemble: wl-linear"}
    np.testing.assert_allclose(found.logits, outer.logits(graphs)[3], rtol=1e-5, atol=1e-6)
    assert found.residual < 1e-4
    outer.save(tmp_path / "outer")
    np.testing.assert_array_equal(load(tmp_path / "outer").logits(graphs), outer.logits(graphs))


def test_a_forest_alone_is_explained_by_nobody() -> None:
    graphs = labelled("binary")
    ensemble = Ensemble.of([train(graphs, baseline="wl-linear")], data=graphs, part="valid")
    with pytest.raises(UsageError, match="network"):
        next(iter(ensemble.explain(graphs)))
    with pytest.raises(UsageError, match="network"):
        ensemble.embed(graphs)


def test_vectors_lie_side_by_side() -> None:
    graphs = labelled("binary")
    members = members_of(graphs)
    found = Ensemble(members, Weights.equal(4)).embed(graphs)
    parts = [member.embed(graphs).final for member in members[:3]]
    np.testing.assert_array_equal(found.final, np.concatenate(parts, axis=1))
    assert found.levels.shape[1] == 0  # they have different depths


@pytest.mark.parametrize("smiles", [["CCO", "not a molecule"], ["nope", "C(C"]])
def test_rows_that_are_no_molecules_stay(smiles: list[str]) -> None:
    graphs = labelled("binary")
    ensemble = Ensemble.of(members_of(graphs), data=graphs, part="valid")
    found = ensemble.predict(smiles, confidence=0.9)
    assert len(found) == 2
    assert 1 in found.invalid
    assert found.more["0_conformal_set"][1] is None
    assert found.spread is not None
    assert np.isnan(found.spread[1]).all()


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[GraphSet, Ensemble, Path]:
    graphs = labelled("multiclass")
    ensemble = Ensemble.of(members_of(graphs), data=graphs, part="valid", weights="fitted")
    return graphs, ensemble, ensemble.save(tmp_path_factory.mktemp("kept") / "ensemble")


@pytest.fixture
def copied(kept: tuple[GraphSet, Ensemble, Path], tmp_path: Path) -> Path:
    """The directory, moved elsewhere."""
    return Path(shutil.copytree(kept[2], tmp_path / "moved" / "elsewhere"))


def test_a_directory_loads_anywhere(kept: tuple[GraphSet, Ensemble, Path], copied: Path) -> None:
    graphs, ensemble, _ = kept
    again = mlap.load(copied)
    assert isinstance(again, Ensemble)
    assert again.weights.values == ensemble.weights.values
    assert again.weights.fitted
    np.testing.assert_array_equal(again.logits(graphs), ensemble.logits(graphs))
    np.testing.assert_array_equal(again.predict(graphs).values, ensemble.predict(graphs).values)
    assert again.calibrated == ensemble.calibrated
    assert isinstance(again.members[3], Baseline)
    content = json.loads((copied / "ensemble.json").read_text())
    assert [member["name"] for member in content["members"]] == ["mlap-sum", "mlap-weighted", "jk-concat", "wl-linear"]
    files = {path.suffix for path in copied.rglob("*") if path.is_file()}
    assert files <= {".json", ".csv", ".safetensors"}  # nothing that could be executed


@pytest.mark.parametrize("member", [1, 3])
def test_a_damaged_or_exchanged_member_is_refused(member: int, copied: Path) -> None:
    weights = copied / f"member-{member}" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataError, match=f"member-{member}"):
        load(copied)
    weights.write_bytes(whole)
    load(copied)
    graphs = labelled("multiclass")
    other = train(graphs, SMALL, architecture="mlap-weighted", layers=3, norm="none", seed=9, device="cpu")
    shutil.rmtree(copied / "member-1")
    other.save(copied / "member-1")
    with pytest.raises(DataError, match="member-1"):
        load(copied)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"format": 99}, "99"),
        ({"members": []}, "ensemble.json"),
        ({"members": [{"folder": "../x", "weight": 1, "sha256": None}]}, "../x"),
        ({"members": [{"folder": "member-0", "weight": -1, "sha256": None}]}, "weights"),
        ({"members": [{"folder": "member-7", "weight": 1, "sha256": None}]}, "member-7"),
        ({"notes": 3}, "ensemble.json"),
    ],
)
def test_a_damaged_index(change: dict[str, Any], fact: str, copied: Path) -> None:
    file = copied / "ensemble.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(DataError) as raised:
        load(copied)
    assert fact in str(raised.value)


def test_folders_that_hold_something_are_left_alone(kept: tuple[GraphSet, Ensemble, Path], tmp_path: Path) -> None:
    _, ensemble, path = kept
    with pytest.raises(UsageError) as raised:
        ensemble.save(path)
    assert raised.value.field == "out"
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(UsageError, match="neither"):
        ensemble.save(tmp_path)
    ensemble.save(path, overwrite=True)
    load(path)


# ---- what goes together ----------------------------------------------------------------------------------------------


def test_members_must_answer_the_same_question() -> None:
    binary, classes = labelled("binary"), labelled("multiclass")
    one = train(binary, baseline="wl-linear")
    with pytest.raises(UsageError, match="multiclass"):
        Ensemble.of([one, train(classes, baseline="wl-linear")])
    named = dataclasses.replace(binary, task=Task("binary", 2, "rocauc", ("a", "b")))
    with pytest.raises(UsageError, match="task"):
        Ensemble.of([one, train(named, baseline="wl-linear")])
    with pytest.raises(UsageError):
        Ensemble.of([])
    with pytest.raises(UsageError, match="equal") as raised:
        Ensemble.of([one], weights="eqal")
    assert raised.value.field == "weights"


def other_split(graphs: GraphSet) -> GraphSet:
    """The same graphs, divided otherwise."""
    splits: dict[str, Any] = {"train": np.arange(20, 60), "valid": np.arange(60, 160), "test": np.arange(20)}
    return dataclasses.replace(graphs, splits=splits)


def test_validation_graphs_of_one_member_may_be_training_graphs_of_another() -> None:
    graphs = labelled("binary")
    members: Sequence[Model] = [train(each, baseline="wl-linear") for each in (graphs, other_split(graphs))]
    with pytest.raises(UsageError) as raised:
        Ensemble.of(members, weights="fitted")
    assert raised.value.field == "data"
    unweighed = Ensemble.of(members)  # nothing to be learnt from, which it says
    assert unweighed.calibrated is None
    assert any("calibrated" in note for note in unweighed.notes)


def test_few_labels_weigh_nobody() -> None:
    graphs = labelled("binary")
    few = graphs.subset(np.arange(40, 50))
    ensemble = Ensemble.of(
        [train(graphs, baseline="wl-linear"), train(graphs, baseline="wl-linear", seed=1)], data=few, weights="fitted"
    )
    assert not ensemble.weights.fitted
    assert ensemble.weights.values == (0.5, 0.5)
    assert any("too few" in note for note in ensemble.notes)


def test_networks_that_weigh_nothing_are_told() -> None:
    """Where a fit leaves the networks out, neither the making nor the explaining is silent about it."""
    graphs = labelled("binary")
    network, linear = train(graphs, SMALL, device="cpu"), train(graphs, baseline="wl-linear")
    broken = Ensemble([network, linear], Weights((0.0, 1.0), True))
    assert "networks" in next(iter(broken.explain(graphs))).reason
    sound = Ensemble([network, linear], Weights((0.5, 0.5), True))
    assert next(iter(sound.explain(graphs))).reason == ""
    with torch.no_grad():
        network.network.head.weight.mul_(-5000)  # surely wrong
    made = Ensemble.of([network, linear], data=graphs, part="valid", weights="fitted")
    assert made.weights.values[0] < 0.01
    assert any("networks" in note for note in made.notes)


def test_members_share_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network with descriptors and a forest on them: RDKit is asked once, and the answers stay to the last bit."""
    graphs = labelled("binary")
    members: list[Model] = [
        train(graphs, SMALL, descriptors=True, device="cpu"),
        train(graphs, baseline="rf-morgan"),
        train(graphs, baseline="wl-linear"),
    ]
    ensemble = Ensemble(members, Weights((0.5, 0.3, 0.2), True))
    assert [member.reads_descriptors for member in (*members, ensemble)] == [True, True, False, True]
    assert graphs.ids is not None
    described: list[str | None] = []
    job = _smiles.JOBS["describe"]
    monkeypatch.setitem(_smiles.JOBS, "describe", lambda smiles: (described.extend(smiles), job(smiles))[1])
    found = ensemble.logits(fresh := dataclasses.replace(graphs))
    assert described == list(graphs.ids)
    alone = [np.asarray(member.logits(dataclasses.replace(graphs)), np.float64) for member in members]
    np.testing.assert_array_equal(found, np.tensordot((0.5, 0.3, 0.2), np.stack(alone), 1))
    rows = np.array([3, 1])
    np.testing.assert_allclose(ensemble.logits(fresh, rows), found[rows], rtol=1e-5, atol=1e-6)
    assert len(described) == 3 * len(graphs)  # once together, and once for each of the two that asked alone
