"""Forests in flat arrays: scikit-learn's predictions to the last bit, through a file, and an error for every fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from mlap.arrays import read_arrays, write_arrays
from mlap.errors import DataError
from mlap.models.forest import ROWS, Forest, grow_forest

SETTINGS: dict[str, Any] = {"n_estimators": 17, "random_state": 3, "min_samples_leaf": 2}


def matrix(rows: int = 300, columns: int = 40, seed: int = 0) -> NDArray[np.float32]:
    """Counts and reals with many ties, as fingerprints and descriptors have them."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.4, (rows, columns - 5))
    return np.concatenate((counts, rng.normal(size=(rows, 5)) * 1e3), axis=1).astype(np.float32)


def labels(kind: str, x: NDArray[np.float32]) -> NDArray[np.float64]:
    noise = np.random.default_rng(1).normal(size=len(x))
    score = x[:, 0] - x[:, 1] + x[:, 2] * x[:, 3] + 0.3 * noise
    if kind == "regression":
        return score.astype(np.float64)
    return np.digitize(score, [0.3] if kind == "binary" else [-0.3, 0.8]).astype(np.float64)


def peer(kind: str, x: Any, y: NDArray[np.float64], fresh: Any, **settings: Any) -> NDArray[np.float64]:
    """The same forest as scikit-learn predicts with it."""
    if kind == "regression":
        return RandomForestRegressor(**settings).fit(x, y).predict(fresh)[:, None]
    probabilities = RandomForestClassifier(**settings).fit(x, y.astype(int)).predict_proba(fresh)
    return probabilities[:, 1:] if kind == "binary" else probabilities


def through_a_file(forest: Forest, path: Path) -> Forest:
    write_arrays(path, forest.arrays("t0."))
    return Forest.of_arrays(read_arrays(path), forest.num_features, forest.value.shape[1], "t0.")


@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("extra", [{}, {"max_depth": 1}, {"max_leaf_nodes": 7}, {"bootstrap": False}])
def test_predictions_are_those_of_scikit_learn(kind: str, extra: dict[str, Any], tmp_path: Path) -> None:
    x, fresh = matrix(), matrix(ROWS + 100, seed=5)
    y = labels(kind, x)
    forest = grow_forest(kind, x, y, 3, **SETTINGS, **extra)
    expected = peer(kind, x, y, fresh, **SETTINGS, **extra)
    np.testing.assert_array_equal(forest.predict(fresh), expected)
    np.testing.assert_array_equal(through_a_file(forest, tmp_path / "f.safetensors").predict(fresh), expected)


@pytest.mark.parametrize("weight", [{0: 1, 1: 10}, "balanced_subsample"])
def test_weighted_classes_too(weight: Any) -> None:
    x, fresh = matrix(), matrix(seed=5)
    y = labels("binary", x)
    settings = {**SETTINGS, "class_weight": weight, "criterion": "entropy"}
    np.testing.assert_allclose(
        grow_forest("binary", x, y, 2, **settings).predict(fresh), peer("binary", x, y, fresh, **settings), atol=1e-15
    )


def test_sparse_and_dense_rows_are_the_same_rows() -> None:
    x = matrix()
    forest = grow_forest("binary", x, labels("binary", x), 2, **SETTINGS)
    np.testing.assert_array_equal(forest.predict(sparse.csr_matrix(x)), forest.predict(x))


def test_the_number_of_jobs_changes_nothing() -> None:
    x = matrix()
    one, two = (grow_forest("binary", x, labels("binary", x), 2, n_jobs=jobs, **SETTINGS) for jobs in (1, 2))
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, two.arrays()[name])


def test_a_slow_walk_ends_at_the_same_leaves() -> None:
    x, fresh = matrix(), matrix(30, seed=9)
    forest = grow_forest("regression", x, labels("regression", x), 0, **SETTINGS)
    for row, got in zip(fresh, forest.predict(fresh)[:, 0], strict=True):
        total = 0.0
        for root in forest.roots:
            at = int(root)
            while at >= 0:
                at = int(forest.children[at, int(row[forest.feature[at]] > forest.threshold[at])])
            total += float(forest.value[-1 - at, 0])
        assert got == pytest.approx(total / forest.num_trees, rel=1e-14)


def test_classes_that_do_not_occur_have_probability_zero() -> None:
    x = matrix()
    y = np.where(labels("binary", x) > 0, 4, 2)
    predicted = grow_forest("multiclass", x, y, 5, **SETTINGS).predict(x)
    assert predicted.shape == (300, 5)
    np.testing.assert_array_equal(predicted[:, [0, 1, 3]], 0)
    np.testing.assert_allclose(predicted.sum(axis=1), 1)


@pytest.mark.parametrize("only", [0.0, 1.0])
def test_a_single_class_is_a_constant(only: float) -> None:
    forest = grow_forest("binary", matrix(), np.full(300, only), 2, **SETTINGS)
    np.testing.assert_array_equal(forest.predict(matrix(7)), np.full((7, 1), only))
    three = grow_forest("multiclass", matrix(), np.ones(300), 3, **SETTINGS)
    np.testing.assert_array_equal(three.predict(matrix(2)), [[0, 1, 0]] * 2)


def test_no_rows() -> None:
    forest = grow_forest("binary", matrix(), labels("binary", matrix()), 2, **SETTINGS)
    assert forest.predict(matrix(0)).shape == (0, 1)


def test_matrices_that_do_not_fit() -> None:
    forest = grow_forest("binary", matrix(), labels("binary", matrix()), 2, **SETTINGS)
    with pytest.raises(DataError, match=r"39 features.*40"):
        forest.predict(matrix(columns=39))
    holes = matrix(10)
    holes[4, 3] = np.nan
    with pytest.raises(DataError, match="finite"):
        forest.predict(holes)


def damage(name: str, change: Any) -> Any:
    def apply(arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name].copy()
        change(arrays[name])

    return apply


def put(index: Any, value: float) -> Any:
    return lambda array: array.__setitem__(index, value)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (damage("feature", put(2, 40)), "among 40"),
        (damage("feature", put(2, -1)), "among 40"),
        (damage("children", put((5, 0), 5)), "itself"),
        (damage("children", put((5, 0), 3)), "itself"),
        (damage("children", put((0, 0), 10**6)), "beyond"),
        (damage("children", put((0, 0), -(10**6))), "trees"),
        (damage("roots", put(1, 0)), "trees"),
        (damage("value", put((0, 0), np.nan)), "nan"),
        (damage("threshold", put(0, np.inf)), "inf"),
        (lambda arrays: arrays.pop("threshold"), "threshold"),
        (lambda arrays: arrays.update(threshold=arrays["threshold"][:-1]), "nodes"),
        (lambda arrays: arrays.update(value=arrays["value"].astype(np.float32)), "float32"),
        (lambda arrays: arrays.update(value=np.repeat(arrays["value"], 2, axis=1)), "value"),
        (lambda arrays: arrays.update(value=arrays["value"][:-1]), "trees"),
        (lambda arrays: arrays.update(roots=arrays["roots"][:0]), "trees"),
    ],
)
def test_stored_arrays_that_are_no_forest(change: Any, fact: str) -> None:
    x = matrix()
    arrays = grow_forest("binary", x, labels("binary", x), 2, **SETTINGS).arrays()
    change(arrays)
    with pytest.raises(DataError, match=fact):
        Forest.of_arrays(arrays, 40, 1)
