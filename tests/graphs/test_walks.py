"""Random-walk features against walks that are counted step by step."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from mlap.graphs import synthetic
from mlap.graphs.walks import walk_features, walks_of


def chance_to_return(node: int, arcs: list[tuple[int, int]], steps: int) -> float:
    """The chance that a walk of so many steps from a node ends there, by following all walks."""
    at = {node: Fraction(1)}
    for _ in range(steps):
        after: dict[int, Fraction] = {}
        for place, chance in at.items():
            ways = [target for source, target in arcs if source == place]
            for target in ways:
                after[target] = after.get(target, Fraction(0)) + chance / len(ways)
        at = after
    return float(at.get(node, 0))


@pytest.mark.parametrize(
    "arcs",
    [
        [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2), (2, 3), (3, 2)],  # a triangle with a tail
        [(0, 1), (1, 2), (2, 0), (2, 3), (1, 1)],  # directed, with a loop and a dead end
        [],
    ],
)
def test_features_are_chances_to_return(arcs: list[tuple[int, int]]) -> None:
    found = walk_features(4, np.array(arcs, np.int64).reshape(-1, 2).T, 5)
    expected = [[chance_to_return(node, arcs, steps) for steps in range(1, 6)] for node in range(4)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("directed", [True, False])
def test_the_rows_are_those_of_the_nodes_of_a_batch(directed: bool) -> None:
    graphs = dataclasses.replace(synthetic(graphs_per_class=1), directed=directed)
    for indices in ([3, 0, 3], [5, 3], [1]):
        expected = [
            walk_features(batch.num_nodes, batch.edge_index.numpy(), 4)
            for batch in map(graphs.batch, np.array(indices)[:, None])
        ]
        np.testing.assert_array_equal(walks_of(graphs, np.array(indices), 4), np.concatenate(expected))
