from __future__ import annotations

import numpy as np
import pytest
import torch
from small import random_graphs, small_network

from mlap.models import level_representations
from mlap.models.levels import num_representations
from mlap.names import ARCHITECTURES
from mlap.training import batches, predict_logits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_representations_are_those_of_each_graph_alone(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "EVALUATION_ROWS", 40)  # several batches
    graphs = random_graphs([3, 0, 5, 1, 6, 2, 4, 3])
    network = small_network(architecture, 3, 2, norm="graph").float()
    chosen = np.array([7, 0, 4, 2, 1, 3])
    levels = level_representations(network, graphs, chosen)
    multi_level = architecture.startswith("mlap")
    assert levels.num_levels == (3 if multi_level else 0)
    assert num_representations(network) == len(levels.names) == levels.num_levels + 1
    assert len(levels) == len(chosen)
    assert levels.level_wise.dtype == levels.aggregate.dtype == np.float32
    for row, graph in enumerate(chosen):
        with torch.no_grad():
            trace = network.trace(graphs.batch([graph]))
        for number in range(levels.num_levels):
            np.testing.assert_allclose(levels[number][row], trace.pooled[number][0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(levels[levels.num_levels][row], trace.graphs[0], rtol=1e-4, atol=1e-5)


def test_a_head_on_the_aggregate_gives_the_logits() -> None:
    graphs = random_graphs([3, 5, 4])
    network = small_network("mlap-concat", 2, 3).float()
    levels = level_representations(network, graphs, np.arange(3))
    assert levels.aggregate.shape == (3, 8)
    np.testing.assert_array_equal(levels.aggregate.reshape(3, 2, 4), levels.level_wise)
    logits = predict_logits(network, graphs, np.arange(3))
    with torch.no_grad():
        torch.testing.assert_close(network.head(torch.from_numpy(levels.aggregate)), logits)


def test_it_turns_dropout_off() -> None:
    graphs = random_graphs([3, 5, 4])
    network = small_network("mlap-sum", 2, 3).float().train()
    first, second = (level_representations(network, graphs, np.arange(3)) for _ in range(2))
    np.testing.assert_array_equal(first.aggregate, second.aggregate)
