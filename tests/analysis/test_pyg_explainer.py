"""Exact shares through PyG's `Explainer`: they are those of `decompose`, and add up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, Explanation, fidelity
from torch_geometric.nn import GCN

from mlap.analysis import ExactShares
from mlap.errors import UsageError
from mlap.models.explanation import decompose
from mlap.names import ARCHITECTURES, POOLINGS
from mlap.nn import GraphNetwork, graph_network


def graphs() -> Batch:
    torch.manual_seed(0)
    edges = [torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([[0, 1], [1, 0]]), torch.empty(2, 0).long()]
    sizes = (3, 2, 1)
    return Batch.from_data_list(
        [
            Data(x=torch.randn(n, 4), edge_index=e, graph_attr=torch.randn(1, 2))
            for n, e in zip(sizes, edges, strict=True)
        ]
    )


def made(architecture: str = "mlap-weighted", out_channels: int = 3, **options: Any) -> GraphNetwork:
    torch.manual_seed(1)
    return graph_network(architecture, num_layers=2, channels=8, out_channels=out_channels, nodes=4, **options)


def explainer(network: Any, mode: str, algorithm: ExactShares | None = None, **settings: Any) -> Explainer:
    chosen = {"explanation_type": "model", "node_mask_type": "object"}
    model = {"mode": mode, "task_level": "graph", "return_type": "raw"}
    return Explainer(network, algorithm or ExactShares(), **{**chosen, **settings}, model_config=model)


@pytest.mark.parametrize("graph_features", [0, 2])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_shares_of_the_predicted_class_add_up_to_its_logit(architecture: str, graph_features: int) -> None:
    network, batch = made(architecture, graph_features=graph_features), graphs()
    more = {"graph_attr": batch.graph_attr} if graph_features else {}
    found = explainer(network, "multiclass_classification")(batch.x, batch.edge_index, batch=batch.batch, **more)
    assert isinstance(found, Explanation)
    assert found.node_mask.shape == (6, 1)
    assert found.level_shares.shape == (6, len(found.levels))
    torch.testing.assert_close(found.level_shares.sum(1, keepdim=True), found.node_mask)
    total = found.rest.clone().index_add_(0, batch.batch, found.node_mask[:, 0])
    expected = network.eval()(batch)
    torch.testing.assert_close(total, expected.max(dim=1).values.detach(), rtol=1e-5, atol=1e-6)
    shares = decompose(network, batch).shares
    assert shares is not None
    classes = expected.argmax(dim=1)
    for node in range(6):
        torch.testing.assert_close(found.level_shares[node], shares[node, :, classes[batch.batch[node]]].detach())


@pytest.mark.parametrize("pooling", [name for name in POOLINGS if name != "max"])
@pytest.mark.parametrize("architecture", ["naive", "mlap-weighted"])
def test_every_pooling_that_is_a_weighted_sum_has_exact_shares(architecture: str, pooling: str) -> None:
    network, batch = made(architecture, out_channels=1, pooling=pooling, input_level=True), graphs()
    found = explainer(network, "regression")(batch.x, batch.edge_index, batch=batch.batch)
    total = found.rest.clone().index_add_(0, batch.batch, found.node_mask[:, 0])
    torch.testing.assert_close(total, found.prediction[:, 0].detach(), rtol=1e-5, atol=1e-6)


def test_another_class_and_one_graph_of_several() -> None:
    network, batch = made(), graphs()
    target = torch.tensor([2, 0, 1])
    call = explainer(network, "multiclass_classification", explanation_type="phenomenon")
    found = call(batch.x, batch.edge_index, batch=batch.batch, target=target, index=1)
    shares = decompose(network.eval(), batch).shares
    assert shares is not None
    torch.testing.assert_close(found.level_shares[3:5], shares[3:5, :, 0].detach())
    assert (found.node_mask[[0, 1, 2, 5]] == 0).all()


@pytest.mark.parametrize("mode", ["binary_classification", "regression"])
def test_a_single_output(mode: str) -> None:
    network, batch = made(out_channels=1), graphs()
    found = explainer(network, mode)(batch.x, batch.edge_index, batch=batch.batch)
    total = found.rest.clone().index_add_(0, batch.batch, found.node_mask[:, 0])
    torch.testing.assert_close(total, found.prediction[:, 0].detach())


def test_one_of_several_outputs_that_are_not_classes() -> None:
    network, batch = made(), graphs()
    with pytest.raises(UsageError, match="3 outputs") as caught:
        explainer(network, "regression")(batch.x, batch.edge_index, batch=batch.batch)
    assert caught.value.field == "output"
    found = explainer(network, "regression", ExactShares(output=2))(batch.x, batch.edge_index, batch=batch.batch)
    total = found.rest.clone().index_add_(0, batch.batch, found.node_mask[:, 0])
    torch.testing.assert_close(total, found.prediction[:, 2].detach())


def test_pygs_metrics_take_it() -> None:
    network, batch = made(out_channels=2), graphs()[0]
    call = explainer(network, "multiclass_classification", threshold_config={"threshold_type": "topk_hard", "value": 1})
    found = call(batch.x, batch.edge_index)
    assert sorted(found.node_mask[:, 0].tolist())[:2] == [0, 0]
    assert all(0 <= value <= 1 for value in fidelity(call, found))


@pytest.mark.parametrize(
    "wrong",
    [
        {"edge_mask_type": "object"},
        {"node_mask_type": "attributes"},
        {"model_config": {"mode": "regression", "task_level": "node", "return_type": "raw"}},
        {"model_config": {"mode": "binary_classification", "task_level": "graph", "return_type": "probs"}},
    ],
)
def test_settings_without_exact_shares_are_refused(wrong: dict[str, Any]) -> None:
    settings: dict[str, Any] = {
        "explanation_type": "model",
        "node_mask_type": "object",
        "model_config": {"mode": "regression", "task_level": "graph", "return_type": "raw"},
    }
    with pytest.raises(ValueError, match="does not support"):
        Explainer(made(), ExactShares(), **{**settings, **wrong})


def test_networks_without_exact_shares_are_refused() -> None:
    batch = graphs()
    with pytest.raises(UsageError, match="GCN"):
        explainer(GCN(4, 8, 2, 1), "regression")(batch.x, batch.edge_index)
    for options in ({"head": "mlp"}, {"pooling": "max"}):
        with pytest.raises(UsageError, match="no exact shares"):
            explainer(made(out_channels=1, **options), "regression")(batch.x, batch.edge_index, batch=batch.batch)
