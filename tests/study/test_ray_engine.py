"""The Ray engine on a real cluster: several nodes on this machine, one of which is killed in the middle of a sweep."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_tools import InProcessEngine, scores, tiny_graphs, tiny_plan, wait_for

from mlap import provenance
from mlap.errors import MlapError, UsageError
from mlap.graphs import GraphSet
from mlap.models import load
from mlap.study import RayEngine, Study, SweepSettings, run_hash, sweep
from mlap.study.driver import Started
from mlap.study.engine import Died, Done, EpochDone, Event, Failed, Job
from mlap.study.ray_engine import room
from mlap.study.ray_worker import run_directory
from mlap.training import Recipe, train

SMALL_STORE = 80 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and one more node, each with one processor, with this process connected to them."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'mlap[ray]'")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will have it; until then it warns
        head = {"num_cpus": 1, "object_store_memory": SMALL_STORE, "include_dashboard": False}
        started = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        try:
            started.second = started.add_node(num_cpus=1, object_store_memory=SMALL_STORE)
            ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
            yield started
        finally:
            ray.shutdown()
            started.shutdown()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, GraphSet]:
    return tiny_graphs(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def engine(cluster: Any) -> Iterator[RayEngine]:
    """An engine with one worker, which has the data from the jobs' source."""
    engine = RayEngine(workers=1)
    yield engine
    engine.close()
    engine.close()


def make_job(data: tuple[str, GraphSet], folder: Path, **changes: Any) -> Job:
    recipe = Recipe(width=8, epochs=3, layers=2)
    graphs = data[1]
    hash = run_hash(recipe, graphs.fingerprint)
    job = Job(hash, recipe.as_dict(), data[0], {}, None, graphs.fingerprint, str(folder / hash), "cpu")
    return dataclasses.replace(job, **changes)


def finish(engine: RayEngine) -> list[Event]:
    """All events up to the end of the job."""
    events: list[Event] = []
    wait_for(lambda: bool(events.extend(engine.events(0.1)) or (events and not isinstance(events[-1], EpochDone))))
    return events


def worker_processes() -> list[psutil.Process]:
    """The actors that this process started: all descendants of the cluster, by the name that Ray gives them."""
    return [child for child in psutil.Process().children(recursive=True) if "RayWorker" in "".join(child.cmdline())]


# ---- one worker ----------------------------------------------------------------------------------------------------


def test_epochs_are_told_and_the_result_is_that_of_training_here(
    engine: RayEngine, data: tuple[str, GraphSet], tmp_path: Path
) -> None:
    job = make_job(data, tmp_path)
    engine.submit(job)
    *epochs, done = finish(engine)
    alone = train(Recipe.of(job.recipe), data[1])
    assert isinstance(done, Done)
    assert done.result == dataclasses.asdict(alone.result)
    assert [event.epoch["train_loss"] for event in epochs if isinstance(event, EpochDone)] == [
        epoch.train_loss for epoch in alone.history
    ]
    assert len(epochs) == len(done.history) == 3
    assert load(job.run_dir).config["threads"] == 1
    assert {path.name for path in Path(job.run_dir).iterdir()} == {
        *("config.json", "history.csv", "last.ckpt", "model.safetensors", "result.json", "splits.json")
    }


def test_a_node_that_does_not_see_the_study_sends_the_model(
    engine: RayEngine, data: tuple[str, GraphSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlap.study.ray_engine.mark", lambda job, token: None)
    job = make_job(data, tmp_path)
    engine.submit(job)
    done = finish(engine)[-1]
    assert isinstance(done, Done)
    own = run_directory(job, "another disk")
    assert own != Path(job.run_dir)
    assert not own.exists()
    run = load(job.run_dir)
    assert run.recipe == Recipe.of(job.recipe)
    assert dataclasses.asdict(run.result) == done.result
    expected = train(run.recipe, data[1]).network.state_dict()
    assert all(weights.equal(expected[name]) for name, weights in run.network.state_dict().items())


def test_an_error_is_an_answer_and_leaves_nothing(
    engine: RayEngine, data: tuple[str, GraphSet], tmp_path: Path
) -> None:
    engine.submit(make_job(data, tmp_path, source=str(tmp_path / "nowhere.graphs"), fingerprint="0" * 16))
    (failed,) = finish(engine)
    assert isinstance(failed, Failed)
    assert "nowhere.graphs" in failed.error
    assert list(tmp_path.iterdir()) == []


def test_an_idle_worker_that_died_costs_no_job(engine: RayEngine, data: tuple[str, GraphSet], tmp_path: Path) -> None:
    (process,) = worker_processes()
    process.kill()
    process.wait()
    end = time.monotonic() + 5
    while time.monotonic() < end and engine._workers:
        assert engine.events(0.1) == []
    engine.submit(make_job(data, tmp_path))
    assert isinstance(finish(engine)[-1], Done)


def test_a_run_goes_on_after_its_last_epoch_when_its_worker_dies(
    engine: RayEngine, data: tuple[str, GraphSet], tmp_path: Path
) -> None:
    recipe = Recipe(width=8, epochs=60, layers=2).as_dict()
    job = make_job(data, tmp_path, recipe=recipe)
    engine.submit(job)
    wait_for(lambda: any(isinstance(event, EpochDone) for event in engine.events(0.1)))
    (process,) = worker_processes()
    process.kill()
    died = finish(engine)[-1]
    assert isinstance(died, Died)
    assert died.reason.startswith("the Ray worker is gone (")
    assert "\n" not in died.reason
    reached = len(load(job.run_dir).history)
    assert 0 < reached < 60
    engine.submit(job)
    *epochs, done = finish(engine)
    assert isinstance(done, Done)
    # What was trained before is told again, with the times that it took then.
    assert [event.epoch["seconds"] for event in epochs[:reached] if isinstance(event, EpochDone)] == [
        row["seconds"] for row in done.history[:reached]
    ]
    assert done.result == dataclasses.asdict(train(Recipe.of(recipe), data[1]).result)


def test_a_driver_with_other_sources_is_refused(
    cluster: Any, data: tuple[str, GraphSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlap.study.ray_engine.source_id", lambda: "0123456789ab@beef")
    other = RayEngine(workers=1)
    other.submit(make_job(data, tmp_path))
    theirs = rf"the sources 0123456789ab@beef, but the node .* {provenance.source_digest()}"
    with pytest.raises(MlapError, match=f"a Ray worker cannot start: .*{theirs}"):
        finish(other)
    other.close()


# ---- the whole cluster ---------------------------------------------------------------------------------------------


def test_a_run_too_large_for_any_node_is_refused(cluster: Any) -> None:
    with pytest.raises(
        UsageError, match=r"no node .* has room for a run with 2 CPUs and 0 GPUs: nodes have up to 1 CPU"
    ):
        RayEngine(cpus=2)
    with pytest.raises(UsageError, match=r"with 1 CPUs and 0\.5 GPUs: .* and 0 GPUs in all"):
        RayEngine(gpus=0.5)


def test_a_run_has_as_many_threads_as_it_reserves(cluster: Any, data: tuple[str, GraphSet], tmp_path: Path) -> None:
    larger = cluster.add_node(num_cpus=2, object_store_memory=SMALL_STORE)
    try:
        with closing(RayEngine(cpus=2)) as engine:
            job = make_job(data, tmp_path)
            engine.submit(job)
            assert isinstance(finish(engine)[-1], Done)
            assert load(job.run_dir).config["threads"] == 2
    finally:
        cluster.remove_node(larger)


@pytest.mark.slow
def test_a_node_is_killed_and_every_run_is_there_as_if_it_had_not_been(
    cluster: Any, engine: RayEngine, data: tuple[str, GraphSet], tmp_path: Path
) -> None:
    engine.close()  # its worker has the place of another
    graphs = data[1]
    # Many epochs: no run is over before its node is really gone.
    plan = tiny_plan(architecture="naive,mlap-sum", epochs=200, seed="0-1", layers=2)
    running: set[str] = set()
    events: list[Started | Event] = []
    ray_engine = RayEngine(graphs=graphs)
    assert ray_engine.capacity == 2

    def on_event(event: Started | Event) -> None:
        events.append(event)
        if isinstance(event, EpochDone):
            running.add(event.hash)
        else:
            running.discard(event.hash)
        if len(running) == 2 and cluster.second is not None:
            cluster.remove_node(cluster.second, allow_graceful=False)
            cluster.second = None

    # The data are where no worker finds them: it has them from the driver.
    outcome = sweep(
        plan,
        SweepSettings("nowhere.graphs", tmp_path / "ray.db", keep_models=True),
        engine=ray_engine,
        graphs=graphs,
        on_event=on_event,
    )
    assert cluster.second is None
    assert (outcome.total, outcome.done, outcome.ran, outcome.failures) == (4, 4, 4, [])
    assert sum(isinstance(event, Died) for event in events) == 1
    sweep(plan, SweepSettings(data[0], tmp_path / "here.db"), engine=InProcessEngine(), graphs=graphs)
    with Study.open(tmp_path / "ray.db") as on_ray, Study.open(tmp_path / "here.db") as here:
        assert scores(on_ray.runs()) == scores(here.runs())
        for run in on_ray.runs():
            assert run.seconds == sum(epoch.seconds for epoch in on_ray.history(run.hash))
            assert load(tmp_path / "ray.db.runs" / run.hash).recipe == run.recipe


# ---- without a cluster ---------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=3),
    st.sampled_from([0, 0.1, 0.25, 0.3, 0.5, 1, 2]),
    st.sampled_from([0, 0.1, 0.3, 0.4, 0.5, 1, 2]),
)
def test_room_is_what_fits_when_runs_are_placed_one_by_one(
    nodes: list[tuple[int, int]], cpus: float, gpus: float
) -> None:
    if not cpus and not gpus:
        return
    placed = 0
    for processors, cards in nodes:
        left, parts, need, part = processors * 100, [100] * cards, round(cpus * 100), round(gpus * 100)
        while left >= need:
            if part >= 100:
                free = [i for i, p in enumerate(parts) if p == 100][: part // 100]
                if len(free) < part // 100:
                    break
                for i in free:
                    parts[i] = 0
            elif part:
                i = next((i for i, p in enumerate(parts) if p >= part), None)
                if i is None:
                    break
                parts[i] -= part
            left -= need
            placed += 1
    assert room([{"CPU": c, "GPU": g} for c, g in nodes], cpus, gpus) == placed


@pytest.mark.parametrize(
    ("share", "message"),
    [
        ({"cpus": -1}, "cpus must be 0 or at least 0.0001, got -1"),
        ({"gpus": float("nan")}, "gpus must be 0 or at least 0.0001, got nan"),
        ({"gpus": 1.5}, "gpus must be a whole number where it is more than 1, got 1.5"),
        ({"cpus": 0}, "both 0"),
    ],
)
def test_an_impossible_share_is_refused(share: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RayEngine(**share)  # type: ignore[arg-type]


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'mlap\[ray\]'"):
        RayEngine()
