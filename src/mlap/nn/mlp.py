"""The two-layer network that transforms nodes, encodes real features and scores nodes for attention."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class TwoLayers(nn.Sequential):
    """Linear – ReLU – Linear, or Linear – BatchNorm – ReLU – Linear.

    A single row has no variance: BatchNorm treats it as in evaluation, as PyG's does with `allow_single_element`.

    Args:
        in_channels: the width of its input.
        hidden_channels: the width between.
        out_channels: the width of its output.
        norm: the normalisation between its layers, `"none"` or `"batch"`.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, norm: str = "none") -> None:
        between = [nn.BatchNorm1d(hidden_channels)] if norm == "batch" else []
        super().__init__(
            nn.Linear(in_channels, hidden_channels), *between, nn.ReLU(), nn.Linear(hidden_channels, out_channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Transform rows `(N, in_channels)` into `(N, out_channels)`."""
        for module in self:
            if isinstance(module, nn.BatchNorm1d) and module.training and len(x) < 2:
                x = F.batch_norm(x, module.running_mean, module.running_var, module.weight, module.bias, eps=module.eps)
            else:
                x = module(x)
        return x
