"""The Ray engine: a worker is a Ray actor, on any machine of a cluster, with a share of its processors and GPUs.

Actors rather than a task for each job: an actor keeps its GPU and its data from one job to the next. The driver always
has one question open with it, "what has happened?", which is answered as soon as something has. A machine or process
that is gone answers with an error.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlap.errors import MlapError, UsageError
from mlap.graphs import GraphSet
from mlap.machines import connect, import_ray, in_reach, last_line
from mlap.provenance import source_id
from mlap.study.engine import Died, EpochDone, Event, Job
from mlap.study.ray_worker import Files, RayWorker, mark, unmark

#: A larger set is not sent to the nodes: every worker loads it, and maps what is packed.
MOST_SENT = 1 << 30
#: workers that are lost in a row before they are ready, after which something is wrong with the cluster
_MOST_STILLBORN = 5


class RayEngine:
    """Runs jobs on a Ray cluster. A run trains on as many threads as it reserves processors, and at least on one.

    Args:
        address: `auto` for the cluster that runs on this machine or that `RAY_ADDRESS` names, `ray://HOST:PORT` for
            one elsewhere, `local` to start one on this machine for as long as the engine lives. If this process is
            connected to a cluster already, that one is used.
        cpus: processors that a run reserves; may be a fraction.
        gpus: GPUs that a run reserves; with a fraction, several networks share one.
        workers: how many runs at once; as many as the cluster has room for unless given. A cluster that grows on
            demand grows up to what is given.
        graphs: the data of the jobs. They are sent to a node once, and its workers share them. Without, or if they
            are larger than `MOST_SENT`, every worker loads them from the source of its job.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        cpus: float = 1,
        gpus: float = 0,
        workers: int | None = None,
        graphs: GraphSet | None = None,
    ) -> None:
        _check_share(cpus, gpus)
        self._cpus, self._gpus, self._most = cpus, gpus, workers
        self._workers: list[_Worker] = []
        self._stillborn = 0
        self._room = (-math.inf, 0)  # when it was measured, and what it was
        self._token = uuid.uuid4().hex
        self._ray = import_ray()
        self._connected_here = connect(self._ray, address)
        if workers is None and not room(nodes := self._nodes(), cpus, gpus):
            self.close()
            largest = max((node.get("CPU", 0) for node in nodes), default=0)
            raise UsageError(
                f"no node of the Ray cluster has room for a run with {cpus:g} CPUs and {gpus:g} GPUs: nodes have up to "
                f"{largest:g} CPUs, and {sum(node.get('GPU', 0) for node in nodes):g} GPUs in all. "
                "Reserve less, or say how many {field} there are to be, to wait for other nodes",
                field="workers",
            )
        self._graphs = None if graphs is None or _size(graphs) > MOST_SENT else self._ray.put(graphs)

    @property
    def capacity(self) -> int:
        """How many runs the cluster has room for now, or what the user said."""
        if self._most is not None:
            return self._most
        if time.monotonic() - self._room[0] > 1:
            self._room = (time.monotonic(), room(self._nodes(), self._cpus, self._gpus))
        return max(1, self._room[1])  # where all nodes are lost, a job waits for one to come

    def _nodes(self) -> list[dict[str, float]]:
        """The resources of every living node."""
        with in_reach():
            return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def submit(self, job: Job) -> None:
        """Give a job to an idle worker, or to a new one."""
        mark(job, self._token)
        idle = [worker for worker in self._workers if worker.job is None]
        worker = max(idle, key=lambda worker: worker.ready, default=None)
        if worker is None:
            actor = self._ray.remote(RayWorker).options(
                num_cpus=self._cpus,
                num_gpus=self._gpus,
                max_concurrency=2,  # it takes a job while a question is open
                scheduling_strategy="SPREAD",
            )
            worker = _Worker(actor.remote(source_id(), self._graphs, max(1, int(self._cpus))), self._token)
            self._workers.append(worker)
        worker.take(job)

    def events(self, timeout: float) -> list[Event]:
        """What has happened since the last call; waits up to `timeout` seconds for something to happen."""
        if not self._workers:
            time.sleep(timeout)
            return []
        asked = {worker.answer: worker for worker in self._workers}
        with in_reach():
            answered, _ = self._ray.wait(list(asked), timeout=timeout)
            if answered:  # then all others that are there too
                answered, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=0)
        return [event for answer in answered for event in self._hear(asked[answer])]

    def _hear(self, worker: _Worker) -> list[Event]:
        try:
            with in_reach():
                answer: list[Event | Files] = self._ray.get(worker.answer)
        except self._ray.exceptions.RayError as error:
            return self._lose(worker, error)
        self._stillborn = 0
        worker.ask()
        events: list[Event] = []
        for event in answer:
            assert worker.job is not None
            if isinstance(event, Files):
                event.unpack(Path(worker.job.run_dir))
                continue
            events.append(event)
            if not isinstance(event, EpochDone):
                unmark(worker.job)
                worker.job = None
                self._relieve(worker)
        return events

    def _relieve(self, worker: _Worker) -> None:
        """Give an idle worker the job of one that does not run yet, and may be waiting for its very place."""
        for other in self._workers:
            if other.job is not None and not other.ready:
                worker.take(other.job)
                other.job = None
                return

    def _lose(self, worker: _Worker, error: Exception) -> list[Event]:
        """What the loss of a worker means for its job."""
        self._workers.remove(worker)
        self._kill(worker)  # it may be out of reach only
        if getattr(error, "actor_init_failed", False):
            raise MlapError(f"a Ray worker cannot start: {last_line(error)}")
        if worker.job is None:
            return []
        unavailable = isinstance(error, self._ray.exceptions.ActorUnavailableError)
        reason = f"the Ray worker is gone ({'it does not answer' if unavailable else last_line(error)})"
        if worker.ready:
            return [Died(worker.job.hash, reason)]
        # It never came to its job, so the job is not to blame.
        self._stillborn += 1
        if self._stillborn >= _MOST_STILLBORN:
            raise MlapError(f"Ray workers die when they start: {last_line(error)}")
        self.submit(worker.job)
        return []

    def _kill(self, worker: _Worker) -> None:
        with suppress(Exception):  # however it is gone, it is gone
            self._ray.kill(worker.actor)

    def close(self) -> None:
        """Stop all workers at once; leave the cluster, and end it if it was started here."""
        for worker in self._workers:
            self._kill(worker)
        self._workers.clear()
        if self._connected_here:
            self._connected_here = False
            self._ray.shutdown()


class _Worker:
    """A worker, seen from the driver."""

    def __init__(self, actor: Any, token: str) -> None:
        self.actor = actor
        self.job: Job | None = None
        self.ready = False
        self.answer = actor.hello.remote()
        self._token = token

    def take(self, job: Job) -> None:
        """Do a job, as soon as the worker is ready."""
        self.job = job
        if self.ready:
            self.actor.give.remote(job, self._token)

    def ask(self) -> None:
        """Ask the next question, after the last one was answered."""
        if not self.ready:
            self.ready = True
            if self.job is not None:
                self.take(self.job)
        self.answer = self.actor.events.remote()


def room(nodes: Iterable[Mapping[str, float]], cpus: float, gpus: float) -> int:
    """How many runs fit on nodes with the given resources. A fraction of a GPU is one of a single GPU.

    >>> room([{"CPU": 8, "GPU": 2}, {"CPU": 2}], cpus=1, gpus=0.4)
    4
    """
    total = 0
    for node in nodes:
        limits = []
        if cpus:
            limits.append(_times(node.get("CPU", 0), cpus))
        if gpus:
            whole = node.get("GPU", 0)
            limits.append(_times(whole, gpus) if gpus >= 1 else int(whole) * _times(1, gpus))
        total += min(limits)
    return total


def _times(whole: float, part: float) -> int:
    """How often a part goes into a whole, in the ten-thousandths in which Ray counts."""
    return round(whole * 10_000) // round(part * 10_000)


def _check_share(cpus: float, gpus: float) -> None:
    for name, value in (("cpus", cpus), ("gpus", gpus)):
        if not 0 <= value < math.inf or 0 < value < 1e-4:
            raise UsageError(f"{{field}} must be 0 or at least 0.0001, got {value:g}", field=name)
        if value > 1 and value != int(value):
            raise UsageError(f"{{field}} must be a whole number where it is more than 1, got {value:g}", field=name)
    if not cpus and not gpus:
        raise UsageError("a run must reserve something: its CPUs and GPUs are both 0", field="cpus", suggest=1)


def _size(graphs: GraphSet) -> int:
    features = [kind.values for kind in (graphs.node_features, graphs.edge_features) if kind is not None]
    return sum(array.nbytes for array in (graphs.node_ptr, graphs.edge_ptr, graphs.edges, *features))
