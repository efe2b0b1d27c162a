"""Molecules as rows of numbers: Morgan fingerprints, MACCS keys and RDKit's descriptors, made chunk by chunk.

Cleaning of descriptors, the same for every molecule and whatever the data: what is not a number (a partial charge that
RDKit cannot compute, a descriptor that fails) becomes 0, and what lies beyond ±1e30 (`Ipc` of large molecules) becomes
±1e30, so that float32 holds it. A forest asks only which of two values is larger, so no scale needs to be learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy  # its parts load when they are used, so predictions by networks do not wait for them
from numpy.typing import NDArray

from mlap.errors import DataError, unknown
from mlap.graphs._smiles import LARGEST, described
from mlap.graphs.descriptors import descriptor_names

BITS = 2048
RADIUS = 2
KEYS = 167
#: molecules of a chunk: about a second of descriptors, so that the processes end at about the same time
CHUNK = 256
#: molecules that one process reads in less time than it takes to start several
FEW = 2 * CHUNK

#: A row as pairs of column and value.
Row = tuple[list[int], list[float]]


def column_names(kind: str, descriptors: Sequence[str] | None = None) -> tuple[str, ...]:
    """What the columns of a feature matrix are.

    >>> column_names("morgan-maccs")[2046:2050]
    ('morgan 2046', 'morgan 2047', 'maccs 0', 'maccs 1')
    """
    _check(kind)
    morgan = tuple(f"morgan {bit}" for bit in range(BITS))
    if kind == "morgan-maccs":
        return (*morgan, *(f"maccs {key}" for key in range(KEYS)))
    return (*morgan, *(descriptor_names() if descriptors is None else descriptors))


def fingerprints(
    kind: str,
    smiles: Sequence[str],
    *,
    descriptors: Sequence[str] | None = None,
    processes: int = 1,
) -> scipy.sparse.csr_matrix:
    """The features of molecules, `(molecules, columns)` float32.

    Args:
        kind: `"morgan-descriptors"` (counts of Morgan environments of radius 2 in 2048 columns, then RDKit's
            two-dimensional descriptors) or `"morgan-maccs"` (the same environments as bits, then the 167 MACCS keys).
        smiles: the molecules; one that RDKit cannot read is a `DataError`, but valences are not objected to.
        descriptors: the names of the descriptors; those of the RDKit that is installed unless given.
        processes: how many to use where there are thousands of molecules.
    """
    _check(kind)
    return scipy.sparse.vstack(
        [_block(kind, (), 0, descriptors), *_blocks(kind, smiles, descriptors, processes)], format="csr"
    )


def _blocks(
    kind: str, smiles: Sequence[str], descriptors: Sequence[str] | None, processes: int
) -> Iterator[scipy.sparse.csr_matrix]:
    chunks = [(start, list(smiles[start : start + CHUNK])) for start in range(0, len(smiles), CHUNK)]
    names = tuple(descriptors) if descriptors is not None else None
    if processes <= 1 or len(smiles) <= FEW:
        yield from (_block(kind, chunk, start, names) for start, chunk in chunks)
        return
    from joblib import Parallel, delayed

    # joblib's workers need no `if __name__ == "__main__"` in the caller's program and are safe beside threads.
    work = (delayed(_block)(kind, chunk, start, names) for start, chunk in chunks)
    yield from Parallel(n_jobs=min(processes, len(chunks)), batch_size=1, return_as="generator")(work)


def _block(kind: str, smiles: Sequence[str], first: int, descriptors: Sequence[str] | None) -> scipy.sparse.csr_matrix:
    """The features of a chunk of molecules, of which the first is number `first` of all."""
    from rdkit import rdBase

    row_of = _KINDS[kind](descriptors)
    indices: list[int] = []
    values: list[float] = []
    pointer = [0]
    with rdBase.BlockLogs():  # RDKit writes its complaints to stderr
        for number, text in enumerate(smiles, first):
            molecule = _read(text)
            if molecule is None:
                raise DataError(f"molecule {number} ({text!r}) is none that RDKit can read; leave it out")
            columns, entries = row_of(molecule)
            indices += columns
            values += entries
            pointer.append(len(indices))
    shape = (len(smiles), len(column_names(kind, descriptors)))
    return scipy.sparse.csr_matrix((np.array(values, np.float32), np.array(indices, np.int32), pointer), shape)


def _read(smiles: str) -> Any:
    """The molecule, or `None`. Where RDKit objects to a valence alone, it is read all the same.

    Seven molecules of ogbg-molhiv, complexes of aluminium and boron, were valid for the RDKit that made the set.
    """
    from rdkit import Chem

    if (molecule := Chem.MolFromSmiles(smiles)) is not None:
        return molecule
    if (molecule := Chem.MolFromSmiles(smiles, sanitize=False)) is None:
        return None
    molecule.UpdatePropertyCache(strict=False)
    others = Chem.SANITIZE_ALL ^ Chem.SANITIZE_PROPERTIES
    return None if Chem.SanitizeMol(molecule, others, catchErrors=True) else molecule


def _morgan_descriptors(names: Sequence[str] | None) -> Callable[[Any], Row]:
    from rdkit.Chem import Descriptors, rdFingerprintGenerator

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=BITS)
    known = dict(Descriptors.descList)
    chosen = [known[name] for name in (descriptor_names() if names is None else names)]

    def row(molecule: Any) -> Row:
        counts: dict[int, int] = generator.GetCountFingerprint(molecule).GetNonzeroElements()
        values = clean([described(function, molecule) for function in chosen])
        present = np.flatnonzero(values)
        columns = [*sorted(counts), *(present + BITS).tolist()]
        return columns, [*(counts[bit] for bit in sorted(counts)), *values[present].tolist()]

    return row


def _morgan_maccs(names: Sequence[str] | None) -> Callable[[Any], Row]:
    from rdkit.Chem import rdFingerprintGenerator, rdMolDescriptors

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=BITS)

    def row(molecule: Any) -> Row:
        bits = list(generator.GetFingerprint(molecule).GetOnBits())
        keys = [BITS + key for key in rdMolDescriptors.GetMACCSKeysFingerprint(molecule).GetOnBits()]
        return bits + keys, [1.0] * (len(bits) + len(keys))

    return row


_KINDS: dict[str, Callable[[Sequence[str] | None], Callable[[Any], Row]]] = {
    "morgan-descriptors": _morgan_descriptors,
    "morgan-maccs": _morgan_maccs,
}
KINDS = tuple(_KINDS)


def clean(values: Sequence[float]) -> NDArray[np.float32]:
    """Descriptors as finite float32: 0 for what is not a number, at most ±1e30.

    >>> clean([1.5, float("nan"), float("inf"), -1e99]).tolist() == [1.5, 0, np.float32(1e30), np.float32(-1e30)]
    True
    """
    return np.clip(np.nan_to_num(np.array(values, np.float64), nan=0.0), -LARGEST, LARGEST).astype(np.float32)


def _check(kind: str) -> None:
    if kind not in KINDS:
        raise unknown("kind of fingerprint", kind, KINDS, "kind")
