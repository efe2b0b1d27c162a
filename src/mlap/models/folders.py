"""The directory of a model: what lies in it, and when it may be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlap.errors import UsageError
from mlap.files import aside, remove, remove_abandoned
from mlap.training.run import CONFIG, remove_run

ENSEMBLE = "ensemble.json"


def holds_model(path: Path) -> bool:
    """Whether a folder holds a model, finished or not."""
    return (path / CONFIG).exists() or (path / ENSEMBLE).exists()


def check_folder(path: Path, overwrite: bool = False) -> None:
    """Raise unless a model may be written to this folder: it is not there, or empty, or holds a model to replace."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, where {{field}} should be a folder", "out")
    if holds_model(path):
        if not overwrite:
            raise UsageError(f"{path} already holds a model; choose another folder for {{field}}", "out")
    elif path.is_dir() and any(not _is_ours(entry) for entry in path.iterdir()):
        raise UsageError(f"{path} is neither empty nor a model; choose another folder for {{field}}", "out")


@contextmanager
def new_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write a model into, which gets its name when the block ends: it is there whole, or not at all.

    A model that is there is removed then. Whatever else lies in its folder stays.
    """
    check_folder(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    made = aside(path)
    try:
        made.mkdir()
        yield made
        if path.is_dir():
            remove_model(path)
            with suppress(OSError):
                path.rmdir()
        if path.is_dir():
            for entry in sorted(made.iterdir(), key=lambda entry: entry.name in (CONFIG, ENSEMBLE)):
                os.replace(entry, path / entry.name)
        else:
            os.rename(made, path)
    except OSError as error:
        if error.filename is not None:  # nobody asked for the other name
            error.filename = str(error.filename).replace(str(made), str(path))
        raise
    finally:
        remove(made)


def _is_ours(entry: Path) -> bool:
    """Whether something is left of a model that was being removed."""
    return entry.name.startswith(".") or (entry.is_dir() and entry.name.startswith("member-"))


def remove_model(path: Path) -> None:
    """Remove the files of a model and of its members; whatever else lies in the folder stays."""
    (path / ENSEMBLE).unlink(missing_ok=True)  # first: what is left of half a removal is no model
    for member in sorted(path.glob("member-*")):
        remove_model(member)
        if not any(member.iterdir()):
            member.rmdir()
    remove_run(path)
