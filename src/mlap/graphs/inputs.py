"""What a model is asked about: every row of the input, those that are no graphs included. Nothing of it is kept."""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlap.errors import UsageError
from mlap.graphs._cells import Cells, frame_cells, is_frame, texts
from mlap.graphs._columns import choose_smiles
from mlap.graphs._formats import STDIN, about_rows, is_table, iter_cells, read_cells, table_name
from mlap.graphs._smiles import FEW, Readers
from mlap.graphs.convert import holds
from mlap.graphs.descriptors import FEW_DESCRIBED, descriptors_of
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.molecules import are_molecules
from mlap.graphs.molecules import molecules as read_molecules
from mlap.graphs.progress import Progress
from mlap.graphs.sources import graphs_of, is_source, load_graphs
from mlap.machines import usable_cores

__all__ = [
    "STDIN",
    "Cells",
    "Inputs",
    "about_rows",
    "is_table",
    "iter_cells",
    "iter_inputs",
    "iter_pieces",
    "of_cells",
    "read_inputs",
]


@dataclass(frozen=True)
class Inputs:
    """Graphs to predict, and how they lie in the input: `len(kept) + len(invalid) == num_rows`.

    Args:
        graphs: those of the valid rows.
        kept: `(len(graphs),)`, the row of each graph, counted from 0.
        num_rows: the rows of the input.
        columns: the input's own columns as texts, a cell for each row; empty if it is no table.
        invalid: row → why it is no graph.
        name: what to call the input.
        smiles: one text per row, if the rows are molecules.
        first: the number of the first row, where the input is a piece of a larger one.
    """

    graphs: GraphSet
    kept: NDArray[np.int64]
    num_rows: int
    columns: dict[str, list[str]] = field(default_factory=dict)
    invalid: dict[int, str] = field(default_factory=dict)
    name: str = "graphs"
    smiles: list[str] | None = None
    first: int = 0


def read_inputs(
    x: Any,
    *,
    molecules: bool,
    smiles: str | None = None,
    root: str | Path | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Inputs:
    """Whatever a model may be asked about. Labels are not needed, and not read from tables.

    Args:
        x: a path or a data set's name, as for `load_graphs`; SMILES, a text or a sequence of them; a data frame with a
            column of SMILES; PyG `Data` or networkx graphs, one or several; or a `GraphSet`.
        molecules: whether the model reads molecules, so that a text can be SMILES.
        smiles: the column of the SMILES in a table; guessed if `None`.
        root: where data sets are kept.
        processes: how many processes read SMILES; see `mlap.graphs.molecules.molecules`.
        progress: called as the work goes on.
        say: called with a sentence for the user at a time.

    >>> found = read_inputs(["CCO", "C(C"], molecules=True)
    >>> len(found.graphs), found.kept, sorted(found.invalid)
    (1, array([0]), [1])
    """
    say = say or (lambda sentence: None)
    if isinstance(x, str | Path) and is_source(str(x), root):
        if not is_table(x):
            return _of_graphs(load_graphs(x, root=root, progress=progress, say=say))
        return _of_table(read_cells(x), table_name(x), molecules, smiles, processes, progress, say)
    if isinstance(x, Path):
        raise UsageError(f"there is no file or folder {x}")
    if isinstance(x, str):
        return _one_text(x, molecules)
    if is_frame(x):
        return _of_table(frame_cells(x), "molecules", molecules, smiles, processes, progress, say)
    if isinstance(x, GraphSet):
        return _of_graphs(x)
    if holds(x, str):
        if not molecules and len(x):
            raise _no_smiles(str(next(iter(x))))
        return _of_smiles(texts(x), "molecules", processes, progress)
    return _of_graphs(graphs_of(_without_labels(x)))


def iter_inputs(
    path: str | Path,
    *,
    rows: int,
    molecules: bool = True,
    descriptors: bool = False,
    smiles: str | None = None,
    skip: Container[int] = (),
    processes: int | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[Inputs]:
    """The rows of a table, in pieces of `rows` rows, in memory that does not grow with the file.

    While the caller works with a piece the next one is read, by processes that stay for the whole table.
    `Inputs.first` says which rows of the table a piece holds. SD files and Excel sheets are read whole.

    Args:
        path: the table.
        rows: of a piece; the last one may have fewer.
        molecules: see `read_inputs`.
        descriptors: whether `descriptors_of` will be asked about all molecules: it then knows the answers.
        smiles: see `read_inputs`.
        skip: the numbers of the pieces that are not wanted; their molecules are not read.
        processes: how many read SMILES; one for each core that this process may use unless given.
        say: called with a sentence for the user at a time.
    """
    return read_ahead(_iter_inputs(path, rows, molecules, descriptors, smiles, skip, processes, say))


def _iter_inputs(
    path: str | Path,
    rows: int,
    molecules: bool,
    descriptors: bool,
    smiles: str | None,
    skip: Container[int],
    processes: int | None,
    say: Callable[[str], None] | None,
) -> Iterator[Inputs]:
    with ExitStack() as stack:
        readers: Readers | None = None
        for cells, column in iter_pieces(path, rows, smiles=smiles, skip=skip, say=say):
            if readers is None:  # many tables are short, and processes take long to start
                few = processes is None and len(cells) <= (FEW_DESCRIBED if descriptors else FEW)
                readers = stack.enter_context(Readers(1 if few else processes or usable_cores()))
            yield of_cells(
                cells, column, table_name(path), molecules=molecules, descriptors=descriptors, processes=readers
            )


def iter_pieces(
    path: str | Path,
    rows: int,
    *,
    smiles: str | None = None,
    skip: Container[int] = (),
    say: Callable[[str], None] | None = None,
) -> Iterator[tuple[Cells, str]]:
    """The rows of a table as texts, in pieces, each with the column of the SMILES; see `iter_inputs`."""
    if rows < 1:
        raise UsageError(f"{{field}} must be at least 1, got {rows}", field="rows")
    column = None
    for number, cells in enumerate(iter_cells(path, rows)):
        if column is None:  # where the first piece has its SMILES, the others have them as well
            column, notes = choose_smiles(cells, smiles)
            for note in (*cells.notes, *notes):
                (say or _silence)(note)
        if number not in skip:
            yield cells, column


T = TypeVar("T")


def read_ahead(pieces: Iterator[T]) -> Iterator[T]:
    """The same pieces; the next one is made, in a thread of its own, while the caller works with the last one."""
    with ThreadPoolExecutor(1) as thread:
        try:
            coming = thread.submit(next, pieces, None)
            while (piece := coming.result()) is not None:
                coming = thread.submit(next, pieces, None)
                yield piece
        finally:  # a generator is closed by the thread that runs it
            thread.submit(getattr(pieces, "close", _nothing))


def _silence(sentence: str) -> None:
    pass


def _nothing() -> None:
    pass


def _of_graphs(graphs: GraphSet) -> Inputs:
    ids = list(graphs.ids) if graphs.ids is not None and are_molecules(graphs) else None
    return Inputs(graphs, np.arange(len(graphs)), len(graphs), name=graphs.name, smiles=ids)


def of_cells(
    cells: Cells,
    smiles: str,
    name: str,
    *,
    molecules: bool = True,
    descriptors: bool = False,
    processes: int | Readers | None = None,
    progress: Progress | None = None,
) -> Inputs:
    """The graphs of a table, or of a piece of one, with SMILES in the column `smiles`; see `iter_inputs`."""
    if not molecules:
        raise UsageError(f"{cells.file} is a table of molecules, but the model was not trained on molecules")
    inputs = _of_smiles(cells.columns[smiles], name, processes, progress, cells)
    if descriptors:
        descriptors_of(inputs.graphs, np.arange(len(inputs.graphs)), (), processes)
    return inputs


def _of_table(
    cells: Cells,
    name: str,
    molecules: bool,
    smiles: str | None,
    processes: int | None,
    progress: Progress | None,
    say: Callable[[str], None],
) -> Inputs:
    column, notes = choose_smiles(cells, smiles)
    for note in (*cells.notes, *notes):
        say(note)
    return of_cells(cells, column, name, molecules=molecules, processes=processes, progress=progress)


def _of_smiles(
    smiles: list[str],
    name: str,
    processes: int | Readers | None,
    progress: Progress | None,
    cells: Cells | None = None,
) -> Inputs:
    read = read_molecules(smiles, on_invalid="skip", processes=processes, progress=progress, name=name)
    return Inputs(
        graphs=read.graphs,
        kept=read.kept,
        num_rows=len(smiles),
        columns={} if cells is None else cells.columns,
        invalid={failure.index: failure.reason for failure in read.invalid},
        name=name,
        smiles=smiles,
        first=0 if cells is None else cells.first,
    )


def _one_text(text: str, molecules: bool) -> Inputs:
    """The one molecule that a text is, or an error: what is mistyped is mostly a path or a name."""
    if not molecules:
        raise _no_smiles(text)
    found = _of_smiles([text], "molecules", 1, None)
    if found.invalid:
        shown = text if len(text) <= 60 else text[:59] + "…"
        raise UsageError(f"{shown!r} is neither a data set nor valid SMILES: {found.invalid[0]}")
    return found


def _no_smiles(text: str) -> UsageError:
    shown = text if len(text) <= 60 else text[:59] + "…"
    return UsageError(
        f"{shown!r} is no data set, and the model was not trained on molecules, so it is not read as SMILES"
    )


def _without_labels(x: Any) -> Any:
    """PyG graphs without their labels, which need not be of the model's kind, or all there; others as they are."""
    if hasattr(x, "edge_index"):
        bare = copy.copy(x)
        bare.y = None
        return bare
    if hasattr(x, "nodes"):
        return x
    try:
        return [_without_labels(graph) if hasattr(graph, "edge_index") else graph for graph in x]
    except TypeError:
        raise UsageError(
            f"got a {type(x).__name__}; expected a path, SMILES, a data frame, PyG or networkx graphs, or a graph set"
        ) from None
