"""The kernels themselves: plain loops over contiguous rows, compiled by numba when first called.

Nodes are sorted by graph (`ptr` says where each graph begins) and arcs by their ends, so that loops write one row after
the other, without scatter. The innermost loops run over channels and become vector instructions. All kernels are
serial: beside matrix products they are short, and a second pool of threads would fight with torch's.

Constants are float32, which leaves the type of float32 *and* float64 arrays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

ZERO = np.float32(0)
ONE = np.float32(1)

#: Sums may be reordered and fused (that is what vector instructions need), but NaN and infinity keep their meaning, so
#: that a training that diverges is seen to diverge. Compiled code is kept beside this file, or in the user's cache.
compiled: Callable[[Kernel], Kernel] = njit(  # type: ignore[assignment]
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"}
)


# ---- arcs --------------------------------------------------------------------------------------------------------


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
def collect(h: Array, edges: Array, kind: Array, factor: Array, start: Array, source: Array, arc: Array) -> Array:
    """`factor · h[n] + Σ relu(h[source] + edges[kind])` over the arcs into each node."""
    out = np.empty_like(h)
    channels = h.shape[1]
    by_kind = len(kind) > 0
    single = len(edges) == 1
    for n in range(len(h)):
        for c in range(channels):
            out[n, c] = factor[0] * h[n, c]
        for k in range(start[n], start[n + 1]):
            s = source[k]
            e = 0 if single else kind[arc[k]] if by_kind else arc[k]
            for c in range(channels):
                message = h[s, c] + edges[e, c]
                out[n, c] += ZERO if message < ZERO else message
    return out


@compiled
def collect_backward(
    grad: Array, h: Array, edges: Array, kind: Array, factor: Array, start: Array, target: Array, arc: Array
) -> tuple[Array, Array, float]:
    """The gradients of `collect` for `h`, `edges` and `factor`; here arcs are sorted by their sources."""
    grad_h = np.empty_like(h)
    grad_edges = np.zeros_like(edges)
    grad_factor = 0.0
    channels = h.shape[1]
    by_kind = len(kind) > 0
    single = len(edges) == 1
    for n in range(len(h)):
        product = h.dtype.type(0)
        for c in range(channels):
            product += grad[n, c] * h[n, c]
            grad_h[n, c] = factor[0] * grad[n, c]
        grad_factor += product
        for k in range(start[n], start[n + 1]):
            t = target[k]
            e = 0 if single else kind[arc[k]] if by_kind else arc[k]
            for c in range(channels):
                g = grad[t, c] if h[n, c] + edges[e, c] > ZERO else ZERO
                grad_h[n, c] += g
                grad_edges[e, c] += g
    return grad_h, grad_edges, grad_factor


# ---- what follows a message-passing layer ------------------------------------------------------------------------


@compiled
def activate(x: Array, relu: bool, words: Array, dropped: int, scale: float) -> tuple[Array, Array]:
    """Dropout of `x`, or of `relu(x)`, and which elements pass gradients on; without `words` nothing is dropped."""
    out = np.empty_like(x)
    passed = np.empty(x.shape, np.uint8)
    factor = x.dtype.type(scale)
    _activate_rows(x.reshape(-1), relu, words, dropped, factor, out.reshape(-1), passed.reshape(-1))
    return out, passed


@compiled
def _activate_rows(x: Array, relu: bool, words: Array, dropped: int, factor: float, out: Array, passed: Array) -> None:
    if len(words) == 0:
        for c in range(len(x)):
            value = ZERO if relu and x[c] < ZERO else x[c]
            out[c] = value
            passed[c] = (not relu) | (value > ZERO)
    else:
        for c in range(len(x)):
            value = ZERO if relu and x[c] < ZERO else x[c]
            kept = words[c] >= dropped
            out[c] = value * factor if kept else ZERO
            passed[c] = kept & ((not relu) | (value > ZERO))


@compiled
def activate_backward(grad: Array, passed: Array, scale: float) -> Array:
    """The gradient of `activate` for `x`."""
    out = np.empty_like(grad)
    factor = grad.dtype.type(scale)
    flat, flags, into = grad.reshape(-1), passed.reshape(-1), out.reshape(-1)
    for c in range(len(flat)):
        into[c] = flat[c] * factor if flags[c] else ZERO
    return out


@compiled
def normalise(
    x: Array,
    ptr: Array,
    weight: Array,
    bias: Array,
    mean_scale: Array,
    eps: float,
    relu: bool,
    words: Array,
    dropped: int,
    scale: float,
) -> tuple[Array, Array, Array, Array]:
    """GraphNorm, then as `activate`; also the mean `(B, c)` and 1 / deviation `(B, c)` of each graph."""
    channels = x.shape[1]
    out = np.empty_like(x)
    passed = np.empty(x.shape, np.uint8)
    mean = np.zeros((len(ptr) - 1, channels), x.dtype)
    inverse = np.zeros_like(mean)
    factor = x.dtype.type(scale)
    epsilon = x.dtype.type(eps)
    row = np.empty(channels, x.dtype)
    none = words[:0]
    for g in range(len(ptr) - 1):
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
            bits = words[n * channels : (n + 1) * channels] if len(words) > 0 else none
            _activate_rows(row, relu, bits, dropped, factor, out[n], passed[n])
    return out, passed, mean, inverse


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
) -> tuple[Array, Array, Array, Array]:
    """The gradients of `normalise` for `x`, `weight`, `bias` and `mean_scale`.

    With y = (x − αm)/s the normalised rows of one graph of n nodes and g what arrives before weight and bias, the
    gradient for x is r − α·mean(r), where r = weight/s · (g − y·mean(g·y)).
    """
    channels = x.shape[1]
    out = np.empty_like(x)
    grad_weight = np.zeros_like(weight)
    grad_bias = np.zeros_like(weight)
    grad_mean_scale = np.zeros_like(weight)
    factor = x.dtype.type(scale)
    sum_g = np.empty_like(weight)
    sum_gy = np.empty_like(weight)
    for i in range(len(ptr) - 1):
        first, last = ptr[i], ptr[i + 1]
        if first == last:
            continue
        share = ONE / x.dtype.type(last - first)
        sum_g[:] = ZERO
        sum_gy[:] = ZERO
        for n in range(first, last):
            for c in range(channels):
                g = grad[n, c] * factor if passed[n, c] else ZERO
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
    return out, grad_weight, grad_bias, grad_mean_scale


# ---- two-layer networks: what is not a matrix product --------------------------------------------------------------


@compiled
def add_relu(x: Array, bias: Array) -> None:
    """`relu(x + bias)` in place."""
    for n in range(len(x)):
        for c in range(x.shape[1]):
            value = x[n, c] + bias[c]
            x[n, c] = ZERO if value < ZERO else value


@compiled
def relu_backward(grad: Array, hidden: Array) -> Array:
    """Zero `grad`, in place, where `hidden` is not positive; return the sum of its rows."""
    total = np.zeros(grad.shape[1], grad.dtype)
    for n in range(len(grad)):
        for c in range(grad.shape[1]):
            g = grad[n, c] if hidden[n, c] > ZERO else ZERO
            grad[n, c] = g
            total[c] += g
    return total


@compiled
def score(x: Array, bias: Array, weight: Array, last_bias: Array) -> Array:
    """`relu(x + bias) · weight + last_bias` per row; `x` becomes `relu(x + bias)`."""
    out = np.empty(len(x), x.dtype)
    for n in range(len(x)):
        total = last_bias[0]
        for c in range(x.shape[1]):
            value = x[n, c] + bias[c]
            value = ZERO if value < ZERO else value
            x[n, c] = value
            total += value * weight[c]
        out[n] = total
    return out


@compiled
def score_backward(grad: Array, hidden: Array, weight: Array) -> tuple[Array, Array, Array]:
    """The gradients of `score` for `x`, `bias` and `weight`."""
    out = np.empty_like(hidden)
    grad_bias = np.zeros_like(weight)
    grad_weight = np.zeros_like(weight)
    for n in range(len(hidden)):
        for c in range(hidden.shape[1]):
            g = grad[n] * weight[c] if hidden[n, c] > ZERO else ZERO
            out[n, c] = g
            grad_bias[c] += g
            grad_weight[c] += grad[n] * hidden[n, c]
    return out, grad_bias, grad_weight


# ---- attention ---------------------------------------------------------------------------------------------------


@compiled
def attend(x: Array, scores: Array, ptr: Array) -> tuple[Array, Array]:
    """The softmax of the scores within each graph, and the mean of its rows weighted by it."""
    pooled = np.zeros((len(ptr) - 1, x.shape[1]), x.dtype)
    attention = np.empty_like(scores)
    for g in range(len(ptr) - 1):
        first, last = ptr[g], ptr[g + 1]
        if first == last:
            continue
        largest = scores[first]
        for n in range(first + 1, last):
            largest = max(largest, scores[n])
        total = x.dtype.type(0)
        for n in range(first, last):
            attention[n] = np.exp(scores[n] - largest)
            total += attention[n]
        for n in range(first, last):
            attention[n] /= total
            for c in range(x.shape[1]):
                pooled[g, c] += attention[n] * x[n, c]
    return pooled, attention


@compiled
def attend_backward(grad: Array, grad_attention: Array, x: Array, attention: Array, ptr: Array) -> tuple[Array, Array]:
    """The gradients of `attend` for `x` and the scores."""
    out = np.empty_like(x)
    grad_scores = np.empty_like(attention)
    for g in range(len(ptr) - 1):
        mean = x.dtype.type(0)
        for n in range(ptr[g], ptr[g + 1]):
            product = x.dtype.type(0)
            for c in range(x.shape[1]):
                product += grad[g, c] * x[n, c]
                out[n, c] = attention[n] * grad[g, c]
            grad_scores[n] = product + grad_attention[n]
            mean += attention[n] * grad_scores[n]
        for n in range(ptr[g], ptr[g + 1]):
            grad_scores[n] = attention[n] * (grad_scores[n] - mean)
    return out, grad_scores
