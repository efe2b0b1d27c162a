"""Which nodes are alike in a message-passing step, so that one of them can stand for all.

A node's step depends on its own kind and on the kinds of its neighbours and of the arcs from them, in no order. In the
first step, among molecules in a batch, there are far fewer such environments than nodes; without features there is one
per degree. As long as nothing random happens in between, environments are the kinds of the next step (this is colour
refinement, after Weisfeiler and Leman): a quarter of the atoms of molecules never differ from some other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Environments(NamedTuple):
    """The different environments of some nodes.

    Args:
        first: the first node of every environment `(K,)`.
        of_node: the environment of every node `(N,)`.
    """

    first: Tensor
    of_node: Tensor


def environments(kind: Tensor, edge_kind: Tensor | None, edge_index: Tensor) -> Environments:
    """The environments of all nodes, on the CPU.

    Environments are told apart by 64-bit hashes: that two of a batch of a million share one by accident has a
    probability of about 3e-8.

    Args:
        kind: the kind of each node `(N,)`.
        edge_kind: the kind of each arc, or `None` if all are alike.
        edge_index: `(2, arcs)`, sources and targets.
    """
    source, target = edge_index.numpy()
    own = _mixed(kind.numpy().astype(np.uint64))
    message = own[source]
    if edge_kind is not None:
        message = _mixed(message + edge_kind.numpy().astype(np.uint64))
    heard = np.zeros(len(own), np.uint64)
    np.add.at(heard, target, message)  # a sum of hashes stands for a multiset
    _, first, environment = np.unique(_mixed(own + _mixed(heard)), return_index=True, return_inverse=True)
    return Environments(torch.from_numpy(first), torch.from_numpy(environment))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A pseudo-random number for each number: the steps of the generator splitmix64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
