"""Every architecture computes and learns what it always did, to rounding, from the same seed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fixture import NAMES, PATH, cases, computed, history, key

STORED = json.loads(PATH.read_text())


@pytest.mark.parametrize("case", list(cases()), ids=key)
def test_outputs_and_gradients(case: dict[str, Any]) -> None:
    assert computed(case) == pytest.approx(STORED["computed"][key(case)], rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("architecture", NAMES)
def test_training(architecture: str) -> None:
    *losses, score = STORED["history"][architecture]
    *got, last = history(architecture)
    assert got == pytest.approx(losses, rel=1e-3)
    assert last == pytest.approx(score, abs=0.17)  # rounding may turn one of the six graphs
