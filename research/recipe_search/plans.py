"""What the search tries, stage by stage. A stage runs each of its configurations in each of its cells."""

from __future__ import annotations

from typing import Any, NamedTuple

Settings = dict[str, Any]


class Cell(NamedTuple):
    """Where to train: a set, its re-split, and how many of the split's training graphs (0: all)."""

    set: str
    split: int
    train_size: int = 0

    @property
    def seed(self) -> int:
        """One seed per split: configurations are compared within the cell."""
        return self.split


def small(split: int) -> list[Cell]:
    """Seven sets, the large ones cut: two minutes for 40 epochs of the first network."""
    cut = [("nci1", 1000), ("mutag", 1000), ("nci83", 1000), ("tox21", 1500)]
    return [Cell("esol", split), Cell("bace", split), Cell("bbbp", split), *(Cell(n, split, size) for n, size in cut)]


QUICK: Settings = {"epochs": 40}
STAGES: list[tuple[str, list[Settings], list[Cell]]] = [
    (
        "pooling",
        [
            QUICK,
            QUICK | {"pooling": "gated"},
            QUICK | {"pooling": "gated", "scale": "sqrt"},
            QUICK | {"pooling": "sum"},
            QUICK | {"pooling": "mean"},
            QUICK | {"pooling": "attention-n"},
            QUICK | {"pooling": "sum", "head": "mlp"},
            QUICK | {"pooling": "gated", "values": "mlp"},
        ],
        small(1),
    ),
]
