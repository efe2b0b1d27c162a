"""Data-parallel training of one network by several processes, on one machine or many.

`torchrun --nproc-per-node 2 -m mlap train …` starts the processes. Each takes its share of every batch; gradients are
added up over the processes, weighted so that the sum is the gradient of the whole batch. The shuffling is the same in
all processes, dropout masks are not. Statistics of `norm="batch"` are those of a process's own share.

Everything here also holds for a single process, where it does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn


def join_group(device: str) -> str:
    """Join the processes that torchrun started, if it did; the device that this process should use."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if device == "cuda":
            device = f"cuda:{os.environ['LOCAL_RANK']}"
        dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    return device


def leave_group() -> None:
    """Leave the group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """This process's number; 0 is the one that writes files and talks to the user."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def share(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """This process's share of some graphs."""
    return indices[rank() :: world_size()]


def add_up(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over all processes, in one exchange."""
    if world_size() == 1:
        return
    parts = list(tensors)
    flat = torch.cat([part.flatten() for part in parts])
    dist.all_reduce(flat)
    for part, total in zip(parts, flat.split([part.numel() for part in parts]), strict=True):  # type: ignore[no-untyped-call]
        part.copy_(total.view_as(part))


def add_up_gradients(network: nn.Module) -> None:
    """Make every process's gradients the sum over all processes."""
    if world_size() == 1:
        return
    for parameter in network.parameters():
        if parameter.grad is None:  # this process had no graphs in this step
            parameter.grad = torch.zeros_like(parameter)
    add_up(parameter.grad for parameter in network.parameters() if parameter.grad is not None)


def join_shares(part: Tensor, number: int) -> Tensor:
    """Rows `(number, …)` of which every process has its share `(share, …)`, whole in every process."""
    if world_size() == 1:
        return part
    parts: list[Tensor] = [part] * world_size()
    dist.all_gather_object(parts, part)
    whole = part.new_empty(number, *part.shape[1:])
    for process, rows in enumerate(parts):
        whole[process :: world_size()] = rows
    return whole


def wait_for_all() -> None:
    """Wait until every process has come here."""
    if dist.is_initialized():
        dist.barrier()
