"""Where runs are trained: what goes together, and what an engine is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from study_tools import InProcessEngine, tiny_graphs, tiny_plan

from mlap.errors import MlapError, UsageError
from mlap.graphs import synthetic
from mlap.locking import locked_study
from mlap.study import EngineSettings, LocalEngine, SweepSettings, sweep
from mlap.study.engine import Event, Job


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"engine": "spark"}, "engine"),
        ({"address": "auto"}, "address"),
        ({"gpus": 0.5}, "gpus"),
        ({"cpus": 0.5}, "cpus"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        EngineSettings(**given)
    assert caught.value.field == field


def test_the_device_of_a_run() -> None:
    assert EngineSettings().device("cuda:1") == "cuda:1"
    assert EngineSettings("ray").device("auto") == "cpu"
    assert EngineSettings("ray", gpus=0.25).device("auto") == EngineSettings("ray", gpus=1).device("cuda") == "cuda"
    for settings, asked in ((EngineSettings("ray"), "cuda"), (EngineSettings("ray", gpus=1), "cpu")):
        with pytest.raises(UsageError) as caught:
            settings.device(asked)
        assert (caught.value.field, caught.value.suggest) == ("device", "auto")


def test_local_workers() -> None:
    graphs = synthetic(2)
    assert EngineSettings(workers=3).start(graphs, "cpu").capacity == 3
    assert EngineSettings(workers=3).start(graphs, "cuda").capacity == 3
    assert EngineSettings().start(graphs, "cuda").capacity == 1  # all would share one GPU
    assert EngineSettings().start(graphs, "cpu").capacity == LocalEngine().capacity


class Closing(InProcessEngine):
    """An engine that says, when it is closed, whether the study was still held."""

    def __init__(self, study: Path, **options: Any) -> None:
        super().__init__(**options)
        self.held: list[bool] = []
        self._lock = study.with_name(f"{study.name}.lock")

    def close(self) -> None:
        super().close()
        self.held.append(self._lock.exists())


@pytest.mark.parametrize("fails", [False, True])
def test_an_engine_is_closed_once_and_before_another_sweep_may_begin(tmp_path: Path, fails: bool) -> None:
    source, graphs = tiny_graphs(tmp_path)

    def instead(job: Job) -> Event | None:
        if fails:
            raise KeyboardInterrupt
        return None

    engine = Closing(tmp_path / "s.db", instead=instead)
    try:
        sweep(tiny_plan(), SweepSettings(source, tmp_path / "s.db"), engine=engine, graphs=graphs)
    except KeyboardInterrupt:
        assert fails
    assert engine.held == [True]


def test_an_engine_is_closed_where_the_study_is_in_use(tmp_path: Path) -> None:
    source, graphs = tiny_graphs(tmp_path)
    engine = InProcessEngine()
    with locked_study(tmp_path / "s.db"), pytest.raises(MlapError, match="in use") as caught:
        sweep(tiny_plan(), SweepSettings(source, tmp_path / "s.db"), engine=engine, graphs=graphs)
    assert (caught.value.field, caught.value.suggest) == ("wait", True)
    assert engine.closed
