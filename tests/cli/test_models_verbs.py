"""`mlap ensemble`, `calibrate`, `evaluate`, and `train` of baselines and several members."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlap as library

TRAIN = ("--layers", 2, "--width", 8, "--epochs", 2, "--quiet", "--device", "cpu")
PIECES = ["C", "N", "O", "CC", "C(=O)", "c1ccccc1", "S", "C(F)", "C#C"]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Four hundred molecules, some of which hold nitrogen."""
    rng = np.random.default_rng(0)
    smiles = sorted({"".join(rng.choice(PIECES, size=rng.integers(2, 8))) for _ in range(500)})[:400]
    rows = [f"{text},{'active' if text.count('N') + rng.normal() > 0.8 else 'inactive'}" for text in smiles]
    (tmp_path / "mine.csv").write_text("smiles,activity\n" + "\n".join(rows) + "\n")
    return "mine.csv"


@pytest.fixture
def models(mlap: Any, table: str) -> list[str]:
    """A network and a baseline on the same data."""
    assert mlap("train", table, *TRAIN, "--split-by", "stratified", "--out", "net").code == 0
    answer = mlap("train", table, "--baseline", "wl-linear", "--split-by", "stratified", "--out", "wl", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["baseline"] == "wl-linear"
    assert answer.json["test_score"] > 0.6
    return ["net", "wl"]


def test_from_models_to_sets_in_words(mlap: Any, models: list[str], tmp_path: Path) -> None:
    answer = mlap("ensemble", *models, "--weights", "fitted", "--out", "both", "--json")
    assert answer.code == 0, answer.err
    content = answer.json
    assert [member["name"] for member in content["members"]] == ["mlap-sum", "wl-linear"]
    assert sum(member["weight"] for member in content["members"]) == pytest.approx(1)
    assert content["calibration"] == "temperature"
    (tmp_path / "new.csv").write_text("id,smiles\n1,CCN\n2,broken(\n3,CCO\n")
    answer = mlap("predict", "both", "new.csv", "--confidence", 0.8)
    assert answer.code == 0, answer.err
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert rows[1]["activity_conformal_set"] == ""
    assert rows[1]["error"]
    words = {"active", "inactive", "inactive or active", "none"}
    assert {rows[0]["activity_conformal_set"], rows[2]["activity_conformal_set"]} <= words
    assert float(rows[0]["activity_spread"]) >= 0
    answer = mlap("explain", "both", "CCN", "--json", "--max", 0)
    (one,) = answer.json["explanations"]
    assert sum(one["terms"].values()) == pytest.approx(one["logit"], abs=1e-5)
    assert "wl-linear" in one["terms"]


def test_weights_are_stated(mlap: Any, models: list[str]) -> None:
    answer = mlap("ensemble", *models, "--out", "both")
    assert "0.5000  wl-linear" in answer.err
    assert "equal" in answer.err
    assert answer.out.strip() == "both"
    again = mlap("ensemble", *models, "--out", "both")
    assert again.code == 2
    assert mlap("ensemble", *models, "--out", "both", "--overwrite").code == 0


def test_promised_and_measured(mlap: Any, models: list[str], table: str, tmp_path: Path) -> None:
    assert mlap("calibrate", "wl").code == 0
    answer = mlap("evaluate", "wl", "--plot", "rel")
    assert answer.code == 0, answer.err
    for fact in ("ROC-AUC", "log loss", "calibration error", "came true", "promised", "activity = inactive"):
        assert fact in answer.out
    assert (tmp_path / "rel.svg").exists()
    assert (tmp_path / "rel.png").exists()
    content = mlap("evaluate", "wl", "--confidence", 0.7, "--json").json
    assert content["confidence"] == 0.7
    assert [each["label"] for each in content["coverage"]] == [None, 0, 1]
    assert sum(each["graphs"] for each in content["coverage"][1:]) == content["graphs"]
    points = content["reliability"]["activity"]
    assert sum(point["graphs"] for point in points) == content["graphs"]
    on_itself = mlap("evaluate", "wl", "--split", "valid", "--json").json
    assert any("calibrated on these graphs" in note for note in on_itself["notes"])


def test_an_uncalibrated_model_has_no_sets(mlap: Any, models: list[str]) -> None:
    answer = mlap("predict", "net", "CCO", "--confidence", 0.9)
    assert answer.code == 2
    assert "confidence" in answer.error
    content = mlap("evaluate", "net", "--json").json
    assert content["confidence"] is None
    assert "coverage" not in content


def test_calibration_is_exchanged(mlap: Any, models: list[str], tmp_path: Path) -> None:
    assert mlap("calibrate", "wl", "--json").json["method"] == "temperature"
    (tmp_path / "few.csv").write_text("smiles,activity\nCCN,active\nCCO,inactive\nCNC,active\nCC,inactive\n")
    answer = mlap("calibrate", "wl", "few.csv", "--method", "isotonic", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["data"]["graphs"] == 4
    assert any("too few" in note for note in answer.json["notes"])
    assert json.loads((tmp_path / "wl" / "calibration.json").read_text())["calibration"]["method"] == "isotonic"
    assert "too few" in mlap("predict", "wl", "CCO", "--confidence", 0.9).err
    assert mlap("calibrate", "wl", "--method", "magic").code == 2
    assert mlap("calibrate", "wl", "--split", "train").code == 2


def test_weighed_and_calibrated_by_other_data(mlap: Any, models: list[str], tmp_path: Path) -> None:
    rows = "".join(f"{'C' * n}N,active\n{'C' * n}O,inactive\n" for n in range(3, 13))
    (tmp_path / "fresh.csv").write_text(f"smiles,activity\n{rows}")
    by = ("--data", "fresh.csv", "--data-root", tmp_path, "--quiet")
    made = mlap("ensemble", *models, *by, "--weights", "fitted", "--method", "platt", "--out", "both")
    assert (made.code, made.err, made.out.strip()) == (0, "", "both")
    calibrated = library.load("both").calibrated
    assert calibrated is not None
    assert (calibrated.method, calibrated.data["graphs"]) == ("platt", 20)
    on = ("--device", "cpu", "--threads", 1, "--data-root", tmp_path)
    quiet = mlap("calibrate", "both", "fresh.csv", *on, "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert "20 graphs of fresh" in quiet.out


def test_members(mlap: Any, tiny: Path) -> None:
    answer = mlap("train", tiny, *TRAIN[:-3], "--members", 2, "--out", "two", "--json", "--device", "cpu")
    assert answer.code == 0, answer.err
    content = answer.json
    assert [member["weight"] for member in content["members"]] == [0.5, 0.5]
    assert content["test"]["graphs"] > 0
    assert isinstance(library.load("two"), library.Ensemble)
    assert mlap("train", tiny, "--members", 2, "--baseline", "wl-linear").code == 2
    assert mlap("train", "--members", 2).code == 2


def test_baselines_take_no_settings_of_networks(mlap: Any, tiny: Path) -> None:
    answer = mlap("train", tiny, "--baseline", "wl-linear", "--epochs", 3)
    assert answer.code == 2
    assert "epochs" in answer.err.splitlines()[-1]
    assert "rf-morgan" in mlap("train", tiny, "--baseline", "rf-morgen", "--quiet").error
    assert "wl-linear" in mlap("train", tiny, "--baseline", "rf-morgan", "--quiet").error
    assert mlap("train", tiny, "--baseline", "wl-linear", "--quiet", "--out", "wl").code == 0
    assert mlap("train", tiny, "--baseline", "wl-linear", "--quiet", "--out", "wl", "--resume").code == 0
    assert mlap("train", "--resume", "--out", "wl").code == 2


def test_baselines_in_a_sweep(mlap: Any, tiny: Path) -> None:
    small = ("--plan", "quick", "--architectures", "naive", "--layers", 1, "--seeds", 0, "--set", "epochs=1")
    answer = mlap("sweep", tiny, *small, "--baselines", "wl-linear", "--study", "s.db", "--workers", 1, "--json")
    assert answer.code == 0, answer.err
    (one,) = answer.json["baselines"]
    assert (one["name"], one["status"]) == ("wl-linear", "done")
    shown = mlap("compare", "s.db", "--table", "baselines", "--json").json["tables"]["baselines"]
    assert "wl-linear" in json.dumps(shown)
    assert mlap("sweep", tiny, *small, "--baselines", "magic").code == 2
    dry = mlap("sweep", tiny, *small, "--baselines", "wl-linear", "--study", "dry.db", "--dry-run", "--json")
    assert dry.code == 0
    assert not Path("dry.db").exists()
