"""The paper's networks as a user of PyTorch Geometric would write them, to measure ours against.

`PyG` uses PyG's modules throughout: `MessagePassing`, `GraphNorm`, `JumpingKnowledge`, `AttentionalAggregation`.
`OGB` follows the manner of OGB's reference code for graph property prediction: a list of levels that begins with the
encoded nodes, functional ReLU and dropout, and pooling written out with PyG's `softmax` and `global_add_pool`. Both
encode molecules as OGB's atom and bond encoders do, by a loop over embeddings, and take PyG's batches. `copy_weights`
gives them the weights of one of our networks, `differences` compares gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import (
    AttentionalAggregation,
    BatchNorm,
    GraphNorm,
    JumpingKnowledge,
    MessagePassing,
    global_add_pool,
)
from torch_geometric.utils import softmax

from mlap.nn import CategoryEncoder, ConstantEncoder, GraphNetwork


class Embeddings(nn.Module):
    """The sum of one embedding per categorical column; without columns, one row for all."""

    def __init__(self, cardinalities: tuple[int, ...], channels: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, channels) for size in cardinalities or (1,))

    def forward(self, features: Tensor) -> Tensor:
        """Encode `(rows, columns)` to `(rows, channels)`."""
        total = self.tables[0](features[:, 0])
        for column in range(1, len(self.tables)):
            total = total + self.tables[column](features[:, column])
        return total


class GINConv(MessagePassing):
    """GIN with edge features, as in OGB's examples and in PyG's `GINEConv`."""

    def __init__(self, channels: int, edges: tuple[int, ...], inner_norm: str) -> None:
        super().__init__(aggr="add")
        between = [nn.BatchNorm1d(2 * channels)] if inner_norm == "batch" else []
        self.mlp = nn.Sequential(
            nn.Linear(channels, 2 * channels), *between, nn.ReLU(), nn.Linear(2 * channels, channels)
        )
        self.eps = nn.Parameter(torch.zeros(1))
        self.edge_encoder = Embeddings(edges, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """New node representations."""
        edges = self.edge_encoder(edge_attr)
        return self.mlp((1 + self.eps) * x + self.propagate(edge_index, x=x, edge_attr=edges))

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        """What an arc carries."""
        return F.relu(x_j + edge_attr)


NORMS: dict[str, Any] = {"graph": lambda channels: GraphNorm(channels, eps=1e-6), "batch": BatchNorm}


class PyG(nn.Module):
    """The network of PyG's modules."""

    def __init__(
        self,
        architecture: str,
        num_layers: int,
        channels: int,
        out_channels: int,
        norm: str,
        dropout: float,
        nodes: tuple[int, ...],
        edges: tuple[int, ...],
        inner_norm: str = "none",
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.residual = residual
        self.family, _, join = architecture.partition("-")
        self.join = join or "last"
        self.encoder = Embeddings(nodes, channels)
        self.convs = nn.ModuleList(GINConv(channels, edges, inner_norm) for _ in range(num_layers))
        self.norms = nn.ModuleList(NORMS[norm](channels) for _ in range(num_layers) if norm != "none")
        self.dropout = nn.Dropout(dropout)
        width = num_layers * channels if self.join == "concat" else channels
        pooled = channels if self.family == "mlap" else width
        count = num_layers if self.family == "mlap" else 1
        self.gates = nn.ModuleList(
            nn.Sequential(nn.Linear(pooled, 2 * channels), nn.ReLU(), nn.Linear(2 * channels, 1)) for _ in range(count)
        )
        self.pools = [AttentionalAggregation(gate) for gate in self.gates]
        self.scores = nn.Parameter(torch.ones(num_layers)) if self.join == "weighted" else None
        modes = {"concat": "cat", "max": "max", "lstm": "lstm"}
        self.jump = JumpingKnowledge(modes[self.join], channels, num_layers) if self.join in modes else None
        self.head = nn.Linear(width, out_channels)

    def forward(self, batch: Any) -> Tensor:
        """The logits."""
        levels = self.levels(batch)
        if self.family == "mlap":
            pairs = zip(self.pools, levels, strict=True)
            pooled = [pool(h, batch.batch, dim_size=batch.num_graphs) for pool, h in pairs]
            return self.head(self.joined(pooled))
        return self.head(self.pools[0](self.joined(levels), batch.batch, dim_size=batch.num_graphs))

    def levels(self, batch: Any) -> list[Tensor]:
        """The outputs of all layers."""
        h = self.encoder(batch.x)
        levels = []
        for number, conv in enumerate(self.convs):
            below = h
            h = self.normed(number, conv(h, batch.edge_index, batch.edge_attr), batch)
            if number < len(self.convs) - 1:
                h = F.relu(h)
            h = self.dropout(h)
            if self.residual:
                h = h + below
            levels.append(h)
        return levels

    def normed(self, number: int, h: Tensor, batch: Any) -> Tensor:
        """The output of a layer after its normalisation."""
        if not self.norms:
            return h
        norm = self.norms[number]
        return norm(h, batch.batch, batch.num_graphs) if isinstance(norm, GraphNorm) else norm(h)

    def joined(self, levels: list[Tensor]) -> Tensor:
        """The levels as one."""
        if self.join == "last":
            return levels[-1]
        if self.join == "sum":
            return torch.stack(levels).sum(0)
        if self.scores is not None:
            return (self.scores.softmax(0).view(-1, 1, 1) * torch.stack(levels)).sum(0)
        assert self.jump is not None
        return self.jump(levels)


class OGB(PyG):
    """The same in the manner of OGB's reference code."""

    def forward(self, batch: Any) -> Tensor:
        """The logits."""
        levels = self.levels(batch)
        if self.family == "mlap":
            pooled = [self.attend(gate, h, batch) for gate, h in zip(self.gates, levels, strict=True)]
            return self.head(self.joined(pooled))
        return self.head(self.attend(self.gates[0], self.joined(levels), batch))

    def attend(self, gate: nn.Module, h: Tensor, batch: Any) -> Tensor:
        """Attention pooling, written out."""
        attention = softmax(gate(h), batch.batch, num_nodes=batch.num_graphs)
        return global_add_pool(attention * h, batch.batch, size=batch.num_graphs)

    def levels(self, batch: Any) -> list[Tensor]:
        """The outputs of all layers, in a list that begins with the encoded nodes."""
        h_list = [self.encoder(batch.x)]
        for layer in range(len(self.convs)):
            h = self.normed(layer, self.convs[layer](h_list[layer], batch.edge_index, batch.edge_attr), batch)
            if layer < len(self.convs) - 1:
                h = F.relu(h)
            h = F.dropout(h, self.dropout.p, training=self.training)
            if self.residual:
                h = h + h_list[layer]
            h_list.append(h)
        return h_list[1:]

    def joined(self, levels: list[Tensor]) -> Tensor:
        """The levels as one; sums as OGB's loop over layers."""
        if self.join != "sum":
            return super().joined(levels)
        total: Any = 0
        for level in levels:
            total += level
        return total


def ours_in_order(network: Any) -> list[Tensor]:
    """The parameters of one of our networks, in the order of `peers_in_order`."""
    layers = list(zip(network.backbone.convs, network.backbone.norms, strict=True))
    return [
        _rows(network.encoder),
        *(tensor for conv, _ in layers for tensor in (_rows(conv.edge_encoder), conv.eps, *conv.nn.parameters())),
        *(tensor for _, norm in layers for tensor in norm.parameters()),
        *(tensor for pool in network.readout.pools for tensor in pool.gate.parameters()),
        *network.readout.join.parameters(),
        *network.head.parameters(),
    ]


def peers_in_order(peer: PyG) -> list[list[Tensor]]:
    """The parameters of a peer; several that lie one below the other in one of ours are one list."""
    return [
        [table.weight for table in peer.encoder.tables],
        *(
            tensors
            for conv in peer.convs
            for tensors in (
                [table.weight for table in conv.edge_encoder.tables],
                [conv.eps],
                *([tensor] for tensor in conv.mlp.parameters()),
            )
        ),
        *([tensor] for norm in peer.norms for tensor in norm.parameters()),
        *([tensor] for gate in peer.gates for tensor in gate.parameters()),
        *([[peer.scores]] if peer.scores is not None else []),
        *([tensor] for tensor in (peer.jump.parameters() if peer.jump is not None else ())),
        *([tensor] for tensor in peer.head.parameters()),
    ]


def copy_weights(network: GraphNetwork, peer: PyG) -> None:
    """Give the peer our weights."""
    with torch.no_grad():
        for ours, theirs in zip(ours_in_order(network), peers_in_order(peer), strict=True):
            parts = ours.split([len(tensor) for tensor in theirs]) if len(theirs) > 1 else [ours]
            for part, tensor in zip(parts, theirs, strict=True):
                tensor.copy_(part.view_as(tensor))


def differences(network: GraphNetwork, peer: PyG) -> float:
    """The largest difference of gradients, relative to the largest gradient."""
    largest = max(float(p.grad.abs().max()) for p in network.parameters() if p.grad is not None)
    worst = 0.0
    for ours, theirs in zip(ours_in_order(network), peers_in_order(peer), strict=True):
        assert ours.grad is not None
        together = torch.cat([t.grad.reshape(-1) for t in theirs if t.grad is not None])
        worst = max(worst, float((ours.grad.reshape(-1) - together).abs().max()))
    return worst / largest


def _rows(encoder: nn.Module) -> Tensor:
    if isinstance(encoder, CategoryEncoder):
        return encoder.tables
    assert isinstance(encoder, ConstantEncoder)
    return encoder.vector
