"""The fast path: compiled kernels for what a network does on the CPU between its matrix products; optional.

With numba installed (the extra `fast`), `executor` gives an object that runs a `GraphNetwork` on a batch by compiled
loops, forward and backward, with the same results to rounding and the same random stream. It gives none where they
cannot or must not: on a GPU, for other types, while torch compiles or traces, under autocast, forward-mode derivatives
and functorch. A part that is not what the kernels know (a module of one's own, one with hooks) is called as usual.

The environment variable `MLAP_KERNELS=0` turns the kernels off; it is read when this module is imported. `disabled`
turns them off for some lines.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from mlap.files import first_line

if TYPE_CHECKING:
    from mlap.nn.batch import Graphs
    from mlap.nn.execution import Executor
    from mlap.nn.network import GraphNetwork

_wanted: ContextVar[bool] = ContextVar("kernels", default=os.environ.get("MLAP_KERNELS", "1") != "0")


@contextmanager
def disabled() -> Iterator[None]:
    """Run networks by torch operations alone: for second derivatives, say, which the kernels do not have."""
    token = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(token)


def executor(network: GraphNetwork, g: Graphs) -> Executor | None:
    """An executor of the network for these graphs; `None` where its own modules are to run."""
    if not _wanted.get() or _watched():
        return None
    make = _maker()
    made: Executor | None = None if make is None else make(network, g)
    return made


def _watched() -> bool:
    """Whether something looks at, or changes, what torch computes, and would not see the kernels."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch.autograd.forward_ad._current_level >= 0
    )


@cache
def _maker() -> Any:
    """The function that makes executors; `None` without numba, and, with a warning, if numba cannot be used."""
    try:
        from mlap.kernels import run

        run.try_one()
    except ModuleNotFoundError as error:
        if error.name == "numba":
            return None
        return _without(error)
    except Exception as error:  # numba fails in many ways: another numpy, another llvmlite, no place for its cache
        return _without(error)
    return run.executor


def _without(error: Exception) -> None:
    """Say, once, why networks run without kernels."""
    warnings.warn(
        f"numba cannot be used ({first_line(error)}); networks run by torch operations alone, which is slower",
        RuntimeWarning,
        stacklevel=2,
    )
