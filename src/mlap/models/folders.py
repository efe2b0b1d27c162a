"""The directory of a model: what lies in it, and when it may be written."""

from __future__ import annotations

from pathlib import Path

from mlap.errors import UsageError
from mlap.training.run import CONFIG, remove_run

ENSEMBLE = "ensemble.json"


def holds_model(path: Path) -> bool:
    """Whether a folder holds a model, finished or not."""
    return (path / CONFIG).exists() or (path / ENSEMBLE).exists()


def make_folder(path: Path, overwrite: bool = False) -> None:
    """An empty folder for a model; one that holds something else is an error."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, where {{field}} should be a folder", "out")
    if holds_model(path):
        if not overwrite:
            raise UsageError(f"{path} already holds a model; choose another folder for {{field}}", "out")
        remove_model(path)
    if path.is_dir() and any(path.iterdir()):
        raise UsageError(f"{path} is neither empty nor a model; choose another folder for {{field}}", "out")
    path.mkdir(parents=True, exist_ok=True)


def remove_model(path: Path) -> None:
    """Remove the files of a model and of its members; whatever else lies in the folder stays."""
    (path / ENSEMBLE).unlink(missing_ok=True)  # first: what is left of half a removal is no model
    for member in sorted(path.glob("member-*")):
        remove_model(member)
        if not any(member.iterdir()):
            member.rmdir()
    remove_run(path)
