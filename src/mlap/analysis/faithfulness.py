"""Do shares matter? Remove the nodes that a logit owes most to, and see whether it changes more than by chance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mlap.errors import UsageError
from mlap.graphs import Features, GraphSet
from mlap.models.explanation import explain
from mlap.nn import GraphNetwork
from mlap.nn.batch import graphs_of
from mlap.statistics import Summary, summarise
from mlap.training import predict_logits
from mlap.training.batches import batch_for, evaluation_batches

#: What nodes are removed from: the graph, with their edges, so that no other node hears of them; or only the readout,
#: so that the others keep their representations and share the attention among themselves.
PLACES = ("graph", "readout")

#: The orders in which nodes are removed: by share, the largest in size first, the highest or the lowest; by attention
#: summed over levels; by chance.
ORDERS = ("largest share", "highest share", "lowest share", "highest attention", "random")


@dataclass(frozen=True)
class Removal:
    """What removing nodes did to a logit, over several graphs.

    Args:
        place: one of `PLACES`.
        order: one of `ORDERS`.
        fraction: of each graph's nodes that were removed, rounded, but at least one.
        nodes: how many that were per graph, on average.
        change: of the logit, signed.
        size: of the change, unsigned.
    """

    place: str
    order: str
    fraction: float
    nodes: float
    change: Summary
    size: Summary


def measure_faithfulness(
    network: GraphNetwork,
    graphs: GraphSet,
    indices: Sequence[int] | NDArray[np.int64],
    *,
    output: int = 0,
    fractions: Sequence[float] = (0.05, 0.1, 0.2, 0.3, 0.5),
    draws: int = 5,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> list[Removal]:
    """Remove nodes in several orders and compare the logits, with the network in evaluation mode.

    Args:
        network: its shares must be exact; see `explain`.
        graphs: the set.
        indices: which graphs; each needs at least two nodes.
        output: which logit.
        fractions: of nodes to remove.
        draws: random removals per graph, whose changes are averaged.
        seed: of the random removals.
        device: a torch device.
    """
    part = graphs.subset(indices)
    sizes = np.diff(part.node_ptr)
    if not len(part) or sizes.min() < 2:
        raise UsageError("nodes can only be removed from graphs of at least two nodes")
    explained = list(explain(network, part, np.arange(len(part)), device))
    if any(one.shares is None for one in explained):
        raise UsageError(f"there are no shares to follow: {explained[0].reason}")
    shares = np.concatenate([one.shares.sum(axis=1)[:, output] for one in explained if one.shares is not None])
    attention = np.concatenate([one.attention.sum(axis=1) for one in explained])
    before = np.array([one.logits[output] for one in explained])
    random = np.random.RandomState(seed)
    scores = {
        "largest share": [np.abs(shares)],
        "highest share": [shares],
        "lowest share": [-shares],
        "highest attention": [attention],
        "random": [random.random_sample(len(shares)) for _ in range(draws)],
    }
    found = []
    for place, logits_without in (("graph", _logits_without_nodes), ("readout", _logits_without_pooling)):
        for fraction in fractions:
            removed = np.clip(np.rint(fraction * sizes), 1, sizes - 1).astype(np.int64)
            for order in ORDERS:
                keeps = [_rank(part, score) >= np.repeat(removed, sizes) for score in scores[order]]
                changes = np.stack([logits_without(network, part, keep, device)[:, output] - before for keep in keeps])
                signed = summarise(changes.mean(axis=0).tolist())
                unsigned = summarise(np.abs(changes).mean(axis=0).tolist())
                found.append(Removal(place, order, fraction, float(removed.mean()), signed, unsigned))
    return found


def _logits_without_nodes(
    network: GraphNetwork, graphs: GraphSet, keep: NDArray[np.bool_], device: torch.device | str
) -> NDArray[Any]:
    """Logits `(G, K)` of the graphs without the nodes that are not kept."""
    return predict_logits(network, remove_nodes(graphs, keep), np.arange(len(graphs)), device).numpy()


def _logits_without_pooling(
    network: GraphNetwork, graphs: GraphSet, keep: NDArray[np.bool_], device: torch.device | str
) -> NDArray[Any]:
    """Logits `(G, K)` of the whole graphs, whose readout sees only the nodes that are kept."""
    logits = []
    with torch.inference_mode():
        for part in evaluation_batches(graphs, np.arange(len(graphs))):
            batch = batch_for(network, graphs, part).to(device)
            kept = torch.from_numpy(keep[graphs.node_ptr[part[0]] : graphs.node_ptr[part[-1] + 1]]).to(device)
            levels = [h[kept] for h in network.levels(batch)]
            readout = network.readout(levels, batch.batch[kept], dim_size=batch.num_graphs)
            logits.append(network.answer(readout, graphs_of(batch)).cpu().numpy())
    return np.concatenate(logits)


def remove_nodes(graphs: GraphSet, keep: NDArray[np.bool_]) -> GraphSet:
    """The set without some of its nodes and without the edges that end in them; splits are left behind.

    Args:
        graphs: the set.
        keep: `(num_nodes,)`, which nodes stay.
    """
    owner = np.repeat(np.arange(len(graphs)), np.diff(graphs.edge_ptr))
    ends = graphs.edges.astype(np.int64) + graphs.node_ptr[owner]
    stays = keep[ends].all(axis=0)
    before = np.concatenate(([0], np.cumsum(keep)))  # how many of the nodes before a node stay
    node_ptr = before[graphs.node_ptr]

    def rows(features: Features | None, chosen: NDArray[np.bool_]) -> Features | None:
        return None if features is None else dataclasses.replace(features, values=features.values[chosen])

    return dataclasses.replace(
        graphs,
        node_ptr=node_ptr,
        edge_ptr=np.concatenate(([0], np.cumsum(stays)))[graphs.edge_ptr],
        edges=before[ends[:, stays]] - node_ptr[owner[stays]],
        node_features=rows(graphs.node_features, keep),
        edge_features=rows(graphs.edge_features, stays),
        splits={},
    )


def _rank(graphs: GraphSet, score: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each node in its graph, 0 for the highest score."""
    owner = np.repeat(np.arange(len(graphs)), np.diff(graphs.node_ptr))
    order = np.lexsort((-score, owner))
    rank = np.empty(len(score), dtype=np.int64)
    rank[order] = np.arange(len(score)) - graphs.node_ptr[owner]
    return rank
