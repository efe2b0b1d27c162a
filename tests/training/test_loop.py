from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlap.errors import DataError, MlapError, UsageError
from mlap.graphs import GraphSet, synthetic
from mlap.graphs.graph_set import Source
from mlap.models import load
from mlap.training import Epoch, Recipe, predict_logits, train
from mlap.training.batches import EVALUATION_ROWS, evaluation_batches
from mlap.training.run import read_checkpoint

SMALL = Recipe(architecture="mlap-weighted", layers=2, width=8, epochs=4, batch_size=16, lr=0.01, lr_decay_every=2)


@pytest.fixture(scope="module")
def graphs() -> GraphSet:
    return synthetic(graphs_per_class=8)


def without_time(history: list[Epoch]) -> list[Epoch]:
    return [dataclasses.replace(epoch, seconds=0) for epoch in history]


def files_without_time(run: Path) -> dict[str, Any]:
    """What a finished run directory holds, timings aside."""
    with (run / "history.csv").open() as file:
        history = [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]
    checkpoint = read_checkpoint(run / "last.ckpt")
    return {
        "history": history,
        "result": (run / "result.json").read_bytes(),
        "model": (run / "model.safetensors").read_bytes(),
        "network": [(key, value.tolist()) for key, value in checkpoint["network"].items()],
        "best": [(key, value.tolist()) for key, value in checkpoint["best_weights"].items()],
    }


def test_it_learns() -> None:
    """Two classes that the degree alone tells apart are learnt nearly without error."""
    trained = train(Recipe(layers=1, width=16, epochs=25, dropout=0.0, lr=0.01, norm="none"), stars_and_rings())
    assert trained.result.valid_score == 0
    assert trained.history[-1].train_loss < trained.history[0].train_loss / 3


def stars_and_rings() -> GraphSet:
    """40 graphs of six nodes: a star (class 0) or a ring (class 1)."""
    star = [[0, 0, 0, 0, 0, 1], [1, 2, 3, 4, 5, 2]]
    ring = [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]
    number = 40
    from mlap.graphs import Task, random_split

    return GraphSet(
        node_ptr=np.arange(number + 1) * 6,
        edge_ptr=np.arange(number + 1) * 6,
        edges=np.concatenate([np.array(ring if g % 2 else star) for g in range(number)], axis=1).astype(np.uint8),
        y=np.arange(number) % 2,
        task=Task("multiclass", 2, "error_rate"),
        splits=random_split(number),
    ).validate()


def test_same_seed_same_numbers(graphs: GraphSet) -> None:
    first, second = train(SMALL, graphs), train(SMALL, graphs)
    assert without_time(first.history) == without_time(second.history)
    assert first.result == second.result
    other = train(SMALL.replace(seed=1), graphs)
    assert without_time(first.history) != without_time(other.history)


def test_the_callers_random_state_is_left_alone(graphs: GraphSet) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(SMALL.replace(epochs=1), graphs)
    assert torch.equal(torch.rand(3), expected)


def test_the_score_is_the_best_validation_epoch(graphs: GraphSet, tmp_path: Path) -> None:
    trained = train(SMALL, graphs, tmp_path / "run")
    scores = [epoch.valid_score for epoch in trained.history]
    result = trained.result
    assert result.valid_score == min(scores)  # an error rate
    assert result.best_epoch == 1 + scores.index(min(scores))
    test = graphs.split("test")
    run = load(tmp_path / "run")
    assert run.evaluate(graphs, "valid").score == result.valid_score
    assert run.evaluate(graphs, "test").score == result.test_score
    assert graphs.y is not None
    predicted = predict_logits(trained.network, graphs, test).argmax(-1).numpy()
    assert np.mean(predicted != graphs.y[test]) == pytest.approx(result.test_score)
    assert result.num_parameters == sum(p.numel() for p in trained.network.parameters())


def test_a_run_can_be_read_again(graphs: GraphSet, tmp_path: Path) -> None:
    graphs = dataclasses.replace(graphs, source=Source("mine.csv", {"split": "random"}))
    trained = train(SMALL, graphs, tmp_path / "run")
    run = load(tmp_path / "run")
    assert run.recipe == SMALL
    assert run.task == graphs.task
    assert run.result == trained.result
    assert run.history == trained.history
    assert run.config["data"]["source"] == "mine.csv"
    assert run.config["data"]["options"] == {"split": "random"}
    assert run.config["data"]["fingerprint"] == graphs.fingerprint
    assert set(run.config["versions"]) == {"mlap", "source", "python", "torch", "torch_geometric", "numpy"}
    everything = np.arange(len(graphs))
    logits = predict_logits(run.network, graphs, everything)
    assert torch.equal(logits, predict_logits(trained.network, graphs, everything))


def test_learning_rate_and_losses_are_in_the_history(graphs: GraphSet) -> None:
    history = train(SMALL, graphs).history
    assert [epoch.lr for epoch in history] == [0.01, 0.01, 0.005, 0.005]
    assert all(math.isfinite(epoch.train_loss) and math.isfinite(epoch.valid_loss) for epoch in history)


def test_callbacks(graphs: GraphSet) -> None:
    epochs: list[int] = []
    steps: list[tuple[int, int]] = []
    train(
        SMALL.replace(epochs=2), graphs, on_epoch=lambda e: epochs.append(e.epoch), on_step=lambda *s: steps.append(s)
    )
    per_epoch = math.ceil(len(graphs.split("train")) / 16)
    assert epochs == [1, 2]
    assert steps == [(step, per_epoch) for _ in range(2) for step in range(1, per_epoch + 1)]


def test_evaluation_batches_cover_every_graph_once() -> None:
    graphs = synthetic(graphs_per_class=60)
    parts = list(evaluation_batches(graphs, np.arange(len(graphs))))
    assert np.concatenate(parts).tolist() == list(range(len(graphs)))
    assert len(parts) > 1
    assert max(len(part) for part in parts) * 155 <= EVALUATION_ROWS
    assert [len(part) for part in evaluation_batches(graphs, np.arange(0))] == [0]


class StopHere(Exception):
    pass


@pytest.mark.parametrize("norm", ["graph", "batch"])
@pytest.mark.parametrize("stop_after", [1, 3])
def test_a_stopped_run_goes_on_as_if_never_stopped(
    graphs: GraphSet, tmp_path: Path, stop_after: int, norm: str
) -> None:
    recipe = SMALL.replace(norm=norm)
    train(recipe, graphs, tmp_path / "whole")

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == stop_after:
            raise StopHere

    with pytest.raises(StopHere):
        train(recipe, graphs, tmp_path / "parts", on_epoch=stop)
    seen: list[int] = []
    train(recipe, graphs, tmp_path / "parts", resume=True, on_epoch=lambda epoch: seen.append(epoch.epoch))
    assert seen == [1, 2, 3, 4]
    assert files_without_time(tmp_path / "parts") == files_without_time(tmp_path / "whole")


KILLED = """
import sys
from mlap.graphs import synthetic
from mlap.training import Recipe, train

def on_epoch(epoch):
    print(epoch.epoch, flush=True)
    if epoch.epoch == int(sys.argv[2]):
        sys.stdin.read()  # wait to be killed

train(Recipe(**{recipe!r}), synthetic(graphs_per_class=8), sys.argv[1], resume=True, on_epoch=on_epoch)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_process_loses_at_most_an_epoch(tmp_path: Path, graphs: GraphSet) -> None:
    """`kill -9` at random moments, also while files are written, until the run is done: the same files come out."""
    recipe = SMALL.replace(epochs=24)
    train(recipe, graphs, tmp_path / "whole")
    chance = random.Random(3)
    script = KILLED.format(recipe=recipe.as_dict())
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    epochs_done, kills = 0, 0
    while True:
        # However late this process strikes, the other one has not got further than five epochs.
        at_most = epochs_done + 5 if kills < 4 else 0
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "parts"), str(at_most)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= epochs_done + 2 and kills < 4:  # let it get somewhere, then strike at any moment
                time.sleep(chance.random() * 0.08)
                process.send_signal(signal.SIGKILL)
                break
        _, errors = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors
        kills += 1
        epochs_done = len(read_checkpoint(tmp_path / "parts" / "last.ckpt")["history"])
    assert kills == 4
    assert files_without_time(tmp_path / "parts") == files_without_time(tmp_path / "whole")
    left = [path.name for path in (tmp_path / "parts").iterdir() if path.name.startswith(".")]
    assert len(left) <= kills  # a temporary file may be left by each kill, never taken for the real one


def test_a_run_is_not_overwritten(graphs: GraphSet, tmp_path: Path) -> None:
    train(SMALL.replace(epochs=1), graphs, tmp_path)
    with pytest.raises(UsageError, match="already holds a run; continue it"):
        train(SMALL.replace(epochs=1), graphs, tmp_path)


def test_a_run_is_not_resumed_with_something_else(graphs: GraphSet, tmp_path: Path) -> None:
    train(SMALL.replace(epochs=1), graphs, tmp_path)
    with pytest.raises(UsageError, match=r"was started with lr 0.01, now got 0.1"):
        train(SMALL.replace(epochs=1, lr=0.1), graphs, tmp_path, resume=True)
    with pytest.raises(UsageError, match="was started on other data"):
        train(SMALL.replace(epochs=1), synthetic(graphs_per_class=8, seed=1), tmp_path, resume=True)


def test_resuming_a_finished_run_changes_nothing(graphs: GraphSet, tmp_path: Path) -> None:
    first = train(SMALL, graphs, tmp_path)
    before = files_without_time(tmp_path)
    again = train(SMALL, graphs, tmp_path, resume=True)
    assert again.result == first.result
    assert files_without_time(tmp_path) == before


@pytest.mark.parametrize("damage", ["truncate", "flip", "foreign", "empty"])
def test_a_damaged_checkpoint_is_one_clear_error(graphs: GraphSet, tmp_path: Path, damage: str) -> None:
    train(SMALL, graphs, tmp_path)
    path = tmp_path / "last.ckpt"
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "flip":
        middle = len(content) // 2
        content[middle : middle + 8] = bytes(byte ^ 255 for byte in content[middle : middle + 8])
    elif damage == "foreign":
        content = bytearray(b"this is not a checkpoint")
    else:
        content = bytearray()
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        train(SMALL, graphs, tmp_path, resume=True)
    assert "last.ckpt is damaged" in str(error.value)
    assert "delete it" in str(error.value)
    assert "\n" not in str(error.value)


def test_other_damaged_files(graphs: GraphSet, tmp_path: Path) -> None:
    train(SMALL.replace(epochs=1), graphs, tmp_path)
    model = tmp_path / "model.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole[:100])
    with pytest.raises(DataError, match=r"model\.safetensors is damaged"):
        load(tmp_path)
    model.unlink()
    with pytest.raises(DataError, match="no epoch is finished"):
        load(tmp_path)
    model.write_bytes(whole)
    config = tmp_path / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps({**content, "format": 99}))
    with pytest.raises(DataError, match="has format 99; this version of mlap reads 1"):
        load(tmp_path)
    config.write_text("{")
    with pytest.raises(DataError, match=r"config\.json is damaged"):
        load(tmp_path)
    config.unlink()
    with pytest.raises(UsageError, match="is not a run directory"):
        load(tmp_path)
    with pytest.raises(UsageError, match="there is no run directory"):
        load(tmp_path / "nowhere")


def test_a_diverging_run_says_so(graphs: GraphSet) -> None:
    with pytest.raises(MlapError, match=r"the training loss became (nan|inf) in epoch \d+; .*lower lr, which is 100"):
        train(SMALL.replace(lr=100.0, norm="none", epochs=50, architecture="jk-concat", layers=6), graphs)


def test_missing_splits(graphs: GraphSet) -> None:
    with pytest.raises(UsageError, match="has no part 'valid'; it has train, test"):
        train(SMALL, dataclasses.replace(graphs, splits={k: v for k, v in graphs.splits.items() if k != "valid"}))
    two = dataclasses.replace(graphs, splits={k: v for k, v in graphs.splits.items() if k != "test"})
    assert train(SMALL.replace(epochs=1), two).result.test_score is None
