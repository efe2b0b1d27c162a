r"""Joins that model relations among the levels: from all levels of a row they decide how much each of them counts.

Section 6 of the paper, arXiv:2103.01488, leaves such joins to future work. They decide weights and never rewrite
values, :math:`h = \sum_l w_l(h^{(1)}, \dots, h^{(L)}) \, h^{(l)}`, so that shares stay exact. At the start all weights
are exactly 1 and the join is the sum (Eq. mlap-sum): what is learned beyond it is the relation. What decides sees the
levels without their mean and scale over the channels, as levels of a deep network can differ in scale by orders of
magnitude.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn.inits import reset

from mlap.nn.join import Join, total


class RelationalJoin(Join):
    """A weighted sum whose weights `(rows, L)` come from all levels of a row, and are 1 at the start.

    Args:
        channels: the width of every level.
        num_levels: the number of levels L.
    """

    score: nn.Linear  # the last layer, which gives the scores

    @abstractmethod
    def scores(self, tokens: Tensor) -> Tensor:
        """The score of each level `(rows, L)`, from standardised levels `(rows, L, c)`; zeros at the start."""

    def weights(self, levels: Sequence[Tensor]) -> Tensor:
        """The weight of each level `(rows, L)`."""
        return self.weigh(self.scores(F.layer_norm(torch.stack(list(levels), dim=1), (self.channels,))))

    def weigh(self, scores: Tensor) -> Tensor:
        """The weights for scores `(rows, L)`: L times their softmax, so 1 on average."""
        powers = (scores - scores.amax(dim=1, keepdim=True)).exp()
        return powers / powers.mean(dim=1, keepdim=True)  # exactly 1 where all scores are equal

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Join levels `L × (rows, c)` to `(rows, c)`, in the order of `Sum`: at the start both are the same bits."""
        weights = self.weights(levels)
        return total([weight[:, None] * h for weight, h in zip(weights.unbind(dim=1), levels, strict=True)])

    def reset_parameters(self) -> None:
        """Draw all parameters anew; the weights are 1 again."""
        for part in self.children():
            reset(part)
        self._forget()

    def _forget(self) -> None:
        """Make all scores zero."""
        for parameter in self.score.parameters():
            nn.init.zeros_(parameter)


class LevelGate(RelationalJoin):
    r"""Squeeze-and-excitation over levels (Hu et al., 2018, arXiv:1709.01507): each level has a gate of its own.

    .. math::
        w = 2 \, \sigma \left( W_2 \, \mathrm{ReLU} \left( W_1 [h^{(1)}; \dots; h^{(L)}] + b_1 \right) + b_2 \right)

    Unlike the other joins here it can turn all levels up or down at once.
    """

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__(channels, num_levels)
        hidden_channels = max(4, channels // 4)
        self.squeeze = nn.Linear(num_levels * channels, hidden_channels)
        self.score = nn.Linear(hidden_channels, num_levels)
        self._forget()

    def scores(self, tokens: Tensor) -> Tensor:
        """The score of each level `(rows, L)`."""
        scores: Tensor = self.score(self.squeeze(tokens.flatten(1)).relu())
        return scores

    def weigh(self, scores: Tensor) -> Tensor:
        """The weights for scores `(rows, L)`, from 0 to 2."""
        return 2 * scores.sigmoid()


class LevelAttention(RelationalJoin):
    r"""One self-attention block over the level tokens scores the levels.

    .. math::
        t_l = h^{(l)} + e_l, \qquad
        s_l = v \cdot \left( t_l + \sum_k \mathrm{softmax}_k \left( \frac{Q t_l \cdot K t_k}{\sqrt{c}} \right) V t_k
            \right) + b, \qquad w = L \, \mathrm{softmax}(s)

    :math:`e_l` is a trained embedding of the level's number.
    """

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__(channels, num_levels)
        self.embedding = nn.Embedding(num_levels, channels)
        self.query = nn.Linear(channels, channels)
        self.key = nn.Linear(channels, channels)
        self.value = nn.Linear(channels, channels)
        self.score = nn.Linear(channels, 1)
        self._forget()

    def scores(self, tokens: Tensor) -> Tensor:
        """The score of each level `(rows, L)`."""
        tokens = tokens + self.embedding.weight
        query, key, value = self.query(tokens), self.key(tokens), self.value(tokens)
        attention = (query @ key.transpose(1, 2) / math.sqrt(self.channels)).softmax(dim=-1)  # (rows, L, L)
        scores: Tensor = self.score(tokens + attention @ value).squeeze(-1)
        return scores


class LevelGRU(RelationalJoin):
    """A bidirectional GRU along the levels scores them; the weights are L times the softmax of the scores."""

    def __init__(self, channels: int, num_levels: int) -> None:
        super().__init__(channels, num_levels)
        hidden_channels = max(1, channels // 2)
        self.gru = nn.GRU(channels, hidden_channels, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * hidden_channels, 1)
        self._forget()

    def scores(self, tokens: Tensor) -> Tensor:
        """The score of each level `(rows, L)`."""
        states, _ = self.gru(tokens)
        scores: Tensor = self.score(states).squeeze(-1)
        return scores


class SparseSum(Join):
    r"""A sum of those levels that training found worth their cost: hard-concrete gates (arXiv:1712.01312).

    .. math::
        w_l = \mathrm{clip} \left( (\zeta - \gamma) \, \sigma \left( \tfrac{1}{\beta}
            (\log \tfrac{u}{1 - u} + \log \alpha_l) \right) + \gamma, 0, 1 \right), \qquad u \sim U(0, 1)

    in training, drawn for each row; in evaluation :math:`w_l = \mathrm{clip}((\zeta - \gamma) \sigma(\log \alpha_l) +
    \gamma, 0, 1)`, which is exactly 0 for a level that is not kept and, at the start, exactly 1 for all.

    Args:
        channels: the width of every level.
        num_levels: the number of levels L.
        price: what the loss grows by for each level that is expected to be kept.
    """

    BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1  # as in section 4 of arXiv:1712.01312
    #: log α per unit of the parameter. Adam moves a parameter by about the learning rate in a step, and log α has to
    #: fall by 5 until its level is gone: without this, few trainings would be long enough.
    RATE = 10
    START = 0.25

    def __init__(self, channels: int, num_levels: int, price: float = 0.0) -> None:
        super().__init__(channels, num_levels)
        self.price = price
        self.scores = nn.Parameter(torch.full((num_levels,), self.START))

    def reset_parameters(self) -> None:
        """Keep all levels again."""
        nn.init.constant_(self.scores, self.START)

    def weights(self, levels: Sequence[Tensor]) -> Tensor:
        """The weight of each level: `(rows, L)` in training, `(L,)` in evaluation."""
        if not self.training:
            return self.level_weights
        drawn = torch.rand(len(levels[0]), self.num_levels, dtype=levels[0].dtype, device=levels[0].device)
        noise = drawn.clamp(1e-6, 1 - 1e-6).logit()
        return self._clipped((noise + self.RATE * self.scores) / self.BETA)

    @property
    def level_weights(self) -> Tensor:
        """The weight of each level in evaluation `(L,)`."""
        return self._clipped(self.RATE * self.scores)

    def _clipped(self, scores: Tensor) -> Tensor:
        return (scores.sigmoid() * (self.ZETA - self.GAMMA) + self.GAMMA).clamp(0, 1)

    @property
    def penalty(self) -> Tensor:
        """The price times the number of levels that are expected to be kept."""
        shift = self.BETA * math.log(-self.GAMMA / self.ZETA)
        return self.price * (self.RATE * self.scores - shift).sigmoid().sum()

    @property
    def kept(self) -> list[int]:
        """The positions of the levels that are kept; the likeliest one, should none be."""
        weights = self.level_weights
        return [place for place, weight in enumerate(weights.tolist()) if weight] or [int(self.scores.argmax())]

    def keep(self, places: Sequence[int]) -> None:
        """Forget all other levels."""
        self.scores = nn.Parameter(self.scores.detach()[list(places)].clone())
        self.num_levels = len(places)
