"""Dropout that costs little on the CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlap.errors import UsageError

WORDS = 1 << 16  # values of the sixteen bits that decide one element


class Dropout(nn.Module):
    """Zero each element with probability `p` and scale the others by `1 / (1 - p)`, while training.

    torch draws dropout masks on the CPU one Bernoulli variable at a time, which costs more than the matrix product
    beside it. Here sixteen random bits decide each element (so `p` is the nearest multiple of 1/65536, off by less than
    1e-5), from a fast generator that torch's own seeds: `torch.manual_seed` makes the masks repeatable as usual.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise UsageError(f"dropout is a probability, 0 to 1, got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """`x` with some elements dropped; `x` itself in evaluation."""
        if not self.training or self.p == 0:
            return x
        dropped = round(self.p * WORDS)
        if x.device.type != "cpu" or dropped == WORDS:
            return F.dropout(x, self.p, training=True)
        return x * self._mask(x, dropped)

    @staticmethod
    def _mask(x: Tensor, dropped: int) -> Tensor:
        """A mask for `x`: 0 with probability `dropped` / 65,536, and on average exactly 1."""
        seed = int(torch.randint(2**62, ()))
        words = np.random.SFC64(seed).random_raw(-(-x.numel() // 4))
        kept = words.view(np.uint16)[: x.numel()] >= dropped
        dtype = np.float64 if x.dtype == torch.float64 else np.float32
        mask = np.multiply(kept, dtype(WORDS / (WORDS - dropped)), dtype=dtype)
        return torch.from_numpy(mask).view(x.shape).to(x.dtype)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
