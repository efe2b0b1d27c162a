"""Everything that predicts is a model: one set of verbs, one kind of answer."""

from mlap.models.model import Embeddings, Explanations, Model
from mlap.models.predictions import Predictions
from mlap.models.run import Run, load, train

__all__ = ["Embeddings", "Explanations", "Model", "Predictions", "Run", "load", "train"]
