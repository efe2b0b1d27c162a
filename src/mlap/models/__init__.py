"""Everything that predicts is a model: one set of verbs, one kind of answer.

The names are loaded when they are first used: who predicts with a network does not wait for what fits forests.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlap.models.baseline import Baseline
    from mlap.models.calibrated import Calibrated
    from mlap.models.calibration import Calibration
    from mlap.models.conformal import Conformal
    from mlap.models.ensemble import Ensemble
    from mlap.models.evaluation import Evaluation
    from mlap.models.explanation import Decomposition, Explanation, decompose, explain
    from mlap.models.levels import Levels, level_representations
    from mlap.models.loading import load, load_run
    from mlap.models.model import Embeddings, Explanations, Model
    from mlap.models.predictions import Predictions
    from mlap.models.run import Run, train
    from mlap.models.weights import Weights, fit_weights

#: name → the module it lives in
_MODULES = {
    "Baseline": "baseline",
    "Calibrated": "calibrated",
    "Calibration": "calibration",
    "Conformal": "conformal",
    "Decomposition": "explanation",
    "Embeddings": "model",
    "Ensemble": "ensemble",
    "Evaluation": "evaluation",
    "Explanation": "explanation",
    "Explanations": "model",
    "Levels": "levels",
    "Model": "model",
    "Predictions": "predictions",
    "Run": "run",
    "Weights": "weights",
    "decompose": "explanation",
    "explain": "explanation",
    "fit_weights": "weights",
    "level_representations": "levels",
    "load": "loading",
    "load_run": "loading",
    "train": "run",
}

__all__ = [
    "Baseline",
    "Calibrated",
    "Calibration",
    "Conformal",
    "Decomposition",
    "Embeddings",
    "Ensemble",
    "Evaluation",
    "Explanation",
    "Explanations",
    "Levels",
    "Model",
    "Predictions",
    "Run",
    "Weights",
    "decompose",
    "explain",
    "fit_weights",
    "level_representations",
    "load",
    "load_run",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mlap.models' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mlap.models.{_MODULES[name]}"), name)
