"""The kernels as differentiable functions of tensors, and the matrix products that belong between them.

Each saves for its backward pass only what it cannot cheaply compute again. Import this module only where
`mlap.kernels.usable` holds: it needs numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from mlap.kernels import compiled

Array = NDArray[Any]
NO_KIND = np.empty(0, np.int64)
NO_WORDS = np.empty(0, np.uint16)


def collect(h: Tensor, edges: Tensor, kind: Tensor | None, eps: Tensor, edge_index: Tensor) -> Tensor:
    """`(1 + eps) h[n] + Σ relu(h[source] + edges[kind])` over the arcs into each node n.

    Args:
        h: the nodes `(N, c)`.
        edges: one row for all arcs, one for each, or one for each kind of arc.
        kind: the kind of each arc, in the last case.
        eps: a scalar.
        edge_index: `(2, arcs)`, sources and targets.
    """
    result: Tensor = _apply(_Collect, h, edges, kind, 1 + eps, edge_index)
    return result


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, edges: Tensor, kind: Tensor | None, factor: Tensor, edge_index: Tensor) -> Tensor:
        source, target = _array(edge_index)
        ctx.save_for_backward(h, edges, factor)
        ctx.source, ctx.target = source, target
        ctx.kind = NO_KIND if kind is None else _array(kind)
        into = compiled.sort_arcs(target, source, len(h))
        return _tensor(compiled.collect(_array(h), _array(edges), ctx.kind, _array(factor.reshape(1)), *into))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, edges, factor = ctx.saved_tensors
        out_of = compiled.sort_arcs(ctx.source, ctx.target, len(h))
        grad_h, grad_edges, grad_factor = compiled.collect_backward(
            _array(grad), _array(h), _array(edges), ctx.kind, _array(factor.reshape(1)), *out_of
        )
        return _tensor(grad_h), _tensor(grad_edges), None, factor.new_tensor(grad_factor), None


def activate(x: Tensor, relu: bool, words: Array | None, dropped: int, scale: float) -> Tensor:
    """Dropout of `x`, or of `relu(x)`.

    Args:
        x: any tensor.
        relu: whether ReLU comes first.
        words: sixteen random bits per element; nothing is dropped without.
        dropped: an element whose bits, as a number, are smaller than this is dropped.
        scale: what the others are multiplied by.
    """
    result: Tensor = _apply(_Activate, x, relu, words, dropped, scale)
    return result


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, relu: bool, words: Array | None, dropped: int, scale: float) -> Tensor:
        ctx.scale = scale
        out, ctx.passed = compiled.activate(_array(x), relu, NO_WORDS if words is None else words, dropped, scale)
        return _tensor(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _tensor(compiled.activate_backward(_array(grad), ctx.passed, ctx.scale)), None, None, None, None


def normalise(
    x: Tensor,
    ptr: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean_scale: Tensor,
    eps: float,
    relu: bool,
    words: Array | None,
    dropped: int,
    scale: float,
) -> Tensor:
    """GraphNorm of nodes `x` `(N, c)` sorted by graph, followed by ReLU if wanted and dropout: see `activate`."""
    result: Tensor = _apply(_Normalise, x, ptr, weight, bias, mean_scale, eps, relu, words, dropped, scale)
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
        words: Array | None,
        dropped: int,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(x, ptr, weight, mean_scale)
        ctx.scale = scale
        out, ctx.passed, ctx.mean, ctx.inverse = compiled.normalise(
            _array(x),
            _array(ptr),
            _array(weight),
            _array(bias),
            _array(mean_scale),
            eps,
            relu,
            NO_WORDS if words is None else words,
            dropped,
            scale,
        )
        return _tensor(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, ptr, weight, mean_scale = map(_array, ctx.saved_tensors)
        grads = compiled.normalise_backward(
            _array(grad), x, ctx.passed, ctx.mean, ctx.inverse, ptr, weight, mean_scale, ctx.scale
        )
        grad_x, grad_weight, grad_bias, grad_mean_scale = map(_tensor, grads)
        return grad_x, None, grad_weight, grad_bias, grad_mean_scale, None, None, None, None, None


def two_layers(x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor) -> Tensor:
    """Linear – ReLU – Linear."""
    result: Tensor = _apply(_TwoLayers, x, weight, bias, last_weight, last_bias)
    return result


class _TwoLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor) -> Tensor:
        hidden = x @ weight.t()
        compiled.add_relu(_array(hidden), _array(bias))
        ctx.save_for_backward(x, hidden, weight, last_weight)
        return torch.addmm(last_bias, hidden, last_weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, weight, last_weight = ctx.saved_tensors
        grad_hidden = grad @ last_weight
        grad_bias = _tensor(compiled.relu_backward(_array(grad_hidden), _array(hidden)))
        grad_x = grad_hidden @ weight if ctx.needs_input_grad[0] else None
        return grad_x, grad_hidden.t() @ x, grad_bias, grad.t() @ hidden, grad.sum(0)


def attend(
    x: Tensor, ptr: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention pooling of nodes `(N, c)` sorted by graph: the graphs `(B, c)` and the attention `(N,)`.

    The other arguments are the weights of the gate, Linear – ReLU – Linear(1).
    """
    pooled, attention = _apply(_Attend, x, ptr, weight, bias, last_weight, last_bias)
    return pooled, attention


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ptr: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        hidden = x @ weight.t()
        scores = compiled.score(_array(hidden), *map(_array, (bias, last_weight[0], last_bias)))
        pooled, attention = map(_tensor, compiled.attend(_array(x), scores, _array(ptr)))
        ctx.save_for_backward(x, ptr, weight, last_weight, hidden, attention)
        return pooled, attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_attention: Tensor) -> tuple[Tensor | None, ...]:
        x, ptr, weight, last_weight, hidden, attention = ctx.saved_tensors
        arrays = map(_array, (grad, grad_attention, x, attention, ptr))
        grad_x, grad_scores = map(_tensor, compiled.attend_backward(*arrays))
        grads = compiled.score_backward(_array(grad_scores), _array(hidden), _array(last_weight[0]))
        grad_hidden, grad_bias, grad_last_weight = map(_tensor, grads)
        grad_last_bias = grad_scores.sum(0, keepdim=True)
        if ctx.needs_input_grad[0]:
            grad_x.addmm_(grad_hidden, weight)
        return grad_x, None, grad_hidden.t() @ x, grad_bias, grad_last_weight.unsqueeze(0), grad_last_bias


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def _array(tensor: Tensor) -> Array:
    """The tensor's memory as an array, rows contiguous."""
    array: Array = tensor.detach().contiguous().numpy()
    return array


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(array)
