"""The local engine: one process per worker, one torch thread each unless the user says otherwise."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any

from mlap.errors import MlapError, UsageError
from mlap.machines import usable_cores
from mlap.study.engine import Died, Disturbed, Done, EpochDone, Event, Failed, Job

#: the worker looks for modules where the driver does, and not in the folder that happens to be the current one
_START = "import sys; sys.path[:] = sys.argv[1:]; from mlap.study.worker_process import main; main()"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
#: workers that die in a row before they are ready, after which something is wrong with all of them
_MOST_STILLBORN = 5
_EVENTS = {kind.__name__: kind for kind in (EpochDone, Done, Failed, Disturbed)}


def whole_threads(cpus: float) -> int:
    """The threads of a run that has so many cores of this machine; an error if they are not whole."""
    if not (cpus >= 1 and float(cpus).is_integer()):
        raise UsageError(f"{{field}} must be a whole number of threads on this machine, got {cpus:g}", field="cpus")
    return int(cpus)


class LocalEngine:
    """Runs jobs in processes on this machine; a process lives on from job to job.

    Args:
        workers: how many processes; as many as the cores have room for unless given.
        cpus: cores for each, which is the number of its torch threads.
    """

    def __init__(self, workers: int | None = None, *, cpus: float = 1) -> None:
        self._cpus = whole_threads(cpus)
        self.capacity = workers or max(1, usable_cores() // self._cpus)
        self._workers: list[_Worker] = []
        self._messages: queue.SimpleQueue[tuple[_Worker, dict[str, Any] | None]] = queue.SimpleQueue()
        self._stillborn = 0

    def submit(self, job: Job) -> None:
        """Give a job to an idle worker, or to a new one."""
        worker = next((worker for worker in self._workers if worker.job is None), None)
        if worker is None:
            worker = _Worker(self._messages, self._cpus)
            self._workers.append(worker)
        worker.give(job)

    def events(self, timeout: float) -> list[Event]:
        """What has happened since the last call; waits up to `timeout` seconds for something to happen."""
        events: list[Event] = []
        with suppress(queue.Empty):
            while True:
                worker, message = self._messages.get(timeout=0 if events else timeout)
                if (event := self._event(worker, message)) is not None:
                    events.append(event)
        return events

    def _event(self, worker: _Worker, message: dict[str, Any] | None) -> Event | None:
        if message is None:
            return self._buried(worker)
        name = message.pop("event")
        if name == "Ready":
            worker.ready = True
            self._stillborn = 0
            return None
        event: Event = _EVENTS[name](**message)
        if not isinstance(event, EpochDone):
            worker.job = None
        return event

    def _buried(self, worker: _Worker) -> Event | None:
        """What a worker's death means for its job."""
        self._workers.remove(worker)
        reason = worker.bury()
        if worker.ready or worker.job is None:
            return None if worker.job is None else Died(worker.job.hash, reason)
        # It never came to its job, so the job is not to blame.
        self._stillborn += 1
        if self._stillborn >= _MOST_STILLBORN:
            raise MlapError(f"workers die when they start: {reason}")
        self.submit(worker.job)
        return None

    def close(self) -> None:
        """Stop all workers at once."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()


class _Worker:
    """A worker process, seen from the driver."""

    def __init__(self, messages: queue.SimpleQueue[tuple[_Worker, dict[str, Any] | None]], threads: int) -> None:
        self.job: Job | None = None
        self.ready = False
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the worker)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **dict.fromkeys(_THREADS, str(threads))},
        )
        self._reader = threading.Thread(target=self._read, args=(messages,), daemon=True)
        self._reader.start()

    def give(self, job: Job) -> None:
        """Send a job; if the worker is dead, its end of file will say so."""
        assert self._process.stdin is not None
        self.job = job
        with suppress(OSError):
            self._process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self, messages: queue.SimpleQueue[tuple[_Worker, dict[str, Any] | None]]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # a dying worker may leave half a line
                messages.put((self, json.loads(line)))
        messages.put((self, None))

    def kill(self) -> None:
        """End the process now."""
        self._process.kill()
        self._release()

    def bury(self) -> str:
        """Clean up after a worker whose output has ended, and say why it ended."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # it closed its output, but lives on
            self._process.kill()
            code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        self._release()
        return f"{_ending(code)}{f' ({last})' if last else ''}"

    def _release(self) -> None:
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _ending(code: int) -> str:
    if code >= 0:
        return f"the worker exited with code {code}"
    hint = ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
    return f"the worker was killed by {signal.Signals(-code).name}{hint}"
