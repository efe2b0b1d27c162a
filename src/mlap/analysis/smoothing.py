r"""Oversmoothing, level by level: how alike the nodes of a graph have become.

Three measures, each of one graph with nodes n and representations h:

- the mean average distance of neighbours: the cosine distance of a node from each node whose messages it gets,
  averaged over these, then over the nodes that have any (Chen et al., 2020);
- the same over all other nodes of the graph;
- the relative Dirichlet energy, :math:`\sum_{(u,v)} \|h_u - h_v\|^2 \big/ 2 \sum_n \|h_n\|^2` over arcs: what
  varies along edges, in units of the representations' own size, since that grows from level to level in a network
  without normalisation.

All are 0 where the nodes are all the same. Two zero vectors count as the same, a zero vector and another as orthogonal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.utils import scatter

from mlap.graphs import GraphBatch, GraphSet
from mlap.nn import GraphNetwork
from mlap.training.batches import batch_for, evaluation_batches


@dataclass(frozen=True, eq=False)
class Smoothing:
    """The measures at each level `(L,)`, averaged over those graphs for which they are defined.

    Args:
        neighbours: mean average distance of neighbours; undefined for a graph without edges.
        all_nodes: mean average distance of all nodes; undefined for a graph of fewer than two nodes.
        dirichlet: relative Dirichlet energy; undefined for a graph without edges or whose nodes are all zero.
        num_graphs: how many graphs were looked at.
    """

    neighbours: NDArray[np.float64]
    all_nodes: NDArray[np.float64]
    dirichlet: NDArray[np.float64]
    num_graphs: int


def smoothing(
    network: GraphNetwork, graphs: GraphSet, indices: NDArray[np.int64], device: torch.device | str = "cpu"
) -> Smoothing:
    """How alike the nodes of the given graphs are at every level, with the network in evaluation mode.

    NaN stands where a measure is defined for none of the graphs.
    """
    network.eval()
    parts: list[NDArray[np.float64]] = []
    with torch.inference_mode():
        for part in evaluation_batches(graphs, indices):
            batch = batch_for(network, graphs, part).to(device)
            parts.append(np.stack([smoothness(h, batch).cpu().numpy() for h in network.levels(batch)]))
    values = np.concatenate(parts, axis=2)  # (L, 3, G)
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        means = np.where(defined, values, 0).sum(axis=2) / defined.sum(axis=2)
    return Smoothing(means[:, 0], means[:, 1], means[:, 2], len(indices))


def smoothness(h: Tensor, batch: GraphBatch) -> Tensor:
    """The three measures `(3, B)` of every graph in a batch, in double precision; NaN where one is undefined."""
    h = h.double()
    of_node, num_graphs = batch.batch, batch.num_graphs
    source, target = batch.edge_index[:, batch.edge_index[0] != batch.edge_index[1]]

    # One more channel, in which zero vectors point, makes every row a unit vector.
    norms = h.norm(dim=1, keepdim=True)
    unit = torch.cat((h / norms.where(norms > 0, 1), (norms == 0).double()), dim=1)
    distances = 1 - (unit[source] * unit[target]).sum(1)
    degree = scatter(torch.ones_like(distances), target, 0, len(h))
    of_nodes = scatter(distances, target, 0, len(h)) / degree.clamp(min=1)
    neighbours = scatter(of_nodes, of_node, 0, num_graphs) / scatter((degree > 0).double(), of_node, 0, num_graphs)

    # Over all pairs of different nodes the cosines add up to |Σ unit|² − n.
    size = scatter(torch.ones_like(degree), of_node, 0, num_graphs)
    pairs = size * (size - 1)
    all_nodes = 1 - (scatter(unit, of_node, 0, num_graphs).square().sum(1) - size) / pairs

    varies = scatter((h[source] - h[target]).square().sum(1), of_node[source], 0, num_graphs)
    arcs = scatter(torch.ones_like(distances), of_node[source], 0, num_graphs)
    dirichlet = varies / (2 * scatter(h.square().sum(1), of_node, 0, num_graphs))

    undefined = torch.tensor(torch.nan, dtype=h.dtype, device=h.device)
    measures = neighbours, all_nodes.where(pairs > 0, undefined), dirichlet.where(arcs > 0, undefined)
    return torch.stack(measures).clamp(min=0)  # rounding may leave a distance a little below 0
