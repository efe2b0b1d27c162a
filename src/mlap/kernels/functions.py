"""The kernels as differentiable functions of tensors, and the matrix products that belong between them.

Each saves for its backward pass only what it cannot cheaply compute again. Import this module only where
`mlap.kernels.usable` holds: it needs numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

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


class Finish(NamedTuple):
    """What follows a message-passing layer: GraphNorm if there is one, ReLU if wanted, dropout.

    Args:
        relu: whether ReLU is wanted.
        draw: what is dropped, see `mlap.nn.dropout.Draw`.
        norm: weight, bias and mean scale of GraphNorm; empty if there is none.
        norm_eps: its ε.
    """

    relu: bool = False
    draw: tuple[int, int, float] = (0, 0, 1.0)
    norm: Sequence[Tensor] = ()
    norm_eps: float = 0.0

    @property
    def is_nothing(self) -> bool:
        """Whether all stays as it is."""
        return not (self.norm or self.relu or self.draw[1])


class GinLayer(NamedTuple):
    """A GIN layer and what follows it.

    Args:
        edges: one row for all arcs, one for each, or one for each kind of arc.
        eps: a scalar.
        weights: of f_NN, Linear – ReLU – Linear: weight and bias of the first layer, weight and bias of the second.
        kind: the kind of each arc, if `edges` are of kinds.
        alike: if some nodes are known to be alike here, the first of every kind and the kind of each node.
        finish: what follows.
    """

    edges: Tensor
    eps: Tensor
    weights: Sequence[Tensor]
    kind: Tensor | None = None
    alike: tuple[Tensor, Tensor] | None = None
    finish: Finish = Finish()

    @property
    def learned(self) -> tuple[Tensor, ...]:
        """All tensors that have gradients."""
        return self.edges, self.eps, *self.weights, *self.finish.norm


def gin_layer(h: Tensor, layer: GinLayer, arcs: SortedArcs, ptr: Tensor | None = None) -> Tensor:
    """A layer and what follows it, as one function: torch's bookkeeping costs more than the loops in between.

    A layer is Linear – ReLU – Linear of `(1 + eps) h[n] + Σ relu(h[source] + edges[kind])` over the arcs into node n.

    Args:
        h: the nodes `(N, c)`.
        layer: the layer.
        arcs: the arcs.
        ptr: where each graph's nodes begin, which GraphNorm needs.
    """
    result: Tensor = _apply(_GinLayer, layer, arcs, ptr, h, *layer.learned)
    return result


class _GinLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: GinLayer, arcs: SortedArcs, ptr: Tensor | None, h: Tensor, *learned: Tensor) -> Tensor:
        ctx.kind = NO_KIND if layer.kind is None else _array(layer.kind)
        ctx.nodes = arcs.all_nodes if layer.alike is None else _array(layer.alike[0])
        rows, edges, eps = _arrays(h, layer.edges, layer.eps)
        collected = _tensor(compiled.collect(rows, edges, ctx.kind, eps, ctx.nodes, *arcs.into, threads_for(rows.size)))
        hidden, out = _two_layers(collected, *layer.weights)
        if layer.alike is not None:
            out = out.index_select(0, layer.alike[1])
        out, finished = _finish(out, layer.finish, ptr)
        ctx.layer, ctx.arcs, ctx.ptr = layer, arcs, ptr
        ctx.save_for_backward(*learned, h, collected, hidden, *finished)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layer: GinLayer = ctx.layer
        h, collected, hidden, *finished = ctx.saved_tensors[len(layer.learned) :]
        grad, grad_norm = _finish_backward(grad, finished, layer.finish, ctx.ptr)
        if layer.alike is not None:
            first, of_node = layer.alike
            grad = torch.ops.aten.embedding_dense_backward(grad, of_node, len(first), -1, False)
        weight, _, last_weight, _ = layer.weights
        grad_hidden, *grad_weights = _two_layers_backward(grad, collected, hidden, last_weight)
        grad_collected, rows, edges, eps = _arrays(grad_hidden @ weight, h, layer.edges, layer.eps)
        grads = compiled.collect_backward(
            grad_collected, rows, edges, ctx.kind, eps, ctx.nodes, *ctx.arcs.out_of, threads_for(rows.size)
        )
        return None, None, None, *map(_tensor, grads), *grad_weights, *grad_norm


def finish(x: Tensor, how: Finish, ptr: Tensor | None = None) -> Tensor:
    """What follows a layer that returned nodes `x` `(N, c)`; GraphNorm needs to know where each graph's begin."""
    finished: Tensor = x if how.is_nothing else _apply(_Finish, how, ptr, x, *how.norm)
    return finished


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: Finish, ptr: Tensor | None, x: Tensor, *norm: Tensor) -> Tensor:
        out, finished = _finish(x, how, ptr)
        ctx.how, ctx.ptr = how, ptr
        ctx.save_for_backward(*norm, *finished)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        finished = ctx.saved_tensors[len(ctx.how.norm) :]
        grad_x, grad_norm = _finish_backward(grad, finished, ctx.how, ctx.ptr)
        return None, None, grad_x, *grad_norm


def _finish(x: Tensor, how: Finish, ptr: Tensor | None) -> tuple[Tensor, Sequence[Tensor]]:
    """What follows a layer, and what its gradient needs."""
    if how.is_nothing:
        return x, ()
    threads = threads_for(x.numel())
    if not how.norm:
        out, passed = map(_tensor, compiled.activate(_array(x), how.relu, *how.draw, threads))
        return out, (passed,)
    assert ptr is not None
    arrays = _arrays(x, ptr, *how.norm)
    out, *known = map(_tensor, compiled.normalise(*arrays, how.norm_eps, how.relu, *how.draw, threads))
    return out, (x, *known)


def _finish_backward(
    grad: Tensor, finished: Sequence[Tensor], how: Finish, ptr: Tensor | None
) -> tuple[Tensor, Sequence[Tensor]]:
    """The gradients for `x`, and for weight, bias and mean scale of GraphNorm."""
    if how.is_nothing:
        return grad, ()
    threads = threads_for(grad.numel())
    scale = how.draw[2]
    if not how.norm:
        return _tensor(compiled.activate_backward(*_arrays(grad, *finished), scale, threads)), ()
    assert ptr is not None
    weight, _, mean_scale = how.norm
    arrays = _arrays(grad, *finished, ptr, weight, mean_scale)
    grad_x, learned = map(_tensor, compiled.normalise_backward(*arrays, scale, threads))
    return grad_x, learned.unbind()


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
    states: tuple[Tensor, ...] = _apply(_Lstm, forget_first(joined), forget_first(bias + state_bias), *steps)
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

    @staticmethod
    @once_differentiable
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
            arrays = _arrays(grad_state, grad_cell, gates, kept[4 * number - 2] if number else cell, activated)
            grad = _tensor(compiled.cell_backward(*arrays, threads_for(gates.numel())))
            used = slice(len(weight) - gates.shape[1], None)  # the first step has no forget gate …
            columns = slice(inputs.shape[1])  # … and no state before it
            grad_weight[columns, used].addmm_(inputs.t(), grad)
            grad_bias[used] += grad.sum(0)
            grad_step, *grad_before = (grad @ weight[used, columns]).tensor_split([channels], dim=1)
            grad_steps.append(grad_step)
            if number:
                grad_state = grad_states[number - 1] + grad_before[0]
        return grad_weight.t(), grad_bias, *reversed(grad_steps)


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
