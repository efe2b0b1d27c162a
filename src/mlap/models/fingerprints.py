"""Molecules as rows of numbers: Morgan fingerprints, MACCS keys, and RDKit's descriptors as a forest takes them.

Cleaning of descriptors, the same for every molecule and whatever the data: what is not a number (a partial charge that
RDKit cannot compute, a descriptor that fails) becomes 0. A forest asks only which of two values is larger, so no scale
needs to be learned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # its parts load when they are used, so predictions by networks do not wait for them
from numpy.typing import NDArray

from mlap.errors import DataError, unknown
from mlap.graphs import _smiles
from mlap.graphs.descriptors import descriptors_of
from mlap.graphs.graph_set import GraphSet

#: the 166 public MACCS keys, counted from 1
KEYS = 167
#: kind → the job that makes its rows, and its columns
_KINDS = {
    "morgan-counts": ("morgan_counts", _smiles.MORGAN_BITS),
    "morgan-maccs": ("morgan_maccs", _smiles.MORGAN_BITS + KEYS),
}
KINDS = tuple(_KINDS)


def width_of(kind: str) -> int:
    """The number of columns of a kind of fingerprints."""
    if kind not in KINDS:
        raise unknown("kind of fingerprint", kind, KINDS, "kind")
    return _KINDS[kind][1]


def fingerprints(kind: str, smiles: Sequence[str], *, processes: int | None = None) -> scipy.sparse.csr_matrix:
    """The fingerprints of molecules, `(molecules, columns)` float32.

    Args:
        kind: `"morgan-counts"` (counts of Morgan environments of radius 2 in 2048 columns) or `"morgan-maccs"` (the
            same environments as bits, then the 167 MACCS keys).
        smiles: the molecules; one that RDKit cannot read is a `DataError`, but valences are not objected to.
        processes: how many; `None` for all cores that this process may use, if there are thousands of molecules.
    """
    width = width_of(kind)
    blocks = [scipy.sparse.csr_matrix((0, width), dtype=np.float32)]
    for number, (invalid, (lengths, columns, values)) in enumerate(_smiles.run(_KINDS[kind][0], smiles, processes)):
        if invalid:
            index = number * _smiles.CHUNK + invalid[0]
            raise DataError(f"molecule {index} ({smiles[index]!r}) is none that RDKit can read; leave it out")
        pointer = np.concatenate(([0], np.cumsum(lengths)))
        blocks.append(scipy.sparse.csr_matrix((values, columns, pointer), (len(lengths), width)))
    return scipy.sparse.vstack(blocks, format="csr")


def molecule_features(
    kind: str, graphs: GraphSet, indices: NDArray[np.int64], descriptors: Sequence[str] = ()
) -> scipy.sparse.csr_matrix:
    """The fingerprints of molecules of a set and, behind them, the named descriptors.

    Descriptors take ten times as long as fingerprints. They are those of `descriptors_of`, which describes a molecule
    once, however many models ask.
    """
    assert graphs.ids is not None
    found = fingerprints(kind, [graphs.ids[index] for index in indices])
    if not descriptors:
        return found
    return scipy.sparse.hstack([found, clean(descriptors_of(graphs, indices, descriptors))], format="csr")


def clean(descriptors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Descriptors with 0 for what is not a number.

    >>> clean(np.array([1.5, np.nan], np.float32)).tolist()
    [1.5, 0.0]
    """
    return np.nan_to_num(descriptors, nan=0.0)
