"""One sweep per study, with real processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from study_tools import fork, wait_for

from mlap.errors import MlapError, UsageError
from mlap.locking import locked_study

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the tests fork")


def test_the_second_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    study = tmp_path / "s.db"

    def work() -> None:
        with locked_study(study):
            (tmp_path / "held").touch()
            time.sleep(600)

    child = fork(work)
    try:
        wait_for((tmp_path / "held").exists)
        with (
            pytest.raises(MlapError, match=rf"in use by another sweep \(process {child} on "),
            locked_study(study),
        ):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with locked_study(study):
        assert (tmp_path / "s.db.lock").read_text().startswith(f"process {os.getpid()} on")
    assert not (tmp_path / "s.db.lock").exists()


def test_waiting_says_so_once(tmp_path: Path) -> None:
    study = tmp_path / "s.db"
    said = []

    def work() -> None:
        with locked_study(study):
            (tmp_path / "held").touch()
            time.sleep(0.7)

    child = fork(work)
    wait_for((tmp_path / "held").exists)
    with locked_study(study, wait=True, on_wait=said.append):
        pass
    assert os.waitpid(child, 0)[1] == 0
    assert said == [f"process {child} on {os.uname().nodename}"]


def test_never_two_at_once_although_the_file_is_removed_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    counter = tmp_path / "counter"
    counter.write_text("0")

    def work() -> None:
        for _ in range(50):
            with locked_study(tmp_path / "s.db", wait=True):
                counter.write_text(str(int(counter.read_text()) + 1))  # two at once would lose a step, or read nothing

    children = [fork(work) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]
    assert counter.read_text() == "200"


def test_a_place_where_no_lock_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot lock the study"), locked_study(tmp_path / "file" / "s.db"):
        pass
    with locked_study(tmp_path / "new" / "folder" / "s.db"):
        assert (tmp_path / "new" / "folder").is_dir()
