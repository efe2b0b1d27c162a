"""What a sweep or a search is told beside its plan: which data, which study, and where runs are trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlap.errors import UsageError, unknown
from mlap.graphs import GraphSet
from mlap.study.engine import Engine
from mlap.study.local_engine import LocalEngine, whole_threads
from mlap.study.ray_engine import RayEngine

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class SweepSettings:
    """The settings of a sweep or a search.

    Args:
        source: the data, as `mlap.graphs.sources.load_graphs` takes it.
        study: the study file; made if there is none. Unfinished runs live in the folder `STUDY.runs` beside it.
        options: how to read the data, as `load_graphs` takes it.
        data_root: where data sets lie.
        device: the torch device of every run.
        retry_failed: run those again that failed before.
        keep_models: keep the run directories (without what only resuming needs), to look inside their networks.
        wait: wait for another sweep on this study to end, rather than raise.
    """

    source: str
    study: str | Path
    options: Mapping[str, Any] = field(default_factory=dict)
    data_root: str | Path | None = None
    device: str = "cpu"
    retry_failed: bool = False
    keep_models: bool = False
    wait: bool = False


@dataclass(frozen=True)
class EngineSettings:
    """Where runs are trained, and how many at once. What is `None` is the engine's own default.

    Args:
        engine: `local` for processes on this machine, `ray` for a Ray cluster.
        workers: how many runs at once.
        cpus: processors, and so threads, of a run.
        gpus: GPUs that a run reserves, on Ray; may be a fraction.
        address: of the Ray cluster; see `mlap.study.RayEngine`.
    """

    engine: str = "local"
    workers: int | None = None
    cpus: float | None = None
    gpus: float | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES, "engine")
        if self.engine == "ray":
            return
        for name in ("address", "gpus"):
            if getattr(self, name) is not None:
                raise UsageError(f"{{field}} = {getattr(self, name)} is for the engine ray only", field=name)
        whole_threads(1 if self.cpus is None else self.cpus)

    def device(self, asked: str) -> str:
        """The device of every run. What this machine has says nothing about the nodes of a cluster.

        Args:
            asked: `auto`, or a torch device.

        Returns:
            On Ray the device that a run reserves: it sees no other. Else what was asked for.
        """
        if self.engine == "local":
            return asked
        reserved = "cuda" if self.gpus else "cpu"
        if asked not in ("auto", reserved):
            raise UsageError(
                f"{{field}} = {asked}: on Ray, a run that reserves a GPU computes on it, and any other on a CPU",
                field="device",
                suggest="auto",
            )
        return reserved

    def start(self, graphs: GraphSet, device: str) -> Engine:
        """The engine. On a GPU, which all local workers would share, there is one worker unless told otherwise.

        Args:
            graphs: the data of the jobs.
            device: the device of every run.
        """
        given = {name: getattr(self, name) for name in ("cpus", "gpus", "address")}
        given = {name: value for name, value in given.items() if value is not None}
        if self.engine == "local":
            return LocalEngine(self.workers or (None if device == "cpu" else 1), **given)
        return RayEngine(workers=self.workers, graphs=graphs, **given)
