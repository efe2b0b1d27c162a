"""Small graph sets and networks for the tests of `mlap.analysis`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from mlap.graphs import Features, GraphSet, Task
from mlap.nn import GraphNetwork, graph_network

CATEGORIES = (4, 3)
EDGE_REALS = 2


def random_graphs(
    sizes: list[int], *, seed: int = 0, density: float = 0.4, directed: bool = False, task: Task | None = None
) -> GraphSet:
    """Graphs of the given numbers of nodes; isolated nodes occur, and graphs without edges."""
    rng = np.random.default_rng(seed)
    ends = []
    for size in sizes:
        pairs = [(u, v) for u in range(size) for v in range(size) if u < v or (directed and u != v)]
        ends.append(np.array([pair for pair in pairs if rng.random() < density], dtype=np.int64).reshape(-1, 2))
    num_nodes, num_edges = sum(sizes), sum(map(len, ends))
    splits = {}
    if task is not None:
        order = rng.permutation(len(sizes))
        cuts = len(sizes) * 3 // 5, len(sizes) * 4 // 5
        splits = {
            name: np.sort(part) for name, part in zip(("train", "valid", "test"), np.split(order, cuts), strict=True)
        }
    return GraphSet(
        np.cumsum([0, *sizes]),
        np.cumsum([0, *map(len, ends)]),
        np.concatenate(ends).T,
        directed=directed,
        node_features=Features.categories(rng.integers(0, CATEGORIES, (num_nodes, 2)), CATEGORIES),
        edge_features=Features.reals(rng.normal(size=(num_edges, EDGE_REALS))),
        y=labels(rng, len(sizes), task),
        task=task,
        splits=splits,
        name="small",
    ).validate()


def labels(rng: np.random.Generator, rows: int, task: Task | None) -> Any:
    """Random labels; some targets are unknown."""
    if task is None:
        return None
    if task.kind == "multiclass":
        return rng.integers(0, task.num_outputs, rows)
    y = rng.normal(size=(rows, task.num_outputs))
    y = (y > 0).astype(float) if task.kind == "binary" else y * 3 + 5
    y[rng.random(y.shape) < 0.15] = np.nan
    return y.astype(np.float32)


def small_network(architecture: str, layers: int, outputs: int, *, seed: int = 0, **options: Any) -> GraphNetwork:
    """A network for these graphs, in double precision and evaluation mode, with parameters away from their start."""
    torch.manual_seed(seed)
    network = graph_network(
        architecture,
        num_layers=layers,
        channels=4,
        out_channels=outputs,
        nodes=CATEGORIES,
        edges=EDGE_REALS,
        **options,
    ).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return network.double()


def in_double(batch: Any) -> Any:
    """The batch with its real features in double precision."""
    batch.edge_attr = batch.edge_attr.double()
    return batch


#: the sizes of a few graphs: some without nodes, some of a single one
some_sizes = st.lists(st.integers(0, 7), min_size=1, max_size=5)
