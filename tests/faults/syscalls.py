"""Faults at the border to the operating system: the n-th write, fsync, open, rename, … of a command fails, or kills it.

The kernel asks us before each such call of a process and its children (seccomp's user notification, Linux 5.5 and
newer, no privileges needed). So the faults reach what C and Rust libraries write as well: SQLite, torch, pyarrow.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# ---- the calls that are watched --------------------------------------------------------------------------------------

OPEN, CREATE, WRITE, SYNC, RENAME, UNLINK, MKDIR, TRUNCATE = (
    "open to read",
    "open to write",
    "write",
    "fsync",
    "rename",
    "unlink",
    "mkdir",
    "truncate",
)

#: machine → call → number (the kernel's unistd.h)
_NUMBERS = {
    "x86_64": {
        "write": 1,
        "open": 2,
        "pwrite64": 18,
        "writev": 20,
        "sendfile": 40,
        "fsync": 74,
        "fdatasync": 75,
        "ftruncate": 77,
        "rename": 82,
        "mkdir": 83,
        "rmdir": 84,
        "unlink": 87,
        "openat": 257,
        "mkdirat": 258,
        "unlinkat": 263,
        "renameat": 264,
        "pwritev": 296,
        "renameat2": 316,
        "copy_file_range": 326,
    },
    "aarch64": {
        "mkdirat": 34,
        "unlinkat": 35,
        "renameat": 38,
        "ftruncate": 46,
        "openat": 56,
        "write": 64,
        "writev": 66,
        "pwrite64": 68,
        "pwritev": 70,
        "sendfile": 71,
        "fsync": 82,
        "fdatasync": 83,
        "renameat2": 276,
        "copy_file_range": 285,
    },
}
#: call → what it does, which argument is a descriptor or a folder's, and which one a path (`None`: the descriptor's)
_CALLS: dict[str, tuple[str, int | None, int | None]] = {
    "open": (OPEN, None, 0),
    "openat": (OPEN, 0, 1),
    "write": (WRITE, 0, None),
    "writev": (WRITE, 0, None),
    "pwrite64": (WRITE, 0, None),
    "pwritev": (WRITE, 0, None),
    "sendfile": (WRITE, 0, None),
    "copy_file_range": (WRITE, 2, None),
    "fsync": (SYNC, 0, None),
    "fdatasync": (SYNC, 0, None),
    "ftruncate": (TRUNCATE, 0, None),
    "rename": (RENAME, None, 1),
    "renameat": (RENAME, 2, 3),
    "renameat2": (RENAME, 2, 3),
    "mkdir": (MKDIR, None, 0),
    "mkdirat": (MKDIR, 0, 1),
    "rmdir": (UNLINK, None, 0),
    "unlink": (UNLINK, None, 0),
    "unlinkat": (UNLINK, 0, 1),
}
_SECCOMP = {"x86_64": 317, "aarch64": 277}

# ---- constants of linux/seccomp.h, linux/filter.h and linux/prctl.h --------------------------------------------------

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NOTICE = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, number, architecture, instruction, arguments
_ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_AT_FDCWD = -100


def available() -> bool:
    """Whether faults can be injected on this machine."""
    try:
        actions = Path("/proc/sys/kernel/seccomp/actions_avail").read_text().split()
    except OSError:
        return False
    return sys.platform == "linux" and platform.machine() in _NUMBERS and "user_notif" in actions


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Args:
        name: for people.
        error: what the call answers, an errno; `None` kills the process that calls.
        kinds: the calls that it can hit.
        sticky: whether all later calls fail as well: a full disk stays full.
    """

    name: str
    error: int | None
    kinds: frozenset[str]
    sticky: bool = False


FULL = Fault("ENOSPC", errno.ENOSPC, frozenset({CREATE, WRITE, SYNC, MKDIR, TRUNCATE, RENAME}), sticky=True)
BROKEN = Fault("EIO", errno.EIO, frozenset({OPEN, CREATE, WRITE, SYNC, RENAME, UNLINK, MKDIR, TRUNCATE}))
FORBIDDEN = Fault("EACCES", errno.EACCES, frozenset({OPEN, CREATE, RENAME, UNLINK, MKDIR}))
KILL = Fault("SIGKILL", None, frozenset({CREATE, WRITE, SYNC, RENAME, UNLINK, MKDIR, TRUNCATE}))
NONE = Fault("none", 0, KILL.kinds)


@dataclass
class Watched:
    """How a watched process ended.

    Args:
        code: its exit code; minus the signal that ended it.
        calls: how many calls the fault could have hit.
        hit: what it hit: the call's kind and the file; empty if nothing.
        hung: whether it was ended because it took too long.
    """

    code: int = 0
    calls: int = 0
    hit: list[str] = field(default_factory=list)
    hung: bool = False


def watch(
    work: Callable[[], int],
    folder: Path,
    fault: Fault,
    number: int,
    *,
    moment: float | None = None,
    signal_: int = signal.SIGKILL,
    seconds: float = 120,
) -> Watched:
    """Run something in a forked process, in which the `number`-th call that touches `folder` goes wrong.

    Args:
        work: what to do; its exit code.
        folder: where faults happen.
        fault: which.
        number: counted from 1; 0 for none.
        moment: after so many seconds the process, but not its children, gets a signal.
        signal_: which.
        seconds: a process that takes longer is killed, with its children.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setpgid(0, 0)
            ours.close()
            listener = _install()
            socket.send_fds(theirs, [b"."], [listener])
            theirs.recv(1)  # the supervisor has it
            os.close(listener)
            theirs.close()
            code = work()
        finally:
            os._exit(code)
    theirs.close()
    with ours:
        _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
        ours.sendall(b".")
    result = Watched()
    try:
        alarm = None if moment is None else threading.Timer(moment, _send, (child, signal_))
        if alarm is not None:
            alarm.start()
        _supervise(listener, child, folder, fault, number, time.monotonic() + seconds, result)
        if alarm is not None:
            alarm.cancel()  # before its number is given to another process
            alarm.join()
    finally:
        os.close(listener)
    _, status = os.waitpid(child, 0)
    result.code = os.waitstatus_to_exitcode(status)
    return result


def _install() -> int:
    """Ask for a notice of every watched call of this process and its children; the descriptor of the notices."""
    numbers = _NUMBERS[platform.machine()].values()
    program = [(_LOAD, 0, 0, 0)]
    for left, number in zip(range(len(numbers) - 1, -1, -1), numbers, strict=True):
        program.append((_JUMP_IF_EQUAL, left + 1, 0, number))
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    listener: int = libc.syscall(_SECCOMP[platform.machine()], _SET_MODE_FILTER, _NEW_LISTENER, header)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


def _supervise(listener: int, child: int, folder: Path, fault: Fault, number: int, end: float, result: Watched) -> None:
    """Answer notices until no process is left that could send one."""
    names = {number: name for name, number in _NUMBERS[platform.machine()].items()}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    root = f"{folder}/"
    while True:
        ready = poll.poll(1000)
        if time.monotonic() > end and not result.hung:
            result.hung = True
            os.killpg(child, signal.SIGKILL)
        if not ready:
            continue
        if not ready[0][1] & select.POLLIN:
            return
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
        except OSError:  # whoever asked has just been killed
            continue
        identity, pid, _, call, _, _, *arguments = _NOTICE.unpack(notice)
        kind, path = _described(names[call], pid, arguments)
        error = 0
        if kind in fault.kinds and path.startswith(root):
            result.calls += 1
            if number and (result.calls == number or (fault.sticky and result.calls > number)):
                result.hit.append(f"{kind} {path.removeprefix(root)}")
                if fault.error is None:
                    _kill(pid)
                    continue
                error = fault.error
        answer = _ANSWER.pack(identity, 0, -error, 0 if error else _CONTINUE)
        try:
            fcntl.ioctl(listener, _SEND, answer)
        except OSError:
            continue


def _described(name: str, pid: int, arguments: list[int]) -> tuple[str, str]:
    """What a call does, and to which file; an empty path if it does nothing that could fail."""
    kind, descriptor, place = _CALLS[name]
    try:
        if place is None:
            assert descriptor is not None
            return kind, os.readlink(f"/proc/{pid}/fd/{_signed(arguments[descriptor])}")
        path = _text(pid, arguments[place])
        if not path.startswith("/"):
            at = _AT_FDCWD if descriptor is None else _signed(arguments[descriptor])
            base = os.readlink(f"/proc/{pid}/cwd" if at == _AT_FDCWD else f"/proc/{pid}/fd/{at}")
            path = os.path.join(base, path)
        path = os.path.normpath(path)
        if kind == OPEN:
            flags = arguments[place + 1]
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                kind = CREATE
            elif not os.path.lexists(path):
                return kind, ""
        elif kind in (UNLINK,) and not os.path.lexists(path):
            return kind, ""
        return kind, path
    except (OSError, UnicodeDecodeError):
        return kind, ""


def _signed(value: int) -> int:
    return ctypes.c_int(value & 0xFFFFFFFF).value


def _text(pid: int, address: int) -> str:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        text = b""
        while b"\0" not in text:
            # not beyond the page's end: the next one may not be there
            block = memory.read(4096 - (address + len(text)) % 4096)
            if not block:
                break
            text += block
    return text.partition(b"\0")[0].decode()


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill(thread: int) -> None:
    """Kill the process of a thread."""
    for line in Path(f"/proc/{thread}/status").read_text().splitlines():
        if line.startswith("Tgid:"):
            os.kill(int(line.split()[1]), signal.SIGKILL)
