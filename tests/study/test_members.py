"""Ensembles of seeds: the same numbers as networks trained alone, in processes, stopped or not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mlap
from mlap.errors import MlapError, UsageError
from mlap.graphs import load_graphs, packed, synthetic
from mlap.models import Ensemble
from mlap.study import train_ensemble
from mlap.study.members import WORK

SMALL = {"architecture": "mlap-sum", "layers": 2, "width": 6, "epochs": 2, "batch_size": 25}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.graphs"
    packed.save(synthetic(graphs_per_class=10), path)
    return path


def test_members_are_what_they_would_be_alone(source: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    out = tmp_path / "e"
    ensemble = train_ensemble(
        source, members=3, out=out, workers=2, on_epoch=lambda done, total: told.append((done, total)), **SMALL
    )
    assert told == [(number, 6) for number in range(1, 7)]
    graphs = load_graphs(source)
    alone = [mlap.train(graphs, seed=seed, device="cpu", **SMALL) for seed in range(3)]
    expected = np.mean([run.logits(graphs) for run in alone], axis=0)
    np.testing.assert_allclose(ensemble.logits(graphs), expected, rtol=1e-5, atol=1e-6)
    assert [member.config["recipe"]["seed"] for member in ensemble.members] == [0, 1, 2]
    assert ensemble.calibrated is not None
    assert ensemble.calibrated.data["part"] == "valid"
    assert sorted(path.name for path in out.iterdir()) == [
        *("calibration.json", "ensemble.json", "member-0", "member-1", "member-2")
    ]
    again = mlap.load(out)
    np.testing.assert_array_equal(again.logits(graphs), ensemble.logits(graphs))
    resumed = train_ensemble(source, members=3, out=out, resume=True, **SMALL)  # nothing left to do
    assert isinstance(resumed, Ensemble)
    with pytest.raises(UsageError) as raised:
        train_ensemble(source, members=2, out=out, resume=True, **SMALL)
    assert raised.value.field == "overwrite"
    with pytest.raises(UsageError) as raised:
        train_ensemble(source, members=3, out=out, **SMALL)
    assert raised.value.field == "resume"


def test_graphs_in_memory(tmp_path: Path) -> None:
    graphs = synthetic(graphs_per_class=10)
    assert graphs.source is None
    ensemble = train_ensemble(graphs, members=2, **SMALL)
    assert ensemble.path is None
    assert [member.path for member in ensemble.members] == [None, None]
    kept = train_ensemble(graphs, members=2, out=tmp_path / "kept", **SMALL)
    np.testing.assert_array_equal(kept.logits(graphs), ensemble.logits(graphs))
    assert kept.config["data"]["source"] is None


def test_a_killed_training_goes_on(source: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "epochs": 12}
    whole = train_ensemble(source, members=2, out=tmp_path / "whole", **settings)
    out = tmp_path / "killed"
    code = f"from mlap.study import train_ensemble; train_ensemble({str(source)!r}, members=2, out={str(out)!r}, "
    code += ", ".join(f"{key}={value!r}" for key, value in settings.items()) + ")"
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    while not list(out.glob(f"{WORK}.runs/*/last.ckpt")):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(UsageError):
        mlap.load(out)
    with pytest.raises(UsageError) as raised:
        train_ensemble(source, members=2, out=out, **settings)
    assert raised.value.field == "resume"
    deadline = time.monotonic() + 60
    while True:  # the workers of the killed one let go of the study when they notice
        try:
            resumed = train_ensemble(source, members=2, out=out, resume=True, **settings)
            break
        except MlapError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    graphs = load_graphs(source)
    np.testing.assert_array_equal(resumed.logits(graphs), whole.logits(graphs))


def test_a_member_that_fails(source: Path, tmp_path: Path) -> None:
    graphs = load_graphs(source)
    source.rename(tmp_path / "moved.graphs")  # where no worker finds it
    with pytest.raises(MlapError, match="seed 0"):
        train_ensemble(graphs, members=1, out=tmp_path / "e", **SMALL)


def test_mistakes(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        train_ensemble(source, members=0, **SMALL)
    assert raised.value.field == "members"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(UsageError) as raised:
        train_ensemble(source, members=2, out=tmp_path / "full", **SMALL)
    assert raised.value.field == "out"
