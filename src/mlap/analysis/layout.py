"""Where to draw the nodes of a graph: the same places for the same graph, every time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

STEPS = 300
TOLERANCE = 1e-5


def layout(num_nodes: int, edges: NDArray[Any]) -> NDArray[np.float64]:
    """Places `(n, 2)` of the nodes, whose distances are near their numbers of steps apart in the graph.

    The stress of Kamada and Kawai is minimised by majorisation, from the classical scaling of the same distances.
    Neighbours are about 1 apart. Nodes of different components count as half the longest distance and a bit apart.

    Args:
        num_nodes: n.
        edges: `(2, E)`, in either or both directions.
    """
    if num_nodes < 3:
        return np.arange(num_nodes, dtype=np.float64)[:, None] * [1.0, 0.0]
    steps = _distances(num_nodes, edges)
    weights = steps**-2.0
    np.fill_diagonal(weights, 0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.pinv(laplacian)
    places = _classical_scaling(steps)
    before = np.inf
    for _ in range(STEPS):
        apart = np.linalg.norm(places[:, None] - places, axis=2)
        stress = float((weights * (apart - steps) ** 2).sum())
        if before - stress <= TOLERANCE * stress:
            break
        before = stress
        pull = -weights * np.divide(steps, apart, out=np.zeros_like(apart), where=apart > 0)
        np.fill_diagonal(pull, -pull.sum(axis=1))
        places = inverse @ (pull @ places)
    return _upright(places)


def _distances(num_nodes: int, edges: NDArray[Any]) -> NDArray[np.float64]:
    """Steps between any two nodes, whichever way the edges point; 1 on the diagonal."""
    ends = np.asarray(edges, dtype=np.int64)
    graph = csr_matrix((np.ones(ends.shape[1]), ends), shape=(num_nodes, num_nodes))
    steps: NDArray[np.float64] = shortest_path(graph, directed=False, unweighted=True)
    joined = np.isfinite(steps)
    steps[~joined] = steps[joined].max() / 2 + 1.5
    np.fill_diagonal(steps, 1)
    return steps


def _classical_scaling(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    squares = steps**2
    np.fill_diagonal(squares, 0)
    centred = squares - squares.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(-centred / 2)
    places: NDArray[np.float64] = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    # Nodes that the two directions do not tell apart must not start at the same place: nothing would part them.
    return places + 0.01 * np.random.RandomState(0).standard_normal(places.shape)


def _upright(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centred, with its longer side across the page, and the first node that is off the centre to the left and up."""
    places = places - places.mean(axis=0)
    _, _, axes = np.linalg.svd(places, full_matrices=False)
    places = places @ axes.T
    first = np.argmax(np.abs(places) > 1e-6 * np.abs(places).max(), axis=0)
    signs = np.sign(places[first, [0, 1]]) * [-1, 1]
    return np.asarray(places * np.where(signs == 0, 1, signs))
