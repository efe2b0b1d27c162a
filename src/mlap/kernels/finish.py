"""What follows a message-passing layer: GraphNorm or BatchNorm, ReLU, dropout, in one pass over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mlap.kernels.loops import (
    ONE,
    ZERO,
    Array,
    apply,
    array,
    arrays,
    compiled,
    first_order,
    graphs_between,
    sum_of,
    tensor,
)
from mlap.kernels.threads import fork, threads_for


class Finish(NamedTuple):
    """What follows a layer: GraphNorm or BatchNorm if there is one, ReLU if wanted, dropout.

    Args:
        relu: whether ReLU is wanted.
        draw: what is dropped, see `mlap.nn.dropout.Draw`.
        norm: weight, bias and mean scale of GraphNorm, or weight and bias of BatchNorm; empty if there is none.
        norm_eps: its ε.
        batch_norm: the module of BatchNorm, in training, whose running statistics follow.
    """

    relu: bool = False
    draw: tuple[int, int, float] = (0, 0, 1.0)
    norm: Sequence[Tensor] = ()
    norm_eps: float = 0.0
    batch_norm: nn.BatchNorm1d | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether all stays as it is."""
        return not (self.norm or self.relu or self.draw[1])


def finish(x: Tensor, how: Finish, ptr: Tensor | None = None) -> Tensor:
    """What follows a layer that returned nodes `x` `(N, c)`; GraphNorm needs to know where each graph's begin."""
    result: Tensor = x if how.is_nothing else apply(_Finish, how, ptr, x, *how.norm)
    return result


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: Finish, ptr: Tensor | None, x: Tensor, *norm: Tensor) -> Tensor:
        out, kept = finish_forward(x, how, ptr)
        ctx.how, ctx.ptr = how, ptr
        ctx.save_for_backward(*norm, *kept)
        return out

    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kept = ctx.saved_tensors[len(ctx.how.norm) :]
        grad_x, grad_norm = finish_backward(grad, kept, ctx.how, ctx.ptr)
        return None, None, grad_x, *grad_norm


def finish_forward(x: Tensor, how: Finish, ptr: Tensor | None) -> tuple[Tensor, Sequence[Tensor]]:
    """What follows a layer, and what its gradient needs."""
    if how.is_nothing:
        return x, ()
    threads = threads_for(x.numel())
    if not how.norm:
        out, passed = map(tensor, activate(array(x), how.relu, *how.draw, threads))
        return out, (passed,)
    if how.batch_norm is not None:
        given = arrays(x, *how.norm)
        out, passed, mean, inverse, variance = map(
            tensor, normalise_batch(*given, how.norm_eps, how.relu, *how.draw, threads)
        )
        _follow(how.batch_norm, mean, variance, len(x))
        return out, (x, passed, mean, inverse)
    assert ptr is not None
    given = arrays(x, ptr, *how.norm)
    out, *known = map(tensor, normalise(*given, how.norm_eps, how.relu, *how.draw, threads))
    return out, (x, *known)


def finish_backward(
    grad: Tensor, kept: Sequence[Tensor], how: Finish, ptr: Tensor | None
) -> tuple[Tensor, Sequence[Tensor]]:
    """The gradients for `x`, and for what the normalisation has learned."""
    if how.is_nothing:
        return grad, ()
    threads = threads_for(grad.numel())
    scale = how.draw[2]
    if not how.norm:
        return tensor(activate_backward(*arrays(grad, *kept), scale, threads)), ()
    if how.batch_norm is not None:
        grad_x, learned = map(tensor, normalise_batch_backward(*arrays(grad, *kept, how.norm[0]), scale, threads))
        return grad_x, learned.unbind()
    assert ptr is not None
    weight, _, mean_scale = how.norm
    given = arrays(grad, *kept, ptr, weight, mean_scale)
    grad_x, learned = map(tensor, normalise_backward(*given, scale, threads))
    return grad_x, learned.unbind()


def _follow(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor, rows: int) -> None:
    """Move the running statistics of BatchNorm as torch does; the variance of a batch is the biased one."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.num_batches_tracked += 1
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (rows / (rows - 1)), norm.momentum)


@compiled
def activate(x: Array, relu: bool, seed: int, dropped: int, scale: float, threads: int) -> tuple[Array, Array]:
    """Dropout of `x`, or of `relu(x)`, and which elements pass gradients on."""
    out = np.empty_like(x)
    passed = np.empty(x.shape, np.uint8)
    factor = x.dtype.type(scale)
    flat = x.reshape(-1)
    fork(_activate, len(flat), threads, (flat, relu, seed, dropped, factor, out.reshape(-1), passed.reshape(-1)))
    return out, passed


@compiled
def _activate(
    part: int,
    first: int,
    last: int,
    x: Array,
    relu: bool,
    seed: int,
    dropped: int,
    factor: float,
    out: Array,
    passed: Array,
) -> None:
    _activate_row(x[first:last], relu, first, seed, dropped, factor, out[first:last], passed[first:last])


@compiled
def _activate_row(
    x: Array, relu: bool, number: int, seed: int, dropped: int, factor: float, out: Array, passed: Array
) -> None:
    """`activate` for elements of which the first has a number; those whose sixteen random bits are small are dropped.

    The bits are a hash of the element's number and the seed, the same as in `mlap.nn.dropout`.
    """
    if dropped == 0:
        for c in range(len(x)):
            value = ZERO if relu and x[c] < ZERO else x[c]
            out[c] = value
            passed[c] = (not relu) | (value > ZERO)
        return
    low = np.uint32(seed & 0xFFFFFFFF)
    high = np.uint32(seed >> 32)
    for c in range(len(x)):
        bits = np.uint32(np.uint32(np.uint32(number + c) * np.uint32(0x9E3779B1)) + low)
        bits = np.uint32((bits ^ (bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)) ^ high
        bits = np.uint32((bits ^ (bits >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        kept = np.int32(bits >> np.uint32(16)) >= np.int32(dropped)
        value = ZERO if relu and x[c] < ZERO else x[c]
        out[c] = value * factor if kept else ZERO
        passed[c] = kept & ((not relu) | (value > ZERO))


@compiled
def activate_backward(grad: Array, passed: Array, scale: float, threads: int) -> Array:
    """The gradient of `activate` for `x`."""
    out = np.empty_like(grad)
    factor = grad.dtype.type(scale)
    flat = grad.reshape(-1)
    fork(_activate_backward, len(flat), threads, (flat, passed.reshape(-1), factor, out.reshape(-1)))
    return out


@compiled
def _activate_backward(part: int, first: int, last: int, grad: Array, passed: Array, factor: float, out: Array) -> None:
    grad, passed, out = grad[first:last], passed[first:last], out[first:last]
    for c in range(len(grad)):
        g = grad[c] * factor
        out[c] = g if passed[c] else ZERO


@compiled
def normalise(
    x: Array,
    ptr: Array,
    weight: Array,
    bias: Array,
    mean_scale: Array,
    eps: float,
    relu: bool,
    seed: int,
    dropped: int,
    scale: float,
    threads: int,
) -> tuple[Array, Array, Array, Array]:
    """GraphNorm, then as `activate`; also the mean `(B, c)` and 1 / deviation `(B, c)` of each graph."""
    out = np.empty_like(x)
    passed = np.empty(x.shape, np.uint8)
    mean = np.zeros((len(ptr) - 1, x.shape[1]), x.dtype)
    inverse = np.zeros_like(mean)
    factor = x.dtype.type(scale)
    epsilon = x.dtype.type(eps)
    fork(
        _normalise,
        len(x),
        threads,
        (x, ptr, weight, bias, mean_scale, epsilon, relu, seed, dropped, factor, out, passed, mean, inverse),
    )
    return out, passed, mean, inverse


@compiled
def _normalise(
    part: int,
    first_node: int,
    last_node: int,
    x: Array,
    ptr: Array,
    weight: Array,
    bias: Array,
    mean_scale: Array,
    epsilon: float,
    relu: bool,
    seed: int,
    dropped: int,
    factor: float,
    out: Array,
    passed: Array,
    mean: Array,
    inverse: Array,
) -> None:
    channels = x.shape[1]
    row = np.empty(channels, x.dtype)
    for g in range(*graphs_between(ptr, first_node, last_node)):
        first, last = ptr[g], ptr[g + 1]
        if first == last:
            continue
        share = ONE / x.dtype.type(last - first)
        for n in range(first, last):
            for c in range(channels):
                mean[g, c] += x[n, c]
        for c in range(channels):
            mean[g, c] *= share
        for n in range(first, last):
            for c in range(channels):
                away = x[n, c] - mean_scale[c] * mean[g, c]
                inverse[g, c] += away * away
        for c in range(channels):
            inverse[g, c] = ONE / np.sqrt(inverse[g, c] * share + epsilon)
        for n in range(first, last):
            for c in range(channels):
                row[c] = weight[c] * ((x[n, c] - mean_scale[c] * mean[g, c]) * inverse[g, c]) + bias[c]
            _activate_row(row, relu, n * channels, seed, dropped, factor, out[n], passed[n])


@compiled
def normalise_backward(
    grad: Array,
    x: Array,
    passed: Array,
    mean: Array,
    inverse: Array,
    ptr: Array,
    weight: Array,
    mean_scale: Array,
    scale: float,
    threads: int,
) -> tuple[Array, Array]:
    """The gradients of `normalise`: for `x`, and, as three rows, for `weight`, `bias` and `mean_scale`.

    With y = (x − αm)/s the normalised rows of one graph of n nodes and g what arrives before weight and bias, the
    gradient for x is r − α·mean(r), where r = weight/s · (g − y·mean(g·y)).
    """
    out = np.empty_like(x)
    learned = np.zeros((threads, 3, x.shape[1]), x.dtype)
    factor = x.dtype.type(scale)
    fork(
        _normalise_backward,
        len(x),
        threads,
        (grad, x, passed, mean, inverse, ptr, weight, mean_scale, factor, out, learned),
    )
    return out, sum_of(learned)


@compiled
def _normalise_backward(
    part: int,
    first_node: int,
    last_node: int,
    grad: Array,
    x: Array,
    passed: Array,
    mean: Array,
    inverse: Array,
    ptr: Array,
    weight: Array,
    mean_scale: Array,
    factor: float,
    out: Array,
    learned: Array,
) -> None:
    channels = x.shape[1]
    grad_weight, grad_bias, grad_mean_scale = learned[part, 0], learned[part, 1], learned[part, 2]
    sum_g = np.empty_like(weight)
    sum_gy = np.empty_like(weight)
    for i in range(*graphs_between(ptr, first_node, last_node)):
        first, last = ptr[i], ptr[i + 1]
        if first == last:
            continue
        share = ONE / x.dtype.type(last - first)
        sum_g[:] = ZERO
        sum_gy[:] = ZERO
        for n in range(first, last):
            for c in range(channels):
                g = grad[n, c] * factor
                g = g if passed[n, c] else ZERO
                y = (x[n, c] - mean_scale[c] * mean[i, c]) * inverse[i, c]
                out[n, c] = g
                sum_g[c] += g
                sum_gy[c] += g * y
        for c in range(channels):
            grad_bias[c] += sum_g[c]
            grad_weight[c] += sum_gy[c]
            # the sum of y over the graph is n·m(1 − α)/s: zero while α is one
            sum_y = mean[i, c] * (ONE - mean_scale[c]) * inverse[i, c]
            sum_r = weight[c] * inverse[i, c] * (sum_g[c] - sum_y * sum_gy[c])
            grad_mean_scale[c] -= mean[i, c] * sum_r
            sum_g[c] = sum_r * mean_scale[c] * share
            sum_gy[c] *= share
        for n in range(first, last):
            for c in range(channels):
                y = (x[n, c] - mean_scale[c] * mean[i, c]) * inverse[i, c]
                out[n, c] = weight[c] * inverse[i, c] * (out[n, c] - y * sum_gy[c]) - sum_g[c]


@compiled
def normalise_batch(
    x: Array,
    weight: Array,
    bias: Array,
    eps: float,
    relu: bool,
    seed: int,
    dropped: int,
    scale: float,
    threads: int,
) -> tuple[Array, Array, Array, Array, Array]:
    """BatchNorm, then as `activate`; also the mean, 1 / deviation and the variance of all rows `(c,)`."""
    totals = np.zeros((threads, x.shape[1]), x.dtype)
    fork(_add_rows, len(x), threads, (x, totals))
    share = ONE / x.dtype.type(len(x))
    mean = sum_of(totals) * share
    squares = np.zeros((threads, x.shape[1]), x.dtype)
    fork(_add_squares, len(x), threads, (x, mean, squares))
    variance = sum_of(squares) * share
    inverse = ONE / np.sqrt(variance + x.dtype.type(eps))
    out = np.empty_like(x)
    passed = np.empty(x.shape, np.uint8)
    factor = x.dtype.type(scale)
    fork(
        _normalise_batch,
        len(x),
        threads,
        (x, mean, inverse, weight, bias, relu, seed, dropped, factor, out, passed),
    )
    return out, passed, mean, inverse, variance


@compiled
def _add_rows(part: int, first: int, last: int, x: Array, totals: Array) -> None:
    mine = totals[part]
    for n in range(first, last):
        for c in range(x.shape[1]):
            mine[c] += x[n, c]


@compiled
def _add_squares(part: int, first: int, last: int, x: Array, mean: Array, totals: Array) -> None:
    mine = totals[part]
    for n in range(first, last):
        for c in range(x.shape[1]):
            away = x[n, c] - mean[c]
            mine[c] += away * away


@compiled
def _normalise_batch(
    part: int,
    first: int,
    last: int,
    x: Array,
    mean: Array,
    inverse: Array,
    weight: Array,
    bias: Array,
    relu: bool,
    seed: int,
    dropped: int,
    factor: float,
    out: Array,
    passed: Array,
) -> None:
    channels = x.shape[1]
    row = np.empty(channels, x.dtype)
    for n in range(first, last):
        for c in range(channels):
            row[c] = weight[c] * ((x[n, c] - mean[c]) * inverse[c]) + bias[c]
        _activate_row(row, relu, n * channels, seed, dropped, factor, out[n], passed[n])


@compiled
def normalise_batch_backward(
    grad: Array, x: Array, passed: Array, mean: Array, inverse: Array, weight: Array, scale: float, threads: int
) -> tuple[Array, Array]:
    """The gradients of `normalise_batch`: for `x`, and, as two rows, for `weight` and `bias`.

    With y the normalised rows and g what arrives before weight and bias, the gradient for x is
    weight/s · (g − mean(g) − y·mean(g·y)).
    """
    out = np.empty_like(x)
    sums = np.zeros((threads, 2, x.shape[1]), x.dtype)
    factor = x.dtype.type(scale)
    fork(_batch_sums, len(x), threads, (grad, x, passed, mean, inverse, factor, out, sums))
    learned = sum_of(sums)
    means = learned * (ONE / x.dtype.type(len(x)))
    fork(_batch_backward, len(x), threads, (x, mean, inverse, weight, means, out))
    return out, learned


@compiled
def _batch_sums(
    part: int,
    first: int,
    last: int,
    grad: Array,
    x: Array,
    passed: Array,
    mean: Array,
    inverse: Array,
    factor: float,
    out: Array,
    sums: Array,
) -> None:
    sum_gy, sum_g = sums[part, 0], sums[part, 1]
    for n in range(first, last):
        for c in range(x.shape[1]):
            g = grad[n, c] * factor
            g = g if passed[n, c] else ZERO
            out[n, c] = g
            sum_g[c] += g
            sum_gy[c] += g * ((x[n, c] - mean[c]) * inverse[c])


@compiled
def _batch_backward(
    part: int, first: int, last: int, x: Array, mean: Array, inverse: Array, weight: Array, means: Array, out: Array
) -> None:
    mean_gy, mean_g = means[0], means[1]
    for n in range(first, last):
        for c in range(x.shape[1]):
            y = (x[n, c] - mean[c]) * inverse[c]
            out[n, c] = weight[c] * inverse[c] * (out[n, c] - mean_g[c] - y * mean_gy[c])
