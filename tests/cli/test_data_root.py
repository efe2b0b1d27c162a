"""`--data-root`: what was once trained on data of another place finds them there again."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import Command

SMALL = ("--layers", 1, "--set", "width=8", "--set", "epochs=1", "--quiet")


@pytest.fixture
def elsewhere(tiny: Path, tmp_path: Path) -> Path:
    """A folder with one data set, which is not the data root."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    tiny.rename(folder / "rings")
    return folder


def test_run_remembers_its_data_root(mlap: Command, elsewhere: Path) -> None:
    assert "unknown data set 'rings'" in mlap("train", "rings", *SMALL).error
    assert mlap("train", "rings", "--data-root", "elsewhere", *SMALL, "--out", "run").code == 0
    for command in (("evaluate", "run"), ("train", "--resume", "--out", "run"), ("predict", "run", "rings")):
        answer = mlap(*command, "--quiet")
        assert answer.code == 0, answer.err


def test_sweep_remembers_its_data_root(mlap: Command, elsewhere: Path) -> None:
    kept = ("--study", "study.db", "--keep-models", "--architectures", "mlap-sum", "--seeds", 0)
    assert mlap("sweep", "rings", "--data-root", "elsewhere", *SMALL, *kept).code == 0
    (run,) = Path("study.db.runs").iterdir()
    answer = mlap("evaluate", run, "--quiet")
    assert answer.code == 0, answer.err


def test_data_root_that_is_gone(mlap: Command, elsewhere: Path, tmp_path: Path) -> None:
    """The data may have moved: then they are looked for as if the run had named no root."""
    assert mlap("train", "rings", "--data-root", elsewhere, *SMALL, "--out", "run").code == 0
    elsewhere.rename(tmp_path / "moved")
    assert "unknown data set 'rings'" in mlap("evaluate", "run").error
    assert mlap("evaluate", "run", "--data-root", "moved", "--quiet").code == 0
    (tmp_path / "moved").rename(tmp_path / "data")
    assert mlap("evaluate", "run", "--quiet").code == 0
