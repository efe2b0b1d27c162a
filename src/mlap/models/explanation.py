r"""Exact explanations: the share that every node has, at every level, in a logit.

A pooling is a weighted sum of nodes, every join of levels is a weighted sum of levels, and the head is linear. So a
logit is a sum over levels l and nodes n, and each term belongs to one node at one level:

.. math::
    \mathrm{logit}_c = b_c + u_c \cdot g + \sum_l \sum_n a_n^{(l)} \, E_c \cdot M_l (w^{(l)} \odot h_n^{(l)})

The weights w and the matrices M of the levels are what the join itself says (`mlap.nn.Join.terms`): 1 (sum), trained
numbers (weighted), attention over the levels of a node or graph (LSTM), or 1 for the channels in which a level is the
largest and 0 elsewhere (max). A jumping-knowledge network has the same attention at all levels; a naive one has only
the last level. Where the network has features g of whole graphs, they have a term of their own.
Nothing is approximated: the terms add up to the logit. Attention and weights, which the network also computes from the
graph, are taken as they came out: a share says what a node brought into the sum, not what the logit would be without
the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlap.graphs import GraphSet
from mlap.nn import GraphNetwork, JumpReadout, MultiLevelAttentionPooling, Terms
from mlap.nn.batch import graphs_of
from mlap.training.batches import batch_for, evaluation_batches

Floats = NDArray[np.floating[Any]]

NOT_LINEAR = "the head is not linear, so the logit is not a sum over nodes: attention only"
NOT_WEIGHTED = "a pooling is no weighted sum of nodes, so the logit is not a sum over nodes: attention only"
OWN_READOUT = "the readout is a custom one, of which only the attention is known"
OWN_JOIN = "the levels are joined by a module that does not say its terms, so the logit is not a sum over levels"


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The logits of a batch as sums.

    Args:
        logits: `(B, K)`.
        bias: `(K,)`, of the head.
        attention: `(N, S)` for MLAP, as `levels`; `(N, 1)`, the same for all levels, for naive and jumping-knowledge
            networks.
        shares: `(N, S, K)`, of each node at each of `levels`; `None` if the logit is no such sum.
        levels: the S levels, counted from 1 (0 is the input, where it is a level); empty if there is one share per
            node, for all levels together.
        reason: why there are no shares, or none of single levels; empty if there are.
        graph_share: `(B, K)`, of the features of whole graphs; `None` if the network has none.
    """

    logits: Tensor
    bias: Tensor
    attention: Tensor
    shares: Tensor | None
    levels: tuple[int, ...]
    reason: str = ""
    graph_share: Tensor | None = None


def decompose(network: GraphNetwork, batch: Any) -> Decomposition:
    """The logits of a batch as sums over nodes and levels; call it in evaluation mode."""
    g = graphs_of(batch)
    trace = network.trace(g)
    readout, head = network.readout, network.head
    nodes = trace.levels[-1]
    attention = torch.stack(trace.attention, dim=1) if trace.attention else nodes.new_zeros(len(nodes), 0)
    graph_share = None if network.graph_head is None else network.graph_logits(g)
    bias = trace.logits.new_zeros(trace.logits.size(1))
    if isinstance(head, nn.Linear) and head.bias is not None:
        bias = head.bias

    def found(
        shares: Tensor | None, levels: tuple[int, ...] = (), reason: str = "", attention: Tensor = attention
    ) -> Decomposition:
        return Decomposition(trace.logits, bias, attention, shares, levels, reason, graph_share)

    if not isinstance(head, nn.Linear):
        return found(None, reason=NOT_LINEAR)
    if not isinstance(readout, MultiLevelAttentionPooling | JumpReadout):
        return found(None, reason=OWN_READOUT)
    if not all(getattr(pool, "is_weighted_sum", False) for pool in readout.pools):
        return found(None, reason=NOT_WEIGHTED)
    per_graph = isinstance(readout, MultiLevelAttentionPooling)
    terms = _terms(readout.join, trace.pooled if per_graph else trace.levels)
    if terms is not None:
        levels = _present(terms)
        numbers = network.level_numbers(len(trace.levels))
        index = g.index if per_graph else None
        shares = [
            attention[:, level if per_graph else 0, None] * _added(terms, level, trace.levels[level], index, head)
            for level in levels
        ]
        present = attention[:, levels] if per_graph else attention
        return found(torch.stack(shares, dim=1), tuple(numbers[level] for level in levels), attention=present)
    if per_graph:
        return found(None, reason=f"{OWN_JOIN}: attention only")
    joined = attention * (readout.join(trace.levels) @ head.weight.T)
    return found(joined.unsqueeze(1), reason=f"{OWN_JOIN}: shares of nodes, but not of levels")


def _terms(join: Any, levels: Sequence[Tensor]) -> Terms | None:
    """What each level adds to a join; `None` of a module that does not say it."""
    terms: Terms | None = join.terms(levels) if hasattr(join, "terms") else None
    return terms


def _present(terms: Terms) -> list[int]:
    """The levels that add anything: all but those whose weight is zero whatever the graph."""
    weights = terms.weights
    return [level for level in range(weights.size(min(1, weights.dim() - 1))) if weights.dim() > 1 or weights[level]]


def _added(terms: Terms, level: int, h: Tensor, index: Tensor | None, head: nn.Linear) -> Tensor:
    """What nodes `h` `(N, c)` of a level would add to the logits `(N, K)` with an attention of one.

    Where terms are of graphs, `index` says the graph of each node: a graph's weight holds for all its nodes.
    """
    weight = terms.weight(level)
    if index is not None and weight.dim():
        weight = weight[index]
    matrix = head.weight if terms.maps is None else head.weight @ terms.maps[level]
    return (weight * h) @ matrix.T


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
        graph_share: `(K,)` or `None`.
        others: member of an ensemble → what it adds to the logits `(K,)`, for members whose answers are no sums over
            nodes (a forest).
    """

    graph: int
    logits: Floats
    bias: Floats
    attention: Floats
    shares: Floats | None
    levels: tuple[int, ...]
    reason: str = ""
    graph_share: Floats | None = None
    others: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """The nodes of the graph."""
        return len(self.attention)

    @property
    def residual(self) -> float:
        """The largest difference between a logit and the sum of its bias and all terms: rounding errors only."""
        if self.shares is None:
            return 0.0
        total = self.bias + self.shares.sum(axis=(0, 1), dtype=np.float64)
        for term in (self.graph_share, *self.others.values()):
            if term is not None:
                total = total + term
        return float(np.abs(self.logits - total).max())


def explain(
    network: GraphNetwork, graphs: GraphSet, indices: Sequence[int] | NDArray[np.int64], device: Any = "cpu"
) -> Iterator[Explanation]:
    """Explain the given graphs one after the other, with the network in evaluation mode.

    They are evaluated in batches of bounded size when they are asked for, so there may be any number of them.
    """
    network.eval()
    for part in evaluation_batches(graphs, np.asarray(indices, dtype=np.int64)):
        batch = batch_for(network, graphs, part)
        ptr = batch.ptr.tolist()
        with torch.inference_mode():  # not around the yield, where it would hold for the caller's code too
            found = decompose(network, batch.to(device))
            logits, bias, attention = (value.cpu().numpy() for value in (found.logits, found.bias, found.attention))
            shares, graph_share = (
                None if value is None else value.cpu().numpy() for value in (found.shares, found.graph_share)
            )
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
                None if graph_share is None else graph_share[number],
            )
