"""The whole network: against the reference, the identities of the paper, every combination of parts, and its trace."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import CATEGORIES, REALS, close, double, graph_set, network, plain_graphs, whole_batch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import GCNConv

from mlap.errors import UsageError
from mlap.graphs import GraphBatch
from mlap.names import ARCHITECTURES, PAPER_ARCHITECTURES
from mlap.nn import (
    CONVS,
    NORMS,
    Backbone,
    GraphNetwork,
    MultiLevelAttentionPooling,
    RealEncoder,
    Weighted,
    graph_network,
)

#: what nodes and edges are like in the paper's data sets, smaller: synthetic, ogbg-molhiv, ogbg-ppa, MCF-7
FEATURES = {"synthetic": (None, None), "molhiv": (CATEGORIES, (3, 2)), "ppa": (None, REALS), "MCF-7": ((4,), (3,))}


def permuted(batch: GraphBatch, nodes: Tensor, arcs: Tensor) -> SimpleNamespace:
    """The same graphs with nodes renumbered (node n becomes `nodes[n]`), also across graphs, and arcs shuffled."""
    back = nodes.argsort()
    return SimpleNamespace(
        x=None if batch.x is None else batch.x[back],
        edge_index=nodes[batch.edge_index[:, arcs]],
        edge_attr=None if batch.edge_attr is None else batch.edge_attr[arcs],
        batch=batch.batch[back],
        num_nodes=batch.num_nodes,
        num_graphs=batch.num_graphs,
        y=None,
    )


# ---- the formulas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("norm", ["none", "graph"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_is_the_papers_network(architecture: str, norm: str, num_layers: int) -> None:
    kinds = dict(zip(("nodes", "edges"), FEATURES["molhiv"], strict=True))
    graphs = graph_set(**kinds)
    options = {"architecture": architecture, "num_layers": num_layers, "norm": norm, **kinds}
    made = network(**options)
    parameters = reference.parameters(made)
    expected = [reference.network(parameters, graph, **options) for graph in plain_graphs(graphs)]
    close(made(whole_batch(graphs)), expected, 1e-8)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dataset", FEATURES)
@pytest.mark.parametrize("backbone", CONVS)
def test_is_the_formula_for_other_parts_too(backbone: str, dataset: str, directed: bool) -> None:
    kinds = dict(zip(("nodes", "edges"), FEATURES[dataset], strict=True))
    graphs = graph_set(**kinds, directed=directed)
    for norm, residual in (("layer", False), ("batch", True)):
        options = {"architecture": "mlap-sum", "num_layers": 2, "backbone": backbone, "norm": norm, **kinds}
        made = network(**options, residual=residual)
        parameters = reference.parameters(made)
        expected = [
            reference.network(parameters, graph, **options, residual=residual) for graph in plain_graphs(graphs)
        ]
        close(made(whole_batch(graphs)), expected, 1e-8)


def test_single_precision_is_near() -> None:
    graphs = graph_set(CATEGORIES, REALS)
    made = network(nodes=CATEGORIES, edges=REALS, num_layers=3)
    expected = made(whole_batch(graphs))
    close(made.float()(graphs.batch(range(len(graphs)))), expected, 1e-4)


@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("norm", ["none", "graph"])
@pytest.mark.parametrize("architecture", PAPER_ARCHITECTURES)
def test_number_of_parameters(architecture: str, norm: str, num_layers: int) -> None:
    """By hand, from the table of the specification; the synthetic data set, d = 20, 9 classes."""
    d, depth = 20, num_layers
    made = graph_network(architecture, num_layers=depth, channels=d, out_channels=9, norm=norm)
    layer = d + 1 + (d + 1) * 2 * d + (2 * d + 1) * d + (3 * d if norm == "graph" else 0)
    width = depth * d if architecture == "jk-concat" else d
    gate = (width + 1) * 2 * d + 2 * d + 1
    gates = gate * depth if architecture.startswith("mlap") else gate
    hidden = depth * d // 2
    lstm = 2 * 4 * hidden * (d + hidden + 2) + 2 * hidden + 1
    join = {"mlap-weighted": depth, "jk-lstm": lstm}.get(architecture, 0)
    expected = d + depth * layer + gates + join + (width + 1) * 9
    assert sum(p.numel() for p in made.parameters()) == expected


# ---- identities and invariances ----------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["none", "graph"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_at_depth_one_architectures_coincide(architecture: str, norm: str) -> None:
    """With the same parameters; those that weigh levels do not matter where there is one level."""
    naive, other = (network(name, num_layers=1, norm=norm, nodes=CATEGORIES) for name in ("naive", architecture))
    renamed = {
        name.replace("attention_pool", "pools.0") if architecture.startswith("mlap") else name: value
        for name, value in naive.state_dict().items()
    }
    missing, unexpected = other.load_state_dict(renamed, strict=False)
    assert not unexpected
    assert all(name.startswith("readout.join.") for name in missing)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if name.endswith("linear.weight"):
                parameter.copy_(torch.eye(len(parameter)))  # which leaves the level as it is
            elif "gate" in architecture and ".score." in name:
                parameter.zero_()  # likewise
    batch = whole_batch(graph_set(CATEGORIES))
    assert torch.equal(other(batch), naive(batch))


@pytest.mark.parametrize(
    ("architecture", "backbone", "norm"),
    [
        *((architecture, "gin", norm) for architecture in ARCHITECTURES for norm in ("none", "graph")),
        *(("mlap-weighted", backbone, norm) for backbone in CONVS for norm in NORMS),
    ],
)
@settings(max_examples=3)
@given(data=st.data())
def test_order_of_nodes_and_of_edges(architecture: str, backbone: str, norm: str, data: st.DataObject) -> None:
    made = network(architecture, backbone=backbone, norm=norm, nodes=CATEGORIES, edges=REALS, num_layers=3)
    batch = whole_batch(graph_set(CATEGORIES, REALS))
    seed = data.draw(st.integers(0, 2**32))
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(batch.num_nodes, generator=generator)
    arcs = torch.randperm(batch.edge_index.size(1), generator=generator)
    close(made(permuted(batch, nodes, arcs)), made(batch), 1e-9)


@pytest.fixture(scope="module")
def pyg_batch() -> Batch:
    """The sample graphs, batched by PyG."""
    return double(Batch.from_data_list(list(graph_set(CATEGORIES, REALS, directed=False))))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("backbone", CONVS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_combination_of_parts(architecture: str, backbone: str, norm: str, pyg_batch: Batch) -> None:
    """It trains; a graph's output depends neither on its place nor on the rest of its batch; PyG's batches will do."""
    graphs = graph_set(CATEGORIES, REALS, directed=False)
    made = network(architecture, backbone=backbone, norm=norm, nodes=CATEGORIES, edges=REALS)
    batch = whole_batch(graphs)
    logits = made(batch)
    assert logits.shape == (len(graphs), 3)

    close(made(pyg_batch), logits)
    for part in ([6, 4, 2, 0, 4], [5], [1, 3]):
        close(made(double(graphs.batch(part))), logits[part])

    made.train()
    made(batch).square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("backbone", CONVS)
@pytest.mark.parametrize("architecture", ["naive", "jk-lstm", "mlap-weighted"])
def test_batches_without_nodes_or_graphs(architecture: str, backbone: str, norm: str) -> None:
    graphs = graph_set()
    made = network(architecture, backbone=backbone, norm=norm)
    assert made(graphs.batch([])).shape == (0, 3)
    assert isinstance(made.head, nn.Linear)
    close(made(graphs.batch([2, 6])), made.head.bias.expand(2, 3), 1e-15)


def test_dropout_is_off_in_evaluation_and_on_in_training() -> None:
    made, batch = network(nodes=CATEGORIES), whole_batch(graph_set(CATEGORIES))
    assert torch.equal(made(batch), made(batch))
    made.train()
    torch.manual_seed(0)
    first, second = made(batch), made(batch)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(made(batch), first)


@pytest.mark.parametrize("norm", ["none", "graph"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients(architecture: str, norm: str) -> None:
    made = network(architecture, norm=norm, nodes=CATEGORIES, edges=REALS)
    batch = whole_batch(graph_set(CATEGORIES, REALS))
    torch.manual_seed(0)  # of the directions in which the fast mode looks
    assert torch.autograd.gradcheck(lambda *_: made(batch), tuple(made.parameters()), fast_mode=True)


# ---- the trace ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_trace_agrees_with_forward(architecture: str, training: bool) -> None:
    made, batch = network(architecture, num_layers=3, nodes=CATEGORIES), whole_batch(graph_set(CATEGORIES))
    made.train(training)
    torch.manual_seed(0)
    expected = made(batch)
    torch.manual_seed(0)
    trace = made.trace(batch)
    assert torch.equal(trace.logits, expected)
    torch.manual_seed(0)
    for level, again in zip(trace.levels, made.levels(batch), strict=True):
        assert torch.equal(level, again)
    assert [level.shape for level in trace.levels] == 3 * [(batch.num_nodes, 4)]
    assert len(trace.pooled) == len(trace.attention) == (3 if architecture.startswith("mlap") else 1)
    assert torch.equal(made.head(trace.graphs), trace.logits)


@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("architecture", ["mlap-sum", "mlap-weighted", "jk-sum", "jk-weighted", "naive"])
def test_logits_are_an_exact_sum_over_levels_and_nodes(architecture: str, num_layers: int) -> None:
    """logit_c = b_c + Σ_l Σ_n w_l · a_n^(l) · (E_c · h_n^(l)): what every explanation rests on."""
    made = network(architecture, num_layers=num_layers, nodes=CATEGORIES)
    batch = whole_batch(graph_set(CATEGORIES))
    with torch.no_grad():
        trace = made.trace(batch)
    weights = {"sum": [1.0] * num_layers, "": [0.0] * (num_layers - 1) + [1.0]}
    joins = [module for module in made.modules() if isinstance(module, Weighted)]
    if joins:
        weights["weighted"] = joins[0].level_weights.tolist()
    attention = trace.attention if architecture.startswith("mlap") else trace.attention * num_layers
    assert isinstance(made.head, nn.Linear)
    classes, biases = made.head.weight.detach(), made.head.bias.tolist()
    logits = [list(biases) for _ in range(batch.num_graphs)]
    for w, a, h in zip(weights[architecture.partition("-")[2]], attention, trace.levels, strict=True):
        for n, graph in enumerate(batch.batch.tolist()):
            for c in range(3):
                logits[graph][c] += w * a[n].item() * float(classes[c] @ h[n])
    close(trace.logits, logits, 1e-12)


@pytest.mark.parametrize("architecture", ["mlap-sum", "mlap-lstm"])
def test_pooled_is_attention_times_levels(architecture: str) -> None:
    made, batch = network(architecture, num_layers=3, nodes=CATEGORIES), whole_batch(graph_set(CATEGORIES))
    trace = made.trace(batch)
    for h, a, pooled in zip(trace.levels, trace.attention, trace.pooled, strict=True):
        for graph in range(batch.num_graphs):
            own = batch.batch == graph
            close(pooled[graph], (a[own].unsqueeze(1) * h[own]).sum(dim=0), 1e-12)
            assert a[own].sum().item() == pytest.approx(float(own.any()), abs=1e-12)


# ---- building and resetting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "backbone", "norm"),
    [
        *((architecture, "gin", "graph") for architecture in ARCHITECTURES),
        ("mlap-sum", "gcn", "batch"),
        ("mlap-sum", "gat", "layer"),
        ("naive", "gin", "pair"),
    ],
)
def test_reset_draws_everything_anew(architecture: str, backbone: str, norm: str) -> None:
    torch.manual_seed(0)
    made = graph_network(
        architecture, num_layers=2, channels=8, out_channels=3, backbone=backbone, norm=norm, nodes=(5, 6), edges=2
    )
    fresh = copy.deepcopy(made.state_dict())
    with torch.no_grad():
        for value in made.state_dict().values():
            value.fill_(7)
    made.reset_parameters()
    for name, value in made.state_dict().items():
        assert (value != 7).all(), name
        before = fresh[name]
        if before.unique().tolist() in ([0], [1]):  # a constant: ε, weights of levels, norms
            assert torch.equal(value, before), name
        else:
            assert not torch.equal(value, before), name
            if value.numel() >= 32:
                assert 0.5 < (value.std() / before.std()).item() < 2, name


def test_parts_of_ones_own() -> None:
    """PyG's layers as they are, between an encoder and a readout from here."""
    made = GraphNetwork(
        RealEncoder(REALS, 6),
        Backbone([GCNConv(6, 6), GCNConv(6, 6)], 6, norm="graph"),
        MultiLevelAttentionPooling(6, 2, "concat"),
        nn.Sequential(nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 1)),
    ).eval()
    batch = graph_set(REALS).batch([0, 1, 2, 3])
    assert made(batch).shape == (4, 1)
    assert torch.equal(made.trace(batch).logits, made(batch))


def test_the_same_seed_makes_the_same_network() -> None:
    def made(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(seed)
        return graph_network(num_layers=2, channels=4, out_channels=2).state_dict()

    first, again, other = made(0), made(0), made(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "mlap-summ"}, r"^unknown architecture 'mlap-summ'; did you mean 'mlap-sum'"),
        ({"num_layers": 0}, r"at least 1 channel and 1 level, got 4 and 0$"),
        ({"backbone": "gatv2"}, r"^unknown backbone 'gatv2'; did you mean 'gat'\? Known: gin, gcn, gat$"),
        ({"norm": "batchnorm"}, r"^unknown normalisation 'batchnorm'; did you mean 'batch'\? Known: none, graph, "),
        ({"backbone": "gat", "channels": 6}, r"multiple of 4, got 6$"),
        ({"dropout": -0.5}, r"^dropout is a probability, 0 to 1, got -0.5$"),
    ],
)
def test_wrong_calls(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        graph_network(**{"num_layers": 1, "channels": 4, "out_channels": 2, **options})
