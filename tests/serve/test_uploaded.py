"""Where uploaded tables lie while a server runs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mlap.models import Model
from mlap.serve import serve
from mlap.serve.explorer import Explorer
from mlap.serve.tables import Tables


def test_nothing_is_left_though_a_thread_still_writes(
    molecules: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tables = Tables(Explorer(molecules, None))
    folder = tables.new("t.csv").folder
    began, over = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while folder.exists() and not over.is_set():
            try:
                (folder / str(number)).touch()
            except FileNotFoundError:
                break
            number += 1
            if number == 2000:
                began.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert began.wait(60)
        tables.close()
    finally:
        over.set()
        writer.join()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_before_the_server_has_begun_leaves_nothing(
    molecules: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupt(address: str) -> None:
        assert len(list(tmp_path.iterdir())) == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(molecules, on_start=interrupt)
    assert list(tmp_path.iterdir()) == []
