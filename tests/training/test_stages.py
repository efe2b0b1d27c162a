"""Training that chooses levels, supervises them, or goes through stages."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlap.errors import UsageError
from mlap.graphs import GraphSet, synthetic
from mlap.study import Plan, run_hash
from mlap.training import Epoch, InitialWeights, Recipe, predict_logits, train
from mlap.training.run import read_checkpoint, read_config, read_network

SMALL = Recipe(architecture="mlap-sum", layers=3, width=8, epochs=6, batch_size=16, lr=0.01, lr_decay_every=2)
STAGED = SMALL.replace(stages="naive:2,frozen:1")


@pytest.fixture(scope="module")
def graphs() -> GraphSet:
    return synthetic(graphs_per_class=8)


def without_time(history: list[Epoch]) -> list[Epoch]:
    return [dataclasses.replace(epoch, seconds=0) for epoch in history]


def left_behind(run: Path) -> dict[str, Any]:
    """What a finished run directory holds, timings aside."""
    with (run / "history.csv").open() as file:
        history = [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]
    checkpoint = read_checkpoint(run / "last.ckpt")
    return {
        "history": history,
        "result": (run / "result.json").read_bytes(),
        "model": (run / "model.safetensors").read_bytes(),
        "network": [(key, value.tolist()) for key, value in checkpoint["network"].items()],
    }


class Stopped(Exception):
    """Stops a training."""


def stop_after(epoch: int) -> Any:
    def on_epoch(done: Epoch) -> None:
        if done.epoch == epoch:
            raise Stopped

    return on_epoch


# ---- recipes -----------------------------------------------------------------------------------------------------


def test_what_is_not_asked_for_changes_no_hash() -> None:
    """The identity of a run as it was before recipes had these fields."""
    assert run_hash(Recipe(), "data") == "f1eeaf49ac1422d2"
    for changes in ({"levels": "1+2"}, {"level_dropout": 0.1}, {"stages": "naive:2"}, {"deep_supervision": 1.0}):
        assert run_hash(Recipe(**changes), "data") != run_hash(Recipe(), "data")


def test_fields_have_one_form() -> None:
    recipe = Recipe.of({"levels": "3, 1", "stages": "naive:20, frozen:5:1e-2"})
    assert (recipe.levels, recipe.stages) == ("1+3", "naive:20+frozen:5:0.01")
    assert Recipe.of(recipe.as_dict()) == recipe


@pytest.mark.parametrize(
    ("fields", "field", "fact"),
    [
        ({"levels": "1+6"}, "levels", "1+6"),
        ({"levels": "last:9"}, "levels", "last:9"),
        ({"levels": "1+2", "architecture": "naive"}, "levels", "naive"),
        ({"level_dropout": 0.1, "architecture": "naive"}, "level_dropout", "naive"),
        ({"levels": "learned", "architecture": "mlap-max"}, "levels", "mlap-max"),
        ({"level_dropout": 1.0}, "level_dropout", "0.99"),
        ({"deep_supervision": -1}, "deep_supervision", "at least 0"),
        ({"stages": "naive"}, "stages", "'naive'"),
        ({"stages": "naive:0"}, "stages", "'naive:0'"),
        ({"stages": "nave:3"}, "stages", "'naive'"),
        ({"stages": "frozen:3"}, "stages", "'frozen'"),
        ({"stages": "naive:50"}, "stages", "50 of 50"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], field: str, fact: str) -> None:
    with pytest.raises(UsageError) as error:
        Recipe.of(fields)
    assert error.value.field == field
    assert fact in str(error.value)


def test_a_sweep_takes_each_field_by_itself() -> None:
    """A value of one field is not held against the usual value of another."""
    plan = Plan.of("mine", layers=8, levels="1+8,last:6", stages=["naive:60", ""], epochs=70, seed="0-1")
    assert plan.axes["levels"] == ("1+8", "last:6")
    assert {recipe.stages for recipe in plan.recipes()} == {"naive:60", ""}
    assert len(plan) == 8


def test_learning_rates_of_stages() -> None:
    recipe = Recipe(lr=1.0, lr_decay=0.5, lr_decay_every=4, epochs=8, stages="naive:2:0.1+frozen:2")
    assert [recipe.lr_at(epoch) for epoch in range(1, 9)] == [0.1, 0.1, 1, 1, 0.5, 0.5, 0.5, 0.5]


def test_the_network_of_a_stage() -> None:
    recipe = Recipe(layers=5, levels="1+3", level_dropout=0.1, stages="naive:2+frozen:3+mlap-sum:1", epochs=9)
    naive = recipe.in_stage(0)
    assert (naive.architecture, naive.layers, naive.levels, naive.level_dropout) == ("naive", 3, "", 0.0)
    assert all(recipe.in_stage(number) == recipe for number in (1, 2, 3))
    assert recipe.epochs_before == 2
    assert Recipe().epochs_before == 0


# ---- stages ------------------------------------------------------------------------------------------------------


def test_the_first_stage_is_a_training_of_its_own(graphs: GraphSet) -> None:
    """Two epochs of the naive network, to the last bit."""
    alone = train(SMALL.replace(architecture="naive", epochs=2), graphs)
    staged = train(STAGED, graphs)
    assert without_time(staged.history[:2]) == without_time(alone.history)
    assert staged.result.best_epoch > 2


def test_a_frozen_stage_keeps_encoder_and_backbone(graphs: GraphSet, tmp_path: Path) -> None:
    recipe = STAGED.replace(norm="batch")
    checkpoints = {}
    for epoch in (2, 3, 4):
        with pytest.raises(Stopped):
            train(recipe, graphs, tmp_path / str(epoch), on_epoch=stop_after(epoch))
        checkpoints[epoch] = read_checkpoint(tmp_path / str(epoch) / "last.ckpt")["network"]
    kept = [name for name in checkpoints[2] if name.startswith(("encoder.", "backbone."))]
    assert any("running_mean" in name for name in kept)
    assert all(torch.equal(checkpoints[2][name], checkpoints[3][name]) for name in kept)
    assert not all(torch.equal(checkpoints[3][name], checkpoints[4][name]) for name in kept)
    assert not torch.equal(checkpoints[2]["head.weight"], checkpoints[3]["head.weight"])
    assert set(checkpoints[3]) == set(checkpoints[4]) != set(checkpoints[2])


@pytest.mark.parametrize("changes", [{}, {"ema": 0.9, "select": "last"}, {"levels": "learned:0.1", "norm": "batch"}])
@pytest.mark.parametrize("epoch", [1, 2, 3, 5])
def test_a_stopped_run_goes_on_as_if_nothing_happened(
    graphs: GraphSet, tmp_path: Path, epoch: int, changes: dict[str, Any]
) -> None:
    """Within a stage, and between two."""
    recipe = STAGED.replace(**changes)
    train(recipe, graphs, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(recipe, graphs, tmp_path / "stopped", on_epoch=stop_after(epoch))
    train(recipe, graphs, tmp_path / "stopped", resume=True)
    assert left_behind(tmp_path / "stopped") == left_behind(tmp_path / "whole")


def test_weights_of_another_readout_are_never_kept(graphs: GraphSet, tmp_path: Path) -> None:
    recipe = SMALL.replace(stages="naive:5", epochs=6)
    with pytest.raises(Stopped):
        train(recipe, graphs, tmp_path / "run", on_epoch=stop_after(5))
    assert not (tmp_path / "run" / "model.safetensors").exists()
    trained = train(recipe, graphs, tmp_path / "run", resume=True)
    assert trained.result.best_epoch == 6
    network, _ = read_network(tmp_path / "run", read_config(tmp_path / "run"))
    everything = np.arange(len(graphs))
    assert torch.equal(predict_logits(network, graphs, everything), predict_logits(trained.network, graphs, everything))


def test_patience_counts_from_the_last_stage(graphs: GraphSet) -> None:
    trained = train(SMALL.replace(stages="naive:4", epochs=30, patience=1, lr=0.0), graphs)
    assert trained.result.best_epoch == 5  # nothing gets better, from the first epoch that counts
    assert len(trained.history) == 6


def test_stages_and_initial_weights_exclude_each_other(graphs: GraphSet) -> None:
    weights = train(SMALL.replace(epochs=1), graphs).network.state_dict()
    with pytest.raises(UsageError) as error:
        train(STAGED, graphs, initial=InitialWeights(weights, "mine"))
    assert error.value.field == "stages"


# ---- levels ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"levels": "1+2"}, {"levels": "last:1"}, {"level_dropout": 0.4}])
def test_chosen_levels_in_a_run(graphs: GraphSet, tmp_path: Path, changes: dict[str, Any]) -> None:
    trained = train(SMALL.replace(epochs=2, **changes), graphs, tmp_path / "run")
    network, _ = read_network(tmp_path / "run", read_config(tmp_path / "run"))
    everything = np.arange(len(graphs))
    assert torch.equal(predict_logits(network, graphs, everything), predict_logits(trained.network, graphs, everything))
    assert network.reads == {"1+2": (0, 1), "last:1": (2,)}.get(changes.get("levels", ""))
    assert len(network.backbone.convs) == (2 if network.reads == (0, 1) else 3)


def test_a_price_makes_levels_go(graphs: GraphSet, tmp_path: Path) -> None:
    """With a price far above all that a level could bring, one is left; without a price all stay."""
    recipe = SMALL.replace(epochs=40, lr=0.02, lr_decay=1.0, select="last")
    dear = train(recipe.replace(levels="learned:20"), graphs, tmp_path / "dear")
    assert dear.network.reads is not None
    assert len(dear.network.reads) == 1
    assert len(dear.network.backbone.convs) == dear.network.reads[0] + 1
    assert dear.result.num_parameters == sum(p.numel() for p in dear.network.parameters())
    free = train(recipe.replace(levels="learned:0", epochs=3), graphs)
    assert free.network.reads == (0, 1, 2)
    network, _ = read_network(tmp_path / "dear", read_config(tmp_path / "dear"))
    everything = np.arange(len(graphs))
    assert torch.equal(predict_logits(network, graphs, everything), predict_logits(dear.network, graphs, everything))


# ---- deep supervision --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["naive", "jk-max", "mlap-sum", "mlap-concat", "mlap-gate"])
def test_deep_supervision_trains_every_architecture(graphs: GraphSet, architecture: str) -> None:
    recipe = SMALL.replace(architecture=architecture, epochs=2, dropout=0.0)
    plain, supervised = train(recipe, graphs), train(recipe.replace(deep_supervision=1.0), graphs)
    assert plain.history[0].train_loss != supervised.history[0].train_loss
    assert plain.result.num_parameters == supervised.result.num_parameters


def test_deep_supervision_teaches_each_level(graphs: GraphSet) -> None:
    """After it, each level alone fits the training graphs better than without."""
    recipe = SMALL.replace(epochs=30, dropout=0.0, lr_decay=1.0, select="last", layers=3, width=16)
    batch = graphs.batch(graphs.split("train"))
    losses = {}
    for weight in (0.0, 5.0):
        trained = train(recipe.replace(deep_supervision=weight), graphs)
        with torch.no_grad():
            _, alone = trained.network.eval().supervised(batch)
        assert batch.y is not None
        losses[weight] = np.array([float(trained.objective.loss(of_level, batch.y)) for of_level in alone])
    assert (losses[5.0] < losses[0.0]).all()


def test_it_ends_with_the_last_epoch(graphs: GraphSet, tmp_path: Path) -> None:
    """So such a run cannot be made longer; and one epoch, the first, has all of it."""
    recipe = SMALL.replace(deep_supervision=1.0, epochs=2)
    train(recipe, graphs, tmp_path / "run")
    with pytest.raises(UsageError) as error:
        train(recipe.replace(epochs=3), graphs, tmp_path / "run", resume=True)
    assert error.value.field == "epochs"


def test_compiled_training_has_none(graphs: GraphSet) -> None:
    with pytest.raises(UsageError) as error:
        train(SMALL.replace(deep_supervision=1.0), graphs, compile=True)
    assert error.value.field == "deep_supervision"
