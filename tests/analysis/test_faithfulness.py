from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import random_graphs, small_network, some_sizes
from torch import nn

from mlap.analysis.faithfulness import ORDERS, PLACES, measure_faithfulness, remove_nodes
from mlap.errors import UsageError
from mlap.models import explain


@given(sizes=some_sizes, seed=st.integers(0, 1000), directed=st.booleans(), share=st.floats(0, 1))
def test_removing_nodes_graph_by_graph(sizes: list[int], seed: int, directed: bool, share: float) -> None:
    graphs = random_graphs(sizes, seed=seed, directed=directed)
    keep = np.random.default_rng(seed).random(graphs.num_nodes) < share
    found = remove_nodes(graphs, keep).validate()
    assert graphs.node_features is not None
    assert found.node_features is not None
    assert graphs.edge_features is not None
    assert found.edge_features is not None
    for graph, size in enumerate(sizes):
        first, edge = int(graphs.node_ptr[graph]), int(graphs.edge_ptr[graph])
        stay = [node for node in range(size) if keep[first + node]]
        number = {node: place for place, node in enumerate(stay)}
        rows = [int(found.node_ptr[graph]), int(found.node_ptr[graph + 1])]
        assert rows[1] - rows[0] == len(stay)
        np.testing.assert_array_equal(
            found.node_features.values[slice(*rows)], graphs.node_features.values[[first + node for node in stay]]
        )
        expected = [
            (number[u], number[v], tuple(graphs.edge_features.values[edge + at]))
            for at, (u, v) in enumerate(graphs.edges[:, edge : int(graphs.edge_ptr[graph + 1])].T.tolist())
            if u in number and v in number
        ]
        kept = slice(int(found.edge_ptr[graph]), int(found.edge_ptr[graph + 1]))
        got = [
            (u, v, tuple(values))
            for (u, v), values in zip(found.edges[:, kept].T.tolist(), found.edge_features.values[kept], strict=True)
        ]
        assert got == expected


def test_with_nodes_that_do_not_touch_shares_say_what_removing_does() -> None:
    """Without edges and with uniform attention a logit is a mean over nodes: it falls without its highest terms."""
    graphs = random_graphs([6, 9, 4, 12], density=0)
    network = small_network("mlap-sum", 2, 2).float()
    for pool in network.readout.pools:
        nn.init.zeros_(pool.gate[-1].weight)
    found = measure_faithfulness(network, graphs, np.arange(4), output=1, fractions=(0.25, 0.5), draws=3)
    expected = [(place, order, fraction) for place in PLACES for fraction in (0.25, 0.5) for order in ORDERS]
    assert [(row.place, row.order, row.fraction) for row in found] == expected
    for row in found:
        assert row.change.n == 4
        assert row.size.mean >= abs(row.change.mean) - 1e-9
    for place in PLACES:
        by_order = {row.order: row for row in found if row.fraction == 0.5 and row.place == place}
        assert by_order["highest share"].change.mean < by_order["random"].change.mean
        assert by_order["random"].change.mean < by_order["lowest share"].change.mean
        assert by_order["highest share"].nodes == pytest.approx((3 + 4 + 2 + 6) / 4)
    # Where nodes do not touch, it is the same whether they leave the graph or only the readout.
    for graph, readout in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
        assert graph.change.mean == pytest.approx(readout.change.mean, abs=1e-5)

    # By hand, for the first graph: the mean without its three highest shares.
    with torch.no_grad():
        trace = network.trace(graphs.batch([0]))
        terms = sum(level @ network.head.weight[1] for level in trace.levels)
    alone = measure_faithfulness(network, graphs, [0], output=1, fractions=(0.5,), draws=1)[1]
    assert alone.order == "highest share"
    assert alone.change.mean == pytest.approx(float(terms.sort().values[:3].mean() - terms.mean()), abs=1e-5)


def test_leaving_the_readout_is_attention_among_the_others() -> None:
    """By hand: without its node of the largest share, a graph is pooled with the attention of the rest, scaled to 1."""
    graphs = random_graphs([3, 6], density=0.8)
    network = small_network("mlap-weighted", 2, 1).float()
    found = measure_faithfulness(network, graphs, [1], fractions=(0.1,), draws=1)
    removal = next(row for row in found if (row.place, row.order) == ("readout", "largest share"))
    (one,) = explain(network, graphs, [1])
    assert one.shares is not None
    rest = np.arange(6) != np.abs(one.shares.sum(axis=(1, 2))).argmax()
    expected = one.bias[0] + sum(
        one.shares[rest, level, 0].sum() / one.attention[rest, level].sum() for level in range(2)
    )
    assert removal.change.mean == pytest.approx(float(expected - one.logits[0]), abs=1e-5)


def test_at_least_one_node_goes_and_one_stays() -> None:
    graphs = random_graphs([2, 3], density=1)
    found = measure_faithfulness(small_network("naive", 1, 1).float(), graphs, [0, 1], fractions=(0.0, 1.0), draws=1)
    assert {row.nodes for row in found if row.fraction == 0} == {1.0}
    assert {row.nodes for row in found if row.fraction == 1} == {1.5}


def test_what_cannot_be_measured() -> None:
    network = small_network("mlap-sum", 1, 1).float()
    with pytest.raises(UsageError, match="at least two nodes"):
        measure_faithfulness(network, random_graphs([3, 1]), [0, 1])
    network.head = nn.Sequential(nn.Linear(4, 1), nn.ReLU())
    with pytest.raises(UsageError, match="the head is not linear"):
        measure_faithfulness(network, random_graphs([3, 4]), [0, 1])
