"""Attention pooling: a weighted mean of a graph's nodes, with weights that the network chooses."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset
from torch_geometric.utils import scatter, softmax

from mlap import kernels
from mlap.nn.mlp import TwoLayers


class AttentionPooling(nn.Module):
    r"""Pool the nodes of each graph by softmax attention.

    .. math::
        h_G = \sum_n a_n h_n, \qquad a_n = \mathrm{softmax}_n \left( f_\mathrm{gate}(h_n) \right)

    The softmax runs over the nodes of one graph and subtracts that graph's largest score. A graph without nodes
    pools to zeros, a graph of one node to that node.

    Args:
        in_channels: the width of what is pooled.
        hidden_channels: the width of the gate, Linear – ReLU – Linear; twice `in_channels` unless given.
    """

    def __init__(self, in_channels: int, hidden_channels: int | None = None) -> None:
        super().__init__()
        self.in_channels = self.out_channels = in_channels
        hidden_channels = hidden_channels or 2 * in_channels
        self.gate: nn.Module = TwoLayers(in_channels, hidden_channels, 1)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.gate)

    def forward(
        self, x: Tensor, index: Tensor | None = None, ptr: Tensor | None = None, dim_size: int | None = None
    ) -> Tensor:
        """Pool nodes `x` `(N, in_channels)` to graphs `(B, in_channels)`.

        Args:
            x: the nodes.
            index: `(N,)`, the graph of each node, in any order; all nodes are one graph if neither it nor `ptr` is
                given.
            ptr: `(B + 1,)`, where each graph's nodes begin; an alternative to `index` if nodes are sorted by graph.
            dim_size: the number of graphs B; read off the data unless given.
        """
        index, dim_size = graph_of_nodes(x, index, ptr, dim_size)
        return self.pool(x, index, dim_size, ptr)[0]

    def pool(self, x: Tensor, index: Tensor, dim_size: int, ptr: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The pooled graphs `(B, in_channels)` and the attention of each node `(N,)`.

        `ptr` says the same as `index`; where it is given, too, nodes are known to be sorted by graph.
        """
        gate = self.gate
        weights = gate.weights if kernels.may_replace(gate, TwoLayers) else ()
        if ptr is not None and len(ptr) == dim_size + 1 and weights and kernels.usable(x, *weights):
            from mlap.kernels import functions

            return functions.attend(x, ptr, *weights)
        attention: Tensor = softmax(self.gate(x), index, num_nodes=dim_size)
        return scatter(attention * x, index, 0, dim_size), attention.squeeze(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels})"


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
    return index, dim_size
