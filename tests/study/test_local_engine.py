"""The local engine with workers that misbehave; those that train are in test_driver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from mlap.errors import MlapError, UsageError
from mlap.study import local_engine
from mlap.study.engine import Died, Done, EpochDone, Event, Failed, Job
from mlap.study.local_engine import LocalEngine

#: a worker that loads nothing, and does what the job's source says
PUPPET = """
import json, os, sys, time

def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)

def fail(hash, error=None):
    say("Failed", hash=hash, error=error or str(os.getpid()), traceback="", host="h")

def epoch(hash):
    say("EpochDone", hash=hash, epoch={"epoch": 1, "valid_score": float("nan")})
    fail(hash)

def half_a_line(hash):
    sys.stdout.write('{"event": "Don')
    sys.stdout.flush()
    os._exit(0)

parts = {
    "fail": fail,
    "epoch": epoch,
    "done": lambda hash: say("Done", hash=hash, result={"test_score": None}, history=[{"seconds": 0.1}],
                             host="h", device="cpu", versions={}),
    "place": lambda hash: fail(hash, sys.path[0] + " " + os.environ["OMP_NUM_THREADS"]),
    "sleep": lambda hash: time.sleep(600),
    "killed": lambda hash: os.kill(os.getpid(), 9),
    "quits": lambda hash: sys.exit("out of luck"),
    "exits": lambda hash: os._exit(7),
    "half a line": half_a_line,
}
say("Ready")
for line in sys.stdin:
    job = json.loads(line)
    parts[job["source"]](job["hash"])
"""


def job(hash: str, source: str) -> Job:
    return Job(hash, {}, source, {}, None, "", "", "cpu")


def collect(engine: LocalEngine, number: int) -> list[Event]:
    events: list[Event] = []
    end = time.monotonic() + 60
    while len(events) < number:
        assert time.monotonic() < end
        events += engine.events(0.1)
    return events


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    monkeypatch.setattr(local_engine, "_START", PUPPET)
    engine = LocalEngine(2)
    yield engine
    engine.close()


def test_events_come_in_order_and_processes_live_on(engine: LocalEngine) -> None:
    pids = set()
    for number in range(5):
        engine.submit(job(str(number), "epoch"))
        first, last = collect(engine, 2)
        assert isinstance(first, EpochDone)
        assert isinstance(last, Failed)
        assert first.hash == last.hash == str(number)
        pids.add(last.error)
    assert len(pids) == 1


def test_as_many_processes_as_jobs_at_once(engine: LocalEngine) -> None:
    engine.submit(job("a", "fail"))
    engine.submit(job("b", "fail"))
    events = collect(engine, 2)
    assert {event.hash for event in events} == {"a", "b"}
    assert len({event.error for event in events if isinstance(event, Failed)}) == 2


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("killed", "the worker was killed by SIGKILL, perhaps because memory ran out"),
        ("quits", "the worker exited with code 1 (out of luck)"),
        ("exits", "the worker exited with code 7"),
        ("half a line", "the worker exited with code 0"),
    ],
)
def test_a_death_is_reported_once_and_the_next_job_runs(engine: LocalEngine, source: str, reason: str) -> None:
    engine.submit(job("a", source))
    (event,) = collect(engine, 1)
    assert isinstance(event, Died)
    assert event.hash == "a"
    assert event.reason == reason
    engine.submit(job("b", "fail"))
    (event,) = collect(engine, 1)
    assert isinstance(event, Failed)


def test_an_idle_worker_that_died_costs_no_job(engine: LocalEngine) -> None:
    engine.submit(job("a", "fail"))
    (event,) = collect(engine, 1)
    assert isinstance(event, Failed)
    os.kill(int(event.error), signal.SIGKILL)
    assert engine.events(0.5) == []
    engine.submit(job("b", "fail"))
    assert [event.hash for event in collect(engine, 1)] == ["b"]


def test_nothing_outlives_the_engine(engine: LocalEngine) -> None:
    engine.submit(job("a", "fail"))
    (event,) = collect(engine, 1)
    assert isinstance(event, Failed)
    engine.submit(job("b", "sleep"))
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(event.error), 0)


def test_workers_that_cannot_start_end_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "_START", "raise SystemExit('no such module')")
    engine = LocalEngine(1)
    engine.submit(job("a", "fail"))
    with pytest.raises(
        MlapError, match=r"workers die when they start: the worker exited with code 1 \(no such module\)"
    ):
        collect(engine, 1)
    engine.close()


def test_a_worker_has_the_drivers_path_and_one_thread(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "_START", "import sys; sys.path[:] = sys.argv[1:]\n" + PUPPET)
    monkeypatch.syspath_prepend("/a/place of my own")
    engine.submit(job("a", "place"))
    (event,) = collect(engine, 1)
    assert isinstance(event, Failed)
    assert event.error == "/a/place of my own 1"


def test_a_done_event_is_whole(engine: LocalEngine) -> None:
    engine.submit(job("a", "done"))
    (event,) = collect(engine, 1)
    assert event == Done("a", {"test_score": None}, [{"seconds": 0.1}], "h", "cpu", {})


@pytest.mark.parametrize(("cores", "cpus", "capacity"), [(8, 1, 8), (8, 3, 2), (2, 4, 1)])
def test_there_are_as_many_workers_as_the_cores_have_room_for(
    cores: int, cpus: int, capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "usable_cores", lambda: cores)
    assert LocalEngine(cpus=cpus).capacity == capacity
    assert LocalEngine(5, cpus=cpus).capacity == 5


@pytest.mark.parametrize("cpus", [0, 0.5, 1.5, -1, float("nan"), float("inf")])
def test_half_a_thread_is_refused(cpus: float) -> None:
    with pytest.raises(UsageError, match="whole number of threads on this machine"):
        LocalEngine(cpus=cpus)
