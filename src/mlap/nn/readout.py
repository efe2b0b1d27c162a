"""Readouts: from the node representations of all levels to one vector per graph.

The three families of the paper, arXiv:2103.01488, differ only here. Naive and jumping-knowledge networks join the
levels of each node and pool once; MLAP pools every level by its own attention and joins the levels of each graph. Any
readout works alone, on the levels of any model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from mlap.errors import UsageError, unknown
from mlap.names import ARCHITECTURES
from mlap.nn.dropout import Dropout
from mlap.nn.join import make_join
from mlap.nn.pooling import graph_of_nodes, make_pooling
from mlap.nn.relations import SparseSum

Index = Tensor | Sequence[Tensor] | None
#: a pooling for all levels, by name or as a module, or one for each
Poolings = str | Sequence[str | nn.Module]


class Reading(NamedTuple):
    """What a readout read.

    Args:
        graphs: the graphs `(B, out_channels)`.
        pooled: what was pooled, `(B, c)`: once per level for MLAP, once for naive and jumping-knowledge networks.
        weights: the weight of each node in each of those `(N,)`.
    """

    graphs: Tensor
    pooled: list[Tensor]
    weights: list[Tensor]


class MultiLevelAttentionPooling(nn.Module):
    r"""Pool every level by its own attention, then join the level-wise graph representations (MLAP).

    .. math::
        h_G^{(l)} = \sum_n \mathrm{softmax}_n \left( f_\mathrm{gate}^{(l)}(h_n^{(l)}) \right) h_n^{(l)}, \qquad
        h_G = f_\mathrm{agg} \left( h_G^{(1)}, \dots, h_G^{(L)} \right)

    Eq. (mlap-hl) of the paper and the two around it (section 3.2). It stands alone: give it the layer outputs of any
    network, PyG's or your own.

    Args:
        channels: the width of every level.
        num_levels: the number of levels L.
        aggregation: a name in `mlap.names.JOINS` (`"sum"`, `"weighted"`, `"concat"`, `"linear"`, `"max"`, `"lstm"`), or
            a module that takes the list of level-wise graph representations `L × (B, channels)` and returns
            `(B, out_channels)`.
        hidden_channels: the width of the gates; twice `channels` unless given.
        pooling: a name in `mlap.names.POOLINGS`; or a name or a module for each level.
        level_dropout: the probability that a graph lacks a level in a training step; see `thinned`.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GCNConv
        >>> _ = torch.manual_seed(0)
        >>> first, second = GCNConv(8, 16), GCNConv(16, 16)
        >>> pooling = MultiLevelAttentionPooling(16, num_levels=2)
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[0, 1, 3], [1, 2, 4]])
        >>> batch = torch.tensor([0, 0, 0, 1, 1])
        >>> levels = [h := first(x, edge_index), second(h, edge_index)]
        >>> pooling(levels, batch).shape
        torch.Size([2, 16])
        >>> graphs, attention = pooling(levels, batch, return_attention=True)
        >>> len(attention), attention[0].shape, round(attention[0][:3].sum().item(), 4)
        (2, torch.Size([5]), 1.0)
    """

    def __init__(
        self,
        channels: int,
        num_levels: int,
        aggregation: str | nn.Module = "sum",
        hidden_channels: int | None = None,
        pooling: Poolings = "attention",
        level_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check_sizes(channels, num_levels)
        self.channels = channels
        self.num_levels = num_levels
        self.level_dropout = Dropout(level_dropout)
        names = [pooling] * num_levels if isinstance(pooling, str) else pooling
        if len(names) != num_levels:
            raise UsageError(f"{{field}} names {len(names)} poolings for {num_levels} levels", "pooling", "attention")
        self.pools = nn.ModuleList(make_pooling(name, channels, hidden_channels) for name in names)
        self.join, self.out_channels = make_join(aggregation, channels, num_levels)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.pools)
        reset(self.join)

    def forward(
        self,
        levels: Sequence[Tensor],
        index: Index = None,
        ptr: Index = None,
        dim_size: int | None = None,
        return_attention: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Pool levels `L × (N, channels)` to graphs `(B, out_channels)`.

        Args:
            levels: the node representations `h[1..L]`.
            index: `(N,)`, the graph of each node; or one such tensor per level, where levels have different nodes
                (the feature maps of a convolutional network, say).
            ptr: `(B + 1,)`, where each graph's nodes begin, instead of `index` or beside it; or one per level.
            dim_size: the number of graphs B; read off the data unless given.
            return_attention: also return the weight of each node at each level, `L × (N,)`.
        """
        reading = self.read(levels, index, ptr, dim_size)
        return (reading.graphs, reading.weights) if return_attention else reading.graphs

    def read(
        self, levels: Sequence[Tensor], index: Index = None, ptr: Index = None, dim_size: int | None = None
    ) -> Reading:
        """The graphs, and what was computed on the way."""
        _check_levels(levels, self.num_levels)
        given = zip(levels, _per_level(index, len(levels)), _per_level(ptr, len(levels)), strict=True)
        places = [graph_of_nodes(*level, dim_size) for level in given]
        dim_size = max(size for _, size in places)  # a level may lack the nodes of the last graphs
        pooled, weights = [], []
        for pool, h, (nodes_graph, _) in zip(self.pools, levels, places, strict=True):
            graphs, of_nodes = pool(h, nodes_graph, None, dim_size, return_weights=True)
            pooled.append(graphs)
            weights.append(of_nodes)
        return Reading(self.join(thinned(pooled, self.level_dropout)), pooled, weights)

    def alone(self, levels: Sequence[Tensor], pooled: Sequence[Tensor], index: Tensor, dim_size: int) -> list[Tensor]:
        """For each level the graphs `(B, out_channels)` as if every level were that one, for deep supervision."""
        return [self.join([graphs] * self.num_levels) for graphs in pooled]

    def keep(self, places: Sequence[int]) -> None:
        """Forget all levels but those at some places, which a learned subset has kept."""
        assert isinstance(self.join, SparseSum)
        self.join.keep(places)
        self.pools = nn.ModuleList(self.pools[place] for place in places)
        self.num_levels = len(places)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channels}, num_levels={self.num_levels}, aggregation={self.join!r})"


class JumpReadout(nn.Module):
    r"""Join the levels of every node, then pool once (jumping knowledge; with `"last"`, a naive network).

    .. math::
        h_n^\mathrm{JK} = f_\mathrm{JK} \left( h_n^{(1)}, \dots, h_n^{(L)} \right), \qquad
        h_G = \sum_n \mathrm{softmax}_n \left( f_\mathrm{gate}(h_n^\mathrm{JK}) \right) h_n^\mathrm{JK}

    Eqs. (jk-hjk) and (jk-pool) of the paper (section 4.4, "Baseline Models").

    Args:
        channels: the width of every level.
        num_levels: the number of levels L.
        join: a name in `mlap.names.JOINS`, or a module that takes the list of levels `L × (N, channels)` and returns
            `(N, out_channels)`.
        hidden_channels: the width of the gate; twice `channels` unless given, however wide the join makes its output.
        pooling: a name in `mlap.names.POOLINGS`, or a module.
        level_dropout: the probability that a node lacks a level in a training step; see `thinned`.
    """

    def __init__(
        self,
        channels: int,
        num_levels: int,
        join: str | nn.Module = "sum",
        hidden_channels: int | None = None,
        pooling: str | nn.Module = "attention",
        level_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check_sizes(channels, num_levels)
        self.channels = channels
        self.num_levels = num_levels
        self.level_dropout = Dropout(level_dropout)
        self.join, self.out_channels = make_join(join, channels, num_levels)
        self.pools = nn.ModuleList([make_pooling(pooling, self.out_channels, hidden_channels or 2 * channels)])

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.join)
        reset(self.pools)

    def forward(
        self,
        levels: Sequence[Tensor],
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        return_attention: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Pool levels `L × (N, channels)` to graphs `(B, out_channels)`; there is one attention, for the joined nodes.

        The arguments are those of `MultiLevelAttentionPooling.forward`.
        """
        reading = self.read(levels, index, ptr, dim_size)
        return (reading.graphs, reading.weights) if return_attention else reading.graphs

    def read(
        self,
        levels: Sequence[Tensor],
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
    ) -> Reading:
        """The graphs, and what was computed on the way."""
        _check_levels(levels, self.num_levels)
        joined = self.join(thinned(levels, self.level_dropout))
        graphs, weights = self.pools[0](joined, index, ptr, dim_size, return_weights=True)
        return Reading(graphs, [graphs], [weights])

    def alone(self, levels: Sequence[Tensor], pooled: Sequence[Tensor], index: Tensor, dim_size: int) -> list[Tensor]:
        """For each level the graphs `(B, out_channels)` as if every level were that one, for deep supervision."""
        return [self.pools[0](self.join([h] * self.num_levels), index, None, dim_size) for h in levels]

    def keep(self, places: Sequence[int]) -> None:
        """Forget all levels but those at some places, which a learned subset has kept."""
        assert isinstance(self.join, SparseSum)
        self.join.keep(places)
        self.num_levels = len(places)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channels}, num_levels={self.num_levels}, join={self.join!r})"


def make_readout(
    architecture: str,
    channels: int,
    num_levels: int,
    pooling: Poolings = "attention",
    level_dropout: float = 0.0,
    price: float | None = None,
) -> MultiLevelAttentionPooling | JumpReadout:
    """The readout of a named architecture.

    Args:
        architecture: one of `mlap.names.ARCHITECTURES`.
        channels: the width of every level.
        num_levels: the number of levels L.
        pooling: see the readouts.
        level_dropout: see the readouts.
        price: makes the join of `jk-sum` or `mlap-sum` a `SparseSum` with this price for each level.
    """
    if architecture not in ARCHITECTURES:
        raise unknown("architecture", architecture, ARCHITECTURES, "architecture")
    family, _, name = architecture.partition("-")
    join: str | nn.Module = name or "last"
    if price is not None:
        if name != "sum":
            raise UsageError(f"levels are learned for jk-sum and mlap-sum, {{field}} is {architecture}", "architecture")
        join = SparseSum(channels, num_levels, price)
    if family == "mlap":
        return MultiLevelAttentionPooling(channels, num_levels, join, None, pooling, level_dropout)
    if not isinstance(pooling, str):
        raise UsageError(f"{architecture} pools once: {{field}} is one name, got {pooling}", "pooling", "attention")
    return JumpReadout(channels, num_levels, join, None, pooling, level_dropout)


def thinned(levels: Sequence[Tensor], dropout: Dropout) -> Sequence[Tensor]:
    """Levels `L × (rows, c)` of which each row lacks some, at random, while the dropout trains; the others grow."""
    if not dropout.dropped:
        return levels
    passed: Tensor = dropout(levels[0].new_ones(len(levels[0]), len(levels)))
    return [h * factor[:, None] for h, factor in zip(levels, passed.unbind(dim=1), strict=True)]


def _check_sizes(channels: int, num_levels: int) -> None:
    if channels < 1 or num_levels < 1:
        raise UsageError(f"a readout needs at least 1 channel and 1 level, got {channels} and {num_levels}")


def _check_levels(levels: Sequence[Tensor], num_levels: int) -> None:
    if len(levels) != num_levels:
        raise UsageError(f"expected {num_levels} levels, got {len(levels)}")


def _per_level(value: Index, num_levels: int) -> Sequence[Tensor | None]:
    """One value for each level: the same for all, unless a sequence is given."""
    if value is None or isinstance(value, Tensor):
        return [value] * num_levels
    if len(value) != num_levels:
        raise UsageError(f"expected one index or ptr for each of {num_levels} levels, got {len(value)}")
    return value
