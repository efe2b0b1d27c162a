"""How alike graphs are: Tanimoto similarity of fingerprints for molecules, cosine of embeddings for other graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.graphs._smiles import MORGAN_BITS, morgan_generator

Floats = NDArray[np.float64]


class Tanimoto:
    """Shared substructures: bits of Morgan fingerprints (radius 2, 2,048 bits) that two molecules have in common."""

    kind = "Tanimoto similarity of Morgan fingerprints"

    def __init__(self) -> None:
        self._generator = morgan_generator()
        self._bits: list[Any] = []

    def _fingerprint(self, smiles: str) -> Any:
        from rdkit import Chem, rdBase
        from rdkit.DataStructs import ExplicitBitVect

        with rdBase.BlockLogs():
            molecule = Chem.MolFromSmiles(smiles)
        return ExplicitBitVect(MORGAN_BITS) if molecule is None else self._generator.GetFingerprint(molecule)

    def add(self, graphs: Sequence[str]) -> None:
        """Remember molecules, given by their SMILES."""
        self._bits += [self._fingerprint(smiles) for smiles in graphs]

    def to(self, graph: str) -> Floats:
        """The similarity of a molecule to each one remembered."""
        from rdkit.DataStructs import BulkTanimotoSimilarity

        return np.array(BulkTanimotoSimilarity(self._fingerprint(graph), self._bits))


class Cosine:
    """Nearness in the space that the network's head sees."""

    kind = "cosine of embeddings"

    def __init__(self) -> None:
        self._parts: list[NDArray[np.float32]] = []

    def add(self, graphs: NDArray[np.float32]) -> None:
        """Remember embeddings `(n, C)`."""
        self._parts.append(_unit(graphs))

    def to(self, graph: NDArray[np.float32]) -> Floats:
        """The cosine between an embedding and each one remembered."""
        vector = _unit(graph[None])[0]
        return np.concatenate([part @ vector for part in self._parts]).astype(np.float64)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
