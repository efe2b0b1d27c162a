"""The run directories of a sweep: where they lie, and what is left of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mlap.training.run import LAST

_GONE = "gone-"


class RunFolders:
    """The run directories beside a study, in the folder `STUDY.runs`.

    Args:
        study: the study file.
        keep_models: whether the directory of a finished run stays, without what only resuming needs.
    """

    def __init__(self, study: Path, keep_models: bool) -> None:
        # Absolute: a worker may have another current folder.
        self.path = study.absolute().with_name(f"{study.name}.runs")
        self._keep_models = keep_models

    def of(self, hash: str) -> Path:
        """The directory of a run."""
        return self.path / hash

    def clean(self, hash: str) -> None:
        """Clear up after a run that is done."""
        folder = self.path / hash
        if self._keep_models:
            for left in folder.glob(".*"):  # half-written files of a worker that was killed
                left.unlink(missing_ok=True)
            (folder / LAST).unlink(missing_ok=True)
            return
        gone = self.path / f"{_GONE}{hash}"
        with suppress(FileNotFoundError):
            folder.rename(gone)  # in one step: what is left of half a removal must not look like a kept model
        shutil.rmtree(gone, ignore_errors=True)

    def clean_all(self, done: Iterable[str]) -> None:
        """Clear up what a driver left that was killed while it did."""
        for gone in self.path.glob(f"{_GONE}*"):
            shutil.rmtree(gone, ignore_errors=True)
        for hash in done:
            if (self.path / hash / LAST).exists():
                self.clean(hash)

    def remove_if_empty(self) -> None:
        """Remove the folder if nothing is left in it."""
        with suppress(OSError):
            self.path.rmdir()
