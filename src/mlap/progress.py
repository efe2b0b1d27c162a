"""Progress on a terminal or in a notebook. The rooms report through callbacks; every bar is drawn here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from mlap.names import METRICS


class DoneEpoch(Protocol):
    """What a bar shows of an epoch; `mlap.training.Epoch` is one."""

    @property
    def epoch(self) -> int:
        """Its number, from 1."""

    @property
    def train_loss(self) -> float:
        """The mean training loss."""

    @property
    def valid_score(self) -> float:
        """The validation score."""

    @property
    def seconds(self) -> float:
        """How long it took."""


OnEpoch = Callable[[DoneEpoch], None]
OnStep = Callable[[int, int], None]


def shows_progress(wanted: bool | None = None) -> bool:
    """Whether to draw bars: as wanted, else where somebody can see them, in a terminal or a notebook."""
    return (sys.stderr.isatty() or _in_notebook()) if wanted is None else wanted


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel, known without importing IPython."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _bar(*columns: Any, transient: bool) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    console = Console() if _in_notebook() else Console(stderr=True)
    return Progress(*columns, console=console, transient=transient)


@contextmanager
def steps_bar(silent: bool) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A progress bar for work of named steps, called with (what, done, total); `None` where nobody would see it."""
    if silent or not shows_progress():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with _bar(*columns, transient=True) as progress:
        bar = progress.add_task("", total=None)
        yield lambda what, done, total: progress.update(bar, description=what, completed=done, total=total)


@contextmanager
def rows_bar(
    silent: bool, lines: Callable[[str], None] | None = None
) -> Iterator[Callable[[int, int, int | None], None] | None]:
    """A progress bar for the rows of a table, called with (done, of them before this call, total).

    Args:
        silent: whether to show nothing.
        lines: prints a line each time instead, where nobody would see a bar.
    """
    if silent or (lines is None and not shows_progress()):
        yield None
        return
    started = time.monotonic()

    def summary(done: int, before: int, total: int | None) -> str:
        of = "" if total is None else f" of {max(done, total):,}"
        if done == before:
            return f"{done:,}{of} rows"
        rate = (done - before) / max(1e-9, time.monotonic() - started)
        left = "" if total is None else f", {duration(max(0, total - done) / rate)} left"
        return f"{done:,}{of} rows, {rate:,.0f} rows/s{left}"

    if lines is not None and not shows_progress():
        print_line = lines
        yield lambda done, before, total: print_line(summary(done, before, total))
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    with _bar(BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}"), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, before, total: bar.update(
            task, description=summary(done, before, total), completed=done, total=total
        )


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(8), duration(100), duration(4000), duration(200_000)
    ('8 s', '1 min 40 s', '1 h 6 min', '2 d 7 h')
    """
    whole = round(seconds)
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {small_unit}"
    return f"{whole} s"


@contextmanager
def training_bar(
    epochs: int, metric: str, *, silent: bool, lines: Callable[[str], None] | None = None
) -> Iterator[tuple[OnEpoch | None, OnStep | None]]:
    """The `on_epoch` and `on_step` of training that show a bar.

    Args:
        epochs: how many there will be at most.
        metric: the validation score.
        silent: whether to show nothing.
        lines: prints a line for each epoch instead, where nobody would see a bar.
    """
    if silent:
        yield None, None
        return
    best: list[tuple[float, int]] = []
    sign = -1 if METRICS[metric].higher_is_better else 1

    def summary(done: DoneEpoch) -> str:
        best.append((sign * done.valid_score, done.epoch))
        score, epoch = min(best)
        return (
            f"loss {done.train_loss:.4f}  validation {METRICS[metric].label} {done.valid_score:.4f}"
            f"  (best {sign * score:.4f} in epoch {epoch})"
        )

    if lines is not None and not shows_progress():
        print_line = lines
        yield lambda done: print_line(f"epoch {done.epoch}/{epochs}  {summary(done)}  {done.seconds:.1f} s"), None
        return

    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[summary]}"),
    )
    with _bar(*columns, transient=False) as progress:
        bar = progress.add_task("", total=epochs, epoch=1, epochs=epochs, summary="")
        finished = 0

        def on_epoch(done: DoneEpoch) -> None:
            nonlocal finished
            finished = done.epoch
            progress.update(bar, completed=finished, epoch=min(finished + 1, epochs), summary=summary(done))

        def on_step(step: int, steps: int) -> None:
            progress.update(bar, completed=finished + 0.95 * step / steps)

        yield on_epoch, on_step
