"""Joins that model relations among levels; what all joins have in common is in `test_join.py`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from samples import CATEGORIES, close, graph_set, levels, network, shake, whole_batch
from torch import Tensor

import mlap
from mlap.models.explanation import decompose
from mlap.names import JOINS
from mlap.nn import LevelGate, RelationalJoin, SparseSum, Sum, graph_network
from mlap.nn.join import make_join

NAMES = tuple(name for name, part in JOINS.items() if issubclass(part.load(), RelationalJoin))
DEPTHS = (1, 2, 5, 49)  # 49 · (1 / 49) is not 1 in floating point


def made(name: str, num_levels: int, channels: int = 4) -> RelationalJoin:
    torch.manual_seed(0)
    join, _ = make_join(name, channels, num_levels)
    assert isinstance(join, RelationalJoin)
    return join


def shaken(name: str, num_levels: int) -> RelationalJoin:
    join = made(name, num_levels).double()
    shake(join)
    return join


def test_the_joins_of_the_table() -> None:
    assert NAMES == ("gate", "attention", "gru")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_levels", DEPTHS)
@pytest.mark.parametrize("name", NAMES)
def test_starts_as_the_sum_to_the_last_bit(name: str, num_levels: int, dtype: torch.dtype) -> None:
    inputs = [h.to(dtype) for h in levels(num_levels, 6, 4)]
    join = made(name, num_levels).to(dtype)
    expected = Sum(4, num_levels)(inputs)
    assert torch.equal(join(inputs), expected)
    shake(join)
    assert name != "gate" or not torch.equal(join(inputs), expected)
    join.reset_parameters()
    assert torch.equal(join(inputs), expected)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_the_formula(name: str) -> None:
    join, inputs = shaken(name, 3), levels(3, 6, 4)
    parameters = reference.parameters(join)
    expected = [
        reference.relation_weights(name, parameters, [reference.standardised(h[row].numpy()) for h in inputs])
        for row in range(6)
    ]
    close(join.weights(inputs), expected)


@pytest.mark.parametrize("name", NAMES)
def test_weights_depend_on_all_levels(name: str) -> None:
    """How much level 1 counts changes with level 3: that is the relation."""
    join, inputs = shaken(name, 3), levels(3, 6, 4)
    inputs[2].requires_grad_()
    (gradient,) = torch.autograd.grad(join.weights(inputs)[:, 0].sum(), inputs[2])
    assert gradient.abs().max() > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_total_weight(name: str) -> None:
    weights = shaken(name, 5).weights(levels(5, 6, 4))
    assert weights.shape == (6, 5)
    assert (weights > 0).all()
    if name == "gate":
        assert (weights < 2).all()
    else:
        close(weights.sum(dim=1), torch.full((6,), 5.0))


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_mix(name: str) -> None:
    """Each row has its own weights, whatever else is in the batch and in which order."""
    join, inputs = shaken(name, 3), levels(3, 6, 4)
    order = torch.tensor([4, 0, 5])
    close(join([h[order] for h in inputs]), join(inputs)[order])


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_levels_counts(name: str) -> None:
    join, inputs = shaken(name, 3), levels(3, 6, 4)
    assert not torch.allclose(join(inputs), join(inputs[::-1]), atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_weights_do_not_depend_on_the_scale_of_a_level(name: str) -> None:
    join, inputs = shaken(name, 3), levels(3, 6, 4)
    close(join.weights([1000 * inputs[0], *inputs[1:]]), join.weights(inputs), 1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_and_one_channel(name: str) -> None:
    assert made(name, 3)([torch.zeros(0, 4)] * 3).shape == (0, 4)
    assert made(name, 3, channels=1)([torch.ones(2, 1)] * 3).tolist() == [[3.0], [3.0]]


@pytest.mark.parametrize("family", ["jk", "mlap"])
@pytest.mark.parametrize("name", NAMES)
def test_shares_are_exact(name: str, family: str) -> None:
    made = network(f"{family}-{name}", num_layers=3, nodes=CATEGORIES)
    batch = whole_batch(graph_set(CATEGORIES))
    with torch.no_grad():
        found = decompose(made, batch)
    assert found.shares is not None
    assert found.levels == (1, 2, 3)
    for graph in range(batch.num_graphs):
        own = found.shares[batch.batch == graph].sum(dim=(0, 1))
        close(found.bias + own, found.logits[graph])


def test_a_gate_can_turn_everything_down() -> None:
    join = LevelGate(4, 3).double()
    with torch.no_grad():
        join.score.bias.fill_(-50)
    assert join(levels(3, 6, 4)).abs().max() < 1e-15


def test_adding_them_touched_one_file_and_one_table() -> None:
    """Networks, sweeps, explanations, reports and help texts know them by the table alone."""
    house = Path(mlap.__file__).parent
    words = [word for name in NAMES for word in (JOINS[name].source.partition(":")[2], f"mlap-{name}", f"jk-{name}")]
    named = re.compile(rf"\b({'|'.join(words)})\b")
    naming = {
        str(path.relative_to(house)) for path in house.rglob("*.py") if named.search(path.read_text(encoding="utf-8"))
    }
    assert naming == {"names.py", "nn/relations.py", "nn/__init__.py"}  # the last makes the classes public


# ---- a learned subset --------------------------------------------------------------------------------------------


def sparse(*scores: float, price: float = 0.0) -> SparseSum:
    join = SparseSum(4, len(scores), price).double()
    with torch.no_grad():
        join.scores.copy_(torch.tensor(scores, dtype=torch.double))
    return join


def hard_concrete(log_alpha: float, u: float | None) -> float:
    """Equations 10 and 11 of arXiv:1712.01312, and 13 where there is no u."""
    noise = 0.0 if u is None else np.log(u) - np.log(1 - u)
    s = 1 / (1 + np.exp(-(noise + log_alpha) / (1 if u is None else 2 / 3)))
    return float(min(1.0, max(0.0, s * 1.2 - 0.1)))


def test_a_sparse_sum_starts_as_the_sum() -> None:
    inputs = levels(3, 6, 4)
    assert torch.equal(SparseSum(4, 3).double().eval().weights(inputs), torch.ones(3, dtype=torch.double))


def test_weights_of_a_sparse_sum() -> None:
    join, inputs = sparse(-0.3, -0.1, 0.0, 0.3), levels(4, 1000, 4)
    close(join.eval().weights(inputs), [hard_concrete(10 * score, None) for score in join.scores.tolist()])
    torch.manual_seed(3)
    drawn = join.train().weights(inputs)
    torch.manual_seed(3)
    u = torch.rand(1000, 4, dtype=torch.double)
    expected = [
        [hard_concrete(10 * score, chance) for score, chance in zip(join.scores.tolist(), row, strict=True)]
        for row in u.tolist()
    ]
    close(drawn, expected, 1e-7)
    # as often as the penalty expects a weight to be other than zero, within four standard errors
    expected_kept = sparse(*join.scores.tolist(), price=1.0).penalty.item()
    assert (drawn > 0).double().mean(dim=0).sum().item() == pytest.approx(expected_kept, abs=4 * 1000**-0.5)


def test_the_levels_that_are_kept() -> None:
    assert sparse(-0.3, 0.1, 0.4).kept == [1, 2]
    assert sparse(-3.0, -2.0, -2.5).kept == [1]  # one has to be
    join = sparse(-0.3, 0.1, 0.4)
    join.keep([1, 2])
    close(join.scores, [0.1, 0.4])
    assert join.num_levels == 2


def test_gradients_of_a_sparse_sum() -> None:
    join, inputs = sparse(-0.02, 0.01, 0.05, price=0.3), levels(3, 4, 4)

    def loss(scores: Tensor) -> Tensor:
        torch.manual_seed(0)
        with torch.no_grad():
            join.scores.copy_(scores)
        return join(inputs).sin().sum() + join.penalty

    (gradient,) = torch.autograd.grad(loss(join.scores.detach()), join.scores)
    for level in range(3):
        step = torch.zeros(3, dtype=torch.double)
        step[level] = 1e-6
        scores = join.scores.detach().clone()
        rise = (loss(scores + step) - loss(scores - step)).item() / 2e-6
        assert rise == pytest.approx(gradient[level].item(), rel=1e-4)


@pytest.mark.parametrize("input_level", [False, True])
@pytest.mark.parametrize("architecture", ["jk-sum", "mlap-sum"])
def test_a_settled_network_answers_the_same_with_less(architecture: str, input_level: bool) -> None:
    made = network(architecture, num_layers=4, nodes=CATEGORIES, levels="learned", input_level=input_level)
    with torch.no_grad():
        made.readout.join.scores.copy_(torch.tensor([0.1, -1.0, 0.02, -1.0, -1.0][: 4 + input_level]))
    batch = whole_batch(graph_set(CATEGORIES))
    with torch.no_grad():
        before, explained = made(batch), decompose(made, batch)
        made.settle()
        close(made(batch), before)
        again = decompose(made, batch)
    first = 0 if input_level else 1
    assert made.reads == (0, 2)
    assert made.level_numbers(2) == explained.levels == again.levels == (first, first + 2)
    close(again.shares, explained.shares)
    assert len(made.backbone.convs) == 2 + first
    assert len(made.readout.pools) == (2 if architecture == "mlap-sum" else 1)
    parameters = sum(p.numel() for p in made.parameters())
    made.settle()
    assert sum(p.numel() for p in made.parameters()) == parameters


def test_other_networks_are_settled_as_they_are() -> None:
    made = graph_network("mlap-weighted", num_layers=3, channels=4, out_channels=2)
    made.settle()
    assert (made.reads, len(made.backbone.convs)) == (None, 3)
