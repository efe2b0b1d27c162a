"""One sweep per study: a lock that the operating system takes back when its holder dies, however it dies."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlap.errors import MlapError, UsageError


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _acquire(path)
        while descriptor is None:
            holder = _holder(path)
            if not wait:
                raise MlapError(f"{study} is in use by another sweep{holder}; wait for it (--wait), or stop it")
            if on_wait is not None:
                on_wait(holder)
                on_wait = None
            time.sleep(0.2)
            descriptor = _acquire(path)
    except OSError as error:
        raise UsageError(f"cannot lock the study with {path}: {error.strerror}") from error
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
        yield
    finally:
        with suppress(OSError):  # Windows does not remove an open file; it stays, and does no harm
            path.unlink()
        os.close(descriptor)


def _acquire(path: Path) -> int | None:
    """An open, locked lock file, or `None` if another process has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if not _try_lock(descriptor):
            os.close(descriptor)
            return None
        # Its holder removes the file when it is done: what was opened before that is no longer what others will open.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def _holder(path: Path) -> str:
    try:
        return f" ({path.read_text()})"
    except OSError:
        return ""


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # beyond the text, which others may read
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
