"""Batches of a set on a device, however they get there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mlap.graphs import Buckets, GraphBatch, GraphSet, ResidentGraphs
from mlap.graphs.descriptors import descriptors_of
from mlap.graphs.resident import fits
from mlap.graphs.walks import walks_of
from mlap.nn import GraphNetwork
from mlap.training import parallel
from mlap.training.descriptor_head import DescriptorHead

#: nodes and arcs in one batch of an evaluation: enough to keep a processor busy, little enough for its memory
EVALUATION_ROWS = 15_000
#: up to so many nodes and arcs of a split, its batches are kept for the next evaluation: some hundred megabytes
KEPT_ROWS = 4_000_000


class Batches:
    """Where training gets its batches from.

    On a device other than the CPU the set itself lives on the device, if there is room, and batches are assembled
    there; otherwise the host assembles them.

    Args:
        graphs: the set.
        device: where batches are wanted.
        pad: whether those for training are padded to a few shapes, see `Buckets`.
        network: what they are for, which may read more than the graphs themselves; see `batch_for`.
    """

    def __init__(
        self, graphs: GraphSet, device: torch.device, pad: bool = False, network: GraphNetwork | None = None
    ) -> None:
        self.network = network
        self.graphs = graphs
        self.device = device
        self.source = ResidentGraphs(graphs, device) if device.type != "cpu" and fits(graphs, device) else graphs
        self.buckets = Buckets.of(graphs) if pad else None
        self.kept: dict[str, list[GraphBatch]] = {}

    def for_training(self, indices: NDArray[np.int64]) -> GraphBatch:
        """The given graphs as one batch."""
        batch = self._batch(indices)
        if self.buckets is not None:
            batch = self.buckets.pad(batch)
        return batch.to(self.device)

    def for_evaluation(self, split: str) -> Iterable[GraphBatch]:
        """This process's share of a split; its batches are assembled once, unless they are large."""
        if split in self.kept:
            return self.kept[split]
        indices = parallel.share(self.graphs.split(split))
        if self.network is not None:
            prepare(self.network, self.graphs, indices)
        batches = (self._batch(part).to(self.device) for part in evaluation_batches(self.graphs, indices))
        if len(indices) * _rows_per_graph(self.graphs) > KEPT_ROWS:
            return batches
        return self.kept.setdefault(split, list(batches))

    def _batch(self, indices: NDArray[np.int64]) -> GraphBatch:
        batch = self.source.batch(indices)
        return batch if self.network is None else _with_features(self.network, self.graphs, indices, batch)


def prepare(network: GraphNetwork, graphs: GraphSet, indices: NDArray[np.int64]) -> None:
    """Compute what the batches of some graphs will need, in several processes where one batch would not be worth it."""
    if isinstance(network.graph_head, DescriptorHead):
        descriptors_of(graphs, indices, network.graph_head.names)


def batch_for(network: GraphNetwork, graphs: GraphSet, indices: NDArray[np.int64]) -> GraphBatch:
    """Graphs of a set as one batch, with everything that the network reads."""
    return _with_features(network, graphs, indices, graphs.batch(indices))


def _with_features(
    network: GraphNetwork, graphs: GraphSet, indices: NDArray[np.int64], batch: GraphBatch
) -> GraphBatch:
    """The batch with those features beside which the network was built for and which are made from the graphs."""
    if isinstance(network.walk_encoder, nn.Linear):
        walks = walks_of(graphs, indices, network.walk_encoder.in_features)
        batch = dataclasses.replace(batch, rw=torch.from_numpy(walks).to(batch.ptr.device))
    if isinstance(network.graph_head, DescriptorHead):
        described = descriptors_of(graphs, indices, network.graph_head.names)
        batch = dataclasses.replace(batch, graph_attr=torch.from_numpy(described).to(batch.ptr.device))
    return batch


def evaluation_batches(graphs: GraphSet, indices: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut indices into batches of about `EVALUATION_ROWS` nodes and arcs each; at least one, if only an empty one."""
    size = max(1, int(EVALUATION_ROWS / max(1, _rows_per_graph(graphs))))
    return (indices[start : start + size] for start in range(0, max(1, len(indices)), size))


def _rows_per_graph(graphs: GraphSet) -> float:
    return (graphs.num_nodes + 2 * graphs.num_edges) / max(1, len(graphs))
