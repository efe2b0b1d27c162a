"""The paper's protocol (section 4.3): what each of its data sets is trained with. Nothing here loads torch."""

from __future__ import annotations

from typing import Any, NamedTuple

from mlap.names import PAPER_ARCHITECTURES


class Protocol(NamedTuple):
    """What the paper's study of one data set asks for: the recipe's own settings, and the number of seeds."""

    recipe: dict[str, Any]
    seeds: int


#: the paper's four data sets; width, depth and dropout are common to all
PROTOCOLS: dict[str, Protocol] = {
    "synthetic": Protocol({"epochs": 65, "batch_size": 50, "lr": 1e-3, "lr_decay": 0.2}, 30),
    "ogbg-molhiv": Protocol({"epochs": 50, "batch_size": 20, "lr": 1e-4, "lr_decay": 0.5}, 30),
    "ogbg-ppa": Protocol({"epochs": 50, "batch_size": 50, "lr": 1e-3, "lr_decay": 0.2}, 10),
    "MCF-7": Protocol({"epochs": 50, "batch_size": 20, "lr": 1e-4, "lr_decay": 0.5}, 30),
}

#: the grid of the study: every architecture, depth and GraphNorm (−/+)
ARCHITECTURES = PAPER_ARCHITECTURES
LAYERS = tuple(range(1, 11))
NORMS = ("none", "graph")
