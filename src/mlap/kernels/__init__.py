"""Compiled kernels for what a network does on the CPU between its matrix products; optional.

With numba installed (the extra `fast`) the modules of `mlap.nn` use the functions of this room where `usable` says so;
everywhere else, on a GPU, while torch compiles, for other types, they use torch operations. Those are in the modules
themselves, compute the same, and are what the kernels are tested against. `MLAP_KERNELS=0` turns the kernels off.
"""

from __future__ import annotations

import importlib.util
import os
from typing import TypeGuard, TypeVar

import torch
from torch import Tensor, nn

#: what is the same for several rows is computed once if no more than this fraction of all has to be computed then
WORTH_SHARING = 0.9

Kind = TypeVar("Kind", bound=nn.Module)

_INSTALLED = importlib.util.find_spec("numba") is not None


def on_host(tensor: Tensor) -> bool:
    """Whether the values may be looked at: a device would have to wait, torch's compiler would break the graph."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels can compute with these tensors here and now."""
    return (
        _INSTALLED
        and os.environ.get("MLAP_KERNELS", "1") != "0"
        and all(on_host(x) and x.dtype in (torch.float32, torch.float64) for x in tensors)
        and len({x.dtype for x in tensors}) == 1
        and not torch._C._are_functorch_transforms_active()
    )


def may_replace(module: nn.Module, kind: type[Kind]) -> TypeGuard[Kind]:
    """Whether kernels may do a module's work without calling it: it is of no subclass, and no hook waits for calls."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return type(module) is kind and not any(hooks)
