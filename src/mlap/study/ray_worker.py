"""What runs on the nodes of a Ray cluster: the actor that trains, and where it keeps its run directories."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import queue
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

import mlap
from mlap.errors import MlapError
from mlap.graphs import GraphSet
from mlap.study.engine import Done, Event, Job
from mlap.study.work import Workbench
from mlap.training.run import CONFIG, HISTORY, MODEL, RESULT

#: the file by which a worker sees that its disk is the driver's
_MARK = ".driver"


class RayWorker:
    """The actor. It trains in a thread of its own, so that it can answer meanwhile.

    Args:
        version: the driver's mlap; another one might train differently.
        graphs: the data of its jobs, if the driver sent them.
        threads: torch threads of a run.
    """

    def __init__(self, version: str, graphs: GraphSet | None, threads: int) -> None:
        if version != mlap.__version__:
            raise MlapError(
                f"the driver has mlap {version} but the node {platform.node()} has {mlap.__version__}; install the same"
            )
        self._jobs: queue.SimpleQueue[tuple[Job, str]] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[Event | Files] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(graphs, threads), daemon=True).start()

    def hello(self) -> list[Event | Files]:
        """Say that the worker is ready."""
        return []

    def give(self, job: Job, token: str) -> None:
        """Take a job, of a driver that has marked its run directory with a token."""
        self._jobs.put((job, token))

    def events(self) -> list[Event | Files]:
        """What has happened since the last call, once something has."""
        events = [self._events.get()]
        with suppress(queue.Empty):
            while True:
                events.append(self._events.get_nowait())
        return events

    def _work(self, graphs: GraphSet | None, threads: int) -> None:
        try:
            torch.set_num_threads(threads)
            bench = Workbench(graphs)
            while True:
                job, token = self._jobs.get()
                place = run_directory(job, token)
                answer = bench.perform(dataclasses.replace(job, work_dir=str(place)), self._events.put)
                if str(place) != job.work_dir:
                    if isinstance(answer, Done):
                        self._events.put(Files.pack(place))
                    shutil.rmtree(place, ignore_errors=True)
                self._events.put(answer)
        finally:
            os._exit(1)  # without its thread the actor would be silent for ever


@dataclass(frozen=True)
class Files:
    """The files of a finished run that was trained where the driver's disk cannot be seen."""

    content: dict[str, bytes]

    @classmethod
    def pack(cls, folder: Path) -> Files:
        """Take what a finished run keeps."""
        return cls({name: (folder / name).read_bytes() for name in (CONFIG, HISTORY, MODEL, RESULT)})

    def unpack(self, folder: Path) -> None:
        """Put the files where the driver looks for them."""
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in self.content.items():
                (folder / name).write_bytes(content)


def mark(job: Job, token: str) -> None:
    """Make the run directory on the driver's disk, and mark it."""
    folder = Path(job.work_dir)
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).write_text(token)


def unmark(job: Job) -> None:
    """Remove the mark, and the directory if nothing else is in it."""
    with suppress(OSError):
        (Path(job.work_dir) / _MARK).unlink(missing_ok=True)
        Path(job.work_dir).rmdir()


def run_directory(job: Job, token: str) -> Path:
    """Where a worker trains: in the driver's run directory if this machine sees it, else on its own disk."""
    with suppress(OSError):
        if (Path(job.work_dir) / _MARK).read_text() == token:
            return Path(job.work_dir)
    user = os.getuid() if hasattr(os, "getuid") else "user"
    name = hashlib.sha256(job.work_dir.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"mlap-runs-{user}" / name


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MlapError(f"cannot write the run directory {folder}: {error.strerror}") from error
