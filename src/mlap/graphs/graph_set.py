"""A set of graphs, packed into a few flat arrays, and the batches cut from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from mlap.errors import DataError, UsageError
from mlap.graphs.splits import check_splits
from mlap.graphs.task import Task

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Features:
    """The features of all nodes, or of all edges: categorical columns or real ones.

    Args:
        values: `(rows, columns)`. Categories are counted from 0. Real values may be stored as integers with a
            `divisor`: three decimals fit two bytes as `value × 1000`, and dividing gives the same float back.
        cardinalities: the number of categories of each column; `None` says that the columns are real.
        divisor: a stored real value divided by this is the value.
    """

    values: Array
    cardinalities: tuple[int, ...] | None = None
    divisor: int = 1

    @property
    def categorical(self) -> bool:
        """Whether the columns are categories rather than real numbers."""
        return self.cardinalities is not None

    @property
    def num_columns(self) -> int:
        """The number of columns."""
        return int(self.values.shape[1])

    @classmethod
    def categories(cls, values: Array, cardinalities: Sequence[int] | None = None) -> Features:
        """Categorical columns in the smallest integer type; cardinalities are the largest values + 1 unless given."""
        values = values.reshape(-1, 1) if values.ndim == 1 else values
        if values.size and values.min() < 0:
            row, column = np.argwhere(values < 0)[0]
            raise DataError(f"category {values[row, column]} in row {row}, column {column}: categories count from 0")
        if cardinalities is None:
            cardinalities = values.max(axis=0, initial=0).astype(np.int64) + 1
        largest = int(values.max(initial=0))
        return cls(values.astype(smallest_unsigned(largest)), tuple(int(c) for c in cardinalities))

    @classmethod
    def reals(cls, values: Array, divisor: int = 1) -> Features:
        """Real columns, stored as float32 unless `divisor` says that they are scaled integers."""
        values = values.reshape(-1, 1) if values.ndim == 1 else values
        return cls(values if divisor != 1 else values.astype(np.float32), None, divisor)

    def tensor(self, rows: Any = slice(None)) -> Tensor:
        """The given rows as int64 categories or float32 values."""
        # `take` is several times as fast as indexing by an array.
        chosen = self.values[rows] if isinstance(rows, slice) else self.values.take(rows, axis=0)
        if self.categorical:
            return torch.from_numpy(chosen.astype(np.int64))
        reals = chosen.astype(np.float32)
        if self.divisor != 1:
            reals /= np.float32(self.divisor)
        return torch.from_numpy(reals)


@dataclass(slots=True)
class GraphBatch:
    """Some graphs as one disconnected graph, under PyG's attribute names, so that any PyG module accepts it."""

    x: Tensor | None  # (N, columns)
    edge_index: Tensor  # (2, arcs)
    edge_attr: Tensor | None  # (arcs, columns)
    batch: Tensor  # (N,) the graph of each node
    ptr: Tensor  # (B + 1,) where each graph's nodes begin
    num_nodes: int
    num_graphs: int
    y: Tensor | None  # (B,) class ids, or (B, targets)
    padded: bool = False  # whether the last of the B graphs is padding; `y` is then of the B - 1 others
    rw: Tensor | None = None  # (N, k) random-walk features of the nodes, where a network asked for them
    graph_attr: Tensor | None = None  # (B, k) features of the graphs, likewise

    @property
    def num_real(self) -> int:
        """The number of graphs that are not padding; they come first."""
        return self.num_graphs - self.padded

    def to(self, device: torch.device | str) -> GraphBatch:
        """The batch with its tensors on `device`."""
        moved: dict[str, Any] = {}
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            moved[entry.name] = move(value, device) if isinstance(value, Tensor) else value
        return GraphBatch(**moved)


@dataclass(frozen=True)
class Source:
    """Where a graph set can be read again: `load_graphs(source, root=root, **options)`.

    Args:
        source: a known name or an absolute path.
        options: those of the reader, as JSON holds them.
        root: the folder of data sets that was named, absolute; `None` for the default.
    """

    source: str
    options: dict[str, Any]
    root: str | None = None


@dataclass(frozen=True)
class LeftOut:
    """A row of a table that is not in the graph set: its number from 0, what people call it, what it was, and why."""

    row: int
    place: str
    text: str
    reason: str


@dataclass(frozen=True, eq=False)
class GraphSet:
    """All graphs of a data set in a few flat arrays.

    Nodes of graph `g` are the rows `node_ptr[g]:node_ptr[g + 1]` of the node arrays, its edges the columns
    `edge_ptr[g]:edge_ptr[g + 1]` of `edges`, with ends counted from the graph's own first node. An undirected
    set stores each edge once and passes messages both ways; it has no self-loops. A directed set stores its
    arcs. The arrays may live in memory or be memory-mapped.

    Args:
        node_ptr: `(G + 1,)`.
        edge_ptr: `(G + 1,)`.
        edges: `(2, E)`, sources and targets, in any integer type.
        directed: whether `edges` are arcs.
        node_features: of all nodes, or `None` if nodes have none.
        edge_features: of all stored edges, or `None`.
        y: class ids `(G,)`, or targets `(G, T)` in which NaN means unknown; `None` if there are no labels.
        task: what `y` means; `None` exactly if there are no labels.
        splits: index arrays by name, usually `train`, `valid` and `test`.
        name: what to call the set.
        ids: one string per graph (for molecules their SMILES), or `None`.
        source: where the set can be read again; `None` for data that were made in memory.
        rows: `(G,)`, the row of the table that each graph was, counted from 0; `None` if each is its own number.
        left_out: the rows of the table that are not in the set.

    The last three say where the set comes from. They are no part of its fingerprint.
    """

    node_ptr: NDArray[np.int64]
    edge_ptr: NDArray[np.int64]
    edges: Array
    directed: bool = False
    node_features: Features | None = None
    edge_features: Features | None = None
    y: Array | None = None
    task: Task | None = None
    splits: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    name: str = "graphs"
    ids: Sequence[str] | None = None
    source: Source | None = None
    rows: NDArray[np.int64] | None = None
    left_out: tuple[LeftOut, ...] = ()

    # ---- what it is ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.node_ptr) - 1

    def __repr__(self) -> str:
        return f"GraphSet({self.name!r}, {len(self)} graphs, {self.num_nodes} nodes, {self.num_edges} edges)"

    @property
    def num_nodes(self) -> int:
        """The nodes of all graphs."""
        return int(self.node_ptr[-1])

    @property
    def num_edges(self) -> int:
        """The stored edges of all graphs: undirected edges, or arcs."""
        return int(self.edge_ptr[-1])

    def split(self, name: str) -> NDArray[np.int64]:
        """The indices of a named split."""
        if name not in self.splits:
            has = ", ".join(self.splits) or "no splits"
            raise UsageError(f"{self.name} has no part {name!r}; it has {has}", field="split")
        return self.splits[name]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that training sees: the same graphs, labels and splits, the same fingerprint.

        It does not depend on the integer types in which the arrays happen to be stored, and is computed piece by
        piece, so that a memory-mapped set larger than memory has one too.
        """
        digest = hashlib.sha256()
        for label, array, dtype in self._canonical_arrays():
            digest.update(f"{label} {dtype} {array.shape};".encode())
            for row in array if label == "edges" else (array,):
                for start in range(0, len(row), 1 << 18):
                    digest.update(np.ascontiguousarray(row[start : start + (1 << 18)], dtype=dtype).data)
        # Only what training sees: the words of a task's labels are not among it.
        kept = ("kind", "num_outputs", "metric", "names")
        task = None if self.task is None else {name: getattr(self.task, name) for name in kept}
        digest.update(json.dumps([self.directed, task], sort_keys=True).encode())
        return digest.hexdigest()[:16]

    def _canonical_arrays(self) -> Iterator[tuple[str, Array, str]]:
        """Every array that training sees, with its name and the type in which it is hashed."""
        yield "node_ptr", self.node_ptr, "<i8"
        yield "edge_ptr", self.edge_ptr, "<i8"
        yield "edges", self.edges, "<u4"
        for label, features in (("x", self.node_features), ("edge_attr", self.edge_features)):
            if features is not None:
                yield label, features.values, "<f4" if features.values.dtype.kind == "f" else "<u4"
                if features.cardinalities is not None:
                    yield f"{label} cardinalities", np.array(features.cardinalities), "<i8"
                else:
                    yield f"{label} divisor", np.array([features.divisor]), "<i8"
        if self.y is not None:
            yield "y", self.y, "<f4" if self.y.dtype.kind == "f" else "<i8"
        for name, part in sorted(self.splits.items()):
            yield f"split {name}", part, "<i8"

    # ---- graphs out of it ------------------------------------------------------------------------------------

    def batch(self, indices: Any) -> GraphBatch:
        """The graphs `indices` as one batch, assembled by vectorised slicing."""
        indices = np.asarray(indices, dtype=np.int64)
        node_counts, ptr, node_rows = rows_of_graphs(self.node_ptr, indices)
        edge_counts, _, edge_rows = rows_of_graphs(self.edge_ptr, indices)

        num_edges = len(edge_rows)
        offsets = ptr[:-1].repeat(edge_counts)
        edge_index = np.empty((2, num_edges if self.directed else 2 * num_edges), dtype=np.int64)
        np.add(self.edges[0, edge_rows], offsets, out=edge_index[0, :num_edges])
        np.add(self.edges[1, edge_rows], offsets, out=edge_index[1, :num_edges])
        if not self.directed:
            edge_index[:, num_edges:] = edge_index[::-1, :num_edges]
        edge_attr = None
        if self.edge_features is not None:
            edge_attr = self.edge_features.tensor(edge_rows)
            if not self.directed:
                edge_attr = torch.cat((edge_attr, edge_attr))

        return GraphBatch(
            x=None if self.node_features is None else self.node_features.tensor(node_rows),
            edge_index=torch.from_numpy(edge_index),
            edge_attr=edge_attr,
            batch=torch.from_numpy(np.arange(len(indices)).repeat(node_counts)),
            ptr=torch.from_numpy(ptr),
            num_nodes=len(node_rows),
            num_graphs=len(indices),
            y=None if self.y is None else label_tensor(self.y[indices]),
        )

    @property
    def shape(self) -> tuple[int]:
        """That of a list of graphs: what indexes arrays, such as scikit-learn's splitters, indexes sets too."""
        return (len(self),)

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Data: ...

    @overload
    def __getitem__(self, index: slice | Sequence[Any] | Array | tuple[Any, Any]) -> GraphSet: ...

    def __getitem__(self, index: Any) -> Any:
        """Graph `index` as a PyG `Data`, an undirected edge in both directions; or several graphs as a set.

        Several are chosen as of an array: by a slice, by indices, or by a mask.
        """
        if isinstance(index, tuple):  # `graphs[rows, ...]`
            index = index[0]
        if not isinstance(index, int | np.integer):
            return self.subset(np.arange(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"graph {index} of {len(self)}")
        batch = self.batch([index % len(self)])
        named = {"x": batch.x, "edge_index": batch.edge_index, "edge_attr": batch.edge_attr, "y": batch.y}
        return Data(num_nodes=batch.num_nodes, **{key: value for key, value in named.items() if value is not None})

    def __iter__(self) -> Iterator[Data]:
        return (self[index] for index in range(len(self)))

    def subset(self, indices: Any) -> GraphSet:
        """The graphs `indices`, in that order, as a set of their own, without splits."""
        indices = np.asarray(indices, dtype=np.int64)
        _, node_ptr, node_rows = rows_of_graphs(self.node_ptr, indices)
        _, edge_ptr, edge_rows = rows_of_graphs(self.edge_ptr, indices)

        def rows_of(features: Features | None, rows: Array) -> Features | None:
            return None if features is None else dataclasses.replace(features, values=features.values[rows])

        return dataclasses.replace(
            self,
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
            edges=self.edges[:, edge_rows],
            node_features=rows_of(self.node_features, node_rows),
            edge_features=rows_of(self.edge_features, edge_rows),
            y=None if self.y is None else self.y[indices],
            ids=None if self.ids is None else [self.ids[index] for index in indices],
            rows=None if self.rows is None else self.rows[indices],
            splits={},
            source=None,
            left_out=(),
        )

    def cut(self, start: int, stop: int) -> GraphSet:
        """The graphs from `start` up to `stop`, without splits and ids; nothing is copied."""
        nodes = slice(self.node_ptr[start], self.node_ptr[stop])
        edges = slice(self.edge_ptr[start], self.edge_ptr[stop])

        def rows_of(features: Features | None, rows: slice) -> Features | None:
            return None if features is None else dataclasses.replace(features, values=features.values[rows])

        return dataclasses.replace(
            self,
            node_ptr=self.node_ptr[start : stop + 1] - self.node_ptr[start],
            edge_ptr=self.edge_ptr[start : stop + 1] - self.edge_ptr[start],
            edges=self.edges[:, edges],
            node_features=rows_of(self.node_features, nodes),
            edge_features=rows_of(self.edge_features, edges),
            y=None if self.y is None else self.y[start:stop],
            ids=None,
            rows=None if self.rows is None else self.rows[start:stop],
            splits={},
            source=None,
            left_out=(),
        )

    @classmethod
    def concatenate(cls, sets: Sequence[GraphSet]) -> GraphSet:
        """The graphs of several sets of the same kind, one set after the other, without splits."""
        first = sets[0]
        kinds = {(s.directed, s.task, _kind(s.node_features), _kind(s.edge_features)) for s in sets}
        if len(kinds) > 1:
            raise DataError("the sets differ in task, direction or features and cannot be joined")

        def pointer(pointers: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
            return np.concatenate(([0], np.cumsum(np.concatenate([np.diff(p) for p in pointers]))))

        def features(parts: Sequence[Features | None]) -> Features | None:
            present = [part for part in parts if part is not None]
            if not present:
                return None
            return dataclasses.replace(present[0], values=np.concatenate([part.values for part in present]))

        return dataclasses.replace(
            first,
            node_ptr=pointer([s.node_ptr for s in sets]),
            edge_ptr=pointer([s.edge_ptr for s in sets]),
            edges=np.concatenate([s.edges for s in sets], axis=1),
            node_features=features([s.node_features for s in sets]),
            edge_features=features([s.edge_features for s in sets]),
            y=None if first.y is None else np.concatenate([s.y for s in sets if s.y is not None]),
            ids=None if any(s.ids is None for s in sets) else [text for s in sets for text in s.ids or ()],
            splits={},
            source=first.source if len(sets) == 1 else None,
            rows=first.rows if len(sets) == 1 else None,
            left_out=first.left_out if len(sets) == 1 else (),
        )

    # ---- is it sound -----------------------------------------------------------------------------------------

    def validate(self) -> GraphSet:
        """Return the set itself, or raise a `DataError` that names the first graph at fault."""
        for label, pointer in (("node_ptr", self.node_ptr), ("edge_ptr", self.edge_ptr)):
            if len(pointer) != len(self) + 1 or pointer[0] != 0 or (np.diff(pointer) < 0).any():
                raise DataError(f"{label} must rise from 0 and have {len(self) + 1} entries")
        if self.edges.shape != (2, self.num_edges):
            raise DataError(f"edges must be (2, {self.num_edges}), got {self.edges.shape}")
        self._validate_edges()
        self._validate_features("node", self.node_features, self.node_ptr)
        self._validate_features("edge", self.edge_features, self.edge_ptr)
        self.validate_labels()
        check_splits(self.splits, len(self))
        if self.ids is not None and len(self.ids) != len(self):
            raise DataError(f"got {len(self.ids)} ids for {len(self)} graphs")
        if self.rows is not None and self.rows.shape != (len(self),):
            raise DataError(f"got rows of shape {self.rows.shape} for {len(self)} graphs")
        return self

    def _validate_edges(self) -> None:
        sizes = np.repeat(np.diff(self.node_ptr), np.diff(self.edge_ptr))
        outside = (self.edges < 0) | (self.edges >= sizes)
        if outside.any():
            edge, end = np.argwhere(outside.T)[0]
            raise DataError(
                f"graph {_owner(self.edge_ptr, edge)}: an edge points to node {self.edges[end, edge]}, "
                f"but the graph has {sizes[edge]} nodes, counted from 0"
            )
        if not self.directed and (loops := self.edges[0] == self.edges[1]).any():
            graph = _owner(self.edge_ptr, int(np.argmax(loops)))
            raise DataError(f"graph {graph}: an undirected set has no self-loops; store arcs (directed=True)")

    def _validate_features(self, kind: str, features: Features | None, pointer: NDArray[np.int64]) -> None:
        if features is None:
            return
        if features.values.ndim != 2 or len(features.values) != pointer[-1]:
            raise DataError(f"{kind} features must have {pointer[-1]} rows, got shape {features.values.shape}")
        if features.cardinalities is None:
            if features.values.dtype.kind == "f" and not (finite := np.isfinite(features.values)).all():
                row, column = np.argwhere(~finite)[0]
                raise DataError(
                    f"graph {_owner(pointer, row)}: {kind} feature {column} is {features.values[row, column]}; "
                    "features must be finite"
                )
            return
        if features.values.dtype.kind not in "ui":  # NaN is neither below 0 nor above any number
            raise DataError(f"{kind} categories must be integers, got {features.values.dtype}")
        if len(features.cardinalities) != features.num_columns:
            raise DataError(f"got {len(features.cardinalities)} cardinalities for {features.num_columns} columns")
        unknown = (features.values < 0) | (features.values >= np.array(features.cardinalities))
        if unknown.any():
            row, column = np.argwhere(unknown)[0]
            raise DataError(
                f"graph {_owner(pointer, row)}: {kind} feature {column} is category {features.values[row, column]}, "
                f"expected 0 to {features.cardinalities[column] - 1}"
            )

    def validate_labels(self) -> None:
        """Raise a `DataError` that names the first graph whose label the task does not know."""
        if (self.y is None) != (self.task is None):
            raise DataError("labels and a task go together: give both or neither")
        if self.y is None or self.task is None:
            return
        if self.task.kind == "multiclass":
            if self.y.shape != (len(self),) or self.y.dtype.kind not in "ui":
                raise DataError(f"class labels must be {len(self)} integers, got {self.y.dtype} {self.y.shape}")
            wrong = (self.y < 0) | (self.y >= self.task.num_outputs)
            expected = f"0 to {self.task.num_outputs - 1}"
        else:
            if self.y.shape != (len(self), self.task.num_outputs) or self.y.dtype.kind != "f":
                raise DataError(
                    f"targets must be floats of shape {(len(self), self.task.num_outputs)}, "
                    f"got {self.y.dtype} {self.y.shape}"
                )
            binary = self.task.kind == "binary"
            wrong = ~np.isnan(self.y) & (~np.isin(self.y, (0, 1)) if binary else ~np.isfinite(self.y))
            expected = "0, 1 or NaN (unknown)" if binary else "a finite number or NaN (unknown)"
        if wrong.any():
            where = tuple(np.argwhere(wrong)[0])
            raise DataError(f"graph {where[0]}: label {self.y[where]} is out of range, expected {expected}")


def smallest_unsigned(largest: int) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned integer type that holds `largest`."""
    fitting = (kind for kind in (np.uint8, np.uint16, np.uint32) if largest <= np.iinfo(kind).max)
    return next(fitting, np.uint64)


def _kind(features: Features | None) -> tuple[Any, ...] | None:
    """What has to agree before two blocks of features can be joined."""
    return None if features is None else (features.num_columns, features.cardinalities, features.divisor)


def move(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on `device`; on its way to a GPU it passes through pinned memory, so that the host need not wait."""
    if tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def spans(
    pointer: NDArray[np.int64], indices: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """How many rows each of the chosen graphs has, the pointer of these graphs alone, and each graph's shift.

    A shift is what to add to a row of the chosen graphs to find that row among those of all graphs.
    """
    if len(indices) and indices.min() < 0:
        raise IndexError(f"graph {indices.min()}: graphs are counted from 0")
    starts = pointer[indices]
    counts = pointer[indices + 1] - starts
    chosen = np.zeros(len(indices) + 1, dtype=np.int64)
    counts.cumsum(out=chosen[1:])
    return counts, chosen, starts - chosen[:-1]


def rows_of_graphs(
    pointer: NDArray[np.int64], indices: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """How many rows each of the chosen graphs has, the pointer of these graphs alone, and all their rows."""
    counts, chosen, shifts = spans(pointer, indices)
    rows = shifts.repeat(counts)
    rows += np.arange(len(rows))
    return counts, chosen, rows


def label_tensor(y: Array) -> Tensor:
    """Labels in the types that losses take: int64 class ids or float32 targets."""
    return torch.from_numpy(y.astype(np.float32 if y.dtype.kind == "f" else np.int64, copy=False))


def _owner(pointer: NDArray[np.int64], row: int) -> int:
    """The graph that a row belongs to."""
    return int(np.searchsorted(pointer, row, side="right")) - 1
