"""The kernels as differentiable functions of tensors, and the matrix products that belong between them.

Each saves for its backward pass only what it cannot cheaply compute again. Import this module only where
`mlap.kernels.usable` holds: it needs numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mlap.kernels import WORTH_SHARING, compiled
from mlap.kernels.pool import threads_for

Array = NDArray[Any]
NO_KIND = np.empty(0, np.int64)


class SortedArcs:
    """Arcs sorted by the nodes at their ends, once for all layers.

    Args:
        edge_index: `(2, arcs)`, sources and targets.
        num_nodes: the number of nodes.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.source, self.target = _array(edge_index)
        self.num_nodes = num_nodes
        self.all_nodes = np.arange(num_nodes)

    @cached_property
    def into(self) -> Any:
        """The arcs into each node: see `compiled.sort_arcs`."""
        return compiled.sort_arcs(self.target, self.source, self.num_nodes)

    @cached_property
    def out_of(self) -> Any:
        """The arcs out of each node."""
        return compiled.sort_arcs(self.source, self.target, self.num_nodes)


def gin(
    h: Tensor,
    edges: Tensor,
    kind: Tensor | None,
    eps: Tensor,
    arcs: SortedArcs,
    nodes: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    last_weight: Tensor,
    last_bias: Tensor,
) -> Tensor:
    """Linear – ReLU – Linear of `(1 + eps) h[n] + Σ relu(h[source] + edges[kind])` over the arcs into node n.

    Args:
        h: the nodes `(N, c)`.
        edges: one row for all arcs, one for each, or one for each kind of arc.
        kind: the kind of each arc, in the last case.
        eps: a scalar.
        arcs: the arcs.
        nodes: the nodes n for which this is wanted, each once; all unless given.
        weight: the first layer's weight; the others follow.
        bias: its bias.
        last_weight: the second layer's weight.
        last_bias: its bias.
    """
    result: Tensor = _apply(_Gin, h, edges, kind, 1 + eps, arcs, nodes, weight, bias, last_weight, last_bias)
    return result


class _Gin(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        edges: Tensor,
        kind: Tensor | None,
        factor: Tensor,
        arcs: SortedArcs,
        nodes: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        last_weight: Tensor,
        last_bias: Tensor,
    ) -> Tensor:
        ctx.arcs = arcs
        ctx.kind = NO_KIND if kind is None else _array(kind)
        ctx.nodes = arcs.all_nodes if nodes is None else _array(nodes)
        rows, vectors, scalar = _arrays(h, edges, factor.reshape(1))
        collected = _tensor(
            compiled.collect(rows, vectors, ctx.kind, scalar, ctx.nodes, *arcs.into, threads_for(h.numel()))
        )
        hidden, out = _two_layers(collected, weight, bias, last_weight, last_bias)
        ctx.save_for_backward(h, edges, factor, collected, hidden, weight, last_weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, edges, factor, collected, hidden, weight, last_weight = ctx.saved_tensors
        grad_hidden, *grads = _two_layers_backward(grad, collected, hidden, last_weight)
        grad_collected, rows, vectors, scalar = _arrays(grad_hidden @ weight, h, edges, factor.reshape(1))
        grad_h, grad_edges, grad_factor = compiled.collect_backward(
            grad_collected, rows, vectors, ctx.kind, scalar, ctx.nodes, *ctx.arcs.out_of, threads_for(h.numel())
        )
        return _tensor(grad_h), _tensor(grad_edges), None, factor.new_tensor(grad_factor), None, None, *grads


def activate(x: Tensor, relu: bool, seed: int, dropped: int, scale: float) -> Tensor:
    """Dropout of `x`, or of `relu(x)`.

    Args:
        x: any tensor.
        relu: whether ReLU comes first.
        seed: what random bits are made of, sixteen per element.
        dropped: an element whose bits, as a number, are smaller than this is dropped.
        scale: what the others are multiplied by.
    """
    result: Tensor = _apply(_Activate, x, relu, seed, dropped, scale)
    return result


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, relu: bool, seed: int, dropped: int, scale: float) -> Tensor:
        ctx.scale = scale
        out, ctx.passed = compiled.activate(_array(x), relu, seed, dropped, scale, threads_for(x.numel()))
        return _tensor(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_x = compiled.activate_backward(_array(grad), ctx.passed, ctx.scale, threads_for(grad.numel()))
        return _tensor(grad_x), None, None, None, None


def normalise(
    x: Tensor,
    ptr: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean_scale: Tensor,
    eps: float,
    relu: bool,
    seed: int,
    dropped: int,
    scale: float,
) -> Tensor:
    """GraphNorm of nodes `x` `(N, c)` sorted by graph, followed by ReLU if wanted and dropout: see `activate`."""
    result: Tensor = _apply(_Normalise, x, ptr, weight, bias, mean_scale, eps, relu, seed, dropped, scale)
    return result


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        ptr: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean_scale: Tensor,
        eps: float,
        relu: bool,
        seed: int,
        dropped: int,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(x, ptr, weight, mean_scale)
        ctx.scale = scale
        out, ctx.passed, ctx.mean, ctx.inverse = compiled.normalise(
            *_arrays(x, ptr, weight, bias, mean_scale), eps, relu, seed, dropped, scale, threads_for(x.numel())
        )
        return _tensor(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, ptr, weight, mean_scale = _arrays(*ctx.saved_tensors)
        grad_x, learned = compiled.normalise_backward(
            _array(grad), x, ctx.passed, ctx.mean, ctx.inverse, ptr, weight, mean_scale, ctx.scale, threads_for(x.size)
        )
        return _tensor(grad_x), None, *_tensor(learned).unbind(), None, None, None, None, None


def two_layers(x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor) -> Tensor:
    """Linear – ReLU – Linear."""
    result: Tensor = _apply(_TwoLayers, x, weight, bias, last_weight, last_bias)
    return result


class _TwoLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor) -> Tensor:
        hidden, out = _two_layers(x, weight, bias, last_weight, last_bias)
        ctx.save_for_backward(x, hidden, weight, last_weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, weight, last_weight = ctx.saved_tensors
        grad_hidden, *grads = _two_layers_backward(grad, x, hidden, last_weight)
        return (grad_hidden @ weight if ctx.needs_input_grad[0] else None), *grads


def _two_layers(
    x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor
) -> tuple[Tensor, Tensor]:
    """What is between the two layers, and what follows them."""
    hidden = F.linear(x, weight)
    compiled.add_relu(_array(hidden), _array(bias), threads_for(hidden.numel()))
    return hidden, F.linear(hidden, last_weight, last_bias)


def _two_layers_backward(grad: Tensor, x: Tensor, hidden: Tensor, last_weight: Tensor) -> tuple[Tensor, ...]:
    """The gradients for the output of the first layer, and for weights and biases in order."""
    grad_hidden = grad @ last_weight
    grad_bias = compiled.relu_backward(_array(grad_hidden), _array(hidden), threads_for(hidden.numel()))
    return grad_hidden, grad_hidden.t() @ x, _tensor(grad_bias), grad.t() @ hidden, grad.sum(0)


def largest(tensors: Sequence[Tensor]) -> Tensor:
    """The largest of up to 256 tensors of one shape, element by element; of equal ones the first has the gradient."""
    result: Tensor = _apply(_Largest, *tensors)
    return result


class _Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, *others: Tensor) -> Tensor:
        out = _array(first).copy()
        ctx.which = np.zeros(out.shape, np.uint8)
        threads = threads_for(out.size)
        for number, other in enumerate(others, 1):
            compiled.raise_to(out, ctx.which, _array(other), number, threads)
        return _tensor(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        threads = threads_for(grad.numel())
        return tuple(
            _tensor(compiled.where_from(_array(grad), ctx.which, number, threads)) if needed else None
            for number, needed in enumerate(ctx.needs_input_grad)
        )


def attend(
    x: Tensor, ptr: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention pooling of nodes `(N, c)` sorted by graph: the graphs `(B, c)` and the attention `(N,)`.

    The other arguments are the weights of the gate, Linear – ReLU – Linear(1).
    """
    if torch.is_grad_enabled():
        pooled, attention = _apply(_Attend, x, ptr, weight, bias, last_weight, last_bias)
        return pooled, attention
    scores = once_per_kind(lambda rows: _scores(rows, weight, bias, last_weight, last_bias)[1], x)
    return _pooled(x, scores, ptr)


def once_per_kind(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function of every row of `x`, which is given equal rows once only where there are many.

    Without gradients: those of equal rows would all be given to one of them.
    """
    first, kind = map(_tensor, compiled.equal_rows(_array(x).view(np.uint32), threads_for(x.numel())))
    if len(first) > WORTH_SHARING * len(x):
        return function(x)
    return function(x.index_select(0, first)).index_select(0, kind)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ptr: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        hidden, scores = _scores(x, weight, bias, last_weight, last_bias)
        pooled, attention = _pooled(x, scores, ptr)
        ctx.save_for_backward(x, ptr, weight, last_weight, hidden, attention)
        return pooled, attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_attention: Tensor) -> tuple[Tensor | None, ...]:
        x, ptr, weight, last_weight, hidden, attention = ctx.saved_tensors
        threads = threads_for(x.numel())
        arrays = _arrays(grad, grad_attention, x, attention, ptr)
        grad_x, grad_scores = map(_tensor, compiled.attend_backward(*arrays, threads))
        arrays = _arrays(grad_scores, hidden, last_weight[0])
        grad_hidden, learned = map(_tensor, compiled.score_backward(*arrays, threads))
        grad_last_bias = grad_scores.sum(0, keepdim=True)
        if ctx.needs_input_grad[0]:
            grad_x.addmm_(grad_hidden, weight)
        return grad_x, None, grad_hidden.t() @ x, learned[0], learned[1:], grad_last_bias


def _scores(x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor) -> tuple[Tensor, Tensor]:
    """What is between the two layers of a gate, and its scores `(N,)`."""
    hidden = F.linear(x, weight)
    arrays = _arrays(hidden, bias, last_weight[0], last_bias)
    return hidden, _tensor(compiled.score(*arrays, threads_for(x.numel())))


def _pooled(x: Tensor, scores: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    """The pooled graphs `(B, c)` and the attention `(N,)` by the scores."""
    pooled, attention = compiled.attend(*_arrays(x, scores, ptr), threads_for(x.numel()))
    return _tensor(pooled), _tensor(attention)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def _array(tensor: Tensor) -> Array:
    """The tensor's memory as an array, rows contiguous."""
    array: Array = tensor.detach().contiguous().numpy()
    return array


def _arrays(*tensors: Tensor) -> tuple[Any, ...]:
    return tuple(map(_array, tensors))


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(array)
