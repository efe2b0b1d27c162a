"""The representations of whole graphs inside a trained network: one per level, and the one that its head sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mlap.graphs import GraphSet
from mlap.nn import GraphNetwork, MultiLevelAttentionPooling
from mlap.training.batches import batch_for, evaluation_batches, prepare

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Levels:
    """The representations of G graphs.

    Args:
        level_wise: `(G, L, d)`, the level-wise graph representations of an MLAP network. Naive and jumping-knowledge
            networks pool only once and have none: `(G, 0, C)`.
        aggregate: `(G, C)`, what the head sees.
        numbers: what to call the levels; 1 to L unless given.
    """

    level_wise: Floats
    aggregate: Floats
    numbers: tuple[int, ...] = ()

    @property
    def num_levels(self) -> int:
        """The number of level-wise representations L."""
        return int(self.level_wise.shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """What to call them: the numbers of the levels, and `aggregate`."""
        return (*map(str, self.numbers or range(1, self.num_levels + 1)), "aggregate")

    def __len__(self) -> int:
        return len(self.aggregate)

    def __getitem__(self, number: int) -> Floats:
        """Representation `number` of all graphs: the levels in order, then the aggregate."""
        return self.aggregate if number == self.num_levels else self.level_wise[:, number]


def level_representations(
    network: GraphNetwork, graphs: GraphSet, indices: NDArray[np.int64], device: torch.device | str = "cpu"
) -> Levels:
    """The representations of the given graphs, from the network in evaluation mode.

    Graphs are evaluated in batches of bounded size, and of each batch only the graph representations are kept.
    """
    network.eval()
    prepare(network, graphs, indices)
    num_levels = num_representations(network) - 1
    level_wise = aggregate = np.empty(0, np.float32)
    done = 0
    with torch.inference_mode():
        for part in evaluation_batches(graphs, indices):
            trace = network.trace(batch_for(network, graphs, part).to(device))
            if done == 0:
                level_wise = np.empty((len(indices), num_levels, trace.pooled[0].size(1)), np.float32)
                aggregate = np.empty((len(indices), trace.graphs.size(1)), np.float32)
            rows = slice(done, done + len(part))
            for level in range(num_levels):
                level_wise[rows, level] = trace.pooled[level].cpu().numpy()
            aggregate[rows] = trace.graphs.cpu().numpy()
            done += len(part)
    return Levels(level_wise, aggregate, network.level_numbers(num_levels) if num_levels else ())


def num_representations(network: GraphNetwork) -> int:
    """How many representations a graph has in this network: those of the levels, if there are any, and the last."""
    readout = network.readout
    return (readout.num_levels if isinstance(readout, MultiLevelAttentionPooling) else 0) + 1
