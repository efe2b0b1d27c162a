"""Baselines in studies: fitted once, recorded, compared with the networks, and shown where they win."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from study_tools import InProcessEngine, tiny_graphs, tiny_plan

from mlap.errors import DataError, UsageError
from mlap.models import Baseline, load, train
from mlap.report.page import write_report
from mlap.report.study_tables import study_tables
from mlap.study import BaselineRecord, Study, SweepSettings, fit_baselines, sweep
from mlap.study.baselines import baseline_hash, check_baselines
from mlap.study.compare import compare
from mlap.study.gather import gather_baselines


@pytest.fixture
def settings(tmp_path: Path) -> SweepSettings:
    source, _ = tiny_graphs(tmp_path)
    return SweepSettings(source, tmp_path / "study.db")


def test_a_baseline_is_fitted_once(settings: SweepSettings, tmp_path: Path) -> None:
    _, graphs = tiny_graphs(tmp_path)
    told: list[BaselineRecord] = []
    (record,) = fit_baselines(["wl-linear"], (0, 1), settings, graphs, on_baseline=told.append)
    assert told == [record]  # one seed says it all
    expected = train(graphs, baseline="wl-linear").result
    assert expected is not None
    assert (record.valid_score, record.test_score) == (expected.valid_score, expected.test_score)
    assert (record.name, record.seed, record.status) == ("wl-linear", 0, "done")
    assert record.hash == baseline_hash("wl-linear", 0, graphs.fingerprint)
    assert record.versions is not None
    assert "scikit-learn" in record.versions
    assert fit_baselines(["wl-linear"], (0, 1), settings, graphs, on_baseline=told.append) == [record]
    assert len(told) == 1
    assert gather_baselines([settings.study, settings.study]) == [record]


def test_one_that_cannot_be_fitted_stops_no_other(settings: SweepSettings, tmp_path: Path) -> None:
    _, graphs = tiny_graphs(tmp_path)  # no molecules
    found = fit_baselines(["rf-morgan", "wl-linear"], (0,), settings, graphs)
    assert [(record.name, record.status) for record in found] == [("rf-morgan", "failed"), ("wl-linear", "done")]
    assert "SMILES" in (found[0].error or "")
    sweep(tiny_plan(), settings, engine=InProcessEngine())
    with Study.open(settings.study) as study:
        comparison = compare(study.runs(), baselines=study.baselines())
    assert [cell.name for cell in comparison.baselines] == ["wl-linear"]
    assert any("rf-morgan" in warning for warning in comparison.warnings)


def test_kept_models(settings: SweepSettings, tmp_path: Path) -> None:
    _, graphs = tiny_graphs(tmp_path)
    kept = SweepSettings(settings.source, settings.study, keep_models=True)
    (record,) = fit_baselines(["wl-linear"], (0,), kept, graphs)
    model = load(tmp_path / "study.db.runs" / record.hash)
    assert isinstance(model, Baseline)
    assert model.result is not None
    assert model.result.test_score == record.test_score


def test_a_winner_is_shown_winning(settings: SweepSettings, tmp_path: Path) -> None:
    """Real networks of one epoch lose to a linear model that is told a perfect score, or win against a poor one."""
    _, graphs = tiny_graphs(tmp_path)
    sweep(tiny_plan(seed="0-1"), settings, engine=InProcessEngine())
    study, pages = Path(settings.study), {}
    for score in (0.0, 1.0):  # error rates
        with Study.create(study) as opened:
            values = {"hash": "b", "name": "wl-linear", "seed": 0, "status": "done"}
            values |= {"valid_score": score, "test_score": score}
            opened.add_baseline(values, graphs, str(settings.source), {})
        (table,) = study_tables([study], "baselines").tables
        network, simple = (dict(zip([column.key for column in table.columns], row, strict=True)) for row in table.rows)
        assert (network["kind"], simple["model"]) == ("network", "wl-linear")
        assert (simple["ahead"] > 0) == (score == 0.0)
        assert (network["best"], simple["best"]) == (("", "*") if score == 0.0 else ("*", ""))
        written = write_report(study, tmp_path / f"report-{score}", load_data=lambda run: run.data(), models=False)
        pages[score] = re.sub(r"\s+", " ", written.page.read_text(encoding="utf-8"))
        assert any(path.name == "baselines.csv" for path in written.tables)
    assert pages[0.0].index("A simple model wins") < pages[0.0].index("Only one family")
    assert "A simple model wins" not in pages[1.0]
    assert all("table-baselines" in page and "--baselines wl-linear" in page for page in pages.values())


def test_a_study_without_any(settings: SweepSettings, tmp_path: Path) -> None:
    sweep(tiny_plan(), settings, engine=InProcessEngine())
    assert all(table.name != "baselines" for table in study_tables([settings.study]).tables)
    with pytest.raises(DataError):
        study_tables([settings.study], "baselines")
    written = write_report(Path(settings.study), tmp_path / "report", load_data=lambda run: run.data(), models=False)
    assert "table-baselines" not in written.page.read_text(encoding="utf-8")


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="rf-morgan") as raised:
        check_baselines("wl-linear,rf-morgen")
    assert raised.value.field == "baselines"
