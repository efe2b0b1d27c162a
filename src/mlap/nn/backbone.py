"""The backbone: message-passing layers one after the other, whose outputs are the levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch_geometric.nn import BatchNorm, GraphNorm, LayerNorm, PairNorm
from torch_geometric.nn.inits import reset

from mlap import kernels
from mlap.errors import UsageError, unknown
from mlap.nn.convs import CONVS, Arcs, GINLayer
from mlap.nn.dropout import Dropout
from mlap.nn.encoders import Describes, make_encoder
from mlap.nn.environments import Environments

if TYPE_CHECKING:
    from mlap.kernels.functions import Finish, GinLayer

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
        arcs = Arcs(edge_index, edge_attr, len(h))
        alike = self._alike(kind if kernels.on_host(h) else None, arcs, index, dim_size)
        levels: list[Tensor] = []
        for number, conv in enumerate(self.convs):
            below = h
            layer = self._for_kernels(number, h, arcs, alike[number], ptr)
            if layer is not None:
                from mlap.kernels import functions

                h = functions.gin_layer(h, layer, arcs.sorted, ptr)
            else:
                more = (arcs, alike[number]) if isinstance(conv, GINLayer) else ()
                h = self._finish(conv(h, edge_index, edge_attr, *more), number, index, dim_size, ptr)
            if self.residual:
                h = h + below
            levels.append(h)
        return levels

    def _alike(self, kind: Tensor | None, arcs: Arcs, index: Tensor, dim_size: int) -> list[Environments | None]:
        """For each layer, which nodes are alike in its output before normalisation and dropout, if it is known.

        Above the first layer it is as long as nothing random happens, and unless gradients are wanted: those of alike
        nodes would all be given to one of them.
        """
        found: list[Environments | None] = []
        for conv in self.convs:
            here = conv.alike(kind, arcs) if kind is not None and isinstance(conv, GINLayer) else None
            found.append(here)
            if here is None or self.dropout.dropped or torch.is_grad_enabled():
                kind = None
            else:
                kind = here.of_node * dim_size + index if self.norm_per_graph else here.of_node
        return found

    def _for_kernels(
        self, number: int, h: Tensor, arcs: Arcs, alike: Environments | None, ptr: Tensor | None
    ) -> GinLayer | None:
        """A layer with what follows it as the kernels take it; `None` where they cannot compute it."""
        conv, norm = self.convs[number], self.norms[number]
        known = kernels.may_replace(norm, nn.Identity) or (ptr is not None and kernels.may_replace(norm, GraphNorm))
        layer = conv.for_kernels(h, arcs, alike) if known and kernels.may_replace(conv, GINLayer) else None
        return None if layer is None else layer._replace(finish=self._following(number))

    def _following(self, number: int, normalise: bool = True) -> Finish:
        """What follows a layer as the kernels take it, GraphNorm among it if there is one and it is not done yet."""
        from mlap.kernels.functions import Finish

        relu, draw, norm = self._relu(number), self.dropout.draw(), self.norms[number]
        if normalise and isinstance(norm, GraphNorm):
            return Finish(relu, draw, (norm.weight, norm.bias, norm.mean_scale), norm.eps)
        return Finish(relu, draw)

    def _relu(self, number: int) -> bool:
        """Whether ReLU follows a layer, counted from 0: all but the last."""
        return number < len(self.convs) - 1

    def _finish(self, h: Tensor, number: int, index: Tensor, dim_size: int, ptr: Tensor | None) -> Tensor:
        """What follows a layer: normalisation, ReLU if wanted, dropout."""
        norm = self.norms[number]
        fast = kernels.usable(h)
        fast_norm = fast and ptr is not None and kernels.may_replace(norm, GraphNorm)
        if not fast_norm:
            h = norm(h, index, dim_size) if self.norm_per_graph else norm(h)
        if fast:
            from mlap.kernels import functions

            return functions.finish(h, self._following(number, normalise=fast_norm), ptr)
        finished: Tensor = self.dropout(h.relu() if self._relu(number) else h)
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
