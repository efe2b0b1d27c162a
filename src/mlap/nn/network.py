"""The whole network: encoder, backbone, readout, head, and nothing else (arXiv:2103.01488, figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from mlap.errors import UsageError, unknown
from mlap.nn.backbone import Backbone, make_backbone
from mlap.nn.batch import Graphs, graphs_of
from mlap.nn.dropout import Dropout
from mlap.nn.encoders import FeatureSizes, make_encoder
from mlap.nn.execution import executor
from mlap.nn.level_choice import LevelChoice
from mlap.nn.readout import Poolings, Reading, make_readout
from mlap.nn.relations import SparseSum

#: kinds of heads
HEADS = ("linear", "mlp")


@dataclass
class Trace:
    """What a network computed on the way to its answer.

    Args:
        levels: the node representations that the readout reads, each `(N, d)`: `h[1..L]`, or `h[0..L]` with the input
            as a level, or some of them.
        attention: the weight of each node `(N,)`: one per level for MLAP, a single one for naive and JK.
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
    r"""A graph classifier composed of four parts; every backbone works with every readout.

    .. math::
        h^{(0)} = f_\mathrm{enc}(x), \qquad h^{(1)}, \dots, h^{(L)} = f_\mathrm{GNN}(h^{(0)}), \qquad
        h_G = f_\mathrm{readout}(h^{(1)}, \dots, h^{(L)}), \qquad \mathrm{logits} = E h_G + b

    The last is Eqs. (classifier-multi) and (classifier-molhiv) of the paper.

    Args:
        encoder: makes node vectors `(N, d)`, or one `(1, d)` for all nodes, of `batch.x`.
        backbone: makes levels of them; see `Backbone`.
        readout: makes one vector per graph of the levels; see `MultiLevelAttentionPooling` and `JumpReadout`.
        head: makes logits of that vector.
        walk_encoder: makes vectors `(N, d)` of `batch.rw` `(N, k)`, which are added to those of the encoder.
        graph_head: makes logits of `batch.graph_attr` `(B, k)`, which are added to those of the head.
        reads: the places, from 0, of the levels that the readout reads; all unless given.

    Call it with a batch (a `GraphBatch`, a PyG `Batch`, a single `Data`), or with tensors as PyG's models:
    `network(x, edge_index, edge_attr, batch)`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        backbone: nn.Module,
        readout: nn.Module,
        head: nn.Module,
        walk_encoder: nn.Module | None = None,
        graph_head: nn.Module | None = None,
        reads: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.backbone = backbone
        self.readout: Any = readout
        self.head = head
        self.walk_encoder = walk_encoder
        self.graph_head = graph_head
        self.reads = None if reads is None else tuple(reads)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for part in self.children():
            reset(part)

    def forward(
        self,
        x: Any,
        edge_index: Tensor | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        rw: Tensor | None = None,
        graph_attr: Tensor | None = None,
    ) -> Tensor:
        """The logits `(B, K)`.

        Args:
            x: a batch; or node features `(N, columns)`, or `None` where nodes have none, with tensors beside.
            edge_index: `(2, arcs)`.
            edge_attr: edge features `(arcs, columns)`.
            batch: `(N,)`, the graph of each node; all are one graph unless given.
            batch_size: the number of graphs; read off `batch` unless given.
            rw: random-walk features of the nodes `(N, k)`.
            graph_attr: features of the graphs `(B, k)`.
        """
        g = graphs_of(x, edge_index, edge_attr, batch, batch_size, rw, graph_attr)
        run = executor(self, g)
        levels = self.read_levels(self.propagate(g) if run is None else run.levels())
        reading = None if run is None else run.read(levels)
        graphs = self.readout(levels, g.index, g.ptr, g.dim_size) if reading is None else reading.graphs
        return self.answer(graphs, g)

    def levels(self, batch: Any) -> list[Tensor]:
        """The node representations of all levels, `L × (N, d)`."""
        g = graphs_of(batch)
        run = executor(self, g)
        return self.propagate(g) if run is None else run.levels()

    def propagate(self, g: Graphs) -> list[Tensor]:
        """The levels, by the network's own modules."""
        levels: list[Tensor] = self.backbone(self.encode(g), g.edge_index, g.edge_attr, g.index, g.dim_size)
        return levels

    def read_levels(self, levels: list[Tensor]) -> list[Tensor]:
        """Those of all levels that the readout reads."""
        return levels if self.reads is None else [levels[place] for place in self.reads]

    def level_numbers(self, count: int) -> tuple[int, ...]:
        """What to call the `count` levels that the readout reads: 1 to L, where 0 is the input; or some of them."""
        first = 0 if getattr(self.backbone, "input_level", False) else 1
        return tuple(place + first for place in (range(count) if self.reads is None else self.reads))

    def settle(self) -> None:
        """After training: forget the levels that a learned subset did not keep, and the layers above the last of them.

        What the network answers in evaluation stays the same. A network without a learned subset stays as it is.
        """
        join = getattr(self.readout, "join", None)
        if not isinstance(join, SparseSum) or self.reads is not None:
            return
        self.reads = tuple(join.kept)
        self.readout.keep(self.reads)
        if isinstance(self.backbone, Backbone):
            self.backbone.keep(self.reads[-1] + 1)

    def encode(self, g: Graphs) -> Tensor:
        """The encoded nodes `(N, d)`, level 0."""
        return self.with_walks(self.encoder(g.x).expand(g.num_nodes, -1), g)

    def with_walks(self, h: Tensor, g: Graphs) -> Tensor:
        """Encoded nodes `(N, d)` with what their random-walk features add."""
        return h if self.walk_encoder is None else h + self.walk_encoder(_given(g.rw, "rw", "random-walk features"))

    def answer(self, graphs: Tensor, g: Graphs) -> Tensor:
        """The logits `(B, K)` for graph representations `(B, C)`."""
        logits: Tensor = self.head(graphs)
        return logits if self.graph_head is None else logits + self.graph_logits(g)

    def graph_logits(self, g: Graphs) -> Tensor:
        """What the features of the graphs add to the logits `(B, K)`."""
        assert self.graph_head is not None
        logits: Tensor = self.graph_head(_given(g.graph_attr, "graph_attr", "features of graphs"))
        return logits

    def trace(self, batch: Any) -> Trace:
        """Everything on the way to the logits."""
        g = graphs_of(batch)
        run = executor(self, g)
        levels = self.read_levels(self.propagate(g) if run is None else run.levels())
        reading = (None if run is None else run.read(levels)) or read(self.readout, levels, g)
        return Trace(levels, reading.weights, reading.pooled, reading.graphs, self.answer(reading.graphs, g))

    def supervised(self, batch: Any) -> tuple[Tensor, list[Tensor]]:
        """The logits `(B, K)`, and for each level those that there were if every level were that one."""
        g = graphs_of(batch)
        trace = self.trace(g)
        alone = self.readout.alone(trace.levels, trace.pooled, g.index, g.dim_size)
        return trace.logits, [self.answer(graphs, g) for graphs in alone]


def read(readout: Any, levels: list[Tensor], g: Graphs) -> Reading:
    """What a readout reads; of one without `read`, a module of one's own, the graphs alone are known."""
    if hasattr(readout, "read"):
        reading: Reading = readout.read(levels, g.index, g.ptr, g.dim_size)
        return reading
    return Reading(readout(levels, g.index, g.ptr, g.dim_size), [], [])


def _given(features: Tensor | None, name: str, what: str) -> Tensor:
    if features is None:
        raise UsageError(f"the network was built for {what}, but the batch has no {name}")
    return features


def graph_network(
    architecture: str = "mlap-sum",
    *,
    num_layers: int,
    channels: int,
    out_channels: int,
    nodes: FeatureSizes = None,
    edges: FeatureSizes = None,
    backbone: str = "gin",
    norm: str = "none",
    dropout: float = 0.5,
    residual: bool = False,
    pooling: Poolings = "attention",
    inner_norm: str = "none",
    input_level: bool = False,
    virtual_node: bool = False,
    head: str = "linear",
    walk_features: int = 0,
    graph_features: int = 0,
    levels: str = "",
    level_dropout: float = 0.0,
) -> GraphNetwork:
    """A network by the names of its parts. The defaults are the paper's.

    Args:
        architecture: one of `mlap.names.ARCHITECTURES`.
        num_layers: the number of message-passing layers L, and so of levels.
        channels: the width d.
        out_channels: the number of logits.
        nodes: what node features are like: `None`, the number of real columns, or the sizes of the categorical ones.
        edges: what edge features are like, likewise.
        backbone: `gin`, `gcn` or `gat`.
        norm: `none`, `graph`, `batch`, `layer` or `pair`.
        dropout: the probability of dropout after every layer.
        residual: whether a layer adds its input to its output.
        pooling: one of `mlap.names.POOLINGS`; for an `mlap-` architecture also one for each level.
        inner_norm: `none`, or `batch`: BatchNorm inside of the two-layer network of each `gin` layer.
        input_level: whether the encoded nodes are a level too.
        virtual_node: whether each graph has a virtual node, see `VirtualNode`.
        head: `linear`; or `mlp`, Linear – ReLU – Dropout – Linear, of which there are no exact shares.
        walk_features: how many columns `batch.rw` `(N, k)` has, a linear map of which is added to the encoded nodes.
        graph_features: how many columns `batch.graph_attr` `(B, k)` has, a linear map of which is added to the logits.
        levels: which levels the readout reads, see `LevelChoice`: `1+3+5`, `last:2`, `learned:0.01`; all unless given.
            Of `1+3` the network has 3 layers, however many were asked for: nothing reads the others.
        level_dropout: the probability that a row lacks a level in a training step.
    """
    choice = LevelChoice.parse(levels)
    reads = None
    if choice.numbers or choice.last:
        first = 0 if input_level else 1
        reads = tuple(number - first for number in choice.among(range(first, num_layers + 1)))
        num_layers = max(1, reads[-1] + first)
    num_read = num_layers + input_level if reads is None else len(reads)
    readout = make_readout(architecture, channels, num_read, pooling, level_dropout, choice.price)
    return GraphNetwork(
        make_encoder(nodes, channels),
        make_backbone(
            backbone,
            channels,
            num_layers,
            edges,
            norm,
            dropout,
            residual,
            inner_norm=inner_norm,
            input_level=input_level,
            virtual_node=virtual_node,
        ),
        readout,
        _make_head(head, readout.out_channels, channels, out_channels, dropout),
        nn.Linear(walk_features, channels) if walk_features else None,
        nn.Linear(graph_features, out_channels, bias=False) if graph_features else None,
        reads,
    )


def _make_head(head: str, in_channels: int, channels: int, out_channels: int, dropout: float) -> nn.Module:
    if head == "linear":
        return nn.Linear(in_channels, out_channels)
    if head == "mlp":
        return nn.Sequential(
            nn.Linear(in_channels, channels), nn.ReLU(), Dropout(dropout), nn.Linear(channels, out_channels)
        )
    raise unknown("head", head, HEADS, "head")
