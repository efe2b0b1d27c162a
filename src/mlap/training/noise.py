"""FLAG: train against the worst small noise on the encoded nodes.

Kong et al., "Robust Optimization as Data Augmentation for Large-scale Graphs" (CVPR 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

#: how often noise climbs in a training step: FLAG's own number
STEPS = 3


@contextmanager
def noise(encoder: nn.Module, num_nodes: int, size: float) -> Iterator[Callable[[], None]]:
    r"""Add noise :math:`\delta` `(N, d)` to what an encoder makes of the nodes; gives a function that lets it climb.

    .. math::
        \delta \sim \mathcal U(-\alpha, \alpha), \qquad
        \delta \leftarrow \delta + \alpha \, \mathrm{sign} \left( \nabla_\delta \mathcal L \right) \;\text{in a climb}

    Args:
        encoder: makes `(N, d)`, or one `(1, d)` for all nodes.
        num_nodes: the number N of nodes of the batch.
        size: the size α of a step.
    """
    delta: Tensor | None = None

    def add(module: nn.Module, inputs: Any, encoded: Tensor) -> Tensor:
        nonlocal delta
        if delta is None:
            delta = torch.empty(num_nodes, encoded.size(-1), device=encoded.device).uniform_(-size, size)
            delta.requires_grad_()
        return encoded + delta

    def climb() -> None:
        assert delta is not None
        assert delta.grad is not None
        with torch.no_grad():
            delta.add_(delta.grad.sign(), alpha=size)
        delta.grad = None

    hook = encoder.register_forward_hook(add)
    try:
        yield climb
    finally:
        hook.remove()
