"""Graph-property sets in the folder layout of the Open Graph Benchmark, read without the `ogb` package.

    raw/edge.csv.gz            an edge per line, its two ends counted from 0 in its graph
    raw/num-node-list.csv.gz   nodes of each graph
    raw/num-edge-list.csv.gz   edges of each graph
    raw/node-feat.csv.gz       a node per line        (may be absent)
    raw/edge-feat.csv.gz       an edge per line       (may be absent)
    raw/graph-label.csv.gz     a graph per line       (may be absent)
    split/SPLIT/{train,valid,test}.csv.gz             (may be absent)
    mapping/mol.csv.gz         with the molecules' SMILES (may be absent)

What the files of an official set hold is known (`OGB_SETS`). A folder of any other name is somebody's own data in the
same layout: its files are gone through once beforehand to find out what they hold, by these rules.

- Edges are undirected, each stored once, as in every official set; if there are self-loops, or pairs listed both
  ways, they are arcs.
- Features that are all integers from 0 to 65535 are categories, any others are real numbers.
- Labels that are all 0, 1 or missing are binary targets (ROC-AUC); one column of integers in which every class from 0
  on occurs is a class (accuracy); anything else is regression (RMSE).
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError, unknown
from mlap.graphs._csv import LONGEST_LINE, Check, Rows, blocks, read_integers, refuse_line
from mlap.graphs.graph_set import Features, GraphSet, smallest_unsigned
from mlap.graphs.molecules import ATOM_CARDINALITIES, BOND_CARDINALITIES
from mlap.graphs.splits import NAMES, Split
from mlap.graphs.task import Task

Array = NDArray[Any]


@dataclass(frozen=True)
class OgbSet:
    """What is known of an official set.

    Args:
        archive: its file at OGB's download address.
        task: the kind, the number of targets or classes and the official metric.
        split: the official split.
        molecular: whether nodes and edges are atoms and bonds with OGB's features, or (ogbg-ppa) nodes have none
            and edges have real ones.
    """

    archive: str
    task: Task
    split: str = "scaffold"
    molecular: bool = True


def _molecules(archive: str, kind: str, targets: int, metric: str) -> OgbSet:
    return OgbSet(f"csv_mol_download/{archive}.zip", Task(kind, targets, metric))


#: The official sets, after the table of OGB 1.3.6.
OGB_SETS: dict[str, OgbSet] = {
    "ogbg-molbace": _molecules("bace", "binary", 1, "rocauc"),
    "ogbg-molbbbp": _molecules("bbbp", "binary", 1, "rocauc"),
    "ogbg-molclintox": _molecules("clintox", "binary", 2, "rocauc"),
    "ogbg-molmuv": _molecules("muv", "binary", 17, "ap"),
    "ogbg-molpcba": _molecules("pcba", "binary", 128, "ap"),
    "ogbg-molsider": _molecules("sider", "binary", 27, "rocauc"),
    "ogbg-moltox21": _molecules("tox21", "binary", 12, "rocauc"),
    "ogbg-moltoxcast": _molecules("toxcast", "binary", 617, "rocauc"),
    "ogbg-molhiv": _molecules("hiv", "binary", 1, "rocauc"),
    "ogbg-molesol": _molecules("esol", "regression", 1, "rmse"),
    "ogbg-molfreesolv": _molecules("freesolv", "regression", 1, "rmse"),
    "ogbg-mollipo": _molecules("lipophilicity", "regression", 1, "rmse"),
    "ogbg-molchembl": _molecules("chembl", "binary", 1310, "rocauc"),
    "ogbg-ppa": OgbSet("ogbg_ppi_medium.zip", Task("multiclass", 37, "accuracy"), "species", molecular=False),
}


def ogb_name(name: str) -> str | None:
    """The official name behind a set's or folder's name (`ogbg_molhiv`), or `None` if it is not an official one."""
    official = name.lower().replace("_", "-")
    if official in ("ogbg-code", "ogbg-code2"):
        raise UsageError(f"{official} asks for a sequence of words, not for a graph property; mlap does not read it")
    return official if official in OGB_SETS else None


def required_files(name: str) -> list[str]:
    """The files, relative to its folder, without which the official set `name` is not complete."""
    known = OGB_SETS[name]
    stems = ["edge", "edge-feat", "graph-label", "num-edge-list", "num-node-list"]
    raw = [f"raw/{stem}.csv.gz" for stem in (*stems, *(["node-feat"] if known.molecular else []))]
    return raw + [f"split/{known.split}/{part}.csv.gz" for part in NAMES]


def read_ogb(folder: Path, name: str | None = None, split: str | None = None) -> GraphSet:
    """Read a whole set into memory.

    Args:
        folder: the folder that has `raw` and `split` in it.
        name: which set it is; by default the folder's name says so.
        split: which of the folder's splits to use; by default the official one, or the only one.
    """
    graphs = GraphSet.concatenate(list(ogb_chunks(folder, name)))
    return replace(graphs, splits=ogb_splits(folder, split, name=name))


def ogb_chunks(folder: Path, name: str | None = None, *, graphs_per_chunk: int = 2048) -> Iterator[GraphSet]:
    """Read a set piece by piece, in memory that does not grow with its size.

    The pieces are consecutive graphs, agree in task, features and array types, and have no splits; an
    empty set is one piece without graphs. The default is about 100 MB a piece for ogbg-ppa.
    """
    if graphs_per_chunk < 1:
        raise UsageError(f"graphs_per_chunk must be at least 1, got {graphs_per_chunk}")
    layout = _Layout(Path(folder), name)
    return layout.chunks(graphs_per_chunk)


def ogb_splits(folder: Path, split: str | None = None, *, name: str | None = None) -> Split:
    """The indices of the train, valid and test graphs; empty if the folder has no splits.

    Args:
        folder: as for `read_ogb`.
        split: the name of a folder in `split`; by default the official one, or the only one.
        name: as for `read_ogb`.
    """
    folder = Path(folder)
    official = ogb_name(name or folder.name)
    there = sorted(path.name for path in (folder / "split").glob("*") if path.is_dir())
    if split is None:
        if official is not None:
            split = OGB_SETS[official].split
        elif not there:
            return {}
        elif len(there) > 1:
            raise UsageError(f"{folder} has several splits, choose one of them: {', '.join(there)}")
        else:
            split = there[0]
    if split not in there:
        raise unknown(f"split of {folder}", split, there) if there else DataError(f"{folder / 'split'} is missing")

    num_graphs = len(read_integers(folder / "raw" / "num-node-list.csv.gz", 1))
    times_seen = np.zeros(num_graphs, dtype=np.int64)
    parts: Split = {}
    for part in NAMES:
        path = folder / "split" / split / f"{part}.csv.gz"
        chosen = parts[part] = read_integers(path, 1)[:, 0]
        expected = f"expected one of {num_graphs} graphs, counted from 0"
        refuse_line(path, chosen, (chosen < 0) | (chosen >= num_graphs), expected)
        np.add.at(times_seen, chosen, 1)
        refuse_line(path, chosen, times_seen[chosen] > 1, "the split lists this graph twice")
    return parts


@dataclass(frozen=True)
class _Kind:
    """How the rows of a feature file are stored: the arguments of `Features` but for the values."""

    columns: int
    dtype: type[np.generic]
    cardinalities: tuple[int, ...] | None = None
    divisor: int = 1

    @classmethod
    def categories(cls, cardinalities: tuple[int, ...]) -> _Kind:
        return cls(len(cardinalities), smallest_unsigned(max(cardinalities) - 1), cardinalities)

    @classmethod
    def reals(cls, columns: int, three_decimals: bool) -> _Kind:
        """Two bytes a value if all have at most three decimals: see `Features`."""
        return cls(columns, np.uint16, divisor=1000) if three_decimals else cls(columns, np.float32)

    def check(self) -> Check | None:
        """What the values must satisfy: see `Rows`."""
        if self.dtype is np.float32:
            return (lambda values: ~np.isfinite(values)), "a finite number"
        if self.cardinalities is None:
            return None
        limits = np.array(self.cardinalities, dtype=np.uint32)
        return (lambda values: values >= limits), f"categories below {', '.join(map(str, self.cardinalities))}"


class _Layout:
    """A folder in OGB's layout, and what its files hold."""

    def __init__(self, folder: Path, name: str | None) -> None:
        self.raw = folder / "raw"
        self.official = ogb_name(name or folder.name)
        self.name = self.official or name or folder.name
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}")
        if (self.raw / "data.npz").exists() and not self._path("edge").exists():
            raise DataError(f"{folder} is in OGB's binary layout; only the one with .csv.gz files is read")
        self.num_nodes = self._counts("num-node-list")
        self.num_edges = self._counts("num-edge-list")
        if len(self.num_nodes) != len(self.num_edges):
            raise DataError(
                f"{self._path('num-edge-list')} has {len(self.num_edges)} lines, "
                f"expected {len(self.num_nodes)} as in num-node-list.csv.gz"
            )
        self.end_type = smallest_unsigned(max(int(self.num_nodes.max(initial=1)) - 1, 0))
        self.smiles = folder / "mapping" / "mol.csv.gz"
        self.directed = False
        self.node_kind: _Kind | None
        self.edge_kind: _Kind | None
        self.task: Task | None
        if self.official is None:
            self.node_kind = self._guess_kind("node-feat")
            self.edge_kind = self._guess_kind("edge-feat")
            self.task = self._guess_task()
            self.directed = self._guess_directed()
        else:
            known = OGB_SETS[self.official]
            self.node_kind = _Kind.categories(ATOM_CARDINALITIES) if known.molecular else None
            self.edge_kind = _Kind.categories(BOND_CARDINALITIES) if known.molecular else self._kind_of_start()
            self.task = replace(known.task, names=self._target_names(known.task))

    def chunks(self, graphs_per_chunk: int) -> Iterator[GraphSet]:
        edges = self._edges()
        node_features = self._rows("node-feat", self.node_kind, self.num_nodes, "num-node-list")
        edge_features = self._rows("edge-feat", self.edge_kind, self.num_edges, "num-edge-list")
        labels = self._labels()
        smiles = _Smiles(self.smiles, len(self.num_nodes)) if self.smiles.exists() else None

        for start in range(0, max(len(self.num_nodes), 1), graphs_per_chunk):
            node_ptr = _pointer(self.num_nodes[start : start + graphs_per_chunk])
            edge_ptr = _pointer(self.num_edges[start : start + graphs_per_chunk])
            num_graphs, num_nodes, num_edges = len(node_ptr) - 1, int(node_ptr[-1]), int(edge_ptr[-1])
            ends = edges.take(num_edges)
            self._check_ends(ends, start, edge_ptr)
            y = None if labels is None else labels.take(num_graphs)
            yield GraphSet(
                node_ptr=node_ptr,
                edge_ptr=edge_ptr,
                edges=np.ascontiguousarray(ends.T),
                directed=self.directed,
                node_features=_features(node_features, self.node_kind, num_nodes),
                edge_features=_features(edge_features, self.edge_kind, num_edges),
                y=y[:, 0] if y is not None and y.dtype.kind == "i" else y,
                task=self.task,
                name=self.name,
                ids=None if smiles is None else smiles.take(num_graphs),
            ).validate()
        for rows in (edges, node_features, edge_features, labels):
            if rows is not None:
                rows.finish()
        if smiles is not None:
            smiles.finish()

    # ---- its files -------------------------------------------------------------------------------------------

    def _path(self, stem: str) -> Path:
        return self.raw / f"{stem}.csv.gz"

    def _counts(self, stem: str) -> NDArray[np.int64]:
        counts = read_integers(self._path(stem), 1)[:, 0]
        refuse_line(self._path(stem), counts, counts < 0, "expected a count")
        return counts

    def _edges(self) -> Rows:
        total, most = int(self.num_edges.sum()), int(self.num_nodes.max(initial=0))
        return Rows(
            self._path("edge"),
            2,
            self.end_type,
            check=(lambda ends: ends >= most, f"node numbers below {most}, the size of the largest graph"),
            total=total,
            because=f"num-edge-list.csv.gz adds up to {total}",
        )

    def _check_ends(self, ends: Array, first_graph: int, edge_ptr: NDArray[np.int64]) -> None:
        """Raise if an edge leaves its graph, or is a self-loop in an undirected set."""
        owner = np.repeat(np.arange(first_graph, first_graph + len(edge_ptr) - 1), np.diff(edge_ptr))
        leaves = (ends >= self.num_nodes[owner, None]).any(axis=1)
        loops = (ends[:, 0] == ends[:, 1]) & (not self.directed)
        for wrong, problem in ((leaves, "leaves its graph"), (loops, "is a self-loop, but the set is undirected")):
            if wrong.any():
                row = int(np.argmax(wrong))
                line = int(self.num_edges[:first_graph].sum()) + row + 1
                raise DataError(
                    f"{self._path('edge')}, line {line}: the edge {ends[row, 0]},{ends[row, 1]} {problem} "
                    f"(graph {owner[row]}, which has {self.num_nodes[owner[row]]} nodes)"
                )

    def _rows(self, stem: str, kind: _Kind | None, counts: NDArray[np.int64], counted_by: str) -> Rows | None:
        if kind is None:
            return None
        total = int(counts.sum())
        return Rows(
            self._path(stem),
            kind.columns,
            kind.dtype,
            scale=kind.divisor,
            check=kind.check(),
            total=total,
            because=f"{counted_by}.csv.gz adds up to {total}",
        )

    def _labels(self) -> Rows | None:
        if self.task is None:
            return None
        kind, outputs = self.task.kind, self.task.num_outputs
        checks: dict[str, Check] = {
            "multiclass": (lambda y: (y < 0) | (y >= outputs), f"a class from 0 to {outputs - 1}"),
            "binary": (lambda y: ~(np.isin(y, (0, 1)) | np.isnan(y)), "0, 1 or nothing"),
            "regression": (lambda y: np.isinf(y), "a finite number or nothing"),
        }
        return Rows(
            self._path("graph-label"),
            1 if kind == "multiclass" else outputs,
            np.int64 if kind == "multiclass" else np.float32,
            missing=kind != "multiclass",
            check=checks[kind],
            total=len(self.num_nodes),
            because=f"num-node-list.csv.gz has {len(self.num_nodes)} graphs",
        )

    def _target_names(self, task: Task) -> tuple[str, ...]:
        """The names that the header of the SMILES file gives the targets."""
        if task.kind == "multiclass" or not self.smiles.exists():
            return ()
        header = _Smiles(self.smiles, 0).header
        names = tuple(column for column in header if column.lower() not in ("smiles", "mol_id"))
        return names if len(names) == task.num_outputs else ()

    # ---- what somebody's own files hold ----------------------------------------------------------------------

    def _kind_of_start(self) -> _Kind:
        """Real edge features of an official set, in the type that fits the first lines.

        Going through all of ogbg-ppa's 358 million edges twice is not worth it: a later line that does not fit is
        an error.
        """
        for block in blocks(self._path("edge-feat")):
            return _Kind.reals(block.values.shape[1], _is_thousandths(block.values, block.scale))
        return _Kind.reals(7, True)

    def _guess_kind(self, stem: str) -> _Kind | None:
        if not self._path(stem).exists():
            return None
        integers, three_decimals, columns = True, True, 1
        largest: Array = np.zeros(1, dtype=np.int64)
        for block in blocks(self._path(stem)):
            columns = block.values.shape[1]
            integers = integers and block.exact and block.scale == 1
            three_decimals = three_decimals and _is_thousandths(block.values, block.scale)
            if integers:
                largest = np.maximum(largest, block.values.max(axis=0))
            if not integers and not three_decimals:
                break
        if integers and largest.max() <= np.iinfo(np.uint16).max:
            return _Kind.categories(tuple(int(value) + 1 for value in np.broadcast_to(largest, columns)))
        return _Kind.reals(columns, three_decimals)

    def _guess_task(self) -> Task | None:
        if not self._path("graph-label").exists():
            return None
        columns, seen = 1, np.empty(0)
        for block in blocks(self._path("graph-label"), missing=True):
            columns = block.values.shape[1]
            seen = np.union1d(seen, block.reals())  # NaN, the missing value, once
            if len(seen) > 10_000:  # no classes
                break
        known = seen[~np.isnan(seen)]
        if np.isin(known, (0, 1)).all():
            return Task("binary", columns, "rocauc")
        if columns == 1 and len(known) == len(seen) and np.array_equal(known, np.arange(len(known))):
            return Task("multiclass", len(known), "accuracy")
        return Task("regression", columns, "rmse")

    def _guess_directed(self) -> bool:
        rows = self._edges()
        size = max(int(self.num_nodes.max(initial=1)), 1)
        for start in range(0, len(self.num_edges), 2048):
            counts = self.num_edges[start : start + 2048]
            source, target = rows.take(int(counts.sum())).astype(np.int64).T
            owner = np.repeat(np.arange(len(counts)), counts)
            pair = (owner * size + np.minimum(source, target)) * size + np.maximum(source, target)
            arcs = np.unique(2 * pair + (source > target))
            if (source == target).any() or len(np.unique(arcs // 2)) < len(arcs):
                return True
        return False


class _Smiles:
    """The SMILES column of `mapping/mol.csv.gz`, read alongside the graphs."""

    def __init__(self, path: Path, total: int) -> None:
        self.path, self._total, self._read = path, total, 0
        self._lines = self._text()
        self.header = next(csv.reader([next(self._lines, "")]), [])
        columns = [column.lower() for column in self.header]
        if "smiles" not in columns:
            raise DataError(f"{path}, line 1: expected a column 'smiles', got {', '.join(self.header) or 'nothing'}")
        # Counted from the right: hundreds of label columns stand to the left of it, and need not be cut apart.
        self._from_right = len(columns) - columns.index("smiles")

    def take(self, count: int) -> list[str]:
        """The next `count` SMILES."""
        smiles = [self._cut(line) for line in islice(self._lines, count)]
        self._read += len(smiles)
        if len(smiles) < count:
            raise DataError(f"{self.path} has {self._read} molecules, expected {self._total}, one for each graph")
        return smiles

    def finish(self) -> None:
        """Raise if the file goes on after its last expected line."""
        if next(self._lines, None) is not None:
            raise DataError(f"{self.path} has more than {self._total} molecules, expected one for each graph")

    def _cut(self, line: str) -> str:
        try:
            cells = next(csv.reader([line])) if '"' in line else line.rsplit(",", self._from_right)
        except csv.Error as error:
            raise DataError(f"{self.path}, line {self._read + 2}: {error}") from None
        if len(cells) < self._from_right:
            raise DataError(f"{self.path}, line {self._read + 2}: expected {len(self.header)} columns, got {line!r}")
        return cells[-self._from_right]

    def _text(self) -> Iterator[str]:
        try:
            with gzip.open(self.path, "rt", encoding="utf-8", newline=None) as file:
                while line := file.readline(LONGEST_LINE + 1):
                    if len(line) > LONGEST_LINE:
                        raise DataError(f"{self.path} has a line of more than {LONGEST_LINE} characters")
                    yield line.rstrip("\n")
        except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError, OSError) as error:
            raise DataError(f"{self.path} is damaged, fetch it again: {error}") from None


def _features(rows: Rows | None, kind: _Kind | None, count: int) -> Features | None:
    return None if rows is None or kind is None else Features(rows.take(count), kind.cardinalities, kind.divisor)


def _is_thousandths(values: Array, scale: int) -> bool:
    """Whether the numbers `values / scale` are unsigned, have at most three decimals and fit two bytes."""
    thousandths = values * np.float64(1000 / scale)
    fits = (thousandths >= 0) & (thousandths <= np.iinfo(np.uint16).max)  # not NaN
    return bool((fits & (np.rint(thousandths) / 1000 == values / np.float64(scale))).all())


def _pointer(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(counts)))
