"""Options about levels, from the command to the explanation."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import Command

FAST = ("--layers", 3, "--width", 8, "--epochs", 2, "--seed", 1)


def test_chosen_levels(mlap: Command, tiny: Path) -> None:
    trained = mlap("train", tiny, *FAST, "--levels", "3,1", "--out", "run", "--json")
    assert trained.code == 0
    assert trained.json["recipe"]["levels"] == "1+3"
    assert trained.json["levels"] == [1, 3]
    explained = mlap("explain", "run", tiny, "--graphs", 0, "--json")
    assert explained.code == 0
    again = mlap("train", "--resume", "--out", "run", "--epochs", 3)
    assert again.code == 0
    assert "levels 1+3" in again.out
    probed = mlap("probe", "run", "--json", "--out", "figures")
    assert probed.code == 0
    assert {row["level"] for row in probed.json["probes"]} == {"1", "3", "aggregate"}


def test_learned_levels_are_told(mlap: Command, tiny: Path) -> None:
    answer = mlap("train", tiny, *FAST, "--levels", "learned", "--out", "run")
    assert answer.code == 0
    assert "levels 1+2+3" in answer.out


@pytest.mark.parametrize("stages", ["naive:1", "naive:1+frozen:1"])
def test_stages(mlap: Command, tiny: Path, stages: str) -> None:
    answer = mlap("train", tiny, *FAST, "--epochs", 3, "--set", f"stages={stages}", "--out", "run", "--json")
    assert answer.code == 0
    assert answer.json["recipe"]["stages"] == stages
    assert answer.json["best_epoch"] > 1


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (("--levels", "5"), ("levels", "5")),
        (("--levels", "first"), ("levels", "'first'")),
        (("--architecture", "naive", "--levels", "1"), ("levels", "naive")),
        (("--set", "stages=naive:2"), ("stages", "2 of 2")),
        (("--set", "level_dropout=2"), ("0.99", "2.0")),
    ],
)
def test_wrong_options(mlap: Command, tiny: Path, options: tuple[str, ...], facts: tuple[str, ...]) -> None:
    answer = mlap("train", tiny, *FAST, *options, "--out", "run")
    assert answer.code == 2
    assert all(fact in answer.error for fact in facts)
    assert not Path("run").exists()


def test_a_sweep_of_options(mlap: Command, tiny: Path) -> None:
    swept = mlap(
        *("sweep", tiny, "--architectures", "mlap-sum", "--layers", 3, "--seeds", 0, "--study", "study.db", "--json"),
        *("--set", "width=8", "--set", "epochs=2", "--set", "levels=1+3,last:1", "--workers", 1),
    )
    assert swept.code == 0
    assert swept.json["done"] == 2
    assert swept.json["plan"]["levels"] == ["1+3", "last:1"]
