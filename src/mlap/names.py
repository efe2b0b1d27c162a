"""The names that people type: of architectures, layers, normalisations, tasks and metrics. Nothing here loads torch."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from mlap.errors import UsageError


class Part(NamedTuple):
    """A part of a network that people have by its name.

    Args:
        source: its class as `"module:Class"`, which is imported when it is needed; or the class itself.
        help: one line that says what it is.
    """

    source: Any
    help: str

    def load(self) -> Any:
        """The class."""
        if not isinstance(self.source, str):
            return self.source
        module, _, name = self.source.partition(":")
        return getattr(importlib.import_module(module), name)


#: ways to join levels. A class is made with `(channels, num_levels)`; see `mlap.nn.Join` for what else it can say.
#: Add an entry and the architectures `jk-NAME` and `mlap-NAME` exist, in networks, sweeps, explanations and reports.
JOINS: dict[str, Part] = {
    "last": Part("mlap.nn.join:Last", "the last level alone, as in a naive network"),
    "sum": Part("mlap.nn.join:Sum", "the sum of the levels"),
    "weighted": Part("mlap.nn.join:Weighted", "their sum with trained weights"),
    "concat": Part("mlap.nn.join:Concat", "the levels side by side"),
    "max": Part("mlap.nn.join:Max", "the largest value in each channel"),
    "lstm": Part("mlap.nn.join:LSTMAttention", "their sum with weights that an LSTM over the levels gives"),
    "linear": Part("mlap.nn.join:Projection", "a linear map of all levels to the width of one"),
    "gate": Part("mlap.nn.relations:LevelGate", "their sum, each with a gate that sees all levels"),
    "attention": Part("mlap.nn.relations:LevelAttention", "their sum with weights that attention among levels gives"),
    "gru": Part("mlap.nn.relations:LevelGRU", "their sum with weights that a GRU over the levels gives"),
}

#: ways to pool nodes. A class is made with `(in_channels, hidden_channels)`; see `mlap.nn.Pooling`.
POOLINGS: dict[str, Part] = {
    "attention": Part("mlap.nn.pooling:AttentionPooling", "the mean weighted by softmax attention, as in the paper"),
    "attention-n": Part("mlap.nn.pooling:AttentionSumPooling", "attention times the number of nodes, which can count"),
    "mean": Part("mlap.nn.pooling:MeanPooling", "the mean of the nodes"),
    "sum": Part("mlap.nn.pooling:SumPooling", "the sum of the nodes"),
    "max": Part("mlap.nn.pooling:MaxPooling", "the largest value in each channel; without exact shares"),
    "gated-sum": Part("mlap.nn.pooling:GatedSumPooling", "the sum of the nodes, each with a weight from 0 to 1"),
}

#: the seven architectures of the paper
PAPER_ARCHITECTURES = ("naive", "jk-sum", "jk-concat", "jk-max", "jk-lstm", "mlap-sum", "mlap-weighted")


class _Architectures(Sequence[str]):
    """The paper's architectures, and those that follow from the joins that there are now."""

    def _names(self) -> tuple[str, ...]:
        more = (f"{family}-{join}" for join in JOINS if join != "last" for family in ("jk", "mlap"))
        return tuple(dict.fromkeys((*PAPER_ARCHITECTURES, *more)))

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...

    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        return self._names()[place]

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return repr(self._names())


#: all architectures: `naive`, and `jk-` and `mlap-` with every join
ARCHITECTURES = _Architectures()

#: the environment variable that names the modules of one's own parts, with commas between them
PLUGINS = "MLAP_PLUGINS"


def load_plugins() -> None:
    """Import the modules that the environment variable `MLAP_PLUGINS` names; they add their parts to the tables above.

    The command and the workers of a sweep call it. No file can make them import anything.
    """
    for name in filter(None, map(str.strip, os.environ.get(PLUGINS, "").split(","))):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UsageError(f"cannot import {name}, which {PLUGINS} names: {error}") from error


#: kinds of message-passing layers
BACKBONES = ("gin", "gcn", "gat")

#: normalisations after each layer
NORMS = ("none", "graph", "batch", "layer", "pair")

#: simple models to beat: name → what it is
BASELINES = {
    "rf-morgan": "random forest (500 trees) on Morgan counts and RDKit's descriptors; molecules",
    "rf-assay": "random forest (1000 trees, actives weigh 10) on Morgan bits and MACCS keys; molecules",
    "wl-linear": "linear model on counts of Weisfeiler–Lehman neighbourhoods; any graphs",
}

#: ways to train a data set → what they are
PRESETS = {
    "recommended": "the model that we recommend",
    "quick": "one small network for a first look",
    "paper": "the recipe of the paper",
}

#: kinds of tasks
TASKS = ("multiclass", "binary", "regression")


class Metric(NamedTuple):
    """A way to score predictions."""

    label: str
    kinds: tuple[str, ...]  # the kinds of task it scores
    higher_is_better: bool


_CLASSES = ("multiclass", "binary")

METRICS: dict[str, Metric] = {
    "rocauc": Metric("ROC-AUC", _CLASSES, True),
    "ap": Metric("PR-AUC", _CLASSES, True),
    "accuracy": Metric("accuracy", _CLASSES, True),
    "error_rate": Metric("error rate", _CLASSES, False),
    "balanced_accuracy": Metric("balanced accuracy", _CLASSES, True),
    "mcc": Metric("MCC", _CLASSES, True),
    "f1": Metric("F1", _CLASSES, True),
    "log_loss": Metric("log loss", _CLASSES, False),
    "brier": Metric("Brier score", _CLASSES, False),
    "calibration_error": Metric("calibration error", _CLASSES, False),
    "rmse": Metric("RMSE", ("regression",), False),
    "mae": Metric("MAE", ("regression",), False),
    "r2": Metric("R²", ("regression",), True),
    "spearman": Metric("Spearman's ρ", ("regression",), True),
}

#: kind of task → the metric unless told otherwise
DEFAULT_METRICS = {"multiclass": "accuracy", "binary": "rocauc", "regression": "rmse"}
