"""What answers are compared with: the training set, its predictions, its nearest graphs and its maps.

All of it is computed in a thread after the server has started, so that the first question need not wait for it: first
names and fingerprints, which take a moment, then embeddings and predictions, which may take minutes of a large set.
Rows come in random order, so that maps and percentiles can be told from the first of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import UsageError
from mlap.files import first_line
from mlap.graphs import GraphSet
from mlap.graphs.molecules import are_molecules
from mlap.models import Model
from mlap.serve.limits import POINTS, TSNE_POINTS
from mlap.serve.maps import Plane, SlowMaps
from mlap.serve.names import Names
from mlap.serve.similarity import Cosine, Tanimoto

#: graphs at a time, and the seconds that they should take: about so long a question waits for the model. On a machine
#: that has more to do, fewer than the least would take nearly as long, each with its own overhead.
LEAST, MOST, SECONDS = 16, 256, 0.2
#: graphs from which the planes of the maps are found, and which t-SNE shows
SAMPLE = TSNE_POINTS
#: training graphs whose nearest neighbours say what is usual
PROBED = 200
#: predictions from which percentiles are told: they are then right to about two per cent
ENOUGH = 500
#: a graph is called unlike if all but this part of the training graphs have a nearer neighbour
UNUSUAL = 0.05


@dataclass(frozen=True)
class Near:
    """A graph of the reference set beside another: its number in the set, and how similar it is."""

    number: int
    similarity: float


class Reference:
    """A data set beside a model.

    Args:
        model: whose answers are compared.
        graphs: the data set.

    Attributes:
        own: whether it is the data set that the model was trained on.
        rows: `(m,)`, the graphs that are on the maps: all, or `POINTS` of them drawn at random, in random order.
        compared: which of these are compared with: the training part of the model's own data, or all.
        ready: whether their neighbours can be told.
        names: of all graphs; none before they are read.
        done: how many of them are predicted and, if there are maps, embedded.
        problem: why there is no more, in words.
        no_maps: why there are no maps, in words.
        values: `(m, outputs)`, their predictions; NaN of those that are still to come.
    """

    def __init__(self, model: Model, graphs: GraphSet, lock: threading.Lock) -> None:
        self.model, self.graphs = model, graphs
        self.own = model.trained_on(graphs)
        self.rows = np.random.RandomState(0).permutation(len(graphs))[:POINTS]
        self._part_of: NDArray[np.object_] = np.full(len(graphs), None, object)
        for name in graphs.splits:
            self._part_of[graphs.split(name)] = name
        trained = self._part_of[self.rows] == "train"
        self.compared = trained if self.own and trained.any() else np.ones(len(self.rows), bool)
        self.done = 0
        self.ready = False
        self.names = Names()
        self.problem = self.no_maps = ""
        self.values: NDArray[Any] = np.full((len(self.rows), model.task.num_outputs), np.nan)
        self.usual = 0.0
        self._lock = lock
        self._slow = SlowMaps()
        self._planes: list[Plane] = []
        self._places: list[NDArray[np.float32]] = []
        self._sample: list[NDArray[np.float32]] = []
        self._sorted: NDArray[np.float64] = np.zeros((0, 0))
        self._near: Tanimoto | Cosine | None = Tanimoto() if are_molecules(graphs) and graphs.ids is not None else None
        self._stopped = False

    def parts(self) -> list[str | None]:
        """The part of the split that each of the rows is in."""
        parts: list[str | None] = self._part_of[self.rows].tolist()
        return parts

    def part(self, number: int) -> str | None:
        """The part that the model saw a graph in; `None` if it is another data set, or the graph in no part."""
        return self._part_of[number] if self.own else None

    # ---- in a thread -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read the set in a thread."""
        threading.Thread(target=self._prepare, name="mlap-reference", daemon=True).start()

    def stop(self) -> None:
        """Let the threads end."""
        self._stopped = True
        self._slow.close()

    def _prepare(self) -> None:
        try:
            self.names = Names.of(self.graphs)
            if isinstance(self._near, Tanimoto):
                self._in_chunks(self._remember)
                self._find_usual()
                self.ready = not self._stopped
            self._in_chunks(self._read)
            if not self.ready and not self._stopped:
                self._find_usual()
                self.ready = True
        except Exception as error:  # a thread has nobody else to tell
            self.problem = first_line(error)

    def _in_chunks(self, work: Callable[[slice], None]) -> None:
        """Do something with all rows, so many at a time as take about `SECONDS`."""
        start, size = 0, LEAST
        while start < len(self.rows) and not self._stopped:
            began = time.monotonic()
            end = min(start + size, len(self.rows))
            work(slice(start, end))
            fitting = size * SECONDS / max(time.monotonic() - began, 1e-3)
            start, size = end, int(min(max(LEAST, fitting), 2 * size, MOST))
            time.sleep(0.001)  # a waiting question takes the lock

    def _remember(self, part: slice) -> None:
        """Take the fingerprints of some rows."""
        assert isinstance(self._near, Tanimoto)
        assert self.graphs.ids is not None
        self._near.add([self.graphs.ids[row] for row in self.rows[part][self.compared[part]]])

    def _read(self, part: slice) -> None:
        """Embed and predict some rows: as one set, of which the model computes descriptors once."""
        graphs = self.graphs.subset(self.rows[part])
        final = None if self.no_maps else self._embed(part, graphs)
        if final is not None and not isinstance(self._near, Tanimoto):
            if self._near is None:
                self._near = Cosine()
            self._near.add(final[self.compared[part]])
        with self._lock:
            self.values[part] = self.model.predict(graphs).values
        self.done = part.stop
        known = np.flatnonzero(self.compared[: part.stop])
        if part.stop == len(self.rows) or len(known) >= max(ENOUGH, 2 * len(self._sorted)):
            self._sorted = np.sort(self.values[known], axis=0)

    @property
    def finished(self) -> bool:
        """Whether all is known of all rows."""
        return self.ready and self.done == len(self.rows)

    def _embed(self, part: slice, graphs: GraphSet) -> NDArray[np.float32] | None:
        """Put a chunk on the maps; its final embeddings."""
        try:
            with self._lock:
                found = self.model.embed(graphs)
        except UsageError as error:
            self.no_maps = str(error)
            return None
        count = 1 + found.levels.shape[1]
        for number in range(count):
            embeddings = np.asarray(found.of_level(number or None), np.float32)
            if part.start == 0:
                self._sample.append(np.empty((min(SAMPLE, len(self.rows)), embeddings.shape[1]), np.float32))
                self._places.append(np.full((len(self.rows), 2), np.nan, np.float32))
            sample = self._sample[number]
            if part.start < len(sample):
                end = min(part.stop, len(sample))
                sample[part.start : end] = embeddings[: end - part.start]
                if end == len(sample):
                    self._planes.append(Plane.fit(sample))
                    self._places[number][:end] = self._planes[number].places(sample)
            if part.stop > len(sample):
                self._places[number][part] = self._planes[number].places(embeddings)
        return np.asarray(found.final, np.float32)

    def _find_usual(self) -> None:
        """How similar the nearest training graph usually is."""
        if self._near is None or self._stopped:
            return
        numbers = np.flatnonzero(self.compared)[:PROBED]
        nearest = []
        for at, position in enumerate(numbers):
            similar = self._near.to(self._what(int(position)))
            similar[at] = -1  # itself
            nearest.append(similar.max())
        if len(nearest) > 1:
            self.usual = float(np.quantile(nearest, UNUSUAL))

    def _what(self, position: int) -> Any:
        """What the graph at a position is compared by."""
        row = int(self.rows[position])
        if isinstance(self._near, Tanimoto):
            return self.graphs.ids[row]  # type: ignore[index]
        return self.embedding(self.graphs.subset([row]))

    def embedding(self, graphs: GraphSet) -> NDArray[np.float32]:
        """The final embedding of the first graph of a set."""
        with self._lock:
            return np.asarray(self.model.embed(graphs).final[0], np.float32)

    # ---- comparisons -------------------------------------------------------------------------------------------------

    @property
    def compares_by(self) -> str | None:
        """What similarity means here; `None` if graphs are not compared."""
        return None if self._near is None else self._near.kind

    def percentiles(self, values: Sequence[float]) -> list[float | None]:
        """How many per cent of the compared predictions are lower than each of the given ones `(outputs,)`.

        `None` before enough of them are known.
        """
        if not len(self._sorted):
            return [None] * len(values)
        below = [np.searchsorted(column, value) for column, value in zip(self._sorted.T, values, strict=True)]
        return [100 * float(count) / len(self._sorted) for count in below]

    def nearest(self, graphs: GraphSet, index: int, count: int, itself: int | None = None) -> list[Near]:
        """The most similar compared graphs, the nearest first.

        Args:
            graphs: a set with the graph that is asked about.
            index: its number there.
            count: how many.
            itself: the graph's number in the reference set, if it is one of it; it is not its own neighbour.
        """
        if not self.ready or self._near is None:
            return []
        if isinstance(self._near, Tanimoto):
            similar = self._near.to(graphs.ids[index])  # type: ignore[index]
        else:
            similar = self._near.to(self.embedding(graphs.subset([index])))
        numbers = self.rows[self.compared]
        order = np.argsort(-similar, kind="stable")[: count + 1]
        return [Near(int(numbers[at]), float(similar[at])) for at in order if numbers[at] != itself][:count]

    # ---- maps --------------------------------------------------------------------------------------------------------

    @property
    def num_maps(self) -> int:
        """How many maps there are to show: the final one, and one for each level; none before enough rows are read."""
        return len(self._planes)

    def explained(self, number: int) -> float:
        """The share of the variance that a map by principal components shows."""
        return self._planes[number].explained

    def places(self, number: int, method: str) -> NDArray[np.float32] | None:
        """The places of the rows read so far, or of the first of them, on a map (0 is the final one).

        `None` while they are computed.
        """
        if method == "tsne":
            return self._slow.get(number, self._sample[number])
        return self._places[number][: self.done]
