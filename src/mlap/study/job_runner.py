"""What a worker does with a job, whatever engine it belongs to."""

from __future__ import annotations

import dataclasses
import platform
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

from mlap.errors import DataError, MlapError
from mlap.files import first_line
from mlap.graphs import GraphSet
from mlap.graphs.sources import load_graphs
from mlap.names import load_plugins
from mlap.study.engine import Disturbed, Done, EpochDone, Failed, Job
from mlap.training import Epoch, Recipe, train
from mlap.training.run import LAST, read_checkpoint, read_config


class JobRunner:
    """Runs jobs one after the other; the graphs stay loaded from one to the next.

    Args:
        graphs: the graphs of the first jobs, if they are at hand.
    """

    def __init__(self, graphs: GraphSet | None = None) -> None:
        self._graphs = graphs
        load_plugins()

    def run(self, job: Job, on_epoch: Callable[[EpochDone], None]) -> Done | Failed | Disturbed:
        """Train the network of a job, from where it was left; an error is an answer, not an exception."""
        run_dir = Path(job.run_dir)
        try:
            graphs = self._load(job)
            _discard_damaged(run_dir)

            def tell(epoch: Epoch) -> None:
                on_epoch(EpochDone(job.hash, dataclasses.asdict(epoch)))

            trained = train(
                Recipe.of(job.recipe),
                graphs,
                run_dir,
                resume=True,
                device=job.device,
                on_epoch=tell,
            )
            return Done(
                hash=job.hash,
                result=dataclasses.asdict(trained.result),
                history=[dataclasses.asdict(epoch) for epoch in trained.history],
                host=platform.node(),
                device=job.device,
                versions=read_config(run_dir)["versions"],
            )
        except Exception as error:
            if (cause := _of_the_system(error)) is not None:
                return Disturbed(
                    job.hash, f"{cause.strerror or cause} on {platform.node()}: {cause.filename or run_dir}"
                )
            message = (
                first_line(error) if isinstance(error, MlapError) else f"{type(error).__name__}: {first_line(error)}"
            )
            return Failed(job.hash, message, traceback.format_exc(), platform.node())

    def _load(self, job: Job) -> GraphSet:
        if self._graphs is None or self._graphs.fingerprint != job.fingerprint:
            self._graphs = load_graphs(job.source, root=job.data_root, **job.options)
        if self._graphs.fingerprint != job.fingerprint:
            raise DataError(
                f"{job.source} is not what the sweep was planned on: fingerprint {self._graphs.fingerprint}, "
                f"planned {job.fingerprint}"
            )
        return self._graphs


def _of_the_system(error: BaseException) -> OSError | None:
    """The error of the operating system behind an error, if there is one."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError) else None


def _discard_damaged(run_dir: Path) -> None:
    """Remove a run directory whose checkpoint cannot be read: the run starts over."""
    try:
        if (run_dir / LAST).exists():
            read_checkpoint(run_dir / LAST)
    except DataError:
        shutil.rmtree(run_dir)
