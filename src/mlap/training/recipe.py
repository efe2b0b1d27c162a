"""A recipe: everything that decides how one network is built and trained, apart from the data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlap.errors import UsageError, unknown
from mlap.names import ARCHITECTURES, BACKBONES, NORMS
from mlap.paper import PROTOCOLS

#: field → the names it takes
_NAMES = {"architecture": ARCHITECTURES, "backbone": BACKBONES, "norm": NORMS}
#: field → its smallest and largest value
_RANGES = {
    "layers": (1, 1000),
    "width": (1, 100_000),
    "dropout": (0, 1),
    "epochs": (1, 1_000_000),
    "batch_size": (1, 10_000_000),
    "lr": (0, 100),
    "lr_decay": (0, 1),
    "lr_decay_every": (1, 1_000_000),
    "weight_decay": (0, 100),
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True)
class Recipe:
    """A frozen, validated description of one training run.

    Args:
        architecture: how levels become one vector per graph; one of `mlap.names.ARCHITECTURES`.
        layers: the number of message-passing layers L.
        width: the width d of node representations.
        backbone: the kind of message-passing layer: `gin`, `gcn` or `gat`.
        norm: the normalisation after each layer: `none`, `graph`, `batch`, `layer` or `pair`.
        residual: whether a layer adds its input to its output.
        dropout: the probability of dropout after every layer.
        epochs: how often the training graphs are seen.
        batch_size: graphs per training step.
        lr: Adam's learning rate at the start.
        lr_decay: the factor on the learning rate after every `lr_decay_every` epochs.
        lr_decay_every: see `lr_decay`.
        weight_decay: Adam's L2 penalty.
        seed: of initial weights, shuffling and dropout; never of the data.

    Example:
        >>> Recipe.paper("ogbg-molhiv", layers=3).lr
        0.0001
        >>> Recipe(layers=0)
        Traceback (most recent call last):
        ...
        mlap.errors.UsageError: layers must be at least 1, got 0
    """

    architecture: str = "mlap-sum"
    layers: int = 5
    width: int = 200
    backbone: str = "gin"
    norm: str = "graph"
    residual: bool = False
    dropout: float = 0.5
    epochs: int = 50
    batch_size: int = 50
    lr: float = 1e-3
    lr_decay: float = 0.5
    lr_decay_every: int = 15
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = _typed(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        for name, known in _NAMES.items():
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known)
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value < low:
                raise UsageError(f"{name} must be at least {low}, got {value}")
            if value > high or math.isnan(value):
                raise UsageError(f"{name} must be at most {high}, got {value}")

    @classmethod
    def paper(cls, dataset: str, **changes: Any) -> Recipe:
        """The paper's recipe for one of its four data sets, with the given fields changed."""
        if dataset not in PROTOCOLS:
            raise unknown("data set of the paper", dataset, PROTOCOLS)
        return cls.of({**PROTOCOLS[dataset].recipe, **changes})

    @classmethod
    def preset(cls, dataset: str, **changes: Any) -> Recipe:
        """What to train with unless told otherwise: the paper's recipe for its data sets, the default for others."""
        name = "synthetic" if dataset == "synthetic-variant" else dataset
        return cls.paper(name, **changes) if name in PROTOCOLS else cls.of(changes)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Recipe:
        """A recipe of the given fields; values may be text, as on a command line. An unknown field is an error."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                raise unknown("field of a recipe", name, known)
        return cls(**fields)

    def replace(self, **changes: Any) -> Recipe:
        """The same recipe with some fields changed."""
        return Recipe.of({**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """All fields with their values."""
        return dataclasses.asdict(self)

    def lr_at(self, epoch: int) -> float:
        """The learning rate in an epoch, counted from 1."""
        return self.lr * self.lr_decay ** ((epoch - 1) // self.lr_decay_every)


_TYPES: dict[str, type] = {
    field.name: {"str": str, "int": int, "float": float, "bool": bool}[str(field.type)]
    for field in dataclasses.fields(Recipe)
}


def _typed(name: str, value: Any) -> Any:
    """The value in the field's type: as it is, or read from text."""
    wanted = _TYPES[name]
    if wanted is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    if isinstance(value, str) and wanted in (int, float):
        try:
            return wanted(value)
        except ValueError:
            pass
    article = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}[wanted]
    raise UsageError(f"{name} must be {article}, got {value!r}")
