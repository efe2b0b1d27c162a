"""`nn` alone: it says what the paper says, and asks for an executor at one place."""

from __future__ import annotations

import re
from pathlib import Path

import mlap.nn

SOURCES = {path.name: path.read_text() for path in Path(mlap.nn.__file__).parent.glob("*.py")}


def test_one_place_knows_of_kernels() -> None:
    assert [name for name, text in SOURCES.items() if "kernels" in text] == ["execution.py"]
    assert [name for name, text in SOURCES.items() if "import executor" in text] == ["network.py"]


def test_nothing_is_said_about_speed() -> None:
    for name, text in SOURCES.items():
        assert not re.findall(r"\b(fast|faster|fastest|slow|slower|speed|numba)\b", text, re.IGNORECASE), name


def test_every_module_of_the_paper_names_it() -> None:
    for name in ("backbone", "convs", "encoders", "join", "network", "pooling", "readout"):
        assert SOURCES[f"{name}.py"].count("arXiv:2103.01488") == 1, name
