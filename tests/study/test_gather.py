"""Files of runs, and several studies together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from run_records import cell, run

from mlap.errors import DataError, UsageError
from mlap.report.render import to_csv
from mlap.report.tables import runs_table
from mlap.study import RunRecord
from mlap.study.gather import _RECIPE, gather, read_runs

VERSIONS = {"mlap": "0.1.0", "source": "0123456789ab@0123456789ab", "torch": "2.13.0+cpu"}
#: every state a run can be in, and recipes that differ in numbers, names and truth values
RUNS = [
    *cell("naive", [0.5, 0.25], [0.125, None], layers=3, lr=1e-4, residual=True),
    replace(run("mlap-sum", 0.1 + 0.2, 1 / 3, seed=7, norm="none"), versions=VERSIONS, device="cpu", seconds=1.5),
    replace(run("jk-max", None, status="failed"), error='loss is "nan", at once'),
    run("jk-max", None, status="planned", seed=1),
]


def file_of(runs: list[RunRecord], path: Path) -> Path:
    path.write_text(to_csv(runs_table(runs, complete=True)), encoding="utf-8", newline="")
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = file_of(RUNS, tmp_path / "runs.csv")
    assert read_runs(path) == RUNS
    assert file_of(gather([path]), tmp_path / "again.csv").read_bytes() == path.read_bytes()


def test_a_file_from_before_a_field_of_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that recipes gained later is at its default where a file does not have it."""
    path = file_of(RUNS, tmp_path / "runs.csv")
    monkeypatch.setattr("mlap.study.gather._RECIPE", (*_RECIPE, "later"))
    assert read_runs(path) == RUNS


def test_several_files_are_taken_together(tmp_path: Path) -> None:
    planned, done = RUNS[-1], replace(RUNS[-1], status="done", valid_score=0.75)
    first = file_of([RUNS[0], planned], tmp_path / "first.csv")
    second = file_of([done, RUNS[1]], tmp_path / "second.csv")
    assert gather([first, second]) == [RUNS[0], done, RUNS[1]]
    assert gather([second, first]) == [done, RUNS[1], RUNS[0]]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            lambda text: text.replace("fingerprint", "print"),
            r"runs\.csv has no column 'fingerprint'; a file of runs is",
        ),
        (lambda text: "", "has no column 'data_name'"),
        (lambda text: text.replace("naive,3", "naive,4", 1), r"line 2: run \w{16} has another recipe or other data"),
        (lambda text: text.replace("0.25", "a lot"), "line 3: could not convert string to float: 'a lot'"),
        (lambda text: text.replace("mlap-sum", "mlap-som"), "line 4: unknown architecture 'mlap-som'; did you mean"),
        (lambda text: text.replace("rocauc", "auc", 1), "line 2: unknown metric 'auc'; did you mean 'rocauc'"),
        (lambda text: text[: text.rindex(",")], "line 6: there are more or fewer values than columns"),
    ],
)
def test_a_file_that_is_not_one_of_runs(change: Callable[[str], str], error: str, tmp_path: Path) -> None:
    path = file_of(RUNS, tmp_path / "runs.csv")
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8", newline="")
    with pytest.raises(DataError, match=error):
        read_runs(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.csv cannot be read: No such file"):
        gather([tmp_path / "none.csv"])
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"binary\.csv is not a CSV file"):
        gather([tmp_path / "binary.csv"])


@pytest.mark.parametrize("name", ["synthetic", "molhiv", "nci83", "nci83_seeds", "nci83_splits"])
def test_the_results_of_this_project(name: str) -> None:
    """Every line is as it was written: a run's hash covers its recipe and its data."""
    runs = read_runs(Path(__file__).parents[2] / "research" / "results" / f"{name}_runs.csv")
    assert {found.status for found in runs} == {"done"}
    assert len({found.hash for found in runs}) == len(runs)
