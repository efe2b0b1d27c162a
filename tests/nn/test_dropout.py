"""Dropout: right on average, independent between elements, repeatable. Seeded; bounds hold but for 1 in a million."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mlap.errors import UsageError
from mlap.nn import Dropout

SIGMAS = 5.0  # two-sided probability 6e-7


def kept(p: float, size: int, seed: int = 0) -> Tensor:
    """Which elements of a large vector survive."""
    torch.manual_seed(seed)
    return Dropout(p)(torch.ones(size)) != 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.77])
def test_nothing_happens_in_evaluation(p: float) -> None:
    x = torch.randn(5, 3)
    assert Dropout(p).eval()(x) is x


def test_p_of_zero_and_one() -> None:
    x = torch.randn(5, 3, requires_grad=True)
    assert Dropout(0)(x) is x
    gone = Dropout(1)(x)
    assert (gone == 0).all()
    gone.sum().backward()
    assert x.grad is not None
    assert (x.grad == 0).all()


@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 0.9, 0.999])
def test_the_share_kept_and_the_scale(p: float) -> None:
    size = 400_000
    torch.manual_seed(1)
    result = Dropout(p)(torch.ones(size))
    values = sorted(result.unique().tolist())
    assert values[0] == 0
    assert len(values) == 2
    share = (result != 0).float().mean().item()
    assert share == pytest.approx(1 - p, abs=SIGMAS * math.sqrt(p * (1 - p) / size) + 1e-5)
    step = 1 / 65536  # p is the nearest multiple of this
    assert 1 / (1 - p + step / 2) - 1e-6 <= values[1] <= 1 / (1 - p - step / 2) * (1 + 1e-6)


@pytest.mark.parametrize(("p", "scale"), [(1e-6, 1), (1 - 1e-5, 65536), (1 - 2.4e-5, 65536 / 2)])
def test_the_scale_belongs_to_the_probability_that_sixteen_bits_give(p: float, scale: float) -> None:
    """So that the mean is kept exactly, however near to 0 or 1: `1 / (1 - p)` would be half as much again here."""
    torch.manual_seed(2)
    result = Dropout(p)(torch.ones(2_000_000))
    assert result[result != 0].unique().tolist() == [scale]


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_elements_are_independent(p: float) -> None:
    """Four elements share a 64-bit word: none of them may be rarer, and none may follow from its neighbours."""
    size = 400_000
    mask = (kept(p, size).double() - (1 - p)) / math.sqrt(p * (1 - p))
    for lane in range(8):
        assert abs(mask[lane::8].mean().item()) < SIGMAS / math.sqrt(size / 8)
    for lag in (1, 2, 3, 4, 5, 8, 16, 200):
        correlation = (mask[lag:] * mask[:-lag]).mean().item()
        assert abs(correlation) < SIGMAS / math.sqrt(size - lag)
    words = mask.reshape(-1, 4)
    for first in range(4):
        for second in range(first):
            assert abs((words[:, first] * words[:, second]).mean().item()) < SIGMAS / math.sqrt(size / 4)


def test_seeds_make_it_repeatable_and_calls_differ() -> None:
    x = torch.randn(100, 7)
    dropout = Dropout(0.5)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout(x), second)
    torch.manual_seed(4)
    assert not torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


def test_successive_calls_are_independent() -> None:
    torch.manual_seed(5)
    x, dropout = torch.ones(100_000), Dropout(0.5)
    signs = [(dropout(x) - 1).sign() for _ in range(3)]
    for first, second in ((0, 1), (1, 2), (0, 2)):
        assert abs((signs[first] * signs[second]).mean().item()) < SIGMAS / math.sqrt(100_000)


def test_the_generators_state_can_be_saved_in_between() -> None:
    """What resuming a run rests on."""
    x, dropout = torch.randn(9, 4), Dropout(0.5)
    torch.manual_seed(6)
    dropout(x)
    state = torch.get_rng_state()
    expected = dropout(x)
    torch.manual_seed(7)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x), expected)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize("p", [0.3, 0.5])
def test_the_gradient_is_the_mask(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(8)
    x = torch.randn(6, 5, dtype=dtype, requires_grad=True)
    result = Dropout(p)(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert result.dtype == gradient.dtype == dtype
    assert torch.equal(result, x * gradient)
    steps = round(p * 65536)
    scale = torch.tensor(65536 / (65536 - steps), dtype=dtype)
    assert torch.equal(gradient[gradient != 0].unique(), scale.reshape(1))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (7, 1, 3), (0, 4), (5, 0)])
def test_any_size(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    result = Dropout(0.5)(x)
    assert result.shape == x.shape
    assert set(result.flatten().tolist()) <= {0.0, 2.0}


def test_input_that_is_not_contiguous() -> None:
    x = torch.randn(8, 6)
    torch.manual_seed(9)
    expected = Dropout(0.5)(x.T.contiguous())
    torch.manual_seed(9)
    assert torch.equal(Dropout(0.5)(x.T), expected)
    torch.manual_seed(9)
    expanded = Dropout(0.5)(torch.ones(1, 50).expand(40, 50))
    assert len(expanded.unique(dim=0)) > 1  # rows of an expanded tensor are dropped one by one


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_not_a_probability(p: float) -> None:
    with pytest.raises(UsageError, match="dropout is a probability, 0 to 1, got"):
        Dropout(p)


def test_repr() -> None:
    assert repr(Dropout(0.25)) == "Dropout(p=0.25)"
