"""Encoders: one row per item, or one for all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import reference
import torch
from samples import CATEGORIES, REALS, close, shake

from mlap.errors import UsageError
from mlap.nn import CategoryEncoder, ConstantEncoder, RealEncoder, make_encoder


def random_features(kind: Any, rows: int) -> torch.Tensor | None:
    if kind is None:
        return None
    if isinstance(kind, int):
        return torch.randn(rows, kind, dtype=torch.double)
    return torch.stack([torch.randint(size, (rows,)) for size in kind], dim=1)


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("kind", [None, REALS, (5,), CATEGORIES])
def test_is_the_formula(kind: Any, rows: int) -> None:
    torch.manual_seed(0)
    encoder = make_encoder(kind, 4).double()
    shake(encoder)
    features = random_features(kind, rows)
    encoded = encoder(features)
    assert encoded.shape == (1 if kind is None else rows, 4)
    table = None if features is None else features.numpy()
    expected = reference.encode(reference.parameters(encoder), table, rows, kind)
    close(encoded.expand(rows, 4), np.reshape(expected, (rows, 4)))


@pytest.mark.parametrize("kind", [REALS, CATEGORIES])
def test_gradients(kind: Any) -> None:
    torch.manual_seed(0)
    encoder = make_encoder(kind, 3).double()
    features = random_features(kind, 5)
    assert torch.autograd.gradcheck(lambda *_: encoder(features), tuple(encoder.parameters()))


def test_tables_start_xavier_uniform_each_by_its_own_size() -> None:
    torch.manual_seed(0)
    encoder = CategoryEncoder((40, 3), 50)
    for table in encoder.tables.split([40, 3]):
        bound = math.sqrt(6 / (len(table) + 50))
        assert 0.9 * bound < table.abs().max().item() <= bound


def test_every_category_of_every_column_has_a_row_of_its_own() -> None:
    encoder = CategoryEncoder(CATEGORIES, 2)
    used = []
    for column, size in enumerate(CATEGORIES):
        for category in range(size):
            features = torch.zeros(1, len(CATEGORIES), dtype=torch.long)
            features[0, column] = category
            encoder.tables.grad = None
            encoder(features).sum().backward()
            assert encoder.tables.grad is not None
            used.append(frozenset(encoder.tables.grad[:, 0].nonzero().flatten().tolist()))
            assert len(used[-1]) == len(CATEGORIES)
    assert frozenset.union(*used) == set(range(sum(CATEGORIES)))


def test_a_constant_whatever_the_features() -> None:
    encoder = ConstantEncoder(4)
    assert torch.equal(encoder(None), encoder(torch.randn(3, 2)))


@pytest.mark.parametrize(
    ("encoder", "features", "message"),
    [
        (RealEncoder(7, 4), None, "built for 7 real features, got none"),
        (RealEncoder(7, 4), torch.zeros(2, 3), "built for 7 real features, got 3"),
        (CategoryEncoder((3, 2), 4), None, "built for 2 categorical features, got none"),
        (CategoryEncoder((3, 2), 4), torch.zeros(5, 1, dtype=torch.long), "built for 2 categorical features, got 1"),
        (CategoryEncoder((3, 2), 4), torch.tensor([[0, 1], [3, 1]]), "feature 0 is category 3, .* categories 0 to 2"),
        (CategoryEncoder((3, 2), 4), torch.tensor([[0, -1]]), "feature 1 is category -1, .* categories 0 to 1"),
    ],
)
def test_features_of_another_kind(encoder: torch.nn.Module, features: torch.Tensor | None, message: str) -> None:
    """A category beyond its column would otherwise read the next column's table."""
    with pytest.raises(UsageError, match=message):
        encoder(features)


def test_reprs() -> None:
    assert repr(ConstantEncoder(4)) == "ConstantEncoder()"
    assert repr(CategoryEncoder((3, 2), 4)) == "CategoryEncoder([3, 2], 4)"


def test_positions_in_the_tables_are_not_saved() -> None:
    """They follow from the cardinalities; a file holds weights only."""
    assert list(CategoryEncoder((3, 2), 4).state_dict()) == ["tables"]
