"""A join of one's own: one class and one line, and every verb knows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.conftest import Command

from mlap.names import ARCHITECTURES, JOINS

PLUGIN = '''
import torch
from mlap.names import JOINS, Part
from mlap.nn import Join


class Loudest(Join):
    """Levels weigh by how large they are."""

    def weights(self, levels):
        return torch.stack([h.square().mean(dim=1) for h in levels], dim=1).softmax(dim=1)


JOINS["loudest"] = Part(Loudest, "levels weigh by how large they are")
'''

SMALL = ("--set", "width=6", "--set", "epochs=1")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the user's that adds a join, found by this process and by workers; forgotten afterwards."""
    (tmp_path / "loud_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("MLAP_PLUGINS", "loud_plugin")
    yield
    JOINS.pop("loudest", None)
    sys.modules.pop("loud_plugin", None)


@pytest.mark.usefixtures("plugin")
def test_it_trains_sweeps_is_explained_and_reported(mlap: Command, tiny: Path, tmp_path: Path) -> None:
    assert "mlap-loudest" not in ARCHITECTURES
    unknown = mlap("train", tiny, "-a", "mlap-loud")
    assert "mlap-loudest" in unknown.error

    trained = mlap("train", tiny, "-a", "mlap-loudest", "--layers", 2, *SMALL, "--out", "run", "--json")
    assert trained.code == 0, trained.err

    explained = mlap("explain", "run", tiny, "--graphs", "0-2", "--max", 1, "--json")
    assert explained.code == 0, explained.err
    for one in explained.json["explanations"]:
        assert one["levels"] == [1, 2]
        assert one["bias"] + sum(map(sum, one["shares"])) == pytest.approx(one["logit"], abs=1e-4)

    grid = ("-a", "jk-loudest,mlap-loudest,naive", "--layers", "2")
    swept = mlap("sweep", tiny, *grid, *SMALL, "--study", "s.db", "--workers", 1, "--json")
    assert swept.code == 0, swept.err
    assert (swept.json["done"], swept.json["failed"]) == (3, 0)

    reported = mlap("report", "s.db", "run", "--no-tsne", "--out", "page", "--json")
    assert reported.code == 0, reported.err
    assert reported.json["looked_into"] == ["run"]
    page = (tmp_path / "page" / "index.html").read_text()
    for name in ("jk-loudest", "mlap-loudest", "naive"):
        assert name in page
