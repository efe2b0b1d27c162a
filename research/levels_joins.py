"""Two variants of MLAP-Weighted, to find out why it does worse than MLAP-Sum in places (the paper's appendix C).

`MLAP_PLUGINS=research.levels_joins` makes them known to `mlap` as `mlap-scaled` and `mlap-slow`.
"""

from __future__ import annotations

from torch import Tensor

from mlap.names import JOINS, Part
from mlap.nn import Weighted


class Scaled(Weighted):
    """The weights add up to L, as those of the sum do, and not to 1: at the start it is exactly MLAP-Sum."""

    @property
    def level_weights(self) -> Tensor:
        """The weight of each level `(L,)`."""
        return self.num_levels * super().level_weights


class Slow(Weighted):
    """The scores count a tenth: the weights learn ten times as slowly, and their temperature is ten times as high."""

    @property
    def level_weights(self) -> Tensor:
        """The weight of each level `(L,)`; they add up to 1."""
        return (0.1 * self.scores).softmax(dim=0)


JOINS["scaled"] = Part(Scaled, "their sum with trained weights that add up to the number of levels")
JOINS["slow"] = Part(Slow, "their sum with trained weights that learn slowly")
