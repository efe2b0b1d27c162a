"""The whole network: encoder, backbone, readout, head, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn.inits import reset

from mlap.nn.backbone import Backbone, make_backbone
from mlap.nn.encoders import Describes, Items, make_encoder
from mlap.nn.readout import make_readout


@dataclass
class Trace:
    """What a network computed on the way to its answer.

    Args:
        levels: the node representations `h[1..L]`, each `(N, d)`.
        attention: the attention of each node `(N,)`: one per level for MLAP, a single one for naive and JK.
        pooled: the graph representations `(B, c)` that belong to `attention`, before levels are joined.
        graphs: the final graph representations `(B, C)`.
        logits: the answers `(B, K)`.
    """

    levels: list[Tensor]
    attention: list[Tensor]
    pooled: list[Tensor]
    graphs: Tensor
    logits: Tensor


class GraphNetwork(nn.Module):
    """A graph classifier composed of four parts; every backbone works with every readout.

    Args:
        encoder: makes node vectors `(N, d)`, or one `(1, d)` for all nodes, of `batch.x`.
        backbone: makes levels of them; see `Backbone`.
        readout: makes one vector per graph of the levels; see `MultiLevelAttentionPooling` and `JumpReadout`.
        head: makes logits of that vector.

    A batch is a `GraphBatch`, a PyG `Batch`, or anything with their attributes; one with `ptr` has its nodes sorted by
    graph, which is faster.
    """

    def __init__(self, encoder: nn.Module, backbone: nn.Module, readout: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.backbone = backbone
        self.readout: Any = readout
        self.head = head

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for part in self.children():
            reset(part)

    def levels(self, batch: Any) -> list[Tensor]:
        """The node representations of all levels, `L × (N, d)`."""
        rows, kind = Items(batch.x).encoded(self.encoder)
        h = rows.expand(batch.num_nodes, -1) if kind is None else F.embedding(kind, rows)
        if len(rows) == 1 and kind is None:
            kind = batch.batch.new_zeros(batch.num_nodes)
        options = {"kind": kind} if isinstance(self.backbone, Backbone) else {}
        levels: list[Tensor] = self.backbone(
            h, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs, _pointer(batch), **options
        )
        return levels

    def forward(self, batch: Any) -> Tensor:
        """The logits `(B, K)`."""
        graphs = self.readout(self.levels(batch), batch.batch, _pointer(batch), batch.num_graphs)
        logits: Tensor = self.head(graphs)
        return logits

    def trace(self, batch: Any) -> Trace:
        """Everything on the way to the logits."""
        levels = self.levels(batch)
        pooled, attention = self.readout.pool(levels, batch.batch, _pointer(batch), batch.num_graphs)
        graphs = self.readout.unify(pooled)
        return Trace(levels, attention, pooled, graphs, self.head(graphs))


def _pointer(batch: Any) -> Tensor | None:
    """Where each graph's nodes begin, if the batch says so."""
    pointer: Tensor | None = getattr(batch, "ptr", None)
    return pointer


def graph_network(
    architecture: str = "mlap-sum",
    *,
    num_layers: int,
    channels: int,
    out_channels: int,
    nodes: Describes = None,
    edges: Describes = None,
    backbone: str = "gin",
    norm: str = "none",
    dropout: float = 0.5,
    residual: bool = False,
) -> GraphNetwork:
    """A network by the names of its parts, with a linear head.

    Args:
        architecture: one of `ARCHITECTURES`.
        num_layers: the number of message-passing layers L, and so of levels.
        channels: the width d.
        out_channels: the number of logits.
        nodes: what node features are like: `None`, the number of real columns, or the sizes of the categorical ones.
        edges: what edge features are like, likewise.
        backbone: `gin`, `gcn` or `gat`.
        norm: `none`, `graph`, `batch`, `layer` or `pair`.
        dropout: the probability of dropout after every layer.
        residual: whether a layer adds its input to its output.
    """
    readout = make_readout(architecture, channels, num_layers)
    return GraphNetwork(
        make_encoder(nodes, channels),
        make_backbone(backbone, channels, num_layers, edges, norm, dropout, residual),
        readout,
        nn.Linear(readout.out_channels, out_channels),
    )
