"""What the kernels have in common: how loops are compiled, and how tensors become arrays and functions of autograd.

A kernel is a plain loop over contiguous rows, compiled by numba when first called. Nodes are sorted by graph (`ptr`
says where each graph begins) and arcs by their ends, so that loops write one row after the other, without scatter. The
innermost loops run over channels and become vector instructions: they count from 0 (numba looks at every other index,
whether it is negative) and mostly load what they need whether or not they use it.

The rows are shared out among `threads` threads of torch's own (see `mlap.kernels.threads`): the function whose name
begins with an underscore is what each of them does with its part. Sums over all rows are kept per part and added up.

A loop that writes is compiled twice, and which of the two runs, the one of vector instructions or the plain one,
depends on how near to each other its arrays lie in memory. So that results do not depend on it, arithmetic is done to
the letter (nothing is reordered or fused), except in loops that only add up, `dot` and `total_of`, which write nothing.

Constants are float32, which leaves the type of float32 *and* float64 arrays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

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


@compiled
def graphs_between(ptr: Array, first: int, last: int) -> tuple[int, int]:
    """Which graphs begin at the nodes `range(first, last)`: the share of a thread that has these nodes."""
    return np.searchsorted(ptr[:-1], first), np.searchsorted(ptr[:-1], last)  # type: ignore[return-value]


# ---- tensors and autograd ----------------------------------------------------------------------------------------


def array(tensor: Tensor) -> Array:
    """The tensor's memory as an array, rows contiguous."""
    values: Array = tensor.detach().contiguous().numpy()
    return values


def arrays(*tensors: Tensor) -> tuple[Any, ...]:
    """The memory of some tensors."""
    return tuple(map(array, tensors))


def tensor(values: Array) -> Tensor:
    """An array as a tensor of the same memory."""
    return torch.from_numpy(values)


class _Nothing:
    """What a function of autograd keeps where there will be no backward pass."""

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep nothing."""


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """The result of a function of autograd; without gradients, torch's bookkeeping is left out."""
    if torch.is_grad_enabled():
        return function.apply(*arguments)  # type: ignore[no-untyped-call]
    return function.forward(_Nothing(), *arguments)


def first_order(backward: Callable[..., Any]) -> Any:
    """A backward pass by kernels; to differentiate it again is an error, not a zero.

    torch's `once_differentiable` notices only where what arrives has a gradient itself, and lets a gradient penalty
    or a Hessian pass for a constant.
    """

    @wraps(backward)
    def checked(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the compiled kernels have no second derivatives; compute them inside `with mlap.kernels.disabled():`"
            )
        return backward(ctx, *grads)

    return staticmethod(checked)
