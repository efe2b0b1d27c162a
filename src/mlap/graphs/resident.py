"""A set of graphs that lives on a device, whose batches are assembled there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlap.graphs.graph_set import Array, Features, GraphBatch, GraphSet, label_tensor, move, spans


class ResidentGraphs:
    """A set whose arrays are tensors on a device, in small integer types as in the set.

    `batch` gives what `GraphSet.batch` gives, computed on the device. A few numbers per graph go there in one copy; the
    sizes of all results are known on the host, so that the host never waits for the device.

    Args:
        graphs: the set.
        device: where to keep it.
    """

    def __init__(self, graphs: GraphSet, device: torch.device | str) -> None:
        self.graphs = graphs
        self.device = torch.device(device)
        self.edges = _compact(graphs.edges).to(self.device)
        self.node_features = _Rows.of(graphs.node_features, self.device)
        self.edge_features = _Rows.of(graphs.edge_features, self.device)
        self.y = None if graphs.y is None else label_tensor(np.array(graphs.y)).to(self.device)

    def batch(self, indices: Any) -> GraphBatch:
        """The graphs `indices` as one batch on the device."""
        chosen = np.asarray(indices, dtype=np.int64)
        number = len(chosen)
        node_counts, node_ptr, node_shifts = spans(self.graphs.node_ptr, chosen)
        edge_counts, edge_ptr, edge_shifts = spans(self.graphs.edge_ptr, chosen)
        num_nodes, num_edges = int(node_ptr[-1]), int(edge_ptr[-1])

        travels = np.concatenate((node_ptr, node_counts, node_shifts, edge_counts, edge_shifts, chosen))
        arrived = move(torch.from_numpy(travels), self.device)
        ptr, per_graph = arrived[: number + 1], arrived[number + 1 :].view(5, number)

        graph_of_node, node_rows = _spread(per_graph[0], per_graph[1], num_nodes)
        graph_of_edge, edge_rows = _spread(per_graph[2], per_graph[3], num_edges)
        edge_index = self.edges.index_select(1, edge_rows) + ptr.index_select(0, graph_of_edge)
        edge_attr = None if self.edge_features is None else self.edge_features.take(edge_rows)
        if not self.graphs.directed:
            edge_index = torch.cat((edge_index, edge_index.flip(0)), dim=1)
            edge_attr = None if edge_attr is None else torch.cat((edge_attr, edge_attr))
        return GraphBatch(
            x=None if self.node_features is None else self.node_features.take(node_rows),
            edge_index=edge_index,
            edge_attr=edge_attr,
            batch=graph_of_node,
            ptr=ptr,
            num_nodes=num_nodes,
            num_graphs=number,
            y=None if self.y is None else self.y.index_select(0, per_graph[4]),
        )


def fits(graphs: GraphSet, device: torch.device | str) -> bool:
    """Whether the set leaves at least half of a GPU's free memory to the network; other devices are not asked."""
    device = torch.device(device)
    if device.type != "cuda":
        return True
    arrays = [graphs.edges, *(part.values for part in (graphs.node_features, graphs.edge_features) if part is not None)]
    free, _ = torch.cuda.mem_get_info(device)
    return sum(array.nbytes for array in arrays) < free / 2


class _Rows:
    """Features on a device."""

    def __init__(self, features: Features, device: torch.device) -> None:
        self.values = _compact(features.values).to(device)
        self.categorical = features.categorical
        # A tensor: CUDA multiplies by the reciprocal of a number, which may round otherwise than a division.
        self.divisor = None if features.divisor == 1 else torch.tensor([features.divisor], device=device).float()

    @classmethod
    def of(cls, features: Features | None, device: torch.device) -> _Rows | None:
        return None if features is None else cls(features, device)

    def take(self, rows: Tensor) -> Tensor:
        """The given rows as int64 categories or float32 values; see `Features.tensor`."""
        chosen = self.values.index_select(0, rows)
        if self.categorical:
            return chosen.long()
        return chosen.float() if self.divisor is None else chosen.float() / self.divisor


def _spread(counts: Tensor, shifts: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """For each row of the chosen graphs, its graph and its place among the rows of all graphs."""
    graph = torch.repeat_interleave(counts, output_size=total)
    return graph, shifts.index_select(0, graph) + torch.arange(total, device=counts.device)


def _compact(array: Array) -> Tensor:
    """A copy of the array as a tensor; unsigned types of several bytes, which torch barely knows, become signed."""
    dtype: Any = array.dtype
    if dtype.kind == "u" and dtype.itemsize > 1:
        largest = int(array.max(initial=0))
        dtype = next(kind for kind in (np.int16, np.int32, np.int64) if largest <= np.iinfo(kind).max)
    copied: NDArray[Any] = np.array(array, dtype=dtype, order="C")
    return torch.from_numpy(copied)
