"""Joins of levels, against the loops of the reference."""

from __future__ import annotations

import pytest
import reference
import torch
from samples import close, levels, shake
from torch import Tensor, nn

from mlap.errors import UsageError
from mlap.nn import JOINS, Weighted
from mlap.nn.join import make_join

NAMES = tuple(JOINS)


@pytest.mark.parametrize("num_levels", [1, 2, 5])
@pytest.mark.parametrize("name", NAMES)
def test_is_the_formula(name: str, num_levels: int) -> None:
    torch.manual_seed(0)
    module, width = make_join(name, 4, num_levels)
    module.double()
    shake(module)
    inputs = levels(num_levels, 6, 4)
    parameters = reference.parameters(module)
    expected = [reference.join(name, parameters, [h[row].numpy() for h in inputs]) for row in range(6)]
    result = module(inputs)
    assert result.shape == (6, width)
    close(result, expected)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"lstm", "linear"}))
def test_one_level_is_returned_as_it_is(name: str) -> None:
    module, _ = make_join(name, 4, 1)
    (level,) = levels(1, 6, 4)
    assert torch.equal(module.double()([level]), level)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str) -> None:
    torch.manual_seed(0)
    module, _ = make_join(name, 2, 3)
    module.double()
    shake(module)
    inputs = tuple(h.requires_grad_() for h in levels(3, 4, 2))
    parameters = tuple(module.parameters())
    assert torch.autograd.gradcheck(lambda *tensors: module(list(tensors[:3])), (*inputs, *parameters))


def test_weights_start_equal_and_add_up_to_one() -> None:
    join = Weighted(4).double()
    assert join.scores.tolist() == [1] * 4
    close(join.weights, [0.25] * 4, 1e-15)
    with torch.no_grad():
        join.scores += torch.tensor([1.0, -2.0, 50.0, 1e4])
    assert join.weights.sum().item() == pytest.approx(1, abs=1e-12)
    assert (join.weights >= 0).all()


def test_a_module_of_ones_own() -> None:
    class Wide(nn.Module):
        out_channels = 9

        def forward(self, levels: list[Tensor]) -> Tensor:
            return torch.cat((levels[0], levels[-1], levels[0][:, :1]), dim=1)

    own = Wide()
    assert make_join(own, 4, 3) == (own, 9)
    plain = nn.Identity()
    assert make_join(plain, 4, 3) == (plain, 4)


def test_an_unknown_name() -> None:
    with pytest.raises(UsageError, match=r"unknown join of levels 'maxi'; did you mean 'max'\?"):
        make_join("maxi", 4, 3)


def test_an_lstm_in_pieces_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlap.nn.join.LSTM_ROWS", 4)
    module, _ = make_join("lstm", 6, 3)
    for rows in (0, 3, 4, 11):
        levels = [torch.randn(rows, 6) for _ in range(3)]
        whole = module(levels)
        with torch.no_grad():
            torch.testing.assert_close(module(levels), whole.detach())
