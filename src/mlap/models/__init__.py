"""Everything that predicts is a model: one set of verbs, one kind of answer."""

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
