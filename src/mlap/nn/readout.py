"""Readouts: from the node representations of all levels to one vector per graph.

The three families of the paper differ only here. Naive and jumping-knowledge networks join the levels of each node and
pool once; MLAP pools every level by its own attention and joins the levels of each graph. Any readout works alone, on
the levels of any model.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from mlap.errors import UsageError, unknown
from mlap.names import ARCHITECTURES
from mlap.nn.join import make_join
from mlap.nn.pooling import AttentionPooling, graph_of_nodes

Index = Tensor | Sequence[Tensor] | None


class MultiLevelAttentionPooling(nn.Module):
    r"""Pool every level by its own attention, then join the level-wise graph representations (MLAP).

    .. math::
        h_G^{(l)} = \sum_n \mathrm{softmax}_n \left( f_\mathrm{gate}^{(l)}(h_n^{(l)}) \right) h_n^{(l)}, \qquad
        h_G = f_\mathrm{agg} \left( h_G^{(1)}, \dots, h_G^{(L)} \right)

    It stands alone: give it the layer outputs of any network, PyG's or your own.

    Args:
        channels: the width of every level.
        num_levels: the number of levels L.
        aggregation: `"sum"`, `"weighted"`, `"concat"`, `"linear"`, `"max"`, `"lstm"`, or a module that takes the
            list of level-wise graph representations `L × (B, channels)` and returns `(B, out_channels)`.
        hidden_channels: the width of the gates; twice `channels` unless given.

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
    ) -> None:
        super().__init__()
        _check_sizes(channels, num_levels)
        self.channels = channels
        self.num_levels = num_levels
        self.pools = nn.ModuleList(AttentionPooling(channels, hidden_channels) for _ in range(num_levels))
        self.aggregation, self.out_channels = make_join(aggregation, channels, num_levels)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.pools)
        reset(self.aggregation)

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
            ptr: `(B + 1,)`, where each graph's nodes begin, instead of `index` or, for speed, beside it; or one per
                level.
            dim_size: the number of graphs B; read off the data unless given.
            return_attention: also return the attention of each node at each level, `L × (N,)`.
        """
        pooled, attention = self.pool(levels, index, ptr, dim_size)
        graphs = self.unify(pooled)
        return (graphs, attention) if return_attention else graphs

    def pool(
        self, levels: Sequence[Tensor], index: Index = None, ptr: Index = None, dim_size: int | None = None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The level-wise graph representations `L × (B, channels)` and the attention `L × (N,)`."""
        _check_levels(levels, self.num_levels)
        pointers = _per_level(ptr, len(levels))
        given = zip(levels, _per_level(index, len(levels)), pointers, strict=True)
        places = [graph_of_nodes(*level, dim_size) for level in given]
        dim_size = max(size for _, size in places)  # a level may lack the nodes of the last graphs
        pooled, attention = [], []
        for pooling, h, (nodes_graph, _), pointer in zip(self.pools, levels, places, pointers, strict=True):
            assert isinstance(pooling, AttentionPooling)
            graphs, weights = pooling.pool(h, nodes_graph, dim_size, pointer)
            pooled.append(graphs)
            attention.append(weights)
        return pooled, attention

    def unify(self, pooled: Sequence[Tensor]) -> Tensor:
        """Join the level-wise graph representations `L × (B, channels)` to `(B, out_channels)`."""
        graphs: Tensor = self.aggregation(pooled)
        return graphs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channels}, num_levels={self.num_levels}, aggregation={self.aggregation!r})"


class JumpReadout(nn.Module):
    r"""Join the levels of every node, then pool once (jumping knowledge; with `"last"`, a naive network).

    .. math::
        h_n^\mathrm{JK} = f_\mathrm{JK} \left( h_n^{(1)}, \dots, h_n^{(L)} \right), \qquad
        h_G = \sum_n \mathrm{softmax}_n \left( f_\mathrm{gate}(h_n^\mathrm{JK}) \right) h_n^\mathrm{JK}

    Args:
        channels: the width of every level.
        num_levels: the number of levels L.
        jump: `"last"`, `"sum"`, `"weighted"`, `"concat"`, `"linear"`, `"max"`, `"lstm"`, or a module that takes the
            list of levels `L × (N, channels)` and returns `(N, out_channels)`.
        hidden_channels: the width of the gate; twice `channels` unless given, however wide the jump makes its output.
    """

    def __init__(
        self, channels: int, num_levels: int, jump: str | nn.Module = "sum", hidden_channels: int | None = None
    ) -> None:
        super().__init__()
        _check_sizes(channels, num_levels)
        self.channels = channels
        self.num_levels = num_levels
        self.jump, self.out_channels = make_join(jump, channels, num_levels)
        self.attention_pool = AttentionPooling(self.out_channels, hidden_channels or 2 * channels)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.jump)
        reset(self.attention_pool)

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
        pooled, attention = self.pool(levels, index, ptr, dim_size)
        graphs = self.unify(pooled)
        return (graphs, attention) if return_attention else graphs

    def pool(
        self,
        levels: Sequence[Tensor],
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The one graph representation `(B, out_channels)` and its attention `(N,)`, each in a list."""
        _check_levels(levels, self.num_levels)
        h = self.jump(levels)
        graphs, weights = self.attention_pool.pool(h, *graph_of_nodes(h, index, ptr, dim_size), ptr)
        return [graphs], [weights]

    def unify(self, pooled: Sequence[Tensor]) -> Tensor:
        """The one graph representation."""
        return pooled[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channels}, num_levels={self.num_levels}, jump={self.jump!r})"


def make_readout(architecture: str, channels: int, num_levels: int) -> MultiLevelAttentionPooling | JumpReadout:
    """The readout of a named architecture."""
    if architecture not in ARCHITECTURES:
        raise unknown("architecture", architecture, ARCHITECTURES)
    family, _, join = architecture.partition("-")
    if family == "mlap":
        return MultiLevelAttentionPooling(channels, num_levels, join)
    return JumpReadout(channels, num_levels, join or "last")


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
