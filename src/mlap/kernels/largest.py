"""The largest of several tensors, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlap.kernels.loops import ZERO, Array, apply, array, compiled, first_order, tensor
from mlap.kernels.threads import fork, threads_for


def largest(tensors: Sequence[Tensor]) -> Tensor:
    """The largest of up to 256 tensors of one shape, element by element; of equal ones the first has the gradient."""
    result: Tensor = apply(_Largest, *tensors)
    return result


class _Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, *others: Tensor) -> Tensor:
        out = array(first).copy()
        ctx.which = np.zeros(out.shape, np.uint8)
        threads = threads_for(out.size)
        for number, other in enumerate(others, 1):
            raise_to(out, ctx.which, array(other), number, threads)
        return tensor(out)

    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        threads = threads_for(grad.numel())
        return tuple(
            tensor(where_from(array(grad), ctx.which, number, threads)) if needed else None
            for number, needed in enumerate(ctx.needs_input_grad)
        )


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
