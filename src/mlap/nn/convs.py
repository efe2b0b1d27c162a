"""Message-passing layers, each with its own encoder of edge features.

All have the same call, `conv(h, edge_index, edge_attr)`, from node representations `(N, channels)` to new ones of the
same width; an arc `edge_index[:, k]` carries a message from its first node to its second. They are the message and
update functions of section 3.1 of the paper, arXiv:2103.01488, Eqs. (gnn-msg) and (gnn-upd). They are PyG's
`MessagePassing`, or have one inside, and what they pass on is called `x` as there: PyG's explainers work on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, MessagePassing
from torch_geometric.nn.inits import reset
from torch_geometric.utils import scatter

from mlap.errors import UsageError, unknown
from mlap.nn.encoders import FeatureSizes, make_encoder
from mlap.nn.mlp import TwoLayers

#: normalisations inside of f_NN
INNER_NORMS = ("none", "batch")


class GINLayer(MessagePassing):  # type: ignore[misc]
    r"""Graph isomorphism layer with edge features, Eq. (gin-msg) of the paper and the one below it (section 4.3).

    .. math::
        m_n = \sum_{n' \in \mathrm{NBR}(n)} \mathrm{ReLU} \left( h_{n'} + f_\mathrm{edge}(q_{n',n}) \right), \qquad
        h_n \leftarrow f_\mathrm{NN} \left( (1 + \epsilon) h_n + m_n \right)

    :math:`f_\mathrm{NN}` is Linear – ReLU – Linear with a hidden layer of twice the width; ε is trainable and starts
    at 0.

    Args:
        channels: the width of the node representations.
        edge_encoder: makes one vector of that width per edge, or a single one for all.
        inner_norm: the normalisation before the ReLU of :math:`f_\mathrm{NN}`: `"none"` (the paper), or `"batch"`
            (OGB's reference code).
    """

    def __init__(self, channels: int, edge_encoder: nn.Module, inner_norm: str = "none") -> None:
        super().__init__(aggr="add")
        if inner_norm not in INNER_NORMS:
            raise unknown("normalisation inside of a layer", inner_norm, INNER_NORMS, "inner_norm")
        self.in_channels = self.out_channels = channels
        self.edge_encoder = edge_encoder
        self.activation = nn.ReLU()
        self.eps = nn.Parameter(torch.zeros(()))
        self.nn: nn.Module = TwoLayers(channels, 2 * channels, channels, inner_norm)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.edge_encoder)
        nn.init.zeros_(self.eps)
        reset(self.nn)

    def forward(self, h: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """New node representations `(N, channels)`."""
        m = self.propagate(edge_index.long(), x=h, q=self.edge_encoder(edge_attr))
        updated: Tensor = self.nn((1 + self.eps) * h + m)
        return updated

    def message(self, x_j: Tensor, q: Tensor) -> Tensor:
        """What every arc carries `(arcs, channels)`."""
        carried: Tensor = self.activation(x_j + q)
        return carried

    def __repr__(self) -> str:
        return nn.Module.__repr__(self)


class GCNLayer(MessagePassing):  # type: ignore[misc]
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
        super().__init__(aggr="add")
        self.in_channels = self.out_channels = channels
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
        edge_index = edge_index.long()
        source, target = edge_index
        h = self.linear(h)
        degree = 1 + scatter(h.new_ones(target.size(0)), target, 0, h.size(0))
        scale = degree.rsqrt()
        norm = (scale[source] * scale[target]).unsqueeze(-1)
        collected = self.propagate(edge_index, x=h, q=self.edge_encoder(edge_attr), norm=norm)
        updated: Tensor = h / degree.unsqueeze(-1) + collected + self.bias
        return updated

    def message(self, x_j: Tensor, q: Tensor, norm: Tensor) -> Tensor:
        """What every arc carries `(arcs, channels)`."""
        return norm * (x_j + q)

    def __repr__(self) -> str:
        return nn.Module.__repr__(self)


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
        updated: Tensor = self.conv(h, edge_index.long(), edges)
        return updated


#: name → the layer's class
CONVS: dict[str, Callable[..., nn.Module]] = {"gin": GINLayer, "gcn": GCNLayer, "gat": GATLayer}


def make_conv(backbone: str, channels: int, edges: FeatureSizes, inner_norm: str = "none") -> nn.Module:
    """A layer of a named kind with an edge encoder of its own."""
    if backbone not in CONVS:
        raise unknown("backbone", backbone, CONVS, "backbone")
    options: dict[str, Any] = {}
    if backbone == "gin":
        options = {"inner_norm": inner_norm}
    elif inner_norm != "none":
        raise UsageError(f"only layers of the kind gin have {{field}}, got {backbone}", "inner_norm", "none")
    return CONVS[backbone](channels, make_encoder(edges, channels), **options)
