"""Message-passing layers, each with its own encoder of edge features.

All have the same call, `conv(h, edge_index, edge_attr)`, from node representations `(N, channels)` to new ones of the
same width; an arc `edge_index[:, k]` carries a message from its first node to its second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GATv2Conv
from torch_geometric.nn.inits import reset
from torch_geometric.utils import scatter

from mlap import kernels
from mlap.errors import UsageError
from mlap.nn.encoders import ConstantEncoder, Items
from mlap.nn.environments import Environments, environments
from mlap.nn.mlp import TwoLayers

if TYPE_CHECKING:
    from mlap.kernels.functions import GinLayer, SortedArcs


class Arcs:
    """The arcs of a batch, and what several layers need to know of them, found once.

    Args:
        edge_index: `(2, arcs)`, sources and targets.
        edge_attr: the arcs' features, or `None`.
        num_nodes: the number of nodes.
    """

    def __init__(self, edge_index: Tensor, edge_attr: Tensor | None, num_nodes: int) -> None:
        self.edge_index = edge_index
        self.features = Items(edge_attr)
        self.num_nodes = num_nodes

    @cached_property
    def sorted(self) -> SortedArcs:
        """The arcs for the kernels."""
        from mlap.kernels.functions import SortedArcs

        return SortedArcs(self.edge_index, self.num_nodes)


class GINLayer(nn.Module):
    r"""Graph isomorphism layer with edge features, as the paper uses it.

    .. math::
        m_n = \sum_{n' \in \mathrm{NBR}(n)} \mathrm{ReLU} \left( h_{n'} + f_\mathrm{edge}(q_{n',n}) \right), \qquad
        h_n \leftarrow f_\mathrm{NN} \left( (1 + \epsilon) h_n + m_n \right)

    :math:`f_\mathrm{NN}` is Linear – ReLU – Linear with a hidden layer of twice the width and no normalisation;
    ε is trainable and starts at 0.

    Args:
        channels: the width of the node representations.
        edge_encoder: makes one vector of that width per edge, or a single one for all.
    """

    def __init__(self, channels: int, edge_encoder: nn.Module) -> None:
        super().__init__()
        self.edge_encoder = edge_encoder
        self.eps = nn.Parameter(torch.zeros(()))
        self.nn: nn.Module = TwoLayers(channels, 2 * channels, channels)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.edge_encoder)
        nn.init.zeros_(self.eps)
        reset(self.nn)

    def forward(
        self,
        h: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        arcs: Arcs | None = None,
        alike: Environments | None = None,
    ) -> Tensor:
        """New node representations `(N, channels)`.

        For speed: `arcs` is what other layers found out about the same arcs, and `alike` says for which nodes the
        result is the same, so that it is computed once.
        """
        arcs = arcs or Arcs(edge_index, edge_attr, len(h))
        layer = self.for_kernels(h, arcs, alike)
        if layer is not None:
            from mlap.kernels import functions

            return functions.gin_layer(h, layer, arcs.sorted)
        edges, edge_kind = arcs.features.encoded(self.edge_encoder)
        updated: Tensor = self.nn(_collect(h, edges, edge_kind, self.eps, edge_index, alike))
        return updated if alike is None else F.embedding(alike.of_node, updated)

    def for_kernels(self, h: Tensor, arcs: Arcs, alike: Environments | None) -> GinLayer | None:
        """This layer as the kernels take it; `None` where they cannot compute it."""
        if not (kernels.may_replace(self.nn, TwoLayers) and kernels.usable(h, self.eps, *self.nn.weights)):
            return None
        from mlap.kernels.functions import GinLayer

        edges, kind = arcs.features.encoded(self.edge_encoder)
        return GinLayer(edges, self.eps, self.nn.weights, kind, alike) if edges.dtype == h.dtype else None

    def alike(self, kind: Tensor, arcs: Arcs) -> Environments | None:
        """For which nodes the result is the same, where `kind` `(N,)` says which rows of `h` are; `None` if for few."""
        kinds = arcs.features.kinds(self.edge_encoder)
        if kinds is None and not isinstance(self.edge_encoder, ConstantEncoder):
            return None
        found = environments(kind, None if kinds is None else kinds.kind, arcs.edge_index)
        return found if len(found.first) < kernels.WORTH_SHARING * len(kind) else None


def _collect(
    h: Tensor, edges: Tensor, edge_kind: Tensor | None, eps: Tensor, edge_index: Tensor, alike: Environments | None
) -> Tensor:
    """`(1 + eps) h[n] + Σ relu(h[source] + edge)` over the arcs into each node n, or the first of each environment."""
    source, target = edge_index
    own = h
    if alike is not None:
        own = h.index_select(0, alike.first)
        place = torch.full((len(h),), -1)
        place[alike.first] = torch.arange(len(own))
        arcs = (place[target] >= 0).nonzero().squeeze(-1)
        source, target = source[arcs], place[target[arcs]]
        edge_kind = None if edge_kind is None else edge_kind[arcs]
    if len(edges) == 1 and len(h) < len(source):  # the same for all edges: add it once per node, not once per edge
        messages = (h + edges).relu().index_select(0, source)
    else:
        rows = edges if edge_kind is None else edges.index_select(0, edge_kind)
        messages = (h.index_select(0, source) + rows).relu()
    collected: Tensor = (1 + eps) * own + scatter(messages, target, 0, len(own))
    return collected


class GCNLayer(nn.Module):
    r"""Graph convolution (Kipf and Welling) whose messages also carry the edge's vector.

    .. math::
        h_n \leftarrow \frac{W h_n}{d_n} + \sum_{n' \in \mathrm{NBR}(n)}
            \frac{W h_{n'} + f_\mathrm{edge}(q_{n',n})}{\sqrt{d_n d_{n'}}} + b

    with :math:`d_n` one more than the number of arcs into n.

    Args:
        channels: the width of the node representations.
        edge_encoder: makes one vector of that width per edge, or a single one for all.
    """

    def __init__(self, channels: int, edge_encoder: nn.Module) -> None:
        super().__init__()
        self.edge_encoder = edge_encoder
        self.linear = nn.Linear(channels, channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(channels))

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.edge_encoder)
        self.linear.reset_parameters()
        nn.init.zeros_(self.bias)

    def forward(self, h: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """New node representations `(N, channels)`."""
        source, target = edge_index
        h = self.linear(h)
        degree = 1 + scatter(h.new_ones(len(target)), target, 0, len(h))
        scale = degree.rsqrt()
        messages = h.index_select(0, source) + self.edge_encoder(edge_attr)
        collected = scatter(messages * (scale[source] * scale[target]).unsqueeze(-1), target, 0, len(h))
        result: Tensor = h / degree.unsqueeze(-1) + collected + self.bias
        return result


class GATLayer(nn.Module):
    """Graph attention: PyG's `GATv2Conv` with the edge's vector in the attention.

    Args:
        channels: the width of the node representations, a multiple of `heads`.
        edge_encoder: makes one vector of that width per edge, or a single one for all.
        heads: the number of attention heads, whose outputs are concatenated.
    """

    def __init__(self, channels: int, edge_encoder: nn.Module, heads: int = 4) -> None:
        super().__init__()
        if channels % heads:
            raise UsageError(
                f"a GAT layer of {heads} heads needs a width that is a multiple of {heads}, got {channels}"
            )
        self.edge_encoder = edge_encoder
        self.conv = GATv2Conv(channels, channels // heads, heads=heads, edge_dim=channels)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.edge_encoder)
        self.conv.reset_parameters()

    def forward(self, h: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """New node representations `(N, channels)`."""
        edges = self.edge_encoder(edge_attr).expand(edge_index.size(1), -1)
        updated: Tensor = self.conv(h, edge_index, edges)
        return updated


#: name → the layer's class
CONVS: dict[str, Callable[[int, nn.Module], nn.Module]] = {"gin": GINLayer, "gcn": GCNLayer, "gat": GATLayer}
