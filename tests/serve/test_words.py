"""Predictions in words, for every kind of task."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlap.graphs import Task
from mlap.serve.words import classes_of, label_words, output_names, predicted, sentence

CLASSES = Task("multiclass", 3, "accuracy", ("a", "b", "c"))
VALUE = Task("regression", 1, "rmse", ("logS",))
SEVERAL = Task("binary", 7, "rocauc", tuple("tuvwxyz"))
NAMED = Task("binary", 1, "rocauc", ("state",), labels=(("solid", "liquid"),))


@pytest.mark.parametrize(
    ("task", "names"),
    [
        (Task("multiclass", 2, "accuracy"), ["class 0", "class 1"]),
        (Task("binary", 1, "rocauc"), ["yes"]),
        (Task("regression", 1, "mae"), ["value"]),
        (Task("regression", 2, "mae"), ["target 0", "target 1"]),
        (VALUE, ["logS"]),
    ],
)
def test_outputs_without_names(task: Task, names: list[str]) -> None:
    assert output_names(task) == names


def test_labels() -> None:
    assert label_words(CLASSES, 2) == ["c"]
    assert label_words(VALUE, np.array([-1.5])) == [-1.5]
    assert label_words(SEVERAL, np.array([0, 1, math.nan, 1, 0, 0, 0]))[:3] == ["not t", "u", None]
    assert label_words(NAMED, np.array([1.0])) == ["liquid"]
    assert classes_of(Task("binary", 1, "rocauc"), 0) == ("no", "yes")


def test_predictions() -> None:
    assert predicted(CLASSES, [0.1, 0.7, 0.2]) == ["b"]
    assert predicted(VALUE, [2.5]) == [2.5]
    assert predicted(NAMED, [0.4]) == ["solid"]


@pytest.mark.parametrize(
    ("task", "values", "more", "expected"),
    [
        (VALUE, [2.5], {}, "logS 2.5"),
        (VALUE, [2.5], {"lower": 1.0, "upper": 4.0}, "logS 2.5, between 1 and 4 with 90 % confidence"),
        (VALUE, [2.5], {"lower": None, "upper": None}, "logS 2.5"),
        (SEVERAL, [0.9] * 2 + [0.1] * 5, {}, "2 of 7: t, u"),
        (SEVERAL, [0.9] * 7, {}, "7 of 7: t, u, v, w, x, …"),
        (SEVERAL, [0.1] * 7, {}, "none"),
        (CLASSES, [0.05, 0.9, 0.05], {"conformal_set": "b"}, "b, with 90 % confidence"),
        (CLASSES, [0.3, 0.4, 0.3], {"conformal_set": "none"}, "unlike every class with 90 % confidence; nearest to "),
        (NAMED, [0.9], {"state_conformal_set": "liquid"}, "liquid, with 90 % confidence"),
    ],
)
def test_sentences(task: Task, values: list[float], more: dict[str, object], expected: str) -> None:
    said = sentence(task, values, more, 0.9)
    assert said.startswith(expected)
    assert said == expected or expected.endswith("nearest to ")
