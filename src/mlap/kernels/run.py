"""The executor: a `GraphNetwork` on a batch, part by part, by kernels where they know the part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module
from torch_geometric.nn import BatchNorm, GraphNorm, SumAggregation

from mlap.errors import DataError
from mlap.kernels.attention import Weighing, attend, weighted_sum
from mlap.kernels.finish import Finish, finish
from mlap.kernels.gin import Layer, SortedArcs, gin_layer, stray_end
from mlap.kernels.largest import largest
from mlap.kernels.loops import array, compiled
from mlap.kernels.lstm import lstm
from mlap.kernels.sharing import WORTH_SHARING, Environments, Items, environments, once_per_kind
from mlap.kernels.two_layers import add_relu, two_layers
from mlap.nn.backbone import Backbone
from mlap.nn.batch import Graphs
from mlap.nn.convs import GINLayer
from mlap.nn.dropout import Dropout
from mlap.nn.encoders import CategoryEncoder, ConstantEncoder, RealEncoder
from mlap.nn.join import LSTMAttention, Max, total
from mlap.nn.mlp import TwoLayers
from mlap.nn.network import GraphNetwork
from mlap.nn.pooling import AttentionPooling, AttentionSumPooling, GatedSumPooling, MeanPooling, SumPooling
from mlap.nn.readout import JumpReadout, MultiLevelAttentionPooling, Reading, thinned

#: rows that an LSTM takes at a time in evaluation: what it computes for many is far larger than a processor's cache
LSTM_ROWS = 256

#: what the poolings by a gate make of its scores
WEIGHINGS: dict[type[nn.Module], Weighing] = {
    AttentionPooling: Weighing(softmax=True),
    AttentionSumPooling: Weighing(softmax=True, counts=True),
    GatedSumPooling: Weighing(softmax=False),
}

Kind = TypeVar("Kind", bound=nn.Module)


def executor(network: GraphNetwork, g: Graphs) -> Executor | None:
    """An executor, if the network and the tensors are such as kernels can work with."""
    if type(network) is not GraphNetwork or _overridden(network) or _global_hooks() or not _plain(g):
        return None
    return Executor(network, g)


def try_one() -> None:
    """Run a kernel, to see whether numba compiles ours, and not only whether it can be imported."""
    x, one = np.array([[-3, 3]], np.float32), np.ones(2, np.float32)
    add_relu(x, one, 1)
    if x.tolist() != [[0, 4]]:
        raise RuntimeError(f"a kernel made {x.tolist()} of what should be [[0, 4]]")


class Executor:
    """Runs a network on some graphs.

    What is not of exactly the known class, has hooks or other children than expected, is called as usual; only its
    work goes without the kernels.

    Args:
        network: the network.
        g: the graphs; a node that does not exist or a wrong `ptr` is an error here, once for all kernels.
    """

    def __init__(self, network: GraphNetwork, g: Graphs) -> None:
        self.network = network
        self.edge_index = g.edge_index.long()
        _check_arcs(self.edge_index, g)
        self.ptr = _pointer(g)
        self.g = g
        self.edges = Items(g.edge_attr)

    @cached_property
    def arcs(self) -> SortedArcs:
        """The arcs, sorted once for all layers."""
        return SortedArcs(self.edge_index, self.g.num_nodes)

    # ---- levels --------------------------------------------------------------------------------------------------

    def levels(self) -> list[Tensor]:
        """The node representations of all levels, `L × (N, d)`."""
        backbone = self.network.backbone
        if not _is_ours(backbone):
            return self.network.propagate(self.g)
        h, kind = self._encoded()
        levels = [h] if backbone.input_level else []
        if backbone.virtual_node is not None or (backbone.input_level and torch.is_grad_enabled()):
            kind = None  # alike nodes become different; or their gradients could be asked for
        alike = self._alike(backbone, kind)
        v = None if backbone.virtual_node is None else backbone.virtual_node.start.expand(self.g.dim_size, -1)
        for number in range(len(backbone.convs)):
            below = h if v is None else h + v.index_select(0, self.g.index)
            h = self._layer(backbone, number, below, alike[number])
            if backbone.residual:
                h = h + below
            levels.append(h)
            v = backbone.updated(v, number, below, self.g.index)
        return levels

    def _encoded(self) -> tuple[Tensor, Tensor | None]:
        """The encoded nodes `(N, d)`, and which of them are known to be alike."""
        network, g = self.network, self.g
        encoder = network.encoder
        if untouched(encoder, RealEncoder) and g.x is not None and g.x.dim() == 2:
            weights = two_layers_of(encoder, g.x)
            if weights is not None and weights.norm is None and g.x.size(1) == encoder.in_channels:
                return network.with_walks(two_layers(g.x, *weights.tensors), g), None
        rows, kind = Items(g.x).encoded(encoder, untouched(encoder, CategoryEncoder))
        if kind is not None:
            if len(kind) != g.num_nodes:
                raise DataError(f"the batch has {g.num_nodes} nodes, but features of {len(kind)}")
            h = F.embedding(kind, rows)
        else:
            h = rows.expand(g.num_nodes, -1)
            if untouched(encoder, ConstantEncoder):
                kind = g.index.new_zeros(g.num_nodes)
        return network.with_walks(h, g), kind if network.walk_encoder is None else None

    def _alike(self, backbone: Backbone, kind: Tensor | None) -> list[Environments | None]:
        """For each layer, which nodes are alike in its output before normalisation and dropout, if it is known.

        Above the first layer it is as long as nothing random happens, and unless gradients are wanted: those of alike
        nodes would all be given to one of them.
        """
        found: list[Environments | None] = []
        for conv in backbone.convs:
            here = None if kind is None else self._environments(conv, kind)
            found.append(here)
            if here is None or backbone.dropout.dropped or torch.is_grad_enabled():
                kind = None
            else:
                per_graph = backbone.norm_per_graph
                kind = here.of_node * self.g.dim_size + self.g.index if per_graph else here.of_node
        return found

    def _environments(self, conv: nn.Module, kind: Tensor) -> Environments | None:
        """Which nodes are alike in the output of a layer, where `kind` `(N,)` says which are in its input."""
        if not _is_gin(conv):
            return None
        if conv.training and len(list(conv.nn.children())) == 4:  # BatchNorm inside counts every node
            return None
        encoder = conv.edge_encoder
        kinds = self.edges.kinds(encoder) if untouched(encoder, CategoryEncoder) else None
        if kinds is None and not untouched(encoder, ConstantEncoder):
            return None
        if kinds is not None and len(kinds.kind) != self.edge_index.size(1):
            return None  # the layer will say that it is wrong
        found = environments(kind, None if kinds is None else kinds.kind, self.edge_index)
        return found if len(found.first) < WORTH_SHARING * len(kind) else None

    def _layer(self, backbone: Backbone, number: int, h: Tensor, alike: Environments | None) -> Tensor:
        """A layer and what follows it but for the residual connection."""
        conv, norm, g = backbone.convs[number], backbone.norms[number], self.g
        relu = type(backbone.activations[number]) is nn.ReLU
        layer = self._gin(conv, h)
        if layer is None:
            h = conv(h, g.edge_index, g.edge_attr)
            known = self._norm(norm, h)
            if known is None:
                h, known = norm(h, g.index, g.dim_size) if backbone.norm_per_graph else norm(h), Finish()
            if not _floats(h, *known.norm):
                dropped: Tensor = backbone.dropout(h.relu() if relu else h)
                return dropped
            return finish(h, known._replace(relu=relu, draw=backbone.dropout.draw()), self.ptr)
        layer = layer._replace(alike=alike)
        known = self._norm(norm, h)
        if known is not None and _floats(h, *known.norm):
            layer = layer._replace(finish=known._replace(relu=relu, draw=backbone.dropout.draw()))
            return gin_layer(h, layer, self.arcs, self.ptr)
        folded = self._folded(norm, h)
        if folded is not None:
            layer = layer._replace(weights=_scaled(layer.weights, *folded))
            layer = layer._replace(finish=Finish(relu, backbone.dropout.draw()))
            return gin_layer(h, layer, self.arcs)
        h = gin_layer(h, layer, self.arcs)
        h = norm(h, g.index, g.dim_size) if backbone.norm_per_graph else norm(h)
        return finish(h, Finish(relu, backbone.dropout.draw()))

    def _gin(self, conv: nn.Module, h: Tensor) -> Layer | None:
        """A GIN layer as the kernels take it, if they know it."""
        if not _is_gin(conv):
            return None
        weights = two_layers_of(conv.nn, h, conv.eps)
        if weights is None or (weights.norm is not None and weights.norm.training and len(h) < 2):
            return None
        edges, kind = self.edges.encoded(conv.edge_encoder, untouched(conv.edge_encoder, CategoryEncoder))
        rows = len(edges) if kind is None else len(kind)
        if not (kind is None and rows == 1) and rows != self.edge_index.size(1):
            raise DataError(f"the batch has {self.edge_index.size(1)} arcs, but features of {rows}")
        if not _floats(h, edges):
            return None
        layer = Layer(edges, conv.eps, weights.tensors, kind)
        if weights.norm is None:
            return layer
        if weights.norm.training:
            norm = weights.norm
            return layer._replace(inner=Finish(True, norm=(norm.weight, norm.bias), norm_eps=norm.eps, batch_norm=norm))
        scale, shift = _affine(weights.norm)
        first, bias, *second = weights.tensors
        return layer._replace(weights=(scale[:, None] * first, scale * bias + shift, *second))

    def _norm(self, norm: nn.Module, h: Tensor) -> Finish | None:
        """A normalisation as the kernels take it, if they know it."""
        if untouched(norm, nn.Identity):
            return Finish()
        if self.ptr is not None and untouched(norm, GraphNorm):
            return Finish(norm=(norm.weight, norm.bias, norm.mean_scale), norm_eps=norm.eps)
        if untouched(norm, BatchNorm) and _known(norm.module) and norm.module.training and len(h) > 1:
            inner = norm.module
            return Finish(norm=(inner.weight, inner.bias), norm_eps=inner.eps, batch_norm=inner)
        return None

    def _folded(self, norm: nn.Module, h: Tensor) -> tuple[Tensor, Tensor] | None:
        """BatchNorm in evaluation, as a factor and a summand, if it is that."""
        if untouched(norm, BatchNorm) and _known(norm.module) and not norm.module.training:
            scale, shift = _affine(norm.module)
            return (scale, shift) if _floats(h, scale, shift) else None
        return None

    # ---- readout -------------------------------------------------------------------------------------------------

    def read(self, levels: list[Tensor]) -> Reading | None:
        """What the readout reads of the levels; `None` if it is not one of ours."""
        readout: Any = self.network.readout
        if len(levels) != getattr(readout, "num_levels", 0):
            return None
        if untouched(readout, MultiLevelAttentionPooling):
            pairs = [self._pool(pool, h) for pool, h in zip(readout.pools, levels, strict=True)]
            pooled, weights = [graphs for graphs, _ in pairs], [of_nodes for _, of_nodes in pairs]
            return Reading(self._join(readout, pooled), pooled, weights)
        if untouched(readout, JumpReadout):
            graphs, of_nodes = self._pool(readout.pools[0], self._join(readout, levels))
            return Reading(graphs, [graphs], [of_nodes])
        return None

    def _pool(self, pool: nn.Module, h: Tensor) -> tuple[Tensor, Tensor]:
        """The pooled graphs `(B, c)` and the weight of each node `(N,)`."""
        if self.ptr is not None and _floats(h):
            how = WEIGHINGS.get(type(pool))
            if how is not None and untouched(pool, type(pool)):
                gate = two_layers_of(pool.gate, h)
                if gate is not None and gate.norm is None:
                    return attend(h, self.ptr, gate.tensors, how)
            elif untouched(pool, SumPooling) or untouched(pool, MeanPooling):
                weights = pool.weights(h, self.g.index, self.g.dim_size)
                return weighted_sum(h, weights, self.ptr), weights
        graphs, weights = pool(h, self.g.index, None, self.g.dim_size, return_weights=True)
        return graphs, weights

    def _join(self, readout: MultiLevelAttentionPooling | JumpReadout, levels: Sequence[Tensor]) -> Tensor:
        """The levels as one."""
        join, levels = readout.join, list(thinned(levels, readout.level_dropout))
        if untouched(join, Max) and len(levels) <= 256 and _floats(*levels):
            return largest(levels)
        if _is_lstm(join) and _floats(*levels, *join.parameters()):
            return _attended(join, levels)
        joined: Tensor = join(levels)
        return joined


def _attended(join: LSTMAttention, levels: list[Tensor]) -> Tensor:
    """The join by LSTM attention; without gradients a few rows at a time, and each of equal ones once."""

    def joined(levels: list[Tensor]) -> Tensor:
        onwards, backwards = join.lstm.all_weights
        ahead = lstm(levels, *onwards)
        behind = lstm(levels[::-1], *backwards)[::-1]
        scores = [join.att(torch.cat(states, dim=1)) for states in zip(ahead, behind, strict=True)]
        weights = torch.cat(scores, dim=1).softmax(dim=1)
        return total([weight[:, None] * level for weight, level in zip(weights.unbind(dim=1), levels, strict=True)])

    if torch.is_grad_enabled():
        return joined(levels)

    def joined_rows(rows: Tensor) -> Tensor:
        return torch.cat([joined(list(piece.chunk(len(levels), dim=1))) for piece in torch.split(rows, LSTM_ROWS)])

    return once_per_kind(joined_rows, torch.cat(levels, dim=1))


# ---- may kernels do a module's work? -----------------------------------------------------------------------------


#: methods of modules that the kernels stand for, and that a user may replace in a single module
METHODS = frozenset(
    {
        *("forward", "encode", "with_walks", "checked", "updated", "draw"),
        *("message", "propagate", "aggregate", "update", "weights", "pool", "read"),
    }
)


def untouched(module: Any, kind: type[Kind]) -> TypeGuard[Kind]:
    """Whether a module is of this very class, no hook waits for its calls and its methods are the class's own."""
    return type(module) is kind and not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _overridden(module)
    )


def _overridden(module: nn.Module) -> bool:
    """Whether a method was replaced in this module alone."""
    return not METHODS.isdisjoint(module.__dict__)


def _global_hooks() -> bool:
    """Whether a hook waits for the calls of all modules."""
    return bool(
        torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
        or torch_module._global_backward_hooks
        or torch_module._global_backward_pre_hooks
    )


_PYG_HOOKS = tuple(
    f"_{step}_forward{before}_hooks" for step in ("propagate", "message", "aggregate") for before in ("", "_pre")
)


def _is_ours(backbone: Any) -> TypeGuard[Backbone]:
    """Whether a backbone, what it drops out and its activations are as we made them."""
    return (
        untouched(backbone, Backbone)
        and untouched(backbone.dropout, Dropout)
        and all(untouched(each, nn.ReLU) or untouched(each, nn.Identity) for each in backbone.activations)
    )


def _is_gin(conv: Any) -> TypeGuard[GINLayer]:
    """Whether a layer is a `GINLayer` as we made it: no hooks of PyG's, and no mask of an explainer."""
    return (
        untouched(conv, GINLayer)
        and untouched(conv.activation, nn.ReLU)
        and not conv.explain
        and untouched(conv.aggr_module, SumAggregation)
        and not any(getattr(conv, name) for name in _PYG_HOOKS)
        and isinstance(conv.nn, nn.Sequential)
    )


def _is_lstm(join: Any) -> TypeGuard[LSTMAttention]:
    """Whether a join is LSTM attention as we made it."""
    return untouched(join, LSTMAttention) and untouched(join.lstm, nn.LSTM) and untouched(join.att, nn.Linear)


class _Weights:
    """The tensors of a two-layer network, weight and bias of each layer, and the BatchNorm between them, if any."""

    def __init__(self, tensors: Sequence[Tensor], norm: nn.BatchNorm1d | None) -> None:
        self.tensors = tensors
        self.norm = norm


def two_layers_of(module: Any, x: Tensor, *others: Tensor) -> _Weights | None:
    """The weights of a two-layer network that kernels may use with `x` and other tensors; else `None`."""
    if not (untouched(module, TwoLayers) or untouched(module, RealEncoder)):
        return None
    parts = list(module)
    norm = parts.pop(1) if len(parts) == 4 else None
    if norm is not None and not _known(norm):
        return None
    if len(parts) != 3 or not untouched(parts[1], nn.ReLU):
        return None
    first, _, second = parts
    if not (untouched(first, nn.Linear) and untouched(second, nn.Linear)):
        return None
    tensors = (first.weight, first.bias, second.weight, second.bias)
    return _Weights(tensors, norm) if _floats(x, *others, *tensors) else None


def _known(norm: Any) -> TypeGuard[nn.BatchNorm1d]:
    """Whether a BatchNorm is one that the kernels compute."""
    return untouched(norm, nn.BatchNorm1d) and bool(norm.affine and norm.track_running_stats and norm.momentum)


def _affine(norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """BatchNorm in evaluation: by what it multiplies, and what it adds."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return scale, norm.bias - norm.running_mean * scale


def _scaled(weights: Sequence[Tensor], scale: Tensor, shift: Tensor) -> Sequence[Tensor]:
    """The weights of a two-layer network whose result is multiplied and added to."""
    *first, weight, bias = weights
    return *first, scale[:, None] * weight, scale * bias + shift


# ---- tensors -----------------------------------------------------------------------------------------------------


def _floats(*tensors: Any) -> bool:
    """Whether these are tensors of one of the two types that kernels are compiled for, in the host's memory."""
    dtype = tensors[0].dtype
    return dtype in (torch.float32, torch.float64) and all(
        type(tensor) in (Tensor, nn.Parameter) and tensor.dtype == dtype and tensor.device.type == "cpu"
        for tensor in tensors
    )


def _plain(g: Graphs) -> bool:
    """Whether the batch lies in the host's memory, in tensors of no subclass."""
    given = (g.x, g.edge_index, g.edge_attr, g.index, g.ptr)
    return all(value is None or (type(value) is Tensor and value.device.type == "cpu") for value in given)


def _check_arcs(edge_index: Tensor, g: Graphs) -> None:
    """Raise if an arc ends at a node that does not exist: a kernel would read whatever lies there."""
    if edge_index.dim() != 2 or len(edge_index) != 2:
        raise DataError(f"edge_index has the shape (2, arcs), got {tuple(edge_index.shape)}")
    if len(g.index) != g.num_nodes:
        raise DataError(f"the batch has {g.num_nodes} nodes, but says of {len(g.index)} to which graph they belong")
    ends = array(edge_index)
    place = stray_end(ends, g.num_nodes)
    if place >= 0:
        raise DataError(f"edge_index names node {ends.flat[place]}, but the batch has {g.num_nodes} nodes, from 0")


def _pointer(g: Graphs) -> Tensor | None:
    """Where each graph's nodes begin `(B + 1,)`, if they are sorted by graph; raise if the batch says so wrongly."""
    if g.ptr is None:
        found = starts(array(g.index), g.dim_size)
        return torch.from_numpy(found) if len(found) else None
    ptr = g.ptr.long()
    if len(ptr) != g.dim_size + 1 or not agree(array(ptr), array(g.index)):
        raise DataError(
            f"ptr does not say where the nodes of {g.dim_size} graphs begin: it has {len(ptr)} numbers, "
            f"from 0 to the {g.num_nodes} nodes, that go with the graph of each node"
        )
    return ptr


@compiled
def agree(ptr: Any, index: Any) -> bool:
    """Whether the nodes from `ptr[g]` to `ptr[g + 1]` are those of graph g, for all graphs and nodes."""
    if len(ptr) == 0 or ptr[0] != 0 or ptr[-1] != len(index):
        return False
    for g in range(len(ptr) - 1):
        if ptr[g + 1] < ptr[g] or ptr[g + 1] > len(index):
            return False
        for n in range(ptr[g], ptr[g + 1]):
            if index[n] != g:
                return False
    return True


@compiled
def starts(index: Any, num_graphs: int) -> Any:
    """Where each graph's nodes begin; nothing if nodes are not sorted by graph."""
    ptr = np.zeros(num_graphs + 1, np.int64)
    for n in range(len(index)):
        if index[n] < 0 or index[n] >= num_graphs or (n > 0 and index[n] < index[n - 1]):
            return ptr[:0]
        ptr[index[n] + 1] += 1
    for g in range(num_graphs):
        ptr[g + 1] += ptr[g]
    return ptr
