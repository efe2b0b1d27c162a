"""Two processes train one network as one process does with the joint batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mlap.graphs import synthetic
from mlap.models import load
from mlap.training import Recipe, train

# 43 training graphs in batches of 9: shares are unequal, and the last batch has 7
RECIPE = Recipe(architecture="jk-lstm", layers=2, width=8, epochs=2, batch_size=9, dropout=0.0, norm="none")

PROCESS = """
import json, sys
from pathlib import Path
from mlap.graphs import synthetic
from mlap.training import Recipe, parallel, train
parallel.join_group("cpu")
seen = []
trained = train(Recipe(**{recipe!r}), synthetic(graphs_per_class=6), sys.argv[1], resume=True, on_epoch=seen.append)
assert parallel.world_size() == 2
assert len(seen) == (2 if parallel.rank() == 0 else 0)
weights = [round(float(p.double().sum()), 12) for p in trained.network.parameters()]
answer = [trained.result.valid_score, trained.result.test_score, weights]
Path(sys.argv[1]).with_name(f"answer{{parallel.rank()}}.json").write_text(json.dumps(answer))
parallel.leave_group()
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[object]]]:
    """The run directory, and what each of two processes answered."""
    folder = tmp_path_factory.mktemp("parallel")
    script = folder / "process.py"
    script.write_text(PROCESS.format(recipe=RECIPE.as_dict()))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(script), str(folder / "run")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder / "run", [json.loads((folder / f"answer{rank}.json").read_text()) for rank in range(2)]


def test_both_processes_end_with_the_same_network(answers: tuple[Path, list[list[object]]]) -> None:
    first, second = answers[1]
    assert first == second


def test_two_processes_equal_one_with_the_joint_batch(answers: tuple[Path, list[list[object]]], tmp_path: Path) -> None:
    train(RECIPE, synthetic(graphs_per_class=6), tmp_path)
    alone, together = (load(path) for path in (tmp_path, answers[0]))
    for one, two in zip(alone.history, together.history, strict=True):
        assert two.train_loss == pytest.approx(one.train_loss, rel=1e-4)
        assert two.valid_loss == pytest.approx(one.valid_loss, rel=1e-4)
    batch = synthetic(graphs_per_class=6).batch(range(54))
    torch.testing.assert_close(together.network(batch), alone.network(batch), rtol=1e-3, atol=1e-4)


GRADIENTS = """
import sys, torch
from mlap.graphs import synthetic
from mlap.nn import graph_network
from mlap.training import Objective, parallel
parallel.join_group("cpu")
torch.manual_seed(0)
graphs = synthetic(graphs_per_class=6)
network = graph_network("mlap-sum", num_layers=3, channels=8, out_channels=9, norm="graph", dropout=0.0).double()
part = parallel.share(graphs.split("train")[:7])
batch = graphs.batch(part)
loss = Objective.of(graphs).loss(network(batch), batch.y) * (len(part) / 7)
torch.autograd.backward(loss)
parallel.add_up_gradients(network)
if parallel.rank() == 0:
    torch.save([p.grad for p in network.parameters()], sys.argv[1])
parallel.leave_group()
"""


def test_gradients_are_those_of_the_joint_batch(tmp_path: Path) -> None:
    """In double precision, to rounding: a share of seven graphs in each of one and two processes."""
    script = tmp_path / "gradients.py"
    script.write_text(GRADIENTS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, script, tmp_path / "one"], check=True, env=environment, timeout=300)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*command, script, tmp_path / "two"], check=True, env=environment, timeout=300, capture_output=True)
    one, two = (torch.load(tmp_path / name, weights_only=True) for name in ("one", "two"))
    assert any((gradient != 0).any() for gradient in one)
    for single, joint in zip(one, two, strict=True):
        torch.testing.assert_close(joint, single, rtol=1e-10, atol=1e-12)
