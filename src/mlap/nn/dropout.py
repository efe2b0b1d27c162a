"""Dropout that costs little on the CPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mlap.errors import UsageError
from mlap.kernels import on_host

WORDS = 1 << 16  # values of the sixteen bits that decide one element


class Draw(NamedTuple):
    """What decides which elements are dropped: those whose random word is smaller than `dropped`.

    Args:
        words: sixteen random bits per element; `None` if nothing is dropped.
        dropped: how many of the 65,536 words mean that an element is dropped.
        scale: what the other elements are multiplied by.
    """

    words: NDArray[np.uint16] | None
    dropped: int
    scale: float


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
        if not on_host(x):
            return F.dropout(x, self.p, self.training)
        words, dropped, scale = self.draw(x.numel())
        if words is None:
            return x
        dtype = np.float64 if x.dtype == torch.float64 else np.float32
        mask = np.multiply(words >= dropped, dtype(scale), dtype=dtype)
        return x * torch.from_numpy(mask).view(x.shape).to(x.dtype)

    def draw(self, size: int) -> Draw:
        """Draw for `size` elements on the CPU."""
        dropped = round(self.p * WORDS)
        if not self.training or dropped == 0:
            return Draw(None, 0, 1.0)
        seed = int(torch.randint(2**62, ()))
        words = np.random.SFC64(seed).random_raw(-(-size // 4)).view(np.uint16)[:size]
        return Draw(words, dropped, WORDS / (WORDS - dropped) if dropped < WORDS else 0.0)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
