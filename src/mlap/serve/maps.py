"""Maps of a data set: embeddings in the plane, by principal components at once or by t-SNE on request."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlap.analysis.embedding import tsne_maps
from mlap.models.levels import Levels
from mlap.serve.limits import TSNE_POINTS

Floats = NDArray[np.float32]

ITERATIONS = 1000


@dataclass(frozen=True, eq=False)
class Plane:
    """The plane of the two directions in which embeddings vary most.

    Args:
        centre: `(C,)`.
        axes: `(C, 2)`.
        explained: the share of all variance that the plane shows.
    """

    centre: Floats
    axes: Floats
    explained: float

    @classmethod
    def fit(cls, embeddings: Floats) -> Plane:
        """The plane of embeddings `(n, C)`.

        >>> plane = Plane.fit(np.array([[0, 0, 0], [2, 0, 0], [0, 1, 0], [2, 1, 0]], np.float32))
        >>> plane.explained, np.abs(plane.axes[:, 0]).tolist()
        (1.0, [1.0, 0.0, 0.0])
        """
        centre = embeddings.mean(axis=0, dtype=np.float64)
        centred = embeddings - centre
        values, vectors = np.linalg.eigh(centred.T @ centred)
        axes = vectors[:, : -min(2, len(values)) - 1 : -1]
        if axes.shape[1] < 2:
            axes = np.pad(axes, ((0, 0), (0, 2 - axes.shape[1])))
        axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1, 1)  # the same map every time
        total = max(float(values.clip(0).sum()), 1e-12)
        return cls(
            centre.astype(np.float32), axes.astype(np.float32), round(float(values[-2:].clip(0).sum()) / total, 6)
        )

    def places(self, embeddings: Floats) -> Floats:
        """Where embeddings `(n, C)` lie in the plane, `(n, 2)`."""
        return np.asarray((embeddings - self.centre) @ self.axes, np.float32)


class SlowMaps:
    """t-SNE maps, computed one after the other in a thread when they are first asked for."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mlap-map")
        self._maps: dict[int, Future[Floats]] = {}

    def get(self, number: int, embeddings: Floats) -> Floats | None:
        """The places of the first graphs on map `number`; `None` while they are computed."""
        if number not in self._maps:
            self._maps[number] = self._thread.submit(_tsne, embeddings[:TSNE_POINTS])
        future = self._maps[number]
        return future.result() if future.done() else None

    def close(self) -> None:
        """Begin no more maps."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _tsne(embeddings: Floats) -> Floats:
    none = np.zeros((len(embeddings), 0, 1), np.float32)
    return np.asarray(tsne_maps(Levels(none, embeddings), iterations=ITERATIONS).points[0])
