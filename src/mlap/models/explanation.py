r"""Exact explanations: the share that every node has, at every level, in a logit.

Attention pooling is a weighted sum of nodes, every join of levels is a weighted sum of levels, and the head is linear.
So a logit is a sum over levels l and nodes n, and each term belongs to one node at one level:

.. math::
    \mathrm{logit}_c = b_c + \sum_l \sum_n a_n^{(l)} \, E_c \cdot (w^{(l)} \odot h_n^{(l)})

The weights w of the levels are 1 (sum), trained numbers (weighted), attention over the levels of a node or graph
(LSTM), or 1 for the channels in which a level is the largest and 0 elsewhere (max). Concatenation gives each level its
own part of E, and a projection (linear) multiplies E by the level's matrix. A jumping-knowledge network has the same
attention at all levels; a naive one has only the last level.
Nothing is approximated: the terms add up to the logit. Attention and weights, which the network also computes from the
graph, are taken as they came out: a share says what a node brought into the sum, not what the logit would be without
the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import JumpingKnowledge

from mlap.graphs import GraphSet
from mlap.nn import GraphNetwork, JumpReadout, Last, Max, MultiLevelAttentionPooling, Projection, Sum, Weighted
from mlap.training.batches import evaluation_batches

Floats = NDArray[np.floating[Any]]

NOT_LINEAR = "the head is not linear, so the logit is not a sum over nodes: attention only"
OWN_READOUT = "the readout is a custom one, of which only the attention is known"
OWN_AGGREGATION = "the levels are joined by a custom module, so the logit is not a sum over levels: attention only"
OWN_JUMP = "the levels of a node are joined by a custom module: shares of nodes, but not of levels"


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The logits of a batch as sums.

    Args:
        logits: `(B, K)`.
        bias: `(K,)`, of the head.
        attention: `(N, L)` for MLAP; `(N, 1)`, the same for all levels, for naive and jumping-knowledge networks.
        shares: `(N, S, K)`, of each node at each of `levels`; `None` if the logit is no such sum.
        levels: the S levels, counted from 1; empty if there is one share per node, for all levels together.
        reason: why there are no shares, or none of single levels; empty if there are.
    """

    logits: Tensor
    bias: Tensor
    attention: Tensor
    shares: Tensor | None
    levels: tuple[int, ...]
    reason: str = ""


def decompose(network: GraphNetwork, batch: Any) -> Decomposition:
    """The logits of a batch as sums over nodes and levels; call it in evaluation mode."""
    trace = network.trace(batch)
    readout, head = network.readout, network.head
    attention = torch.stack(trace.attention, dim=1)
    if not isinstance(head, nn.Linear):
        return Decomposition(trace.logits, trace.logits.new_zeros(0), attention, None, (), NOT_LINEAR)
    bias = trace.logits.new_zeros(head.out_features) if head.bias is None else head.bias
    if isinstance(readout, MultiLevelAttentionPooling):
        terms = _terms(readout.aggregation, trace.pooled, head.weight)
        # A weight of a graph's level holds for all its nodes.
        terms = terms and [
            (level, weight[batch.batch] if weight.ndim else weight, part) for level, weight, part in terms
        ]
        reason = OWN_AGGREGATION
    elif isinstance(readout, JumpReadout):
        terms, reason = _terms(readout.jump, trace.levels, head.weight), OWN_JUMP
    else:
        terms, reason = None, OWN_READOUT

    if terms is not None:
        shares = torch.stack(
            [
                attention[:, level if attention.size(1) > 1 else 0, None] * ((weight * trace.levels[level]) @ part.T)
                for level, weight, part in terms
            ],
            dim=1,
        )
        return Decomposition(trace.logits, bias, attention, shares, tuple(level + 1 for level, _, _ in terms))
    if isinstance(readout, JumpReadout):
        joined = attention * (readout.jump(trace.levels) @ head.weight.T)
        return Decomposition(trace.logits, bias, attention, joined.unsqueeze(1), (), reason)
    return Decomposition(trace.logits, bias, attention, None, (), reason)


def _terms(join: nn.Module, rows: Sequence[Tensor], matrix: Tensor) -> list[tuple[int, Tensor, Tensor]] | None:
    """A join of levels, followed by a matrix, as a sum of terms `matrix part · (weight ⊙ level)`; `None` if unknown.

    Args:
        join: the module that joins the levels.
        rows: what it was given, `L × (rows, c)`.
        matrix: `(K, C)`, of the head.

    Returns:
        The level of each term (counted from 0), its weight (a number, or `(rows, 1)`, or `(rows, c)`), and its part of
        the matrix `(K, c)`.
    """
    levels = range(len(rows))
    one = matrix.new_ones(())
    if isinstance(join, Last):
        return [(len(rows) - 1, one, matrix)]
    if isinstance(join, Sum):
        return [(level, one, matrix) for level in levels]
    if isinstance(join, Weighted):
        return [(level, join.weights[level], matrix) for level in levels]
    if isinstance(join, Max):
        largest = torch.stack(list(rows)).argmax(dim=0)
        return [(level, (largest == level).to(matrix.dtype), matrix) for level in levels]
    if isinstance(join, Projection):
        return [(level, one, matrix @ part) for level, part in enumerate(join.matrices)]
    if not isinstance(join, JumpingKnowledge):
        return None
    if join.mode == "cat":
        return [(level, one, part) for level, part in enumerate(matrix.chunk(len(rows), dim=1))]
    weights = join.att(join.lstm(torch.stack(list(rows), dim=1))[0]).softmax(dim=1)  # (rows, L, 1)
    return [(level, weights[:, level], matrix) for level in levels]


@dataclass(frozen=True, eq=False)
class Explanation:
    """The logits of one graph as sums; the fields are those of `Decomposition`, for this graph alone.

    Args:
        graph: which graph of its set.
        logits: `(K,)`.
        bias: `(K,)`.
        attention: `(n, L)` or `(n, 1)`.
        shares: `(n, S, K)` or `None`.
        levels: the S levels, or empty.
        reason: why there are no shares, or none of single levels.
    """

    graph: int
    logits: Floats
    bias: Floats
    attention: Floats
    shares: Floats | None
    levels: tuple[int, ...]
    reason: str = ""

    @property
    def num_nodes(self) -> int:
        """The nodes of the graph."""
        return len(self.attention)

    @property
    def residual(self) -> float:
        """The largest difference between a logit and the sum of its bias and shares: rounding errors only."""
        if self.shares is None:
            return 0.0
        total = self.bias + self.shares.sum(axis=(0, 1), dtype=np.float64)
        return float(np.abs(self.logits - total).max())


def explain(
    network: GraphNetwork, graphs: GraphSet, indices: Sequence[int] | NDArray[np.int64], device: Any = "cpu"
) -> Iterator[Explanation]:
    """Explain the given graphs one after the other, with the network in evaluation mode.

    They are evaluated in batches of bounded size when they are asked for, so there may be any number of them.
    """
    network.eval()
    for part in evaluation_batches(graphs, np.asarray(indices, dtype=np.int64)):
        batch = graphs.batch(part)
        ptr = batch.ptr.tolist()
        with torch.inference_mode():  # not around the yield, where it would hold for the caller's code too
            found = decompose(network, batch.to(device))
            logits, bias, attention = (value.cpu().numpy() for value in (found.logits, found.bias, found.attention))
            shares = None if found.shares is None else found.shares.cpu().numpy()
        for number, graph in enumerate(part):
            nodes = slice(ptr[number], ptr[number + 1])
            yield Explanation(
                int(graph),
                logits[number],
                bias,
                attention[nodes],
                None if shares is None else shares[nodes],
                found.levels,
                found.reason,
            )
