"""What a GPU asks of a training step, as far as it can be tested without one.

Tensors on the device `meta` have shapes but no values. A look at a value, which would make the host wait for a GPU, is
an error there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mlap import kernels
from mlap.errors import MlapError, UsageError
from mlap.graphs import Buckets, Features, GraphBatch, GraphSet, Task, random_split, synthetic
from mlap.names import ARCHITECTURES, PAPER_ARCHITECTURES
from mlap.nn import GraphNetwork
from mlap.training import Epoch, Recipe, train
from mlap.training import batches as batches_module
from mlap.training.batches import Batches
from mlap.training.loop import _compiler, _Trainer
from mlap.training.run import build_network, describe_features

META = torch.device("meta")
SMALL = Recipe(layers=2, width=8, epochs=2, batch_size=16, dropout=0.0)
#: features of nodes and edges, and a task with unknown labels unless it is multiclass
KINDS = ("none multiclass", "categories binary", "many categories binary", "reals regression")


@cache
def graph_set(kind: str = "none multiclass") -> GraphSet:
    """Some graphs with a given kind of features and of task; graphs without arcs or without nodes are among them."""
    if kind == "none multiclass":
        return synthetic(graphs_per_class=8)
    rng = np.random.default_rng(0)
    features, _, task = kind.rpartition(" ")
    sizes = rng.integers(0, 9, 60)
    edges = [np.argwhere(np.triu(rng.random((size, size)) < 0.3, 1)) for size in sizes]
    node_ptr, edge_ptr = np.cumsum([0, *sizes]), np.cumsum([0, *map(len, edges)])

    def rows(number: int) -> Features:
        if features == "reals":
            return Features.reals(rng.integers(0, 1000, (number, 3)).astype(np.uint16), divisor=1000)
        cardinalities = (3, 2) if features == "categories" else (40, 30)  # few combinations, or too many to list
        return Features.categories(rng.integers(0, cardinalities, (number, 2)), cardinalities)

    y = rng.integers(0, 2, (60, 2)).astype(np.float32)
    y[rng.random((60, 2)) < 0.2] = np.nan
    return GraphSet(
        node_ptr,
        edge_ptr,
        np.concatenate(edges).T.astype(np.uint8),
        node_features=rows(int(node_ptr[-1])),
        edge_features=rows(int(edge_ptr[-1])),
        y=y,
        task=Task("binary", 2, "rocauc") if task == "binary" else Task("regression", 2, "rmse"),
        splits=random_split(60),
    ).validate()


def network(graphs: GraphSet, architecture: str = "mlap-sum", **changes: Any) -> GraphNetwork:
    """A network in double precision, without dropout."""
    torch.manual_seed(0)
    assert graphs.task is not None
    recipe = SMALL.replace(architecture=architecture, **changes)
    return build_network(recipe, graphs.task, describe_features(graphs)).double()


def double_batch(graphs: GraphSet, indices: Any) -> GraphBatch:
    batch = graphs.batch(indices)
    for name in ("x", "edge_attr"):
        value = getattr(batch, name)
        if value is not None and value.is_floating_point():
            setattr(batch, name, value.double())
    return batch


def answers_and_gradients(call: Any, net: GraphNetwork, batch: GraphBatch) -> list[Tensor]:
    """The logits of the real graphs, and the gradient of a sum of their squares."""
    logits = call(batch)[: batch.num_real]
    gradients = torch.autograd.grad(logits.square().sum(), list(net.parameters()), allow_unused=True)
    return [logits.detach(), *(part for part in gradients if part is not None)]


# ---- padding -----------------------------------------------------------------------------------------------------


def assert_padding_changes_nothing(graphs: GraphSet, **changes: Any) -> None:
    net, batch = network(graphs, **changes), double_batch(graphs, range(25))
    padded = Buckets.of(graphs).pad(batch)
    torch.testing.assert_close(
        answers_and_gradients(net, net, padded), answers_and_gradients(net, net, batch), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("norm", ["none", "graph", "layer", "pair"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_changes_nothing(architecture: str, norm: str) -> None:
    assert_padding_changes_nothing(graph_set(), architecture=architecture, norm=norm, layers=3)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backbone", ["gin", "gcn", "gat"])
def test_padding_changes_nothing_whatever_the_features(backbone: str, kind: str, fast: bool) -> None:
    with nullcontext() if fast else kernels.disabled():
        assert_padding_changes_nothing(graph_set(kind), backbone=backbone)


def test_padding_does_not_overflow() -> None:
    """Sums over the arcs of padding grow as those of other nodes do: 0 · ∞ would spoil the gradients."""
    graphs = graph_set()
    padded = Buckets.of(graphs).pad(graphs.batch(range(25)))
    net = network(graphs, layers=10, norm="none").float()
    with torch.no_grad():
        sizes = [level.abs().amax(1) for level in net.levels(padded)]
    nodes = int(padded.ptr[-2])
    for size in sizes:
        assert size[nodes:].max() <= 100 * size[:nodes].max()


# ---- no look at a value in a step --------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["none", "graph"])
@pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        *((kind, name) for name in PAPER_ARCHITECTURES for kind in ("none multiclass", "categories binary")),
        ("many categories binary", "mlap-sum"),
        ("reals regression", "mlap-sum"),
    ],
)
def test_a_step_never_waits_for_the_device(kind: str, architecture: str, norm: str) -> None:
    """Assembly of the batch, network, loss, gradients and optimizer."""
    graphs = graph_set(kind)
    trainer = _Trainer(SMALL.replace(architecture=architecture, norm=norm, dropout=0.5), graphs, META)
    trainer.network.train()
    total = torch.zeros((), dtype=torch.float64, device=META)
    for pad in (False, True):
        trainer.batches = Batches(graphs, META, pad=pad)
        total += trainer._train_step(graphs.split("train")[:16])
    with pytest.raises(RuntimeError, match="meta tensors"):
        float(total)  # what would have been noticed


class Operators(TorchDispatchMode):
    """Counts the operators that a device would be asked to run; views cost nothing there."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def operators(action: Callable[[], Any]) -> int:
    with Operators() as mode:
        action()
    return mode.counts.total()


def test_operators_of_a_step() -> None:
    """Their number depends on neither the number of graphs nor their size, and does not grow unseen."""
    graphs = graph_set()
    trainer = _Trainer(Recipe(architecture="mlap-sum", layers=5, norm="graph"), graphs, META)
    trainer.network.train()
    padded = Batches(graphs, META, pad=True)

    def step(size: int) -> None:
        batch = trainer.batches.for_training(np.arange(size))
        assert batch.y is not None
        loss = trainer.objective.loss(trainer.forward(batch), batch.y)
        torch.autograd.grad(loss, list(trainer.network.parameters()))

    assert operators(lambda: step(5)) == operators(lambda: step(50)) <= 660
    assert operators(lambda: trainer.batches.for_training(np.arange(50))) <= 14
    assert operators(lambda: padded.for_training(np.arange(50))) <= 20


# ---- compiling ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [*(("none multiclass", name) for name in PAPER_ARCHITECTURES), *((kind, "mlap-sum") for kind in KINDS[1:])],
)
def test_the_network_compiles_as_a_whole(kind: str, architecture: str) -> None:
    """`fullgraph` makes a graph break an error."""
    graphs = graph_set(kind)
    net, batch = network(graphs, architecture), Buckets.of(graphs).pad(double_batch(graphs, range(20)))
    torch._dynamo.reset()
    with _compiler():
        compiled = torch.compile(net, backend="eager", dynamic=False, fullgraph=True)
        got = answers_and_gradients(compiled, net, batch)
    torch.testing.assert_close(got, answers_and_gradients(net, net, batch), rtol=1e-9, atol=1e-9)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace the compiler by one that only traces; what it was called for."""
    compiled: list[Any] = []
    compile_ = torch.compile

    def trace(module: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        compiled.append(module)
        return module.forward

    monkeypatch.setattr(torch, "compile", lambda net, mode, dynamic: compile_(net, backend=trace, dynamic=dynamic))
    torch._dynamo.reset()
    return compiled


def test_compiled_training_is_the_same_training(compilations: list[Any]) -> None:
    graphs = graph_set()
    compiled, plain = train(SMALL, graphs, compile=True), train(SMALL, graphs)
    for got, expected in zip(compiled.history, plain.history, strict=True):
        assert got.train_loss == pytest.approx(expected.train_loss, rel=1e-4)
        assert got.valid_loss == pytest.approx(expected.valid_loss, rel=1e-4)
    assert len(compilations) == 2  # whole batches, and the last one of an epoch


def test_more_shapes_than_torch_would_compile_for_by_itself(compilations: list[Any]) -> None:
    with _compiler():
        net = torch.compile(torch.nn.Linear(1, 1).requires_grad_(False), mode=None, dynamic=False)
        for rows in range(1, 13):
            net(torch.zeros(rows, 1))
    assert len(compilations) == 12


def test_batch_normalisation_would_see_the_padding() -> None:
    with pytest.raises(UsageError, match=r"^compiled training pads batches, .* try compile=False$"):
        train(SMALL.replace(norm="batch"), graph_set(), compile=True)


def test_a_failing_compiler_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: Any, inputs: Any) -> Any:
        raise RuntimeError("there is no compiler\nat all")

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda net, **options: compile_(net, backend=fail))
    with pytest.raises(MlapError, match=r"^torch could not compile the network \(.*\); try compile=False$"):
        train(SMALL, graph_set(), compile=True)


# ---- batches -----------------------------------------------------------------------------------------------------


def test_validation_batches_are_assembled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    assemble = GraphSet.batch
    monkeypatch.setattr(GraphSet, "batch", lambda self, indices: calls.append(len(indices)) or assemble(self, indices))
    graphs = graph_set()
    steps = -(-len(graphs.split("train")) // SMALL.batch_size)
    kept = train(SMALL, graphs)
    assert len(calls) == SMALL.epochs * steps + 2  # one batch of validation graphs, one of test graphs
    calls.clear()
    monkeypatch.setattr(batches_module, "KEPT_ROWS", 100)
    anew = train(SMALL, graphs)
    assert len(calls) == SMALL.epochs * (steps + 1) + 1
    assert numbers(kept.history) == numbers(anew.history)
    assert kept.result == anew.result


def numbers(history: list[Epoch]) -> list[tuple[float, ...]]:
    return [(epoch.train_loss, epoch.valid_loss, epoch.valid_score) for epoch in history]


def test_a_set_that_does_not_fit_stays_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = graph_set("reals regression")
    assert Batches(graphs, META).source is not graphs
    assert Batches(graphs, torch.device("cpu")).source is graphs
    monkeypatch.setattr(batches_module, "fits", lambda graphs, device: False)
    batches = Batches(graphs, META, pad=True)
    assert batches.source is graphs
    batch = batches.for_training(np.arange(9))
    assert batch.padded
    assert {value.device for value in (batch.x, batch.edge_index, batch.edge_attr, batch.y) if value is not None} == {
        META
    }


def test_resident_training_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU nothing is gained by it, but that its batches serve can be seen there."""
    from mlap.graphs import ResidentGraphs

    graphs = graph_set("categories binary")
    plain = train(SMALL, graphs)
    build = Batches.__init__

    def resident(self: Batches, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        self.source = ResidentGraphs(graphs, "cpu")

    monkeypatch.setattr(Batches, "__init__", resident)
    assert numbers(train(SMALL, graphs).history) == numbers(plain.history)
