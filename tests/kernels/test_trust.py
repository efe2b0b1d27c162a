"""Kernels trust nobody: what they cannot or must not do is refused, or done by torch, and never a wrong number."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrize
from torch_geometric.data import Batch, Data

import mlap
from mlap import kernels
from mlap.errors import DataError
from mlap.nn import GraphNetwork, graph_network

pytest.importorskip("numba", reason="the kernels need numba")

SOURCES = Path(mlap.__file__).parent


def ring(size: int = 6) -> Data:
    """A ring of nodes that are all alike, as benzene."""
    nodes = torch.arange(size)
    onwards = torch.stack((nodes, (nodes + 1) % size))
    return Data(
        x=torch.ones(size, 2, dtype=torch.long),
        edge_index=torch.cat((onwards, onwards.flip(0)), dim=1),
        edge_attr=torch.ones(2 * size, 1, dtype=torch.long),
    )


def shake(network: GraphNetwork) -> GraphNetwork:
    """Move every parameter away from zeros and ones, which would hide a mistake."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return network


def categories_network(**options: Any) -> GraphNetwork:
    """A network for rings."""
    torch.manual_seed(0)
    chosen = {"num_layers": 3, "channels": 4, "out_channels": 1, "nodes": [3, 2], "edges": [3], "dropout": 0.0}
    return shake(graph_network(**{**chosen, **options}).double())


def reals_network() -> tuple[GraphNetwork, Tensor, Tensor]:
    """A network for nodes with real features, and a ring of such."""
    torch.manual_seed(0)
    network = shake(graph_network(num_layers=2, channels=4, out_channels=1, nodes=2, dropout=0.0).double())
    return network, torch.randn(6, 2, dtype=torch.double), ring().edge_index


# ---- batches that are wrong --------------------------------------------------------------------------------------


def two_rings(**wrong: Any) -> Batch:
    """A batch, with some of its tensors replaced."""
    batch = Batch.from_data_list([ring(), ring()])
    batch.x[:, 0] = torch.arange(12) % 3  # nodes that differ
    for name, value in wrong.items():
        setattr(batch, name, torch.tensor(value))
    return batch


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("node", [12, 10**8, -1, -(10**12)])
def test_an_arc_to_a_node_that_does_not_exist(node: int, row: int) -> None:
    batch = two_rings()
    batch.edge_index[row, 3] = node
    for options in ({}, {"backbone": "gcn"}):
        network = categories_network(**options)
        for call in (network, network.levels, network.trace):
            with pytest.raises(DataError, match=rf"edge_index.* {node}\b.*\b12 nodes"):
                call(batch)


@pytest.mark.parametrize(
    "ptr", [[0, 6], [0, 7, 12], [0, 6, 13], [0, 10**8, 12], [0, -(10**8), 12], [-1, 6, 12], [0, 6, 12, 12], []]
)
def test_a_wrong_ptr(ptr: list[int]) -> None:
    with pytest.raises(DataError, match=r"ptr.*\b2 graphs"):
        categories_network()(two_rings(ptr=ptr))


@pytest.mark.parametrize("graph", [[0] * 6 + [2] * 6, [-1] * 6 + [1] * 6, [0] * 6 + [10**8] * 6])
def test_nodes_of_graphs_that_do_not_exist(graph: list[int]) -> None:
    network = categories_network()
    with pytest.raises(DataError, match="ptr"):
        network(two_rings(batch=graph))
    data = two_rings()
    with pytest.raises((RuntimeError, IndexError)):  # without ptr, torch says it
        network(data.x, data.edge_index, data.edge_attr, torch.tensor(graph), 2)


@pytest.mark.parametrize(
    ("wrong", "numbers"),
    [
        ({"batch": [0] * 6 + [1] * 5}, ["12 nodes", "11"]),
        ({"edge_attr": [[1]] * 7}, ["24 arcs", "7"]),
        ({"edge_index": [[0, 1], [1, 2], [2, 0]]}, ["3, 2"]),
    ],
)
def test_tensors_that_do_not_go_together(wrong: dict[str, Any], numbers: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        categories_network()(two_rings(**wrong))
    assert all(number in str(caught.value) for number in numbers)


def test_features_of_fewer_nodes() -> None:
    whole = two_rings()
    batch = SimpleNamespace(**{**whole.to_dict(), "x": whole.x[:7], "num_nodes": 12, "num_graphs": 2})
    with pytest.raises(DataError, match=r"12 nodes.*\b7\b"):
        categories_network()(batch)


def test_indices_of_32_bits() -> None:
    for options in ({}, {"backbone": "gcn"}, {"backbone": "gat"}):
        network = categories_network(**options)
        batch, short = two_rings(), two_rings()
        for name in ("x", "edge_index", "edge_attr", "batch", "ptr"):
            setattr(short, name, getattr(short, name).int())
        for off in (False, True):
            with kernels.disabled() if off else nullcontext():
                assert torch.equal(network(short), network(batch))


# ---- derivatives that the kernels do not have --------------------------------------------------------------------


def test_second_derivatives_are_refused_and_computed_without_kernels() -> None:
    network, x, edge_index = reals_network()

    def penalty() -> Tensor:
        given = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(network(given, edge_index).sum(), given, create_graph=True)
        return slope.square().sum()

    def hessian() -> Tensor:
        found = torch.autograd.functional.hessian(lambda x: network(x, edge_index).sin().sum(), x)
        assert isinstance(found, Tensor)
        return found

    for compute in (penalty, hessian):
        with pytest.raises(RuntimeError, match="second derivatives"):
            compute()
    with kernels.disabled():
        assert penalty().requires_grad
        assert hessian().abs().sum() > 0


@pytest.mark.parametrize("options", [{"norm": "graph"}, {"norm": "batch", "inner_norm": "batch"}, {"pooling": "mean"}])
@pytest.mark.parametrize("architecture", ["jk-lstm", "mlap-max"])
def test_second_derivatives_are_refused_by_every_kernel(architecture: str, options: dict[str, Any]) -> None:
    network = graph_network(architecture, num_layers=2, channels=4, out_channels=1, nodes=2, **options)
    x = torch.randn(6, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(network(x, ring().edge_index).sum(), x, create_graph=True)


def by_functorch(function: Callable[[Tensor], Tensor], x: Tensor, way: Tensor) -> Tensor:
    tangent: Tensor = torch.func.jvp(function, (x,), (way,))[1]
    return tangent


def by_dual_numbers(function: Callable[[Tensor], Tensor], x: Tensor, way: Tensor) -> Tensor:
    with forward_ad.dual_level():
        tangent: Tensor = forward_ad.unpack_dual(function(forward_ad.make_dual(x, way))).tangent
    return tangent


@pytest.mark.parametrize("forward_mode", [by_functorch, by_dual_numbers])
def test_forward_mode(forward_mode: Callable[..., Tensor]) -> None:
    network, x, edge_index = reals_network()
    way = torch.randn_like(x)
    given = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(network(given, edge_index).sum(), given)
    tangent = forward_mode(lambda x: network(x, edge_index).sum(), x, way)
    torch.testing.assert_close(tangent, (slope * way).sum())


def test_functorch() -> None:
    network, x, edge_index = reals_network()
    several = torch.stack((x, 2 * x))
    expected = torch.stack([network(x, edge_index) for x in several])
    torch.testing.assert_close(torch.func.vmap(lambda x: network(x, edge_index))(several), expected)
    hessian = torch.func.hessian(lambda x: network(x, edge_index).sin().sum())(x)
    with kernels.disabled():
        plain = torch.autograd.functional.hessian(lambda x: network(x, edge_index).sin().sum(), x)
    torch.testing.assert_close(hessian, plain)


def test_gradients_at_the_encoded_nodes_of_alike_atoms_are_alike() -> None:
    """Not all given to the first of them; whether a hook asks for them or the encoded nodes are a level."""
    for off in (False, True):
        with kernels.disabled() if off else nullcontext():
            network = categories_network()
            seen: list[Tensor] = []

            def keep(module: nn.Module, inputs: Any, encoded: Tensor, seen: list[Tensor] = seen) -> None:
                encoded.retain_grad()
                seen.append(encoded)

            network.encoder.register_forward_hook(keep)
            network(ring()).sum().backward()
            with_level = categories_network(input_level=True).trace(ring())
            (slope,) = torch.autograd.grad(with_level.logits.sum(), with_level.levels[0])
        assert seen[0].grad is not None
        for grad in (seen[0].grad, slope):
            assert grad[0].abs().sum() > 0
            torch.testing.assert_close(grad, grad[:1].expand(6, -1))


# ---- others that change what torch computes ----------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["gin", "gcn", "gat"])
def test_autocast(backbone: str) -> None:
    network = categories_network(backbone=backbone, norm="batch", channels=8).float()
    expected = copy.deepcopy(network)(two_rings())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(two_rings())
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected, rtol=0.1, atol=0.1)
    logits.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float for p in network.parameters())


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_traced_network_sees_other_graphs() -> None:
    network, x, edge_index = reals_network()
    network.eval()
    other, more = torch.randn(9, 2, dtype=torch.double), ring(9).edge_index
    with torch.no_grad():
        traced = torch.jit.trace(network, (x, edge_index))
        torch.testing.assert_close(traced(other, more), network(other, more))


# ---- modules that are not as we made them ------------------------------------------------------------------------

EVERY_CHILD = [
    name
    for name, module in graph_network(
        "mlap-lstm",
        num_layers=2,
        channels=4,
        out_channels=1,
        nodes=[3, 2],
        edges=[3],
        norm="batch",
        inner_norm="batch",
        input_level=True,
        virtual_node=True,
        head="mlp",
    ).named_modules()
    if not isinstance(module, nn.ModuleList)
]


@pytest.mark.parametrize("name", EVERY_CHILD)
def test_hooks_on_every_child_are_called(name: str) -> None:
    """As often as torch alone calls them, forward and backward, and the outcome stays the same."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"virtual_node": True, "head": "mlp", "dropout": 0.5}
    network = categories_network(
        architecture="mlap-lstm", num_layers=2, norm="batch", inner_norm="batch", input_level=True, **options
    )
    plain = copy.deepcopy(network)

    def outcome(network: GraphNetwork) -> tuple[list[Tensor], list[str]]:
        calls: list[str] = []
        module = network.get_submodule(name)
        module.register_forward_pre_hook(lambda *_: calls.append("before"))
        module.register_forward_hook(lambda *_: calls.append("after"))
        torch.manual_seed(1)
        logits = network(two_rings())
        logits.sum().backward()
        return [logits, *(p.grad for p in network.parameters() if p.grad is not None)], calls

    got, calls = outcome(network)
    with kernels.disabled():
        expected, expected_calls = outcome(plain)
    assert calls == expected_calls
    # PyG calls an aggr_module where it does not fuse; levels are dropped only if that was asked for.
    assert calls or name.endswith(("aggr_module", "level_dropout"))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


class LowRank(nn.Module):
    """A linear layer with a low-rank addition, as LoRA's."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, 1, bias=False, dtype=torch.double)
        self.up = nn.Linear(1, linear.out_features, bias=False, dtype=torch.double)

    def forward(self, x: Tensor) -> Tensor:
        low_rank: Tensor = self.linear(x) + self.up(self.down(x))
        return low_rank


class Half(nn.Module):
    """A parametrisation."""

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


class Doubled(GraphNetwork):
    """A network of the user's own."""

    def encode(self, g: Any) -> Tensor:
        return 2 * super().encode(g)


def replace(network: GraphNetwork, name: str, make: Callable[[Any], nn.Module]) -> None:
    where, _, child = name.rpartition(".")
    network.get_submodule(where)._modules[child] = make(network.get_submodule(name))


@pytest.mark.parametrize(
    "change",
    [
        lambda network: replace(network, "backbone.convs.1.nn.1", lambda _: nn.Tanh()),
        lambda network: replace(network, "backbone.convs.1.activation", lambda _: nn.Tanh()),
        lambda network: replace(network, "backbone.activations.0", lambda _: nn.Tanh()),
        lambda network: replace(network, "backbone.convs.0.nn.0", LowRank),
        lambda network: replace(network, "readout.pools.1.gate.0", LowRank),
        lambda network: parametrize.register_parametrization(network.backbone.convs[0].nn[2], "weight", Half()),
        lambda network: parametrize.register_parametrization(network.encoder, "tables", Half()),
        lambda network: setattr(network.backbone.convs[0], "message", lambda x_j, q: 2 * x_j),
        lambda network: setattr(network.readout.pools[1], "weights", lambda x, *_: x[:, 0]),
        lambda network: setattr(network, "encode", lambda g: torch.ones(12, 4, dtype=torch.double)),
        lambda network: setattr(network, "__class__", Doubled),
    ],
    ids=[
        *("activation", "message's", "layer's", "low rank", "gate", "parametrised", "encoder", "message"),
        *("weights", "encode", "subclass"),
    ],
)
def test_replaced_children_do_their_work(change: Callable[[Any], Any]) -> None:
    network = categories_network()
    before = network(two_rings())
    torch.manual_seed(3)
    change(network)
    got = network(two_rings())
    assert not torch.allclose(got, before)
    with kernels.disabled():
        torch.testing.assert_close(got, network(two_rings()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantised_children() -> None:
    network = categories_network(channels=8).float().eval()
    quantised = torch.ao.quantization.quantize_dynamic(network, {nn.Linear}, dtype=torch.qint8)
    with kernels.disabled():
        expected = quantised(two_rings())
    assert torch.equal(quantised(two_rings()), expected)
    assert not torch.equal(network(two_rings()), expected)


# ---- numba -------------------------------------------------------------------------------------------------------


def run_python(code: str, **environment: str) -> str:
    """What a program prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


BROKEN = {
    "numpy": "raise ImportError('Numba needs NumPy 2.4 or less')",
    "internal": "raise SystemError('initialization of _internal failed')",
    "libLLVM": "raise OSError('libLLVM.so: cannot open')",
    "has no attribute": "raise AttributeError('module numpy has no attribute long')",
    "llvmlite_that": "import llvmlite_that_is_not_there",
    "not callable": "njit = None",
}


def test_a_numba_that_cannot_be_used_is_one_warning(tmp_path: Path) -> None:
    """However its import fails: in a process of its own, where modules can be imported again."""
    code = f"""
        import sys, warnings
        from pathlib import Path
        from mlap import kernels, synthetic
        from mlap.nn import graph_network
        network = graph_network(num_layers=1, channels=4, out_channels=2)
        batch = synthetic(graphs_per_class=1).batch([0, 1])
        sys.path.insert(0, {str(tmp_path)!r})
        sys.dont_write_bytecode = True
        for broken in {list(BROKEN.values())!r}:
            Path({str(tmp_path / "numba.py")!r}).write_text(broken)
            for name in [name for name in sys.modules if name.startswith(("numba", "mlap.kernels."))]:
                del sys.modules[name]
            kernels._maker.cache_clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                network(batch), network(batch)
            print(len(caught), caught[0].category.__name__, caught[0].message)
    """
    printed = run_python(code).splitlines()
    assert len(printed) == len(BROKEN)
    for line, (reason, _) in zip(printed, BROKEN.items(), strict=True):
        assert line.startswith("1 RuntimeWarning numba cannot be used")
        assert reason.lower() in line.lower()


def test_a_numba_that_cannot_compile_is_a_warning_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlap.kernels import run

    for compiled in (lambda *_: 1 / 0, lambda *_: None):  # an error, and a wrong result
        monkeypatch.setattr(run, "add_relu", compiled)
        kernels._maker.cache_clear()
        with pytest.warns(RuntimeWarning, match="numba cannot be used"):
            assert kernels._maker() is None
    monkeypatch.undo()
    kernels._maker.cache_clear()
    assert kernels._maker() is run.executor


def test_without_numba_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("mlap.kernels.")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(kernels, name.rpartition(".")[2], raising=False)

    class Nowhere:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "numba":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.delitem(sys.modules, "numba")
    monkeypatch.setattr(sys, "meta_path", [Nowhere(), *sys.meta_path])
    kernels._maker.cache_clear()
    assert kernels._maker() is None  # a warning would be an error
    monkeypatch.undo()
    kernels._maker.cache_clear()


def test_the_environment_variable_is_read_once() -> None:
    code = """
        import os
        from mlap import kernels
        os.environ["MLAP_KERNELS"] = "0"
        print(kernels._wanted.get())
    """
    assert run_python(code, MLAP_KERNELS="1").strip() == "True"
    assert run_python(code, MLAP_KERNELS="0").strip() == "False"


# ---- without the folder ------------------------------------------------------------------------------------------


def test_the_package_works_without_this_room(tmp_path: Path) -> None:
    """In a copy without `kernels`, the tests of the networks pass and a network is trained."""
    shutil.copytree(SOURCES, tmp_path / "mlap", ignore=shutil.ignore_patterns("kernels", "__pycache__"))
    tests = Path(__file__).parents[1] / "nn"
    code = f"""
        import sys
        import pytest, mlap
        from pathlib import Path
        assert Path(mlap.__file__).parent == Path({str(tmp_path / "mlap")!r})
        run = mlap.train(mlap.synthetic(graphs_per_class=6), architecture="mlap-weighted", layers=2, width=4, epochs=1)
        assert len(run.history) == 1
        try:
            import mlap.kernels
        except ImportError:
            pass
        else:
            sys.exit("the copy has kernels")
        chosen = ["test_convs.py", "test_fixture.py", "test_join.py", "test_encoders.py"]
        sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *[{str(tests)!r} + "/" + name for name in chosen]]))
    """
    printed = run_python(code, PYTHONPATH=str(tmp_path), MLAP_KERNELS="1")
    assert "passed" in printed
