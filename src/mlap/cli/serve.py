"""`mlap serve`: the explorer, where people look into a model."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlap.cli.common import DataRoot, Device, ModelPath, Quiet, Threads, load_model, note, use_threads
from mlap.errors import MlapError, UsageError
from mlap.progress import steps_bar

if TYPE_CHECKING:
    from mlap.graphs import GraphSet
    from mlap.graphs.progress import Progress
    from mlap.models import Model

CONFIDENCE = 0.9


def serve(
    model: ModelPath,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET", help="Compare answers with these graphs.  [default: the data that MODEL was trained on]"
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help="Of sets and intervals, such as 0.9.  [default: 0.9 of a calibrated model, none of others]"),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    api_only: Annotated[bool, typer.Option("--api-only", help="Serve the JSON API and no page.")] = False,
    threads: Threads = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Open the explorer: ask a model about molecules, see which atoms mattered at which level, map its data.

    The page and its JSON API are served on this machine, to this machine. Nothing is sent elsewhere, and nothing that
    you paste is kept. Ctrl-C ends it.

    \b
    Examples:
      mlap serve runs/mine --open
      mlap serve runs/mine --data other-molecules.csv --port 8000
      mlap serve runs/mine --api-only
    """
    with interrupts_heard():
        from mlap import serve as explorer

        use_threads(threads)
        loaded = load_model(model, device, quiet)
        graphs, no_data = _data(loaded, data, data_root, quiet)
        if no_data:
            note(f"note: answers are not compared with training data: {no_data}", quiet)
        if confidence is None and loaded.calibrated is not None:
            confidence = CONFIDENCE
        explorer.serve(
            loaded,
            graphs,
            host=host,
            port=port,
            page=not api_only,
            browser=open_browser,
            no_data=no_data,
            confidence=confidence,
            on_start=lambda address: _say(address, api_only, quiet),
        )
        # The server has cleaned up. A thread that still computes would keep the interpreter from ending.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@contextmanager
def interrupts_heard() -> Iterator[None]:
    """Let Ctrl-C reach Python whatever a library does.

    RDKit puts its own handler in the place of Python's for the time of some calls, in any thread, so that an interrupt
    in that moment is lost. A signal that all threads block is kept, and the thread that waits for it takes it past all
    handlers. Threads inherit what they block: this is entered before a library begins any.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    ended = threading.Event()

    def pass_on() -> None:
        while signal.sigwait({signal.SIGINT}) and not ended.is_set():
            _thread.interrupt_main()

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    waiting = threading.Thread(target=pass_on, name="mlap-interrupts", daemon=True)
    waiting.start()
    try:
        yield
    finally:
        ended.set()
        signal.pthread_kill(waiting.ident, signal.SIGINT)  # type: ignore[arg-type]  # it has begun
        waiting.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _data(model: Model, data: str | None, root: Path | None, quiet: bool) -> tuple[GraphSet | None, str]:
    """The data set beside a model, or why there is none: only one that was asked for has to be there."""
    with steps_bar(quiet) as progress:
        if data is not None:
            return _other(model, data, root, progress, quiet), ""
        try:
            return model.data(root=root, progress=progress), ""
        except (MlapError, OSError) as error:
            return None, str(error)


def _other(model: Model, data: str, root: Path | None, progress: Progress | None, quiet: bool) -> GraphSet:
    """Data that the user names: with labels, if they have those that the model predicts."""
    try:
        return model.labelled(data, root=root, progress=progress)
    except UsageError as error:
        if error.field != "targets":
            raise
        note(f"note: {data} is shown without labels: {error}", quiet)
        return model.inputs(data, root=root, progress=progress).graphs


def _say(address: str, api_only: bool, quiet: bool) -> None:
    if api_only:
        address += "api/openapi.json"
    typer.echo(address)
    note("Press Ctrl-C to end.", quiet)
