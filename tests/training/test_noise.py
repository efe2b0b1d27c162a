"""FLAG against the algorithm of its paper, written out slowly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mlap.errors import UsageError
from mlap.graphs import GraphSet, synthetic
from mlap.nn.execution import by_itself
from mlap.training import Recipe, train
from mlap.training.noise import STEPS, noise

RECIPE = Recipe(architecture="mlap-sum", layers=2, width=8, epochs=2, batch_size=16, lr=0.01, flag=0.01)


@pytest.fixture(scope="module")
def graphs() -> GraphSet:
    return synthetic(graphs_per_class=8)


@pytest.mark.parametrize("rows", [5, 1])
def test_noise_climbs_as_in_the_paper(rows: int) -> None:
    """By derivatives written out by hand; also of an encoder that makes one row for all nodes."""
    torch.manual_seed(0)
    size, x = 0.1, torch.randn(rows, 3)
    encoder, target = nn.Linear(3, 4), torch.randn(5, 4)

    def loss(encoded: Tensor) -> Tensor:
        return (encoded - target).pow(3).sum() / STEPS

    torch.manual_seed(1)
    with noise(encoder, 5, size) as climb:
        for _ in range(STEPS):
            loss(encoder(x)).backward()
            climb()
    found = encoder.weight.grad
    torch.manual_seed(1)
    delta = torch.empty(5, 4).uniform_(-size, size)
    expected = torch.zeros(4, 3)
    for _ in range(STEPS):
        slope = 3 * (encoder(x).detach() + delta - target).pow(2) / STEPS
        expected += slope.T @ x.expand(5, -1)
        delta = delta + size * slope.sign()
    torch.testing.assert_close(found, expected)
    assert not encoder._forward_hooks


def test_kernels_train_as_plain_modules_do(graphs: GraphSet) -> None:
    """As nearly as the signs of small gradients allow."""
    fast = train(RECIPE, graphs)
    with by_itself():
        slow = train(RECIPE, graphs)
    plain = train(RECIPE.replace(flag=0.0), graphs)
    losses = [[epoch.train_loss for epoch in trained.history] for trained in (fast, slow, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0] != pytest.approx(losses[2], rel=1e-3)


def test_noise_makes_the_loss_worse(graphs: GraphSet) -> None:
    """In the first epoch, without dropout: what is trained against is harder than the data."""
    recipe = RECIPE.replace(dropout=0.0, lr=1e-9, epochs=1, norm="none")
    quiet, noisy = (train(recipe.replace(flag=size), graphs).history[0].train_loss for size in (0.0, 0.3))
    assert noisy > quiet


def test_compiled_training_has_none(graphs: GraphSet) -> None:
    with pytest.raises(UsageError) as error:
        train(RECIPE, graphs, compile=True)
    assert error.value.field == "flag"
