"""The kernels themselves: plain loops over contiguous rows, compiled by numba when first called.

Nodes are sorted by graph (`ptr` says where each graph begins) and arcs by their ends, so that loops write one row after
the other, without scatter. The innermost loops run over channels and become vector instructions: they count from 0
(numba looks at every other index, whether it is negative) and mostly load what they need whether or not they use it.

The rows are shared out among `threads` threads of torch's own (see `mlap.kernels.pool`): the function whose name begins
with an underscore is what each of them does with its part. Sums over all rows are kept per part and added up then.

A loop that writes is compiled twice, and which of the two runs, the one of vector instructions or the plain one,
depends on how near to each other its arrays lie in memory. So that results do not depend on it, arithmetic is done to
the letter (nothing is reordered or fused), except in loops that only add up, `dot` and `total_of`, which write nothing.

Constants are float32, which leaves the type of float32 *and* float64 arrays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from mlap.kernels.pool import fork

Array = np.ndarray[Any, Any]

ZERO = np.float32(0)
ONE = np.float32(1)

#: Compiled code is kept beside this file, or in the user's cache.
compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(cache=True, nogil=True, error_model="numpy")
#: Sums may be reordered and fused (that is what vector instructions need), but NaN and infinity keep their meaning, so
#: that a training that diverges is seen to diverge.
adding_up: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}
)


@adding_up
def dot(row: Array, other: Array) -> Any:
    """The sum of the products of two rows."""
    total = row.dtype.type(0)
    for c in range(len(row)):
        total += row[c] * other[c]
    return total


@adding_up
def total_of(row: Array) -> Any:
    """The sum of a row."""
    total = row.dtype.type(0)
    for c in range(len(row)):
        total += row[c]
    return total


@compiled
def sum_of(parts: Array) -> Array:
    """The sum of what the parts have, in the place of the first."""
    for part in range(1, len(parts)):
        parts[0] += parts[part]
    first: Array = parts[0]
    return first


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


# ---- what follows a message-passing layer ------------------------------------------------------------------------


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
def graphs_between(ptr: Array, first: int, last: int) -> tuple[int, int]:
    """Which graphs begin at the nodes `range(first, last)`: the share of a thread that has these nodes."""
    return np.searchsorted(ptr[:-1], first), np.searchsorted(ptr[:-1], last)  # type: ignore[return-value]


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


# ---- two-layer networks: what is not a matrix product --------------------------------------------------------------


@compiled
def add_relu(x: Array, bias: Array, threads: int) -> None:
    """`relu(x + bias)` in place."""
    fork(_add_relu, len(x), threads, (x, bias))


@compiled
def _add_relu(part: int, first: int, last: int, x: Array, bias: Array) -> None:
    for n in range(first, last):
        for c in range(x.shape[1]):
            value = x[n, c] + bias[c]
            x[n, c] = ZERO if value < ZERO else value


@compiled
def relu_backward(grad: Array, hidden: Array, threads: int) -> Array:
    """Zero `grad`, in place, where `hidden` is not positive; return the sum of its rows."""
    total = np.zeros((threads, grad.shape[1]), grad.dtype)
    fork(_relu_backward, len(grad), threads, (grad, hidden, total))
    whole: Array = sum_of(total)
    return whole


@compiled
def _relu_backward(part: int, first: int, last: int, grad: Array, hidden: Array, total: Array) -> None:
    mine = total[part]
    for n in range(first, last):
        for c in range(grad.shape[1]):
            g = grad[n, c] if hidden[n, c] > ZERO else ZERO
            grad[n, c] = g
            mine[c] += g


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


# ---- the largest of several -----------------------------------------------------------------------------------------


@compiled
def raise_to(largest: Array, which: Array, x: Array, number: int, threads: int) -> None:
    """Where `x` is larger than `largest`, or not a number, put it there, in place, and its number into `which`."""
    flat = largest.reshape(-1)
    fork(_raise_to, len(flat), threads, (flat, which.reshape(-1), x.reshape(-1), np.uint8(number)))


@compiled
def _raise_to(part: int, first: int, last: int, largest: Array, which: Array, x: Array, number: int) -> None:
    largest, which, x = largest[first:last], which[first:last], x[first:last]
    for c in range(len(x)):
        value, before, owner = x[c], largest[c], which[c]
        replace = (value > before) | (value != value)
        largest[c] = value if replace else before
        which[c] = number if replace else owner


@compiled
def where_from(grad: Array, which: Array, number: int, threads: int) -> Array:
    """`grad` where `which` is a number, and zero elsewhere: the gradient of `raise_to` for its `x`."""
    out = np.empty_like(grad)
    flat = grad.reshape(-1)
    fork(_where_from, len(flat), threads, (flat, which.reshape(-1), np.uint8(number), out.reshape(-1)))
    return out


@compiled
def _where_from(part: int, first: int, last: int, grad: Array, which: Array, number: int, out: Array) -> None:
    grad, which, out = grad[first:last], which[first:last], out[first:last]
    for c in range(len(grad)):
        g = grad[c]
        out[c] = g if which[c] == number else ZERO


# ---- a step of an LSTM --------------------------------------------------------------------------------------------


@compiled
def cell_backward(
    grad_out: Array, grad_cell: Array, gates: Array, before: Array, activated: Array, threads: int
) -> Array:
    """The gradient of a step for what goes into its gates, and, in place of `grad_cell`, for the cell before it.

    The step is cell = input · candidate + forget · before, out = output · tanh(cell).

    Args:
        grad_out: what arrives at the step's output `(N, H)`.
        grad_cell: what arrives at its cell from the next step `(N, H)`.
        gates: forget, input, candidate and output `(N, 4H)`; in a first step, which has nothing to forget, `(N, 3H)`.
        before: the cell before it `(N, H)`; unused in a first step.
        activated: tanh(cell) `(N, H)`.
        threads: the number of threads.
    """
    out = np.empty_like(gates)
    fork(_cell_backward, len(gates), threads, (grad_out, grad_cell, gates, before, activated, out))
    return out


@compiled
def _cell_backward(
    part: int,
    first: int,
    last: int,
    grad_out: Array,
    grad_cell: Array,
    gates: Array,
    before: Array,
    activated: Array,
    out: Array,
) -> None:
    width = grad_out.shape[1]
    forgotten = gates.shape[1] - 3 * width
    for n in range(first, last):
        enter, candidate, leave = gates[n, forgotten : -2 * width], gates[n, -2 * width : -width], gates[n, -width:]
        to_enter, to_candidate, to_leave = out[n, forgotten : -2 * width], out[n, -2 * width : -width], out[n, -width:]
        for c in range(width):
            g, t = grad_out[n, c], activated[n, c]
            grad = grad_cell[n, c] + g * leave[c] * (ONE - t * t)
            to_enter[c] = grad * candidate[c] * enter[c] * (ONE - enter[c])
            to_candidate[c] = grad * enter[c] * (ONE - candidate[c] * candidate[c])
            to_leave[c] = g * t * leave[c] * (ONE - leave[c])
            grad_cell[n, c] = grad
        for c in range(forgotten):
            forget = gates[n, c]
            out[n, c] = grad_cell[n, c] * before[n, c] * forget * (ONE - forget)
            grad_cell[n, c] *= forget


# ---- attention ---------------------------------------------------------------------------------------------------


@compiled
def attend(x: Array, scores: Array, ptr: Array, threads: int) -> tuple[Array, Array]:
    """The softmax of the scores within each graph, and the mean of its rows weighted by it."""
    pooled = np.zeros((len(ptr) - 1, x.shape[1]), x.dtype)
    attention = np.empty_like(scores)
    fork(_attend, len(x), threads, (x, scores, ptr, pooled, attention))
    return pooled, attention


@compiled
def _attend(
    part: int, first_node: int, last_node: int, x: Array, scores: Array, ptr: Array, pooled: Array, attention: Array
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
        for n in range(first, last):
            share = attention[n] / total
            attention[n] = share
            for c in range(x.shape[1]):
                pooled[g, c] += share * x[n, c]


@compiled
def attend_backward(
    grad: Array, grad_attention: Array, x: Array, attention: Array, ptr: Array, threads: int
) -> tuple[Array, Array]:
    """The gradients of `attend` for `x` and the scores."""
    out = np.empty_like(x)
    grad_scores = np.empty_like(attention)
    fork(_attend_backward, len(x), threads, (grad, grad_attention, x, attention, ptr, out, grad_scores))
    return out, grad_scores


@compiled
def _attend_backward(
    part: int,
    first_node: int,
    last_node: int,
    grad: Array,
    grad_attention: Array,
    x: Array,
    attention: Array,
    ptr: Array,
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
        for n in range(ptr[g], ptr[g + 1]):
            grad_scores[n] = attention[n] * (grad_scores[n] - mean)


# ---- equal rows --------------------------------------------------------------------------------------------------


@compiled
def equal_rows(words: Array, threads: int) -> tuple[Array, Array]:
    """The first row `(K,)` of each kind of equal rows of 32-bit words, and the kind of every row `(N,)`."""
    hashes = np.empty(len(words), np.uint32)
    fork(_hash_rows, len(words), threads, (words, hashes))
    size = 2
    while size < 2 * len(words):
        size *= 2
    table = np.full(size, -1)  # at the place of a kind's hash, or the next free one: the kind
    first = np.empty(len(words), np.int64)
    kind = np.empty(len(words), np.int64)
    kinds = 0
    for n in range(len(words)):
        place = hashes[n] & (size - 1)
        while table[place] >= 0 and not _equal(words[first[table[place]]], words[n]):
            place = (place + 1) & (size - 1)
        if table[place] < 0:
            table[place] = kinds
            first[kinds] = n
            kinds += 1
        kind[n] = table[place]
    return first[:kinds], kind


@compiled
def _hash_rows(part: int, first: int, last: int, words: Array, hashes: Array) -> None:
    for n in range(first, last):
        total = np.uint32(0)
        for c in range(words.shape[1]):
            mixed = np.uint32(np.uint32(words[n, c] ^ np.uint32(words[n, c] >> np.uint32(15))) * np.uint32(0x85EBCA6B))
            total = np.uint32(total + np.uint32(mixed * np.uint32(np.uint32(c) * np.uint32(0x9E3779B2) + np.uint32(1))))
        hashes[n] = total ^ np.uint32(total >> np.uint32(16))


@compiled
def _equal(row: Array, other: Array) -> bool:
    differences = np.uint32(0)
    for c in range(len(row)):
        differences |= row[c] ^ other[c]
    return bool(differences == 0)
