"""The backbone: what a layer does in which order, and norms that look at one graph only."""

from __future__ import annotations

from typing import Any

import pytest
import reference
import torch
from samples import close, graph_set, shake, whole_batch
from torch import Tensor, nn

from mlap.errors import UsageError
from mlap.nn import CONVS, NORMS, Backbone, Dropout, make_backbone

INDEX = torch.tensor([0, 0, 0, 2, 2, 3])  # graph 1 has no nodes, graph 3 one
PER_GRAPH = ("graph", "pair")


class Step(nn.Module):
    """A "convolution" whose outcome is plain to see: adds 1 and turns the sign."""

    def forward(self, h: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        return -(h + 1)


def run(backbone: Backbone, h: Tensor) -> list[Tensor]:
    return backbone(h, torch.empty(2, 0, dtype=torch.long), None, INDEX, 4)


def test_relu_after_every_layer_but_the_last() -> None:
    h = torch.tensor([[-3.0, 1.0]]).expand(6, 2)
    levels = run(Backbone([Step(), Step(), Step()], 2).eval(), h)
    assert [level[0].tolist() for level in levels] == [[2, 0], [0, 0], [-1, -1]]


def test_residual_is_added_last() -> None:
    h = torch.tensor([[-3.0, 1.0]]).expand(6, 2)
    levels = run(Backbone([Step(), Step()], 2, residual=True).eval(), h)
    assert [level[0].tolist() for level in levels] == [[-1, 1], [-1, -1]]


def test_dropout_after_every_layer_and_before_the_next() -> None:
    """The dropped elements of a level are what the next layer sees: -(0 + 1) after them, -(2·x + 1) elsewhere."""
    torch.manual_seed(0)
    h = torch.full((6, 50), -3.0)
    first, second = run(Backbone([Step(), Step()], 50, dropout=0.5), h)
    assert sorted(first.unique().tolist()) == [0, 4]
    assert sorted(second.unique().tolist()) == [-10, -2, 0]
    assert (second[first == 0].unique() == torch.tensor([-2.0, 0.0])).all()


def test_the_level_itself_is_normalised_before_relu() -> None:
    h = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    (level,) = run(Backbone([Step()], 3, norm="graph").eval(), h)
    assert (level < 0).any()
    for graph in (0, 2):
        assert level[graph == INDEX].mean(dim=0).abs().max() < 1e-5


@pytest.mark.parametrize("norm", NORMS)
def test_norm_is_the_formula(norm: str) -> None:
    module = NORMS[norm](4).double().eval()
    shake(module)
    h = torch.randn(len(INDEX), 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    result = module(h, INDEX, 4) if norm in PER_GRAPH else module(h)
    parameters = reference.parameters(module)
    for graph in INDEX.unique():
        own = graph == INDEX
        close(result[own], reference.NORMS[norm](parameters, list(h[own].numpy())))


@pytest.mark.parametrize("norm", [name for name in NORMS if name != "none"])
def test_norm_gradients(norm: str) -> None:
    module = NORMS[norm](3).double()
    shake(module)
    h = torch.randn(len(INDEX), 3, dtype=torch.double, generator=torch.Generator().manual_seed(1), requires_grad=True)

    def apply(h: Tensor, *_: Tensor) -> Tensor:
        return module(h, INDEX, 4) if norm in PER_GRAPH else module(h)

    assert torch.autograd.gradcheck(apply, (h, *module.parameters()))


def test_graph_norm_standardises_each_graph_and_channel() -> None:
    """At its start, α = γ = 1 and β = 0: mean 0 and variance 1, but for the epsilon; one node becomes 0."""
    module = NORMS["graph"](3).double()
    h = 5 + 3 * torch.randn(len(INDEX), 3, dtype=torch.double)
    result = module(h, INDEX, 4)
    for graph in (0, 2):
        own = graph == INDEX
        close(result[own].mean(dim=0), torch.zeros(3), 1e-12)
        variance = h[own].var(dim=0, unbiased=False)
        close(result[own].var(dim=0, unbiased=False), variance / (variance + 1e-6), 1e-9)
    assert (result[INDEX == 3] == 0).all()


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", CONVS)
def test_a_graph_does_not_see_its_batch(name: str, norm: str, residual: bool) -> None:
    graphs = graph_set()
    torch.manual_seed(0)
    backbone = make_backbone(name, 4, 3, norm=norm, residual=residual).double().eval()
    shake(backbone)
    batch = whole_batch(graphs)
    h = torch.randn(batch.num_nodes, 4, dtype=torch.double)

    def run(batch: Any, h: Tensor) -> list[Tensor]:
        return backbone(h, batch.edge_index, None, batch.batch, batch.num_graphs)

    together = run(batch, h)
    for graph in range(len(graphs)):
        own = batch.batch == graph
        alone = run(graphs.batch([graph]), h[own])
        for level, expected in zip(alone, together, strict=True):
            close(level, expected[own])


@pytest.mark.parametrize("inner_norm", ["none", "batch"])
def test_batch_norm_of_a_single_node_in_training(inner_norm: str) -> None:
    backbone = make_backbone("gin", 4, 2, norm="batch", inner_norm=inner_norm, dropout=0)
    one = torch.zeros(1, dtype=torch.long)
    levels = backbone(torch.randn(1, 4), torch.empty(2, 0, dtype=torch.long), None, one, 1)
    assert all(level.isfinite().all() for level in levels)


def test_each_layer_has_an_edge_encoder_of_its_own() -> None:
    backbone = make_backbone("gin", 4, 3, edges=(5,))
    tables = [conv.edge_encoder.tables for conv in backbone.convs]
    assert len({table.data_ptr() for table in tables}) == 3


def test_no_normalisation_means_none() -> None:
    backbone = make_backbone("gin", 4, 2)
    assert {type(module) for module in backbone.norms} == {nn.Identity}
    assert isinstance(backbone.dropout, Dropout)
    assert backbone.dropout.p == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_backbone("gin", 4, 0), "a backbone needs at least one layer, got 0"),
        (lambda: make_backbone("gni", 4, 1), r"unknown backbone 'gni'; did you mean .*'gin'.*\? Known: gin, gcn, gat"),
        (lambda: make_backbone("gin", 4, 1, norm="graphnorm"), r"unknown normalisation 'graphnorm'; did you mean"),
        (lambda: make_backbone("gin", 4, 1, dropout=1.5), "dropout is a probability, 0 to 1, got 1.5"),
    ],
)
def test_wrong_calls(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
