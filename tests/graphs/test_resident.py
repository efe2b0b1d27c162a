"""ResidentGraphs: the same batches as the set itself gives, without a look at a value on the device."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_graph_set import Kind, Plain, graphs_of_a_kind, pack
from torch import Tensor

from mlap.graphs import Features, GraphBatch, GraphSet, ResidentGraphs, Task, read_tu, synthetic
from mlap.graphs.resident import fits


def assert_equal(got: GraphBatch, expected: GraphBatch) -> None:
    for field in dataclasses.fields(GraphBatch):
        value, wanted = getattr(got, field.name), getattr(expected, field.name)
        if isinstance(wanted, Tensor):
            torch.testing.assert_close(value, wanted, rtol=0, atol=0, equal_nan=True)
        else:
            assert value == wanted, field.name


@settings(max_examples=100)
@given(graphs_of_a_kind(), st.data())
def test_the_same_batches_as_of_the_set(drawn: tuple[Kind, list[Plain]], data: st.DataObject) -> None:
    """Directed or not, any kinds of features or none; any graphs in any order, some of them twice, or none."""
    graphs = pack(*drawn)
    indices = data.draw(st.lists(st.integers(0, len(graphs) - 1), max_size=7)) if len(graphs) else []
    assert_equal(ResidentGraphs(graphs, "cpu").batch(indices), graphs.batch(indices))


def test_the_same_batches_of_synthetic_and_real_graphs(shared_data: Path) -> None:
    rng = np.random.default_rng(0)
    for graphs in (synthetic(graphs_per_class=5), read_tu(shared_data / "NCI83")):
        resident = ResidentGraphs(graphs, "cpu")
        for _ in range(5):
            indices = rng.choice(len(graphs), 20)
            assert_equal(resident.batch(indices), graphs.batch(indices))


def wide(dtype: Any, largest: int) -> GraphSet:
    """Two graphs, the second of many nodes, with scaled features and unknown labels."""
    return GraphSet(
        node_ptr=np.array([0, 3, 3 + largest + 1]),
        edge_ptr=np.array([0, 1, 3]),
        edges=np.array([[1, 0, largest], [2, largest, 1]], dtype=dtype),
        node_features=Features.reals(np.arange(largest + 4).astype(np.uint32), divisor=1000),
        y=np.array([[np.nan, 1.0], [0.0, np.nan]], dtype=np.float32),
        task=Task("binary", 2, "rocauc"),
    ).validate()


@pytest.mark.parametrize(
    ("dtype", "largest", "kept"),
    [
        (np.uint8, 255, torch.uint8),
        (np.uint16, 255, torch.int16),
        (np.uint16, 32767, torch.int16),
        (np.uint16, 65535, torch.int32),
        (np.uint32, 70000, torch.int32),
        (np.int64, 300, torch.int64),
    ],
)
def test_integers_stay_small(dtype: Any, largest: int, kept: torch.dtype) -> None:
    graphs = wide(dtype, largest)
    resident = ResidentGraphs(graphs, "cpu")
    assert resident.edges.dtype == kept
    assert_equal(resident.batch([1, 0, 1]), graphs.batch([1, 0, 1]))


def test_read_only_arrays_are_copied() -> None:
    graphs = wide(np.uint8, 200)
    graphs.edges.flags.writeable = False
    assert graphs.node_features is not None
    graphs.node_features.values.flags.writeable = False
    assert_equal(ResidentGraphs(graphs, "cpu").batch([1]), graphs.batch([1]))


def test_nobody_looks_at_a_value() -> None:
    """Tensors on the device `meta` have shapes but no values: to ask for one is an error."""
    graphs = wide(np.uint16, 300)
    got, expected = ResidentGraphs(graphs, "meta").batch([1, 0]), graphs.batch([1, 0])
    for field in dataclasses.fields(GraphBatch):
        value, wanted = getattr(got, field.name), getattr(expected, field.name)
        if isinstance(wanted, Tensor):
            assert value.device.type == "meta"
            assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
        else:
            assert value == wanted


def test_graphs_are_counted_from_0() -> None:
    with pytest.raises(IndexError, match="graph -1: graphs are counted from 0"):
        ResidentGraphs(wide(np.uint8, 9), "cpu").batch([0, -1])


def test_a_set_fits_if_it_takes_less_than_half_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = wide(np.uint8, 9)  # 6 bytes of edges, 13 features of 4 bytes
    for free, answer in ((116, False), (118, True)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 1000))
        assert fits(graphs, "cuda") is answer
    assert fits(graphs, "mps")
