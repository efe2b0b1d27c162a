"""Recipes, the training loop, scores and run directories."""

from mlap.training.loop import Epoch, Result, Trained, evaluate, predict_logits, train
from mlap.training.objective import Objective
from mlap.training.recipe import Recipe
from mlap.training.run import Run, load_run

__all__ = [
    "Epoch",
    "Objective",
    "Recipe",
    "Result",
    "Run",
    "Trained",
    "evaluate",
    "load_run",
    "predict_logits",
    "train",
]
