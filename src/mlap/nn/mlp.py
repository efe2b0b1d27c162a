"""The two-layer network that transforms nodes, encodes real features and scores nodes for attention."""

from __future__ import annotations

from torch import Tensor, nn

from mlap import kernels


class TwoLayers(nn.Sequential):
    """Linear – ReLU – Linear.

    Args:
        in_channels: the width of its input.
        hidden_channels: the width between.
        out_channels: the width of its output.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__(nn.Linear(in_channels, hidden_channels), nn.ReLU(), nn.Linear(hidden_channels, out_channels))

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weight and bias of the first layer, weight and bias of the second."""
        first, second = self[0], self[2]
        assert isinstance(first, nn.Linear)
        assert isinstance(second, nn.Linear)
        return first.weight, first.bias, second.weight, second.bias

    def forward(self, x: Tensor) -> Tensor:
        """From `(rows, in_channels)` to `(rows, out_channels)`."""
        if x.dim() == 2 and kernels.usable(x, *self.weights):
            from mlap.kernels import functions

            return functions.two_layers(x, *self.weights)
        result: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return result
