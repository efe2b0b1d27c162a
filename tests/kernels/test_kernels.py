"""The compiled kernels compute what the torch operations beside them compute: values and gradients."""

from __future__ import annotations

import copy
import importlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mlap import kernels
from mlap.graphs import synthetic
from mlap.names import ARCHITECTURES, POOLINGS
from mlap.nn import NORMS, AttentionPooling, AttentionSumPooling, Dropout, GatedSumPooling, graph_network
from mlap.nn.backbone import Backbone
from mlap.nn.convs import GINLayer
from mlap.nn.encoders import ConstantEncoder
from mlap.nn.join import Max
from mlap.training import Recipe, train

pytest.importorskip("numba", reason="the kernels need numba")

FEATURES = {
    "none": (None, None),
    "few categories": ([3, 4], [2, 3]),
    "many categories": ([3], [40, 50]),
    "real": (2, 3),
}


@contextmanager
def without_kernels() -> Iterator[None]:
    """Use torch operations alone."""
    with kernels.disabled():
        yield


@st.composite
def batches(draw: st.DrawFn, nodes: Any, edges: Any) -> SimpleNamespace:
    """A batch of random directed graphs: empty ones, isolated nodes, loops and repeated arcs among them."""
    sizes = draw(st.lists(st.integers(0, 7), min_size=1, max_size=6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    ptr = torch.tensor([0, *np.cumsum(sizes)])
    arcs = [
        torch.randint(size, (2, draw(st.integers(0, 2 * size))), generator=generator) + first
        for size, first in zip(sizes, ptr.tolist(), strict=False)
        if size
    ]
    edge_index = torch.cat([torch.empty(2, 0, dtype=torch.long), *arcs], dim=1)

    def features(kind: Any, rows: int) -> Tensor | None:
        if kind is None:
            return None
        if isinstance(kind, int):
            return torch.rand(rows, kind, generator=generator, dtype=torch.double)
        return torch.stack([torch.randint(size, (rows,), generator=generator) for size in kind], dim=1)

    return SimpleNamespace(
        x=features(nodes, sum(sizes)),
        edge_index=edge_index,
        edge_attr=features(edges, edge_index.size(1)),
        batch=torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
        ptr=ptr,
        num_nodes=sum(sizes),
        num_graphs=len(sizes),
    )


def outcome(network: nn.Module, batch: SimpleNamespace) -> list[Tensor]:
    """The logits, and the gradients of a function of them that tells all logits apart."""
    torch.manual_seed(0)  # the same dropout
    network.zero_grad(set_to_none=True)
    logits = network(batch)
    (logits * torch.arange(1, 1 + logits.numel()).view_as(logits)).cos().sum().backward()
    return [logits.detach()] + [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in network.parameters()]


def evaluated(network: nn.Module, batch: SimpleNamespace) -> Tensor:
    """The logits in evaluation, without gradients; the network goes back to training."""
    with torch.no_grad():
        logits: Tensor = network.eval()(batch)
    network.train()
    return logits


def shake(module: nn.Module) -> None:
    """Move every parameter away from zeros and ones, which would hide a mistake."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("norm", ["none", "graph"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=4)
@given(data=st.data())
def test_networks(architecture: str, norm: str, features: str, data: st.DataObject) -> None:
    """Values and gradients of whole networks with dropout, and values in evaluation, in double precision."""
    nodes, edges = FEATURES[features]
    batch = data.draw(batches(nodes, edges))
    torch.manual_seed(data.draw(st.integers(0, 100)))
    network = graph_network(
        architecture, num_layers=3, channels=5, out_channels=2, nodes=nodes, edges=edges, norm=norm, dropout=0.4
    ).double()
    shake(network)
    fast = [*outcome(network, batch), evaluated(network, batch)]
    with without_kernels():
        plain = [*outcome(network, batch), evaluated(network, batch)]
    for got, expected in zip(fast, plain, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("training", [False, True])
def test_norms(norm: str, residual: bool, training: bool) -> None:
    """Every normalisation goes with the fused activation."""
    torch.manual_seed(0)
    network = graph_network(num_layers=3, channels=6, out_channels=2, norm=norm, residual=residual)
    network = network.double().train(training)
    shake(network)
    same = copy.deepcopy(network)  # running statistics
    batch: Any = synthetic(graphs_per_class=2).batch(range(18))
    fast = outcome(network, batch)
    with without_kernels():
        plain = outcome(same, batch)
    for got, expected in zip(fast, plain, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-9)


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels share out even the smallest work among three threads."""
    from mlap.kernels import threads

    monkeypatch.setattr(threads, "WORTH", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("norm", ["none", "graph"])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_threads(norm: str, features: str, data: st.DataObject) -> None:
    """However many threads share the rows: also more threads than rows, and graphs that lie across parts."""
    test_networks.hypothesis.inner_test("mlap-weighted", norm, features, data)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("three_threads")
def test_the_threads_are_those_of_torch() -> None:
    from mlap.kernels import threads, two_layers

    tasks = Path("/proc/self/task")
    if not (threads.AVAILABLE and tasks.exists()):
        pytest.skip("kernels run in the calling thread here")
    torch.randn(500, 500) @ torch.randn(500, 500)
    before = {task.name for task in tasks.iterdir()}
    assert len(before) >= 3
    x = np.ones((3000, 100), np.float32)
    used = two_layers.relu_backward(x.copy(), x, threads.threads_for(x.size))
    assert (used == 3000).all()
    assert {task.name for task in tasks.iterdir()} == before


def test_a_part_for_every_thread() -> None:
    """Each thread of the pool gets its own part; together they are the whole range."""
    from mlap.kernels.loops import compiled
    from mlap.kernels.threads import AVAILABLE, fork

    @compiled
    def note(part: int, first: int, last: int, seen: Any) -> None:
        seen[part, 0], seen[part, 1] = first, last

    @compiled
    def run(count: int, threads: int) -> Any:
        seen = np.full((threads, 2), -1)
        fork(note, count, threads, (seen,))
        return seen

    assert run(10, 1).tolist() == [[0, 10]]
    if AVAILABLE:
        assert run(10, 3).tolist() == [[0, 3], [3, 6], [6, 10]]
        assert run(1, 3).tolist() == [[0, 0], [0, 0], [0, 1]]


KERNELS = {
    "gin": ["collect", "collect_backward"],
    "finish": ["normalise", "normalise_backward", "activate", "activate_backward"],
    "two_layers": ["add_relu", "relu_backward"],
    "attention": ["score", "score_backward", "soft", "soft_backward"],
    "lstm": ["cell_backward"],
}
OTHER_KERNELS = {
    "finish": ["normalise_batch", "normalise_batch_backward"],
    "attention": ["segment_sum", "segment_spread", "gated_backward"],
}


def watch(patch: pytest.MonkeyPatch, kernels_of: dict[str, list[str]]) -> set[str]:
    """The names of the kernels that are called from now on."""
    called: set[str] = set()
    for module, names in kernels_of.items():
        for name in names:
            kernel = getattr(importlib.import_module(f"mlap.kernels.{module}"), name)
            noted = lambda *a, kernel=kernel, name=name: (called.add(name), kernel(*a))[1]  # noqa: E731
            patch.setattr(f"mlap.kernels.{module}.{name}", noted)
    return called


def test_the_kernels_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the comparisons above would compare torch with itself."""
    called = watch(monkeypatch, KERNELS)
    batch: Any = synthetic(graphs_per_class=1).batch(range(9))
    for norm in ("graph", "none"):
        outcome(graph_network("jk-lstm", num_layers=2, channels=3, out_channels=2, norm=norm), batch)
    assert called == {name for names in KERNELS.values() for name in names}
    called.clear()
    with without_kernels():
        outcome(graph_network("jk-lstm", num_layers=2, channels=3, out_channels=2, norm="graph"), batch)
    assert not called


def test_those_of_the_options_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    called = watch(monkeypatch, OTHER_KERNELS)
    batch: Any = synthetic(graphs_per_class=1).batch(range(9))
    options: dict[str, Any] = {"norm": "batch", "inner_norm": "batch", "pooling": ["gated-sum", "mean"]}
    outcome(graph_network(num_layers=2, channels=3, out_channels=2, **options), batch)
    assert called == {name for names in OTHER_KERNELS.values() for name in names}


OPTIONS: dict[str, dict[str, Any]] = {
    "batch inside": {"inner_norm": "batch"},
    "batch both, residual": {"inner_norm": "batch", "norm": "batch", "residual": True},
    "batch inside, graph after": {"inner_norm": "batch", "norm": "graph"},
    "input level": {"input_level": True, "norm": "batch"},
    "virtual node": {"virtual_node": True, "norm": "batch", "residual": True},
    "mlp head": {"head": "mlp"},
    "walks, graphs": {"walk_features": 3, "graph_features": 2},
}


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=4)
@given(data=st.data())
def test_options(options: str, pooling: str, data: st.DataObject) -> None:
    """Values, gradients, running statistics and evaluation with the options that the paper does not have."""
    nodes, edges = FEATURES["few categories"]
    batch = data.draw(batches(nodes, edges))
    generator = torch.Generator().manual_seed(1)
    batch.rw = torch.rand(batch.num_nodes, 3, generator=generator, dtype=torch.double)
    batch.graph_attr = torch.rand(batch.num_graphs, 2, generator=generator, dtype=torch.double)
    torch.manual_seed(0)
    common: dict[str, Any] = {"num_layers": 3, "channels": 5, "out_channels": 2, "nodes": nodes, "edges": edges}
    network = graph_network("mlap-weighted", **common, pooling=pooling, dropout=0.4, **OPTIONS[options]).double()
    shake(network)
    if batch.num_nodes < 2 or (network.backbone.virtual_node is not None and batch.num_graphs < 2):  # type: ignore[union-attr]
        network.eval()  # there is no variance of one row
    same = copy.deepcopy(network)
    fast = [*outcome(network, batch), *network.buffers(), evaluated(network, batch)]
    with without_kernels():
        plain = [*outcome(same, batch), *same.buffers(), evaluated(same, batch)]
    for got, expected in zip(fast, plain, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    "name",
    ["backbone.convs.1", "backbone.convs.1.nn", "backbone.norms.1", "readout.pools.1.gate", "readout.join.lstm"],
)
def test_a_module_with_a_hook_is_called(name: str) -> None:
    """The kernels do not do its work behind its back; the outcome is the same."""
    network = graph_network("mlap-lstm", num_layers=3, channels=3, out_channels=2, norm="graph")
    batch: Any = synthetic(graphs_per_class=1).batch(range(9))
    expected = outcome(network, batch)
    seen: list[nn.Module] = []
    module = network.get_submodule(name)
    module.register_forward_hook(lambda module, inputs, output: seen.append(module))
    for got, other in zip(outcome(network, batch), expected, strict=True):
        torch.testing.assert_close(got, other, rtol=1e-4, atol=1e-4)
    assert seen == [module]


def test_a_layer_of_ones_own_is_called() -> None:
    class Own(GINLayer):
        def forward(self, h: Tensor, *rest: Any) -> Tensor:
            return 2 * h

    backbone = Backbone([Own(4, ConstantEncoder(4))], 4).eval()
    h = torch.randn(3, 4)
    assert torch.equal(backbone(h, torch.zeros(2, 0, dtype=torch.long), None, torch.zeros(3), 1)[0], 2 * h)


def test_it_does_not_matter_where_arrays_lie() -> None:
    """A loop that adds up must not be one whose compiled form depends on how near its arrays are to each other."""
    from mlap.kernels import attention, gin

    draw = np.random.default_rng(0).standard_normal
    nodes, channels, ptr = 400, 24, np.arange(0, 401, 25)
    x, h, graphs = (draw((rows, channels), np.float32) for rows in (nodes, nodes, len(ptr) - 1))
    scores, others, bias, weight = (draw(size, np.float32) for size in (nodes, nodes, channels, channels))
    source, target = np.random.default_rng(1).integers(0, nodes, (2, 900))
    arcs = [np.arange(nodes), *gin.sort_arcs(source, target, nodes)]
    kinds, factor, zero = np.empty(0, np.int64), np.float32(1.5), np.zeros_like
    for kernel, arguments, outputs in (
        (attention._soft, [x, scores, ptr, True, zero(graphs), zero(scores)], (4, 5)),
        (attention._soft_backward, [graphs, scores, x, abs(others), ptr, True, zero(x), zero(scores)], (6, 7)),
        (attention._score, [x, bias, weight, bias[:1], zero(scores)], (0, 4)),
        (
            gin._collect_backward,
            [x, h, h[:1], kinds, factor, *arcs, zero(x), zero(h[None, :1]), zero(bias)],
            (9, 11),
        ),
    ):
        inputs = [k for k, value in enumerate(arguments) if isinstance(value, np.ndarray) and value.dtype == np.float32]
        for near, output in itertools.product(inputs, outputs):
            results = set()
            for apart in (0, 8, 32, 100_000):
                copies = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
                size = copies[near].size
                memory = np.zeros(size + apart + copies[output].size, np.float32)
                if near != output:
                    copies[near] = memory[:size].reshape(copies[near].shape)
                    copies[near][...] = arguments[near]
                    copies[output] = memory[size + apart :].reshape(copies[output].shape)
                    copies[output][...] = arguments[output]
                kernel(0, 0, nodes, *copies)
                results.add(b"".join(copies[k].tobytes() for k in outputs))
            assert len(results) == 1, (kernel, near, output)


@pytest.mark.parametrize("pooling", [AttentionPooling, AttentionSumPooling, GatedSumPooling])
def test_weights_have_a_gradient_of_their_own(pooling: type[AttentionPooling]) -> None:
    from mlap.kernels.attention import attend
    from mlap.kernels.run import WEIGHINGS

    torch.manual_seed(0)
    module = pooling(3).double()
    x = torch.randn(7, 3, dtype=torch.double, requires_grad=True)
    ptr = torch.tensor([0, 3, 3, 7])
    index = torch.tensor([0, 0, 0, 2, 2, 2, 2])
    gate = tuple(module.gate.parameters())
    how = WEIGHINGS[pooling]
    assert torch.autograd.gradcheck(lambda x: attend(x, ptr, gate, how), (x,))
    plain = module(x, index, None, 3, return_weights=True)
    for got, expected in zip(attend(x, ptr, gate, how), plain, strict=True):
        torch.testing.assert_close(got, expected)


def test_a_network_that_diverges_is_seen_to_diverge() -> None:
    """NaN and infinity are not flattened by ReLU or dropout."""
    for norm in ("none", "graph"):
        network = graph_network(num_layers=3, channels=4, out_channels=2, norm=norm, dropout=0.1)
        with torch.no_grad():
            network.backbone.convs[0].nn[0].weight[0, 0] = float("nan")  # type: ignore[index, union-attr]
        assert network(synthetic(graphs_per_class=1).batch(range(9))).isnan().any()


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_the_largest_of_several(levels: int) -> None:
    """With equal values, whose gradient goes to the first, infinity and NaN, which stays."""
    from mlap.kernels.largest import largest

    torch.manual_seed(0)
    rows = [torch.randint(-3, 4, (40, 7)).double().requires_grad_() for _ in range(levels)]
    weight = torch.randn(40, 7, dtype=torch.double)
    outcomes = []
    for join in (largest, Max(7, levels)):
        result = join(rows)
        outcomes.append((result, *torch.autograd.grad((weight * result).sum(), rows)))
    for got, expected in zip(*outcomes, strict=True):
        assert torch.equal(got, expected)
    strange = [torch.tensor([[float("nan"), 1.0, float("-inf")]]), torch.tensor([[2.0, float("nan"), float("inf")]])]
    assert str(largest([*strange, torch.full((1, 3), 3.0)]).tolist()) == "[[nan, nan, inf]]"


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_an_lstm_is_torchs(length: int) -> None:
    from mlap.kernels.lstm import lstm

    torch.manual_seed(0)
    module = nn.LSTM(3, 4).double()
    steps = torch.randn(length, 6, 3, dtype=torch.double, requires_grad=True)
    weigh = torch.randn(length, 6, 4, dtype=torch.double)

    def states_and_gradients(states: Sequence[Tensor]) -> list[Tensor]:
        every = sum((state * w).sum() for state, w in zip(states, weigh, strict=True))
        last = states[-1].sum()  # an expanded gradient, and none for the others
        learned = (steps, *module.parameters())
        return [*states, *(g for x in (every, last) for g in torch.autograd.grad(x, learned, retain_graph=True))]

    ours = states_and_gradients(lstm(steps.unbind(), *module.all_weights[0]))
    torchs = states_and_gradients(module(steps)[0].unbind())
    for got, expected in zip(ours, torchs, strict=True):
        torch.testing.assert_close(got, expected)


def test_dropout_of_both_kinds_drops_the_same() -> None:
    from mlap.kernels.finish import Finish, finish

    for p in (0.0, 0.3, 0.5, 1.0):
        dropout = Dropout(p)
        x = torch.randn(11, 7)
        torch.manual_seed(1)
        plain = dropout(x.relu())
        torch.manual_seed(1)
        assert torch.equal(finish(x, Finish(True, dropout.draw())), plain)


def test_training_gives_the_same_numbers() -> None:
    """A whole small training: the same scores, and losses equal but for rounding."""
    graphs = synthetic(graphs_per_class=6)
    recipe = Recipe(architecture="mlap-weighted", layers=3, width=8, epochs=3, batch_size=9, norm="none")
    fast = train(recipe, graphs)
    with without_kernels():
        plain = train(recipe, graphs)
    for got, expected in zip(fast.history, plain.history, strict=True):
        assert got.train_loss == pytest.approx(expected.train_loss, rel=1e-3)
    assert fast.result.valid_score == plain.result.valid_score


@given(data=st.data())
def test_equal_rows(data: st.DataObject) -> None:
    """Against numpy's sorted rows, of both types; a row with NaN is equal to one of the same bits."""
    from mlap.kernels.sharing import equal_rows, once_per_kind

    columns = data.draw(st.integers(1, 5))
    values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1 + 1e-7, float("nan"), float("inf")])
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    rows = data.draw(st.lists(st.lists(values, min_size=columns, max_size=columns), max_size=40))
    x = torch.tensor(rows, dtype=dtype).reshape(-1, columns)
    bits = x.numpy().view(np.uint32)
    first, kind = equal_rows(bits, 1)
    assert (bits[first][kind] == bits).all()
    assert len(first) == len(np.unique(bits, axis=0))
    assert all(kind[row] == number for number, row in enumerate(first))

    seen: list[int] = []

    def function(some: Tensor) -> Tensor:
        seen.append(len(some))
        return 2 * some

    assert torch.equal(once_per_kind(function, x).nan_to_num(), (2 * x).nan_to_num())
    assert seen == [len(x) if len(first) > 0.9 * len(x) else len(first)]
