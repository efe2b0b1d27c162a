"""`mlap train my.csv`: what is trained unless told otherwise, and how long it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import Command

pytest.importorskip("rdkit", reason="SMILES need RDKit")

import mlap as library
from mlap.models import Ensemble, Run
from mlap.training import Recipe


@pytest.fixture
def table(tmp_path: Path) -> str:
    """200 molecules; those with oxygen are active."""
    rows = [f"{'C' * (1 + n % 20)}{'O' if n % 3 else ''}{'N' * (n % 4)},{int(n % 3 > 0)}" for n in range(200)]
    (tmp_path / "my.csv").write_text("\n".join(["smiles,active", *rows]) + "\n")
    return str(tmp_path / "my.csv")


def test_without_options_it_is_an_ensemble_within_the_time(mlap: Command, table: str, tmp_path: Path) -> None:
    # A budget that lets nothing but the least through: one network of one epoch.
    out = tmp_path / "model"
    answer = mlap("train", table, "--time", 0.0001, "--out", out)
    assert answer.code == 0, answer.err
    for fact in ("rf-morgan", "wl-linear", "1 network of 1 epoch", "0.0001 minutes", "this will take about"):
        assert fact in answer.err
    model = library.load(out)
    assert isinstance(model, Ensemble)
    assert [member.name for member in model.members] == ["mlap-sum", "rf-morgan", "wl-linear"]
    network = model.members[0]
    assert isinstance(network, Run)
    assert network.recipe == Recipe.recommended("binary", 160, molecules=True, epochs=1)
    assert model.weights.fitted is (len(model.data().split("valid")) >= 60)
    (explained,) = model.explain(["CCO"])
    assert set(explained.others) == {"rf-morgan", "wl-linear"}
    assert explained.residual < 1e-4
    again = mlap("train", table, "--time", 0.0001, "--out", out, "--resume", "--quiet")
    assert again.code == 0, again.err


def test_settings_of_the_network_ask_for_one(mlap: Command, table: str, tmp_path: Path) -> None:
    answer = mlap("train", table, "--epochs", 1, "--width", 8, "--out", tmp_path / "run", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["recipe"] == Recipe.recommended("binary", 160, molecules=True, epochs=1, width=8).as_dict()
    several = mlap("train", table, "--epochs", 1, "--width", 8, "--members", 2, "--out", tmp_path / "two", "--json")
    assert [member["name"] for member in several.json["members"]] == [
        "mlap-sum 1",
        "mlap-sum 2",
        "rf-morgan",
        "wl-linear",
    ]


def test_other_presets_are_single_networks(mlap: Command, table: str, tmp_path: Path) -> None:
    for preset, recipe in (
        ("quick", Recipe.quick("binary", 160, molecules=True, epochs=1)),
        ("paper", Recipe(epochs=1)),
    ):
        answer = mlap("train", table, "--preset", preset, "--epochs", 1, "--out", tmp_path / preset, "--json")
        assert answer.code == 0, answer.err
        assert answer.json["recipe"] == recipe.as_dict()
    answer = mlap("train", table, "--preset", "recomended")
    assert answer.code == 2
    assert "'recomended'" in answer.error
    assert "'recommended'" in answer.error
    assert mlap("train", table, "--time", 0, "--quiet").code == 2
