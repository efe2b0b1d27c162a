"""The backbone: message-passing layers one after the other, whose outputs are the levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch_geometric.nn import BatchNorm, GraphNorm, LayerNorm, PairNorm
from torch_geometric.nn.inits import reset

from mlap import kernels
from mlap.errors import UsageError, unknown
from mlap.nn.convs import CONVS, Arcs, GINLayer
from mlap.nn.dropout import Dropout
from mlap.nn.encoders import Describes, make_encoder

#: name → a function of the number of channels that makes the module
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda channels: nn.Identity(),
    "graph": lambda channels: GraphNorm(channels, eps=1e-6),
    "batch": lambda channels: BatchNorm(channels, allow_single_element=True),
    "layer": lambda channels: LayerNorm(channels, mode="node"),
    "pair": lambda channels: PairNorm(),
}


class Backbone(nn.Module):
    r"""Turn node representations into levels :math:`h^{(1)}, \dots, h^{(L)}`, one per message-passing layer.

    A layer is: message passing → normalisation → ReLU, except in the last layer → dropout → residual connection, if
    any. Its output is the level that readouts see, and the input of the next layer.

    Args:
        convs: the L message-passing layers, each called as `conv(h, edge_index, edge_attr)`.
        channels: the width of every level.
        norm: a key of `NORMS`; `"graph"` is the paper's GraphNorm (+), `"none"` its GraphNorm (−).
        dropout: the probability of dropout after every layer.
        residual: whether a layer adds its input to its output.
    """

    def __init__(
        self,
        convs: Sequence[nn.Module],
        channels: int,
        norm: str = "none",
        dropout: float = 0.5,
        residual: bool = False,
    ) -> None:
        super().__init__()
        if not convs:
            raise UsageError("a backbone needs at least one layer, got 0")
        if norm not in NORMS:
            raise unknown("normalisation", norm, NORMS)
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(NORMS[norm](channels) for _ in convs)
        self.norm_per_graph = norm in ("graph", "pair")
        self.dropout = Dropout(dropout)
        self.residual = residual

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.convs)
        reset(self.norms)

    def forward(
        self,
        h: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None,
        index: Tensor,
        dim_size: int,
        ptr: Tensor | None = None,
        kind: Tensor | None = None,
    ) -> list[Tensor]:
        """The levels `L × (N, channels)`.

        Args:
            h: the encoded nodes `(N, channels)`, level 0.
            edge_index: `(2, arcs)`.
            edge_attr: the arcs' features, or `None`.
            index: `(N,)`, the graph of each node.
            dim_size: the number of graphs.
            ptr: `(dim_size + 1,)`, where each graph's nodes begin, if they are sorted by graph; for speed.
            kind: `(N,)`, which rows of `h` are alike, if it is known; for speed.
        """
        levels: list[Tensor] = []
        arcs = Arcs(edge_index, edge_attr, len(h))
        for conv, norm in zip(self.convs, self.norms, strict=True):
            below = h
            relu = len(levels) < len(self.convs) - 1
            if isinstance(conv, GINLayer):
                alike = conv.alike(kind, arcs) if kind is not None and kernels.on_host(h) else None
                h = conv(h, edge_index, edge_attr, arcs, alike)
                kind = None if alike is None else self._kind_above(alike.of_node, index, dim_size)
            else:
                h = conv(h, edge_index, edge_attr)
            h = self._finish(h, norm, relu, index, dim_size, ptr)
            if self.residual:
                h = h + below
            levels.append(h)
        return levels

    def _kind_above(self, environment: Tensor, index: Tensor, dim_size: int) -> Tensor | None:
        """Which nodes are alike in the output of a layer, given those that are before normalisation and dropout.

        Not if gradients are wanted: those of alike nodes would all be given to one of them.
        """
        if self.dropout.dropped or torch.is_grad_enabled():
            return None
        return environment * dim_size + index if self.norm_per_graph else environment

    def _finish(
        self, h: Tensor, norm: nn.Module, relu: bool, index: Tensor, dim_size: int, ptr: Tensor | None
    ) -> Tensor:
        """What follows message passing: normalisation, ReLU if wanted, dropout."""
        fast = kernels.usable(h)
        if fast and isinstance(norm, GraphNorm) and ptr is not None:
            from mlap.kernels import functions

            learned = norm.weight, norm.bias, norm.mean_scale
            return functions.normalise(h, ptr, *learned, norm.eps, relu, *self.dropout.draw())
        h = norm(h, index, dim_size) if self.norm_per_graph else norm(h)
        if fast and (relu or self.dropout.training):
            from mlap.kernels import functions

            return functions.activate(h, relu, *self.dropout.draw())
        finished: Tensor = self.dropout(h.relu() if relu else h)
        return finished


def make_backbone(
    backbone: str,
    channels: int,
    num_layers: int,
    edges: Describes = None,
    norm: str = "none",
    dropout: float = 0.5,
    residual: bool = False,
) -> Backbone:
    """A backbone of `num_layers` layers of a named kind, each with an edge encoder of its own."""
    if backbone not in CONVS:
        raise unknown("backbone", backbone, CONVS)
    convs = [CONVS[backbone](channels, make_encoder(edges, channels)) for _ in range(num_layers)]
    return Backbone(convs, channels, norm, dropout, residual)
