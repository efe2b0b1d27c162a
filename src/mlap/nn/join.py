"""Ways to join a list of representations, one per level, into one.

A jumping-knowledge network joins the levels of each *node* and then pools; MLAP pools each level and then joins the
levels of each *graph*. The join itself is the same function of rows, so both families share the ones defined here.
The paper, arXiv:2103.01488, has the sum (Eqs. mlap-sum and jk-sum), the weighted sum (Eq. mlap-weighted), and of
jumping knowledge the concatenation, the maximum and the LSTM attention (section 4.4, "Baseline Models").

A join of one's own is a class and a line in `mlap.names.JOINS`. It is made with `(channels, num_levels)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import JumpingKnowledge

from mlap.errors import unknown
from mlap.names import JOINS


class Terms(NamedTuple):
    r"""What each level adds to a join: :math:`\sum_l M_l \, (w_l \odot h^{(l)})`.

    Args:
        weights: :math:`w`, `(L,)` where they are the same for all rows, `(rows, L)`, or `(rows, L, c)` where channels
            have weights of their own.
        maps: :math:`M_l`, `L × (out_channels, c)`; `None` where levels are added as they are.
    """

    weights: Tensor
    maps: Sequence[Tensor] | None = None

    def weight(self, level: int) -> Tensor:
        """The weight of a level, as a number or `(rows, 1)` or `(rows, c)`."""
        if self.weights.dim() == 1:
            return self.weights[level]
        return self.weights[:, level] if self.weights.dim() == 3 else self.weights[:, level, None]


class Join(nn.Module, ABC):
    r"""A weighted sum of the levels, :math:`\sum_{l=1}^L w_l \, h^{(l)}`; a subclass says what the weights are.

    They may depend on what is joined; they never change the levels. So the terms of the sum, and with them exact
    shares, are known of every such join. Of a join that is no weighted sum, override `forward` and `terms`.

    Args:
        channels: the width of every level.
        num_levels: the number of levels L.
    """

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__()
        self.channels = channels
        self.num_levels = num_levels
        self.out_channels = channels

    @abstractmethod
    def weights(self, levels: Sequence[Tensor]) -> Tensor:
        """The weights of levels `L × (rows, c)`: `(L,)`, or `(rows, L)` where they depend on the row."""

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, out_channels)`."""
        weights = self.weights(levels)
        return torch.einsum("l,lrc->rc" if weights.dim() == 1 else "rl,lrc->rc", weights, torch.stack(list(levels)))

    def terms(self, levels: Sequence[Tensor]) -> Terms:
        """What each level adds to the join of levels `L × (rows, c)`."""
        return Terms(self.weights(levels))

    @property
    def level_weights(self) -> Tensor | None:
        """The trained weight of each level `(L,)`, the same for all rows; `None` where there is no such."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channels}, num_levels={self.num_levels})"


class Last(Join):
    r"""The last level alone, :math:`h^{(L)}`; what a naive network does (Eq. single-pool)."""

    def weights(self, levels: Sequence[Tensor]) -> Tensor:
        """Zeros, and a one for the last level."""
        weights = levels[-1].new_zeros(len(levels))
        weights[-1] = 1
        return weights

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        return levels[-1]


class Sum(Join):
    r"""The sum of all levels, :math:`\sum_{l=1}^L h^{(l)}`; Eqs. (mlap-sum) and (jk-sum)."""

    def weights(self, levels: Sequence[Tensor]) -> Tensor:
        """Ones."""
        return levels[0].new_ones(len(levels))

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        return total(levels)


class Weighted(Join):
    r"""A sum with trained weights, :math:`\sum_{l=1}^L \mathrm{softmax}(w)_l \, h^{(l)}`; Eq. (mlap-weighted).

    The scores w are ones at first. With one level the weight is 1, so that the join is exactly the sum, as the paper
    states of MLAP-Weighted.
    """

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__(channels, num_levels)
        self.scores = nn.Parameter(torch.ones(num_levels))

    def reset_parameters(self) -> None:
        """Make all levels equally important again."""
        nn.init.ones_(self.scores)

    @property
    def level_weights(self) -> Tensor:
        """The weight of each level `(L,)`; they add up to 1."""
        return self.scores.softmax(dim=0)

    def weights(self, levels: Sequence[Tensor]) -> Tensor:
        """The weight of each level `(L,)`."""
        return self.level_weights


class Max(Join):
    r"""The largest value of all levels in each channel, :math:`\max_l h^{(l)}`."""

    def weights(self, levels: Sequence[Tensor]) -> Tensor:
        """One for the channels in which a level is (the first) largest, else zero `(rows, L, c)`."""
        stacked = torch.stack(list(levels), dim=1)
        which = stacked.argmax(dim=1, keepdim=True)
        return torch.zeros_like(stacked).scatter_(1, which, 1.0)

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        return torch.stack(list(levels)).max(dim=0).values


class Concat(Sum):
    r"""The levels side by side, :math:`[h^{(1)}; \dots; h^{(L)}]`."""

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__(channels, num_levels)
        self.out_channels = channels * num_levels

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, L c)`."""
        return torch.cat(list(levels), dim=-1)

    def terms(self, levels: Sequence[Tensor]) -> Terms:
        """Each level in its own columns."""
        places = torch.eye(self.out_channels, dtype=levels[0].dtype, device=levels[0].device)
        return Terms(self.weights(levels), torch.split(places, self.channels, dim=1))


class Projection(Sum):
    r"""A linear map of the concatenated levels back to the width of one, :math:`\sum_{l=1}^L W_l \, h^{(l)}`.

    It has no bias: what follows, gate and head, has one that does the same.
    """

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__(channels, num_levels)
        self.linear = nn.Linear(num_levels * channels, channels, bias=False)

    def reset_parameters(self) -> None:
        """Draw the matrices anew."""
        self.linear.reset_parameters()

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`."""
        result: Tensor = self.linear(torch.cat(list(levels), dim=-1))
        return result

    def terms(self, levels: Sequence[Tensor]) -> Terms:
        """Each level by its matrix."""
        return Terms(self.weights(levels), torch.split(self.linear.weight, self.channels, dim=1))


class LSTMAttention(Join):
    """A sum whose weights are attention over the levels, scored by an LSTM along them, as PyG's `JumpingKnowledge`."""

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__(channels, num_levels)
        peer = JumpingKnowledge("lstm", channels, num_levels)
        self.lstm: nn.LSTM = peer.lstm
        self.att: nn.Linear = peer.att

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        self.lstm.reset_parameters()
        self.att.reset_parameters()

    def weights(self, levels: Sequence[Tensor]) -> Tensor:
        """The attention to each level `(rows, L)`."""
        states, _ = self.lstm(torch.stack(list(levels), dim=1))
        attention: Tensor = self.att(states).squeeze(-1).softmax(dim=-1)
        return attention


def total(levels: Sequence[Tensor]) -> Tensor:
    """The sum of some tensors, from the first to the last."""
    so_far = levels[0]
    for level in levels[1:]:
        so_far = so_far + level
    return so_far


def make_join(join: str | nn.Module, channels: int, num_levels: int) -> tuple[nn.Module, int]:
    """A join by its name in `mlap.names.JOINS`, or the user's own module, and the width of what it returns.

    A module of one's own takes the list of levels `L × (rows, channels)`; its width is its attribute
    `out_channels`, or `channels` if it has none.
    """
    if isinstance(join, str):
        if join not in JOINS:
            raise unknown("join of levels", join, JOINS, "join")
        join = JOINS[join].load()(channels, num_levels)
    assert isinstance(join, nn.Module)
    return join, int(getattr(join, "out_channels", channels))
