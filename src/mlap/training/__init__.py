"""Recipes, the training loop, scores and run directories."""

from mlap.training.loop import InitialWeights, Trained, predict_logits, train
from mlap.training.objective import Objective
from mlap.training.presets import recipe_for
from mlap.training.recipe import Recipe
from mlap.training.run import Epoch, Result
from mlap.training.scores import Scores

__all__ = [
    "Epoch",
    "InitialWeights",
    "Objective",
    "Recipe",
    "Result",
    "Scores",
    "Trained",
    "predict_logits",
    "recipe_for",
    "train",
]
