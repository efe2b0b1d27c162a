"""Graphs of other libraries: PyG `Data` and networkx graphs to a `GraphSet`, and a `GraphSet` to `Data`."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from mlap.errors import DataError
from mlap.graphs.graph_set import Array, Features, GraphSet, smallest_unsigned
from mlap.graphs.task import Task
from mlap.names import DEFAULT_METRICS


def holds(sequence: Any, kind: type) -> bool:
    """Whether something is a sequence (a list, an array, a series) of things of a kind, gaps aside.

    >>> holds(["CCO", None], str), holds("CCO", str), holds([], str)
    (True, False, True)
    """
    if isinstance(sequence, str | bytes | Mapping) or not hasattr(sequence, "__len__"):
        return False
    try:
        things = list(sequence)
    except TypeError:
        return False
    return all(thing is None or thing != thing or isinstance(thing, kind) for thing in things)


# ---- PyG ---------------------------------------------------------------------------------------------------------


def from_pyg(
    graphs: Iterable[Data],
    *,
    task: Task | None = None,
    splits: Mapping[str, Any] | None = None,
    name: str = "graphs",
) -> GraphSet:
    """A set of PyG's `Data` objects: a list of them, or any PyG dataset.

    Integers in `x` and `edge_attr` are categories, floats are real features. If every edge is there in both
    directions with the same attributes, and there are no self-loops, the set is undirected and holds each edge
    once; otherwise it holds the arcs. The text in `data.id`, or else `data.smiles`, becomes the graph's id.

    Args:
        graphs: the graphs.
        task: what `y` means. By default a single integer is a class; a float, a bool or a row `(1, T)` is a target,
            binary where there is nothing but 0, 1 and NaN (unknown), else real.
        splits: index arrays by name.
        name: what to call the set.
    """
    items = list(graphs)
    for index, data in enumerate(items):
        if not isinstance(data, Data):
            raise DataError(f"graph {index} is a {type(data).__name__}, expected torch_geometric.data.Data")
    num_nodes = _num_nodes(items)
    parts = [_arcs(data, index) for index, data in enumerate(items)]
    num_arcs = np.array([part.shape[1] for part in parts], dtype=np.int64)
    arcs = np.concatenate([np.empty((2, 0), dtype=np.int64), *parts], axis=1)
    x = _concatenate("x", [_array(data.x) for data in items], num_nodes)
    edge_attr = _concatenate("edge_attr", [_array(data.edge_attr) for data in items], num_arcs)

    forward = _one_of_two(arcs + np.repeat(np.cumsum(num_nodes) - num_nodes, num_arcs), edge_attr)
    if forward is not None:
        arcs, num_arcs = arcs[:, forward], num_arcs // 2
        edge_attr = None if edge_attr is None else edge_attr[forward]
    return _build(
        num_nodes=num_nodes,
        num_edges=num_arcs,
        edges=arcs,
        directed=forward is None,
        x=x,
        edge_attr=edge_attr,
        labels=[_array(data.y) for data in items],
        task=task,
        splits=splits,
        name=name,
        ids=_texts(items, "id") or _texts(items, "smiles"),
    )


def to_pyg(graph_set: GraphSet) -> list[Data]:
    """The graphs as PyG `Data`, an undirected edge in both directions, the graph's id (if any) as `data.id`."""
    graphs = list(graph_set)
    if graph_set.ids is not None:
        for data, text in zip(graphs, graph_set.ids, strict=True):
            data.id = text
    return graphs


def _array(value: Any) -> Array | None:
    if value is None:
        return None
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _texts(items: Sequence[Data], key: str) -> list[str] | None:
    texts = [text for data in items if isinstance(text := getattr(data, key, None), str)]
    return texts if texts and len(texts) == len(items) else None


def _num_nodes(items: Sequence[Data]) -> NDArray[np.int64]:
    """The number of nodes of each graph; where only the edges tell, isolated nodes at the end may be missed."""
    counts, guesses = [], []
    for index, data in enumerate(items):
        if any(key in data for key in ("num_nodes", "x", "pos")):
            counts.append(int(data.num_nodes))
        else:
            guesses.append(index)
            counts.append(1 + max(_arcs(data, index).ravel().tolist(), default=-1))
    if guesses:
        warnings.warn(
            f"{len(guesses)} graphs (the first is graph {guesses[0]}) have neither num_nodes nor x: their nodes are "
            "counted by the largest number in edge_index; set num_nodes if there are isolated nodes",
            stacklevel=3,
        )
    return np.array(counts, dtype=np.int64)


def _arcs(data: Data, index: int) -> NDArray[np.int64]:
    """The arcs of a graph, `(2, arcs)`."""
    if data.edge_index is None:
        if "adj_t" in data:
            raise DataError(f"graph {index} has adj_t but no edge_index; use the data without ToSparseTensor")
        return np.empty((2, 0), dtype=np.int64)
    edge_index = data.edge_index
    if edge_index.numel() == 0:  # however it was written
        return np.empty((2, 0), dtype=np.int64)
    if edge_index.dim() != 2 or len(edge_index) != 2 or edge_index.dtype not in (torch.int64, torch.int32):
        raise DataError(
            f"graph {index}: edge_index is {edge_index.dtype} {tuple(edge_index.shape)}, expected integers (2, arcs)"
        )
    return edge_index.cpu().numpy().astype(np.int64, copy=False)  # type: ignore[no-any-return]


def _concatenate(label: str, parts: Sequence[Array | None], counts: NDArray[np.int64]) -> Array | None:
    """The rows of all graphs, `(rows, columns)`; a graph without nodes (or edges) need not have any."""
    if all(part is None for part in parts):
        return None
    rows: list[Array] = []
    for index, (part, count) in enumerate(zip(parts, counts.tolist(), strict=True)):
        if part is None and count:
            raise DataError(f"graph {index} has no {label}, but other graphs have; give it to all or to none")
        if part is None or (count == 0 and part.size == 0):
            continue
        if part.ndim not in (1, 2) or len(part) != count or part.dtype.kind not in "biuf":
            raise DataError(f"graph {index}: {label} is {part.dtype} {part.shape}, expected {count} rows of numbers")
        part = part.reshape(count, -1)
        if rows and (part.dtype.kind == "f", part.shape[1]) != (rows[0].dtype.kind == "f", rows[0].shape[1]):
            raise DataError(f"graph {index}: {label} is {part.dtype} {part.shape}, unlike that of earlier graphs")
        rows.append(part)
    return np.concatenate(rows) if rows else None


def _one_of_two(arcs: NDArray[np.int64], attributes: Array | None) -> NDArray[np.bool_] | None:
    """Which arcs remain if each edge is kept once; `None` unless every arc has its reverse and none is a loop.

    Args:
        arcs: `(2, arcs)`, the nodes of all graphs numbered through.
        attributes: `(arcs, columns)`; an arc and its reverse must agree in them.
    """
    source, target = arcs
    forward, backward = source < target, source > target
    if 2 * np.count_nonzero(forward) != len(source) or 2 * np.count_nonzero(backward) != len(source):
        return None
    size = int(arcs.max(initial=0)) + 1
    there, back = (
        _sorted(source * size + target, attributes, forward),
        _sorted(target * size + source, attributes, backward),
    )
    same = all(np.array_equal(one, other) for one, other in zip(there, back, strict=True))
    return forward if same else None


def _sorted(codes: NDArray[np.int64], attributes: Array | None, chosen: NDArray[np.bool_]) -> list[Array]:
    """The codes and attributes of the chosen arcs, as columns sorted by all of them together."""
    columns = [codes[chosen], *(() if attributes is None else attributes[chosen].T)]
    order = np.lexsort(columns[::-1])
    return [column[order] for column in columns]


# ---- networkx ----------------------------------------------------------------------------------------------------


def from_networkx(
    graphs: Iterable[Any],
    labels: Sequence[Any] | None = None,
    *,
    node_attrs: Sequence[str] = (),
    edge_attrs: Sequence[str] = (),
    task: Task | None = None,
    splits: Mapping[str, Any] | None = None,
    name: str = "graphs",
    ids: Sequence[str] | None = None,
) -> GraphSet:
    """A set of networkx graphs. Nodes keep the order in which their graph lists them.

    If a graph is directed or has self-loops, the set holds arcs, two for each edge of an undirected graph.

    Args:
        graphs: `Graph`, `DiGraph` or their multigraph kin.
        labels: one per graph. Integers and texts are classes (texts in alphabetical order), floats, bools and rows
            of numbers are targets, as in `from_pyg`.
        node_attrs: the node attributes to keep, by name. They are categories if all their values are integers,
            else real.
        edge_attrs: the edge attributes to keep, likewise.
        task: what the labels mean, if not what their type says.
        splits: index arrays by name.
        name: what to call the set.
        ids: one text per graph.
    """
    items = list(graphs)
    directed = any(graph.is_directed() or any(u == v for u, v in graph.edges()) for graph in items)
    edges: list[tuple[int, int]] = []
    num_edges, node_rows, edge_rows = [], [], []
    for index, graph in enumerate(items):
        numbers = {node: number for number, node in enumerate(graph)}
        for node, values in graph.nodes(data=True):
            node_rows.append(_attributes(values, node_attrs, f"graph {index}, node {node!r}"))
        before = len(edges)
        for u, v, values in graph.edges(data=True):
            row = _attributes(values, edge_attrs, f"graph {index}, edge {u!r} – {v!r}")
            edges.append((numbers[u], numbers[v]))
            edge_rows.append(row)
            if directed and not graph.is_directed() and u != v:
                edges.append((numbers[v], numbers[u]))
                edge_rows.append(row)
        num_edges.append(len(edges) - before)
    if labels is not None and len(labels) != len(items):
        raise DataError(f"got {len(labels)} labels for {len(items)} graphs")
    if labels is not None and any(isinstance(label, str) for label in labels):
        labels, task = _classes(labels, task)
    return _build(
        num_nodes=np.array([len(graph) for graph in items], dtype=np.int64),
        num_edges=np.array(num_edges, dtype=np.int64),
        edges=np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        directed=directed,
        x=_table(node_rows, node_attrs),
        edge_attr=_table(edge_rows, edge_attrs),
        labels=[None] * len(items) if labels is None else [_row(label) for label in labels],
        task=task,
        splits=splits,
        name=name,
        ids=ids,
    )


def _attributes(values: Mapping[str, Any], names: Sequence[str], where: str) -> tuple[Any, ...]:
    row = []
    for name in names:
        if name not in values:
            raise DataError(f"{where} has no attribute {name!r}; it has {', '.join(map(repr, values)) or 'none'}")
        if np.ndim(values[name]) or not isinstance(values[name], bool | int | float | np.bool_ | np.number):
            raise DataError(f"{where}: {name} is {values[name]!r}, expected a number; number the categories from 0")
        row.append(values[name])
    return tuple(row)


def _table(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> Array | None:
    return np.array(rows).reshape(-1, len(names)) if names and rows else None


def _row(label: Any) -> Array | None:
    """A label as PyG would have it: a list of targets is a row."""
    values = _array(label)
    return values[None] if values is not None and values.ndim == 1 else values


def _classes(labels: Sequence[Any], task: Task | None) -> tuple[list[int], Task]:
    """Numbers for classes that are named by texts."""
    texts = [str(label) for label in labels]
    names = task.names if task is not None and task.names else tuple(sorted(set(texts)))
    numbers = {text: number for number, text in enumerate(names)}
    for index, text in enumerate(texts):
        if text not in numbers:
            raise DataError(f"graph {index}: class {text!r} is not one of {', '.join(names)}")
    return [numbers[text] for text in texts], task or Task("multiclass", len(names), "accuracy", names)


# ---- both --------------------------------------------------------------------------------------------------------


def _build(
    num_nodes: NDArray[np.int64],
    num_edges: NDArray[np.int64],
    edges: NDArray[np.int64],
    directed: bool,
    x: Array | None,
    edge_attr: Array | None,
    labels: Sequence[Array | None],
    task: Task | None,
    splits: Mapping[str, Any] | None,
    name: str,
    ids: Sequence[str] | None,
) -> GraphSet:
    y, task = _labels(labels, task)
    graph_set = GraphSet(
        node_ptr=np.concatenate(([0], np.cumsum(num_nodes))),
        edge_ptr=np.concatenate(([0], np.cumsum(num_edges))),
        edges=edges,
        directed=directed,
        node_features=_features("node", x),
        edge_features=_features("edge", edge_attr),
        y=y,
        task=task,
        splits={key: np.asarray(part, dtype=np.int64) for key, part in (splits or {}).items()},
        name=name,
        ids=ids,
    ).validate()
    return dataclasses.replace(graph_set, edges=edges.astype(smallest_unsigned(int(edges.max(initial=0)))))


def _features(kind: str, values: Array | None) -> Features | None:
    if values is None:
        return None
    if values.dtype.kind == "f":
        return Features.reals(values)
    try:
        return Features.categories(values)
    except DataError as error:
        raise DataError(f"{kind} features: {error}; give quantities as floats") from None


def _labels(labels: Sequence[Array | None], task: Task | None) -> tuple[Array | None, Task | None]:
    """Labels as a set holds them, and the task that they, or the given one, make."""
    given = [label for label in labels if label is not None]
    if not given:
        if task is not None and labels:
            raise DataError("there is a task, but the graphs have no labels (y)")
        return None, None
    for index, label in enumerate(labels):
        if label is None:
            raise DataError(f"graph {index} has no label, but others have; mark unknown targets by NaN")
        size = given[0].size
        if label.dtype.kind not in "biuf" or label.size != size or label.shape not in ((), (1,), (1, size)):
            raise DataError(
                f"graph {index}: y is {label.dtype} {label.shape}, expected one number or a row (1, targets), "
                "as many as the first graph has"
            )
    single = all(label.ndim < 2 for label in given)
    y = np.concatenate([label.reshape(1, -1) for label in given])
    if task is None:
        if single and y.dtype.kind in "ui":
            kind, outputs = "multiclass", int(y.max()) + 1
        else:
            kind = "binary" if (np.isin(y, (0, 1)) | np.isnan(y)).all() else "regression"
            outputs = y.shape[1]
        task = Task(kind, max(1, outputs), DEFAULT_METRICS[kind])
    if task.kind != "multiclass":
        return y.astype(np.float32), task
    if y.shape[1] != 1 or not (y == np.rint(y)).all():
        raise DataError(f"the classes of a multiclass task are single integers, got y of {y.dtype} {y.shape}")
    return y[:, 0].astype(np.int64), task
