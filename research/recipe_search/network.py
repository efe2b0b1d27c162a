"""The networks of the search: plain torch, every part an option of `Config`.

The logit is linear in each level's pooled vector unless `head` is "mlp", so that a node's share of it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.utils import softmax


@dataclass(frozen=True)
class Config:
    """One way to train. The defaults are where the search starts; a row of the results names what differs."""

    layers: int = 5
    width: int = 64
    inner_norm: bool = True  # BatchNorm between the two linear maps of f_NN, as OGB has it
    outer_norm: bool = True  # BatchNorm after f_NN
    last_relu: bool = True  # ReLU after the last layer, too
    residual: bool = False
    dropout: float = 0.2
    virtual_node: bool = False
    rwse: int = 0  # steps of the random walk whose return probabilities are node features
    readout: str = "mlap"  # mlap: pool every level, add; naive: the last level; jk: add levels, then pool
    level0: bool = False  # the input embedding is a level as well
    level_weights: bool = False  # a trained weight for each level's vector
    pooling: str = "attention"  # softmax attention, gated (sigmoid, sum), sum, mean, attention-n (softmax times size)
    scale: str = "mean"  # what a sum is divided by: the mean number of nodes, its root (sqrt), or 1 (none)
    values: str = "identity"  # of a node before pooling: itself, or mlp (one hidden layer per level)
    head: str = "linear"
    readout_dropout: float = 0.0  # of the graph vector
    descriptors: str = ""  # "rdkit": standardised 2D descriptors; "morgan": count fingerprint; a linear term
    optimiser: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 1e-2
    batch: int = 64
    epochs: int = 60
    warmup: float = 0.1  # share of the steps
    schedule: str = "cosine"  # or "constant"
    clip: float = 1.0
    loss: str = "default"  # binary cross-entropy or squared error; "huber"; "focal"
    smoothing: float = 0.0
    flag: int = 0  # ascent steps of FLAG's augmentation


def dropout(h: Tensor, p: float, training: bool) -> Tensor:
    """Dropout from random bytes, five times as fast as one random number per element; `p` to within 1/512."""
    if not training or p == 0:
        return h
    words = torch.empty((h.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.uint8)[: h.numel()].view(h.shape) >= round(256 * p)
    return h * (kept * (1 / (1 - round(256 * p) / 256)))


class Batch:
    """Graphs as one graph: node categories, arcs with the kind of their edge, and the graph of each node."""

    def __init__(self, x: Tensor, source: Tensor, target: Tensor, kind: Tensor, graph: Tensor, graphs: int) -> None:
        self.x, self.source, self.target, self.kind, self.graph, self.graphs = x, source, target, kind, graph, graphs
        self.y: Tensor = torch.empty(0)
        self.walks: Tensor | None = None
        self.extra: Tensor | None = None


class Layer(nn.Module):
    """GIN with edge features, f_NN with or without BatchNorm inside, and the norm after it."""

    def __init__(self, config: Config, edge_columns: Tensor) -> None:
        super().__init__()
        d = config.width
        self.register_buffer("edge_columns", edge_columns, persistent=False)  # (kinds, columns) into one table
        self.edges = nn.Embedding(int(edge_columns.max()) + 1, d)
        nn.init.xavier_uniform_(self.edges.weight)
        self.eps = nn.Parameter(torch.zeros(()))
        norm = [nn.BatchNorm1d(2 * d)] if config.inner_norm else []
        self.nn = nn.Sequential(nn.Linear(d, 2 * d), *norm, nn.ReLU(inplace=True), nn.Linear(2 * d, d))
        self.norm = nn.BatchNorm1d(d) if config.outer_norm else nn.Identity()

    def forward(self, h: Tensor, batch: Batch) -> Tensor:
        edges = self.edges(self.edge_columns).sum(1)  # (kinds, d)
        messages = F.relu(h.index_select(0, batch.source) + edges.index_select(0, batch.kind), inplace=True)
        collected = ((1 + self.eps) * h).index_add(0, batch.target, messages)
        return self.norm(self.nn(collected))


class Pooling(nn.Module):
    """Nodes to one vector per graph."""

    def __init__(self, config: Config, mean_size: float) -> None:
        super().__init__()
        d = config.width
        self.kind = config.pooling
        self.divisor = {"mean": mean_size, "sqrt": mean_size**0.5, "none": 1.0}[config.scale]
        self.mean_size = mean_size
        self.gate = None
        if self.kind in ("attention", "gated", "attention-n"):
            self.gate = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(inplace=True), nn.Linear(2 * d, 1))
        self.values = None
        if config.values == "mlp":
            self.values = nn.Sequential(nn.Linear(d, d), nn.ReLU(inplace=True))

    def forward(self, h: Tensor, graph: Tensor, graphs: int) -> Tensor:
        v = h if self.values is None else self.values(h)
        if self.gate is not None:
            score = self.gate(h)
            v = torch.sigmoid(score) * v if self.kind == "gated" else softmax(score, graph, num_nodes=graphs) * v
        pooled = v.new_zeros(graphs, v.shape[1]).index_add_(0, graph, v)
        if self.kind in ("gated", "sum"):
            return pooled / self.divisor
        if self.kind == "attention":
            return pooled
        sizes = torch.bincount(graph, minlength=graphs).clamp(min=1).unsqueeze(1)
        return pooled / sizes if self.kind == "mean" else pooled * (sizes / self.mean_size)


class Network(nn.Module):
    """Encoder, layers, readout, head."""

    def __init__(
        self, config: Config, node_rows: int, edge_columns: Tensor, mean_size: float, num_extra: int = 0
    ) -> None:
        super().__init__()
        d = config.width
        self.config = config
        self.nodes = nn.Embedding(node_rows, d)
        nn.init.xavier_uniform_(self.nodes.weight)
        self.walks = nn.Sequential(nn.BatchNorm1d(config.rwse), nn.Linear(config.rwse, d)) if config.rwse else None
        self.layers = nn.ModuleList(Layer(config, edge_columns) for _ in range(config.layers))
        levels = (config.layers + config.level0) if config.readout == "mlap" else 1
        self.poolings = nn.ModuleList(Pooling(config, mean_size) for _ in range(levels))
        self.level_weights = nn.Parameter(torch.ones(levels)) if config.level_weights else None
        if config.virtual_node:
            self.virtual = nn.Parameter(torch.zeros(1, d))
            self.virtual_layers = nn.ModuleList(
                nn.Sequential(
                    nn.Linear(d, 2 * d),
                    nn.BatchNorm1d(2 * d),
                    nn.ReLU(),
                    nn.Linear(2 * d, d),
                    nn.BatchNorm1d(d),
                    nn.ReLU(),
                )
                for _ in range(config.layers - 1)
            )
        if config.head == "linear":
            self.head: nn.Module = nn.Linear(d, 1)
        else:
            self.head = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(d, 1))
        self.extra = nn.Linear(num_extra, 1, bias=False) if num_extra else None
        if self.extra is not None:
            nn.init.zeros_(self.extra.weight)

    def forward(self, batch: Batch, nudge: Tensor | None = None) -> Tensor:
        config = self.config
        h = self.nodes(batch.x).sum(1)
        if self.walks is not None:
            h = h + self.walks(batch.walks)
        if nudge is not None:
            h = h + nudge
        levels = [h] if config.level0 else []
        virtual = self.virtual.expand(batch.graphs, -1) if config.virtual_node else None
        for number, layer in enumerate(self.layers):
            if virtual is not None:
                h = h + virtual.index_select(0, batch.graph)
            new = layer(h, batch)
            if config.last_relu or number < config.layers - 1:
                new = F.relu(new)
            new = dropout(new, config.dropout, self.training)
            if virtual is not None and number < config.layers - 1:
                summed = virtual.index_add(0, batch.graph, h)
                virtual = dropout(self.virtual_layers[number](summed), config.dropout, self.training)
            h = h + new if config.residual else new
            levels.append(h)
        if config.readout == "naive":
            levels = levels[-1:]
        elif config.readout == "jk":
            levels = [torch.stack(levels).sum(0)]
        pooled = [pool(h, batch.graph, batch.graphs) for pool, h in zip(self.poolings, levels, strict=True)]
        if self.level_weights is not None:
            pooled = [w * p for w, p in zip(self.level_weights, pooled, strict=True)]
        vector = torch.stack(pooled).sum(0)
        out = self.head(dropout(vector, config.readout_dropout, self.training)).squeeze(-1)
        if self.extra is not None:
            out = out + self.extra(batch.extra).squeeze(-1)
        return out
