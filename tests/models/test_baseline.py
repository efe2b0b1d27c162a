"""Baselines on graph sets: unknown labels, files, errors, and what they score on real molecules."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

from mlap.errors import DataError, UsageError
from mlap.graphs import Features, GraphSet, Task, load_graphs, molecules
from mlap.models import Baseline, baseline, load
from mlap.models.baseline import _FORESTS, forest_logits
from mlap.models.fingerprints import fingerprints
from mlap.models.forest import Forest
from mlap.names import BASELINES

Array = NDArray[Any]

METRICS = {"binary": "rocauc", "multiclass": "accuracy", "regression": "rmse"}
PIECES = ["C", "N", "O", "CC", "C(=O)", "c1ccccc1", "S", "C(F)", "C#C"]


def labelled(kind: str, outputs: int = 1, count: int = 90) -> GraphSet:
    """Small molecules; a label tells whether, how, or how much nitrogen and fluorine there is."""
    rng = np.random.default_rng(0)
    smiles = ["".join(rng.choice(PIECES, size=rng.integers(2, 7))) for _ in range(count)]
    graphs = molecules(smiles).graphs
    measured = np.array([[text.count("N"), text.count("F"), text.count("O")] for text in smiles], float)
    y: Array
    if kind == "multiclass":
        outputs, y = 3, np.clip(measured[:, 0], 0, 2).astype(np.int64)
    else:
        y = measured[:, :outputs]
        y = (y > 0).astype(np.float32) if kind == "binary" else y.astype(np.float32)
    splits = {"train": np.arange(60), "valid": np.arange(60, 75), "test": np.arange(75, count)}
    return dataclasses.replace(graphs, y=y, task=Task(kind, outputs, METRICS[kind]), splits=splits).validate()


@pytest.fixture(autouse=True)
def small_forests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty trees are enough to test with."""
    if "shared_data" not in request.fixturenames:
        for name, recipe in _FORESTS.items():
            small = dataclasses.replace(recipe, settings={**recipe.settings, "n_estimators": 30})
            monkeypatch.setitem(baseline._FORESTS, name, small)


@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize("name", BASELINES)
def test_fitted_stored_and_read_again(name: str, kind: str, tmp_path: Path) -> None:
    graphs = labelled(kind, outputs=2)
    model = Baseline.fit(name, graphs)
    answers = model.logits(graphs)
    assert graphs.task is not None
    assert answers.shape == (90, graphs.task.num_outputs)
    assert np.isfinite(answers).all()
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.logits(graphs), answers)
    assert isinstance(again, Baseline)
    assert (again.name, again.task, again.config, again.notes) == (model.name, model.task, model.config, model.notes)
    np.testing.assert_array_equal(again.logits(graphs, [4, 80]), answers[[4, 80]])
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize("name", BASELINES)
def test_they_learn(name: str, kind: str) -> None:
    graphs = labelled(kind, count=300)
    rows = graphs.split("test")
    assert graphs.y is not None
    answers, y = Baseline.fit(name, graphs).logits(graphs, rows), graphs.y[rows]
    if kind == "multiclass":
        assert np.mean(answers.argmax(axis=1) == y) > np.bincount(y).max() / len(y)
    elif kind == "binary":
        assert roc_auc_score(y[:, 0], answers[:, 0]) > 0.8
    else:
        assert np.sqrt(np.mean((answers - y) ** 2)) < 0.8 * np.std(y)


def test_a_forest_is_scikit_learns_with_one_more_tree_that_has_no_opinion() -> None:
    graphs = labelled("binary")
    assert graphs.y is not None
    assert graphs.ids is not None
    x = fingerprints("morgan-maccs", graphs.ids).toarray()
    settings = {"n_estimators": 30, "criterion": "entropy", "min_samples_leaf": 2, "max_features": "sqrt"}
    peer = RandomForestClassifier(**settings, class_weight={0: 1, 1: 10}, random_state=7)
    share = peer.fit(x[:60], graphs.y[:60, 0]).predict_proba(x)[:, 1]
    found = Baseline.fit("rf-assay", graphs, seed=7).logits(graphs)[:, 0]
    np.testing.assert_allclose(expit(found), (30 * share + 0.5) / 31, rtol=1e-12)


def test_shares_of_none_and_all_trees_stay_finite_and_in_order() -> None:
    x = np.zeros((1, 2), np.float32)
    low, middle, high = (forest_logits("binary", Forest.constant([p], 2), x)[0, 0] for p in (0.0, 0.5, 1.0))
    assert -low == high == pytest.approx(np.log(3))  # one tree: a quarter and three quarters
    assert middle == 0
    several = forest_logits("multiclass", Forest.constant([1.0, 0.0, 0.0], 2), x)
    np.testing.assert_allclose(softmax(several, axis=1), [[4 / 6, 1 / 6, 1 / 6]])


@pytest.mark.parametrize("name", BASELINES)
def test_unknown_labels_are_left_out_target_by_target(name: str) -> None:
    graphs = labelled("binary", outputs=2)
    assert graphs.y is not None
    y = graphs.y.copy()
    y[:20, 1] = np.nan
    y[60:65, 1] = np.nan
    together = Baseline.fit(name, dataclasses.replace(graphs, y=y)).logits(graphs)
    task = Task("binary", 1, "rocauc")
    first, second = (dataclasses.replace(graphs, y=graphs.y[:, [target]], task=task) for target in (0, 1))
    np.testing.assert_allclose(together[:, :1], Baseline.fit(name, first).logits(graphs))
    alone = Baseline.fit(name, second, train=np.arange(20, 60), valid=np.arange(65, 75)).logits(graphs)
    np.testing.assert_allclose(together[:, 1:], alone)


@pytest.mark.parametrize("name", BASELINES)
def test_a_target_without_labels_is_answered_by_a_half(name: str, tmp_path: Path) -> None:
    graphs = labelled("binary", outputs=2)
    assert graphs.y is not None
    y = graphs.y.copy()
    y[:, 1] = np.nan
    model = Baseline.fit(name, dataclasses.replace(graphs, y=y))
    np.testing.assert_array_equal(model.logits(graphs)[:, 1], 0)
    assert any("target 1" in note for note in model.notes)
    model.save(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).logits(graphs), model.logits(graphs))
    empty = labelled("regression", outputs=2)
    with pytest.raises(DataError, match="target 1"):
        Baseline.fit(name, dataclasses.replace(empty, y=y))


def test_seeds_decide_and_jobs_do_not() -> None:
    graphs = labelled("binary")
    one, other, parallel = (
        Baseline.fit("rf-assay", graphs, seed=seed, n_jobs=jobs).logits(graphs)
        for seed, jobs in ((1, 1), (2, 1), (1, 2))
    )
    assert (one != other).any()
    np.testing.assert_array_equal(one, parallel)


def test_validation_labels_choose_the_penalty_and_nothing_else() -> None:
    graphs = labelled("binary")
    assert graphs.y is not None
    y = graphs.y.copy()
    y[75:] = 1 - y[75:]  # what nobody may look at
    one = Baseline.fit("wl-linear", graphs)
    other = Baseline.fit("wl-linear", dataclasses.replace(graphs, y=y))
    np.testing.assert_array_equal(one.logits(graphs), other.logits(graphs))
    assert len(one.config["baseline"]["choices"][0]["validation_losses"]) == 7
    y[60:75] = 1 - y[60:75]
    for name in ("rf-morgan", "rf-assay"):
        same = [Baseline.fit(name, dataclasses.replace(graphs, y=each)).logits(graphs) for each in (graphs.y, y)]
        np.testing.assert_array_equal(*same)


def test_any_graphs_do_for_the_linear_one() -> None:
    plain = dataclasses.replace(labelled("binary"), ids=None)
    real = dataclasses.replace(plain, node_features=Features.reals(np.ones((plain.num_nodes, 2))))
    model = Baseline.fit("wl-linear", real)
    assert any("node" in note for note in model.notes)
    assert Baseline.fit("wl-linear", plain).notes == ()
    with pytest.raises(UsageError) as raised:
        Baseline.fit("rf-morgan", plain)
    assert (raised.value.field, raised.value.suggest) == ("baseline", "wl-linear")


def test_mistakes(tmp_path: Path) -> None:
    graphs = labelled("binary")
    with pytest.raises(UsageError, match="rf-morgan") as raised:
        Baseline.fit("rf-morgen", graphs)
    assert raised.value.field == "baseline"
    with pytest.raises(DataError, match="labels"):
        Baseline.fit("wl-linear", dataclasses.replace(graphs, y=None, task=None))
    with pytest.raises(DataError, match="no graphs"):
        Baseline.fit("wl-linear", graphs, train=[])
    with pytest.raises(UsageError, match=r"config\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"format": 99}, "99"),
        ({"baseline": {"name": "rf-other", "descriptors": [], "seed": 0, "notes": []}}, "rf-other"),
        ({"kind": "oracle"}, "oracle"),
        ({"task": {"kind": "binary"}}, "config.json"),
        ({"baseline": {"name": "rf-assay"}}, "config.json"),
        ({"task": {"kind": "binary", "num_outputs": 2, "metric": "rocauc", "names": []}}, "1.roots"),
        ({"baseline": {"name": "wl-linear", "descriptors": [], "seed": 0, "notes": []}}, "columns"),
    ],
)
def test_damaged_directories(change: dict[str, Any], fact: str, tmp_path: Path) -> None:
    Baseline.fit("rf-assay", labelled("binary")).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(DataError, match=fact.replace(".", r"\.")):
        load(tmp_path)


def test_descriptors_that_rdkit_lacks(tmp_path: Path) -> None:
    graphs = labelled("binary")
    Baseline.fit("rf-morgan", graphs).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["baseline"]["descriptors"][3] = "OfAnotherVersion"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="OfAnotherVersion"):
        load(tmp_path).logits(graphs)


def test_a_real_set(shared_data: Path) -> None:
    """The forest of Maher's kind has about .85 on ogbg-molbace; a broken feature or split would show."""
    graphs = load_graphs(shared_data / "ogbg_molbace", cache=False)
    rows = graphs.split("test")
    assert graphs.y is not None
    answers = Baseline.fit("rf-assay", graphs).logits(graphs, rows)
    assert 0.83 < roc_auc_score(graphs.y[rows, 0], answers[:, 0]) < 0.89
    answers = Baseline.fit("wl-linear", graphs).logits(graphs, rows)
    assert 0.76 < roc_auc_score(graphs.y[rows, 0], answers[:, 0]) < 0.84
