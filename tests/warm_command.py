"""`mlap` for shell scripts of the tests, started at once: a process that has imported everything forks for every call.

A call runs the real command in a process of its own, with the caller's folder, arguments and open files. Only the
import of torch, some seconds each time, is spared.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: what the verbs import when they run
_ROOMS = (
    "mlap.models",
    "mlap.report",
    "mlap.study",
    "mlap.analysis",
    "sklearn.metrics",
    "matplotlib.pyplot",
    "rdkit.Chem",
)

_CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()], [0, 1, 2])
sys.exit(int(server.recv(16) or 70))
"""


@contextlib.contextmanager
def warm_command() -> Iterator[Path]:
    """A folder for `PATH` with a command `mlap`."""
    folder = Path(tempfile.mkdtemp(prefix="mlap-"))  # not pytest's: the address of a socket has at most 100 characters
    address = str(folder / "socket")
    server = subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        with server.stdout:
            assert server.stdout.readline() == b"ready\n"
        client = folder / "mlap"
        client.write_text(_CLIENT.format(python=sys.executable, address=address))
        client.chmod(0o755)
        yield folder
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


def _serve(address: str) -> None:
    for room in _ROOMS:
        __import__(room)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for: they answer the caller themselves
    print("ready", flush=True)
    while True:
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(caller)
            return  # the interpreter ends as usual, and with it the processes that the call started
        caller.close()


def _answer(caller: socket.socket) -> None:
    """Run one call in this process, and say its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, files, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    arguments, folder, environment = json.loads(message)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["mlap", *arguments]
    code = 70
    try:
        from mlap.cli import main

        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        caller.sendall(str(code).encode())


if __name__ == "__main__":
    _serve(sys.argv[1])
