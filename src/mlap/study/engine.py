"""What an engine is: it runs jobs somewhere, and tells the driver what becomes of them.

The driver submits jobs, never more at once than the engine's capacity, and reads events; it alone writes the study.
Jobs and events are made of plain numbers and text, so that they pass between processes and machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Job:
    """One run to be run.

    Args:
        hash: its identity.
        recipe: the fields of its recipe.
        source: the data, as `mlap.graphs.sources.load_graphs` takes it.
        options: how to read them, likewise.
        data_root: where data sets lie; `None` for the default.
        fingerprint: the identity of the data, which a worker checks.
        run_dir: the run directory, from which an interrupted run goes on.
        device: the torch device.
    """

    hash: str
    recipe: dict[str, Any]
    source: str
    options: dict[str, Any]
    data_root: str | None
    fingerprint: str
    run_dir: str
    device: str


@dataclass(frozen=True)
class EpochDone:
    """A job has finished an epoch (the fields of a `mlap.training.Epoch`)."""

    hash: str
    epoch: dict[str, Any]


@dataclass(frozen=True)
class Done:
    """A job is done: the fields of its `mlap.training.Result`, its epochs, and where it ran."""

    hash: str
    result: dict[str, Any]
    history: list[dict[str, Any]]
    host: str
    device: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Failed:
    """A job raised an error: its message in one line, and the traceback."""

    hash: str
    error: str
    traceback: str
    host: str


@dataclass(frozen=True)
class Died:
    """The process (or machine) that ran a job is gone; the job may be submitted again."""

    hash: str
    reason: str


@dataclass(frozen=True)
class Disturbed(Died):
    """A job could not read or write its files: the disk is full, say. It is not to blame, and may be run again."""


Event = EpochDone | Done | Failed | Died


class Engine(Protocol):
    """Runs jobs. Every submitted job ends with exactly one `Done`, `Failed` or `Died`."""

    @property
    def capacity(self) -> int:
        """How many jobs may be under way at once: one at least, and it may change."""

    def submit(self, job: Job) -> None:
        """Start a job."""

    def events(self, timeout: float) -> list[Event]:
        """What has happened since the last call; waits up to `timeout` seconds for something to happen."""

    def close(self) -> None:
        """Stop at once, for good. Jobs under way are abandoned; their run directories are whole."""
