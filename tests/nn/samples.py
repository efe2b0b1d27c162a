"""Small graphs and networks for the tests of `mlap.nn`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from reference import Graph
from torch import Tensor, nn

from mlap.graphs import Features, GraphBatch, GraphSet
from mlap.nn import GraphNetwork, graph_network

#: nodes and arcs of each graph: an isolated node here and there, a single node, no node at all, no arc at all
SIZES = ((5, 9), (1, 0), (0, 0), (4, 0), (6, 4), (3, 7), (0, 0))

CATEGORIES = (3, 2, 4)
REALS = 2


def features(rng: np.random.Generator, rows: int, kind: Any) -> Features | None:
    """Random features of the kind that `make_encoder` takes."""
    if kind is None:
        return None
    if isinstance(kind, int):
        return Features.reals(rng.normal(size=(rows, kind)))
    return Features.categories(rng.integers(0, kind, (rows, len(kind))), kind)


@cache
def graph_set(nodes: Any = None, edges: Any = None, *, directed: bool = True, seed: int = 0) -> GraphSet:
    """Graphs of the sizes above; in an undirected set, half as many edges."""
    rng = np.random.default_rng(seed)
    ends = []
    for num_nodes, num_arcs in SIZES:
        pairs = [(u, v) for u in range(num_nodes) for v in range(num_nodes) if u < v or (directed and u != v)]
        chosen = rng.permutation(len(pairs))[: num_arcs if directed else num_arcs // 2]
        ends.append(np.array([pairs[number] for number in chosen], dtype=np.int64).reshape(-1, 2))
    node_ptr = np.cumsum([0, *(num_nodes for num_nodes, _ in SIZES)])
    edge_ptr = np.cumsum([0, *map(len, ends)])
    return GraphSet(
        node_ptr,
        edge_ptr,
        np.concatenate(ends).T,
        directed=directed,
        node_features=features(rng, int(node_ptr[-1]), nodes),
        edge_features=features(rng, int(edge_ptr[-1]), edges),
    ).validate()


def double(batch: Any) -> Any:
    """The batch with its real features in double precision."""
    for name in ("x", "edge_attr"):
        value = getattr(batch, name)
        if value is not None and value.is_floating_point():
            setattr(batch, name, value.double())
    return batch


def whole_batch(graphs: GraphSet) -> GraphBatch:
    """All graphs of a set, in double precision."""
    batch: GraphBatch = double(graphs.batch(range(len(graphs))))
    return batch


def plain_graphs(graphs: GraphSet) -> list[Graph]:
    """The graphs of a set for the reference implementation."""

    def array(value: Tensor | None) -> Any:
        return None if value is None else value.numpy()

    return [
        Graph(
            data.num_nodes,
            [(int(u), int(v)) for u, v in data.edge_index.T.tolist()],
            array(data.x),
            array(data.edge_attr),
        )
        for data in graphs
    ]


def shake(module: nn.Module, seed: int = 0) -> None:
    """Move every parameter and running statistic away from its start, where ones and zeros would hide a mistake."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                noise = torch.rand(value.shape, generator=generator, dtype=torch.double)
                value += (0.5 * noise if name.endswith("running_var") else 0.6 * noise - 0.3).to(value.dtype)


def network(architecture: str = "mlap-sum", *, num_layers: int = 2, seed: int = 0, **options: Any) -> GraphNetwork:
    """A small shaken network in double precision and evaluation mode."""
    torch.manual_seed(seed)
    made = graph_network(architecture, num_layers=num_layers, channels=4, out_channels=3, **options).double().eval()
    shake(made, seed)
    return made


def levels(num_levels: int, rows: int, channels: int, seed: int = 0) -> list[Tensor]:
    """Random levels `L × (rows, channels)` in double precision."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, channels, generator=generator, dtype=torch.double) for _ in range(num_levels)]


def close(got: Tensor, expected: Any, tolerance: float = 1e-9) -> None:
    """Raise unless two results agree to a relative and absolute tolerance."""
    if not isinstance(expected, Tensor):
        expected = torch.from_numpy(np.array(expected))
    torch.testing.assert_close(got, expected.to(got.dtype), rtol=tolerance, atol=tolerance)
