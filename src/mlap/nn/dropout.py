"""Dropout whose masks are a function of a seed and of the elements' places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mlap.errors import UsageError

WORDS = 1 << 16  # values of the sixteen bits that decide one element


class Draw(NamedTuple):
    """What decides which elements are dropped: those whose random word is smaller than `dropped`.

    Args:
        seed: what the words are made of, see `random_words`.
        dropped: how many of the 65,536 words mean that an element is dropped.
        scale: what the other elements are multiplied by.
    """

    seed: int
    dropped: int
    scale: float


class Dropout(nn.Module):
    """Zero each element with probability `p` and scale the others by `1 / (1 - p)`, while training.

    On the CPU sixteen random bits decide each element (so `p` is the nearest multiple of 1/65536, off by less than
    1e-5): a hash of the element's number and of a seed that torch's generator draws. So `torch.manual_seed` makes the
    masks repeatable as usual, and they do not depend on who computes them, in which order and in how many threads.
    Elsewhere, and while torch compiles, it is torch's own dropout.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise UsageError(f"dropout is a probability, 0 to 1, got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """`x` with some elements dropped; `x` itself in evaluation."""
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p, self.training)
        seed, dropped, scale = self.draw()
        if not dropped:
            return x
        dtype = np.float64 if x.dtype == torch.float64 else np.float32
        mask = np.multiply(random_words(seed, x.numel()) >= dropped, dtype(scale), dtype=dtype)
        return x * torch.from_numpy(mask).view(x.shape).to(x.dtype)

    @property
    def dropped(self) -> int:
        """How many of the 65,536 words mean now that an element is dropped."""
        return round(self.p * WORDS) if self.training else 0

    def draw(self) -> Draw:
        """Draw which elements of a tensor on the CPU are dropped."""
        dropped = self.dropped
        if dropped == 0:
            return Draw(0, 0, 1.0)
        seed = int(torch.randint(2**62, ()))
        return Draw(seed, dropped, WORDS / (WORDS - dropped) if dropped < WORDS else 0.0)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"


def random_words(seed: int, size: int) -> NDArray[np.uint32]:
    """Sixteen random bits for each number up to `size`, by the mixing steps of MurmurHash3 with the seed in between."""
    words = np.arange(size, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(seed & 0xFFFFFFFF)
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x85EBCA6B) ^ np.uint32(seed >> 32)
    words = (words ^ (words >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return words >> np.uint32(16)
