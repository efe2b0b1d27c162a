"""Calls that once ended in a traceback."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Command

from mlap.cli import main


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_our_letters(encoding: str) -> None:
    """Help texts have an ellipsis, names may have anything: what cannot be shown is spelt."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-m", "mlap", "train", "--help"], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr.decode(encoding)[-300:]
    assert b"--help" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_names_that_a_terminal_cannot_show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, encoding: str) -> None:
    pytest.importorskip("rdkit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLAP_DATA", str(tmp_path / "data"))
    rows = [f"β{length}-{end},{'C' * length}{end},{int('O' in end)}" for length in range(1, 9) for end in "ONFP"]
    (tmp_path / "Ω.csv").write_text("имя,smiles,активность\n" + "\n".join(rows) + "\n", encoding="utf-8")

    def call(*arguments: str) -> str:
        """What the command prints on a terminal of that encoding."""
        printed, said = io.BytesIO(), io.BytesIO()
        monkeypatch.setattr(sys, "argv", ["mlap", *arguments])
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding))
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(said, encoding, "backslashreplace"))
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        sys.stderr.flush()
        assert ended.value.code == 0, said.getvalue()
        return (printed.getvalue() + said.getvalue()).decode("latin-1")

    options = ("--target", "активность")
    quick = ("--preset", "quick", "--epochs", "1", "--set", "descriptors=false")
    assert "\\u03a9" in call("data", "info", "Ω.csv", *options)
    call("train", "Ω.csv", *options, *quick, "--out", "β-run")
    call("evaluate", "β-run")
    assert "\\u03b2" in call("predict", "β-run", "Ω.csv")


def test_a_plan_of_nothing_but_brackets(mlap: Command, tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("layers = " + "[" * 50_000)
    answer = mlap("sweep", "synthetic", "--plan", "deep.toml", "--dry-run")
    assert answer.code == 1
    assert "deep.toml" in answer.error


def test_names_that_look_like_formulas(mlap: Command, tmp_path: Path) -> None:
    """Matplotlib takes what stands between dollars for mathematics."""
    pytest.importorskip("rdkit")
    name = "${7*7}_$\\frac"
    rows = [f"{'C' * length}{end},{int('O' in end)}" for length in range(1, 9) for end in ("O", "N", "CO", "F")]
    (tmp_path / "t.csv").write_text(f"smiles,{name}\n" + "\n".join(rows) + "\n")
    options = ("--preset", "quick", "--epochs", 1, "--set", "descriptors=false", "--quiet")
    assert mlap("train", "t.csv", "--target", name, "--out", "run", *options).code == 0
    assert mlap("evaluate", "run", "--split", "valid", "--plot", "reliability").code == 0
    assert mlap("explain", "run", "CCO", "--out", "explained").code == 0
