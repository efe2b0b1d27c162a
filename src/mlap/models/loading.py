"""`mlap.load`: a model from its directory, whatever kind it is."""

from __future__ import annotations

from pathlib import Path

from mlap.errors import DataError, UsageError, short
from mlap.models.baseline import Baseline
from mlap.models.calibrated import Calibrated
from mlap.models.ensemble import Ensemble
from mlap.models.folders import ENSEMBLE
from mlap.models.model import Model
from mlap.models.run import Run
from mlap.training.run import CONFIG, read_config


def load(path: str | Path, device: str = "cpu") -> Model:
    """Read a model from its directory. Nothing in the files is executed.

    Args:
        path: the directory of a run, a baseline or an ensemble.
        device: where networks compute: a torch device, or `auto`.
    """
    path = Path(path)
    model = _load(path, device)
    model.calibrated = Calibrated.read(path, model.task)
    return model


def load_run(path: str | Path, device: str = "cpu") -> Run:
    """Read a trained network; another kind of model is an error."""
    model = load(path, device)
    if not isinstance(model, Run):
        raise UsageError(f"{path} holds a model of the kind {model.kind}; expected a single network", "model")
    return model


def _load(path: Path, device: str) -> Model:
    if (path / ENSEMBLE).exists():
        return Ensemble.read(path, lambda member: load(member, device))
    config = read_config(path)
    kind = config.get("kind", "run")  # before 0.2 there was no other kind
    if kind == "run":
        return Run.read(path, config, device)
    if kind == "baseline":
        return Baseline.read(path, config)
    raise DataError(f"{path / CONFIG} is of a model of the kind {short(kind)}; known are run and baseline")
