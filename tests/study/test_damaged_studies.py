"""Damaged studies: every reader of one answers, or says in one line what is wrong with the file."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from damage import answered, damaged_files, trials
from study_tools import InProcessEngine, read_study, tiny_graphs, tiny_plan

from mlap.errors import DataError
from mlap.report.page import write_report
from mlap.study import SweepSettings, sweep


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of four finished runs."""
    folder = tmp_path_factory.mktemp("study")
    source, graphs = tiny_graphs(folder)
    plan = tiny_plan(architecture=["naive", "mlap-sum"], seed=[0, 1])
    settings = SweepSettings(source, folder / "study.db")
    sweep(plan, settings, engine=InProcessEngine(), graphs=graphs)
    return folder / "study.db"


def use(path: Path, out: Path) -> None:
    """All that reads a study."""
    read_study(path)
    write_report(path, out, load_data=lambda run: run.data(), models=False)


def test_damaged_studies(whole: Path, tmp_path: Path) -> None:
    use(whole, tmp_path / "report")
    path = tmp_path / "study.db"
    shutil.copy(whole, path)
    for _ in damaged_files(path, trials(40)):
        answered(lambda: use(path, tmp_path / "report"))


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("runs", "recipe", "[" * 100_000),
        ("runs", "recipe", '{"layers": "many"}'),
        ("runs", "recipe", '{"unheard": 1}'),
        ("runs", "test_score", "high"),
        ("runs", "versions", "[1]"),
        ("data", "metric", "luck"),
        ("data", "options", "7"),
        ("plans", "axes", '{"layers": 3}'),
        ("epochs", "train_loss", "low"),
    ],
)
def test_cells_that_no_run_has(whole: Path, tmp_path: Path, table: str, column: str, value: str) -> None:
    path = tmp_path / "study.db"
    shutil.copy(whole, path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    connection.close()
    with pytest.raises(DataError) as error:
        use(path, tmp_path / "report")
    assert str(path) in str(error.value)
