"""Molecules that stand in a set more than once, however they are written."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlap.graphs import _smiles
from mlap.graphs.graph_set import Array, GraphSet
from mlap.graphs.molecules import ATOM_CARDINALITIES, BOND_CARDINALITIES
from mlap.graphs.progress import Progress

#: Chirality of atoms and stereo of bonds are told in the order of the text: the same molecule may have others.
_ATOM_COLUMNS = tuple(column for column in range(len(ATOM_CARDINALITIES)) if column != 1)
_BOND_COLUMNS = tuple(column for column in range(len(BOND_CARDINALITIES)) if column != 1)


def first_alike(
    graphs: GraphSet, *, processes: int | None = None, progress: Progress | None = None
) -> NDArray[np.int64]:
    """For each molecule of a set, the first that is the same: itself, unless it repeats another.

    Molecules are the same if their canonical SMILES are. Those are only made where the graphs leave a doubt: most
    molecules differ from all others in a hash of their atoms and bonds.

    Args:
        graphs: molecules; see `mlap.graphs.molecules.are_molecules`.
        processes: how many processes read SMILES; see `mlap.graphs.molecules.molecules`.
        progress: called as the work goes on.

    >>> from mlap.graphs.molecules import molecules
    >>> first_alike(molecules(["OCC", "C", "CCO"]).graphs)
    array([0, 1, 0])
    """
    assert graphs.ids is not None
    _, group, counts = np.unique(_hashes(graphs), return_inverse=True, return_counts=True)
    doubtful = np.flatnonzero(counts[group] > 1)
    texts = [graphs.ids[index] for index in doubtful.tolist()]
    first = np.arange(len(graphs))
    seen: dict[str, int] = {}
    found = (text for chunk, _ in _smiles.run("canonical", texts, processes, progress) for text in chunk)
    for index, text in zip(doubtful.tolist(), found, strict=True):
        if text is not None:
            first[index] = seen.setdefault(text, index)
    return first


def _hashes(graphs: GraphSet) -> NDArray[np.uint64]:
    """A number per graph that does not depend on the order of its atoms: sums of hashes of atoms with neighbours."""
    assert graphs.node_features is not None
    assert graphs.edge_features is not None
    atoms = _mix(_codes(graphs.node_features.values, _ATOM_COLUMNS, ATOM_CARDINALITIES))
    bonds = _mix(_codes(graphs.edge_features.values, _BOND_COLUMNS, BOND_CARDINALITIES))
    ends = graphs.edges.astype(np.int64) + np.repeat(graphs.node_ptr[:-1], np.diff(graphs.edge_ptr))
    for _ in range(3):
        around = np.zeros_like(atoms)
        np.add.at(around, ends[0], _mix(atoms[ends[1]] ^ bonds))
        np.add.at(around, ends[1], _mix(atoms[ends[0]] ^ bonds))
        atoms = _mix(atoms + around)
    ends_of_graphs = np.concatenate((np.zeros(1, np.uint64), np.cumsum(atoms)))[graphs.node_ptr]
    return np.diff(ends_of_graphs)


def _codes(values: Array, columns: tuple[int, ...], cardinalities: tuple[int, ...]) -> NDArray[np.uint64]:
    """Each row of categories as one number."""
    codes = np.ones(len(values), dtype=np.uint64)
    for column in columns:
        codes = codes * np.uint64(cardinalities[column]) + values[:, column].astype(np.uint64)
    return codes


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of each number: the finaliser of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
