from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from small import random_graphs, small_network, some_sizes

from mlap.analysis import smoothing
from mlap.analysis.smoothing import smoothness
from mlap.graphs import GraphSet
from mlap.training import batches


def cosine_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    lengths = math.sqrt(a @ a), math.sqrt(b @ b)
    if min(lengths) == 0:
        return 0.0 if max(lengths) == 0 else 1.0
    return 1 - float(a @ b) / (lengths[0] * lengths[1])


def slow(h: NDArray[np.float64], arcs: list[tuple[int, int]]) -> list[float]:
    """The three measures of one graph, pair by pair."""
    n = len(h)
    arcs = [(u, v) for u, v in arcs if u != v]
    from_neighbours = []
    for node in range(n):
        distances = [cosine_distance(h[u], h[v]) for u, v in arcs if v == node]
        if distances:
            from_neighbours.append(np.mean(distances))
    pairs = [cosine_distance(h[u], h[v]) for u in range(n) for v in range(n) if u != v]
    size = sum(float(row @ row) for row in h)
    energy = sum(float((h[u] - h[v]) @ (h[u] - h[v])) for u, v in arcs)
    return [
        float(np.mean(from_neighbours)) if from_neighbours else math.nan,
        float(np.mean(pairs)) if pairs else math.nan,
        energy / (2 * size) if arcs and size else math.nan,
    ]


def slow_all(h: NDArray[np.float64], graphs: GraphSet) -> NDArray[np.float64]:
    values = []
    for graph, data in enumerate(graphs):
        rows = h[graphs.node_ptr[graph] : graphs.node_ptr[graph + 1]]
        values.append(slow(rows, [(int(u), int(v)) for u, v in data.edge_index.T.tolist()]))
    return np.array(values).T


@given(
    sizes=some_sizes,
    seed=st.integers(0, 1000),
    density=st.sampled_from([0.0, 0.3, 0.8]),
    directed=st.booleans(),
    zeros=st.floats(0, 1),
)
def test_against_pair_by_pair(sizes: list[int], seed: int, density: float, directed: bool, zeros: float) -> None:
    graphs = random_graphs(sizes, seed=seed, density=density, directed=directed)
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(sum(sizes), 3)) * (rng.random((sum(sizes), 1)) > zeros)  # some zero vectors
    found = smoothness(torch.from_numpy(h), graphs.batch(range(len(graphs))))
    np.testing.assert_allclose(found, slow_all(h, graphs), atol=1e-12)


def test_equal_nodes_are_smooth_and_scale_does_not_matter() -> None:
    graphs = random_graphs([4, 6], density=0.9)
    batch = graphs.batch([0, 1])
    equal = torch.ones(10, 3, dtype=torch.float64)
    np.testing.assert_allclose(smoothness(equal, batch), 0, atol=1e-12)
    assert (smoothness(equal, batch) >= 0).all()
    h = torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(smoothness(1000 * h, batch), smoothness(h, batch))


def test_self_loops_do_not_count() -> None:
    graphs = GraphSet(np.array([0, 2]), np.array([0, 3]), np.array([[0, 1, 0], [0, 1, 1]]), directed=True)
    h = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(smoothness(h, graphs.batch([0])).squeeze(), [1, 1, 2 / 4])


def test_levels_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "EVALUATION_ROWS", 40)
    graphs = random_graphs([5, 1, 6, 0, 4, 7])
    network = small_network("mlap-sum", 3, 2).float()
    chosen = np.array([5, 1, 0, 2])
    found = smoothing(network, graphs, chosen)
    assert found.num_graphs == 4
    part = graphs.subset(chosen)
    with torch.no_grad():
        levels = network.levels(part.batch(range(4)))
    for level, h in enumerate(levels):
        expected = np.nanmean(slow_all(h.double().numpy(), part), axis=1)
        got = [found.neighbours[level], found.all_nodes[level], found.dirichlet[level]]
        np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_undefined_everywhere() -> None:
    found = smoothing(small_network("naive", 2, 1).float(), random_graphs([1, 1]), np.arange(2))
    assert np.isnan([found.neighbours, found.all_nodes, found.dirichlet]).all()
