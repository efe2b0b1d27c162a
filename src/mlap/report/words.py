"""How tables, figures and the page put a metric into words."""

from __future__ import annotations

from typing import Protocol

from mlap.names import METRICS


class Measured(Protocol):
    """What has scores of one metric: a comparison over seeds, or over splits."""

    @property
    def metric(self) -> str: ...

    @property
    def higher_is_better(self) -> bool: ...


def metric_label(measured: Measured) -> str:
    """The metric as people call it; a metric of a user's own goes by its name."""
    return METRICS[measured.metric].label if measured.metric in METRICS else measured.metric


def metric_words(measured: Measured) -> str:
    """The metric and its better side: `ROC-AUC, higher is better`."""
    return f"{metric_label(measured)}, {'higher' if measured.higher_is_better else 'lower'} is better"
