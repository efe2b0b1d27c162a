"""Nodes with the same first step are found, and computed once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import close, shake
from torch import Tensor

from mlap.graphs import synthetic
from mlap.nn import NORMS, CategoryEncoder, ConstantEncoder, GINLayer, graph_network
from mlap.nn.convs import Arcs
from mlap.nn.encoders import Items
from mlap.nn.environments import environments


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


@pytest.mark.parametrize("edges", ["constant", "categories"])
@settings(max_examples=30)
@given(drawn=kinds_and_arcs())
def test_a_layer_gives_the_same_either_way(edges: str, drawn: tuple[Tensor, Tensor, Tensor]) -> None:
    """Values and all gradients, with and without knowing which nodes are alike."""
    kind, edge_kind, edge_index = drawn
    torch.manual_seed(0)
    layer = GINLayer(4, ConstantEncoder(4) if edges == "constant" else CategoryEncoder([2], 4)).double()
    shake(layer)
    rows = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    outcomes = []
    for known in (kind, None):
        arcs = Arcs(edge_index, edge_kind.unsqueeze(-1), len(kind))
        alike = None if known is None else layer.alike(known, arcs)
        result = layer(rows[kind], edge_index, edge_kind.unsqueeze(-1), alike=alike)
        gradients = torch.autograd.grad(result.sin().sum(), [rows, *layer.parameters()], materialize_grads=True)
        outcomes.append((result, *gradients))
    for got, expected in zip(*outcomes, strict=True):
        close(got, expected, 1e-11)


def test_alike_nodes_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine nodes without features, of degrees 0, 1, 2 and 3: four rows."""
    monkeypatch.setenv("MLAP_KERNELS", "0")  # they do not call the module whose calls are counted here
    layer = GINLayer(4, ConstantEncoder(4))
    seen: list[int] = []
    layer.nn.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    edge_index = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 1, 1, 2, 2, 5]])
    alike = layer.alike(torch.zeros(9, dtype=torch.long), Arcs(edge_index, None, 9))
    layer(torch.randn(1, 4).expand(9, -1), edge_index, alike=alike)
    layer(torch.randn(9, 4), edge_index)
    assert seen == [4, 9]


@pytest.mark.parametrize("nodes", [None, [3, 4], [40, 50, 60], 2])
def test_a_network_finds_out_itself(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two equal graphs need no more rows in the first layer than one, if nodes have kinds."""
    monkeypatch.setenv("MLAP_KERNELS", "0")
    network = graph_network(num_layers=2, channels=4, out_channels=1, nodes=nodes)
    seen: list[int] = []
    layer = network.backbone.get_submodule("convs.0.nn")
    layer.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    x = None
    if isinstance(nodes, int):
        x = torch.randn(4, nodes)
    elif nodes is not None:
        x = torch.stack([torch.randint(size, (4,)) for size in nodes], dim=1)

    class Twice:
        num_nodes, num_graphs, edge_attr = 8, 2, None
        edge_index = torch.tensor([[0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]])
        batch, ptr = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), torch.tensor([0, 4, 8])

    batch: Any = Twice()
    batch.x = None if x is None else torch.cat((x, x))
    network(batch)
    assert seen == [8] if isinstance(nodes, int) else seen[0] <= 4


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("architecture", ["mlap-sum", "jk-concat"])
def test_evaluation_shares_in_all_layers(
    architecture: str, residual: bool, norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gradients, layers above the first compute every node: the answers are the same."""
    rows: list[int] = []
    network = graph_network(architecture, num_layers=4, channels=4, out_channels=3, norm=norm, residual=residual)
    network = network.double()
    shake(network)
    graphs = synthetic(graphs_per_class=4)
    network(graphs.batch(range(36)))  # running statistics
    network.eval()
    batch = graphs.batch(range(18))
    monkeypatch.setenv("MLAP_KERNELS", "0")  # they do not call the modules whose calls are counted here
    for layer in range(4):
        module = network.get_submodule(f"backbone.convs.{layer}.nn")
        module.register_forward_hook(lambda module, inputs, output: rows.append(len(inputs[0])))
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
    rows, kind = Items(features).encoded(encoder)
    assert kind is not None
    assert torch.equal(rows[kind], encoder(features))


def test_too_many_combinations_to_number() -> None:
    encoder = CategoryEncoder([3] * 41, 2)
    features = torch.zeros(4, 41, dtype=torch.long)
    rows, kind = Items(features).encoded(encoder)
    assert kind is None
    assert torch.equal(rows, encoder(features))
