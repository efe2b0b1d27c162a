"""Files that are whole or absent, and what is left of processes that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlap.files import aside, remove_abandoned, scratch_folder, write_text, write_whole


def dead_pid() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def of(path: Path, pid: int) -> Path:
    """A name that another process would write under."""
    return Path(str(path).replace(f".{os.getpid()}-", f".{pid}-"))


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def write(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device", str(temporary))

    with pytest.raises(OSError, match="No space") as raised:
        write_whole(path, write)
    assert raised.value.filename == str(path)  # not the name of the part
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere only the age of a file is looked at")
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    living, killed = aside(tmp_path / "a.txt"), of(aside(tmp_path / "b.txt"), dead_pid())
    living.touch()
    killed.touch()
    write_text(tmp_path / "c.txt", "new")
    assert sorted(os.listdir(tmp_path)) == [living.name, "c.txt"]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere only the age of a file is looked at")
def test_an_old_file_is_removed_only_if_there_is_a_new_one(tmp_path: Path) -> None:
    pid = dead_pid()
    for name in ("a.txt", "b.txt"):
        of(aside(tmp_path / name, "old"), pid).touch()
    (tmp_path / "a.txt").touch()
    remove_abandoned(tmp_path)
    assert sorted(name[:6] for name in os.listdir(tmp_path)) == [".b.txt", "a.txt"]


def test_of_another_machine_the_age_decides(tmp_path: Path) -> None:
    for name, age in (("new", 0), ("old", 100_000)):
        part = tmp_path / f".{name}.1-00000000-000000.part"
        part.touch()
        os.utime(part, (time.time() - age,) * 2)
    remove_abandoned(tmp_path)
    assert os.listdir(tmp_path) == [".new.1-00000000-000000.part"]


@pytest.mark.skipif(os.name != "posix", reason="there are no such rights elsewhere")
def test_a_scratch_folder_is_private_and_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = scratch_folder("mlap-serve")
    assert folder.stat().st_mode & 0o077 == 0
    folder.rename(of(folder, dead_pid()))
    assert scratch_folder("mlap-serve").parent == tmp_path
    assert len(os.listdir(tmp_path)) == 1
