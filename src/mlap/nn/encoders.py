"""Encoders: from the features of nodes or edges to vectors.

An encoder returns one row per item, or a single row that holds for every item where nothing tells items apart. The
paper's are `ConstantEncoder` (synthetic graphs) and `CategoryEncoder` (molecules); "Model Configurations" in
arXiv:2103.01488.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlap.errors import UsageError
from mlap.nn.mlp import TwoLayers

#: What items are like: nothing known (`None`), real columns (their number), or categories (the size of each column).
FeatureSizes = None | int | Sequence[int]


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


class CategoryEncoder(nn.Module):
    """The sum of one embedding per categorical column (OGB's atom and bond encoders are of this kind).

    Every table starts Xavier-uniform, as OGB's do. They are stored one below the other as a single matrix.

    Args:
        cardinalities: the number of categories of each column.
        channels: the width of the vectors.
    """

    sizes: Tensor
    offsets: Tensor

    def __init__(self, cardinalities: Sequence[int], channels: int) -> None:
        super().__init__()
        self.cardinalities = tuple(cardinalities)
        sizes = torch.tensor(self.cardinalities)
        self.register_buffer("sizes", sizes, persistent=False)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes, persistent=False)
        self.tables = nn.Parameter(torch.empty(sum(self.cardinalities), channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all tables anew."""
        for table in torch.split(self.tables.data, list(self.cardinalities)):
            nn.init.xavier_uniform_(table)

    def forward(self, features: Tensor | None) -> Tensor:
        """Encode categories `(rows, columns)` to `(rows, channels)`."""
        return F.embedding_bag(self.checked(features) + self.offsets, self.tables, mode="sum")

    def checked(self, features: Tensor | None) -> Tensor:
        """The features, once they are known to be of the categories that the network was built for.

        On a device nobody looks at the values, for which the host would have to wait.
        """
        _check_columns(features, len(self.cardinalities), "categorical")
        assert features is not None
        if features.device.type == "cpu" and not torch.compiler.is_compiling():
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
        encoded: Tensor = super().forward(features)
        return encoded


def make_encoder(features: FeatureSizes, channels: int) -> nn.Module:
    """The encoder for items of such features: see `FeatureSizes`."""
    if features is None:
        return ConstantEncoder(channels)
    if isinstance(features, int):
        return RealEncoder(features, channels)
    return CategoryEncoder(features, channels)


def _check_columns(features: Tensor | None, expected: int, kind: str) -> None:
    got = 0 if features is None else features.size(-1)
    if got != expected:
        raise UsageError(f"the network was built for {expected} {kind} features, got {got or 'none'}")
