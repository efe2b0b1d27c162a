from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mlap.analysis import tsne_maps

TRAIN = ("--layers", 2, "--width", 6, "--epochs", 1, "--quiet", "--device", "cpu")


@pytest.fixture
def runs(mlap: Any, tiny: Path) -> list[str]:
    """Two seeds of one recipe."""
    paths = []
    for seed in (0, 1):
        assert mlap("train", tiny, *TRAIN, "--no-graph-norm", "--seed", seed, "--out", f"run-{seed}").code == 0
        paths.append(f"run-{seed}")
    return paths


def test_table_and_figures(mlap: Any, runs: list[str], tmp_path: Path) -> None:
    answer = mlap("probe", *runs, "--no-tsne", "--out", "figures")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0] == "class: error rate of linear classifiers, mean ± standard error of 2 runs"
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "aggregate"]
    assert lines[2].count("±") == 2
    assert "with 2 runs at least 0.33" in lines[5]  # one division in six, two levels
    assert sum(line.startswith(("centre type:", "peripheral type:")) for line in lines) == 2
    assert "3 figures written to figures" in answer.err
    assert sorted(path.stem for path in (tmp_path / "figures").glob("*.png")) == ["probe", "probe-types", "smoothing"]


def test_json_of_one_run(mlap: Any, runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlap.analysis.inspection.tsne_maps", partial(tsne_maps, iterations=250))
    where = ("--data", "tiny.graphs", "--data-root", "data", "--device", "cpu", "--threads", 1, "--seed", 3)
    answer = mlap("probe", runs[0], "--json", "--tsne", "--tsne-graphs", 25, *where)
    assert answer.code == 0, answer.err
    assert answer.err == ""
    content = answer.json
    assert content["seeds"] == [0]
    assert content["mapped_graphs"] == 25
    assert content["layer_weights"] is None
    own = [row for row in content["probes"] if row["question"] == "class"]
    assert [row["level"] for row in own] == ["1", "2", "aggregate"]
    assert all(row["test_standard_error"] is None and 0 <= row["test"] <= 1 for row in own)
    assert len(content["smoothing"][0]["dirichlet"]) == 2
    assert str(Path("run-0") / "probe" / "tsne.svg") in content["files"]
    assert all((tmp_path / file).exists() for file in content["files"])


def test_mistakes_are_one_line(mlap: Any, runs: list[str], tiny: Path) -> None:
    assert "no run directory nothing" in mlap("probe", "nothing").error
    assert "runs of the same seed are the same run" in mlap("probe", runs[0], runs[0], "--no-tsne", "--quiet").error
    assert mlap("train", tiny, *TRAIN, "--graph-norm", "--out", "normed").code == 0
    assert "differ in norm (graph and none)" in mlap("probe", runs[0], "normed", "--no-tsne", "--quiet").error
    assert "needs more graphs than that, got 20" in mlap("probe", runs[0], "--tsne-graphs", 20, "--quiet").error
