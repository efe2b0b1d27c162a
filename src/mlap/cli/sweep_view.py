"""What `mlap sweep` shows while it runs: a live view on a terminal, a line per finished run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mlap.study.driver import Started
from mlap.study.engine import Died, Done, EpochDone, Event, Failed
from mlap.study.store import run_hash

if TYPE_CHECKING:
    from mlap.graphs import Task
    from mlap.study import Cost, Forecast
    from mlap.study.search import Search
    from mlap.training import Recipe

#: failures that the live view lists; the end of the sweep lists them all
_SHOWN_FAILURES = 5
#: the fields that every run is called by
_USUAL = ("architecture", "layers", "norm", "seed")


class SweepView:
    """Shows a sweep, or a search, on stderr; give it every event.

    Args:
        task: what the networks are trained for.
        swept: the fields of the recipe that tell runs apart.
        runs: how many runs there will be.
        costs: the estimated seconds of each run, by hash: they decide how much of the way a run is. Without, all
            runs count the same.
        show_test: whether to show test scores.
        console: where to write.
    """

    def __init__(
        self,
        task: Task,
        swept: Iterable[str],
        runs: int,
        costs: Mapping[str, float] | None = None,
        *,
        show_test: bool = True,
        console: Console | None = None,
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._metric = task.metric_label
        self._swept = [name for name in swept if name not in _USUAL]
        self._runs = runs
        self._costs = {hash: cost or 1.0 for hash, cost in (costs or {}).items()}
        self._show_test = show_test
        self._recipes: dict[str, Recipe] = {}
        self._epochs: dict[str, tuple[int, float | None]] = {}  # running → epochs done, last validation score
        self._finished = 0
        self._paid = 0.0
        self._failures: list[str] = []
        self._began = time.monotonic()
        self._first_epoch: float | None = None  # workers need seconds to start, which say nothing about their pace
        self._live = None
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True, get_renderable=self._picture)

    @classmethod
    def of_grid(cls, todo: Forecast, cost: Cost, console: Console | None = None) -> SweepView:
        """The view of a sweep that runs what is pending of a plan."""
        assert todo.graphs.task is not None
        hashes = [run_hash(recipe, todo.graphs.fingerprint) for recipe in todo.pending]
        swept = [name for name, values in todo.plan.axes.items() if len(values) > 1]
        return cls(todo.graphs.task, swept, len(hashes), dict(zip(hashes, cost.seconds, strict=True)), console=console)

    @classmethod
    def of_search(cls, state: Search) -> SweepView:
        """The view of a search; test scores are not shown, so that nobody selects by them."""
        assert state.graphs.task is not None
        return cls(state.graphs.task, state.space.searched, state.left, show_test=False)

    def __enter__(self) -> SweepView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Started | Event) -> None:
        """Take note of an event."""
        if isinstance(event, Started):
            self._recipes[event.hash] = event.recipe
            self._epochs[event.hash] = (0, None)
            return
        if isinstance(event, EpochDone):
            self._first_epoch = self._first_epoch or time.monotonic()
            self._epochs[event.hash] = (event.epoch["epoch"], event.epoch["valid_score"])
            return
        del self._epochs[event.hash]
        label = self._label(event.hash)
        if isinstance(event, Died):
            self._say(f"{label}  continues in another process: {event.reason}")
            return
        self._finished += 1
        self._paid += self._costs.get(event.hash, 1.0)
        if isinstance(event, Failed):
            self._failures.append(f"{label}  failed: {event.error}")
            self._say(f"{self._finished}/{self._runs}  {self._failures[-1]}")
        elif isinstance(event, Done) and self._live is None:
            result = event.result
            tested = self._show_test and result["test_score"] is not None
            test = f"  test {result['test_score']:.4f}" if tested else ""
            took = duration(sum(epoch["seconds"] for epoch in event.history))
            left = f"  ({left})" if (left := self._left()) else ""
            self._say(
                f"{self._finished}/{self._runs}  {label}  validation {self._metric} "
                f"{result['valid_score']:.4f}{test}  {took}{left}"
            )

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False)

    def _label(self, hash: str) -> str:
        recipe = self._recipes[hash]
        others = "".join(f" {name}={getattr(recipe, name)}" for name in self._swept)
        return f"{recipe.architecture} L{recipe.layers} {recipe.norm} s{recipe.seed}{others}"

    def _share(self) -> float:
        """How much of the way is behind us, from 0 to 1."""
        under_way = sum(
            self._costs.get(hash, 1.0) * epochs / self._recipes[hash].epochs
            for hash, (epochs, _) in list(self._epochs.items())
        )
        return (self._paid + under_way) / (sum(self._costs.values()) or self._runs)

    def _left(self) -> str:
        share = self._share()
        if self._first_epoch is None or not 0 < share < 1 - 1e-9:
            return ""
        return f"{duration((time.monotonic() - self._first_epoch) * (1 - share) / share)} left"

    def _picture(self) -> Group:
        """The live view at this moment."""
        elapsed = time.monotonic() - self._began
        share = self._share()
        pace = f"{self._finished / elapsed * 3600:,.0f} runs per hour" if self._finished else "starting"
        head = Table.grid(padding=(0, 2))
        head.add_row(
            f"{self._finished:,}/{self._runs:,} runs",
            ProgressBar(total=1, completed=share, width=16),
            f"{share:.0%}",
            duration(elapsed),
            self._left(),
            pace,
            Text(f"{len(self._failures)} failed" if self._failures else "", style="red"),
        )
        running = Table.grid(padding=(0, 2))
        for hash, (epochs, score) in list(self._epochs.items()):
            shown = "" if score is None else f"validation {self._metric} {score:.4f}"
            running.add_row(f"  {self._label(hash)}", f"epoch {epochs}/{self._recipes[hash].epochs}", shown)
        return Group(head, running, *(Text(f"  {line}", style="red") for line in self._failures[-_SHOWN_FAILURES:]))


def duration(seconds: float) -> str:
    """A time span for people.

    >>> [duration(s) for s in (0.25, 12.3, 200, 6000, 200_000)]
    ['0.2 s', '12 s', '3.3 min', '1.7 h', '2.3 days']
    """
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
