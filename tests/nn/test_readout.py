"""The three families: every readout against the reference, and the identities that relate them."""

from __future__ import annotations

import re

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import close, levels, shake
from torch import Tensor, nn
from torch_geometric.nn import GCN, GIN

from mlap.errors import UsageError
from mlap.names import ARCHITECTURES, PAPER_ARCHITECTURES
from mlap.nn import (
    JumpReadout,
    MultiLevelAttentionPooling,
    make_readout,
)

INDEX = torch.tensor([3, 0, 0, 3, 1, 3, 0])  # unsorted; graph 2 has no nodes, graph 1 a single one
GRAPHS = 5  # and graph 4 is not named at all
LINEAR = ("sum", "weighted", "concat", "linear")


def shaken(architecture: str, channels: int, num_levels: int) -> MultiLevelAttentionPooling | JumpReadout:
    torch.manual_seed(0)
    readout = make_readout(architecture, channels, num_levels).double()
    shake(readout)
    return readout


def test_the_names_of_the_papers_architectures() -> None:
    assert PAPER_ARCHITECTURES == (
        "naive",
        "jk-sum",
        "jk-concat",
        "jk-max",
        "jk-lstm",
        "mlap-sum",
        "mlap-weighted",
    )
    assert {"jk-weighted", "mlap-concat"} < set(ARCHITECTURES) - set(PAPER_ARCHITECTURES)


@pytest.mark.parametrize("num_levels", [1, 2, 5])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_is_the_papers_formula(architecture: str, num_levels: int) -> None:
    readout = shaken(architecture, 4, num_levels)
    inputs = levels(num_levels, len(INDEX), 4)
    graphs = readout(inputs, INDEX, dim_size=GRAPHS)
    assert graphs.shape == (GRAPHS, readout.out_channels)
    for graph in range(GRAPHS):
        own = graph == INDEX
        nodes = [list(h[own].numpy()) for h in inputs]
        expected = reference.readout(architecture, reference.parameters(readout), nodes, readout.out_channels)
        close(graphs[graph], expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients(architecture: str) -> None:
    readout = shaken(architecture, 2, 3)
    inputs = tuple(h.requires_grad_() for h in levels(3, len(INDEX), 2))
    parameters = tuple(readout.parameters())
    assert torch.autograd.gradcheck(
        lambda *tensors: readout(list(tensors[:3]), INDEX, dim_size=GRAPHS), (*inputs, *parameters)
    )


def set_gates(readout: nn.Module, gate: nn.Sequential) -> None:
    """Give every pooling of a readout the same gate."""
    for name, module in readout.named_modules():
        if name.endswith("gate"):
            module.load_state_dict(gate.state_dict())


@pytest.mark.parametrize(
    "architecture", [name for name in ARCHITECTURES if not name.endswith(("-lstm", "-linear", "-gate"))]
)
def test_at_one_level_architectures_coincide(architecture: str) -> None:
    """The paper's identity: with the same parameters, a join that neither scales nor maps a level leaves one level."""
    naive, other = shaken("naive", 4, 1), shaken(architecture, 4, 1)
    gate = naive.get_submodule("pools.0.gate")
    assert isinstance(gate, nn.Sequential)
    set_gates(other, gate)
    inputs = levels(1, len(INDEX), 4)
    assert torch.equal(other(inputs, INDEX, dim_size=GRAPHS), naive(inputs, INDEX, dim_size=GRAPHS))


class FixedScores(nn.Module):
    """A gate that gives each node a score, whatever its representation."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, x: Tensor) -> Tensor:
        return self.scores.unsqueeze(1)


@pytest.mark.parametrize("num_levels", [1, 2, 6])
@pytest.mark.parametrize("join", LINEAR)
def test_with_the_same_attention_at_each_level_mlap_is_jk(join: str, num_levels: int) -> None:
    """Appendix B: for a linear join, pooling and joining commute once the attention is shared."""
    jk, mlap = shaken(f"jk-{join}", 4, num_levels), shaken(f"mlap-{join}", 4, num_levels)
    assert isinstance(jk, JumpReadout)
    assert isinstance(mlap, MultiLevelAttentionPooling)
    mlap.join.load_state_dict(jk.join.state_dict())
    inputs = levels(num_levels, len(INDEX), 4)
    joined = jk.join(inputs)
    scores = jk.pools[0].gate(joined).squeeze(1).detach()
    for pooling in mlap.pools:
        pooling.gate = FixedScores(scores)
    expected, (jk_attention,) = jk(inputs, INDEX, dim_size=GRAPHS, return_attention=True)
    result, attention = mlap(inputs, INDEX, dim_size=GRAPHS, return_attention=True)
    close(result, expected, 1e-12)
    for weights in attention:
        assert torch.equal(weights, jk_attention)


@pytest.mark.parametrize("join", ["max", "lstm"])
def test_the_identity_does_not_extend_to_nonlinear_joins(join: str) -> None:
    """The paper says that it cannot be proved for these; a counterexample keeps the test above honest."""
    jk, mlap = shaken(f"jk-{join}", 4, 3), shaken(f"mlap-{join}", 4, 3)
    assert isinstance(jk, JumpReadout)
    assert isinstance(mlap, MultiLevelAttentionPooling)
    mlap.join.load_state_dict(jk.join.state_dict())
    inputs = levels(3, len(INDEX), 4)
    scores = jk.pools[0].gate(jk.join(inputs)).squeeze(1).detach()
    for pooling in mlap.pools:
        pooling.gate = FixedScores(scores)
    expected, result = jk(inputs, INDEX, dim_size=GRAPHS), mlap(inputs, INDEX, dim_size=GRAPHS)
    assert (expected - result).abs().max() > 1e-3
    close(result[1], expected[1])  # a graph of a single node: there they agree


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=15)
@given(data=st.data())
def test_order_of_nodes_and_graphs(architecture: str, data: st.DataObject) -> None:
    """Nodes in any order give the same graphs; graphs renumbered give the same rows, renumbered."""
    readout = shaken(architecture, 3, 2)
    inputs = levels(2, len(INDEX), 3)
    nodes = torch.tensor(data.draw(st.permutations(range(len(INDEX)))))
    rename = torch.tensor(data.draw(st.permutations(range(GRAPHS))))
    expected = readout(inputs, INDEX, dim_size=GRAPHS)
    result = readout([h[nodes] for h in inputs], rename[INDEX[nodes]], dim_size=GRAPHS)
    close(result[rename], expected, 1e-12)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_graph_does_not_see_its_batch(architecture: str) -> None:
    readout = shaken(architecture, 3, 2)
    inputs = levels(2, len(INDEX), 3)
    together = readout(inputs, INDEX, dim_size=GRAPHS)
    for graph in range(GRAPHS):
        alone = readout([h[graph == INDEX] for h in inputs])
        close(alone[0], together[graph], 1e-12)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_ways_to_say_which_graph_a_node_is_in(architecture: str) -> None:
    readout = shaken(architecture, 3, 2)
    inputs = levels(2, 6, 3)
    index, ptr = torch.tensor([0, 0, 0, 2, 2, 3]), torch.tensor([0, 3, 3, 5, 6])
    expected = readout(inputs, index)
    close(readout(inputs, ptr=ptr), expected)
    close(readout(inputs, index, ptr, 4), expected)
    assert torch.equal(readout(inputs), readout(inputs, torch.zeros(6, dtype=torch.long)))
    assert torch.equal(readout(inputs, index, dim_size=7)[:4], expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_empty_and_single(architecture: str) -> None:
    """A graph without nodes becomes what its join makes of zeros, which is zeros; a single node, its own join."""
    readout = shaken(architecture, 3, 2)
    inputs = levels(2, 1, 3)
    graphs = readout(inputs, torch.tensor([1]), dim_size=3)
    assert (graphs[[0, 2]] == 0).all()
    parameters = reference.under(reference.parameters(readout), "join")
    join = architecture.partition("-")[2] or "last"
    close(graphs[1], reference.join(join, parameters, [h[0].numpy() for h in inputs]))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_attention_on_request(architecture: str) -> None:
    readout = shaken(architecture, 3, 2)
    inputs = levels(2, len(INDEX), 3)
    graphs, attention = readout(inputs, INDEX, dim_size=GRAPHS, return_attention=True)
    assert torch.equal(graphs, readout(inputs, INDEX, dim_size=GRAPHS))
    assert len(attention) == (2 if architecture.startswith("mlap") else 1)
    for weights in attention:
        assert weights.shape == (len(INDEX),)
        assert (weights >= 0).all()
        for graph in INDEX.unique():
            assert weights[graph == INDEX].sum().item() == pytest.approx(1, abs=1e-12)


# ---- on the levels of other models -------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", [GIN, GCN])
@pytest.mark.parametrize("aggregation", ["sum", "weighted", "concat", "linear", "max", "lstm"])
def test_on_the_layers_of_a_pyg_model(model_class: type[nn.Module], aggregation: str) -> None:
    torch.manual_seed(0)
    model = model_class(5, 6, num_layers=3, jk=None)
    hidden: list[Tensor] = []
    for conv in model.convs:
        conv.register_forward_hook(lambda module, args, output: hidden.append(output))
    x, edge_index = torch.randn(7, 5), torch.tensor([[0, 1, 3, 4, 5], [1, 2, 4, 5, 6]])
    index = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    model(x, edge_index)
    pooling = MultiLevelAttentionPooling(6, 3, aggregation)
    graphs = pooling(hidden, index)
    parameters = reference.parameters(pooling)
    for graph in range(2):
        own = [list(h[index == graph].detach().double().numpy()) for h in hidden]
        expected = reference.readout(f"mlap-{aggregation}", parameters, own, pooling.out_channels)
        close(graphs[graph].double(), expected, 1e-5)
    graphs.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_on_feature_maps_of_different_resolution() -> None:
    """A convolutional network's pixels are nodes, and every level has its own number of them."""
    torch.manual_seed(0)
    convs = [nn.Conv2d(1, 4, 3, stride=2), nn.Conv2d(4, 4, 3, stride=2)]
    image = torch.randn(3, 1, 12, 10)
    maps = [h := convs[0](image), convs[1](h)]
    pixels = [h.permute(0, 2, 3, 1).reshape(-1, 4) for h in maps]
    index = [torch.arange(3).repeat_interleave(h.shape[2] * h.shape[3]) for h in maps]
    ptr = [torch.arange(4) * h.shape[2] * h.shape[3] for h in maps]
    assert len(pixels[0]) != len(pixels[1])
    pooling = MultiLevelAttentionPooling(4, 2, "weighted")
    result = pooling(pixels, index)
    close(pooling(pixels, ptr=ptr), result, 1e-6)
    parameters = reference.parameters(pooling)
    for number in range(3):
        nodes = [list(h[number].flatten(1).T.detach().double().numpy()) for h in maps]
        pooled = [reference.attention_pool(reference.under(parameters, f"pools.{k}.gate"), nodes[k])[0] for k in (0, 1)]
        expected = reference.join("weighted", reference.under(parameters, "join"), pooled)
        close(result[number].double(), expected, 1e-5)


def test_a_level_may_lack_the_nodes_of_the_last_graphs() -> None:
    """Else one graph at one level would be added to every graph of the other."""
    pooling = MultiLevelAttentionPooling(3, 2).double()
    coarse, fine = torch.randn(1, 3, dtype=torch.double), torch.randn(3, 3, dtype=torch.double)
    result = pooling([fine, coarse], [torch.tensor([0, 1, 2]), torch.tensor([0])])
    assert torch.equal(result, fine + torch.cat((coarse, torch.zeros(2, 3))))


def test_an_aggregation_of_ones_own() -> None:
    class Ends(nn.Module):
        out_channels = 6

        def forward(self, pooled: list[Tensor]) -> Tensor:
            return torch.cat((pooled[0], pooled[-1]), dim=1)

    inputs = levels(4, len(INDEX), 3)
    pooling = MultiLevelAttentionPooling(3, 4, Ends()).double()
    assert pooling.out_channels == 6
    pooled = pooling.read(inputs, INDEX, dim_size=GRAPHS).pooled
    assert torch.equal(pooling(inputs, INDEX, dim_size=GRAPHS), torch.cat((pooled[0], pooled[3]), dim=1))
    jump = JumpReadout(3, 4, Ends()).double()
    assert jump(inputs, INDEX, dim_size=GRAPHS).shape == (GRAPHS, 6)


# ---- the rest ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_levels", [1, 3])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_widths(architecture: str, num_levels: int) -> None:
    """The gates are 2d wide, however wide what they look at; concatenation makes L·d channels of the levels."""
    readout = make_readout(architecture, 5, num_levels)
    assert readout.out_channels == (5 * num_levels if architecture.endswith("concat") else 5)
    gates = [module for name, module in readout.named_modules() if name.endswith("gate")]
    assert len(gates) == (num_levels if architecture.startswith("mlap") else 1)
    for gate in gates:
        looks_at = readout.out_channels if architecture.startswith("jk") else 5
        assert [tuple(p.shape) for p in gate.parameters()] == [(10, looks_at), (10,), (1, 10), (1,)]


@pytest.mark.parametrize(
    ("readout", "expected"),
    [
        (
            MultiLevelAttentionPooling(8, 3),
            "MultiLevelAttentionPooling(8, num_levels=3, aggregation=Sum(8, num_levels=3))",
        ),
        (JumpReadout(8, 3, "last"), "JumpReadout(8, num_levels=3, join=Last(8, num_levels=3))"),
        (JumpReadout(8, 3, "concat"), "JumpReadout(8, num_levels=3, join=Concat(8, num_levels=3))"),
    ],
)
def test_repr(readout: nn.Module, expected: str) -> None:
    assert repr(readout) == expected


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_reprs_are_short(architecture: str) -> None:
    assert re.fullmatch(r"[^\n]{1,120}", repr(make_readout(architecture, 200, 10)))


@pytest.mark.parametrize("architecture", ["mlap-sum", "jk-sum", "naive"])
@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_wrong_number_of_levels(architecture: str, number: int) -> None:
    with pytest.raises(UsageError, match=f"^expected 3 levels, got {number}$"):
        make_readout(architecture, 4, 3)(levels(number, 5, 4))


def test_a_wrong_number_of_indices() -> None:
    with pytest.raises(UsageError, match=r"^expected one index or ptr for each of 3 levels, got 1$"):
        MultiLevelAttentionPooling(4, 3).double()(levels(3, 5, 4), [torch.zeros(5, dtype=torch.long)])


@pytest.mark.parametrize(("channels", "num_levels"), [(0, 1), (4, 0), (4, -1)])
@pytest.mark.parametrize("architecture", ["naive", "mlap-sum"])
def test_sizes_below_one(architecture: str, channels: int, num_levels: int) -> None:
    with pytest.raises(UsageError, match=f"at least 1 channel and 1 level, got {channels} and {num_levels}"):
        make_readout(architecture, channels, num_levels)


@pytest.mark.parametrize("name", ["mlap_sum", "jk", "sum", "last", "MLAP-Sum"])
def test_unknown_architectures(name: str) -> None:
    with pytest.raises(UsageError, match=f"^unknown architecture '{name}'; .*Known: naive, jk-sum, "):
        make_readout(name, 4, 2)
