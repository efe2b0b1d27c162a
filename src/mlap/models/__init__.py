"""Everything that predicts: baselines, calibration, conformal sets and the weights of an ensemble."""

from mlap.models.baseline import BaselineModel
from mlap.models.calibration import Calibration
from mlap.models.conformal import Conformal
from mlap.models.weights import Weights, fit_weights

__all__ = ["BaselineModel", "Calibration", "Conformal", "Weights", "fit_weights"]
