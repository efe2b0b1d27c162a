from __future__ import annotations

import csv
import dataclasses
import io
import sqlite3
from pathlib import Path

import pytest
from cli.conftest import Command

from mlap.graphs import GraphSet, synthetic
from mlap.provenance import made_by
from mlap.study import Study
from mlap.study.engine import Done, Failed
from mlap.study.store import run_hash
from mlap.training import Recipe


def add(study: Study, graphs: GraphSet, recipe: Recipe, valid: float, test: float | None) -> None:
    study.plan("grid", {}, [recipe], graphs, "synthetic", {})
    name = run_hash(recipe, graphs.fingerprint)
    result = {"best_epoch": 1, "valid_score": valid, "test_score": test, "num_parameters": 1, "epochs": 1}
    epoch = {"epoch": 1, "lr": 0.1, "train_loss": 1.0, "valid_loss": 1.0, "valid_score": valid, "seconds": 1.0}
    study.start(name)
    study.finish(Done(name, result, [epoch], "here", "cpu", {}))


@pytest.fixture
def graphs() -> GraphSet:
    """A small set under the paper's name, so that the paper's numbers stand beside its own."""
    return dataclasses.replace(synthetic(graphs_per_class=2), name="synthetic")


@pytest.fixture
def study(tmp_path: Path, graphs: GraphSet) -> Path:
    """Three seeds of two architectures at two depths; mlap-sum is better, and deeper is better. One run failed."""
    path = tmp_path / "study.db"
    with Study.create(path) as study:
        for seed in range(3):
            for layers in (1, 2):
                for architecture, error in (("naive", 0.5), ("mlap-sum", 0.4)):
                    recipe = Recipe.paper("synthetic", architecture=architecture, layers=layers, seed=seed)
                    score = error - 0.1 * layers + 0.01 * seed
                    add(study, graphs, recipe, score, score + 0.005)
        failed = Recipe.paper("synthetic", architecture="naive", layers=2, seed=3)
        study.plan("grid", {}, [failed], graphs, "synthetic", {})
        study.fail(Failed(run_hash(failed, graphs.fingerprint), "out of memory", "", "here"))
    return path


def test_json(mlap: Command, study: Path) -> None:
    answer = mlap("compare", study, "--json")
    assert (answer.code, answer.err) == (0, "")
    content = answer.json
    assert (content["data"], content["metric"], content["higher_is_better"]) == ("synthetic", "error_rate", False)
    assert list(content["tables"]) == ["results", "significance", "summary", "full", "baselines"]
    ours = [row for row in content["tables"]["results"]["rows"] if row["source"] == "ours"]
    assert [(row["family"], row["join"], row["layers"], row["norm"]) for row in ours] == [
        ("naive", None, 2, "graph"),
        ("mlap", "sum", 2, "graph"),
    ]
    assert ours[1]["test"]["mean"] == pytest.approx(0.215)
    (contrast,) = content["tables"]["significance"]["rows"]
    assert (contrast["p_one_sided"], contrast["p_two_sided"]) == (pytest.approx(0.05), pytest.approx(0.1))
    assert content["warnings"][0] == "of 13 runs, 1 failed: they are left out"
    assert any("3 and 3 seeds are too few" in warning for warning in content["warnings"])


def test_text_with_warnings(mlap: Command, study: Path) -> None:
    answer = mlap("compare", study)
    assert answer.code == 0
    assert max(map(len, answer.out.split("\n"))) <= 100
    assert "warning: of 13 runs, 1 failed" in answer.out
    assert "0.2150 ± 0.0058" in answer.out
    assert "0.0150 ± 0.0006" in answer.out  # the paper's
    only = mlap("compare", study, "--table", "significance").out
    assert only.startswith("Mann–Whitney U test")
    assert "Best depth" not in only


def test_one_family_alone_is_not_compared_with_an_empty_table(mlap: Command, tmp_path: Path, graphs: GraphSet) -> None:
    with Study.create(tmp_path / "alone.db") as study:
        add(study, graphs, Recipe.paper("synthetic", architecture="naive", layers=1), 0.5, 0.5)
    text = mlap("compare", "alone.db").out
    assert "Best depth" in text
    assert "Mann–Whitney" not in text
    assert mlap("compare", "alone.db", "--json").json["tables"]["significance"]["rows"] == []


def test_csv_has_the_table_on_stdout_and_the_warnings_on_stderr(mlap: Command, study: Path) -> None:
    answer = mlap("compare", study, "--table", "full", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert [(row["architecture"], row["layers"]) for row in rows] == [
        ("naive", "1"),
        ("naive", "2"),
        ("mlap-sum", "1"),
        ("mlap-sum", "2"),
    ]
    assert float(rows[3]["valid_mean"]) == pytest.approx(0.21)
    assert {row["made_by"] for row in rows} == {made_by()}
    assert answer.err.startswith("warning: of 13 runs, 1 failed")
    runs = list(csv.DictReader(io.StringIO(mlap("compare", study, "--table", "runs", "--format", "csv").out)))
    assert len(runs) == 13
    assert {run["status"] for run in runs} == {"done", "failed"}
    assert "packages" in runs[0]
    refused = mlap("compare", study, "--format", "csv")
    assert refused.code == 2
    assert "--table" in refused.error
    assert "significance, summary, full, baselines, runs, splits" in refused.error


@pytest.mark.parametrize(
    ("form", "sign"), [("markdown", "| naive |"), ("latex", r"\toprule"), ("text", "naive   ours")]
)
def test_a_file(mlap: Command, study: Path, tmp_path: Path, form: str, sign: str) -> None:
    out = tmp_path / "tables"
    answer = mlap("compare", study, "--format", form, "--out", out)
    assert (answer.code, answer.out, answer.err) == (0, "", f"written to {out}\n")
    assert sign in out.read_text(encoding="utf-8")
    assert mlap("compare", study, "--format", form).out == out.read_text(encoding="utf-8")
    assert mlap("compare", study, "--out", tmp_path / "new" / "folder" / "tables").code == 0  # folders are made
    assert (tmp_path / "new" / "folder" / "tables").is_file()
    refused = mlap("compare", study, "--out", out / "below-a-file")
    assert refused.code == 2
    assert str(out) in refused.error


def test_reference_and_families(mlap: Command, study: Path) -> None:
    rows = mlap("compare", study, "--reference", "naive", "--family", "mlap-sum=ours", "--json").json["tables"]
    assert [row["comparison"] for row in rows["significance"]["rows"]] == ["naive vs ours"]
    assert rows["results"]["rows"][-1]["join"] == "mlap-sum"
    wrong = mlap("compare", study, "--family", "mlap-sum")
    assert wrong.code == 2
    assert "ARCHITECTURE=FAMILY, got 'mlap-sum'" in wrong.error
    wrong = mlap("compare", study, "--reference", "mlp")
    assert (wrong.code, wrong.error) == (2, "unknown family 'mlp'; did you mean 'mlap'? Known: naive, mlap")


def test_several_data_sets(mlap: Command, study: Path) -> None:
    other = dataclasses.replace(synthetic(graphs_per_class=3), name="synthetic")
    with Study.create(study) as opened:
        add(opened, other, Recipe.paper("synthetic", architecture="naive"), 0.25, None)
    wrong = mlap("compare", study)
    assert wrong.code == 2
    assert "2 different data sets called synthetic" in wrong.error
    content = mlap("compare", study, "--data", other.fingerprint[:12], "--json").json
    assert content["tables"]["results"]["rows"][0]["test"] is None
    wrong = mlap("compare", study, "--data", "MCF-7")
    assert (wrong.code, wrong.error) == (2, "unknown data set in the study 'MCF-7'; Known: synthetic")


def test_what_is_not_a_study(mlap: Command, tmp_path: Path) -> None:
    wrong = mlap("compare", "nothing.db")
    assert wrong.code == 2
    assert wrong.error.startswith("there is no study nothing.db")
    (tmp_path / "text.db").write_text("not a database, but long enough to look like one" * 100)
    assert mlap("compare", "text.db").code == 1
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    assert mlap("compare", "other.db").code == 1
    Study.create(tmp_path / "empty.db").close()
    wrong = mlap("compare", "empty.db")
    assert (wrong.code, wrong.error) == (1, "the study has no runs yet")


def test_a_study_without_a_finished_run(mlap: Command, tmp_path: Path, graphs: GraphSet) -> None:
    with Study.create(tmp_path / "planned.db") as study:
        study.plan("grid", {}, [Recipe(), Recipe(seed=1)], graphs, "synthetic", {})
    wrong = mlap("compare", "planned.db")
    assert wrong.code == 1
    assert wrong.error == "none of the 2 runs on synthetic has a validation score: 2 not finished"
    wrong = mlap("compare", "planned.db", "--table", "runs", "--finished")
    assert wrong.code == 1
    assert "none of the 2 runs is finished" in wrong.error
    assert mlap("compare", "planned.db", "--table", "runs").out.count("planned") == 2


def test_runs_as_a_file_and_several_studies(mlap: Command, study: Path, tmp_path: Path, graphs: GraphSet) -> None:
    """What a table of runs holds is compared as the study is; further studies add to it."""
    runs = tmp_path / "runs.csv"
    assert mlap("compare", study, "--table", "runs", "--format", "csv", "--out", runs).code == 0
    assert mlap("compare", runs).out == mlap("compare", study).out == mlap("compare", study, runs).out
    with Study.create(tmp_path / "more.db") as more:
        add(more, graphs, Recipe.paper("synthetic", architecture="jk-sum", layers=2, seed=0), 0.1, 0.1)
    together = mlap("compare", runs, tmp_path / "more.db", "--json").json
    assert together["studies"] == [str(runs), str(tmp_path / "more.db")]
    assert {row["family"] for row in together["tables"]["results"]["rows"] if row["source"] == "ours"} == {
        *("naive", "jk", "mlap"),
    }


def test_finished_runs_alone(mlap: Command, study: Path) -> None:
    table = mlap("compare", study, "--table", "runs", "--finished", "--format", "csv")
    runs = list(csv.DictReader(io.StringIO(table.out)))
    assert (len(runs), {run["status"] for run in runs}) == (12, {"done"})
    assert "1 failed" not in mlap("compare", study, "--finished").out


def test_over_splits(mlap: Command, study: Path, tmp_path: Path) -> None:
    """Two more splits, in a study of their own; on the last one naive is better."""
    with Study.create(tmp_path / "splits.db") as splits:
        for size, difference in ((3, 0.1), (4, -0.05)):
            graphs = dataclasses.replace(synthetic(graphs_per_class=size), name="synthetic")
            for architecture, error in (("naive", 0.4), ("mlap-sum", 0.4 - difference)):
                recipe = Recipe.paper("synthetic", architecture=architecture, layers=2)
                add(splits, graphs, recipe, error, error)
    several = (study, tmp_path / "splits.db")
    assert "3 different data sets called synthetic" in mlap("compare", *several).error
    answer = mlap("compare", *several, "--table", "splits")
    assert answer.code == 0
    assert max(map(len, answer.out.split("\n"))) <= 100
    assert "2 of 3" in answer.out
    assert "warning: 2 of 4 networks have no finished run on some split: they are left out" in answer.out
    content = mlap("compare", *several, "--table", "splits", "--json").json
    assert list(content["tables"]) == ["results", "significance", "splits"]
    assert {row["family"]: row["layers"] for row in content["tables"]["results"]["rows"]} == {"naive": 2, "mlap": 2}
    (contrast,) = content["tables"]["significance"]["rows"]
    assert contrast["p_holm"] == contrast["p_two_sided"]  # the only comparison
    assert contrast["comparison"] == "mlap vs naive"
    assert contrast["better_on"] == 2
    assert contrast["by"]["mean"] == pytest.approx((0.1 + 0.1 - 0.05) / 3)
    assert contrast["p_two_sided"] == pytest.approx(0.5)
    rows = list(csv.DictReader(io.StringIO(mlap("compare", *several, "--table", "splits", "--format", "csv").out)))
    assert [float(row["mlap_mean"]) for row in rows] == pytest.approx([0.215, 0.3, 0.45])
    assert rows[0]["mlap_n"] == "3"
    assert mlap("compare", study, "--table", "splits").error.startswith("the study has one split of synthetic only")
    runs = mlap("compare", *several, "--table", "runs", "--format", "csv").out
    assert len(list(csv.DictReader(io.StringIO(runs)))) == 13 + 4
