from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small import random_graphs, some_sizes

from mlap.analysis.layout import layout
from mlap.graphs import synthetic


def ends(graph: nx.Graph) -> NDArray[np.int64]:
    return np.array(graph.edges, dtype=np.int64).reshape(-1, 2).T


def stress(places: NDArray[Any], graph: nx.Graph) -> float:
    total = 0.0
    for source, lengths in nx.all_pairs_shortest_path_length(graph):
        for target, steps in lengths.items():
            if target > source:
                total += (np.linalg.norm(places[source] - places[target]) / steps - 1) ** 2
    return total


@pytest.mark.parametrize(
    "graph",
    [nx.path_graph(8), nx.cycle_graph(7), nx.star_graph(6), nx.complete_graph(5), nx.grid_2d_graph(4, 4)],
    ids=["path", "cycle", "star", "complete", "grid"],
)
def test_as_little_stress_as_networkx_finds(graph: nx.Graph) -> None:
    graph = nx.convert_node_labels_to_integers(graph)
    found = nx.kamada_kawai_layout(graph)
    peer = np.array([found[node] for node in graph])
    # networkx scales its result to fit a square; the best scale is found by looking.
    least = min(stress(scale * peer, graph) for scale in np.geomspace(0.3, 10, 200))
    assert stress(layout(len(graph), ends(graph)), graph) <= 1.05 * least + 1e-3


def test_a_path_is_a_straight_line_across() -> None:
    places = layout(6, ends(nx.path_graph(6)))
    np.testing.assert_allclose(np.diff(places[:, 0]), 1, atol=0.02)
    np.testing.assert_allclose(places[:, 1], 0, atol=0.05)


@settings(max_examples=30)
@given(sizes=some_sizes, seed=st.integers(0, 1000), density=st.sampled_from([0.0, 0.2, 0.6]), directed=st.booleans())
def test_every_node_has_a_place_of_its_own(sizes: list[int], seed: int, density: float, directed: bool) -> None:
    graphs = random_graphs(sizes, seed=seed, density=density, directed=directed)
    for graph in range(len(graphs)):
        edges = graphs.edges[:, graphs.edge_ptr[graph] : graphs.edge_ptr[graph + 1]]
        places = layout(sizes[graph], edges)
        assert places.shape == (sizes[graph], 2)
        assert np.isfinite(places).all()
        apart = np.linalg.norm(places[:, None] - places, axis=2)[np.triu_indices(sizes[graph], 1)]
        assert (apart > 0.2).all()
        np.testing.assert_array_equal(places, layout(sizes[graph], edges))


def test_directions_do_not_matter() -> None:
    graphs = synthetic(graphs_per_class=1)
    edges = graphs.edges[:, : graphs.edge_ptr[1]].astype(np.int64)
    both = np.concatenate((edges, edges[::-1]), axis=1)
    np.testing.assert_allclose(layout(25, edges), layout(25, both), atol=1e-6)
