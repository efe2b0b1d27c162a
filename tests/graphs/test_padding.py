"""Buckets: what padding adds, how much, and how few shapes are left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_graph_set import Kind, Plain, graphs_of_a_kind, pack

from mlap.graphs import Buckets, GraphSet, read_tu, synthetic


@given(graphs_of_a_kind(), st.data())
def test_a_padded_batch_is_the_batch_and_one_more_graph(drawn: tuple[Kind, list[Plain]], data: st.DataObject) -> None:
    graphs = pack(*drawn)
    indices = data.draw(st.lists(st.integers(0, len(graphs) - 1), max_size=7)) if len(graphs) else []
    batch = graphs.batch(indices)
    batch.rw, batch.graph_attr = torch.rand(batch.num_nodes, 2), torch.rand(len(indices), 3)
    padded = Buckets.of(graphs).pad(batch)
    nodes, arcs = batch.num_nodes, batch.edge_index.size(1)

    assert padded.padded
    assert not batch.padded
    assert padded.num_graphs - 1 == padded.num_real == batch.num_real == batch.num_graphs == len(indices)
    assert padded.y is batch.y
    assert padded.ptr.tolist() == [*batch.ptr.tolist(), padded.num_nodes]
    assert torch.equal(padded.batch[:nodes], batch.batch)
    assert padded.batch[nodes:].tolist() == [len(indices)] * (padded.num_nodes - nodes)
    assert padded.num_nodes > nodes
    assert torch.equal(padded.edge_index[:, :arcs], batch.edge_index)
    for end in padded.edge_index[:, arcs:].flatten().tolist():
        assert nodes <= end < padded.num_nodes
    for got, expected, rows in (
        (padded.x, batch.x, padded.num_nodes),
        (padded.edge_attr, batch.edge_attr, padded.edge_index.size(1)),
        (padded.rw, batch.rw, padded.num_nodes),
        (padded.graph_attr, batch.graph_attr, len(indices) + 1),
    ):
        if expected is None:
            assert got is None
        else:
            assert got is not None
            assert got.dtype == expected.dtype
            assert len(got) == rows
            assert torch.equal(got[: len(expected)], expected)
            assert not got[len(expected) :].any()


@given(st.floats(0.1, 300), st.floats(0, 5000), st.integers(0, 10_000), st.data())
def test_padding_is_bounded(nodes: float, arcs: float, num_nodes: int, data: st.DataObject) -> None:
    """Few arcs per padding node, whatever the batch; little waste if the batch is like the set."""
    buckets = Buckets(nodes, arcs)
    num_arcs = data.draw(st.integers(0, round(3 * num_nodes * arcs / nodes)))
    most_nodes, most_arcs = buckets.size(num_nodes, num_arcs)
    assert most_nodes > num_nodes
    assert 0 <= most_arcs - num_arcs <= (most_nodes - num_nodes) * (9 + 2 * arcs / nodes)
    most_nodes, most_arcs = buckets.size(num_nodes, int(num_nodes * arcs / nodes))
    assert most_nodes <= max(1.25 * num_nodes, nodes) + 3


def test_loops_are_spread_over_the_padding_nodes() -> None:
    graphs = synthetic(graphs_per_class=5)
    batch = graphs.batch(range(40))
    padded = Buckets.of(graphs).pad(batch)
    degrees = torch.bincount(padded.edge_index[1], minlength=padded.num_nodes)[batch.num_nodes :]
    assert degrees.max() - degrees.min() <= 1


def shapes(graphs: GraphSet, batch_size: int, pad: bool) -> tuple[int, float]:
    """How many shapes the whole batches of a shuffled epoch have, and the share of padding among their rows."""
    buckets = Buckets.of(graphs)
    order = np.random.default_rng(0).permutation(len(graphs))
    seen, real, rows = set(), 0, 0
    for start in range(0, len(graphs) - batch_size + 1, batch_size):
        batch = graphs.batch(order[start : start + batch_size])
        real += batch.num_nodes + batch.edge_index.size(1)
        batch = buckets.pad(batch) if pad else batch
        rows += batch.num_nodes + batch.edge_index.size(1)
        seen.add((batch.num_nodes, batch.edge_index.size(1)))
    return len(seen), 1 - real / rows


def test_graphs_of_one_size_have_one_shape() -> None:
    assert shapes(synthetic(graphs_per_class=20), 50, pad=True)[0] == 1


@pytest.mark.parametrize("batch_size", [20, 50])
def test_molecules_have_few_shapes(shared_data: Path, batch_size: int) -> None:
    graphs = read_tu(shared_data / "NCI83")
    assert shapes(graphs, batch_size, pad=False)[0] > 50
    number, padding = shapes(graphs, batch_size, pad=True)
    assert number <= 6
    assert padding < 0.2
