"""Maps of the graphs by t-SNE, one for each level and one for the aggregate."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError
from mlap.models.levels import Levels

#: the paper's settings
LEARNING_RATE = 50
ITERATIONS = 3000
PERPLEXITY = 20


@dataclass(frozen=True, eq=False)
class Maps:
    """Two-dimensional maps of the same graphs.

    Args:
        points: `(L + 1, n, 2)`, the levels in order and then the aggregate.
        rows: `(n,)`, which of the represented graphs are on the maps.
        num_graphs: how many graphs they were drawn from.
        names: what each map shows, as in `Levels.names`.
    """

    points: NDArray[np.float32]
    rows: NDArray[np.int64]
    num_graphs: int
    names: tuple[str, ...]


def tsne_maps(
    levels: Levels,
    *,
    max_graphs: int | None = None,
    iterations: int = ITERATIONS,
    perplexity: float = PERPLEXITY,
    seed: int = 0,
    on_map: Callable[[str], None] | None = None,
) -> Maps:
    """Map the graphs by t-SNE, each representation by itself, with the paper's settings unless others are given.

    Points start at random places (what scikit-learn did when the paper was written), the same for all maps.

    Args:
        levels: the representations.
        max_graphs: draw so many graphs at random if there are more; all are mapped unless given.
        iterations: the paper's are 3000.
        perplexity: the paper's is 20.
        seed: of the draw and of the starting points.
        on_map: called before each map with the name of what it shows.
    """
    from sklearn.manifold import TSNE  # takes a second to import

    rows = np.arange(len(levels))
    if max_graphs is not None and len(rows) > max_graphs:
        rows = np.sort(np.random.RandomState(seed).choice(len(rows), max_graphs, replace=False))
    if len(rows) <= perplexity:
        raise UsageError(
            f"t-SNE with perplexity {perplexity:g} needs more graphs than that, got {len(rows)}", field="max_mapped"
        )
    # scikit-learn renamed the option in 1.5.
    name = "max_iter" if "max_iter" in inspect.signature(TSNE).parameters else "n_iter"
    points = []
    for number in range(levels.num_levels + 1):
        if on_map is not None:
            on_map(levels.names[number])
        representations = levels[number][rows]
        if not np.isfinite(representations).all():
            raise DataError(f"representation {levels.names[number]} holds values that are not finite; nothing to map")
        tsne = TSNE(
            learning_rate=LEARNING_RATE, perplexity=perplexity, init="random", random_state=seed, **{name: iterations}
        )
        points.append(tsne.fit_transform(representations).astype(np.float32))
    return Maps(np.stack(points), rows, len(levels), levels.names)
