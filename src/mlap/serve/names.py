"""What the graphs of a data set are called, so that people can ask for them by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlap.errors import MlapError
from mlap.graphs import GraphSet
from mlap.graphs.inputs import is_table, iter_cells
from mlap.graphs.molecules import are_molecules

#: columns of a table that hold names, the one that says most first
COLUMNS = (
    *("name", "compound_name", "molecule_name", "drug_name", "title"),
    *("id", "compound_id", "molecule_id", "drug_id", "mol_id", "chembl_id", "molecule_chembl_id", "cas", "cid"),
)
#: rows of a table that are read at a time
PIECE = 10_000


class Names:
    """Finds the graphs of a set by what they are called.

    Args:
        names: of each graph, or `None` of those without; empty if the set has no names.
        smiles: of each graph, as the data set writes it; empty if they are no molecules.
    """

    def __init__(self, names: Sequence[str | None] = (), smiles: Sequence[str] = ()) -> None:
        self._names = names
        self._called: dict[str, list[int]] = {}
        for number, name in enumerate(names):
            if name is not None:
                self._called.setdefault(name.casefold(), []).append(number)
        self._written: dict[str, int | None] = {}
        for number, text in enumerate(smiles):
            self._written[text] = None if text in self._written else number

    @classmethod
    def of(cls, graphs: GraphSet) -> Names:
        """The names of a set: of molecules those in their table, of other graphs their ids."""
        if graphs.ids is None:
            return cls()
        if not are_molecules(graphs):
            return cls([text or None for text in graphs.ids])
        return cls(_column(graphs), graphs.ids)

    def __bool__(self) -> bool:
        """Whether any graph has a name."""
        return bool(self._called)

    def __getitem__(self, number: int) -> str | None:
        """What a graph is called."""
        return self._names[number] if self._names else None

    def called(self, name: str) -> list[int]:
        """The graphs of a name, in upper case or lower case."""
        return self._called.get(name.casefold(), [])

    def written(self, smiles: str) -> int | None:
        """The molecule that the data set writes exactly so; `None` if there is no such one, or several."""
        return self._written.get(smiles)


def name_column(columns: Iterable[str]) -> str | None:
    """The column of a table that names its rows.

    >>> name_column(["SMILES", "Compound ID", "active"])
    'Compound ID'
    """
    known = {name.lower().replace(" ", "_").replace("-", "_"): name for name in columns}
    return next((known[name] for name in COLUMNS if name in known), None)


def _column(graphs: GraphSet) -> list[str | None]:
    """The names of molecules in the table that they were read from; none if it has no column of names, or is gone.

    The set itself does not keep them. A row whose molecule is no longer the one that was read names nothing.
    """
    if graphs.source is None or graphs.ids is None or not is_table(graphs.source.source):
        return []
    rows = range(len(graphs)) if graphs.rows is None else graphs.rows.tolist()
    graph_of = {row: graph for graph, row in enumerate(rows)}
    found: list[str | None] = [None] * len(graphs)
    try:
        for cells in iter_cells(graphs.source.source, PIECE):
            column = name_column(cells.columns)
            if column is None:
                return []
            for row, name in enumerate(cells.columns[column]):
                graph = graph_of.get(cells.first + row)
                if name and graph is not None and any(own[row] == graphs.ids[graph] for own in cells.columns.values()):
                    found[graph] = name
    except (MlapError, OSError):
        return []
    return found
