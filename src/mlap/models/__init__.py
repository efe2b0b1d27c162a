"""Everything that predicts is a model: one set of verbs, one kind of answer."""

from mlap.models.baseline import BaselineModel
from mlap.models.calibration import Calibration
from mlap.models.conformal import Conformal
from mlap.models.model import Embeddings, Explanations, Model
from mlap.models.predictions import Predictions
from mlap.models.run import Run, load, train
from mlap.models.weights import Weights, fit_weights

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
