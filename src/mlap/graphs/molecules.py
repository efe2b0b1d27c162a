"""Molecules from SMILES, as graphs with OGB's features of atoms and bonds.

The vocabulary is that of OGB 1.3.6, in which chirality got its fifth value. Every column ends in a value for "anything
else", except the columns that are yes or no, and bond stereo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError, unknown
from mlap.graphs import _smiles
from mlap.graphs.graph_set import Features, GraphSet, smallest_unsigned
from mlap.graphs.progress import Progress

#: Atomic number, chirality, degree, formal charge, hydrogens, radical electrons, hybridisation, aromatic, in a ring.
ATOM_CARDINALITIES = (119, 5, 12, 12, 10, 6, 6, 2, 2)

#: Bond type, stereo, conjugated.
BOND_CARDINALITIES = (5, 6, 2)

ON_INVALID = ("error", "skip")


@dataclass(frozen=True)
class Invalid:
    """A text that is no molecule: where it was (counted from 0), what it was, and why it is none."""

    index: int
    smiles: str
    reason: str

    def __str__(self) -> str:
        text = self.smiles if len(self.smiles) <= 60 else self.smiles[:59] + "…"
        return f"{text!r}: {self.reason}"


@dataclass(frozen=True)
class Molecules:
    """Molecules read from SMILES.

    Args:
        graphs: the molecules; `graphs.ids` are the SMILES as they were given.
        kept: `(len(graphs),)`, which of the given SMILES each graph is.
        invalid: those that are no molecules.
    """

    graphs: GraphSet
    kept: NDArray[np.int64]
    invalid: tuple[Invalid, ...]


def molecules(
    smiles: Sequence[str],
    *,
    on_invalid: str = "error",
    processes: int | _smiles.Readers | None = None,
    progress: Progress | None = None,
    name: str = "molecules",
) -> Molecules:
    """Read SMILES into graphs with OGB's nine atom and three bond features, each bond once.

    Args:
        smiles: the texts. What RDKit cannot read, the empty text and anything that is not text are invalid.
        on_invalid: `"error"` to raise a `DataError` if there is any invalid one, `"skip"` to leave them out.
        processes: how many; `None` for all cores that this process may use, if there are thousands of molecules. Or
            `_smiles.Readers`, which stay from one call to the next.
        progress: called as the work goes on.
        name: what to call the set.

    >>> molecules(["CCO", "c1ccccc1"]).graphs
    GraphSet('molecules', 2 graphs, 9 nodes, 8 edges)
    """
    if isinstance(smiles, str):
        raise UsageError(f"{{field}} must be a sequence of texts, got one text; write [{smiles!r}]", field="smiles")
    if on_invalid not in ON_INVALID:
        raise unknown("way to treat invalid SMILES", on_invalid, ON_INVALID, "on_invalid")

    invalid: list[Invalid] = []
    blocks: list[tuple[Any, ...]] = [_EMPTY]
    for number, (failures, arrays) in enumerate(_smiles.run("featurise", smiles, processes, progress)):
        first = number * _smiles.CHUNK
        invalid.extend(Invalid(first + index, str(smiles[first + index]), reason) for index, reason in failures)
        blocks.append(arrays)
    if invalid and on_invalid == "error":
        raise DataError(
            f"{len(invalid)} of {len(smiles)} SMILES are no molecules, the first at index {invalid[0].index}, "
            f"{invalid[0]}; correct them or leave them out",
            field="on_invalid",
            suggest="skip",
        )

    kept = np.setdiff1d(np.arange(len(smiles)), [failure.index for failure in invalid])
    num_atoms, num_bonds, atoms, bonds = (np.concatenate(parts) for parts in list(zip(*blocks, strict=True))[:4])
    ends = np.concatenate([block[4] for block in blocks], axis=1)
    graphs = GraphSet(
        node_ptr=np.concatenate(([0], np.cumsum(num_atoms, dtype=np.int64))),
        edge_ptr=np.concatenate(([0], np.cumsum(num_bonds, dtype=np.int64))),
        edges=ends.astype(smallest_unsigned(int(ends.max(initial=0)))),
        node_features=Features(atoms, ATOM_CARDINALITIES),
        edge_features=Features(bonds, BOND_CARDINALITIES),
        name=name,
        ids=[smiles[index] for index in kept],
    )
    return Molecules(graphs.validate(), kept, tuple(invalid))


def are_molecules(graphs: GraphSet) -> bool:
    """Whether the graphs of a set are molecules in OGB's features whose ids are their SMILES."""
    return (
        graphs.ids is not None
        and not graphs.directed
        and graphs.node_features is not None
        and graphs.node_features.cardinalities == ATOM_CARDINALITIES
        and graphs.edge_features is not None
        and graphs.edge_features.cardinalities == BOND_CARDINALITIES
    )


#: What there is of no molecules at all: the atoms and bonds of each, their features, the bonds' ends.
_EMPTY = (
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    np.zeros((0, len(ATOM_CARDINALITIES)), np.uint8),
    np.zeros((0, len(BOND_CARDINALITIES)), np.uint8),
    np.zeros((2, 0), np.int32),
)
