"""The examples without graphs run, in a reduced form."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

import matplotlib
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples"


def loaded(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stages_of_a_cnn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib.use("Agg")
    example = loaded("cnn_levels")
    scores = example.main(["--seeds", "2", "--epochs", "3", "--out", str(tmp_path / "attention.png")])
    assert {name: len(found) for name, found in scores.items()} == {"last stage": 2, "all stages": 2}
    assert min(map(min, scores.values())) > 0.3  # ten digits: chance is 0.1
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert "2 seeds" in capsys.readouterr().out


def test_attention_of_a_cnn_is_over_positions() -> None:
    torch.manual_seed(0)
    images = torch.rand(5, 8, 8)
    logits, attention = loaded("cnn_levels").SmallCNN(stages=3)(images)
    assert logits.shape == (5, 10)
    assert [tuple(stage.shape) for stage in attention] == [(5, 8, 8), (5, 4, 4), (5, 2, 2)]
    for stage in attention:
        torch.testing.assert_close(stage.sum(dim=(1, 2)), torch.ones(5))


def test_sequences_are_what_their_class_says() -> None:
    x, y = loaded("transformer_levels").sequences(200, torch.Generator().manual_seed(0))
    for sequence, label in zip(x.tolist(), y.tolist(), strict=True):
        neighbours = set(itertools.pairwise(sequence))
        assert neighbours & {(3, 4), (4, 3), (3, 3)} == {[(3, 4), (4, 3), (3, 3)][label % 3]}
    counts = torch.stack([(x == letter).sum(dim=1) for letter in range(3)], dim=1)
    assert (counts.argmax(dim=1) == y // 3).float().mean() > 0.9  # a pair may lie upon some of the letters


def test_layers_of_a_transformer() -> None:
    scores = loaded("transformer_levels").main(["--seeds", "1", "--steps", "60"])
    assert min(map(min, scores.values())) > 0.25  # nine classes: chance is 0.11
