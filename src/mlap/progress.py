"""Progress on a terminal or in a notebook. The rooms report through callbacks; every bar is drawn here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlap.names import METRICS

if TYPE_CHECKING:
    from mlap.training import Epoch

OnEpoch = Callable[["Epoch"], None]
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

    def summary(done: Epoch) -> str:
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

        def on_epoch(done: Epoch) -> None:
            nonlocal finished
            finished = done.epoch
            progress.update(bar, completed=finished, epoch=min(finished + 1, epochs), summary=summary(done))

        def on_step(step: int, steps: int) -> None:
            progress.update(bar, completed=finished + 0.95 * step / steps)

        yield on_epoch, on_step
