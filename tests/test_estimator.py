"""The estimators under scikit-learn's own checks and inside its tools."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data

import mlap
from mlap.errors import DataError, UsageError
from mlap.estimator import MLAPClassifier, MLAPRegressor
from mlap.graphs import Features, GraphSet, synthetic
from mlap.graphs.inputs import Inputs

pytest.importorskip("rdkit")

TINY: dict[str, Any] = {
    "recipe": {"descriptors": False},
    "layers": 2,
    "width": 8,
    "epochs": 4,
    "dropout": 0.0,
    "batch_size": 16,
    "lr": 0.01,
    "random_state": 0,
}
SMILES = ["CCO", "CCN", "CCC", "CCCC", "OCCO", "CC(C)O", "CCCO", "CNC", "c1ccccc1", "Oc1ccccc1"] * 3
ALCOHOL = np.array(["yes" if "O" in text else "no" for text in SMILES])


def one_node_graphs(X: np.ndarray) -> Inputs:
    """A graph of a single node for each row, with the row as its features."""
    count = len(X)
    pointer = np.arange(count + 1)
    none = np.zeros(count + 1, dtype=np.int64)
    features = Features.reals(np.asarray(X, np.float32))
    graphs = GraphSet(node_ptr=pointer, edge_ptr=none, edges=np.zeros((2, 0), np.int64), node_features=features)
    return Inputs(graphs.validate(), np.arange(count), count)


class _Rows(BaseEstimator):
    """Reads rows of numbers, so that scikit-learn's checks, which know nothing else, can run."""

    def _inputs(self, X: Any, reset: bool) -> Inputs:
        return one_node_graphs(validate_data(self, X, reset=reset, dtype=np.float64))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = False
        tags.input_tags.string = False
        return tags


class RowClassifier(_Rows, MLAPClassifier):
    pass


class RowRegressor(_Rows, MLAPRegressor):
    pass


#: check → why it cannot pass
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a network is trained in batches of shuffled rows, so a row of weight 2 is not the same as the row twice"
    ),
    "check_methods_subset_invariance": (
        "networks compute in single precision, and a row's seventh digit depends on the rows beside it"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [RowClassifier, RowRegressor])
def test_all_of_scikit_learns_checks_run_and_pass(kind: type[MLAPClassifier]) -> None:
    # GraphNorm makes the features of a single node zero; everything else is as users have it.
    settings = {"layers": 1, "width": 16, "norm": "none", "dropout": 0.0, "lr": 0.03, "epochs": 12, "batch_size": 32}
    with sklearn.config_context(assume_finite=False):
        results = check_estimator(kind(**settings), expected_failed_checks=EXPECTED, on_skip=None, on_fail=None)
    failed = {found["check_name"]: found["exception"] for found in results if found["status"] == "failed"}
    assert failed == {}
    assert {found["check_name"] for found in results if found["status"] == "xfail"} <= set(EXPECTED)
    assert sum(found["status"] == "passed" for found in results) >= 60


# ---- in scikit-learn's tools -----------------------------------------------------------------------------------------


def test_cross_validation_of_smiles() -> None:
    scores = cross_val_score(MLAPClassifier(**TINY), SMILES, ALCOHOL, cv=3)
    assert scores.shape == (3,)
    found = cross_validate(MLAPClassifier(**TINY), SMILES, ALCOHOL, cv=3, scoring=("roc_auc", "accuracy"))
    assert np.array_equal(found["test_accuracy"], scores)


@pytest.mark.parametrize("wrap", [list, np.array, lambda x: np.array(x, dtype=object), pd.Series])
def test_every_kind_of_sequence_says_the_same(wrap: Any) -> None:
    expected = MLAPClassifier(**TINY).fit(SMILES, ALCOHOL).predict_proba(SMILES[:5])
    model = MLAPClassifier(**TINY).fit(wrap(SMILES), wrap(list(ALCOHOL)))
    assert np.array_equal(model.predict_proba(wrap(SMILES[:5])), expected)


def test_a_series_with_another_index_is_cut_by_position() -> None:
    series = pd.Series(SMILES, index=np.arange(len(SMILES))[::-1] + 100)
    expected = cross_val_predict(MLAPClassifier(**TINY), SMILES, ALCOHOL, cv=2)
    assert np.array_equal(cross_val_predict(MLAPClassifier(**TINY), series, ALCOHOL, cv=2), expected)


def test_grid_search_refits_the_best() -> None:
    search = GridSearchCV(MLAPClassifier(**TINY), {"layers": [1, 2], "architecture": ["naive", "mlap-sum"]}, cv=2)
    search.fit(SMILES, ALCOHOL)
    assert search.best_estimator_.model_.recipe.layers == search.best_params_["layers"]
    assert search.predict(["CCO"])[0] in ("yes", "no")


def test_a_pipeline_before_and_after() -> None:
    clean = FunctionTransformer(lambda texts: [text.strip() for text in texts])
    padded = [f" {text} " for text in SMILES]
    model = Pipeline([("clean", clean), ("mlap", MLAPClassifier(**TINY))]).fit(padded, ALCOHOL)
    assert np.array_equal(
        model.predict_proba(padded), MLAPClassifier(**TINY).fit(SMILES, ALCOHOL).predict_proba(SMILES)
    )
    on_vectors = make_pipeline(MLAPClassifier(**TINY), StandardScaler(), LogisticRegression()).fit(SMILES, ALCOHOL)
    assert on_vectors[-1].n_features_in_ == 8
    assert on_vectors.score(SMILES, ALCOHOL) > 0.5


def test_calibration_of_a_frozen_model() -> None:
    model = MLAPClassifier(**TINY).fit(SMILES, ALCOHOL)
    calibrated = CalibratedClassifierCV(FrozenEstimator(model)).fit(SMILES, ALCOHOL)
    probabilities = calibrated.predict_proba(SMILES)
    assert probabilities.shape == (len(SMILES), 2)
    assert list(calibrated.classes_) == ["no", "yes"]


def test_voting_and_stacking() -> None:
    members = [("one", MLAPClassifier(**TINY)), ("two", MLAPClassifier(**{**TINY, "architecture": "naive"}))]
    voting = VotingClassifier(members, voting="soft").fit(SMILES, ALCOHOL)
    mean = np.mean([member.predict_proba(SMILES) for member in voting.estimators_], axis=0)
    assert np.allclose(voting.predict_proba(SMILES), mean)
    stacking = StackingClassifier(members, LogisticRegression(), cv=2).fit(SMILES, ALCOHOL)
    assert set(stacking.predict(SMILES)) <= {"yes", "no"}


def test_metadata_routing_brings_weights_and_groups_to_fit() -> None:
    seen: list[tuple[Any, Any]] = []

    class Recording(MLAPClassifier):
        def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Recording:
            seen.append((sample_weight, groups))
            return super().fit(X, y, sample_weight, groups)

    weights, groups = np.linspace(1, 2, len(SMILES)), np.arange(len(SMILES)) % 10
    with sklearn.config_context(enable_metadata_routing=True):
        model = Recording(**TINY).set_fit_request(sample_weight=True, groups=True)
        model.set_score_request(sample_weight=False)
        cv = GroupKFold(2)
        cross_validate(model, SMILES, ALCOHOL, cv=cv, params={"sample_weight": weights, "groups": groups})
    folds = [train for train, _ in cv.split(SMILES, groups=groups)]
    assert [list(got) for got, _ in seen] == [list(weights[fold]) for fold in folds]
    assert [list(got) for _, got in seen] == [list(groups[fold]) for fold in folds]


# ---- weights, groups, early stopping ---------------------------------------------------------------------------------


def test_weights_decide_between_contradicting_labels() -> None:
    smiles, labels = ["CCO"] * 40, np.array([0, 1] * 20)
    settings = {**TINY, "epochs": 30, "early_stopping": False}
    for favoured in (0, 1):
        weights = np.where(labels == favoured, 9.0, 1.0)
        probability = MLAPClassifier(**settings).fit(smiles, labels, sample_weight=weights).predict_proba(["CCO"])
        assert probability[0, favoured] == pytest.approx(0.9, abs=0.05)


def test_the_weights_of_classes_are_those_of_their_rows() -> None:
    by_class = MLAPClassifier(**TINY, class_weight={"yes": 3, "no": 1}).fit(SMILES, ALCOHOL)
    by_row = MLAPClassifier(**TINY).fit(SMILES, ALCOHOL, sample_weight=np.where(ALCOHOL == "yes", 3.0, 1.0))
    assert np.array_equal(by_class.predict_proba(SMILES), by_row.predict_proba(SMILES))


def test_equal_weights_change_nothing_and_zero_weights_leave_out() -> None:
    model = MLAPClassifier(**TINY).fit(SMILES, ALCOHOL)
    same = MLAPClassifier(**TINY).fit(SMILES, ALCOHOL, sample_weight=np.full(len(SMILES), 3.0))
    assert np.array_equal(model.predict_proba(SMILES), same.predict_proba(SMILES))
    half = np.arange(len(SMILES)) % 2
    left_out = MLAPClassifier(**TINY).fit(SMILES, ALCOHOL, sample_weight=half)
    without = MLAPClassifier(**TINY).fit(np.array(SMILES)[half == 1], ALCOHOL[half == 1])
    assert np.allclose(left_out.predict_proba(SMILES), without.predict_proba(SMILES), atol=1e-4)


def test_a_group_is_trained_on_or_held_out_as_a_whole() -> None:
    groups = np.arange(len(SMILES)) // 3
    model = MLAPClassifier(**{**TINY, "validation_fraction": 0.3})
    train, valid = model._inner_split(np.arange(len(SMILES)) % 2, groups, np.random.RandomState(0))
    assert sorted([*train, *valid]) == list(range(len(SMILES)))
    assert not set(groups[train]) & set(groups[valid])


def test_the_held_out_part_has_its_share_of_each_class() -> None:
    y = np.repeat([0, 1], [80, 20])
    train, valid = MLAPClassifier(validation_fraction=0.2)._inner_split(y, None, np.random.RandomState(0))
    assert (len(train), len(valid), y[valid].sum()) == (80, 20, 4)


def test_early_stopping_ends_training_and_keeps_the_best_epoch() -> None:
    model = MLAPClassifier(**{**TINY, "epochs": 60, "early_stopping": True, "patience": 2, "lr": 1.0}).fit(
        SMILES, ALCOHOL
    )
    scores = [epoch.valid_score for epoch in model.model_.history]
    best = model.model_.result.best_epoch
    assert scores[best - 1] == min(scores)
    assert model.n_iter_ == best + 2 < 60
    without = MLAPClassifier(**{**TINY, "early_stopping": False}).fit(SMILES, ALCOHOL)
    assert without.n_iter_ == without.model_.result.best_epoch == 4


# ---- what X and y can be ---------------------------------------------------------------------------------------------


def test_graph_sets_pyg_and_networkx() -> None:
    graphs = synthetic(graphs_per_class=4)
    y = np.asarray(graphs.y)
    model = MLAPClassifier(**TINY).fit(graphs, y)
    probabilities = model.predict_proba(graphs)
    assert probabilities.shape == (36, 9)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.allclose(model.predict_proba(list(graphs)), probabilities, atol=1e-5)  # PyG's `Data`
    assert cross_val_score(MLAPClassifier(**TINY), graphs, y, cv=KFold(2)).shape == (2,)
    rings = [nx.cycle_graph(size) for size in range(3, 15)]
    regressor = MLAPRegressor(**TINY).fit(rings, np.arange(3.0, 15.0))
    assert regressor.predict(rings[:2]).shape == (2,)


def test_categories_that_only_training_graphs_have() -> None:
    def chain(*kinds: int) -> nx.Graph:
        graph = nx.path_graph(len(kinds))
        nx.set_node_attributes(graph, dict(enumerate(kinds)), "kind")
        return graph

    graphs = [chain(0, 1), chain(1, 2), chain(0, 0), chain(2, 2)] * 5
    model = MLAPClassifier(**TINY).fit(graphs, [0, 1, 0, 1] * 5)
    assert model.predict([chain(0, 0, 1)]).shape == (1,)
    with pytest.raises(DataError, match="category 7"):
        model.predict([chain(7, 0)])


def test_several_targets_of_a_regression() -> None:
    y = np.stack([np.arange(len(SMILES)), -np.arange(len(SMILES))], axis=1).astype(float)
    assert MLAPRegressor(**TINY).fit(SMILES, y).predict(SMILES[:3]).shape == (3, 2)
    assert MLAPRegressor(**TINY).fit(SMILES, y[:, :1]).predict(SMILES[:3]).shape == (3, 1)
    assert MLAPRegressor(**TINY).fit(SMILES, y[:, 0]).predict(SMILES[:3]).shape == (3,)


def test_invalid_rows_raise_or_are_nan() -> None:
    broken = ["CCO", "C(C", "CCN"]
    model = MLAPClassifier(**TINY).fit(SMILES, ALCOHOL)
    with pytest.raises(DataError, match="row 1") as caught:
        model.predict(broken)
    assert (caught.value.field, caught.value.suggest) == ("invalid", "nan")
    lenient = MLAPClassifier(**TINY, invalid="nan").fit([*SMILES, "C(C"], [*ALCOHOL, "no"])
    assert np.array_equal(lenient.predict_proba(["CCO"]), model.predict_proba(["CCO"]))
    assert np.isnan(lenient.predict_proba(broken)).any(axis=1).tolist() == [False, True, False]
    assert np.isnan(lenient.decision_function(broken)).tolist() == [False, True, False]
    assert np.isnan(lenient.transform(broken)).all(axis=1).tolist() == [False, True, False]
    assert [label in ("yes", "no") for label in lenient.predict(broken)] == [True, False, True]
    regressor = MLAPRegressor(**TINY, invalid="nan").fit(SMILES, np.arange(len(SMILES)))
    assert np.isnan(regressor.predict(broken)).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"invalid": "skip"}, "invalid"),
        ({"validation_fraction": 2}, "validation_fraction"),
        ({"layers": 0}, "layers"),
        ({"members": 0}, "members"),
        ({"early_stopping": "never"}, "early_stopping"),
    ],
)
def test_wrong_arguments_are_found_by_fit(settings: dict[str, Any], field: str) -> None:
    model = MLAPClassifier(**{**TINY, **settings})
    with pytest.raises(UsageError) as caught:
        model.fit(SMILES, ALCOHOL)
    assert caught.value.field == field


# ---- what is trained -------------------------------------------------------------------------------------------------


def test_the_default_is_the_recommended_network() -> None:
    classifier = MLAPClassifier(epochs=1).fit(SMILES, ALCOHOL)
    rows = len(SMILES)
    expected = mlap.Recipe.recommended("binary", rows, molecules=True, epochs=1, seed=classifier.model_.recipe.seed)
    assert classifier.model_.recipe == expected
    assert classifier.model_.config["data"]["splits"]["train"] == rows  # nothing is held out: the last epoch is kept
    regressor = MLAPRegressor(epochs=1).fit(SMILES, np.arange(rows))
    assert regressor.model_.recipe.select == "best"
    assert regressor.model_.config["data"]["splits"] == {"train": 27, "valid": 3}
    changed = MLAPClassifier({"descriptors": False, "layers": 3}, layers=2, epochs=1).fit(SMILES, ALCOHOL)
    recipe = changed.model_.recipe
    assert (recipe.descriptors, recipe.layers, recipe.width) == (False, 2, expected.width)
    whole = mlap.Recipe(width=8, layers=1, epochs=1)
    assert MLAPClassifier(whole, random_state=0).fit(SMILES, ALCOHOL).model_.recipe.norm == whole.norm


def test_members_are_networks_that_add_up(folder: Path) -> None:
    model = MLAPClassifier(**TINY, members=3).fit(SMILES, ALCOHOL)
    members = model.model_.members
    assert len({member.recipe.seed for member in members}) == 3
    probabilities = np.stack([member.predict(SMILES).values[:, 0] for member in members])
    logits = np.log(probabilities / (1 - probabilities)).mean(axis=0)
    assert np.allclose(model.decision_function(SMILES), logits, atol=1e-5)
    assert model.transform(SMILES).shape == (len(SMILES), 3 * 8)
    explanation = model.explain(["CCO"])[0]
    total = explanation.bias + explanation.shares.sum(axis=(0, 1))
    assert np.allclose(total, model.decision_function(["CCO"]), atol=1e-5)
    model.save(folder)
    again = MLAPClassifier.load(folder)
    assert again.get_params() == model.get_params()
    assert np.allclose(again.predict_proba(SMILES), model.predict_proba(SMILES), atol=1e-7)
    assert np.allclose(mlap.load(folder).predict(SMILES).values[:, 0], model.predict_proba(SMILES)[:, 1], atol=1e-7)
    assert GridSearchCV(MLAPClassifier(**TINY), {"members": [1, 2]}, cv=2).fit(SMILES, ALCOHOL).best_score_ > 0


def test_what_is_not_made_of_networks_is_no_estimator(folder: Path) -> None:
    graphs = mlap.load_graphs(SMILES, labels=ALCOHOL.tolist())
    splits = {"train": np.arange(20), "valid": np.arange(20, 30)}
    mlap.train(dataclasses.replace(graphs, splits=splits), baseline="wl-linear", out=folder)
    with pytest.raises(UsageError, match="baseline"):
        MLAPClassifier.load(folder)


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_the_answers_agree_with_each_other() -> None:
    model = MLAPClassifier(**TINY).fit(SMILES, ALCOHOL)
    logits, probabilities = model.decision_function(SMILES), model.predict_proba(SMILES)
    assert np.allclose(1 / (1 + np.exp(-logits)), probabilities[:, 1], atol=1e-6)
    assert np.array_equal(model.predict(SMILES), model.classes_[probabilities.argmax(axis=1)])
    explanation = model.explain(["CCO"])[0]
    total = explanation.bias + explanation.shares.sum(axis=(0, 1))
    assert np.allclose(total, model.decision_function(["CCO"]), atol=1e-5)
    vectors = model.transform(SMILES)
    head = model.model_.network.head
    again = vectors @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    assert np.allclose(again[:, 0], logits, atol=1e-5)
    assert list(model.get_feature_names_out()) == [f"mlapclassifier{channel}" for channel in range(8)]


def test_the_same_random_state_trains_the_same_network_and_clones_are_equal() -> None:
    model = MLAPClassifier(**TINY)
    first = model.fit(SMILES, ALCOHOL).predict_proba(SMILES)
    assert np.array_equal(clone(model).fit(SMILES, ALCOHOL).predict_proba(SMILES), first)
    other = clone(model).set_params(random_state=1).fit(SMILES, ALCOHOL)
    assert not np.allclose(other.predict_proba(SMILES), first)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "model"


@pytest.mark.parametrize("labels", [ALCOHOL, (ALCOHOL == "yes").astype(int), np.arange(len(SMILES)) % 3])
def test_save_and_load(folder: Path, labels: np.ndarray) -> None:
    model = MLAPClassifier(**TINY).fit(SMILES, labels)
    model.save(folder)
    again = MLAPClassifier.load(folder)
    assert again.get_params() == model.get_params()
    assert again.classes_.dtype == model.classes_.dtype
    assert np.array_equal(again.predict(SMILES), model.predict(SMILES))
    assert np.array_equal(again.predict_proba(SMILES), model.predict_proba(SMILES))
    assert np.allclose(mlap.load(folder).predict(SMILES).values[:, -1], model.predict_proba(SMILES)[:, -1])
    with pytest.raises(UsageError, match="MLAPClassifier"):
        MLAPRegressor.load(folder)
    with pytest.raises(UsageError, match="there already"):
        model.save(folder)


def test_a_run_of_mlap_train_is_an_estimator(folder: Path) -> None:
    settings = {"layers": 2, "width": 8, "epochs": 2}
    graphs = mlap.load_graphs(SMILES, labels=ALCOHOL.tolist())
    run = mlap.train(
        dataclasses.replace(graphs, splits={"train": np.arange(20), "valid": np.arange(20, 30)}), out=folder, **settings
    )
    model = MLAPClassifier.load(folder)
    assert list(model.classes_) == ["no", "yes"]
    assert np.allclose(model.predict_proba(SMILES)[:, 1], run.predict(SMILES).values[:, 0])


def test_a_fitted_model_can_be_pickled() -> None:
    model = MLAPRegressor(**TINY).fit(SMILES, np.arange(len(SMILES)))
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(SMILES), model.predict(SMILES))


def test_the_names_are_public_and_loaded_late() -> None:
    code = "import mlap, sys; print('sklearn' in sys.modules, mlap.MLAPClassifier().get_params()['invalid'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "raise"]
