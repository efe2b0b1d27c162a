"""Joins of levels, against the loops of the reference."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import reference
import torch
from samples import close, levels, shake
from torch import Tensor, nn

from mlap.errors import UsageError
from mlap.names import JOINS
from mlap.nn import Join, Weighted
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


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"lstm", "linear", "gate"}))
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
    join = Weighted(2, 4).double()
    assert join.scores.tolist() == [1] * 4
    close(join.level_weights, [0.25] * 4, 1e-15)
    with torch.no_grad():
        join.scores += torch.tensor([1.0, -2.0, 50.0, 1e4])
    assert join.level_weights.sum().item() == pytest.approx(1, abs=1e-12)
    assert (join.level_weights >= 0).all()


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


@pytest.mark.parametrize("num_levels", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_terms_add_up_to_the_join(name: str, num_levels: int) -> None:
    """Σ_l M_l (w_l ⊙ h_l), one row, one level, one channel at a time."""
    torch.manual_seed(0)
    module, width = make_join(name, 4, num_levels)
    module.double()
    shake(module)
    inputs = levels(num_levels, 6, 4)
    terms = module.terms(inputs)
    weights = terms.weights.detach()
    maps = terms.maps or [torch.eye(4, dtype=torch.double)] * num_levels
    added = torch.zeros(6, width, dtype=torch.double)
    for row in range(6):
        for level in range(num_levels):
            w = weights[level] if weights.dim() == 1 else weights[row, level]
            added[row] += maps[level].detach() @ (w * inputs[level][row])
    close(module(inputs).detach(), added)


def test_a_join_says_its_weights_alone() -> None:
    """What is joined, terms and width follow; the weights may depend on the row."""

    class Loudest(Join):
        def weights(self, levels: Sequence[Tensor]) -> Tensor:
            return torch.stack([h.square().sum(dim=1) for h in levels], dim=1).softmax(dim=1)

    join = Loudest(4, 3)
    inputs = levels(3, 6, 4)
    weights = join.weights(inputs)
    assert weights.shape == (6, 3)
    close(join(inputs), sum(weights[:, [level]] * inputs[level] for level in range(3)))
    assert torch.equal(join.terms(inputs).weights, weights)
    assert (join.out_channels, join.level_weights) == (4, None)
    assert repr(join) == "Loudest(4, num_levels=3)"


def test_every_join_is_described() -> None:
    for name, part in JOINS.items():
        assert issubclass(part.load(), Join), name
        assert part.help
        assert "\n" not in part.help
