from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlap.cli import main
from mlap.graphs import packed, synthetic


@dataclass
class Answer:
    """What the command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The whole of stdout as JSON."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of an expected error."""
        assert self.out == ""
        line, end, rest = self.err.partition("\n")
        assert (end, rest) == ("\n", ""), f"more than one line: {self.err}"
        assert line.startswith("mlap: ")
        return line.removeprefix("mlap: ")


Command = Callable[..., Answer]


@pytest.fixture
def mlap(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command, run in this process as `main` runs it, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLAP_DATA", str(tmp_path / "data"))

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr("sys.argv", ["mlap", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capfd.readouterr()
        return Answer(int(exit_.value.code or 0), out, err)

    return call


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A small synthetic set, packed."""
    path = tmp_path / "tiny.graphs"
    packed.save(synthetic(graphs_per_class=6), path)
    return path
