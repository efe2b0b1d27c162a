"""Stages of a training: other readouts, or a frozen backbone, before the recipe's own network is trained as a whole."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from mlap.errors import UsageError, unknown
from mlap.names import ARCHITECTURES

#: in place of an architecture: the recipe's own, with encoder and backbone as the stage before left them
FROZEN = "frozen"


class Stage(NamedTuple):
    """A part of a training.

    Args:
        name: an architecture, or `frozen`.
        epochs: how many epochs it takes.
        lr: the learning rate that the schedule starts from; `None` for the recipe's.
    """

    name: str
    epochs: int
    lr: float | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.epochs}" + ("" if self.lr is None else f":{self.lr:g}")


@lru_cache
def parse_stages(text: str) -> tuple[Stage, ...]:
    """Read `NAME:EPOCHS` or `NAME:EPOCHS:LR`, several with `+` or a comma between them.

    >>> "+".join(map(str, parse_stages("naive:20, frozen:5:0.01")))
    'naive:20+frozen:5:0.01'
    """
    stages: list[Stage] = []
    for part in filter(None, re.split(r"[,+](?!\d)", text.replace(" ", ""))):
        found = re.fullmatch(r"([\w-]+):([1-9]\d*)(?::(\d*\.?\d+(?:e[+-]?\d+)?))?", part)
        if found is None:
            raise UsageError(
                f"{{field}} are NAME:EPOCHS or NAME:EPOCHS:LR with + between them, got {part!r}", "stages", "naive:20"
            )
        name, epochs, lr = found.groups()
        if name not in ARCHITECTURES and (name != FROZEN or not stages):
            raise unknown("stage", name, (*ARCHITECTURES, *([FROZEN] if stages else [])), "stages")
        stages.append(Stage(name, int(epochs), None if lr is None else float(lr)))
    return tuple(stages)
