"""What runs on the nodes of a Ray cluster: the actor that trains, and where it keeps its run directories."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import queue
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from mlap.errors import MlapError
from mlap.graphs import GraphSet
from mlap.provenance import made_by, source_digest
from mlap.study.engine import Done, Event, Job
from mlap.study.job_runner import JobRunner
from mlap.training.run import CONFIG, HISTORY, MODEL, RESULT

#: the file by which a worker sees that its disk is the driver's
_MARK = ".driver"


class RayWorker:
    """The actor. It trains in a thread of its own, so that it can answer meanwhile.

    Args:
        source: the sources of the driver's mlap (`mlap.provenance.source_id`); other ones might train differently.
        graphs: the data of its jobs, if the driver sent them.
        threads: torch threads of a run.
    """

    def __init__(self, source: str, graphs: GraphSet | None, threads: int) -> None:
        # The commit is not compared: a node may have from a wheel what the driver has from a checkout.
        if source.partition("@")[0] != source_digest():
            raise MlapError(
                f"the driver has mlap with the sources {source}, but the node {platform.node()} has {made_by()}; "
                "install the same"
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
            runner = JobRunner(graphs)
            while True:
                job, token = self._jobs.get()
                folder = run_directory(job, token)
                answer = runner.run(dataclasses.replace(job, run_dir=str(folder)), self._events.put)
                if str(folder) != job.run_dir:
                    if isinstance(answer, Done):
                        self._events.put(Files.pack(folder))
                    shutil.rmtree(folder, ignore_errors=True)
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
    folder = Path(job.run_dir)
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).write_text(token)


def unmark(job: Job) -> None:
    """Remove the mark, and the directory if nothing else is in it."""
    with suppress(OSError):
        (Path(job.run_dir) / _MARK).unlink(missing_ok=True)
        Path(job.run_dir).rmdir()


def run_directory(job: Job, token: str) -> Path:
    """Where a worker trains: in the driver's run directory if this machine sees it, else on its own disk."""
    with suppress(OSError):
        if (Path(job.run_dir) / _MARK).read_text() == token:
            return Path(job.run_dir)
    return _own_folder() / hashlib.sha256(job.run_dir.encode()).hexdigest()[:16]


def _own_folder() -> Path:
    """A folder on this machine's disk that nobody else can write to.

    It has the same name each time, so that a run goes on if its worker dies. In a temporary folder that all users
    share, another user may have taken that name: then it is a new one.
    """
    if not hasattr(os, "getuid"):  # Windows: the temporary folder is the user's own
        return Path(tempfile.gettempdir()) / "mlap-runs"
    folder = Path(tempfile.gettempdir()) / f"mlap-runs-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix="mlap-runs-"))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MlapError(f"cannot write the run directory {folder}: {error.strerror}") from error
