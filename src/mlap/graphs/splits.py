"""Ways to divide a graph set into `train`, `valid` and `test`.

Random numbers come from numpy's `RandomState`, whose stream is frozen: the same seed gives the same split with
every version of numpy and on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mlap.errors import UsageError

Split = dict[str, NDArray[np.int64]]

NAMES = ("train", "valid", "test")


def cut(order: NDArray[np.int64], fractions: Sequence[float]) -> Split:
    """Cut an ordering of the graphs into train, valid and test of the given shares; each part is sorted."""
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise UsageError(f"fractions must be three shares that add up to 1, got {tuple(fractions)}")
    first, second = np.rint(np.cumsum(fractions)[:2] * len(order)).astype(np.int64)
    parts = order[:first], order[first:second], order[second:]
    return {name: np.sort(part) for name, part in zip(NAMES, parts, strict=True)}


def random_split(num_graphs: int, seed: int = 0, fractions: Sequence[float] = (0.8, 0.1, 0.1)) -> Split:
    """A uniformly random split.

    >>> {name: len(part) for name, part in random_split(9000).items()}
    {'train': 7200, 'valid': 900, 'test': 900}
    """
    return cut(np.random.RandomState(seed).permutation(num_graphs).astype(np.int64), fractions)


def check_splits(splits: Mapping[str, NDArray[np.int64]], num_graphs: int) -> None:
    """Raise unless every split names existing graphs and no graph is in two splits or twice in one."""
    seen = np.zeros(num_graphs, dtype=np.int64)
    for name, part in splits.items():
        if len(part) and (part.min() < 0 or part.max() >= num_graphs):
            raise UsageError(f"split {name!r} names graph {part.max()}, but there are only {num_graphs} graphs")
        seen += np.bincount(part, minlength=num_graphs)
    if (seen > 1).any():
        raise UsageError(f"graph {int(np.argmax(seen > 1))} is in more than one split, or twice in one")
