"""A GIN layer: messages collected over sorted arcs, and the whole layer with what follows it as one function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlap.kernels.finish import Finish, finish_backward, finish_forward
from mlap.kernels.loops import ONE, ZERO, Array, apply, array, arrays, compiled, dot, first_order, sum_of, tensor
from mlap.kernels.sharing import NO_KIND
from mlap.kernels.threads import fork, threads_for
from mlap.kernels.two_layers import two_layers_backward, two_layers_forward


class SortedArcs:
    """Arcs sorted by the nodes at their ends, once for all layers.

    Args:
        edge_index: `(2, arcs)`, sources and targets.
        num_nodes: the number of nodes.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.source, self.target = array(edge_index)
        self.num_nodes = num_nodes
        self.all_nodes = np.arange(num_nodes)

    @cached_property
    def into(self) -> Any:
        """The arcs into each node: see `sort_arcs`."""
        return sort_arcs(self.target, self.source, self.num_nodes)

    @cached_property
    def out_of(self) -> Any:
        """The arcs out of each node."""
        return sort_arcs(self.source, self.target, self.num_nodes)


class Layer(NamedTuple):
    """A GIN layer and what follows it.

    Args:
        edges: one row for all arcs, one for each, or one for each kind of arc.
        eps: a scalar.
        weights: of f_NN, Linear – ReLU – Linear: weight and bias of the first layer, weight and bias of the second.
        kind: the kind of each arc, if `edges` are of kinds.
        alike: if some nodes are known to be alike here, the first of every kind and the kind of each node.
        inner: BatchNorm and ReLU between the two layers, where it is not ReLU alone; no nodes are alike then.
        finish: what follows.
    """

    edges: Tensor
    eps: Tensor
    weights: Sequence[Tensor]
    kind: Tensor | None = None
    alike: tuple[Tensor, Tensor] | None = None
    inner: Finish | None = None
    finish: Finish = Finish()

    @property
    def learned(self) -> tuple[Tensor, ...]:
        """All tensors that have gradients."""
        inner = () if self.inner is None else self.inner.norm
        return self.edges, self.eps, *self.weights, *inner, *self.finish.norm


def gin_layer(h: Tensor, layer: Layer, arcs: SortedArcs, ptr: Tensor | None = None) -> Tensor:
    """A layer and what follows it, as one function: torch's bookkeeping costs more than the loops in between.

    A layer is Linear – ReLU – Linear of `(1 + eps) h[n] + Σ relu(h[source] + edges[kind])` over the arcs into node n.

    Args:
        h: the nodes `(N, c)`.
        layer: the layer.
        arcs: the arcs.
        ptr: where each graph's nodes begin, which GraphNorm needs.
    """
    result: Tensor = apply(_GinLayer, layer, arcs, ptr, h, *layer.learned)
    return result


class _GinLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: Layer, arcs: SortedArcs, ptr: Tensor | None, h: Tensor, *learned: Tensor) -> Tensor:
        ctx.kind = NO_KIND if layer.kind is None else array(layer.kind)
        ctx.nodes = arcs.all_nodes if layer.alike is None else array(layer.alike[0])
        rows, edges, eps = arrays(h, layer.edges, layer.eps)
        collected = tensor(collect(rows, edges, ctx.kind, eps, ctx.nodes, *arcs.into, threads_for(rows.size)))
        between: Sequence[Tensor] = ()
        if layer.inner is None:
            hidden, out = two_layers_forward(collected, *layer.weights)
        else:
            weight, bias, last_weight, last_bias = layer.weights
            hidden, between = finish_forward(F.linear(collected, weight, bias), layer.inner, None)
            out = F.linear(hidden, last_weight, last_bias)
        if layer.alike is not None:
            out = out.index_select(0, layer.alike[1])
        out, kept = finish_forward(out, layer.finish, ptr)
        ctx.layer, ctx.arcs, ctx.ptr, ctx.between = layer, arcs, ptr, len(between)
        ctx.save_for_backward(*learned, h, collected, hidden, *between, *kept)
        return out

    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layer: Layer = ctx.layer
        h, collected, hidden, *kept = ctx.saved_tensors[len(layer.learned) :]
        between, kept = kept[: ctx.between], kept[ctx.between :]
        grad, grad_norm = finish_backward(grad, kept, layer.finish, ctx.ptr)
        if layer.alike is not None:
            first, of_node = layer.alike
            grad = torch.ops.aten.embedding_dense_backward(grad, of_node, len(first), -1, False)
        weight, _, last_weight, _ = layer.weights
        if layer.inner is None:
            grad_hidden, *grad_weights = two_layers_backward(grad, collected, hidden, last_weight)
        else:
            grad_hidden, grad_inner = finish_backward(grad @ last_weight, between, layer.inner, None)
            grad_weights = [
                grad_hidden.t() @ collected,
                grad_hidden.sum(0),
                grad.t() @ hidden,
                grad.sum(0),
                *grad_inner,
            ]
        grad_collected, rows, edges, eps = arrays(grad_hidden @ weight, h, layer.edges, layer.eps)
        grads = collect_backward(
            grad_collected, rows, edges, ctx.kind, eps, ctx.nodes, *ctx.arcs.out_of, threads_for(rows.size)
        )
        return None, None, None, *map(tensor, grads), *grad_weights, *grad_norm


@compiled
def stray_end(edge_index: Array, num_nodes: int) -> int:
    """Where in the flattened `edge_index` is a node that does not exist; -1 if nowhere."""
    flat = edge_index.reshape(-1)
    for k in range(len(flat)):
        if flat[k] < 0 or flat[k] >= num_nodes:
            return k
    return -1


@compiled
def sort_arcs(ends: Array, others: Array, num_nodes: int) -> tuple[Array, Array, Array]:
    """Arcs by the node at one end: where each node's begin `(N + 1,)`, the nodes at their other ends, their numbers."""
    start = np.zeros(num_nodes + 1, np.int32)
    for k in range(len(ends)):
        start[ends[k] + 1] += 1
    for n in range(num_nodes):
        start[n + 1] += start[n]
    place = start[:-1].copy()
    other = np.empty(len(ends), np.int32)
    arc = np.empty(len(ends), np.int32)
    for k in range(len(ends)):
        n = ends[k]
        other[place[n]] = others[k]
        arc[place[n]] = k
        place[n] += 1
    return start, other, arc


@compiled
def collect(
    h: Array,
    edges: Array,
    kind: Array,
    eps: Array,
    rows: Array,
    start: Array,
    source: Array,
    arc: Array,
    threads: int,
) -> Array:
    """`(1 + eps) h[n] + Σ relu(h[source] + edges[kind])` over the arcs into each node n of `rows`."""
    out = np.empty((len(rows), h.shape[1]), h.dtype)
    fork(_collect, len(rows), threads, (h, edges, kind, ONE + eps[()], rows, start, source, arc, out))
    return out


@compiled
def _collect(
    part: int,
    first: int,
    last: int,
    h: Array,
    edges: Array,
    kind: Array,
    factor: float,
    rows: Array,
    start: Array,
    source: Array,
    arc: Array,
    out: Array,
) -> None:
    channels = h.shape[1]
    by_kind = len(kind) > 0
    single = len(edges) == 1
    for i in range(first, last):
        n = rows[i]
        for c in range(channels):
            out[i, c] = factor * h[n, c]
        for k in range(start[n], start[n + 1]):
            s = source[k]
            e = 0 if single else kind[arc[k]] if by_kind else arc[k]
            for c in range(channels):
                message = h[s, c] + edges[e, c]
                out[i, c] += ZERO if message < ZERO else message


@compiled
def collect_backward(
    grad: Array,
    h: Array,
    edges: Array,
    kind: Array,
    eps: Array,
    rows: Array,
    start: Array,
    target: Array,
    arc: Array,
    threads: int,
) -> tuple[Array, Array, Array]:
    """The gradients of `collect` for `h`, `edges` and `eps`; here arcs are sorted by their sources."""
    place = np.full(len(h), -1)
    for i in range(len(rows)):
        place[rows[i]] = i
    grad_h = np.zeros_like(h)
    shared = len(edges) == 1 or len(kind) > 0
    grad_edges = np.zeros((threads if shared else 1, *edges.shape), h.dtype)
    grad_factor = np.zeros(threads)
    fork(
        _collect_backward,
        len(h),
        threads,
        (grad, h, edges, kind, ONE + eps[()], place, start, target, arc, grad_h, grad_edges, grad_factor),
    )
    grad_eps = np.empty_like(eps)
    grad_eps[()] = grad_factor.sum()
    return grad_h, sum_of(grad_edges), grad_eps


@compiled
def _collect_backward(
    part: int,
    first: int,
    last: int,
    grad: Array,
    h: Array,
    edges: Array,
    kind: Array,
    factor: float,
    place: Array,
    start: Array,
    target: Array,
    arc: Array,
    grad_h: Array,
    all_grad_edges: Array,
    grad_factor: Array,
) -> None:
    channels = h.shape[1]
    by_kind = len(kind) > 0
    single = len(edges) == 1
    grad_edges = all_grad_edges[part if len(all_grad_edges) > 1 else 0]  # an arc's own row belongs to one part alone
    total = 0.0
    for n in range(first, last):
        i = place[n]
        if i >= 0:
            for c in range(channels):
                grad_h[n, c] = factor * grad[i, c]
            total += dot(grad[i], h[n])
        for k in range(start[n], start[n + 1]):
            t = place[target[k]]
            if t < 0:
                continue
            e = 0 if single else kind[arc[k]] if by_kind else arc[k]
            for c in range(channels):
                g = grad[t, c]
                g = g if h[n, c] + edges[e, c] > ZERO else ZERO
                grad_h[n, c] += g
                grad_edges[e, c] += g
    grad_factor[part] = total
