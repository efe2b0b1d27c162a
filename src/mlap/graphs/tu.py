"""Graph sets in the text layout of the TU collection (`MCF-7`, `NCI1`, …), NAME being the set's name.

    NAME_A.txt                 an arc per line: two node numbers, counted from 1 through the whole set
    NAME_graph_indicator.txt   a node per line: the number of its graph, from 1, in rising order
    NAME_graph_labels.txt      a graph per line: its class    (or NAME_graph_attributes.txt: real targets)
    NAME_node_labels.txt       a node per line: one or more categories         (may be absent)
    NAME_node_attributes.txt   a node per line: real numbers                   (may be absent)
    NAME_edge_labels.txt, NAME_edge_attributes.txt   the same for the arcs     (may be absent)

Classes and categories may be any integers; they are numbered from 0 in rising order. Two classes are one
binary target (ROC-AUC), more are classes (accuracy); real targets are regression (mean absolute error). Labels become
categorical features. Where there are attributes as well as labels, the features are real: the attributes, followed by
the labels as zeros and ones, as in PyG's `TUDataset`.

Nearly all sets list each undirected edge as two arcs with equal features: it is then stored once. A set that
has an arc without its reverse, a pair that differs in its features, or a self-loop, is stored as directed. A
repeated arc is stored once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError
from mlap.graphs._csv import read_integers, read_reals, refuse_line
from mlap.graphs.graph_set import Features, GraphSet, smallest_unsigned
from mlap.graphs.splits import random_split
from mlap.graphs.task import Task

Array = NDArray[Any]

#: Graphs without nodes that a set may have: the number of its last graph says how large an array is made.
MOST_EMPTY = 1_000_000


def read_tu(folder: Path, name: str | None = None, *, split_seed: int = 0) -> GraphSet:
    """Read a set into memory. TU sets come without a split: theirs is random, 8:1:1, the same for every training run.

    Args:
        folder: the folder that has the files in it, or in a folder `raw` of its own.
        name: what the files' names begin with; by default whatever `…_A.txt` there is.
        split_seed: of the split.
    """
    prefix = _find(Path(folder), name)
    node_ptr = _node_pointer(prefix)
    arcs = _arcs(prefix, node_ptr)
    y, task = _labels(prefix, len(node_ptr) - 1)
    node_features = _features(prefix, "node", int(node_ptr[-1]))
    edge_features = _features(prefix, "edge", len(arcs))
    kept, directed = _without_repeats(prefix, arcs, edge_features)

    owner = _owners(node_ptr, arcs[kept, 0])
    counts = np.bincount(owner, minlength=len(node_ptr) - 1)
    ends = (arcs[kept] - node_ptr[owner, None]).T
    return GraphSet(
        node_ptr=node_ptr,
        edge_ptr=np.concatenate(([0], np.cumsum(counts))),
        edges=np.ascontiguousarray(ends.astype(smallest_unsigned(int(ends.max(initial=0))))),
        directed=directed,
        node_features=node_features,
        edge_features=None if edge_features is None else _rows_of(edge_features, kept),
        y=y,
        task=task,
        splits=random_split(len(node_ptr) - 1, seed=split_seed),
        name=prefix.name,
    ).validate()


def tu_name(folder: Path) -> str | None:
    """The name of the one TU set whose files lie in `folder` or in its folder `raw`, or `None`."""
    for place in (folder, folder / "raw"):
        names = [path.name.removesuffix("_A.txt") for path in place.glob("*_A.txt")]
        if len(names) == 1:
            return names[0]
    return None


def _find(folder: Path, name: str | None) -> Path:
    """What the paths of the set's files begin with."""
    chosen = name or tu_name(folder)
    if chosen is None:
        raise DataError(f"{folder} must have the files of one TU set (NAME_A.txt, …), in it or in {folder / 'raw'}")
    inside = folder / "raw"
    return (inside if _file(inside / chosen, "A").exists() else folder) / chosen


def _file(prefix: Path, part: str) -> Path:
    return prefix.with_name(f"{prefix.name}_{part}.txt")


def _node_pointer(prefix: Path) -> NDArray[np.int64]:
    """Where each graph's nodes begin."""
    path = _file(prefix, "graph_indicator")
    graph = read_integers(path, 1)[:, 0]
    refuse_line(path, graph, graph < 1, "graphs are counted from 1")
    refuse_line(path, graph, np.diff(graph, prepend=1) < 0, "the nodes must be in the order of their graphs")
    refuse_line(path, graph, graph > len(graph) + MOST_EMPTY, "there are not that many graphs")
    return np.concatenate(([0], np.cumsum(np.bincount(graph - 1))))


def _arcs(prefix: Path, node_ptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """The arcs, `(lines, 2)`, between nodes counted from 0 through the whole set."""
    path = _file(prefix, "A")
    arcs = read_integers(path, 2) - 1
    outside = ((arcs < 0) | (arcs >= node_ptr[-1])).any(axis=1)
    refuse_line(path, arcs + 1, outside, f"nodes are counted from 1 to {node_ptr[-1]}")
    source, target = _owners(node_ptr, arcs[:, 0]), _owners(node_ptr, arcs[:, 1])
    refuse_line(path, arcs + 1, source != target, "the two nodes are in different graphs")
    return arcs


def _without_repeats(
    prefix: Path, arcs: NDArray[np.int64], features: Features | None
) -> tuple[NDArray[np.int64], bool]:
    """Which arcs to store, in the order of their nodes, and whether they are directed."""
    span = int(arcs.max(initial=0)) + 1
    there = arcs[:, 0] * span + arcs[:, 1]
    back = arcs[:, 1] * span + arcs[:, 0]
    known, first, repeats = np.unique(there, return_index=True, return_inverse=True)
    if len(known) < len(arcs) and features is not None:
        original = first[repeats]
        differs = (features.values != features.values[original]).any(axis=1)
        refuse_line(_file(prefix, "A"), arcs + 1, differs, "an earlier line has this arc with other features")

    reverse = np.searchsorted(known, back[first])
    paired = known[np.minimum(reverse, len(known) - 1)] == back[first]
    undirected = bool(paired.all()) and bool((there != back).all())
    if undirected and features is not None:
        undirected = bool((features.values[first] == features.values[first[reverse]]).all())
    if not undirected:
        return first, True
    return first[there[first] < back[first]], False


def _features(prefix: Path, kind: str, rows: int) -> Features | None:
    """The labels and attributes of all nodes, or of all arcs."""
    label_file, attribute_file = _file(prefix, f"{kind}_labels"), _file(prefix, f"{kind}_attributes")
    labels, cardinalities = _categories(label_file, rows) if label_file.exists() else (None, [])
    if not attribute_file.exists():
        return None if labels is None else Features.categories(labels, cardinalities)
    attributes = _finite(attribute_file, rows)
    if labels is None:
        return Features.reals(attributes)
    ones = [labels[:, column, None] == np.arange(count) for column, count in enumerate(cardinalities)]
    return Features.reals(np.concatenate((attributes, *ones), axis=1))


def _categories(path: Path, rows: int) -> tuple[NDArray[np.int64], list[int]]:
    """Labels renumbered from 0, column by column, and how many different ones each column has."""
    labels = read_integers(path)
    _refuse_count(path, len(labels), rows)
    cardinalities = []
    for column in labels.T:
        values, column[:] = np.unique(column, return_inverse=True)
        cardinalities.append(len(values))
    return labels, cardinalities


def _labels(prefix: Path, num_graphs: int) -> tuple[Array | None, Task | None]:
    path = _file(prefix, "graph_labels")
    if path.exists():
        labels = read_integers(path, 1)[:, 0]
        _refuse_count(path, len(labels), num_graphs)
        values, classes = np.unique(labels, return_inverse=True)
        if len(values) < 2:
            raise DataError(f"{path} has only one class; expected at least two")
        if len(values) == 2:
            return classes[:, None].astype(np.float32), Task("binary", 1, "rocauc")
        names = tuple(str(value) for value in values)
        return classes.astype(np.int64), Task("multiclass", len(values), "accuracy", names)
    path = _file(prefix, "graph_attributes")
    if path.exists():
        targets = _finite(path, num_graphs)
        return targets.astype(np.float32), Task("regression", targets.shape[1], "mae")
    return None, None


def _finite(path: Path, rows: int) -> Array:
    numbers: Array = read_reals(path)
    _refuse_count(path, len(numbers), rows)
    refuse_line(path, numbers, np.any(~np.isfinite(numbers), axis=1), "expected finite numbers")
    return numbers


def _rows_of(features: Features, rows: NDArray[np.int64]) -> Features:
    return Features(features.values[rows], features.cardinalities, features.divisor)


def _owners(node_ptr: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The graph of each node."""
    return np.repeat(np.arange(len(node_ptr) - 1), np.diff(node_ptr))[nodes]


def _refuse_count(path: Path, lines: int, expected: int) -> None:
    if lines != expected:
        raise DataError(f"{path} has {lines} lines, expected {expected}, counted in the other files")
