"""An LSTM over few steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlap.kernels.loops import ONE, Array, apply, arrays, compiled, first_order, tensor
from mlap.kernels.threads import fork, threads_for


def lstm(
    steps: Sequence[Tensor], weight: Tensor, state_weight: Tensor, bias: Tensor, state_bias: Tensor
) -> tuple[Tensor, ...]:
    """The states `(N, H)` of an LSTM after each of its steps `(N, c)`; the other arguments are torch's.

    The first step starts from nothing: it needs neither its forget gate nor a product with the state before it, which
    torch's LSTM computes all the same. Of two steps that is nearly a third of the work, of three a quarter.
    """

    def forget_first(rows: Tensor) -> Tensor:
        enter, forget, others = rows.tensor_split([len(rows) // 4, len(rows) // 2])
        return torch.cat((forget, enter, others))

    joined = torch.cat((weight, state_weight), dim=1)
    states: tuple[Tensor, ...] = apply(_Lstm, forget_first(joined), forget_first(bias + state_bias), *steps)
    return states


class _Lstm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, *steps: Tensor) -> tuple[Tensor, ...]:
        channels = steps[0].shape[1]
        width = weight.shape[1] - channels
        cells: list[Tensor] = []
        states: list[Tensor] = []
        kept: list[Tensor] = []
        for step in steps:
            if states:
                inputs = torch.cat((step, states[-1]), dim=1)
                gates = F.linear(inputs, weight, bias)
            else:
                inputs = step
                gates = F.linear(inputs, weight[width:, :channels], bias[width:])
            *forget, enter, candidate, leave = torch.split(gates, width, dim=1)
            for gate in (*forget, enter, leave):
                gate.sigmoid_()
            cells.append(enter * candidate.tanh_())
            if states:
                cells[-1].addcmul_(forget[0], cells[-2])
            activated = cells[-1].tanh()
            states.append(leave * activated)
            kept += [inputs, gates, cells[-1], activated]
        ctx.save_for_backward(weight, *kept)
        return tuple(states)

    @first_order
    def backward(ctx: Any, *grad_states: Tensor) -> tuple[Tensor | None, ...]:
        weight, *kept = ctx.saved_tensors
        channels = weight.shape[1] - grad_states[0].shape[1]
        grad_weight = weight.new_zeros(weight.shape[::-1])  # transposed, which the products below are faster for
        grad_bias = weight.new_zeros(len(weight))
        grad_state = grad_states[-1]
        grad_cell = torch.zeros_like(grad_state, memory_format=torch.contiguous_format)  # written in place
        grad_steps = []
        for number in reversed(range(len(grad_states))):
            inputs, gates, cell, activated = kept[4 * number : 4 * number + 4]
            given = arrays(grad_state, grad_cell, gates, kept[4 * number - 2] if number else cell, activated)
            grad = tensor(cell_backward(*given, threads_for(gates.numel())))
            used = slice(len(weight) - gates.shape[1], None)  # the first step has no forget gate …
            columns = slice(inputs.shape[1])  # … and no state before it
            grad_weight[columns, used].addmm_(inputs.t(), grad)
            grad_bias[used] += grad.sum(0)
            grad_step, *grad_before = (grad @ weight[used, columns]).tensor_split([channels], dim=1)
            grad_steps.append(grad_step)
            if number:
                grad_state = grad_states[number - 1] + grad_before[0]
        return grad_weight.t(), grad_bias, *reversed(grad_steps)


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
