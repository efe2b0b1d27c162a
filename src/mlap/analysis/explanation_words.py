"""An explained prediction in words that are right for its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mlap.errors import UsageError
from mlap.graphs import Task
from mlap.models.explanation import Explanation

Floats = NDArray[np.floating[Any]]


class Answering(Protocol):
    """What of a model the words need: its task, and what its logits mean. Every `mlap.Model` is one."""

    @property
    def task(self) -> Task:
        """What is predicted."""

    def values(self, logits: Floats) -> Floats:
        """Probabilities or values `(graphs, outputs)` for logits `(graphs, outputs)`."""


def chosen_output(explanation: Explanation, task: Task, output: int | None = None) -> int:
    """Which logit to explain: the given one; else that of the predicted class, or of the first target."""
    if output is None:
        return int(explanation.logits.argmax()) if task.kind == "multiclass" else 0
    if not 0 <= output < len(explanation.logits):
        raise UsageError(f"there is no output {output}; the model has {len(explanation.logits)}, from 0", "output")
    return output


def output_name(task: Task, output: int) -> str:
    """What a logit is called: its class or target."""
    if task.names:
        return task.names[output]
    return f"class {output}" if task.kind == "multiclass" else f"target {output}"


def answer(task: Task, values: Floats, output: int) -> str:
    """What is predicted for a graph whose probabilities or values are `values` `(outputs,)`.

    >>> answer(Task("binary", 1, "rocauc", ("hERG",), (("inactive", "active"),)), np.array([0.25]), 0)
    'hERG: predicted inactive, P(active) = 0.250'
    >>> answer(Task("multiclass", 2, "accuracy", ("red", "blue")), np.array([0.75, 0.25]), 1)
    'predicted red, P(red) = 0.750; P(blue) = 0.250'
    >>> answer(Task("regression", 1, "rmse", ("logS",)), np.array([-2.5]), 0)
    'logS: predicted -2.5'
    """
    name = output_name(task, output)
    if task.kind == "regression":
        return f"{name}: predicted {values[output]:.4g}"
    if task.kind == "binary":
        no, yes = _labels(task, output)
        return f"{name}: predicted {yes if values[output] > 0.5 else no}, P({yes}) = {values[output]:.3f}"
    likeliest = int(np.argmax(values))
    best = output_name(task, likeliest)
    other = "" if output == likeliest else f"; P({name}) = {values[output]:.3f}"
    return f"predicted {best}, P({best}) = {values[likeliest]:.3f}{other}"


def explained_quantity(task: Task, output: int, values: Floats, logits: Floats) -> str:
    """What the shares add up to. A network's are of standardised values, an ensemble's of values in the data's units.

    >>> half = np.array([0.5])
    >>> explained_quantity(Task("binary", 1, "rocauc", ("hERG",), (("inactive", "active"),)), 0, half, half)
    'logit of active'
    >>> explained_quantity(Task("regression", 1, "rmse", ("logS",)), 0, np.array([-2.5]), half)
    'standardised logS'
    """
    if task.kind == "regression":
        name = output_name(task, output)
        return name if np.isclose(values[output], logits[output]) else f"standardised {name}"
    return f"logit of {_labels(task, output)[1] if task.kind == 'binary' else output_name(task, output)}"


def terms(explanation: Explanation, output: int) -> Mapping[str, float]:
    """What the logit is the sum of: name → term. Empty if it is no such sum."""
    if explanation.shares is None:
        return {}
    shares = explanation.shares[:, :, output].sum(axis=0)
    names = [f"level {level}" for level in explanation.levels] or ["nodes"]
    found = {"bias": float(explanation.bias[output]), **dict(zip(names, map(float, shares), strict=True))}
    if explanation.graph_share is not None:
        found["descriptors"] = float(explanation.graph_share[output])
    return found | {name: float(term[output]) for name, term in explanation.others.items()}


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, a true minus.

    >>> signed(-0.5)
    '−0.50'
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def prediction_text(explanation: Explanation, model: Answering, output: int) -> str:
    """The prediction in words and, in a second line, the sum that its logit is."""
    values = model.values(explanation.logits[None])[0]
    total = f"{explained_quantity(model.task, output, values, explanation.logits)} {signed(explanation.logits[output])}"
    parts = dict(terms(explanation, output))
    if parts:
        levels = [parts.pop(name) for name in list(parts) if name.startswith("level ") or name == "nodes"]
        total += " = " + " ".join(
            f"{name} {signed(term)}" for name, term in {**parts, "shares of nodes": sum(levels)}.items()
        )
    return f"{answer(model.task, values, output)}\n{total}"


def _labels(task: Task, output: int) -> tuple[str, str]:
    """What the two classes of a target are called; 0 and 1 unless the data have words for them."""
    return task.labels[output] if task.labels else ("0", "1")
