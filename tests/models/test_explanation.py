from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import in_double, random_graphs, small_network, some_sizes
from torch import nn

from mlap.models import decompose, explain
from mlap.models import explanation as module
from mlap.names import ARCHITECTURES
from mlap.nn import NORMS, GraphNetwork, JumpReadout, MultiLevelAttentionPooling
from mlap.training import batches

SIZES = [5, 1, 6, 0, 4, 7]


def sums(network: GraphNetwork, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and what bias and shares add up to, graph by graph in a loop."""
    with torch.no_grad():
        found = decompose(network, batch)
    assert found.shares is not None
    totals = []
    for graph in range(batch.num_graphs):
        rows = found.shares[batch.batch == graph]
        totals.append(found.bias + sum((row.sum(0) for row in rows), torch.zeros_like(found.bias)))
    return found.logits, torch.stack(totals)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_shares_add_up_to_the_logits(architecture: str, layers: int, norm: str) -> None:
    batch = in_double(random_graphs(SIZES).batch(range(len(SIZES))))
    for outputs in (1, 3):
        logits, totals = sums(small_network(architecture, layers, outputs, norm=norm), batch)
        torch.testing.assert_close(totals, logits, rtol=1e-9, atol=1e-9)


@given(
    sizes=some_sizes,
    seed=st.integers(0, 10_000),
    density=st.sampled_from([0.0, 0.2, 0.7]),
    directed=st.booleans(),
    architecture=st.sampled_from(ARCHITECTURES),
    layers=st.integers(1, 3),
    norm=st.sampled_from(sorted(NORMS)),
    residual=st.booleans(),
)
def test_shares_add_up_on_any_graphs(
    sizes: list[int],
    seed: int,
    density: float,
    directed: bool,
    architecture: str,
    layers: int,
    norm: str,
    residual: bool,
) -> None:
    batch = in_double(random_graphs(sizes, seed=seed, density=density, directed=directed).batch(range(len(sizes))))
    logits, totals = sums(small_network(architecture, layers, 2, seed=seed, norm=norm, residual=residual), batch)
    torch.testing.assert_close(totals, logits, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_single_precision_and_no_bias(architecture: str) -> None:
    graphs = random_graphs(SIZES)
    network = small_network(architecture, 3, 3).float()
    network.head.bias = None
    for one in explain(network, graphs, range(len(graphs))):
        assert one.shares is not None
        assert not one.bias.any()
        assert one.residual <= 1e-5 * max(1.0, float(np.abs(one.shares).sum()))


LINEAR = (
    *("naive", "jk-sum", "jk-weighted", "jk-concat", "jk-linear"),
    *("mlap-sum", "mlap-weighted", "mlap-concat", "mlap-linear"),
)


@pytest.mark.parametrize("architecture", LINEAR)
def test_every_share_by_the_formula(architecture: str) -> None:
    """One number at a time, from SPEC's formula and the trace."""
    layers, outputs = 3, 2
    network = small_network(architecture, layers, outputs)
    batch = in_double(random_graphs(SIZES).batch(range(len(SIZES))))
    with torch.no_grad():
        found, trace = decompose(network, batch), network.trace(batch)
    family, _, join = architecture.partition("-")
    E = network.head.weight.detach().numpy()
    weights = np.ones(layers)
    module = network.readout.join
    if join == "linear":  # every class has a row of its own for the concatenated levels
        W = module.linear.weight.detach().numpy()
        E = np.array([[sum(row[k] * W[k, i] for k in range(4)) for i in range(4 * layers)] for row in E])
    if join == "weighted":
        scores = module.scores.detach().numpy()
        weights = np.exp(scores) / np.exp(scores).sum()
    levels = [layers] if family == "naive" else list(range(1, layers + 1))
    assert found.levels == tuple(levels)
    assert found.shares is not None
    assert found.shares.shape == (sum(SIZES), len(levels), outputs)
    for column, level in enumerate(levels):
        attention = trace.attention[level - 1 if family == "mlap" else 0].numpy()
        for node in range(sum(SIZES)):
            for c in range(outputs):
                row = E[c, 4 * (level - 1) : 4 * level] if join in ("concat", "linear") else E[c]
                product = sum(row[i] * float(trace.levels[level - 1][node, i]) for i in range(4))
                expected = weights[level - 1] * attention[node] * product
                assert float(found.shares[node, column, c]) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("family", ["jk", "mlap"])
def test_max_shares_go_to_the_level_that_is_largest(family: str) -> None:
    layers = 3
    network = small_network(f"{family}-max", layers, 1)
    batch = in_double(random_graphs(SIZES).batch(range(len(SIZES))))
    with torch.no_grad():
        found, trace = decompose(network, batch), network.trace(batch)
    assert found.shares is not None
    E = network.head.weight.detach().numpy()[0]
    for node in range(sum(SIZES)):
        expected = np.zeros(layers)
        for channel in range(4):
            rows = trace.levels if family == "jk" else trace.pooled
            row = node if family == "jk" else int(batch.batch[node])
            level = max(range(layers), key=lambda number: float(rows[number][row, channel]))
            attention = float(trace.attention[level if family == "mlap" else 0][node])
            expected[level] += attention * E[channel] * float(trace.levels[level][node, channel])
        np.testing.assert_allclose(found.shares[node, :, 0], expected, rtol=1e-9, atol=1e-12)


def test_with_the_same_attention_mlap_sum_and_jk_sum_explain_alike() -> None:
    jk, mlap = small_network("jk-sum", 3, 2), small_network("mlap-sum", 3, 2)
    mlap.backbone, mlap.encoder, mlap.head = jk.backbone, jk.encoder, jk.head
    for pool in [*jk.readout.pools, *mlap.readout.pools]:
        nn.init.zeros_(pool.gate[-1].weight)  # uniform attention
    batch = in_double(random_graphs(SIZES).batch(range(len(SIZES))))
    with torch.no_grad():
        torch.testing.assert_close(decompose(jk, batch).shares, decompose(mlap, batch).shares)


# ---- what is not a sum -------------------------------------------------------------------------------------------


class Product(nn.Module):
    """A join that is no sum of its levels."""

    def forward(self, levels: Any) -> torch.Tensor:
        return torch.stack(list(levels)).prod(0)


def test_a_custom_jump_has_shares_of_nodes() -> None:
    network = small_network("jk-sum", 3, 2)
    network.readout = JumpReadout(4, 3, Product()).double()
    batch = in_double(random_graphs(SIZES).batch(range(len(SIZES))))
    logits, totals = sums(network, batch)
    torch.testing.assert_close(totals, logits)
    found = decompose(network, batch)
    assert found.levels == ()
    assert found.reason.startswith(module.OWN_JOIN)


def test_attention_only_where_the_logit_is_no_sum() -> None:
    batch = in_double(random_graphs(SIZES).batch(range(len(SIZES))))
    joined = small_network("mlap-sum", 3, 2)
    joined.readout = MultiLevelAttentionPooling(4, 3, Product()).double()
    deep = small_network("mlap-sum", 3, 2)
    deep.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    own = small_network("mlap-sum", 3, 2)
    own.readout = type("Own", (nn.Module,), {"read": own.readout.read})()
    for network, reason in ((joined, module.OWN_JOIN), (deep, module.NOT_LINEAR), (own, module.OWN_READOUT)):
        found = decompose(network, batch)
        assert found.shares is None
        assert found.reason.startswith(reason)
        assert found.attention.shape == (sum(SIZES), 3)
    assert all(one.shares is None and one.residual == 0 for one in explain(deep.float(), random_graphs(SIZES), [0, 3]))


# ---- many graphs -------------------------------------------------------------------------------------------------


def test_many_graphs_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = random_graphs([3, 5, 1, 4] * 250)
    network = small_network("mlap-weighted", 2, 3).float()
    chosen = np.random.default_rng(0).permutation(len(graphs))
    monkeypatch.setattr(batches, "EVALUATION_ROWS", 200)
    largest = 0
    trace = network.trace

    def watched(batch: Any) -> Any:
        nonlocal largest
        largest = max(largest, batch.num_nodes)
        return trace(batch)

    monkeypatch.setattr(network, "trace", watched)
    explained = explain(network, graphs, chosen)
    first = next(explained)
    assert largest < 150, "only the first batch has been computed"
    assert not torch.is_inference_mode_enabled()
    rest = [first, *explained]
    assert largest < 150
    assert [one.graph for one in rest] == chosen.tolist()
    for one in rest[:20]:
        (alone,) = explain(network, graphs, [one.graph])
        np.testing.assert_allclose(one.shares, alone.shares, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one.attention.sum(0), 1, rtol=1e-5)
        assert one.num_nodes == graphs.node_ptr[one.graph + 1] - graphs.node_ptr[one.graph]


def test_no_graphs_at_all() -> None:
    assert list(explain(small_network("mlap-sum", 2, 3).float(), random_graphs([3]), [])) == []
