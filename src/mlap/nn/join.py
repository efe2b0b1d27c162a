"""Ways to join a list of representations, one per level, into one.

A jumping-knowledge network joins the levels of each *node* and then pools; MLAP pools each level and then joins the
levels of each *graph*. The join itself is the same function of rows, so both families share the ones defined here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch_geometric.nn import JumpingKnowledge

from mlap import kernels
from mlap.errors import unknown

#: rows that an LSTM takes at a time in evaluation
LSTM_ROWS = 256


class Last(nn.Module):
    """The last level alone; what a naive network does."""

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        return levels[-1]


class Sum(nn.Module):
    r"""The sum of all levels, :math:`\sum_{l=1}^L h^{(l)}`."""

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        return _total(levels)


class Max(nn.Module):
    r"""The largest value of all levels in each channel, :math:`\max_l h^{(l)}`."""

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        if len(levels) <= 256 and kernels.usable(*levels):
            from mlap.kernels import functions

            return functions.largest(levels)
        return torch.stack(list(levels)).max(dim=0).values


class Weighted(nn.Module):
    r"""A weighted sum, :math:`\sum_{l=1}^L \mathrm{softmax}(w)_l \, h^{(l)}`, of trainable scores `w`, initially ones.

    With one level the weight is 1, so that the join is exactly the sum, as the paper states of MLAP-Weighted.

    Args:
        num_levels: the number of levels L.
    """

    def __init__(self, num_levels: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.empty(num_levels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Make all levels equally important again."""
        nn.init.ones_(self.scores)

    @property
    def weights(self) -> Tensor:
        """The weight of each level `(L,)`; they add up to 1."""
        return self.scores.softmax(dim=0)

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        return torch.einsum("l,lrc->rc", self.weights, torch.stack(list(levels)))


class Projection(nn.Module):
    r"""A linear map of the concatenated levels back to the width of one, :math:`\sum_{l=1}^L W_l \, h^{(l)}`.

    It has no bias: what follows, gate and head, has one that does the same.

    Args:
        channels: the width of every level.
        num_levels: the number of levels L.
    """

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_levels * channels, channels, bias=False)
        self.num_levels = num_levels

    def reset_parameters(self) -> None:
        """Draw the matrices anew."""
        self.linear.reset_parameters()

    @property
    def matrices(self) -> tuple[Tensor, ...]:
        """The matrix of each level, `L × (c, c)`."""
        return self.linear.weight.chunk(self.num_levels, dim=1)

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        result: Tensor = self.linear(torch.cat(list(levels), dim=1))
        return result

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.linear.out_features}, num_levels={self.num_levels})"


class LSTMAttention(JumpingKnowledge):  # type: ignore[misc]
    """PyG's attention over the levels, whose scores an LSTM along them computes.

    The LSTM is wide (half the levels' joint width, each way), so what it computes for many rows is far larger than a
    processor's cache. Where no gradient is wanted, as in evaluation, it takes a few rows at a time, and each of equal
    ones once.

    Args:
        channels: the width of every level.
        num_levels: the number of levels L.
    """

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__("lstm", channels, num_levels)

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        fast = kernels.usable(*levels) and kernels.may_replace(self.lstm, nn.LSTM)
        join: Callable[[list[Tensor]], Tensor] = self._join if fast else super().forward
        if torch.is_grad_enabled() or not kernels.on_host(levels[0]):
            return join(list(levels))

        def join_rows(rows: Tensor) -> Tensor:
            return torch.cat([join(list(piece.chunk(len(levels), dim=1))) for piece in torch.split(rows, LSTM_ROWS)])

        rows = torch.cat(list(levels), dim=1)
        if not kernels.usable(rows):
            return join_rows(rows)
        from mlap.kernels import functions

        return functions.once_per_kind(join_rows, rows)

    def _join(self, levels: list[Tensor]) -> Tensor:
        """What PyG's module computes, the LSTM by kernels."""
        from mlap.kernels import functions

        onwards, backwards = self.lstm.all_weights
        ahead = functions.lstm(levels, *onwards)
        behind = functions.lstm(levels[::-1], *backwards)[::-1]
        scores = [self.att(torch.cat(states, dim=1)) for states in zip(ahead, behind, strict=True)]
        weights = torch.cat(scores, dim=1).softmax(dim=1)
        return _total([weight[:, None] * level for weight, level in zip(weights.unbind(dim=1), levels, strict=True)])


def _total(levels: Sequence[Tensor]) -> Tensor:
    total = levels[0]
    for level in levels[1:]:
        total = total + level
    return total


#: name → a function of (channels, number of levels) that makes the module
JOINS: dict[str, Callable[[int, int], nn.Module]] = {
    "last": lambda channels, num_levels: Last(),
    "sum": lambda channels, num_levels: Sum(),
    "weighted": lambda channels, num_levels: Weighted(num_levels),
    "concat": lambda channels, num_levels: JumpingKnowledge("cat"),
    "linear": Projection,
    "max": lambda channels, num_levels: Max(),
    "lstm": LSTMAttention,
}


def make_join(join: str | nn.Module, channels: int, num_levels: int) -> tuple[nn.Module, int]:
    """A join by name, or the user's own module, and the width of what it returns.

    A module of one's own takes the list of levels `L × (rows, channels)`; its width is its attribute
    `out_channels`, or `channels` if it has none.
    """
    if isinstance(join, nn.Module):
        return join, int(getattr(join, "out_channels", channels))
    if join not in JOINS:
        raise unknown("join of levels", join, JOINS)
    return JOINS[join](channels, num_levels), channels * num_levels if join == "concat" else channels
