"""The process of a local worker: jobs come in on stdin, events go out on stdout, one JSON object per line.

The driver holds the other end of stdin. When it is gone, however it went, the pipe closes and the worker exits.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any, TextIO


def main() -> None:
    """Run jobs until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver decides what it means
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not print between the events
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin, jobs), daemon=True).start()

    import torch

    from mlap.study.engine import Disturbed, Done, EpochDone, Failed, Job
    from mlap.study.job_runner import JobRunner

    def send(event: EpochDone | Done | Failed | Disturbed) -> None:
        out.write(json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n")

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    runner = JobRunner()
    out.write(json.dumps({"event": "Ready"}) + "\n")
    while True:
        send(runner.run(Job(**jobs.get()), send))


def _receive(lines: TextIO, jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in lines:
        jobs.put(json.loads(line))
    os._exit(0)  # at once, wherever training is: the run directory is whole at any moment
