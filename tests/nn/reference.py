"""The paper's formulas once more, slowly: numpy, one graph, one node, one arc at a time, in double precision.

Nothing here is shared with `mlap.nn`. A network's parameters come as its state dict, in numpy; a graph is handled
alone, so that agreement also says that a batch does not mix its graphs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

Vector = NDArray[np.float64]
Table = NDArray[np.float64] | NDArray[np.int64]
Arcs = Sequence[tuple[int, int]]
Parameters = Mapping[str, Vector]


def parameters(module: nn.Module) -> dict[str, Vector]:
    """A module's state dict in numpy and double precision."""
    return {name: value.detach().double().numpy() for name, value in module.state_dict().items()}


def under(p: Parameters, prefix: str) -> dict[str, Vector]:
    """The parameters below `prefix`, without it."""
    return {name.removeprefix(prefix + "."): value for name, value in p.items() if name.startswith(prefix + ".")}


# ---- pieces ------------------------------------------------------------------------------------------------------


def linear(p: Parameters, v: Vector) -> Vector:
    return np.array([sum(w * x for w, x in zip(row, v, strict=True)) for row in p["weight"]]) + p.get("bias", 0.0)


def relu(v: Vector) -> Vector:
    return np.array([max(float(x), 0.0) for x in v])


def two_layers(p: Parameters, v: Vector) -> Vector:
    """Linear – ReLU – Linear."""
    return linear(under(p, "2"), relu(linear(under(p, "0"), v)))


def softmax(scores: Sequence[float]) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def sigmoid(v: Vector) -> Vector:
    return np.array([1 / (1 + math.exp(-x)) for x in v])


def attention_pool(gate: Parameters, h: Sequence[Vector]) -> tuple[Vector, list[float]]:
    """The pooled nodes of one graph that has some, and their attention."""
    attention = softmax([float(two_layers(gate, v)[0]) for v in h])
    pooled = sum((a * v for a, v in zip(attention, h, strict=True)), np.zeros(len(h[0])))
    return pooled, attention


# ---- joins of the levels of one row ------------------------------------------------------------------------------


def lstm(p: Parameters, suffix: str, inputs: Sequence[Vector]) -> list[Vector]:
    """The hidden states of an LSTM; rows of its matrices are the input, forget, cell and output gates in turn."""
    width = p["weight_hh_l0" + suffix].shape[1]
    hidden, cell = np.zeros(width), np.zeros(width)
    states = []
    for v in inputs:
        total = linear({"weight": p["weight_ih_l0" + suffix], "bias": p["bias_ih_l0" + suffix]}, v) + linear(
            {"weight": p["weight_hh_l0" + suffix], "bias": p["bias_hh_l0" + suffix]}, hidden
        )
        enter, forget, candidate, leave = (total[k * width : (k + 1) * width] for k in range(4))
        cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(candidate)
        hidden = sigmoid(leave) * np.tanh(cell)
        states.append(hidden)
    return states


def lstm_attention(p: Parameters, levels: Sequence[Vector]) -> Vector:
    """Levels weighted by the softmax of a score that a bidirectional LSTM over the levels gives to each."""
    forward = lstm(under(p, "lstm"), "", levels)
    backward = lstm(under(p, "lstm"), "_reverse", levels[::-1])[::-1]
    states = [np.concatenate(pair) for pair in zip(forward, backward, strict=True)]
    weights = softmax([float(linear(under(p, "att"), state)[0]) for state in states])
    return sum((w * v for w, v in zip(weights, levels, strict=True)), np.zeros(len(levels[0])))


def join(name: str, p: Parameters, levels: Sequence[Vector]) -> Vector:
    """Join the levels of one node, or of one graph."""
    channels = range(len(levels[0]))
    if name == "last":
        return levels[-1]
    if name == "sum":
        return np.array([sum(v[c] for v in levels) for c in channels])
    if name == "weighted":
        weights = softmax(list(p["scores"]))
        return np.array([sum(w * v[c] for w, v in zip(weights, levels, strict=True)) for c in channels])
    if name == "concat":
        return np.array([x for v in levels for x in v])
    if name == "linear":
        return linear(under(p, "linear"), np.array([x for v in levels for x in v]))
    if name == "max":
        return np.array([max(v[c] for v in levels) for c in channels])
    if name == "lstm":
        return lstm_attention(p, levels)
    weights = relation_weights(name, p, [standardised(v) for v in levels])
    return np.array([sum(w * v[c] for w, v in zip(weights, levels, strict=True)) for c in channels])


# ---- joins that model relations among the levels of one row --------------------------------------------------------


def standardised(v: Vector) -> Vector:
    """A vector without its mean and scale over the channels."""
    mean = sum(v) / len(v)
    variance = sum((x - mean) ** 2 for x in v) / len(v)
    return np.array([(x - mean) / math.sqrt(variance + 1e-5) for x in v])


def gru(p: Parameters, suffix: str, inputs: Sequence[Vector]) -> list[Vector]:
    """The hidden states of a GRU; rows of its matrices are the reset and update gates and the candidate in turn."""
    width = p["weight_hh_l0" + suffix].shape[1]
    hidden = np.zeros(width)
    states = []
    for v in inputs:
        new = linear({"weight": p["weight_ih_l0" + suffix], "bias": p["bias_ih_l0" + suffix]}, v)
        old = linear({"weight": p["weight_hh_l0" + suffix], "bias": p["bias_hh_l0" + suffix]}, hidden)
        forget = sigmoid(new[:width] + old[:width])
        update = sigmoid(new[width : 2 * width] + old[width : 2 * width])
        candidate = np.tanh(new[2 * width :] + forget * old[2 * width :])
        hidden = (1 - update) * candidate + update * hidden
        states.append(hidden)
    return states


def relation_weights(name: str, p: Parameters, tokens: Sequence[Vector]) -> list[float]:
    """The weight of each level, from the standardised levels of one row."""
    if name == "gate":
        hidden = relu(linear(under(p, "squeeze"), np.array([x for v in tokens for x in v])))
        return [2 * float(x) for x in sigmoid(linear(under(p, "score"), hidden))]
    if name == "attention":
        tokens = [v + p["embedding.weight"][level] for level, v in enumerate(tokens)]
        queries, keys, values = ([linear(under(p, part), v) for v in tokens] for part in ("query", "key", "value"))
        heard = []
        for query, v in zip(queries, tokens, strict=True):
            attention = softmax([float(query @ key) / math.sqrt(len(v)) for key in keys])
            heard.append(v + sum((a * value for a, value in zip(attention, values, strict=True)), np.zeros(len(v))))
        scores = [float(linear(under(p, "score"), v)[0]) for v in heard]
    else:
        assert name == "gru"
        ahead = gru(under(p, "gru"), "", tokens)
        behind = gru(under(p, "gru"), "_reverse", tokens[::-1])[::-1]
        states = [np.concatenate(pair) for pair in zip(ahead, behind, strict=True)]
        scores = [float(linear(under(p, "score"), state)[0]) for state in states]
    return [len(tokens) * weight for weight in softmax(scores)]


def readout(architecture: str, p: Parameters, levels: Sequence[Sequence[Vector]], out_channels: int) -> Vector:
    """One graph's vector from its levels: `levels[l][n]` is a node's representation."""
    family, _, name = architecture.partition("-")
    nodes = range(len(levels[0]))
    if family == "mlap":
        width = out_channels // len(levels) if name == "concat" else out_channels
        pooled = [
            attention_pool(under(p, f"pools.{number}.gate"), h)[0] if nodes else np.zeros(width)
            for number, h in enumerate(levels)
        ]
        return join(name, under(p, "join"), pooled)
    joined = [join(name or "last", under(p, "join"), [h[n] for h in levels]) for n in nodes]
    return attention_pool(under(p, "pools.0.gate"), joined)[0] if joined else np.zeros(out_channels)


# ---- message passing and normalisation ---------------------------------------------------------------------------


@dataclass
class Graph:
    """One graph: its arcs (source, target), and the features of nodes and arcs, if any."""

    num_nodes: int
    arcs: list[tuple[int, int]]
    x: Table | None = None
    edge_attr: Table | None = None


def encode(p: Parameters, features: Table | None, rows: int, sizes: object) -> list[Vector]:
    """One vector per item; `sizes` as in `make_encoder`: nothing, a number of real columns, or sizes of categories."""
    if sizes is None:
        return [p["vector"][0]] * rows
    assert features is not None
    if isinstance(sizes, int):
        return [two_layers(p, row) for row in features]
    assert isinstance(sizes, Sequence)
    starts = [sum(sizes[:column]) for column in range(len(sizes))]
    tables = p["tables"]
    return [
        np.sum([tables[start + category] for start, category in zip(starts, row, strict=True)], axis=0)
        for row in features
    ]


def gin_layer(p: Parameters, h: Sequence[Vector], arcs: Arcs, edges: Sequence[Vector]) -> list[Vector]:
    messages = [np.zeros(len(v)) for v in h]
    for (source, target), edge in zip(arcs, edges, strict=True):
        messages[target] = messages[target] + relu(h[source] + edge)
    return [two_layers(under(p, "nn"), (1 + p["eps"]) * v + m) for v, m in zip(h, messages, strict=True)]


def gcn_layer(p: Parameters, h: Sequence[Vector], arcs: Arcs, edges: Sequence[Vector]) -> list[Vector]:
    degree = [1 + sum(target == n for _, target in arcs) for n in range(len(h))]
    turned = [linear(under(p, "linear"), v) for v in h]
    updated = [v / d + p["bias"] for v, d in zip(turned, degree, strict=True)]
    for (source, target), edge in zip(arcs, edges, strict=True):
        updated[target] = updated[target] + (turned[source] + edge) / math.sqrt(degree[source] * degree[target])
    return updated


def gat_layer(p: Parameters, h: Sequence[Vector], arcs: Arcs, edges: Sequence[Vector], heads: int = 4) -> list[Vector]:
    """Graph attention, second version: a self-loop on every node has the mean vector of the arcs that arrive there."""
    width = len(h[0])
    per_head = width // heads
    sent = [linear(under(p, "conv.lin_l"), v) for v in h]
    received = [linear(under(p, "conv.lin_r"), v) for v in h]
    updated = []
    for n in range(len(h)):
        arriving = [(source, edge) for (source, target), edge in zip(arcs, edges, strict=True) if target == n]
        arriving = [(source, edge) for source, edge in arriving if source != n]
        mean = sum((edge for _, edge in arriving), np.zeros(width)) / max(len(arriving), 1)
        arriving.append((n, mean))
        parts = []
        for head in range(heads):
            own = slice(head * per_head, (head + 1) * per_head)
            scores = []
            for source, edge in arriving:
                z = (sent[source] + received[n] + linear(under(p, "conv.lin_edge"), edge))[own]
                leaky = [x if x > 0 else 0.2 * x for x in z]
                scores.append(float(np.dot(p["conv.att"][0, head], leaky)))
            weights = softmax(scores)
            parts.append(np.sum([w * sent[s][own] for w, (s, _) in zip(weights, arriving, strict=True)], axis=0))
        updated.append(np.concatenate(parts) + p["conv.bias"])
    return updated


def graph_norm(p: Parameters, h: Sequence[Vector]) -> list[Vector]:
    centred = [v - p["mean_scale"] * (sum(h) / len(h)) for v in h]
    variance = sum(v * v for v in centred) / len(h)
    return [p["weight"] * v / np.sqrt(variance + 1e-6) + p["bias"] for v in centred]


def pair_norm(p: Parameters, h: Sequence[Vector]) -> list[Vector]:
    """Centre the nodes, then give them a mean squared length of 1."""
    centred = [v - sum(h) / len(h) for v in h]
    length = math.sqrt(sum(float(x) ** 2 for v in centred for x in v) / len(h) + 1e-5)
    return [v / length for v in centred]


def layer_norm(p: Parameters, h: Sequence[Vector]) -> list[Vector]:
    return [p["weight"] * (v - v.mean()) / np.sqrt(v.var() + 1e-5) + p["bias"] for v in h]


def batch_norm(p: Parameters, h: Sequence[Vector]) -> list[Vector]:
    """In evaluation: by the running statistics."""
    mean, variance = p["module.running_mean"], p["module.running_var"]
    return [p["module.weight"] * (v - mean) / np.sqrt(variance + 1e-5) + p["module.bias"] for v in h]


LAYERS = {"gin": gin_layer, "gcn": gcn_layer, "gat": gat_layer}
NORMS = {
    "none": lambda p, h: h,
    "graph": graph_norm,
    "pair": pair_norm,
    "layer": layer_norm,
    "batch": batch_norm,
}


def network(
    p: Parameters,
    graph: Graph,
    *,
    architecture: str,
    num_layers: int,
    backbone: str = "gin",
    norm: str = "none",
    residual: bool = False,
    nodes: object = None,
    edges: object = None,
) -> Vector:
    """One graph's logits in evaluation."""
    h = encode(under(p, "encoder"), graph.x, graph.num_nodes, nodes)
    levels = []
    for number in range(num_layers):
        conv = under(p, f"backbone.convs.{number}")
        vectors = encode(under(conv, "edge_encoder"), graph.edge_attr, len(graph.arcs), edges)
        below = h
        if h:
            h = LAYERS[backbone](conv, h, graph.arcs, vectors)
            h = NORMS[norm](under(p, f"backbone.norms.{number}"), h)
        if number < num_layers - 1:
            h = [relu(v) for v in h]
        if residual:
            h = [v + w for v, w in zip(h, below, strict=True)]
        levels.append(h)
    head = under(p, "head")
    return linear(head, readout(architecture, under(p, "readout"), levels, head["weight"].shape[1]))
