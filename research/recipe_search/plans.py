"""What the search tries, stage by stage. A stage runs each of its configurations in each of its cells."""

from __future__ import annotations

from typing import Any, NamedTuple

Settings = dict[str, Any]


class Cell(NamedTuple):
    """Where to train: a set, its re-split, and how many of the split's training graphs (0: all)."""

    set: str
    split: int
    train_size: int = 0
    member: int = 0  # of an ensemble of seeds

    @property
    def seed(self) -> int:
        """One seed per split, for configurations are compared within the cell, and others for more members."""
        return self.split + 100 * self.member


def small(split: int) -> list[Cell]:
    """Seven sets, the large ones cut: two minutes for 40 epochs of the first network."""
    cut = [("nci1", 1000), ("mutag", 1000), ("nci83", 1000), ("tox21", 1500)]
    return [Cell("esol", split), Cell("bace", split), Cell("bbbp", split), *(Cell(n, split, size) for n, size in cut)]


QUICK: Settings = {"epochs": 40}
COUNT: Settings = QUICK | {"pooling": "attention-n"}
STAGES: list[tuple[str, list[Settings], list[Cell]]] = [
    (
        "pooling",
        [
            QUICK,
            QUICK | {"pooling": "gated"},
            QUICK | {"pooling": "gated", "scale": "sqrt"},
            QUICK | {"pooling": "sum"},
            QUICK | {"pooling": "mean"},
            COUNT,
            QUICK | {"pooling": "sum", "head": "mlp"},
            QUICK | {"pooling": "gated", "values": "mlp"},
        ],
        small(1),
    ),
    (
        "esol",
        [
            COUNT | {"descriptors": "rdkit"},
            COUNT | {"head": "mlp"},
            COUNT | {"readout": "naive"},
            COUNT | {"readout": "jk"},
        ],
        [Cell("esol", 1)],
    ),
    (
        "esol-2",
        [
            COUNT,
            COUNT | {"descriptors": "rdkit"},
            COUNT | {"descriptors": "rdkit", "level0": True},
            COUNT | {"level0": True},
            QUICK | {"pooling": "gated", "descriptors": "rdkit"},
            QUICK,
        ],
        [Cell("esol", 2), Cell("esol", 3)],
    ),
    (
        "virtual",
        [
            QUICK | {"virtual_node": True},
            QUICK | {"virtual_node": True, "level0": True},
            QUICK | {"virtual_node": True, "descriptors": "rdkit"},
        ],
        [
            *(Cell(n, 1, 1000) for n in ("mutag", "nci83", "nci1")),
            Cell("bbbp", 1),
            Cell("tox21", 1, 1500),
            Cell("bace", 1),
        ],
    ),
    ("virtual", [QUICK], [Cell("bace", 2)]),
    (
        "virtual",
        [COUNT | {"virtual_node": True}, COUNT | {"virtual_node": True, "descriptors": "rdkit"}],
        [Cell("esol", 1), Cell("esol", 2), Cell("esol", 3)],
    ),
    (
        "switches",
        [
            QUICK | {"residual": True},
            QUICK | {"descriptors": "rdkit"},
            QUICK | {"dropout": 0.4},
            QUICK | {"level0": True},
            QUICK | {"readout": "naive"},
            QUICK | {"readout": "jk"},
            QUICK | {"virtual_node": True},
            QUICK | {"layers": 3},
        ],
        [Cell("bace", 1), Cell("tox21", 1, 1500), Cell("nci1", 1, 1000), Cell("bbbp", 1)],
    ),
    (
        "esol",
        [
            COUNT | {"dropout": 0.0},
            COUNT | {"dropout": 0.1},
            COUNT | {"width": 128},
            COUNT | {"residual": True},
            COUNT | {"batch": 32},
            COUNT | {"epochs": 80},
            COUNT | {"layers": 3},
            COUNT | {"level0": True},
            COUNT | {"loss": "huber"},
        ],
        [Cell("esol", 1), Cell("esol", 2)],
    ),
    (
        "switches-2",
        [
            QUICK | {"dropout": 0.0},
            QUICK | {"rwse": 16},
            QUICK | {"head": "mlp"},
            QUICK | {"batch": 32},
            QUICK | {"inner_norm": False},
            QUICK | {"width": 128},
        ],
        [Cell("bace", 1), Cell("tox21", 1, 1500), Cell("nci1", 1, 1000), Cell("bbbp", 1), Cell("mutag", 1, 1000)],
    ),
]

MEMBER_CELLS = small(1)
