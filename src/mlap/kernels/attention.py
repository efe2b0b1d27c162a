"""Poolings by a gate: softmax attention, the same times the number of nodes, and the gated sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlap.kernels.loops import (
    ONE,
    ZERO,
    Array,
    apply,
    arrays,
    compiled,
    dot,
    first_order,
    graphs_between,
    sum_of,
    tensor,
    total_of,
)
from mlap.kernels.sharing import once_per_kind
from mlap.kernels.threads import fork, threads_for


class Weighing(NamedTuple):
    """What weights are made of the scores of a gate.

    Args:
        softmax: whether a weight is the softmax of the scores over the graph's nodes, or a score's sigmoid.
        counts: whether the softmax is multiplied by the number of the graph's nodes.
    """

    softmax: bool
    counts: bool = False


def attend(x: Tensor, ptr: Tensor, gate: Sequence[Tensor], how: Weighing) -> tuple[Tensor, Tensor]:
    """Pool nodes `(N, c)` sorted by graph by a gate: the graphs `(B, c)` and the weight of each node `(N,)`.

    Args:
        x: the nodes.
        ptr: where each graph's begin.
        gate: the weights of the gate, Linear – ReLU – Linear(1).
        how: what weights are made of its scores.
    """
    if torch.is_grad_enabled():
        pooled, weights = apply(_Attend, how, x, ptr, *gate)
        return pooled, weights
    scores = once_per_kind(lambda rows: _scores(rows, *gate)[1], x)
    return _pooled(x, scores, ptr, how)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        how: Weighing,
        x: Tensor,
        ptr: Tensor,
        weight: Tensor,
        bias: Tensor,
        last_weight: Tensor,
        last_bias: Tensor,
    ) -> tuple[Tensor, Tensor]:
        hidden, scores = _scores(x, weight, bias, last_weight, last_bias)
        pooled, weights = _pooled(x, scores, ptr, how)
        ctx.how = how
        ctx.save_for_backward(x, ptr, weight, last_weight, hidden, weights)
        return pooled, weights

    @first_order
    def backward(ctx: Any, grad: Tensor, grad_weights: Tensor) -> tuple[Tensor | None, ...]:
        x, ptr, weight, last_weight, hidden, weights = ctx.saved_tensors
        threads = threads_for(x.numel())
        given = arrays(grad, grad_weights, x, weights, ptr)
        if ctx.how.softmax:
            grad_x, grad_scores = map(tensor, soft_backward(*given, ctx.how.counts, threads))
        else:
            grad_x, grad_scores = map(tensor, gated_backward(*given, threads))
        given = arrays(grad_scores, hidden, last_weight[0])
        grad_hidden, learned = map(tensor, score_backward(*given, threads))
        grad_last_bias = grad_scores.sum(0, keepdim=True)
        if ctx.needs_input_grad[1]:
            grad_x.addmm_(grad_hidden, weight)
        return None, grad_x, None, grad_hidden.t() @ x, learned[0], learned[1:], grad_last_bias


def _scores(x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor) -> tuple[Tensor, Tensor]:
    """What is between the two layers of a gate, and its scores `(N,)`."""
    hidden = F.linear(x, weight)
    given = arrays(hidden, bias, last_weight[0], last_bias)
    return hidden, tensor(score(*given, threads_for(x.numel())))


def _pooled(x: Tensor, scores: Tensor, ptr: Tensor, how: Weighing) -> tuple[Tensor, Tensor]:
    """The pooled graphs `(B, c)` and the weights `(N,)` by the scores."""
    if how.softmax:
        pooled, weights = soft(*arrays(x, scores, ptr), how.counts, threads_for(x.numel()))
        return tensor(pooled), tensor(weights)
    opened = scores.sigmoid()
    return tensor(segment_sum(*arrays(x, opened, ptr), threads_for(x.numel()))), opened


def weighted_sum(x: Tensor, weights: Tensor, ptr: Tensor) -> Tensor:
    """The sum of each graph's nodes `(N, c)` with constant weights `(N,)`."""
    pooled: Tensor = apply(_WeightedSum, x, weights, ptr)
    return pooled


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, ptr: Tensor) -> Tensor:
        ctx.save_for_backward(weights, ptr)
        return tensor(segment_sum(*arrays(x, weights, ptr), threads_for(x.numel())))

    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, ptr = ctx.saved_tensors
        return tensor(segment_spread(*arrays(grad, weights, ptr), threads_for(len(weights) * grad.size(1)))), None, None


@compiled
def score(x: Array, bias: Array, weight: Array, last_bias: Array, threads: int) -> Array:
    """`relu(x + bias) · weight + last_bias` per row; `x` becomes `relu(x + bias)`."""
    out = np.empty(len(x), x.dtype)
    fork(_score, len(x), threads, (x, bias, weight, last_bias, out))
    return out


@compiled
def _score(
    part: int, first: int, last: int, x: Array, bias: Array, weight: Array, last_bias: Array, out: Array
) -> None:
    for n in range(first, last):
        for c in range(x.shape[1]):
            value = x[n, c] + bias[c]
            x[n, c] = ZERO if value < ZERO else value
        out[n] = last_bias[0] + dot(x[n], weight)


@compiled
def score_backward(grad: Array, hidden: Array, weight: Array, threads: int) -> tuple[Array, Array]:
    """The gradients of `score`: for `x`, and, as two rows, for `bias` and `weight`."""
    out = np.empty_like(hidden)
    learned = np.zeros((threads, 2, len(weight)), hidden.dtype)
    fork(_score_backward, len(hidden), threads, (grad, hidden, weight, out, learned))
    return out, sum_of(learned)


@compiled
def _score_backward(
    part: int, first: int, last: int, grad: Array, hidden: Array, weight: Array, out: Array, learned: Array
) -> None:
    grad_bias, grad_weight = learned[part, 0], learned[part, 1]
    for n in range(first, last):
        for c in range(hidden.shape[1]):
            g = grad[n] * weight[c] if hidden[n, c] > ZERO else ZERO
            out[n, c] = g
            grad_bias[c] += g
            grad_weight[c] += grad[n] * hidden[n, c]


@compiled
def soft(x: Array, scores: Array, ptr: Array, counts: bool, threads: int) -> tuple[Array, Array]:
    """The sum of each graph's rows weighted by the softmax of the scores, or by its rows' number times that."""
    pooled = np.zeros((len(ptr) - 1, x.shape[1]), x.dtype)
    attention = np.empty_like(scores)
    fork(_soft, len(x), threads, (x, scores, ptr, counts, pooled, attention))
    return pooled, attention


@compiled
def _soft(
    part: int,
    first_node: int,
    last_node: int,
    x: Array,
    scores: Array,
    ptr: Array,
    counts: bool,
    pooled: Array,
    attention: Array,
) -> None:
    for g in range(*graphs_between(ptr, first_node, last_node)):
        first, last = ptr[g], ptr[g + 1]
        if first == last:
            continue
        largest = scores[first]
        for n in range(first + 1, last):
            largest = max(largest, scores[n])
        for n in range(first, last):
            attention[n] = scores[n] - largest
        for n in range(first, last):
            attention[n] = np.exp(attention[n])
        total = total_of(attention[first:last])
        times = x.dtype.type(last - first) if counts else x.dtype.type(1)
        for n in range(first, last):
            share = attention[n] / total * times
            attention[n] = share
            for c in range(x.shape[1]):
                pooled[g, c] += share * x[n, c]


@compiled
def soft_backward(
    grad: Array, grad_attention: Array, x: Array, attention: Array, ptr: Array, counts: bool, threads: int
) -> tuple[Array, Array]:
    """The gradients of `soft` for `x` and the scores."""
    out = np.empty_like(x)
    grad_scores = np.empty_like(attention)
    fork(_soft_backward, len(x), threads, (grad, grad_attention, x, attention, ptr, counts, out, grad_scores))
    return out, grad_scores


@compiled
def _soft_backward(
    part: int,
    first_node: int,
    last_node: int,
    grad: Array,
    grad_attention: Array,
    x: Array,
    attention: Array,
    ptr: Array,
    counts: bool,
    out: Array,
    grad_scores: Array,
) -> None:
    for g in range(*graphs_between(ptr, first_node, last_node)):
        mean = x.dtype.type(0)
        for n in range(ptr[g], ptr[g + 1]):
            share = attention[n]
            for c in range(x.shape[1]):
                out[n, c] = share * grad[g, c]
            grad_scores[n] = dot(grad[g], x[n]) + grad_attention[n]
            mean += share * grad_scores[n]
        if counts and ptr[g] < ptr[g + 1]:
            mean /= x.dtype.type(ptr[g + 1] - ptr[g])
        for n in range(ptr[g], ptr[g + 1]):
            grad_scores[n] = attention[n] * (grad_scores[n] - mean)


@compiled
def segment_sum(x: Array, weights: Array, ptr: Array, threads: int) -> Array:
    """The sum of each graph's rows, with weights."""
    pooled = np.zeros((len(ptr) - 1, x.shape[1]), x.dtype)
    fork(_segment_sum, len(x), threads, (x, weights, ptr, pooled))
    return pooled


@compiled
def _segment_sum(
    part: int, first_node: int, last_node: int, x: Array, weights: Array, ptr: Array, pooled: Array
) -> None:
    for g in range(*graphs_between(ptr, first_node, last_node)):
        for n in range(ptr[g], ptr[g + 1]):
            for c in range(x.shape[1]):
                pooled[g, c] += weights[n] * x[n, c]


@compiled
def segment_spread(grad: Array, weights: Array, ptr: Array, threads: int) -> Array:
    """The gradient of `segment_sum` for its rows."""
    out = np.empty((len(weights), grad.shape[1]), grad.dtype)
    fork(_segment_spread, len(weights), threads, (grad, weights, ptr, out))
    return out


@compiled
def _segment_spread(
    part: int, first_node: int, last_node: int, grad: Array, weights: Array, ptr: Array, out: Array
) -> None:
    for g in range(*graphs_between(ptr, first_node, last_node)):
        for n in range(ptr[g], ptr[g + 1]):
            for c in range(grad.shape[1]):
                out[n, c] = weights[n] * grad[g, c]


@compiled
def gated_backward(
    grad: Array, grad_weights: Array, x: Array, weights: Array, ptr: Array, threads: int
) -> tuple[Array, Array]:
    """The gradients of a gated sum for `x` and for the scores, whose sigmoids are the weights."""
    out = np.empty_like(x)
    grad_scores = np.empty_like(weights)
    fork(_gated_backward, len(x), threads, (grad, grad_weights, x, weights, ptr, out, grad_scores))
    return out, grad_scores


@compiled
def _gated_backward(
    part: int,
    first_node: int,
    last_node: int,
    grad: Array,
    grad_weights: Array,
    x: Array,
    weights: Array,
    ptr: Array,
    out: Array,
    grad_scores: Array,
) -> None:
    for g in range(*graphs_between(ptr, first_node, last_node)):
        for n in range(ptr[g], ptr[g + 1]):
            opened = weights[n]
            for c in range(x.shape[1]):
                out[n, c] = opened * grad[g, c]
            grad_scores[n] = (dot(grad[g], x[n]) + grad_weights[n]) * opened * (ONE - opened)
