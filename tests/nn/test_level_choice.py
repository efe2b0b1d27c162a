"""Which levels a readout reads, and levels that it lacks while it trains."""

from __future__ import annotations

import pytest
import torch
from samples import CATEGORIES, close, graph_set, levels, network, whole_batch

from mlap import kernels
from mlap.errors import UsageError
from mlap.models.explanation import decompose
from mlap.nn import Dropout, JumpReadout, LevelChoice, MultiLevelAttentionPooling, make_readout
from mlap.nn.readout import thinned


@pytest.mark.parametrize(
    ("text", "written", "chosen"),
    [
        ("5,1,3,3", "1+3+5", (1, 3, 5)),
        (" 1 + 3", "1+3", (1, 3)),
        ("2", "2", (2,)),
        ("last:2", "last:2", (5, 6)),
        ("last:6", "last:6", (1, 2, 3, 4, 5, 6)),
    ],
)
def test_written_choices(text: str, written: str, chosen: tuple[int, ...]) -> None:
    choice = LevelChoice.parse(text)
    assert str(choice) == written
    assert LevelChoice.parse(written) == choice
    assert choice.among(range(1, 7)) == chosen


def test_all_and_learned() -> None:
    assert LevelChoice.parse("") == LevelChoice()
    assert str(LevelChoice()) == ""
    assert LevelChoice.parse("learned:1e-3").price == 0.001
    assert str(LevelChoice.parse("learned")) == "learned:0.01"


@pytest.mark.parametrize("text", ["one", "1-3", "last", "last:0", "last:-1", "learned:", "learned:x", "+", "-1"])
def test_a_wrong_choice(text: str) -> None:
    with pytest.raises(UsageError, match=repr(text).replace("+", r"\+")) as error:
        LevelChoice.parse(text)
    assert error.value.field == "levels"


@pytest.mark.parametrize("text", ["0", "7", "1+7", "last:7"])
def test_levels_that_there_are_not(text: str) -> None:
    with pytest.raises(UsageError, match="1 to 6") as error:
        LevelChoice.parse(text).among(range(1, 7))
    assert error.value.field == "levels"


@pytest.mark.parametrize("architecture", ["jk-max", "jk-lstm", "mlap-sum", "mlap-concat", "mlap-attention"])
@pytest.mark.parametrize(("text", "places", "layers"), [("1+3", [0, 2], 3), ("last:2", [3, 4], 5), ("2", [1], 2)])
def test_the_readout_reads_the_chosen_levels(architecture: str, text: str, places: list[int], layers: int) -> None:
    """By hand: the levels of its own backbone, the chosen ones, its readout; with kernels and without."""
    made = network(architecture, num_layers=5, nodes=CATEGORIES, norm="graph", levels=text)
    batch = whole_batch(graph_set(CATEGORIES))
    with torch.no_grad():
        every = made.levels(batch)
        assert len(every) == len(made.backbone.convs) == layers
        graphs = made.readout([every[place] for place in places], batch.batch, dim_size=batch.num_graphs)
        close(made(batch), made.head(graphs))
        with kernels.disabled():
            close(made(batch), made.head(graphs))
        found = decompose(made, batch)
    assert found.levels == tuple(place + 1 for place in places)
    assert found.shares is not None
    for graph in range(batch.num_graphs):
        close(found.bias + found.shares[batch.batch == graph].sum(dim=(0, 1)), found.logits[graph])


def test_the_input_as_a_level() -> None:
    made = network("mlap-sum", num_layers=3, nodes=CATEGORIES, input_level=True, levels="0+2")
    assert (made.reads, made.level_numbers(2), len(made.backbone.convs)) == ((0, 2), (0, 2), 2)
    with pytest.raises(UsageError, match="1 to 3"):
        network("mlap-sum", num_layers=3, levels="0+2")


def test_all_levels_named_are_all_levels() -> None:
    named, whole = (network("mlap-sum", num_layers=3, nodes=CATEGORIES, levels=text) for text in ("1+2+3", ""))
    batch = whole_batch(graph_set(CATEGORIES))
    assert torch.equal(named(batch), whole(batch))


def test_only_sums_learn_their_levels() -> None:
    with pytest.raises(UsageError, match="mlap-max") as error:
        make_readout("mlap-max", 4, 3, price=0.1)
    assert error.value.field == "architecture"


# ---- level dropout -----------------------------------------------------------------------------------------------


def test_rows_lack_whole_levels() -> None:
    inputs = levels(3, 4000, 2)
    torch.manual_seed(0)
    after = thinned(inputs, Dropout(0.25))
    factors = torch.stack([b / a for a, b in zip(inputs, after, strict=True)])  # (L, rows, c)
    close(factors[..., 0], factors[..., 1])
    factors = factors[..., 0]
    assert ((factors == 0) | ((factors - 4 / 3).abs() < 1e-9)).all()
    assert (factors == 0).double().mean().item() == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 12000) ** 0.5)
    apart = torch.corrcoef((factors == 0).double())  # whether a row lacks a level says nothing of its other levels
    assert apart.fill_diagonal_(0).abs().max() < 0.07
    assert thinned(inputs, Dropout(0.25).eval()) is inputs
    assert thinned(inputs, Dropout(0.0)) is inputs


@pytest.mark.parametrize("architecture", ["jk-sum", "mlap-weighted", "mlap-gru"])
def test_level_dropout_in_networks(architecture: str) -> None:
    """The same levels are lacking with kernels and without; none is in evaluation."""
    dropped, plain = (
        network(architecture, num_layers=3, nodes=CATEGORIES, dropout=0.0, level_dropout=p) for p in (0.5, 0.0)
    )
    batch = whole_batch(graph_set(CATEGORIES))
    assert torch.equal(dropped(batch), plain(batch))
    dropped.train()
    torch.manual_seed(1)
    fast = dropped(batch)
    torch.manual_seed(1)
    with kernels.disabled():
        close(dropped(batch), fast)
    assert not torch.allclose(fast, plain(batch))


# ---- levels alone ------------------------------------------------------------------------------------------------


def test_levels_alone() -> None:
    index = torch.tensor([0, 0, 1])
    inputs = levels(3, 3, 4)
    torch.manual_seed(0)
    mlap = MultiLevelAttentionPooling(4, 3).double()
    reading = mlap.read(inputs, index)
    for graphs, alone in zip(reading.pooled, mlap.alone(inputs, reading.pooled, index, 2), strict=True):
        close(alone, 3 * graphs)
    naive = JumpReadout(4, 3, "last").double()
    for h, alone in zip(inputs, naive.alone(inputs, [], index, 2), strict=True):
        close(alone, naive([h, h, h], index))
