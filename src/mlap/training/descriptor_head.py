"""Descriptors of molecules as a term of the logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

#: the largest descriptor that is told from larger ones: `Ipc` of a long chain would hide all others
LARGEST = 1e6
#: the largest standardised value: training molecules say little about what lies so far outside of them
CLIP = 5.0


class DescriptorHead(nn.Module):
    r"""A linear map of standardised descriptors, which is added to the logits of the head.

    .. math::
        u \cdot \mathrm{clip}_{\pm 5} \left( \frac{g - \mu}{\sigma} \right)

    Mean and standard deviation are those of the training molecules and are kept with the weights. A value that is not
    there (NaN) counts as the mean, and a descriptor that is the same for all training molecules for nothing. The
    weights start at zero: the network is at first what it is without descriptors.

    Args:
        names: the descriptors.
        out_channels: the number of logits.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, names: Sequence[str], out_channels: int) -> None:
        super().__init__()
        self.names = tuple(names)
        self.weight = nn.Parameter(torch.zeros(out_channels, len(self.names)))
        self.register_buffer("mean", torch.zeros(len(self.names)))
        self.register_buffer("scale", torch.ones(len(self.names)))

    def reset_parameters(self) -> None:
        """Set the weights to zero."""
        nn.init.zeros_(self.weight)

    def fit(self, values: NDArray[np.float32]) -> None:
        """Take mean and standard deviation of training molecules `(molecules, names)`."""
        clipped = np.clip(values.astype(np.float64), -LARGEST, LARGEST)
        known = ~np.isnan(clipped)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, clipped, 0).sum(axis=0) / count
        std = np.sqrt((np.where(known, clipped - mean, 0) ** 2).sum(axis=0) / count)
        varies = std > 1e-6 * np.maximum(1, np.abs(mean))  # more than float32 rounds
        self.mean.copy_(torch.from_numpy(mean))
        self.scale.copy_(torch.from_numpy(np.where(varies, 1 / np.where(varies, std, 1), 0)))

    def standardised(self, values: Tensor) -> Tensor:
        """The descriptors `(B, names)` as the weights see them."""
        scaled = (values.clamp(-LARGEST, LARGEST) - self.mean) * self.scale
        return scaled.nan_to_num(0.0).clamp(-CLIP, CLIP)

    def forward(self, values: Tensor) -> Tensor:
        """What descriptors `(B, names)` add to the logits `(B, out_channels)`."""
        return F.linear(self.standardised(values), self.weight)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{len(self.names)} descriptors, {self.weight.size(0)}"
