"""Message-passing layers, against loops over arcs and against PyG's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import CATEGORIES, REALS, close, features, shake
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINEConv

from mlap.errors import UsageError
from mlap.nn import CONVS, ConstantEncoder, GATLayer, GCNLayer, GINLayer, make_encoder

NODES = 6
ARCS = ((0, 1), (1, 0), (0, 2), (2, 1), (2, 2), (0, 1), (4, 3))  # a self-loop, an arc twice, node 5 isolated
EDGES = [None, REALS, CATEGORIES]


def make_layer(name: str, edges: Any, channels: int = 4) -> nn.Module:
    torch.manual_seed(0)
    layer = CONVS[name](channels, make_encoder(edges, channels)).double()
    shake(layer)
    return layer


def edge_index(arcs: Any) -> Tensor:
    return torch.tensor(arcs, dtype=torch.long).reshape(-1, 2).T


def edge_features(kind: Any, rows: int) -> Tensor | None:
    made = features(np.random.default_rng(1), rows, kind)
    if made is None:
        return None
    tensor = made.tensor()
    return tensor.double() if tensor.is_floating_point() else tensor


def nodes(channels: int = 4, rows: int = NODES) -> Tensor:
    return torch.randn(rows, channels, dtype=torch.double, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("num_arcs", [0, 1, len(ARCS)])
@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("name", CONVS)
def test_is_the_formula(name: str, edges: Any, num_arcs: int) -> None:
    layer, h, arcs = make_layer(name, edges), nodes(), ARCS[:num_arcs]
    edge_attr = edge_features(edges, num_arcs)
    parameters = reference.parameters(layer)
    table = None if edge_attr is None else edge_attr.numpy()
    vectors = reference.encode(reference.under(parameters, "edge_encoder"), table, num_arcs, edges)
    expected = reference.LAYERS[name](parameters, list(h.numpy()), arcs, vectors)
    close(layer(h, edge_index(arcs), edge_attr), expected)


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("name", CONVS)
def test_gradients(name: str, edges: Any) -> None:
    channels = 4 if name == "gat" else 2
    layer, h = make_layer(name, edges, channels), nodes(channels, 5).requires_grad_()
    arcs, edge_attr = edge_index(ARCS), edge_features(edges, len(ARCS))
    assert torch.autograd.gradcheck(lambda h, *_: layer(h, arcs, edge_attr), (h, *layer.parameters()))


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("name", CONVS)
@settings(max_examples=10)
@given(data=st.data())
def test_order_of_nodes_and_of_arcs(name: str, edges: Any, data: st.DataObject) -> None:
    layer, h = make_layer(name, edges), nodes()
    arcs, edge_attr = edge_index(ARCS), edge_features(edges, len(ARCS))
    order = torch.tensor(data.draw(st.permutations(range(len(ARCS)))))
    rename = torch.tensor(data.draw(st.permutations(range(NODES))))
    moved = torch.empty_like(h)
    moved[rename] = h
    result = layer(moved, rename[arcs[:, order]], None if edge_attr is None else edge_attr[order])
    close(result[rename], layer(h, arcs, edge_attr), 1e-12)


@pytest.mark.parametrize("name", CONVS)
def test_a_message_goes_from_source_to_target_only(name: str) -> None:
    layer, h = make_layer(name, None), nodes(rows=2)
    alone, joined = layer(h, edge_index([])), layer(h, edge_index([(0, 1)]))
    assert not torch.allclose(joined[1], alone[1])
    changed = layer(h + torch.tensor([[0.0], [1.0]]), edge_index([(0, 1)]))
    if name != "gcn":  # in GCN an arc also changes the weight of its ends
        assert torch.equal(joined[0], alone[0])
    close(changed[0], joined[0], 1e-15)


def test_gin_is_pygs_gine_with_edge_vectors() -> None:
    layer, h = make_layer("gin", CATEGORIES), nodes()
    assert isinstance(layer, GINLayer)
    other = GINEConv(layer.nn, train_eps=True)
    other.eps = layer.eps
    edge_attr = edge_features(CATEGORIES, len(ARCS))
    expected = other(h, edge_index(ARCS), layer.edge_encoder(edge_attr))
    close(layer(h, edge_index(ARCS), edge_attr), expected, 1e-12)


def test_gcn_is_pygs_gcn_if_edges_carry_nothing() -> None:
    layer, h = make_layer("gcn", None), nodes()
    assert isinstance(layer, GCNLayer)
    nn.init.zeros_(layer.edge_encoder.vector)
    other = GCNConv(4, 4).double()
    other.lin.weight, other.bias = layer.linear.weight, layer.bias
    arcs = edge_index([arc for arc in ARCS if arc[0] != arc[1]])  # PyG merges self-loops with its own
    close(layer(h, arcs), other(h, arcs), 1e-12)


def test_start_values() -> None:
    gin, gcn = GINLayer(4, ConstantEncoder(4)), GCNLayer(4, ConstantEncoder(4))
    assert gin.eps.item() == 0
    assert gin.eps.requires_grad
    assert [tuple(p.shape) for p in gin.nn.parameters()] == [(8, 4), (8,), (4, 8), (4,)]
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in gin.modules())
    assert (gcn.bias == 0).all()


def test_a_gat_width_that_heads_do_not_divide() -> None:
    with pytest.raises(UsageError, match=r"^a GAT layer of 4 heads needs a width that is a multiple of 4, got 6$"):
        GATLayer(6, ConstantEncoder(6))
