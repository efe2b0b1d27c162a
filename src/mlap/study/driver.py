"""The driver of a sweep: plans the runs, hands them to an engine, and writes what comes back into the study."""

from __future__ import annotations

import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlap.errors import MlapError, UsageError
from mlap.graphs import GraphSet
from mlap.graphs.sources import absolute_root, absolute_source, load_graphs
from mlap.locking import locked_study
from mlap.study.engine import Died, Disturbed, Done, Engine, EpochDone, Event, Failed, Job
from mlap.study.local_engine import LocalEngine
from mlap.study.plan import Plan
from mlap.study.run_folders import RunFolders
from mlap.study.settings import SweepSettings
from mlap.study.store import RunRecord, Study, run_hash
from mlap.training import Recipe

#: how often a run may lose its worker before it counts as failed: what kills workers is often memory, and stays
MOST_DEATHS = 3


@dataclass(frozen=True)
class Started:
    """A run was handed to the engine."""

    hash: str
    recipe: Recipe


OnEvent = Callable[[Started | Event], None]


@dataclass(frozen=True)
class Forecast:
    """What a sweep has to do: where its plan stands in a study.

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


def forecast(plan: Plan, graphs: GraphSet, study: str | Path, *, retry_failed: bool = False) -> Forecast:
    """What a sweep has to do, in a study that need not exist; nothing is written, and nothing locked."""
    _check_trainable(graphs)
    if not Study.exists(study):
        return _forecast(plan, graphs, [], retry_failed)
    with Study.open(study) as opened:
        return _forecast(plan, graphs, opened.runs_on(graphs.fingerprint), retry_failed)


def _forecast(plan: Plan, graphs: GraphSet, records: list[RunRecord], retry_failed: bool) -> Forecast:
    recipes = plan.recipes()
    status = {record.hash: record.status for record in records}
    states = [status.get(run_hash(recipe, graphs.fingerprint), "planned") for recipe in recipes]
    over = ("done",) if retry_failed else ("done", "failed")
    return Forecast(
        plan=plan,
        graphs=graphs,
        records=records,
        pending=[recipe for recipe, state in zip(recipes, states, strict=True) if state not in over],
        done=states.count("done"),
        failed=0 if retry_failed else states.count("failed"),
    )


def sweep(
    plan: Plan,
    settings: SweepSettings,
    *,
    engine: Engine | None = None,
    graphs: GraphSet | None = None,
    on_wait: Callable[[str], None] | None = None,
    on_event: OnEvent | None = None,
) -> Outcome:
    """Run what a study does not have yet of a plan.

    It may be stopped at any moment and by any means: called again, it continues after the last finished epoch of each
    run, and ends with the same numbers as if it had never been stopped. A run that fails is recorded and stops no
    other.

    Args:
        plan: what to run.
        settings: the data, the study, and how to run.
        engine: where to run; processes on this machine, one per core, unless given. It is closed at the end.
        graphs: the loaded data, if the caller has them already.
        on_wait: called before waiting for another sweep, with who is waited for.
        on_event: called with everything that happens to a run.
    """
    began = time.perf_counter()
    with driving(settings, engine, graphs, on_wait) as driver:
        driver.study.plan(plan.name, plan.axes, plan.recipes(), driver.graphs, driver.source, dict(settings.options))
        todo = _forecast(plan, driver.graphs, driver.records(), settings.retry_failed)
        driver.run(map(driver.job, todo.pending), on_event)
        wanted = {run_hash(recipe, driver.graphs.fingerprint) for recipe in plan.recipes()}
        ended = [record for record in driver.records() if record.hash in wanted]
    done = sum(record.status == "done" for record in ended)
    return Outcome(
        total=len(ended),
        done=done,
        ran=done - todo.done,
        failures=[record for record in ended if record.status == "failed"],
        seconds=time.perf_counter() - began,
    )


@dataclass(frozen=True)
class Driver:
    """Runs jobs and writes what becomes of them into a study that it alone writes to."""

    study: Study
    engine: Engine
    folders: RunFolders
    graphs: GraphSet
    source: str
    data_root: str | None
    settings: SweepSettings

    def records(self) -> list[RunRecord]:
        """The runs of the study on these data."""
        return self.study.runs_on(self.graphs.fingerprint)

    def job(self, recipe: Recipe) -> Job:
        """The job of a run."""
        hash = run_hash(recipe, self.graphs.fingerprint)
        return Job(
            hash=hash,
            recipe=recipe.as_dict(),
            source=self.source,
            options=dict(self.settings.options),
            data_root=self.data_root,
            fingerprint=self.graphs.fingerprint,
            run_dir=str(self.folders.of(hash)),
            device=self.settings.device,
        )

    def run(self, jobs: Iterable[Job], on_event: OnEvent | None = None) -> None:
        """Run jobs to their end; each is taken only when there is room for it."""
        tell = on_event or (lambda event: None)
        fresh = iter(jobs)
        again: deque[Job] = deque()
        running: dict[str, Job] = {}
        deaths: Counter[str] = Counter()
        while True:
            while len(running) < self.engine.capacity:
                job = again.popleft() if again else next(fresh, None)
                if job is None:
                    if not running:
                        return
                    break
                self.study.start(job.hash)
                running[job.hash] = job
                self.engine.submit(job)
                tell(Started(job.hash, Recipe.of(job.recipe)))
            for event in self.engine.events(timeout=1.0):
                if isinstance(event, EpochDone):
                    tell(event)
                    continue
                if isinstance(event, Done):
                    self.study.finish(event)
                    self.folders.clean(event.hash)
                elif isinstance(event, Died):
                    deaths[event.hash] += 1
                    if deaths[event.hash] < MOST_DEATHS:
                        again.append(running[event.hash])
                    elif isinstance(event, Disturbed):  # the next run would fare no better
                        raise MlapError(f"{event.reason}; run the same command to continue")
                    else:
                        event = Failed(event.hash, f"{event.reason}, {MOST_DEATHS} times", "", platform.node())
                if isinstance(event, Failed):
                    self.study.fail(event)
                del running[event.hash]
                tell(event)


@contextmanager
def driving(
    settings: SweepSettings,
    engine: Engine | None = None,
    graphs: GraphSet | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[Driver]:
    """Hold a study to run something in it. Whatever ends this early leaves its runs to be run another time.

    The arguments are those of `sweep`.
    """
    path = Path(settings.study)
    source, root = absolute_source(settings.source), absolute_root(settings.data_root)
    # The engine is closed whatever happens, and before the study is free again for another sweep.
    with ExitStack() as held, closing(engine or LocalEngine()) as running:
        if graphs is None:
            graphs = load_graphs(source, root=root, **settings.options)
        _check_trainable(graphs)
        folders = RunFolders(path, settings.keep_models)
        held.enter_context(locked_study(path, wait=settings.wait, on_wait=on_wait))
        study = held.enter_context(Study.create(path))
        study.reset()
        held.callback(study.reset)
        driver = Driver(study, running, folders, graphs, source, root, settings)
        folders.clean_all(record.hash for record in driver.records() if record.status == "done")
        held.callback(folders.remove_if_empty)
        yield driver


def _check_trainable(graphs: GraphSet) -> None:
    if graphs.task is None:
        raise UsageError(f"{graphs.name} has no labels to train on", field="targets")
    for split in ("train", "valid"):
        graphs.split(split)
