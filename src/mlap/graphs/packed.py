"""Packed sets: a `GraphSet` on disk, loaded in milliseconds by mapping its arrays into memory.

A packed set is a directory, by custom with the suffix `.graphs`:

    header.json       what the set is, with the type, shape and CRC-32 of every array, and a checksum of itself
    node_ptr.bin …    the arrays, raw and little-endian, row after row; `edges` has a row (source, target) per edge
    ids.bin           all ids as one UTF-8 text; id_ptr.bin says at which characters they begin

Nothing in it is code, and nothing is executed when it is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import glob
import hashlib
import json
import math
import mmap
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, MlapError, UsageError
from mlap.files import aside, remove, remove_abandoned
from mlap.graphs import _trust
from mlap.graphs.graph_set import Array, Features, GraphSet, LeftOut, smallest_unsigned
from mlap.graphs.splits import check_splits
from mlap.graphs.task import Task

SUFFIX = ".graphs"
MAGIC = "mlap graph set"
VERSION = 1

#: A set below this size is looked at whenever it is loaded, which takes a few hundredths of a second; a larger one
#: once, until its files change.
SMALL = 64 << 20

_HEADER = "header.json"
_TYPES = {np.dtype(f"<{kind}").str for kind in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")}
_BLOCK = 1 << 22  # rows, or bytes, that are worked on at a time
_LOOK = 1 << 18  # rows that are looked at at a time: few enough for the processor's cache


# ---- reading -----------------------------------------------------------------------------------------------------


def is_packed(path: str | Path) -> bool:
    """Whether `path` is a packed set, of any version, whole or damaged."""
    _bring_back(Path(path))
    try:
        with open(Path(path) / _HEADER, "rb") as file:
            return f'"{MAGIC}"'.encode() in file.read(200)
    except OSError:
        return False


def load(path: str | Path, verify: bool = False) -> GraphSet:
    """The packed set at `path`, its edges and features mapped from disk.

    Checksums and contents are checked in bounded memory: no edge leaves its graph, no category is unknown. A set of
    64 MB and more that was checked before is not checked again unless its files have changed, or `verify` says so.
    """
    path = Path(path)
    header = _read_header(path)
    with _damage(path):
        _trust.check_header(header)
        large = sum(_check_size(path, name, entry) for name, entry in header["arrays"].items()) >= SMALL
        known = large and not verify and _trust.remembered(path, _digest(header))
        if not known:
            for name, entry in header["arrays"].items():
                _check_sum(path, name, entry)
        graph_set = _assemble(path, header)
        if not known:
            try:
                _trust.check_contents(graph_set, _pieces(graph_set, _LOOK))
            except DataError as error:
                raise _damaged(path, str(error)) from None
            if large:
                _trust.remember(path, _digest(header))
        # A cached property keeps its value here: what was computed when the set was packed is not computed again.
        graph_set.__dict__["fingerprint"] = str(header["fingerprint"])
    return graph_set


def notes(path: str | Path) -> list[str]:
    """What was said for the user when the set at `path` was packed, such as what was guessed about its source."""
    said = _read_header(Path(path)).get("notes", [])
    return [str(note) for note in said] if isinstance(said, list) else []


def verify(path: str | Path) -> GraphSet:
    """The packed set at `path` after every check there is, in bounded memory: checksums, contents, fingerprint."""
    path = Path(path)
    graph_set = load(path, verify=True)
    with _damage(path):
        if dataclasses.replace(graph_set).fingerprint != graph_set.fingerprint:
            raise _damaged(path / _HEADER, "the fingerprint is not that of its graphs")
    return graph_set


def _read_header(path: Path) -> dict[str, Any]:
    """What the header says, once its format, version and checksum are right."""
    _bring_back(path)
    file = path / _HEADER
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} is not a packed set: there is no {file}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read as a packed set: {error.strerror or error}") from None
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged(file, "it is not JSON") from None
    if not isinstance(header, dict) or header.get("format") != MAGIC:
        raise DataError(f"{path} is not a packed set: {file} does not say {MAGIC!r}")
    if header.get("version") != VERSION:
        raise DataError(
            f"{path} has format version {header.get('version')!r}, this mlap reads version {VERSION}; "
            "pack the set again from its source"
        )
    content = header.get("set")
    if not isinstance(content, dict) or header.get("sha256") != _digest(content):
        raise _damaged(file, "its checksum does not match")
    return content


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(file: Path, what: str) -> DataError:
    return DataError(f"{file} is damaged: {what}; pack the set again from its source")


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn whatever a lying header leads to into a `DataError` that names the set."""
    try:
        yield
    except DataError:
        raise
    except (MlapError, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _damaged(path / _HEADER, f"it does not describe a graph set ({error!r})") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def _check_size(path: Path, name: str, entry: dict[str, Any]) -> int:
    """The size of an array's file in bytes, if it is the one that the header states."""
    file, shape = _file(path, name), entry["shape"]
    if entry["dtype"] not in _TYPES or not all(isinstance(extent, int) and extent >= 0 for extent in shape):
        raise _damaged(path / _HEADER, f"{name} has type {entry['dtype']!r} and shape {shape}")
    expected = math.prod(shape) * np.dtype(entry["dtype"]).itemsize
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        raise DataError(f"{file} is missing; pack the set again from its source") from None
    if size != expected:
        raise _damaged(file, f"it has {size} bytes, expected {expected}")
    return size


def _check_sum(path: Path, name: str, entry: dict[str, Any]) -> None:
    checksum = 0
    with open(_file(path, name), "rb") as file:
        while block := file.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    if checksum != entry["crc32"]:
        raise _damaged(_file(path, name), "its checksum does not match")


def _file(path: Path, name: str) -> Path:
    if not name.replace("_", "").isalnum():  # a header must not lead out of its directory
        raise ValueError(f"array {name!r}")
    return path / f"{name}.bin"


def _assemble(path: Path, header: dict[str, Any]) -> GraphSet:
    """The set that a header and its files describe, after the checks that do not read the large arrays."""
    arrays = header["arrays"]

    def read(name: str) -> Array:
        values = np.fromfile(_file(path, name), dtype=arrays[name]["dtype"]).reshape(arrays[name]["shape"])
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def features(name: str) -> Features | None:
        if header[name] is None:
            return None
        cardinalities = header[name]["cardinalities"]
        values = _map(_file(path, name), arrays[name])
        return Features(values, None if cardinalities is None else tuple(cardinalities), header[name]["divisor"])

    graph_set = GraphSet(
        node_ptr=read("node_ptr"),
        edge_ptr=read("edge_ptr"),
        edges=_map(_file(path, "edges"), arrays["edges"]).T,
        directed=header["directed"],
        node_features=features("node_features"),
        edge_features=features("edge_features"),
        y=read("y") if "y" in arrays else None,
        task=None if header["task"] is None else Task.from_dict(header["task"]),
        splits={name: read(f"split_{number}") for number, name in enumerate(header["splits"])},
        name=header["name"],
        ids=_cut(_file(path, "ids").read_bytes(), read("id_ptr")) if "ids" in arrays else None,
        rows=read("rows") if "rows" in arrays else None,
        left_out=tuple(LeftOut(**entry) for entry in header.get("left_out", ())),
    )
    _check_shapes(graph_set)
    return graph_set


def _check_shapes(graph_set: GraphSet) -> None:
    """Raise unless the arrays fit each other; the rest of `GraphSet.validate` would read them whole."""
    num_graphs = len(graph_set)
    for pointer in (graph_set.node_ptr, graph_set.edge_ptr):
        if (
            pointer.dtype != np.int64
            or pointer.ndim != 1
            or len(pointer) != num_graphs + 1
            or pointer[0] != 0
            or (np.diff(pointer) < 0).any()
        ):
            raise ValueError(f"the pointers must be {num_graphs + 1} integers that rise from 0")
    if any(part.dtype != np.int64 or part.ndim != 1 for part in graph_set.splits.values()):
        raise ValueError("the parts of a split are not lists of integers")
    if graph_set.edges.shape != (2, graph_set.num_edges) or graph_set.edges.dtype.kind != "u":
        raise ValueError(f"edges are {graph_set.edges.dtype} {graph_set.edges.shape}")
    for features, rows in (
        (graph_set.node_features, graph_set.num_nodes),
        (graph_set.edge_features, graph_set.num_edges),
    ):
        if features is not None:
            columns = len(features.cardinalities) if features.cardinalities is not None else features.num_columns
            if features.values.shape != (rows, columns) or features.divisor < 1:
                raise ValueError(f"features are {features.values.shape}, expected {(rows, columns)}")
    if (graph_set.y is None) != (graph_set.task is None) or (
        graph_set.y is not None and len(graph_set.y) != num_graphs
    ):
        raise ValueError("labels and task do not go together")
    if graph_set.ids is not None and len(graph_set.ids) != num_graphs:
        raise ValueError(f"{len(graph_set.ids)} ids for {num_graphs} graphs")
    table = graph_set.rows
    if table is not None and (table.shape != (num_graphs,) or table.dtype != np.int64 or table.min(initial=0) < 0):
        raise ValueError(f"rows are {table.dtype} {table.shape} for {num_graphs} graphs")
    try:
        check_splits(graph_set.splits, num_graphs)
    except DataError as error:  # which does not know the file it is about
        raise ValueError(str(error)) from None


def _map(file: Path, entry: dict[str, Any]) -> Array:
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    size = math.prod(shape) * dtype.itemsize
    if size == 0:  # an empty file cannot be mapped
        return np.empty(shape, dtype)
    if size < SMALL or not hasattr(mmap, "MADV_DONTNEED"):
        return np.asarray(np.memmap(file, dtype, "r", shape=shape))
    return _Mapped(file, dtype, "r", shape=shape)


class _Mapped(np.memmap[Any, Any]):
    """A large mapped array that keeps no pages: whatever is taken from it, the pages touched before are given back.

    Without this, a set larger than memory fills whatever memory there is with its pages as it is trained on. They
    stay in the system's file cache, from which they can be had again at the cost of a page fault.
    """

    _mmap: mmap.mmap | None  # numpy's name; None in what was computed from the array

    def __getitem__(self, key: Any) -> Any:
        return self._release(super().__getitem__(key))

    def take(self, *args: Any, **options: Any) -> Any:
        return self._release(super().take(*args, **options))

    def _release(self, taken: Any) -> Any:
        if self._mmap is not None:
            self._mmap.madvise(mmap.MADV_DONTNEED)
        return taken.view(np.ndarray) if isinstance(taken, _Mapped) and taken._mmap is None else taken


def _cut(blob: bytes, pointer: NDArray[np.int64]) -> list[str]:
    text = blob.decode("utf-8", "surrogatepass")
    if pointer[0] != 0 or pointer[-1] != len(text) or (np.diff(pointer) < 0).any():
        raise ValueError("the ids are not where id_ptr says")
    return [text[start:stop] for start, stop in pairwise(pointer.tolist())]


# ---- writing -----------------------------------------------------------------------------------------------------


def save(graph_set: GraphSet, path: str | Path) -> None:
    """Pack a set, in memory or mapped, into the directory `path`."""
    with Writer(path) as writer:
        for start, stop in _pieces(graph_set):
            writer.append(graph_set.subset(np.arange(start, stop)))
        writer.splits, writer.left_out = graph_set.splits, graph_set.left_out


def _pieces(graph_set: GraphSet, block: int = _BLOCK) -> Iterator[tuple[int, int]]:
    """Cut a set into ranges of graphs with few enough nodes and edges to be held in memory; at least one range."""
    rows = graph_set.node_ptr + graph_set.edge_ptr
    start = 0
    while True:
        stop = max(start + 1, int(np.searchsorted(rows, rows[start] + block, side="right")) - 1)
        yield start, min(stop, len(graph_set))
        if stop >= len(graph_set):
            return
        start = stop


class Writer:
    """Packs a set piece by piece, so that it never has to be in memory as a whole.

    >>> with Writer(path) as writer:                            # doctest: +SKIP
    ...     for chunk in chunks:
    ...         writer.append(chunk)
    ...     writer.splits = splits

    `splits`, `left_out` and `notes` (sentences on how the set was made, see the function `notes`) are set before the
    block ends.
    The directory appears under its name when the block ends, whole, or not at all. A packed set of that name is
    replaced; anything else is left alone and is an error.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.splits: Mapping[str, NDArray[np.int64]] = {}
        self.notes: Sequence[str] = ()
        self.left_out: Sequence[LeftOut] = ()
        self._first: GraphSet | None = None
        self._files: dict[str, _ArrayFile] = {}
        self._ends = {"node_ptr": 0, "edge_ptr": 0, "id_ptr": 0}

    def __enter__(self) -> Writer:
        # Another process may be replacing the set: it is then away for a moment, so only what stays foreign is foreign.
        if not is_packed(self.path) and self.path.exists() and not _is_empty(self.path) and not is_packed(self.path):
            raise UsageError(f"{self.path} exists and is not a packed set; give another name or remove it")
        with self._writing():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(self.path.parent)
            self._folder = aside(self.path)
            self._folder.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                with self._writing():
                    self._finish()
        finally:
            for file in self._files.values():
                with contextlib.suppress(OSError):  # what could not be written before cannot be written now
                    file.close()
            remove(self._folder)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # no permission, or a full disk
            raise DataError(f"cannot write {self.path}: {error.strerror or error}") from error

    def append(self, chunk: GraphSet) -> None:
        """Add the graphs of a set; its splits are ignored."""
        chunk.validate()
        if self._first is None:
            self._first = chunk.subset([])
        elif _outline(chunk) != _outline(self._first):
            raise DataError(f"{chunk} differs in task, direction, features, labels or ids from what came before")
        with self._writing():
            self._extend_pointer("node_ptr", chunk.node_ptr)
            self._extend_pointer("edge_ptr", chunk.edge_ptr)
            self._extend("edges", _compact(chunk.edges.T))
            for name, features in (("node_features", chunk.node_features), ("edge_features", chunk.edge_features)):
                if features is not None:
                    self._extend(name, _compact(features.values))
            if chunk.y is not None:
                self._extend("y", chunk.y)
            if chunk.ids is not None:
                self._extend_pointer("id_ptr", np.cumsum([0, *map(len, chunk.ids)]))
                text = "".join(chunk.ids).encode("utf-8", "surrogatepass")
                self._extend("ids", np.frombuffer(text, dtype=np.uint8))
            if chunk.rows is not None:
                self._extend("rows", np.asarray(chunk.rows, dtype=np.int64))

    def _extend(self, name: str, rows: Array) -> None:
        if name not in self._files:
            self._files[name] = _ArrayFile(_file(self._folder, name), rows)
        self._files[name].append(rows)

    def _extend_pointer(self, name: str, pointer: NDArray[np.int64]) -> None:
        if name not in self._files:
            self._extend(name, np.zeros(1, dtype=np.int64))
        self._extend(name, np.asarray(pointer[1:] + self._ends[name], dtype=np.int64))
        self._ends[name] += int(pointer[-1])

    def _finish(self) -> None:
        """Write the splits and the header, and give the directory its name."""
        first = self._first
        if first is None:
            raise DataError(f"there are no graphs to pack into {self.path}")
        check_splits(self.splits, len(self._files["node_ptr"]) - 1)
        for number, part in enumerate(self.splits.values()):
            self._extend(f"split_{number}", np.asarray(part, dtype=np.int64))
        content: dict[str, Any] = {
            "name": first.name,
            "directed": bool(first.directed),
            "task": None if first.task is None else first.task.as_dict(),
            "node_features": _scale(first.node_features),
            "edge_features": _scale(first.edge_features),
            "splits": list(self.splits),
            "notes": list(self.notes),
            "left_out": [dataclasses.asdict(entry) for entry in self.left_out],
            "arrays": {name: file.close() for name, file in self._files.items()},
        }
        content["fingerprint"] = _assemble(self._folder, content).fingerprint
        header = {"format": MAGIC, "version": VERSION, "sha256": _digest(content), "set": content}
        with open(self._folder / _HEADER, "w", encoding="utf-8") as file:
            file.write(json.dumps(header, indent=1))
            _sync(file)
        large = sum(file.stat().st_size for file in self._folder.iterdir()) >= SMALL
        _put(self._folder, self.path)
        if large:
            _trust.remember(self.path, _digest(content))  # every piece was looked at as it came


def _put(folder: Path, path: Path) -> None:
    """Rename a directory to `path`, in place of the packed set that may be there.

    Another process may do the same at the same time: whoever comes second replaces what the first has put there.
    """
    old = aside(path, "old")
    for _ in range(10):
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, old)
        try:
            os.rename(folder, path)
            break
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                continue
            if old.exists():
                os.rename(old, path)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)
    else:
        raise DataError(f"{path} is being written by other processes; try again")


def _bring_back(path: Path) -> None:
    """Give a set its name back that a process had moved aside to replace it, before it was killed."""
    if path.suffix != SUFFIX or path.exists():
        return
    with contextlib.suppress(OSError):
        for old in path.parent.glob(f".{glob.escape(path.name)}.*.old"):
            os.rename(old, path)  # if another process was faster, there is a set again
            return


def _sync(file: IO[Any]) -> None:
    """Before a set gets its name its content is on disk: power may fail."""
    file.flush()
    os.fsync(file.fileno())


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _outline(graph_set: GraphSet) -> tuple[Any, ...]:
    """What all pieces of a packed set have in common."""
    node, edge = graph_set.node_features, graph_set.edge_features
    columns = tuple(None if features is None else features.num_columns for features in (node, edge))
    absent = graph_set.ids is None, graph_set.rows is None
    return graph_set.directed, graph_set.task, _scale(node), _scale(edge), columns, absent


def _scale(features: Features | None) -> dict[str, Any] | None:
    """What the header says about features, besides the shape of their array."""
    if features is None:
        return None
    cardinalities = None if features.cardinalities is None else [int(c) for c in features.cardinalities]
    return {"cardinalities": cardinalities, "divisor": int(features.divisor)}


def _compact(values: Array) -> Array:
    """The values in the smallest type that holds them: what is hashed and trained on stays the same."""
    if values.dtype.kind == "f":
        return values.astype(np.float32, copy=False)
    lowest, highest = int(values.min(initial=0)), int(values.max(initial=0))
    if lowest < 0:
        return values.astype(np.promote_types(np.min_scalar_type(lowest), np.min_scalar_type(-highest - 1)))
    return values.astype(smallest_unsigned(highest), copy=False)


class _ArrayFile:
    """An array that grows on disk by rows, in the smallest type that holds all the rows so far."""

    def __init__(self, path: Path, like: Array) -> None:
        self._path = path
        self._dtype = like.dtype.newbyteorder("<")
        self._columns = like.shape[1:]
        self._rows = 0
        self._checksum = 0
        self._file = open(path, "wb")  # noqa: SIM115 (closed by `close`)

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: Array) -> None:
        """Write rows after the others; a type that does not hold them is widened first."""
        wider = np.promote_types(self._dtype, rows.dtype).newbyteorder("<")
        if wider != self._dtype:
            self._widen(wider)
        self._rows += len(rows)
        self._write(rows)

    def _write(self, rows: Array) -> None:
        data = np.ascontiguousarray(rows, dtype=self._dtype).data.cast("B") if rows.size else b""
        self._checksum = zlib.crc32(data, self._checksum)
        self._file.write(data)

    def _widen(self, dtype: np.dtype[Any]) -> None:
        if dtype.kind != self._dtype.kind and {dtype.kind, self._dtype.kind} != {"i", "u"}:
            raise DataError(f"{self._path.stem}: {self._dtype} and {dtype} values cannot be stored together")
        self._file.close()
        narrow = self._path.replace(self._path.with_suffix(".narrow"))
        before, self._dtype, self._checksum = self._dtype, dtype, 0
        self._file = open(self._path, "wb")  # noqa: SIM115
        with open(narrow, "rb") as file:
            while block := file.read(_BLOCK):  # a multiple of every item's size
                self._write(np.frombuffer(block, dtype=before))
        narrow.unlink()

    def close(self) -> dict[str, Any]:
        """Close the file, which is then safely on disk; the header's entry for it."""
        if not self._file.closed:
            try:
                _sync(self._file)
            finally:
                self._file.close()
        return {"dtype": self._dtype.str, "shape": [self._rows, *self._columns], "crc32": self._checksum}
