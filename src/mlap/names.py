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


METRICS: dict[str, Metric] = {
    "error_rate": Metric("error rate", ("multiclass",), False),
    "accuracy": Metric("accuracy", ("multiclass", "binary"), True),
    "rocauc": Metric("ROC-AUC", ("binary",), True),
    "ap": Metric("average precision", ("binary",), True),
    "rmse": Metric("RMSE", ("regression",), False),
    "mae": Metric("MAE", ("regression",), False),
}

#: kind of task → the metric unless told otherwise
DEFAULT_METRICS = {"multiclass": "accuracy", "binary": "rocauc", "regression": "rmse"}
