"""The names that people type: of architectures, layers, normalisations, tasks and metrics. Nothing here loads torch."""

from __future__ import annotations

from typing import NamedTuple

#: the seven architectures of the paper
PAPER_ARCHITECTURES = ("naive", "jk-sum", "jk-concat", "jk-max", "jk-lstm", "mlap-sum", "mlap-weighted")
#: and those that follow from the same parts
ARCHITECTURES = (
    *PAPER_ARCHITECTURES,
    *("jk-weighted", "mlap-concat", "mlap-max", "mlap-lstm", "jk-linear", "mlap-linear"),
)

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
