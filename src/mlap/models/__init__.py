"""Everything that predicts is a model: one set of verbs, one kind of answer."""

from mlap.models.baseline import BaselineModel
from mlap.models.calibration import Calibration
from mlap.models.conformal import Conformal
from mlap.models.explanation import Decomposition, Explanation, decompose, explain
from mlap.models.levels import Levels, level_representations
from mlap.models.model import Embeddings, Explanations, Model
from mlap.models.predictions import Predictions
from mlap.models.run import Run, load, train
from mlap.models.weights import Weights, fit_weights

__all__ = [
    "BaselineModel",
    "Calibration",
    "Conformal",
    "Decomposition",
    "Embeddings",
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
    "train",
]
