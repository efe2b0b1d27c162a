"""Sweeps: what runs and what does not, failures, and one that is killed again and again."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from study_tools import InProcessEngine, fork, scores, tiny_graphs, tiny_plan, wait_for

from mlap.errors import DataError, MlapError, UsageError
from mlap.graphs import GraphSet, packed, synthetic
from mlap.models import load
from mlap.study import LocalEngine, Study, SweepSettings, forecast, sweep
from mlap.study.driver import MOST_DEATHS, Started
from mlap.study.engine import Died, Done, EpochDone, Event, Failed, Job
from mlap.study.job_runner import JobRunner
from mlap.study.plan import Plan
from mlap.training import Epoch, Recipe, train
from mlap.training.run import LAST


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, GraphSet]:
    return tiny_graphs(tmp_path_factory.mktemp("data"))


def untimed(history: list[Epoch]) -> list[tuple[float, ...]]:
    return [(epoch.epoch, epoch.lr, epoch.train_loss, epoch.valid_loss, epoch.valid_score) for epoch in history]


# ---- what runs -----------------------------------------------------------------------------------------------------


def test_a_sweep_runs_what_is_missing(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    source, graphs = data
    study = tmp_path / "new" / "study.db"
    before = forecast(tiny_plan(seed="0-1"), graphs, study)
    assert (before.done, before.failed, len(before.pending)) == (0, 0, 2)
    assert not study.exists()

    events: list[Started | Event] = []
    first = InProcessEngine(2)
    outcome = sweep(tiny_plan(seed="0-1"), SweepSettings(source, study), engine=first, on_event=events.append)
    assert (outcome.total, outcome.done, outcome.ran, outcome.failures) == (2, 2, 2, [])
    assert first.closed
    assert [type(event) for event in events] == [Started, Started, EpochDone, EpochDone, Done] + [EpochDone] * 2 + [
        Done
    ]

    wider = tiny_plan(seed="0-2")
    assert [recipe.seed for recipe in forecast(wider, graphs, study).pending] == [2]
    second = InProcessEngine()
    outcome = sweep(wider, SweepSettings(source, study), engine=second, graphs=graphs)
    assert (outcome.total, outcome.done, outcome.ran) == (3, 3, 1)
    assert [job.recipe["seed"] for job in second.submitted] == [2]

    with Study.open(study) as opened:
        for run in opened.runs():
            alone = train(run.recipe, graphs)
            assert (run.status, run.fingerprint, run.source) == ("done", graphs.fingerprint, source)
            assert run.valid_score == alone.result.valid_score
            assert run.test_score == alone.result.test_score
            assert untimed(opened.history(run.hash)) == untimed(alone.history)
            assert run.seconds == sum(epoch.seconds for epoch in opened.history(run.hash))
    assert [path.name for path in study.parent.iterdir()] == ["study.db"]


def test_other_data_are_other_runs_of_the_same_study(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    study = tmp_path / "s.db"
    sweep(tiny_plan(), SweepSettings(data[0], study), engine=InProcessEngine())
    packed.save(synthetic(6, seed=1), tmp_path / "other.graphs")
    outcome = sweep(tiny_plan(), SweepSettings(str(tmp_path / "other.graphs"), study), engine=InProcessEngine())
    assert outcome.ran == 1
    with Study.open(study) as opened:
        assert len({run.fingerprint for run in opened.runs()}) == len(opened.runs()) == 2


def test_models_are_kept_on_request(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    study = tmp_path / "s.db"
    sweep(tiny_plan(), SweepSettings(data[0], study, keep_models=True), engine=InProcessEngine())
    with Study.open(study) as opened:
        (run,) = opened.runs()
    folder = tmp_path / "s.db.runs" / run.hash
    assert load(folder).recipe == run.recipe
    assert not (folder / LAST).exists()
    sweep(tiny_plan(), SweepSettings(data[0], study), engine=InProcessEngine())
    assert load(folder).recipe == run.recipe  # kept is kept


def test_a_run_has_the_threads_that_the_user_gives_it(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    sweep(tiny_plan(), SweepSettings(data[0], tmp_path / "s.db", keep_models=True), engine=LocalEngine(1, cpus=2))
    (folder,) = (tmp_path / "s.db.runs").iterdir()
    assert load(folder).config["threads"] == 2


@pytest.mark.parametrize("keep_models", [False, True])
def test_what_a_killed_driver_did_not_clear_up_is_cleared_up(
    tmp_path: Path, data: tuple[str, GraphSet], keep_models: bool
) -> None:
    study, runs = tmp_path / "s.db", tmp_path / "s.db.runs"
    sweep(tiny_plan(), SweepSettings(data[0], study, keep_models=True), engine=InProcessEngine())
    (folder,) = runs.iterdir()
    (folder / LAST).touch()  # killed before it cleared up
    (folder / ".last.ckpt.123").touch()
    (runs / "gone-abc").mkdir()  # killed while it did
    (runs / "gone-abc" / "config.json").touch()
    sweep(tiny_plan(), SweepSettings(data[0], study, keep_models=keep_models), engine=InProcessEngine())
    if keep_models:
        assert list(runs.iterdir()) == [folder]
        names = {path.name for path in folder.iterdir()}
        assert names == {"config.json", "history.csv", "model.safetensors", "result.json", "splits.json"}
    else:
        assert not runs.exists()


def test_data_without_labels_or_splits_are_refused(tmp_path: Path) -> None:
    bare = synthetic(2).subset(range(5))
    with pytest.raises(UsageError, match="has no part 'train'"):
        sweep(tiny_plan(), SweepSettings("x", tmp_path / "s.db"), graphs=bare)
    bare = dataclasses.replace(bare, y=None, task=None)
    with pytest.raises(UsageError, match="has no labels"):
        sweep(tiny_plan(), SweepSettings("x", tmp_path / "s.db"), graphs=bare)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_study_is_left_alone(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    (tmp_path / "s.db").write_text("precious " * 20)
    with pytest.raises(DataError, match="is not a study"):
        sweep(tiny_plan(), SweepSettings(data[0], tmp_path / "s.db"), engine=InProcessEngine())
    assert (tmp_path / "s.db").read_text() == "precious " * 20
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


# ---- failures ------------------------------------------------------------------------------------------------------


def test_one_bad_run_stops_no_other_and_is_retried_on_request(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    source, graphs = data
    study = tmp_path / "s.db"
    # A learning rate of 100 sends the weights to infinity: a run that fails by itself.
    plan = tiny_plan(lr="100,0.001", norm="none", layers=12, epochs=5, dropout=0)
    outcome = sweep(plan, SweepSettings(source, study), engine=InProcessEngine())
    assert (outcome.total, outcome.done, len(outcome.failures)) == (2, 1, 1)
    (failure,) = outcome.failures
    assert failure.recipe.lr == 100
    assert failure.error is not None
    assert "became" in failure.error  # the loss, or an answer to a validation graph
    assert "\n" not in failure.error
    assert failure.traceback is not None
    assert failure.traceback.startswith("Traceback")

    again = InProcessEngine()
    assert sweep(plan, SweepSettings(source, study), engine=again).done == 1
    assert again.submitted == []
    assert len(forecast(plan, graphs, study, retry_failed=True).pending) == 1
    outcome = sweep(plan, SweepSettings(source, study, retry_failed=True), engine=again)
    assert [job.hash for job in again.submitted] == [failure.hash]
    assert [run.error for run in outcome.failures] == [failure.error]


def test_a_worker_may_die_but_not_for_ever(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    deaths = {0: 1, 1: MOST_DEATHS, 2: 0}  # seed → how often its worker dies

    def instead(job: Job) -> Event | None:
        if deaths[job.recipe["seed"]]:
            deaths[job.recipe["seed"]] -= 1
            return Died(job.hash, "the worker was killed by SIGKILL")
        return None

    outcome = sweep(
        tiny_plan(seed="0-2"), SweepSettings(data[0], tmp_path / "s.db"), engine=InProcessEngine(2, instead)
    )
    assert outcome.done == 2
    assert [(run.seed, run.error) for run in outcome.failures] == [(1, "the worker was killed by SIGKILL, 3 times")]


def test_what_a_broken_engine_was_running_is_planned_again(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    def instead(job: Job) -> Event | None:
        raise KeyboardInterrupt

    engine = InProcessEngine(2, instead)
    with pytest.raises(KeyboardInterrupt):
        sweep(tiny_plan(seed="0-2"), SweepSettings(data[0], tmp_path / "s.db"), engine=engine)
    assert engine.closed
    with Study.open(tmp_path / "s.db") as opened:
        assert {run.status for run in opened.runs()} == {"planned"}
    assert not (tmp_path / "s.db.lock").exists()


# ---- what a worker does --------------------------------------------------------------------------------------------


def make_job(data: tuple[str, GraphSet], run_dir: Path, **fields: object) -> Job:
    recipe = Recipe.of({"width": 8, "epochs": 3, "layers": 2, **fields})
    return Job("h", recipe.as_dict(), data[0], {}, None, data[1].fingerprint, str(run_dir), "cpu")


def test_a_worker_refuses_data_that_have_changed(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    job = make_job(data, tmp_path / "run")
    answer = JobRunner().run(Job(**{**dataclasses.asdict(job), "fingerprint": "0" * 16}), lambda _: None)
    assert isinstance(answer, Failed)
    assert "is not what the sweep was planned on" in answer.error
    assert not (tmp_path / "run").exists()


def test_a_damaged_checkpoint_is_started_over(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    job = make_job(data, tmp_path / "run")
    first = JobRunner().run(job, lambda _: None)
    assert isinstance(first, Done)
    checkpoint = tmp_path / "run" / LAST
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    second = JobRunner().run(job, lambda _: None)
    assert isinstance(second, Done)
    assert second.result == first.result


def test_an_unexpected_error_has_its_kind(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    def fail(_: EpochDone) -> None:
        raise LookupError("nobody listens")

    answer = JobRunner().run(make_job(data, tmp_path / "run"), fail)
    assert isinstance(answer, Failed)
    assert answer.error == "LookupError: nobody listens"
    assert "Traceback" in answer.traceback


# ---- killed again and again ----------------------------------------------------------------------------------------

#: how often the sweep is disturbed; a soak of hours is a matter of this number
KILLS = int(os.environ.get("MLAP_SOAK_KILLS", "4"))
SEED = int(os.environ.get("MLAP_SOAK_SEED", "0"))
WAYS = ("worker", "driver", "interrupt", "group")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the test forks")
def test_a_sweep_that_is_killed_again_and_again_ends_with_the_same_rows(
    tmp_path: Path, data: tuple[str, GraphSet]
) -> None:
    source, graphs = data
    per_kill = 8  # runs between two kills, on average
    seeds = math.ceil(KILLS * per_kill / 42)
    plan = tiny_plan(architecture="paper", layers="1-3", norm="none,graph", epochs=3, seed=f"0-{seeds - 1}")
    assert len(plan) >= 40
    study = tmp_path / "s.db"
    chance = random.Random(SEED)
    driver = Driver(plan, source, graphs, study)
    try:
        for kill in range(KILLS):
            target = min(driver.finished() + chance.randint(0, 2 * per_kill), len(plan) - 4)
            wait_for(lambda target=target: driver.finished() >= target or not driver.alive())
            if kill == 0:
                with pytest.raises(MlapError, match=rf"in use by another sweep \(process {driver.pid} on"):
                    sweep(plan, SweepSettings(source, study), graphs=graphs)
            time.sleep(chance.uniform(0, 0.3))
            driver.disturb(WAYS[kill] if kill < len(WAYS) else chance.choice(WAYS), chance)
        assert driver.wait() == 0
    finally:
        driver.end()

    expected = {}
    with Study.open(study) as opened:
        runs = opened.runs()
        for run in runs:
            alone = train(run.recipe, graphs)
            result = alone.result
            expected[run.hash] = ("done", result.best_epoch, result.valid_score, result.test_score)
            expected[run.hash] += (result.num_parameters, result.epochs)
            assert untimed(opened.history(run.hash)) == untimed(alone.history)
    assert scores(runs) == expected
    assert len(runs) == len(plan)
    assert {path.name for path in tmp_path.iterdir()} == {"s.db"}


class Driver:
    """A sweep in a process group of its own, started again whenever it is gone."""

    def __init__(self, plan: Plan, source: str, graphs: GraphSet, study: Path) -> None:
        self.study = study

        def work() -> None:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sweep(plan, SweepSettings(source, study), graphs=graphs, engine=LocalEngine(2))

        self._work: Callable[[], None] = work
        self.pid = fork(work)
        self._code: int | None = None

    def finished(self) -> int:
        try:
            with Study.open(self.study) as opened:
                return sum(run.status == "done" for run in opened.runs())
        except MlapError:  # there is none yet
            return 0

    def alive(self) -> bool:
        if self._code is None:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            self._code = code if pid else None
        return self._code is None

    def wait(self) -> int:
        wait_for(lambda: not self.alive())
        assert self._code is not None
        return self._code

    def _halt(self) -> bool:
        """Stop the driver, so that it does not end by itself before it is disturbed; whether it has not done so."""
        os.kill(self.pid, signal.SIGSTOP)
        _, code = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(code):
            self._code = code
        return self._code is None

    def disturb(self, way: str, chance: random.Random) -> None:
        if not self.alive():
            return
        workers = psutil.Process(self.pid).children()
        if way == "worker":
            if workers:
                chance.choice(workers).kill()
            return
        if not self._halt():
            return
        if way == "group":
            os.killpg(self.pid, signal.SIGKILL)
        else:
            os.kill(self.pid, signal.SIGKILL if way == "driver" else signal.SIGINT)
        os.kill(self.pid, signal.SIGCONT)
        assert self.wait() != 0
        # Whichever way the driver went, no worker trains on.
        assert psutil.wait_procs(workers, timeout=30)[1] == []
        self.pid = fork(self._work)
        self._code = None

    def end(self) -> None:
        if self.alive():
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    """No test leaves processes behind; a browser may be open from tests before."""
    before = psutil.Process().children()
    yield
    assert [child for child in psutil.Process().children() if child not in before] == []
