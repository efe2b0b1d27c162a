"""Linear – ReLU – Linear: what is not a matrix product in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlap.kernels.loops import ZERO, Array, apply, array, compiled, first_order, sum_of, tensor
from mlap.kernels.threads import fork, threads_for


def two_layers(x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor) -> Tensor:
    """Linear – ReLU – Linear."""
    result: Tensor = apply(_TwoLayers, x, weight, bias, last_weight, last_bias)
    return result


class _TwoLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor) -> Tensor:
        hidden, out = two_layers_forward(x, weight, bias, last_weight, last_bias)
        ctx.save_for_backward(x, hidden, weight, last_weight)
        return out

    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, weight, last_weight = ctx.saved_tensors
        grad_hidden, *grads = two_layers_backward(grad, x, hidden, last_weight)
        return (grad_hidden @ weight if ctx.needs_input_grad[0] else None), *grads


def two_layers_forward(
    x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor
) -> tuple[Tensor, Tensor]:
    """What is between the two layers, and what follows them."""
    hidden = F.linear(x, weight)
    add_relu(array(hidden), array(bias), threads_for(hidden.numel()))
    return hidden, F.linear(hidden, last_weight, last_bias)


def two_layers_backward(grad: Tensor, x: Tensor, hidden: Tensor, last_weight: Tensor) -> tuple[Tensor, ...]:
    """The gradients for the output of the first layer, and for weights and biases in order."""
    grad_hidden = grad @ last_weight
    grad_bias = relu_backward(array(grad_hidden), array(hidden), threads_for(hidden.numel()))
    return grad_hidden, grad_hidden.t() @ x, tensor(grad_bias), grad.t() @ hidden, grad.sum(0)


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
