from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import Command
from report_pages import Made, study_by_hand

from mlap.study import Study


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.db"
    study_by_hand(path)
    return path


def test_the_answer(mlap: Command, study: Path) -> None:
    answer = mlap("report", study, "--out", "out")
    assert answer.code == 0
    assert answer.out.startswith("out/index.html: 2 figures and 5 tables, in ")
    assert all(line.startswith("warning: ") for line in answer.err.splitlines())
    assert "too few to conclude" in answer.err
    quiet = mlap("report", study, "--out", "out", "--quiet")  # over the first one
    assert (quiet.code, quiet.out, quiet.err) == (0, "out/index.html\n", "")


def test_json_with_a_look_inside(mlap: Command, report: Made) -> None:
    run = report.written.looked_into[0]
    answer = mlap("report", report.study, run, "--out", "out", "--no-tsne", "--json")
    assert (answer.code, answer.err) == (0, "")
    content = answer.json
    assert content["page"] == "out/index.html"
    assert content["looked_into"] == [str(run)]
    assert all(Path(f"{figure}.svg").is_file() for figure in content["figures"])
    assert all(Path(table).is_file() for table in content["tables"])
    assert "out/figures/mlap-weighted-L2-none/probe" in content["figures"]
    assert not any("tsne" in figure for figure in content["figures"])
    assert content["seconds"] > 0


def test_without_models_and_without_maps(mlap: Command, report: Made) -> None:
    answer = mlap("report", report.study, "--out", "out", "--no-models", "--json")
    assert (answer.code, answer.json["looked_into"]) == (0, [])
    run = report.written.looked_into[0]
    options = ("--models", "--tsne", "--tsne-graphs", 40, "--device", "cpu", "--threads", 1, "--data", "synthetic")
    answer = mlap("report", report.study, run, *options, "--data-root", "data", "--out", "out", "--json")
    assert (answer.code, answer.json["looked_into"]) == (0, [str(run)])
    assert any(figure.endswith("tsne") for figure in answer.json["figures"])


def test_mistakes_are_one_line(mlap: Command, study: Path, tmp_path: Path) -> None:
    wrong = mlap("report", "nothing.db")
    assert (wrong.code, wrong.error) == (2, "there is no study nothing.db")
    Study.create(tmp_path / "empty.db").close()
    wrong = mlap("report", "empty.db")
    assert (wrong.code, wrong.error) == (1, "the study has no runs yet")
    wrong = mlap("report", study, "--out", study)
    assert wrong.code == 2
    assert f"must be a folder, but {study} is a file" in wrong.error
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear …")
    wrong = mlap("report", study, "--out", "mine")
    assert wrong.code == 2
    assert wrong.error.startswith("mine holds something else than a report")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    wrong = mlap("report", study, "mine", "--out", "out")
    assert (wrong.code, wrong.error) == (2, "mine is not a run directory: it has no config.json")
    wrong = mlap("report", study, "--data", "other")
    assert wrong.code == 2
    assert wrong.error.startswith("unknown data set in the study 'other'")
