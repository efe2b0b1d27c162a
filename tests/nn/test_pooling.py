"""Poolings: the formulas, the ways to say which graph a node is in, and numbers at the edge of the range."""

from __future__ import annotations

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import close, shake
from torch import Tensor

from mlap.errors import UsageError
from mlap.names import POOLINGS
from mlap.nn import AttentionPooling, MultiLevelAttentionPooling, Pooling
from mlap.nn.pooling import graph_of_nodes
from mlap.nn.pooling import make_pooling as named_pooling


def make_pooling(channels: int = 3) -> AttentionPooling:
    torch.manual_seed(0)
    pooling = AttentionPooling(channels).double()
    shake(pooling)
    return pooling


class Scores(torch.nn.Module):
    """A gate that reads the score off the last channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1:]


def scored(scores: list[float], dtype: torch.dtype = torch.double) -> tuple[AttentionPooling, Tensor]:
    """A pooling and nodes to which it gives these scores."""
    pooling = AttentionPooling(3)
    pooling.gate = Scores()
    values = torch.randn(len(scores), 2, generator=torch.Generator().manual_seed(1)).to(dtype)
    return pooling, torch.cat((values, torch.tensor(scores, dtype=dtype).unsqueeze(1)), dim=1)


INDEX = st.lists(st.integers(0, 5), max_size=12)


@settings(max_examples=50)
@given(index=INDEX, beyond=st.integers(0, 3))
def test_is_the_papers_formula(index: list[int], beyond: int) -> None:
    """Any order of nodes, graphs without nodes, and more graphs than the index names."""
    pooling = make_pooling()
    x = torch.randn(len(index), 3, generator=torch.Generator().manual_seed(len(index)), dtype=torch.double)
    dim_size = max(index, default=-1) + 1 + beyond
    graphs, attention = pooling(x, torch.tensor(index, dtype=torch.long), None, dim_size, return_weights=True)
    gate = reference.under(reference.parameters(pooling), "gate")
    assert graphs.shape == (dim_size, 3)
    assert attention.shape == (len(index),)
    assert (attention >= 0).all()
    for graph in range(dim_size):
        own = [n for n, g in enumerate(index) if g == graph]
        if not own:
            assert (graphs[graph] == 0).all()
            continue
        pooled, weights = reference.attention_pool(gate, list(x[own].numpy()))
        close(graphs[graph], pooled)
        close(attention[own], weights)
        assert attention[own].sum().item() == pytest.approx(1, abs=1e-12)


def test_a_single_node_pools_to_itself_exactly() -> None:
    x = torch.randn(3, 3, dtype=torch.double)
    assert torch.equal(make_pooling()(x, torch.tensor([2, 0, 1])), x[[1, 2, 0]])


def test_index_and_ptr_and_both_give_the_same() -> None:
    pooling = make_pooling()
    x = torch.randn(7, 3, dtype=torch.double)
    index, ptr = torch.tensor([1, 1, 1, 3, 4, 4, 4]), torch.tensor([0, 0, 3, 3, 4, 7])
    expected = pooling(x, index, dim_size=5)
    for result in (pooling(x, index), pooling(x, ptr=ptr), pooling(x, index, ptr), pooling(x, ptr=ptr, dim_size=5)):
        close(result, expected)
    wider = pooling(x, ptr=ptr, dim_size=8)
    assert torch.equal(wider[:5], expected)
    assert (wider[5:] == 0).all()


def test_all_nodes_are_one_graph_unless_told() -> None:
    pooling = make_pooling()
    x = torch.randn(4, 3, dtype=torch.double)
    expected = pooling(x, torch.zeros(4, dtype=torch.long))
    assert torch.equal(pooling(x), expected)
    close(pooling(x, ptr=torch.tensor([0, 4])), expected)
    assert torch.equal(pooling(x[:0]), torch.zeros(1, 3, dtype=torch.double))


@pytest.mark.parametrize(
    ("rows", "index", "ptr", "dim_size", "expected"),
    [
        (0, None, None, None, ([], 1)),
        (0, None, None, 0, ([], 0)),
        (2, None, None, 3, ([0, 0], 3)),
        (0, [], None, None, ([], 0)),
        (3, [2, 0, 2], None, None, ([2, 0, 2], 3)),
        (3, None, [0, 1, 1, 3, 3], None, ([0, 2, 2], 4)),
        (0, None, [0], None, ([], 0)),
        (2, [0, 0], [0, 2, 2], None, ([0, 0], 2)),
    ],
)
def test_graph_of_nodes(
    rows: int, index: list[int] | None, ptr: list[int] | None, dim_size: int | None, expected: tuple[list[int], int]
) -> None:
    def tensor(values: list[int] | None) -> Tensor | None:
        return None if values is None else torch.tensor(values, dtype=torch.long)

    got, size = graph_of_nodes(torch.zeros(rows, 2), tensor(index), tensor(ptr), dim_size)
    assert (got.tolist(), size) == expected
    assert got.dtype == torch.long


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1e4, 0.0, -1e4], [1, 0, 0]),
        ([-1e4, -1e4, -1e4], [1 / 3, 1 / 3, 1 / 3]),
        ([1e4, 1e4, -1e4], [1 / 2, 1 / 2, 0]),
        ([-1e4, -1e4 + 1, -2e4], [1 / (1 + torch.e), torch.e / (1 + torch.e), 0]),
    ],
)
def test_extreme_scores_do_not_overflow(scores: list[float], expected: list[float], dtype: torch.dtype) -> None:
    """Two graphs: the other one's ordinary scores must not suffer from the extreme ones either."""
    pooling, x = scored([*scores, 0.0, 0.0], dtype)
    x.requires_grad_()
    graphs, attention = pooling(x, torch.tensor([0, 0, 0, 1, 1]), None, 2, return_weights=True)
    close(attention, [*expected, 0.5, 0.5], 1e-6)
    graphs.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@settings(max_examples=30)
@given(st.floats(-1e6, 1e6))
def test_an_offset_of_a_graphs_scores_changes_nothing(offset: float) -> None:
    scores = [0.5, -1.0, 2.0, 0.0]
    index = torch.tensor([0, 0, 0, 1])
    pooling, x = scored(scores)
    moved = torch.tensor([offset, offset, offset, 0.0], dtype=torch.double)
    attention = pooling.weights(x, index, 2)
    shifted = pooling.weights(torch.cat((x[:, :2], (x[:, 2] + moved).unsqueeze(1)), dim=1), index, 2)
    close(shifted, attention, 1e-9)


def test_gradients() -> None:
    pooling = make_pooling()
    index = torch.tensor([2, 0, 0, 2, 2, 3])
    x = torch.randn(6, 3, dtype=torch.double, generator=torch.Generator().manual_seed(3), requires_grad=True)
    parameters = tuple(pooling.parameters())

    def run(x: Tensor, *_: Tensor) -> Tensor:
        return pooling(x, index, dim_size=5)

    assert torch.autograd.gradcheck(run, (x, *parameters))


def test_gate_width_and_repr() -> None:
    assert [p.shape[0] for p in AttentionPooling(5).gate.parameters()] == [10, 10, 1, 1]
    assert [p.shape[0] for p in AttentionPooling(5, 7).gate.parameters()] == [7, 7, 1, 1]
    assert repr(AttentionPooling(5)) == "AttentionPooling(5)"


# ---- the other poolings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POOLINGS)
def test_every_pooling_is_its_formula(name: str) -> None:
    """Against loops over graphs and nodes; nodes in any order, one graph without nodes, one not named at all."""
    torch.manual_seed(0)
    pooling = named_pooling(name, 3, 5).double()
    assert isinstance(pooling, Pooling)
    index = [3, 0, 0, 3, 1, 3, 0]
    x = torch.randn(len(index), 3, dtype=torch.double)
    graphs, weights = pooling(x, torch.tensor(index), dim_size=5, return_weights=True)
    parameters = reference.parameters(pooling)
    for graph in range(5):
        own = [n for n, g in enumerate(index) if g == graph]
        rows = [x[n].numpy() for n in own]
        if not own:
            assert (graphs[graph] == 0).all()
            continue
        if name == "max":
            close(graphs[graph], [max(row[c] for row in rows) for c in range(3)])
            assert weights[own].sum().item() == pytest.approx(1)
            continue
        gates = [float(reference.two_layers(reference.under(parameters, "gate"), row)[0]) for row in rows if parameters]
        expected = {
            "attention": lambda gates=gates: reference.softmax(gates),
            "attention-n": lambda gates=gates: [len(gates) * a for a in reference.softmax(gates)],
            "gated-sum": lambda gates=gates: list(reference.sigmoid(gates)),
            "mean": lambda own=own: [1 / len(own)] * len(own),
            "sum": lambda own=own: [1.0] * len(own),
        }[name]()
        close(weights[own].detach(), expected)
        close(graphs[graph].detach(), sum(w * row for w, row in zip(expected, rows, strict=True)))


@pytest.mark.parametrize("name", POOLINGS)
def test_gradients_of_every_pooling(name: str) -> None:
    torch.manual_seed(0)
    pooling = named_pooling(name, 3).double()
    x = torch.randn(6, 3, dtype=torch.double, requires_grad=True)
    index = torch.tensor([2, 0, 0, 2, 2, 3])
    assert torch.autograd.gradcheck(lambda x, *_: pooling(x, index, dim_size=5), (x, *pooling.parameters()))


@pytest.mark.parametrize(("name", "times"), [("attention", 1), ("mean", 1), ("attention-n", 4), ("gated-sum", 4)])
def test_a_sum_can_count_and_a_mean_cannot(name: str, times: int) -> None:
    graphs = named_pooling(name, 3)(torch.ones(5, 3), torch.tensor([0, 0, 0, 0, 1]))
    close(graphs[0], times * graphs[1], 1e-6)


def test_even_attention_times_the_number_of_nodes_is_the_sum() -> None:
    pooling = named_pooling("attention-n", 3)
    torch.nn.init.zeros_(pooling.gate[2].weight)  # type: ignore[index, union-attr]
    x, index = torch.randn(5, 3), torch.tensor([0, 0, 0, 2, 2])
    close(pooling(x, index), named_pooling("sum", 3)(x, index), 1e-5)


def test_an_unknown_pooling() -> None:
    with pytest.raises(UsageError, match="unknown pooling 'median'") as caught:
        named_pooling("median", 3)
    assert caught.value.field == "pooling"


@pytest.mark.parametrize("name", POOLINGS)
def test_every_level_may_have_its_own(name: str) -> None:
    names = ["attention", name, "sum"]
    readout = MultiLevelAttentionPooling(3, 3, pooling=names)
    assert [type(pool) for pool in readout.pools] == [POOLINGS[each].load() for each in names]
    with pytest.raises(UsageError, match="2 poolings for 3 levels"):
        MultiLevelAttentionPooling(3, 3, pooling=["sum", name])
