"""What the tests of sweeps share: a tiny data set, an engine in this very process, and other processes."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlap.graphs import GraphSet, packed, synthetic
from mlap.study import Study
from mlap.study.compare import compare
from mlap.study.engine import Event, Job
from mlap.study.job_runner import JobRunner
from mlap.study.plan import Plan
from mlap.study.store import RunRecord


def tiny_graphs(folder: Path) -> tuple[str, GraphSet]:
    """54 graphs as a packed set: its path, and the set."""
    path = folder / "tiny.graphs"
    packed.save(synthetic(6), path)
    return str(path), packed.load(path)


def tiny_plan(**changes: Any) -> Plan:
    """Networks that train in a moment."""
    return Plan.of("synthetic", **{"width": 8, "epochs": 2, **changes})


def read_study(path: Path) -> None:
    """Read all that is in a study."""
    with Study.open(path) as study:
        runs = study.runs()
        study.plans()
        study.baselines()
        for run in runs:
            study.history(run.hash)
    compare(runs)


class InProcessEngine:
    """Runs a job when it is asked for events; `instead` may answer in its place."""

    def __init__(self, capacity: int = 1, instead: Callable[[Job], Event | None] | None = None) -> None:
        self.capacity = capacity
        self.submitted: list[Job] = []
        self.closed = False
        self._jobs: list[Job] = []
        self._runner = JobRunner()
        self._instead = instead

    def submit(self, job: Job) -> None:
        assert len(self._jobs) < self.capacity
        self._jobs.append(job)
        self.submitted.append(job)

    def events(self, timeout: float) -> list[Event]:
        job = self._jobs.pop(0)
        events: list[Event] = []
        answer = self._instead(job) if self._instead else None
        events.append(answer or self._runner.run(job, events.append))
        return events

    def close(self) -> None:
        self.closed = True


def scores(runs: list[RunRecord]) -> dict[str, tuple[Any, ...]]:
    """All that a run's recipe and data decide, by hash."""
    return {
        run.hash: (run.status, run.best_epoch, run.valid_score, run.test_score, run.num_parameters, run.epochs)
        for run in runs
    }


def fork(work: Callable[[], None]) -> int:
    """Do something in another process that starts at once; its process number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process that has threads
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + 300  # a busy machine needs long to start a worker
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
