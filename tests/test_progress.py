"""Bars, drawn on a terminal that remembers them."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass

import pytest

from mlap.progress import rows_bar, steps_bar, training_bar


class Terminal(io.StringIO):
    """What a program sees as a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal of 120 columns; called in a test itself, since pytest sets it between phases."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    return found


@dataclass(frozen=True)
class Done:
    epoch: int
    train_loss: float
    valid_score: float
    seconds: float = 0.5


def test_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with steps_bar(silent=False) as step:
        assert step is not None
        step("reading molecules", 3, 7)
    assert "3/7" in terminal.getvalue()
    assert "reading molecules" in terminal.getvalue()


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with rows_bar(silent=False) as done:
        assert done is not None
        done(1500, 500, 3000)
    assert "1,500 of 3,000 rows" in terminal.getvalue()
    assert "left" in terminal.getvalue()


def test_training_tells_the_best_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with training_bar(3, "error_rate", silent=False) as (on_epoch, on_step):
        assert on_epoch is not None
        assert on_step is not None
        on_epoch(Done(1, 0.5, 0.25))
        on_step(1, 2)
        on_epoch(Done(2, 0.4, 0.75))
    assert "epoch 3/3" in terminal.getvalue()
    assert "(best 0.2500 in epoch 1)" in terminal.getvalue()


def test_of_a_score_that_rises_the_highest_is_best() -> None:
    lines: list[str] = []
    with training_bar(2, "rocauc", silent=False, lines=lines.append) as (on_epoch, _):
        assert on_epoch is not None
        on_epoch(Done(1, 0.5, 0.6))
        on_epoch(Done(2, 0.4, 0.9))
    assert "(best 0.9000 in epoch 2)" in lines[1]


def test_nobody_looks_on() -> None:
    lines: list[str] = []
    with rows_bar(silent=False, lines=lines.append) as done:
        assert done is not None
        done(7, 7, None)
    assert lines == ["7 rows"]
    with steps_bar(silent=True) as step, rows_bar(silent=True) as rows, training_bar(1, "mae", silent=True) as bars:
        assert step is None
        assert rows is None
        assert bars == (None, None)
