"""Nodes with the same first step are found, and computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mlap import kernels
from mlap.graphs import synthetic
from mlap.nn import NORMS, CategoryEncoder, graph_network

pytest.importorskip("numba", reason="the kernels need numba")

from mlap.kernels import gin
from mlap.kernels.sharing import Items, environments


def shake(module: nn.Module) -> None:
    """Move every parameter away from zeros and ones, which would hide a mistake."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)


def close(got: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@st.composite
def kinds_and_arcs(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Kinds of nodes, kinds of arcs, and arcs; loops, repeated arcs and isolated nodes among them."""
    nodes = draw(st.integers(1, 12))
    kind = draw(st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes))
    arcs = draw(
        st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1), st.integers(0, 1)), max_size=20)
    )
    table = torch.tensor(arcs, dtype=torch.long).view(-1, 3).t()
    return torch.tensor(kind), table[2], table[:2]


@given(kinds_and_arcs(), st.booleans())
def test_environments_are_own_kind_and_what_neighbours_are(
    drawn: tuple[Tensor, Tensor, Tensor], arcs_differ: bool
) -> None:
    kind, edge_kind, edge_index = drawn
    first, environment = environments(kind, edge_kind if arcs_differ else None, edge_index)
    slow = []
    for node in range(len(kind)):
        heard: Counter[Any] = Counter()
        for arc, (source, target) in enumerate(edge_index.t().tolist()):
            if target == node:
                heard[int(kind[source]), int(edge_kind[arc]) if arcs_differ else 0] += 1
        slow.append((int(kind[node]), frozenset(heard.items())))
    for node in range(len(kind)):
        for other in range(len(kind)):
            assert (environment[node] == environment[other]) == (slow[node] == slow[other])
        assert slow[int(first[environment[node]])] == slow[node]
    assert len(first) == len(set(slow))


@pytest.mark.parametrize("edges", [None, [2]])
@settings(max_examples=30)
@given(drawn=kinds_and_arcs())
def test_a_network_gives_the_same_either_way(edges: Any, drawn: tuple[Tensor, Tensor, Tensor]) -> None:
    """Values and all gradients, with and without knowing which nodes are alike."""
    kind, edge_kind, edge_index = drawn
    torch.manual_seed(0)
    network = graph_network(num_layers=2, channels=4, out_channels=2, nodes=[3], edges=edges, dropout=0.0).double()
    shake(network)
    edge_attr = None if edges is None else edge_kind.unsqueeze(-1)
    outcomes = []
    for may_share in (True, False):
        with nullcontext() if may_share else kernels.disabled():
            result = network(kind.unsqueeze(-1), edge_index, edge_attr)
            gradients = torch.autograd.grad(result.sin().sum(), list(network.parameters()), materialize_grads=True)
            outcomes.append((result, *gradients))
    for got, expected in zip(*outcomes, strict=True):
        close(got, expected, 1e-11)


@contextmanager
def counted_rows() -> Iterator[list[int]]:
    """How many rows each call of a layer computes."""
    rows: list[int] = []

    def noted(h: Tensor, edges: Any, kinds: Any, eps: Any, nodes: Any, *rest: Any) -> Any:
        rows.append(len(nodes))
        return collect(h, edges, kinds, eps, nodes, *rest)

    collect = gin.collect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gin, "collect", noted)
        yield rows


@pytest.mark.parametrize("nodes", [None, [3, 4], [40, 50, 60], 2])
def test_a_network_finds_out_itself(nodes: Any) -> None:
    """Two equal graphs need no more rows in the first layer than one, if nodes have kinds."""
    network = graph_network(num_layers=2, channels=4, out_channels=1, nodes=nodes)
    x = None
    if isinstance(nodes, int):
        x = torch.randn(4, nodes)
    elif nodes is not None:
        x = torch.stack([torch.randint(size, (4,)) for size in nodes], dim=1)
    edge_index = torch.tensor([[0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]])
    with counted_rows() as rows:
        network(None if x is None else torch.cat((x, x)), edge_index, None, torch.tensor([0] * 4 + [1] * 4))
    assert rows == [8, 8] if isinstance(nodes, int) else rows[0] <= 4


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("architecture", ["mlap-sum", "jk-concat"])
def test_evaluation_shares_in_all_layers(architecture: str, residual: bool, norm: str) -> None:
    """With gradients, layers above the first compute every node: the answers are the same."""
    network = graph_network(architecture, num_layers=4, channels=4, out_channels=3, norm=norm, residual=residual)
    network = network.double()
    shake(network)
    graphs = synthetic(graphs_per_class=4)
    network(graphs.batch(range(36)))  # running statistics
    network.eval()
    batch = graphs.batch(range(18))
    with counted_rows() as rows:
        expected = network.trace(batch)
        assert rows == [rows[0], *[batch.num_nodes] * 3]
        rows.clear()
        with torch.no_grad():
            got = network.trace(batch)
        assert rows[0] < rows[1] < 0.8 * batch.num_nodes
        for one, other in zip([*got.levels, got.logits], [*expected.levels, expected.logits], strict=True):
            close(one, other, 1e-11)
        rows.clear()
        network.train()
        with torch.no_grad():
            network(batch)
        assert rows[1:] == [batch.num_nodes] * 3  # dropout tells nodes apart


@pytest.mark.parametrize("cardinalities", [[7], [2, 3, 4], [40, 50, 60]])
def test_vectors_of_the_kinds(cardinalities: list[int]) -> None:
    encoder = CategoryEncoder(cardinalities, 5)
    features = torch.stack([torch.randint(size, (30,)) for size in cardinalities], dim=1)
    rows, kind = Items(features).encoded(encoder, True)
    assert kind is not None
    assert torch.equal(rows[kind], encoder(features))


def test_too_many_combinations_to_number() -> None:
    encoder = CategoryEncoder([3] * 41, 2)
    features = torch.zeros(4, 41, dtype=torch.long)
    rows, kind = Items(features).encoded(encoder, True)
    assert kind is None
    assert torch.equal(rows, encoder(features))
