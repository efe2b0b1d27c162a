"""Where the run directories of a sweep live."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mlap.training.run import LAST


class Workplace:
    """The folder of the run directories beside a study, `STUDY.runs`.

    Args:
        study: the study file.
        keep_models: whether the directory of a finished run stays, without what only resuming needs.
    """

    def __init__(self, study: Path, keep_models: bool) -> None:
        # Absolute: a worker may have another current folder.
        self.path = study.absolute().with_name(f"{study.name}.runs")
        self._keep_models = keep_models

    def __truediv__(self, hash: str) -> Path:
        return self.path / hash

    def tidy(self, hash: str) -> None:
        """Clear up after a run that is done."""
        if not self._keep_models:
            shutil.rmtree(self.path / hash, ignore_errors=True)
            return
        (self.path / hash / LAST).unlink(missing_ok=True)
        for left in self.path.glob(f"{hash}/.*"):  # half-written files of a worker that was killed
            left.unlink(missing_ok=True)

    def tidy_all(self, done: Iterable[str]) -> None:
        """Clear up after runs that were done just before an earlier driver was killed."""
        for hash in done:
            if (self.path / hash / LAST).exists():
                self.tidy(hash)

    def close(self) -> None:
        """Remove the folder if nothing is left in it."""
        with suppress(OSError):
            self.path.rmdir()
