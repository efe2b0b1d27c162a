"""Ways to divide a graph set into `train`, `valid` and `test`.

Random numbers come from numpy's `RandomState`, whose stream is frozen: the same seed gives the same split with
every version of numpy and on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError
from mlap.graphs import _smiles

Split = dict[str, NDArray[np.int64]]

NAMES = ("train", "valid", "test")

#: What people write for the three in a column.
SYNONYMS = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("valid", "val", "validation", "dev"), "valid"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}


def cut(order: NDArray[np.int64], fractions: Sequence[float]) -> Split:
    """Cut an ordering of the graphs into train, valid and test of the given shares; each part is sorted."""
    first, second = np.rint(_bounds(fractions) * len(order)).astype(np.int64)
    parts = order[:first], order[first:second], order[second:]
    return {name: np.sort(part) for name, part in zip(NAMES, parts, strict=True)}


def random_split(num_graphs: int, seed: int = 0, fractions: Sequence[float] = (0.8, 0.1, 0.1)) -> Split:
    """A uniformly random split.

    >>> {name: len(part) for name, part in random_split(9000).items()}
    {'train': 7200, 'valid': 900, 'test': 900}
    """
    return cut(_generator(seed).permutation(num_graphs).astype(np.int64), fractions)


def stratified_split(y: NDArray[Any], seed: int = 0, fractions: Sequence[float] = (0.8, 0.1, 0.1)) -> Split:
    """A random split that keeps the proportions of the classes: each class is itself split by the fractions.

    The graphs of a class, shuffled, stand at equal distances on a line from 0 to 1, and the line is cut at the
    fractions. So every part has each class's share to within one graph, and, since the first stands at a random place,
    exactly its share on average: rare classes are not always left out of the small parts.

    Args:
        y: `(G,)` class of each graph, of any type; unknown ones (NaN) are a class of their own.
        seed: of the shuffling.
        fractions: the shares of train, valid and test.
    """
    if y.ndim != 1:
        raise UsageError(f"a stratified split needs one class per graph, got labels of shape {y.shape}")
    bounds = _bounds(fractions)
    rng = _generator(seed)
    part = np.empty(len(y), dtype=np.int64)
    classes, labels = np.unique(y, return_inverse=True)
    for label in range(len(classes)):
        members = rng.permutation(np.flatnonzero(labels == label))
        places = (np.arange(len(members)) + rng.random_sample()) / len(members)
        part[members] = np.searchsorted(bounds, places, side="right")
    return {name: np.flatnonzero(part == number) for number, name in enumerate(NAMES)}


def scaffold_split(
    smiles: Sequence[str],
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    *,
    processes: int | None = None,
    progress: bool = False,
) -> Split:
    """A split in which no two parts share a Bemis–Murcko scaffold, as in MoleculeNet and OGB.

    Molecules with the same scaffold (rings and the chains between them, without chirality) form a group; all without
    rings form one. The groups, the largest first and equal ones the latest first, go to train as long as they fit, else
    to valid, else to test: the test molecules are those with rare scaffolds. There is no chance in it.

    Args:
        smiles: a molecule's SMILES for each graph.
        fractions: the shares of train, valid and test, which the groups may leave unfilled.
        processes: how many; `None` for all cores that this process may use, if there are thousands of molecules.
        progress: show a bar on stderr, if that is a terminal and the work takes longer than two seconds.
    """
    room_train, room_valid = _bounds(fractions) * len(smiles)
    groups: dict[str, list[int]] = {}
    found = (text for texts, _ in _smiles.run("scaffolds", smiles, processes, progress) for text in texts)
    for index, scaffold in enumerate(found):
        if scaffold is None:
            raise DataError(f"a scaffold split needs molecules, but number {index} is none: {smiles[index]!r}")
        groups.setdefault(scaffold, []).append(index)

    train: list[int] = []
    valid: list[int] = []
    test: list[int] = []
    for group in sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True):
        if len(train) + len(group) <= room_train:
            train += group
        elif len(train) + len(valid) + len(group) <= room_valid:
            valid += group
        else:
            test += group
    return {
        name: np.sort(np.array(part, dtype=np.int64)) for name, part in zip(NAMES, (train, valid, test), strict=True)
    }


def column_split(values: Sequence[str]) -> Split:
    """The split that a column states: `train`, `valid` or `test` for each graph, in any case, or a usual synonym.

    >>> column_split(["Train", "val", "test", "train"])["train"]
    array([0, 3])
    """
    parts: dict[str, list[int]] = {name: [] for name in NAMES}
    for index, value in enumerate(values):
        name = SYNONYMS.get(str(value).strip().lower())
        if name is None:
            raise DataError(f"row {index} is in the split {value!r}; expected one of {', '.join(SYNONYMS)}")
        parts[name].append(index)
    return {name: np.array(part, dtype=np.int64) for name, part in parts.items()}


def _generator(seed: int) -> np.random.RandomState:
    if not 0 <= seed < 2**32:
        raise UsageError(f"the seed of a split must be from 0 to {2**32 - 1}, got {seed}")
    return np.random.RandomState(seed)


def _bounds(fractions: Sequence[float]) -> NDArray[np.float64]:
    """Where, between 0 and 1, train ends and valid ends."""
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise UsageError(f"fractions must be three shares that add up to 1, got {tuple(fractions)}")
    return np.cumsum(fractions)[:2]


def check_splits(splits: Mapping[str, NDArray[np.int64]], num_graphs: int) -> None:
    """Raise unless every split names existing graphs and no graph is in two splits or twice in one."""
    seen = np.zeros(num_graphs, dtype=np.int64)
    for name, part in splits.items():
        outside = part[(part < 0) | (part >= num_graphs)]
        if len(outside):
            raise DataError(f"split {name!r} names graph {outside[0]}, but graphs are numbered 0 to {num_graphs - 1}")
        seen += np.bincount(part, minlength=num_graphs)
    if (seen > 1).any():
        raise DataError(f"graph {int(np.argmax(seen > 1))} is in more than one split, or twice in one")
