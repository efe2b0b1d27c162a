"""Locks that the operating system takes back when their holder dies, however it dies."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mlap.errors import MlapError, UsageError


@contextmanager
def locked(path: Path, on_busy: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold the lock file `path`, once whoever has it lets go of it; the file is gone afterwards.

    Args:
        path: the file, in a folder that exists.
        on_busy: called as often as the lock is found taken; waiting ends if it raises.

    Yields:
        The descriptor of the file, for something to be written into it.
    """
    while (descriptor := _acquire(path)) is None:
        if on_busy is not None:
            on_busy()
        time.sleep(0.2)
    try:
        yield descriptor
    finally:
        with suppress(OSError):  # Windows does not remove an open file; it stays, and does no harm
            path.unlink()
        os.close(descriptor)


@contextmanager
def locked_study(study: Path, *, wait: bool = False, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock of a study, the file `STUDY.lock` beside it: one sweep at a time writes to a study.

    The study's folder is made if there is none.

    Args:
        study: the study.
        wait: wait for another sweep to end, rather than raise.
        on_wait: called once before waiting, with who holds the lock: `process 123 on machine`.
    """
    path = study.with_name(f"{study.name}.lock")

    def busy() -> None:
        nonlocal on_wait
        holder = _holder(path)
        if not wait:
            raise MlapError(f"{study} is in use by another sweep ({holder})", field="wait", suggest=True)
        if on_wait is not None:
            on_wait(holder)
            on_wait = None

    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = stack.enter_context(locked(path, busy))
        except OSError as error:
            raise UsageError(f"cannot lock the study with {path}: {error.strerror}", field="study") from error
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
        yield


def _holder(path: Path) -> str:
    with suppress(OSError):
        if text := path.read_text():
            return text
    return "it has just begun"


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
