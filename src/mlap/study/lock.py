"""One sweep per study."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mlap.errors import MlapError, UsageError
from mlap.locking import locked


@contextmanager
def hold(study: Path, *, wait: bool = False, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock of a study, the file `STUDY.lock` beside it; the file is gone afterwards.

    The study's folder is made if there is none.

    Args:
        study: the study.
        wait: wait for another sweep to end, rather than raise.
        on_wait: called once, with who holds the lock, before waiting.
    """
    path = study.with_name(f"{study.name}.lock")

    def busy() -> None:
        nonlocal on_wait
        holder = _holder(path)
        if not wait:
            raise MlapError(f"{study} is in use by another sweep{holder}; wait for it (--wait), or stop it")
        if on_wait is not None:
            on_wait(holder)
            on_wait = None

    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = stack.enter_context(locked(path, busy))
        except OSError as error:
            raise UsageError(f"cannot lock the study with {path}: {error.strerror}") from error
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
        yield


def _holder(path: Path) -> str:
    try:
        return f" ({path.read_text()})"
    except OSError:
        return ""
