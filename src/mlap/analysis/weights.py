"""The weights that a trained network gives to its levels (the paper's appendix C)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.nn import GraphNetwork, JumpReadout, MultiLevelAttentionPooling, Weighted


def layer_weights(network: GraphNetwork) -> NDArray[np.float64] | None:
    """The weight of each level `(L,)`, which add up to 1; `None` unless the network joins its levels by weights."""
    join: Any = None
    if isinstance(network.readout, MultiLevelAttentionPooling):
        join = network.readout.aggregation
    elif isinstance(network.readout, JumpReadout):
        join = network.readout.jump
    if not isinstance(join, Weighted):
        return None
    weights: NDArray[np.float64] = join.weights.detach().cpu().numpy().astype(np.float64)
    return weights
