"""Where a worker of a cluster trains if it does not see the driver's disk: nobody else can have prepared the place."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from mlap.study.engine import Job
from mlap.study.ray_worker import run_directory

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="on Windows the temporary folder is the user's own")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder that others may write to as well."""
    folder = tmp_path / "shared"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def place(run: str = "run") -> Path:
    """The folder in which a worker keeps the directory of a run that it cannot see."""
    job = Job("0" * 16, {}, "synthetic", {}, None, "", f"/nowhere/{run}", "cpu")
    return run_directory(job, "token").parent


def test_only_its_user_can_open_it(shared: Path) -> None:
    folder = place()
    assert folder.parent == shared
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_run_that_lost_its_worker_finds_its_directory_again(shared: Path) -> None:
    assert place() == place("other")


def test_a_link_in_its_place_is_not_followed(shared: Path, tmp_path: Path) -> None:
    expected = place()
    expected.rmdir()
    trap = tmp_path / "trap"
    trap.mkdir(mode=0o700)
    expected.symlink_to(trap)
    found = place()
    assert found.resolve() not in (expected, trap)
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_a_folder_that_others_can_open_is_not_used(shared: Path, mode: int) -> None:
    expected = place()
    expected.chmod(mode)
    found = place()
    assert found != expected
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_a_file_in_its_place(shared: Path) -> None:
    expected = place()
    expected.rmdir()
    expected.touch()
    assert place().is_dir()


def test_a_folder_of_another_user_is_not_used(shared: Path) -> None:
    expected = place()
    if os.getuid():
        pytest.skip("only root can give a folder away")
    os.chown(expected, 12345, -1)
    assert place() != expected
