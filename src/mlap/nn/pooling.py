r"""Poolings: from the nodes of each graph to one vector.

The paper's is `AttentionPooling` (section 3.2 of arXiv:2103.01488, Eq. mlap-hl). All but `MaxPooling` are weighted sums
of nodes, :math:`h_G = \sum_n a_n h_n`, and differ in the weights. So what a node adds to a graph is known exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset
from torch_geometric.utils import scatter, softmax

from mlap.errors import unknown
from mlap.names import POOLINGS
from mlap.nn.mlp import TwoLayers


class Pooling(nn.Module, ABC):
    r"""Pool the nodes of each graph by a weighted sum, :math:`h_G = \sum_n a_n h_n`.

    A pooling of one's own says what the weights are. A graph without nodes pools to zeros.

    Args:
        in_channels: the width of what is pooled.
        hidden_channels: the width of the network that computes weights, where there is one; twice `in_channels`
            unless given.
    """

    #: whether the result is the sum of the nodes, times `weights`
    is_weighted_sum: ClassVar[bool] = True

    def __init__(self, in_channels: int, hidden_channels: int | None = None) -> None:
        super().__init__()
        self.in_channels = self.out_channels = in_channels
        self.hidden_channels = hidden_channels or 2 * in_channels

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for part in self.children():
            reset(part)

    @abstractmethod
    def weights(self, x: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """The weight of each node `(N,)`, for nodes `x` `(N, in_channels)` of the graphs `index` `(N,)`."""

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Pool nodes `x` `(N, in_channels)` to graphs `(B, in_channels)`.

        Args:
            x: the nodes.
            index: `(N,)`, the graph of each node, in any order; all nodes are one graph if neither it nor `ptr` is
                given.
            ptr: `(B + 1,)`, where each graph's nodes begin; an alternative to `index` if nodes are sorted by graph.
            dim_size: the number of graphs B; read off the data unless given.
            return_weights: also return the weight of each node `(N,)`.
        """
        index, dim_size = graph_of_nodes(x, index, ptr, dim_size)
        weights = self.weights(x, index, dim_size)
        graphs = self.pool(x, weights, index, dim_size)
        return (graphs, weights) if return_weights else graphs

    def pool(self, x: Tensor, weights: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """The pooled graphs `(B, in_channels)`."""
        pooled: Tensor = scatter(weights.unsqueeze(-1) * x, index, 0, dim_size)
        return pooled

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels})"


class AttentionPooling(Pooling):
    r"""Pool by softmax attention, Eq. (mlap-hl) of the paper (section 3.2).

    .. math::
        h_G = \sum_n a_n h_n, \qquad a_n = \mathrm{softmax}_n \left( f_\mathrm{gate}(h_n) \right)

    The softmax runs over the nodes of one graph and subtracts that graph's largest score. A graph without nodes
    pools to zeros, a graph of one node to that node.

    Args:
        in_channels: the width of what is pooled.
        hidden_channels: the width of the gate, Linear – ReLU – Linear; twice `in_channels` unless given.
    """

    def __init__(self, in_channels: int, hidden_channels: int | None = None) -> None:
        super().__init__(in_channels, hidden_channels)
        self.gate: nn.Module = TwoLayers(in_channels, self.hidden_channels, 1)

    def weights(self, x: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """The attention of each node `(N,)`; it adds up to 1 in each graph."""
        attention: Tensor = softmax(self.gate(x), index, num_nodes=dim_size).squeeze(-1)
        return attention


class AttentionSumPooling(AttentionPooling):
    r"""Attention times the number of nodes. It can count nodes, as a mean cannot; even attention makes it their sum.

    .. math::
        h_G = N_G \sum_n a_n h_n, \qquad a_n = \mathrm{softmax}_n \left( f_\mathrm{gate}(h_n) \right)

    Args:
        in_channels: the width of what is pooled.
        hidden_channels: the width of the gate, Linear – ReLU – Linear; twice `in_channels` unless given.
    """

    def weights(self, x: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """The attention of each node, times the nodes of its graph `(N,)`; it adds up to their number."""
        return super().weights(x, index, dim_size) * sizes(x, index, dim_size).index_select(0, index)


class GatedSumPooling(Pooling):
    r"""The sum of the nodes that a gate lets through. It can count nodes, as attention, which is a mean, cannot.

    .. math::
        h_G = \sum_n \sigma \left( f_\mathrm{gate}(h_n) \right) h_n

    Args:
        in_channels: the width of what is pooled.
        hidden_channels: the width of the gate, Linear – ReLU – Linear; twice `in_channels` unless given.
    """

    def __init__(self, in_channels: int, hidden_channels: int | None = None) -> None:
        super().__init__(in_channels, hidden_channels)
        self.gate: nn.Module = TwoLayers(in_channels, self.hidden_channels, 1)

    def weights(self, x: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """The gate of each node `(N,)`, between 0 and 1."""
        opened: Tensor = self.gate(x).squeeze(-1).sigmoid()
        return opened


class SumPooling(Pooling):
    r"""The sum of the nodes, :math:`h_G = \sum_n h_n`."""

    def weights(self, x: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """Ones `(N,)`."""
        return x.new_ones(x.size(0))


class MeanPooling(Pooling):
    r"""The mean of the nodes, :math:`h_G = \frac{1}{N_G} \sum_n h_n`."""

    def weights(self, x: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """One over the number of nodes of its graph, for each node `(N,)`."""
        return 1 / sizes(x, index, dim_size).index_select(0, index)


class MaxPooling(Pooling):
    r"""The largest value in each channel, :math:`h_G = \max_n h_n`; no weighted sum, so without exact shares."""

    is_weighted_sum = False

    def weights(self, x: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """In which part of the channels each node is (among) the largest `(N,)`; it says where the result is from."""
        largest = self.pool(x, x, index, dim_size).index_select(0, index)
        return (x == largest).to(x.dtype).mean(dim=-1).detach()

    def pool(self, x: Tensor, weights: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """The pooled graphs `(B, in_channels)`."""
        pooled: Tensor = scatter(x, index, 0, dim_size, reduce="max")
        return pooled


def sizes(x: Tensor, index: Tensor, dim_size: int) -> Tensor:
    """The number of nodes of each graph `(B,)`, in the type of `x`."""
    counted: Tensor = scatter(x.new_ones(x.size(0)), index, 0, dim_size)
    return counted


def make_pooling(pooling: str | nn.Module, in_channels: int, hidden_channels: int | None = None) -> nn.Module:
    """A pooling by its name in `mlap.names.POOLINGS`, or the user's own module."""
    if isinstance(pooling, nn.Module):
        return pooling
    if pooling not in POOLINGS:
        raise unknown("pooling", pooling, POOLINGS, "pooling")
    made: nn.Module = POOLINGS[pooling].load()(in_channels, hidden_channels)
    return made


def graph_of_nodes(x: Tensor, index: Tensor | None, ptr: Tensor | None, dim_size: int | None) -> tuple[Tensor, int]:
    """PyG's three ways to say which graph a node belongs to, as an index and the number of graphs."""
    if index is None and ptr is not None:
        sizes = ptr.diff()
        index = torch.arange(len(sizes), device=x.device).repeat_interleave(sizes, output_size=len(x))
    elif index is None:
        index, dim_size = x.new_zeros(len(x), dtype=torch.long), 1 if dim_size is None else dim_size
    if dim_size is None and ptr is not None:
        dim_size = len(ptr) - 1
    elif dim_size is None:
        dim_size = int(index.max()) + 1 if len(index) else 0
    return index.long(), dim_size
