"""The weights that a trained network gives to its levels (the paper's appendix C)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlap.nn import GraphNetwork


def layer_weights(network: GraphNetwork) -> NDArray[np.float64] | None:
    """The trained weight of each level `(L,)`; `None` unless the network's join has such, the same for all graphs."""
    join = getattr(network.readout, "join", None)
    weights = getattr(join, "level_weights", None)
    if weights is None:
        return None
    values: NDArray[np.float64] = weights.detach().cpu().numpy().astype(np.float64)
    return values
