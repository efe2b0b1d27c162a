"""Ways to divide graphs into the parts `train`, `valid` and `test`, or into folds.

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
from mlap.graphs.progress import Progress

Split = dict[str, NDArray[np.int64]]

NAMES = ("train", "valid", "test")

#: The shares of the three unless told otherwise.
SIZES = (0.8, 0.1, 0.1)

#: What people write for the three in a column.
SYNONYMS = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("valid", "val", "validation", "dev"), "valid"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}


def random_split(
    num_graphs: int, seed: int = 0, sizes: Sequence[float] = SIZES, *, first: NDArray[np.int64] | None = None
) -> Split:
    """A uniformly random split.

    Args:
        num_graphs: how many graphs there are.
        seed: random seed.
        sizes: the shares of train, valid and test.
        first: for each graph the first that is the same, so that both come into the same part; see
            `mlap.graphs.duplicates.first_alike`. Without repeated graphs it changes nothing.

    >>> {name: len(part) for name, part in random_split(9000).items()}
    {'train': 7200, 'valid': 900, 'test': 900}
    """
    bounds = np.rint(_bounds(sizes) * num_graphs)
    return _parts(np.searchsorted(bounds, _random_places(num_graphs, seed, first), side="right"))


def stratified_split(
    y: NDArray[Any], seed: int = 0, sizes: Sequence[float] = SIZES, *, first: NDArray[np.int64] | None = None
) -> Split:
    """A random split that keeps the proportions of the classes: each class is itself split by the sizes.

    The graphs of a class, shuffled, stand at equal distances on a line from 0 to 1, and the line is cut at the
    sizes. So every part has each class's share to within one graph, and, since the first stands at a random place,
    exactly its share on average: rare classes are not always left out of the small parts.

    Args:
        y: `(G,)` class of each graph, of any type; unknown ones (NaN) are a class of their own.
        seed: random seed.
        sizes: the shares of train, valid and test.
        first: as for `random_split`; graphs that are the same count for the class of the first.
    """
    return _parts(np.searchsorted(_bounds(sizes), _stratified_places(y, seed, first), side="right"))


def _parts(part: NDArray[np.int64]) -> Split:
    return {name: np.flatnonzero(part == number) for number, name in enumerate(NAMES)}


def _random_places(num_graphs: int, seed: int, first: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """How many graphs stand before each in a random order, in which graphs that are the same stand together."""
    first = np.arange(num_graphs) if first is None else first
    places = np.empty(num_graphs, dtype=np.int64)
    order = _generator(seed).permutation(num_graphs)
    before, alike = _blocks(order, first)
    places[order] = before + np.maximum(alike - 1, 0) // 2  # that of the middle one speaks for all
    return places[first]


def _stratified_places(y: NDArray[Any], seed: int, first: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """The place of each graph on the line from 0 to 1."""
    if y.ndim != 1:
        raise UsageError(f"a stratified split needs one class per graph, got labels of shape {y.shape}", field="split")
    first = np.arange(len(y)) if first is None else first
    rng = _generator(seed)
    places = np.empty(len(y))
    classes, labels = np.unique(y, return_inverse=True)
    for label in range(len(classes)):
        members = rng.permutation(np.flatnonzero(labels == label))
        number = np.isin(first, members).sum()  # these and all that are the same as one of them
        before, alike = _blocks(members, first)
        places[members] = (before + rng.random_sample() * alike) / max(1, number)
    return places[first]


def _blocks(order: NDArray[np.int64], first: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each graph of an ordering in which the same ones stand together: how many stand before, how many are alike.

    A graph that is not the first of its kind has none: it stands where the first does.
    """
    alike = np.bincount(first, minlength=len(first))[order]
    return np.cumsum(alike) - alike, alike


def scaffold_split(
    smiles: Sequence[str],
    sizes: Sequence[float] = SIZES,
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Split:
    """A split in which no two parts share a Bemis–Murcko scaffold, as in MoleculeNet and OGB.

    Molecules with the same scaffold (rings and the chains between them, without chirality) form a group; all without
    rings form one. The groups, the largest first and equal ones the latest first, go to train as long as they fit, else
    to valid, else to test: the test molecules are those with rare scaffolds. There is no chance in it.

    Args:
        smiles: a molecule's SMILES for each graph.
        sizes: the shares of train, valid and test, which the groups may leave unfilled.
        processes: how many; `None` for all cores that this process may use, if there are thousands of molecules.
        progress: called as the work goes on.
    """
    room_train, room_valid = _bounds(sizes) * len(smiles)
    train: list[int] = []
    valid: list[int] = []
    test: list[int] = []
    for group in _scaffold_groups(smiles, processes, progress):
        if len(train) + len(group) <= room_train:
            train += group
        elif len(train) + len(valid) + len(group) <= room_valid:
            valid += group
        else:
            test += group
    return {
        name: np.sort(np.array(part, dtype=np.int64)) for name, part in zip(NAMES, (train, valid, test), strict=True)
    }


def _scaffold_groups(smiles: Sequence[str], processes: int | None, progress: Progress | None) -> list[list[int]]:
    """The molecules of each scaffold, the largest group first and of equal ones the latest."""
    groups: dict[str, list[int]] = {}
    found = (text for texts, _ in _smiles.run("scaffolds", smiles, processes, progress) for text in texts)
    for index, scaffold in enumerate(found):
        if scaffold is None:
            raise DataError(
                f"a scaffold split needs molecules, but number {index} is none: {smiles[index]!r}", field="split"
            )
        groups.setdefault(scaffold, []).append(index)
    return sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True)


def column_split(values: Sequence[str]) -> Split:
    """The split that a column states: `train`, `valid` or `test` for each graph, in any case, or a usual synonym.

    >>> column_split(["Train", "val", "test", "train"])["train"]
    array([0, 3])
    """
    parts: dict[str, list[int]] = {name: [] for name in NAMES}
    for index, value in enumerate(values):
        name = SYNONYMS.get(str(value).strip().lower())
        if name is None:
            raise DataError(f"row {index} is in the part {value!r}; expected one of {', '.join(SYNONYMS)}")
        parts[name].append(index)
    return {name: np.array(part, dtype=np.int64) for name, part in parts.items()}


# ---- folds -----------------------------------------------------------------------------------------------------------


def random_folds(
    num_graphs: int, folds: int, seed: int = 0, *, first: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The fold of each graph, counted from 0: chance, in folds of equal size; see `random_split`."""
    return _random_places(num_graphs, seed, first) * folds // max(1, num_graphs)


def stratified_folds(
    y: NDArray[Any], folds: int, seed: int = 0, *, first: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The fold of each graph, every fold having each class's share to within one graph; see `stratified_split`."""
    return (_stratified_places(y, seed, first) * folds).astype(np.int64)


def scaffold_folds(
    smiles: Sequence[str], folds: int, *, processes: int | None = None, progress: Progress | None = None
) -> NDArray[np.int64]:
    """The fold of each molecule, no two folds sharing a scaffold: the largest group goes to the smallest fold."""
    fold = np.empty(len(smiles), dtype=np.int64)
    filled = [0] * folds
    for group in _scaffold_groups(smiles, processes, progress):
        smallest = filled.index(min(filled))
        fold[group] = smallest
        filled[smallest] += len(group)
    return fold


def split_of_folds(fold_of: NDArray[np.int64], folds: int, fold: int) -> Split:
    """Fold `fold` to test, the next one to validate, the others to train.

    >>> {name: part.tolist() for name, part in split_of_folds(np.array([0, 1, 2, 0]), folds=3, fold=2).items()}
    {'train': [1], 'valid': [0, 3], 'test': [2]}
    """
    valid = (fold + 1) % folds
    return {
        "train": np.flatnonzero((fold_of != fold) & (fold_of != valid)),
        "valid": np.flatnonzero(fold_of == valid),
        "test": np.flatnonzero(fold_of == fold),
    }


def _generator(seed: int) -> np.random.RandomState:
    if not 0 <= seed < 2**32:
        raise UsageError(f"{{field}} must be from 0 to {2**32 - 1}, got {seed}", field="split_seed")
    return np.random.RandomState(seed)


def _bounds(sizes: Sequence[float]) -> NDArray[np.float64]:
    """Where, between 0 and 1, train ends and valid ends."""
    if len(sizes) != 3 or min(sizes) < 0 or abs(sum(sizes) - 1) > 1e-6:
        raise UsageError(
            f"{{field}} must be three shares that add up to 1, got {tuple(sizes)}", field="split_sizes", suggest=SIZES
        )
    return np.cumsum(sizes)[:2]


def check_splits(splits: Mapping[str, NDArray[np.int64]], num_graphs: int) -> None:
    """Raise unless every part names existing graphs and no graph is in two parts or twice in one."""
    seen = np.zeros(num_graphs, dtype=np.int64)
    for name, part in splits.items():
        outside = part[(part < 0) | (part >= num_graphs)]
        if len(outside):
            raise DataError(f"part {name!r} names graph {outside[0]}, but graphs are numbered 0 to {num_graphs - 1}")
        seen += np.bincount(part, minlength=num_graphs)
    if (seen > 1).any():
        raise DataError(f"graph {int(np.argmax(seen > 1))} is in more than one part, or twice in one")
