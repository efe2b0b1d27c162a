"""Dropout that costs little on the CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """Zero each element with probability `p` and scale the others by `1 / (1 - p)`, while training.

    torch draws dropout masks on the CPU one Bernoulli variable at a time, which costs more than the matrix product
    beside it. Here sixteen random bits decide each element (so `p` is a multiple of 1/65536, off by less than 1e-5),
    from a fast generator that torch's own seeds: `torch.manual_seed` makes the masks repeatable as usual.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """`x` with some elements dropped; `x` itself in evaluation."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or self.p == 1:
            return F.dropout(x, self.p, training=True)
        return x * self._mask(x)

    def _mask(self, x: Tensor) -> Tensor:
        seed = int(torch.randint(2**62, ()))
        words = np.random.SFC64(seed).random_raw(-(-x.numel() // 4))
        kept = words.view(np.uint16)[: x.numel()] >= round(self.p * 65536)
        mask = np.multiply(kept, np.float32(1 / (1 - self.p)), dtype=np.float32)
        return torch.from_numpy(mask).view(x.shape).to(x.dtype)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
