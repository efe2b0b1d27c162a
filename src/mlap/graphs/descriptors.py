"""RDKit's two-dimensional descriptors of molecules."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError, short
from mlap.graphs import _smiles
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.progress import Progress
from mlap.machines import usable_cores

#: molecules that one process describes in about the time that it takes to start several
FEW_DESCRIBED = 500

Rows = NDArray[np.float32]

#: what is known of the molecules of a set so far: several models may ask for the same
_KNOWN: WeakKeyDictionary[GraphSet, tuple[Rows, NDArray[np.bool_]]] = WeakKeyDictionary()


def descriptor_names() -> tuple[str, ...]:
    """The names of the two-dimensional descriptors of the RDKit that is installed, in its order."""
    _smiles.require_rdkit()
    from rdkit.Chem import Descriptors

    return tuple(name for name, _ in Descriptors.descList)


def check_descriptors(names: Sequence[str]) -> None:
    """Raise unless the RDKit that is installed has these descriptors."""
    if missing := sorted(set(names) - set(descriptor_names())):
        import rdkit

        raise UsageError(
            f"the model needs {len(missing)} descriptors that RDKit {rdkit.__version__} does not have, such as "
            f"{short(missing[0])}; install the version that the model was made with"
        )


def descriptors(
    smiles: Sequence[str], processes: int | _smiles.Readers | None = None, progress: Progress | None = None
) -> Rows:
    """All descriptors of molecules `(molecules, descriptors)`; NaN where RDKit has no value.

    Args:
        smiles: the molecules; one that RDKit cannot read is a `DataError`, but valences are not objected to.
        processes: how many; `None` for all cores that this process may use, if there are hundreds of molecules. Or
            `_smiles.Readers`, which stay from one call to the next.
        progress: called as the work goes on.
    """
    if processes is None:
        processes = usable_cores() if len(smiles) > FEW_DESCRIBED else 1
    blocks = [np.zeros((0, len(descriptor_names())), np.float32)]
    for number, (invalid, (rows,)) in enumerate(_smiles.run("describe", smiles, processes, progress)):
        if invalid:
            index = number * _smiles.CHUNK + invalid[0]
            raise DataError(f"molecule {index} ({smiles[index]!r}) is none that RDKit can read; leave it out")
        blocks.append(rows)
    return np.concatenate(blocks)


def descriptors_of(
    graphs: GraphSet,
    indices: NDArray[np.int64],
    names: Sequence[str],
    processes: int | _smiles.Readers | None = None,
) -> Rows:
    """The named descriptors of molecules of a set, `(molecules, names)`; each molecule is described once.

    Args:
        graphs: molecules whose ids are their SMILES.
        indices: which of them.
        names: which descriptors, as in `descriptor_names`.
        processes: see `descriptors`.
    """
    if graphs.ids is None:
        raise UsageError(f"{graphs.name} has no SMILES, from which descriptors could be computed", "descriptors", False)
    check_descriptors(names)
    every = descriptor_names()
    if graphs not in _KNOWN:
        _KNOWN[graphs] = np.empty((len(graphs), len(every)), np.float32), np.zeros(len(graphs), np.bool_)
    rows, known = _KNOWN[graphs]
    wanted = np.unique(indices[~known[indices]])
    if len(wanted):
        rows[wanted] = descriptors([graphs.ids[index] for index in wanted], processes)
        known[wanted] = True
    if tuple(names) == every:
        return rows[indices]
    columns = np.array([every.index(name) for name in names], np.int64)
    return rows[indices][:, columns]
