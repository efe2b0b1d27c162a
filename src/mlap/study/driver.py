"""The driver of a sweep: plans the runs, hands them to an engine, and writes what comes back into the study."""

from __future__ import annotations

import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlap.errors import UsageError
from mlap.graphs import GraphSet
from mlap.graphs.sources import absolute_root, absolute_source, load_graphs
from mlap.study import lock
from mlap.study.engine import Died, Done, Engine, EpochDone, Event, Failed, Job
from mlap.study.local_engine import LocalEngine
from mlap.study.plan import Plan
from mlap.study.store import RunRecord, Study, run_hash
from mlap.study.workplace import Workplace
from mlap.training import Recipe

#: how often a run may lose its worker before it counts as failed: what kills workers is often memory, and stays
MOST_DEATHS = 3


@dataclass(frozen=True)
class Started:
    """A run was handed to the engine."""

    hash: str
    recipe: Recipe


@dataclass(frozen=True)
class Outlook:
    """Where a plan stands in a study.

    Args:
        plan: the plan.
        graphs: its data.
        records: the runs of the study on these data.
        pending: what is to be run now.
        done: how many runs of the plan are done.
        failed: how many have failed and are not to be run now.
    """

    plan: Plan
    graphs: GraphSet
    records: list[RunRecord]
    pending: list[Recipe]
    done: int
    failed: int


@dataclass(frozen=True)
class Outcome:
    """How a sweep ended.

    Args:
        total: the runs of the plan.
        done: those that are done, of this sweep or before.
        ran: those that this sweep finished.
        failures: those that have failed, of this sweep or before.
        seconds: how long the sweep took.
    """

    total: int
    done: int
    ran: int
    failures: list[RunRecord]
    seconds: float


def look(plan: Plan, graphs: GraphSet, study: str | Path, *, retry_failed: bool = False) -> Outlook:
    """Where a plan stands in a study, which need not exist; nothing is written."""
    _check(graphs)
    records: list[RunRecord] = []
    if Path(study).exists():
        with Study.open(study) as opened:
            records = [record for record in opened.runs() if record.fingerprint == graphs.fingerprint]
    return _outlook(plan, graphs, records, retry_failed)


def _outlook(plan: Plan, graphs: GraphSet, records: list[RunRecord], retry_failed: bool) -> Outlook:
    recipes = plan.recipes()
    status = {record.hash: record.status for record in records}
    stands = [status.get(run_hash(recipe, graphs.fingerprint), "planned") for recipe in recipes]
    over = ("done",) if retry_failed else ("done", "failed")
    return Outlook(
        plan=plan,
        graphs=graphs,
        records=records,
        pending=[recipe for recipe, stand in zip(recipes, stands, strict=True) if stand not in over],
        done=stands.count("done"),
        failed=0 if retry_failed else stands.count("failed"),
    )


def sweep(
    plan: Plan,
    source: str,
    study: str | Path,
    *,
    engine: Engine | None = None,
    graphs: GraphSet | None = None,
    options: Mapping[str, Any] | None = None,
    data_root: str | Path | None = None,
    device: str = "cpu",
    retry_failed: bool = False,
    keep_models: bool = False,
    wait: bool = False,
    on_wait: Callable[[str], None] | None = None,
    on_outlook: Callable[[Outlook], None] | None = None,
    on_event: Callable[[Started | Event], None] | None = None,
) -> Outcome:
    """Run what a study does not have yet of a plan.

    It may be stopped at any moment and by any means: called again, it goes on after the last finished epoch of each
    run, and ends with the same numbers as if it had never been stopped. A run that fails is recorded and stops no
    other.

    Args:
        plan: what to run.
        source: the data, as `mlap.graphs.sources.load_graphs` takes it.
        study: the study file; made if there is none. Unfinished runs live in the folder `STUDY.runs` beside it.
        engine: where to run; processes on this machine, one per core, unless given. It is closed at the end.
        graphs: the loaded data, if the caller has them already.
        options: how to read the data, as `load_graphs` takes it.
        data_root: where data sets lie.
        device: the torch device of every run.
        retry_failed: run those again that failed before.
        keep_models: keep the run directories (without what only resuming needs), for `mlap probe` and `mlap explain`.
        wait: wait for another sweep on this study to end, rather than raise.
        on_wait: called before waiting, with who is waited for.
        on_outlook: called before the first run, with where the plan stands.
        on_event: called with everything that happens to a run.
    """
    began = time.perf_counter()
    with on_site(
        source,
        study,
        engine=engine,
        graphs=graphs,
        options=options,
        data_root=data_root,
        device=device,
        keep_models=keep_models,
        wait=wait,
        on_wait=on_wait,
    ) as site:
        site.study.plan(plan.name, plan.axes, plan.recipes(), site.graphs, site.source, site.options)
        outlook = _outlook(plan, site.graphs, site.records(), retry_failed)
        if on_outlook is not None:
            on_outlook(outlook)
        site.drive(map(site.job, outlook.pending), on_event)
        wanted = {run_hash(recipe, site.graphs.fingerprint) for recipe in plan.recipes()}
        ended = [record for record in site.records() if record.hash in wanted]
    done = sum(record.status == "done" for record in ended)
    return Outcome(
        total=len(ended),
        done=done,
        ran=done - outlook.done,
        failures=[record for record in ended if record.status == "failed"],
        seconds=time.perf_counter() - began,
    )


@dataclass(frozen=True)
class Site:
    """Where a driver works: an open study that it alone writes to, and all that its jobs have in common."""

    study: Study
    engine: Engine
    workplace: Workplace
    graphs: GraphSet
    source: str
    options: dict[str, Any]
    data_root: str | None
    device: str

    def records(self) -> list[RunRecord]:
        """The runs of the study on these data."""
        return [record for record in self.study.runs() if record.fingerprint == self.graphs.fingerprint]

    def job(self, recipe: Recipe) -> Job:
        """The job of a run."""
        hash = run_hash(recipe, self.graphs.fingerprint)
        return Job(
            hash=hash,
            recipe=recipe.as_dict(),
            source=self.source,
            options=self.options,
            data_root=self.data_root,
            fingerprint=self.graphs.fingerprint,
            work_dir=str(self.workplace / hash),
            device=self.device,
        )

    def drive(self, jobs: Iterable[Job], on_event: Callable[[Started | Event], None] | None = None) -> None:
        """Run jobs to their end; each is taken only when there is a place for it."""
        _drive(jobs, self.engine, self.study, self.workplace, on_event or (lambda event: None))


@contextmanager
def on_site(
    source: str,
    study: str | Path,
    *,
    engine: Engine | None,
    graphs: GraphSet | None,
    options: Mapping[str, Any] | None,
    data_root: str | Path | None,
    device: str,
    keep_models: bool,
    wait: bool,
    on_wait: Callable[[str], None] | None,
) -> Iterator[Site]:
    """Hold a study to run something in it; the arguments are those of `sweep`."""
    path = Path(study)
    source = absolute_source(source)
    root = absolute_root(data_root)
    reading = dict(options or {})
    with closing(engine or LocalEngine()) as running:
        if graphs is None:
            graphs = load_graphs(source, root=root, **reading)
        _check(graphs)
        workplace = Workplace(path, keep_models)
        with lock.hold(path, wait=wait, on_wait=on_wait):
            with Study.create(path) as opened:
                opened.reset()
                site = Site(opened, running, workplace, graphs, source, reading, root, device)
                workplace.tidy_all(record.hash for record in site.records() if record.status == "done")
                yield site
            workplace.close()


def _check(graphs: GraphSet) -> None:
    if graphs.task is None:
        raise UsageError(f"{graphs.name} has no labels to train on")
    for split in ("train", "valid"):
        graphs.split(split)


def _drive(
    jobs: Iterable[Job], engine: Engine, study: Study, workplace: Workplace, on_event: Callable[[Started | Event], None]
) -> None:
    """Run jobs to their end; whatever ends this early leaves them to be run another time."""
    fresh = iter(jobs)
    again: deque[Job] = deque()
    running: dict[str, Job] = {}
    deaths: Counter[str] = Counter()
    try:
        while True:
            while len(running) < engine.capacity:
                job = again.popleft() if again else next(fresh, None)
                if job is None:
                    if not running:
                        return
                    break
                study.start(job.hash)
                running[job.hash] = job
                engine.submit(job)
                on_event(Started(job.hash, Recipe.of(job.recipe)))
            for event in engine.events(timeout=1.0):
                if isinstance(event, EpochDone):
                    on_event(event)
                    continue
                if isinstance(event, Done):
                    study.finish(event)
                    workplace.tidy(event.hash)
                elif isinstance(event, Died):
                    deaths[event.hash] += 1
                    if deaths[event.hash] < MOST_DEATHS:
                        again.append(running[event.hash])
                    else:
                        event = Failed(event.hash, f"{event.reason}, {MOST_DEATHS} times", "", platform.node())
                if isinstance(event, Failed):
                    study.fail(event)
                del running[event.hash]
                on_event(event)
    finally:
        engine.close()  # before another sweep may start
        study.reset()
