"""The one place where `nn` asks whether something else can run a network in its stead."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from mlap.nn.batch import Graphs
from mlap.nn.readout import Reading

if TYPE_CHECKING:
    from mlap.nn.network import GraphNetwork


class Executor(Protocol):
    """Runs a network on some graphs, with the same results to rounding and the same random stream."""

    def levels(self) -> list[Tensor]:
        """The node representations of all levels, `L × (N, d)`."""

    def read(self, levels: list[Tensor]) -> Reading | None:
        """What the readout reads of them; `None` if it has to be called."""


def executor(network: GraphNetwork, g: Graphs) -> Executor | None:
    """An executor of a network for some graphs; `None` where the network's own modules are to run."""
    if torch.compiler.is_compiling():
        return None
    make = _maker()
    made: Executor | None = None if make is None else make(network, g)
    return made


def by_itself() -> AbstractContextManager[None]:
    """Inside, networks run by their own modules alone."""
    try:
        from mlap import kernels
    except ImportError:
        return nullcontext()
    return kernels.disabled()


@cache
def _maker() -> Any:
    """The function that makes executors, if the room `kernels` is there."""
    try:
        from mlap import kernels
    except ImportError:
        return None
    return kernels.executor
