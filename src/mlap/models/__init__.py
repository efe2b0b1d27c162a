"""Everything that predicts is a model: one set of verbs, one kind of answer.

The names are loaded when they are first used: who predicts with a network does not wait for what fits forests.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlap.models.baseline import BaselineModel
    from mlap.models.calibration import Calibration
    from mlap.models.conformal import Conformal
    from mlap.models.model import Embeddings, Explanations, Model
    from mlap.models.predictions import Predictions
    from mlap.models.run import Run, load, train
    from mlap.models.weights import Weights, fit_weights

#: name → the module it lives in
_MODULES = {
    "BaselineModel": "baseline",
    "Calibration": "calibration",
    "Conformal": "conformal",
    "Embeddings": "model",
    "Explanations": "model",
    "Model": "model",
    "Predictions": "predictions",
    "Run": "run",
    "Weights": "weights",
    "fit_weights": "weights",
    "load": "run",
    "train": "run",
}

__all__ = [
    "BaselineModel",
    "Calibration",
    "Conformal",
    "Embeddings",
    "Explanations",
    "Model",
    "Predictions",
    "Run",
    "Weights",
    "fit_weights",
    "load",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mlap.models' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mlap.models.{_MODULES[name]}"), name)
