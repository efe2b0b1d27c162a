"""What users of PyTorch and PyG do with a module: ours take part in all of it."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from samples import CATEGORIES, REALS, close, double, graph_set, network, shake, whole_batch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, GNNExplainer, PGExplainer
from torch_geometric.explain.algorithm import CaptumExplainer, GraphMaskExplainer
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN, GIN, MLP, JumpingKnowledge, to_captum_model

from mlap.names import ARCHITECTURES
from mlap.nn import CONVS, AttentionPooling, GraphNetwork, JumpReadout, MultiLevelAttentionPooling, graph_network

CONFIG = {"task_level": "graph", "return_type": "raw"}


def made(architecture: str = "mlap-sum", **options: Any) -> GraphNetwork:
    return network(architecture, nodes=CATEGORIES, edges=REALS, num_layers=2, **options)


def graphs() -> list[Data]:
    """Some graphs as PyG's users have them, one of a single node and two without any."""
    return [double(data) for data in graph_set(CATEGORIES, REALS)]


def batch() -> Batch:
    return Batch.from_data_list(graphs())


def tensors(data: Any) -> tuple[Tensor, ...]:
    return data.x, data.edge_index, data.edge_attr, data.batch


# ---- calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", CONVS)
@pytest.mark.parametrize("architecture", ["naive", "jk-lstm", "mlap-weighted"])
def test_every_way_to_call_a_network(architecture: str, backbone: str) -> None:
    net, given = made(architecture, backbone=backbone, norm="batch"), batch()
    expected = net(whole_batch(graph_set(CATEGORIES, REALS)))
    close(net(given), expected)
    close(net(*tensors(given), batch_size=given.num_graphs), expected)
    close(net(given.x, given.edge_index, edge_attr=given.edge_attr, batch=given.batch, batch_size=7), expected)
    close(net(*tensors(given)), expected[:6])  # the last graph, without nodes, is not in `batch`
    for number, data in enumerate(graphs()):
        close(net(data), expected[number : number + 1])
        close(net(data.x, data.edge_index, data.edge_attr), expected[number : number + 1])


def test_batches_of_a_data_loader() -> None:
    net = made()
    together = torch.cat([net(part) for part in DataLoader(graphs(), batch_size=3)])
    close(together, net(batch()))


def test_levels_of_pygs_models() -> None:
    """Any model's layer outputs, PyG's own jumping knowledge, PyG's order of arguments."""
    given = batch()
    x = nn.Embedding(4, 8, dtype=torch.double)(given.x).sum(1)
    for model in (GCN(8, 8, 3), GIN(8, 8, 3), MLP([8, 8, 8], norm=None)):
        model = model.double().eval()
        levels: list[Tensor] = []
        for layer in getattr(model, "convs", getattr(model, "lins", [])):
            layer.register_forward_hook(lambda module, inputs, output, levels=levels: levels.append(output))
        model(x) if isinstance(model, MLP) else model(x, given.edge_index)
        readout = MultiLevelAttentionPooling(8, len(levels), "lstm").double()
        assert readout(levels, given.batch, dim_size=7).shape == (7, 8)
        close(readout(levels, ptr=given.ptr), readout(levels, given.batch, given.ptr, 7))


def test_conventions_of_pygs_aggregations() -> None:
    pool = AttentionPooling(3).double()
    x = torch.randn(4, 3, dtype=torch.double)
    expected = pool(x, torch.tensor([0, 0, 2, 2]), dim_size=4)
    assert expected.shape == (4, 3)
    close(pool(x, ptr=torch.tensor([0, 2, 2, 4, 4])), expected)
    assert (expected[[1, 3]] == 0).all()


# ---- copies, files, precision ------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_copies_and_state_dicts(architecture: str) -> None:
    net, given = made(architecture, norm="batch", inner_norm="batch"), batch()
    twin = copy.deepcopy(net)
    other = made(architecture, norm="batch", inner_norm="batch", seed=1)
    assert not torch.equal(other(given), net(given))
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for same in (twin, other):
        assert torch.equal(same(given), net(given))
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(other(given), net(given))  # the copy shared nothing


def test_double_and_single_and_half() -> None:
    net, given = made(), batch()
    expected = net(given)
    given.edge_attr = given.edge_attr.float()
    close(net.float()(given), expected, 1e-4)
    given.edge_attr = given.edge_attr.bfloat16()
    assert net.bfloat16()(given).dtype == torch.bfloat16


# ---- torch's own tools -------------------------------------------------------------------------------------------


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_distributed_data_parallel() -> None:
    net, given = made(norm="batch").train(), batch()
    twin = copy.deepcopy(net)
    parallel = DistributedDataParallel(net)
    for model in (parallel, twin):
        torch.manual_seed(0)
        model(given).square().sum().backward()
    for ours, expected in zip(net.parameters(), twin.parameters(), strict=True):
        assert ours.grad is not None
        close(ours.grad, expected.grad)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch looks at it where it breaks a graph
@pytest.mark.parametrize("architecture", ["jk-lstm", "mlap-weighted"])
def test_compiled(architecture: str) -> None:
    net, given = made(architecture, norm="graph"), batch()
    compiled = torch.compile(net, backend="aot_eager")
    close(compiled(*tensors(given), 7), net(given))
    torch.compiler.reset()


@pytest.mark.parametrize("options", [{}, {"norm": "graph"}, {"norm": "batch", "inner_norm": "batch"}])
@pytest.mark.parametrize("architecture", ["naive", "jk-sum", "mlap-weighted"])
def test_exported_with_dynamic_sizes(architecture: str, options: dict[str, Any]) -> None:
    """Nodes, arcs and graphs of the example are not baked in."""
    net = made(architecture, **options)
    example, other = (Batch.from_data_list([graphs()[k] for k in chosen]) for chosen in ((0, 4), (5, 4, 3, 1, 0)))
    nodes, arcs = torch.export.Dim("nodes", min=2), torch.export.Dim("arcs", min=2)
    sizes = ({0: nodes}, {1: arcs}, {0: arcs}, {0: nodes}, torch.export.Dim.DYNAMIC)
    program = torch.export.export(net, (*tensors(example), 2), dynamic_shapes=sizes, strict=False)
    close(program.module()(*tensors(other), 5), net(other))


# ---- explainers --------------------------------------------------------------------------------------------------


def path() -> tuple[GraphNetwork, Tensor, Tensor]:
    """A network, and the nodes and arcs of a path 0 – 1 – 2 – 3 from which the arcs 3 → 2 and 2 → 3 lead nowhere."""
    torch.manual_seed(0)
    net = graph_network(num_layers=2, channels=8, out_channels=1, nodes=REALS, dropout=0.0).eval()
    shake(net)
    return net, torch.randn(4, REALS), torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


@pytest.mark.parametrize("backbone", CONVS)
@pytest.mark.parametrize(
    "algorithm",
    [GNNExplainer(epochs=3), PGExplainer(epochs=2), GraphMaskExplainer(2, epochs=2, log=False)],
    ids=["GNNExplainer", "PGExplainer", "GraphMask"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pygs_explainers(algorithm: Any, backbone: str) -> None:
    torch.manual_seed(0)
    net = graph_network(num_layers=2, channels=8, out_channels=1, nodes=REALS, backbone=backbone).eval()
    _, x, arcs = path()
    learns = isinstance(algorithm, PGExplainer)
    explainer = Explainer(
        net,
        algorithm,
        explanation_type="phenomenon" if learns else "model",
        node_mask_type="attributes" if isinstance(algorithm, GraphMaskExplainer) else None,
        edge_mask_type="object",
        model_config={"mode": "binary_classification", **CONFIG},
    )
    target = torch.tensor([1]) if learns else None
    if learns:
        for epoch in range(2):
            algorithm.train(epoch, net, x, arcs, target=torch.tensor([1.0]))
    found = explainer(x, arcs, target=target)
    assert found.edge_mask.shape == (arcs.size(1),)
    assert found.edge_mask.isfinite().all()


@pytest.mark.parametrize("backbone", CONVS)
def test_an_edge_mask_is_a_factor_of_the_messages(backbone: str) -> None:
    """A mask of zeros takes arcs away (but for GCN, whose degrees count them), one of ones changes nothing."""
    torch.manual_seed(0)
    net = graph_network(num_layers=2, channels=8, out_channels=1, nodes=REALS, backbone=backbone).eval()
    _, x, arcs = path()
    explainer = Explainer(
        net,
        GNNExplainer(epochs=1),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "regression", **CONFIG},
    )
    ones = torch.ones(arcs.size(1))
    kept = torch.tensor([1.0, 1, 0, 0, 1, 1])
    close(explainer.get_masked_prediction(x, arcs, edge_mask=ones), net(x, arcs), 1e-6)
    masked = explainer.get_masked_prediction(x, arcs, edge_mask=kept)
    assert not torch.allclose(masked, net(x, arcs), atol=1e-5)
    if backbone == "gin":
        close(masked, net(x, arcs[:, kept.bool()]), 1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("method", ["Saliency", "IntegratedGradients", "InputXGradient", "GuidedBackprop"])
def test_captum_through_pyg(method: str) -> None:
    pytest.importorskip("captum")
    net, x, arcs = path()
    explainer = Explainer(
        net,
        CaptumExplainer(method),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "regression", **CONFIG},
    )
    found = explainer(x, arcs)
    assert found.edge_mask.abs().sum() > 0
    assert found.node_mask.abs().sum() > 0


def test_shapley_values_of_arcs() -> None:
    captum = pytest.importorskip("captum.attr")
    net, x, arcs = path()
    torch.manual_seed(0)
    shapley = captum.ShapleyValueSampling(to_captum_model(net, "edge"))
    values = shapley.attribute(torch.ones(1, arcs.size(1)), additional_forward_args=(x, arcs), n_samples=8)
    whole = net(x, arcs) - net(x, arcs[:, :0])
    close(values.sum(), whole.sum(), 1e-5)
    assert (values != 0).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_captum_changes_every_relu() -> None:
    """GuidedBackprop replaces the gradient of each ReLU; one that it does not see would keep its own."""
    captum = pytest.importorskip("captum.attr")
    net, x, arcs = path()
    given = x.clone().requires_grad_()
    guided = captum.GuidedBackprop(net).attribute(given, additional_forward_args=(arcs,))

    class Guided(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.relu()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad.relu() * (x > 0)

    class GuidedReLU(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = Guided.apply(x)  # type: ignore[no-untyped-call]
            return result

    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.ReLU):
                setattr(module, name, GuidedReLU())
    (expected,) = torch.autograd.grad(net(given, arcs).sum(), given)
    close(guided, expected, 1e-6)


def test_pygs_jumping_knowledge_is_explained() -> None:
    from mlap.models.explanation import decompose

    for mode in ("max", "lstm"):
        net = made("jk-sum")
        net.readout = JumpReadout(4, 2, JumpingKnowledge(mode, 4, 2)).double()
        found = decompose(net, batch())
        assert found.shares is not None
        total = torch.zeros_like(found.logits).index_add_(0, batch().batch, found.shares.sum(1)) + found.bias
        close(total, found.logits)
        assert found.reason
