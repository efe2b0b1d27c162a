"""Encoders: from the features of nodes or edges to vectors.

An encoder returns one row per item, or a single row that holds for every item where nothing tells items apart. Layers
use that to add a constant edge vector once per node instead of once per edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlap.errors import UsageError
from mlap.kernels import on_host
from mlap.nn.mlp import TwoLayers

#: up to so many combinations of categories are all encoded, whichever occur
FEW = 256
#: up to so many combinations have numbers that fit in 64 bits
COUNTABLE = 2**62

#: What items are like: nothing known (`None`), real columns (their number), or categories (the size of each column).
Describes = None | int | Sequence[int]


class ConstantEncoder(nn.Module):
    """One trainable vector for all items, initially standard normal; for graphs without features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.empty(1, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vector anew."""
        nn.init.normal_(self.vector)

    def forward(self, features: Tensor | None) -> Tensor:
        """The vector `(1, channels)`, whatever the features."""
        return self.vector


class Kinds(NamedTuple):
    """Which combinations of categories occur among some items.

    Args:
        present: the numbers of those combinations, ascending; `None` stands for all that are possible.
        kind: which of them each item has.
    """

    present: Tensor | None
    kind: Tensor


class CategoryEncoder(nn.Module):
    """The sum of one embedding per categorical column (OGB's atom and bond encoders are of this kind).

    Every table starts Xavier-uniform, as OGB's do. They are stored one below the other as a single matrix.

    Args:
        cardinalities: the number of categories of each column.
        channels: the width of the vectors.
    """

    sizes: Tensor
    offsets: Tensor
    strides: Tensor
    all_combinations: Tensor | None

    def __init__(self, cardinalities: Sequence[int], channels: int) -> None:
        super().__init__()
        self.cardinalities = tuple(cardinalities)
        sizes = torch.tensor(self.cardinalities)
        self.register_buffer("sizes", sizes, persistent=False)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes, persistent=False)
        self.combinations = math.prod(self.cardinalities)
        strides = [math.prod(self.cardinalities[column + 1 :]) % COUNTABLE for column in range(len(sizes))]
        self.register_buffer("strides", torch.tensor(strides), persistent=False)
        self.register_buffer("all_combinations", self._all_combinations(), persistent=False)
        self.tables = nn.Parameter(torch.empty(sum(self.cardinalities), channels))
        self.reset_parameters()

    def _all_combinations(self) -> Tensor | None:
        """If they are few, the combinations of categories: a row of zeros and ones says which tables' rows to add."""
        if self.combinations > FEW:
            return None
        categories = self._categories(torch.arange(self.combinations))
        return F.one_hot(categories + self.offsets, sum(self.cardinalities)).sum(1).float()

    def reset_parameters(self) -> None:
        """Draw all tables anew."""
        for table in torch.split(self.tables.data, list(self.cardinalities)):
            nn.init.xavier_uniform_(table)

    def forward(self, features: Tensor | None) -> Tensor:
        """Encode categories `(rows, columns)` to `(rows, channels)`."""
        return F.embedding_bag(self._checked(features) + self.offsets, self.tables, mode="sum")

    def kinds(self, features: Tensor | None) -> Kinds | None:
        """Which combinations of categories there are; `None` if there are too many to tell.

        The answer depends on `cardinalities` alone, so encoders that agree in them can share it.
        """
        if self.combinations > (COUNTABLE if on_host(self.tables) else FEW):
            return None
        kind = (self._checked(features) * self.strides).sum(-1)
        if self.combinations <= FEW:
            return Kinds(None, kind)
        return Kinds(*torch.unique(kind, return_inverse=True))

    def encode(self, present: Tensor | None) -> Tensor:
        """The vectors of combinations of categories, given by their numbers, or of all."""
        if present is None:
            assert self.all_combinations is not None
            return self.all_combinations @ self.tables
        return F.embedding_bag(self._categories(present) + self.offsets, self.tables, mode="sum")

    def _categories(self, combinations: Tensor) -> Tensor:
        """The category in each column, for combinations given by their numbers."""
        return combinations.unsqueeze(-1) // self.strides % self.sizes

    def _checked(self, features: Tensor | None) -> Tensor:
        """The features, once they are known to be of the categories that the network was built for."""
        _check_columns(features, len(self.cardinalities), "categorical")
        assert features is not None
        if on_host(features):
            wrong = (features < 0) | (features >= self.sizes)
            if wrong.any():
                row, column = wrong.nonzero()[0].tolist()
                raise UsageError(
                    f"feature {column} is category {features[row, column]}, but the network was built for categories "
                    f"0 to {self.cardinalities[column] - 1}"
                )
        return features

    def extra_repr(self) -> str:
        """The tables' sizes."""
        return f"{list(self.cardinalities)}, {self.tables.size(1)}"


class RealEncoder(TwoLayers):
    """A two-layer network for real vectors: Linear – ReLU – Linear, with a hidden layer twice as wide as its output.

    Args:
        in_channels: the number of real columns.
        channels: the width of the vectors.
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__(in_channels, 2 * channels, channels)
        self.in_channels = in_channels

    def forward(self, features: Tensor | None) -> Tensor:
        """Encode real vectors `(rows, columns)` to `(rows, channels)`."""
        _check_columns(features, self.in_channels, "real")
        assert features is not None
        return super().forward(features)


class Items:
    """The features of some items, nodes or arcs, and which of them are alike, found once for all encoders.

    There are often far fewer kinds of bonds than bonds: layers that can, work with the kinds.

    Args:
        features: one row per item, or `None`.
    """

    def __init__(self, features: Tensor | None) -> None:
        self.features = features
        self._kinds: dict[tuple[int, ...], Kinds | None] = {}

    def encoded(self, encoder: nn.Module) -> tuple[Tensor, Tensor | None]:
        """The vectors of an encoder, and which of them each item has; `None` if each has its own, or all the same."""
        kinds = self.kinds(encoder)
        if kinds is None:
            return encoder(self.features), None
        assert isinstance(encoder, CategoryEncoder)
        return encoder.encode(kinds.present), kinds.kind

    def kinds(self, encoder: nn.Module) -> Kinds | None:
        """The kinds of items that an encoder tells apart, if it tells by categories."""
        if not isinstance(encoder, CategoryEncoder):
            return None
        if encoder.cardinalities not in self._kinds:
            self._kinds[encoder.cardinalities] = encoder.kinds(self.features)
        return self._kinds[encoder.cardinalities]


def make_encoder(describes: Describes, channels: int) -> nn.Module:
    """The encoder for items of the given description: see `Describes`."""
    if describes is None:
        return ConstantEncoder(channels)
    if isinstance(describes, int):
        return RealEncoder(describes, channels)
    return CategoryEncoder(describes, channels)


def _check_columns(features: Tensor | None, expected: int, kind: str) -> None:
    got = 0 if features is None else features.size(-1)
    if got != expected:
        raise UsageError(f"the network was built for {expected} {kind} features, got {got or 'none'}")
