"""What the two kinds of `mlap sweep`, a grid and a search, have in common."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlap.cli.common import note

if TYPE_CHECKING:
    from mlap.graphs import GraphSet
    from mlap.study import Engine, EngineSettings, SweepSettings


@dataclass(frozen=True)
class SweepCall:
    """What the user asked for, beside the plan."""

    graphs: GraphSet
    settings: SweepSettings
    engine: EngineSettings
    dry_run: bool
    as_json: bool
    silent: bool

    @property
    def study(self) -> Path:
        """The study file."""
        return Path(self.settings.study)

    @property
    def timing_device(self) -> str:
        """Where networks are timed for an estimate: on this machine, which need not have what a cluster has."""
        import torch

        on_cluster = self.engine.engine == "ray" and not torch.cuda.is_available()
        return "cpu" if on_cluster else self.settings.device

    def start(self) -> Engine:
        """The engine, which the sweep closes."""
        return self.engine.start(self.graphs, self.settings.device)

    def capacity(self) -> int:
        """How many runs there would be at once."""
        with closing(self.start()) as engine:
            return engine.capacity

    def on_wait(self, holder: str) -> None:
        """Say that another sweep is waited for."""
        note(f"waiting for another sweep on {self.study} ({holder})", self.silent)


@dataclass(frozen=True)
class Answer:
    """What a sweep ends with: its content as JSON, and whether something failed."""

    content: dict[str, Any]
    failed: bool = False

    def beside(self, baselines: Answer | None) -> Answer:
        """With what became of the baselines, if there are any."""
        if baselines is None:
            return self
        return Answer({**self.content, **baselines.content}, self.failed or baselines.failed)
