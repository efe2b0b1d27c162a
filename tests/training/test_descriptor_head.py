"""Descriptors as a term: what is standardised how, and that it is a term."""

from __future__ import annotations

import numpy as np
import torch

from mlap.training.descriptor_head import DescriptorHead


def test_values_are_standardised_by_the_training_molecules() -> None:
    head = DescriptorHead(["a", "b", "c", "d"], 1)
    nan = float("nan")
    train = np.array([[1.0, nan, 7.0, 1e30], [3.0, 2.0, 7.0, 0.0], [5.0, 4.0, 7.0, 0.0]], np.float32)
    head.fit(train)
    seen = head.standardised(torch.tensor([[3.0, nan, 9.0, 1e30], [1e9, 4.0, 7.0, -1e30]])).numpy()
    spread = np.std([1.0, 3.0, 5.0])
    assert seen[0, 0] == 0
    assert seen[1, 0] == 5  # far outside of what was seen
    np.testing.assert_allclose(seen[:, 1], [0, 1])  # unknown counts as the mean, which is of the known
    np.testing.assert_array_equal(seen[:, 2], 0)  # says nothing about the training molecules
    capped = np.array([1e6, 0, 0])
    np.testing.assert_allclose(seen[0, 3], (1e6 - capped.mean()) / capped.std(), rtol=1e-6)
    np.testing.assert_allclose(head.standardised(torch.tensor([[1.0, 2, 7, 0]]))[0, 0], -2 / spread, rtol=1e-6)


def test_the_term_is_linear_and_starts_at_zero() -> None:
    head = DescriptorHead(["a", "b"], 3)
    values = torch.randn(5, 2)
    assert head(values).shape == (5, 3)
    assert not head(values).any()
    torch.nn.init.normal_(head.weight)
    torch.testing.assert_close(head(values), values @ head.weight.T)
    head.reset_parameters()
    assert not head.weight.any()


def test_mean_and_scale_are_kept_with_the_weights() -> None:
    head = DescriptorHead(["a", "b"], 1)
    head.fit(np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32))
    assert set(head.state_dict()) == {"weight", "mean", "scale"}
