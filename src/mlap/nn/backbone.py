"""The backbone: message-passing layers one after the other, whose outputs are the levels.

Section 3.1 of the paper, arXiv:2103.01488 (Neural Networks 145, 2022), and "Model Configurations" in its section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch_geometric.nn import BatchNorm, GraphNorm, LayerNorm, PairNorm
from torch_geometric.nn.inits import reset
from torch_geometric.utils import scatter

from mlap.errors import UsageError, unknown
from mlap.nn.convs import make_conv
from mlap.nn.dropout import Dropout
from mlap.nn.encoders import FeatureSizes

#: name → a function of the number of channels that makes the module
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda channels: nn.Identity(),
    "graph": lambda channels: GraphNorm(channels, eps=1e-6),
    "batch": lambda channels: BatchNorm(channels, allow_single_element=True),
    "layer": lambda channels: LayerNorm(channels, mode="node"),
    "pair": lambda channels: PairNorm(),
}


class VirtualNode(nn.Module):
    r"""A node that hears and tells all nodes of its graph, as in OGB's reference code.

    .. math::
        h_n \leftarrow h_n + v_G \;\text{before layer } l, \qquad
        v_G \leftarrow \mathrm{dropout} \left( f^{(l)} \left( v_G + \sum_n h_n \right) \right) \;\text{after it},
            \quad l < L

    :math:`v_G` is a trainable vector at first, initially zero; :math:`f^{(l)}` is twice Linear – BatchNorm – ReLU.

    Args:
        channels: the width of the node representations.
        num_layers: the number of layers L that it goes with.
    """

    def __init__(self, channels: int, num_layers: int) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(1, channels))
        self.updates = nn.ModuleList(
            nn.Sequential(
                *(nn.Linear(channels, 2 * channels), BatchNorm(2 * channels, allow_single_element=True), nn.ReLU()),
                *(nn.Linear(2 * channels, channels), BatchNorm(channels, allow_single_element=True), nn.ReLU()),
            )
            for _ in range(num_layers - 1)
        )

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        nn.init.zeros_(self.start)
        for update in self.updates:
            reset(update)

    def forward(self, layer: int, v: Tensor, h: Tensor, index: Tensor) -> Tensor:
        """The virtual nodes `(B, channels)` after a layer, counted from 0, that saw nodes `h` `(N, channels)`."""
        updated: Tensor = self.updates[layer](v + scatter(h, index, 0, v.size(0)))
        return updated


class Backbone(nn.Module):
    r"""Turn node representations into levels :math:`h^{(1)}, \dots, h^{(L)}`, one per message-passing layer.

    A layer is: message passing (Eqs. gnn-msg and gnn-upd) → normalisation → ReLU, except in the last layer → dropout →
    residual connection, if any. Its output is the level that readouts see, and the input of the next layer.

    Args:
        convs: the L message-passing layers, each called as `conv(h, edge_index, edge_attr)`.
        channels: the width of every level.
        norm: a key of `NORMS`; `"graph"` is the paper's GraphNorm (+), `"none"` its GraphNorm (−).
        dropout: the probability of dropout after every layer.
        residual: whether a layer adds its input to its output.
        input_level: whether the encoded nodes are a level too, the one before those of the layers.
        virtual_node: whether each graph has a `VirtualNode`.
    """

    def __init__(
        self,
        convs: Sequence[nn.Module],
        channels: int,
        norm: str = "none",
        dropout: float = 0.5,
        residual: bool = False,
        input_level: bool = False,
        virtual_node: bool = False,
    ) -> None:
        super().__init__()
        if not convs:
            raise UsageError("a backbone needs at least one layer, got 0")
        if norm not in NORMS:
            raise unknown("normalisation", norm, NORMS, "norm")
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(NORMS[norm](channels) for _ in convs)
        self.norm_per_graph = norm in ("graph", "pair")
        self.activations = nn.ModuleList([nn.ReLU() for _ in convs[1:]] + [nn.Identity()])
        self.dropout = Dropout(dropout)
        self.residual = residual
        self.input_level = input_level
        self.virtual_node = VirtualNode(channels, len(convs)) if virtual_node else None

    @property
    def num_levels(self) -> int:
        """The number of levels: one per layer, and one more with `input_level`."""
        return len(self.convs) + self.input_level

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for part in (self.convs, self.norms, self.virtual_node):
            reset(part)

    def forward(
        self, h: Tensor, edge_index: Tensor, edge_attr: Tensor | None, index: Tensor, dim_size: int
    ) -> list[Tensor]:
        """The levels `L × (N, channels)`.

        Args:
            h: the encoded nodes `(N, channels)`, level 0.
            edge_index: `(2, arcs)`.
            edge_attr: the arcs' features, or `None`.
            index: `(N,)`, the graph of each node.
            dim_size: the number of graphs.
        """
        levels = [h] if self.input_level else []
        v = None if self.virtual_node is None else self.virtual_node.start.expand(dim_size, -1)
        parts = zip(self.convs, self.norms, self.activations, strict=True)
        for layer, (conv, norm, activation) in enumerate(parts):
            below = h if v is None else h + v.index_select(0, index)
            h = conv(below, edge_index, edge_attr)
            h = norm(h, index, dim_size) if self.norm_per_graph else norm(h)
            h = self.dropout(activation(h))
            if self.residual:
                h = h + below
            levels.append(h)
            v = self.updated(v, layer, below, index)
        return levels

    def keep(self, num_levels: int) -> None:
        """Forget the layers above the first so many levels; those levels stay what they are."""
        for part in (self.convs, self.norms, self.activations):
            del part[num_levels - self.input_level :]

    def updated(self, v: Tensor | None, layer: int, h: Tensor, index: Tensor) -> Tensor | None:
        """The virtual nodes, if any, after a layer that saw nodes `h`."""
        if self.virtual_node is None or v is None or layer == len(self.convs) - 1:
            return v
        after: Tensor = self.dropout(self.virtual_node(layer, v, h, index))
        return after + v if self.residual else after


def make_backbone(
    backbone: str,
    channels: int,
    num_layers: int,
    edges: FeatureSizes = None,
    norm: str = "none",
    dropout: float = 0.5,
    residual: bool = False,
    *,
    inner_norm: str = "none",
    input_level: bool = False,
    virtual_node: bool = False,
) -> Backbone:
    """A backbone of `num_layers` layers of a named kind, each with an edge encoder of its own."""
    convs = [make_conv(backbone, channels, edges, inner_norm) for _ in range(num_layers)]
    return Backbone(convs, channels, norm, dropout, residual, input_level, virtual_node)
