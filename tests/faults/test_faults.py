"""Short forms of the campaigns; `make soak` runs the long ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from faults.syscalls import available

CAMPAIGN = Path(__file__).with_name("campaign.py")

pytestmark = [
    pytest.mark.skipif(not available(), reason="faults are injected on Linux 5.5 and newer, on x86-64 and ARM"),
    pytest.mark.slow,
]
pytest.importorskip("rdkit")


def trials(*arguments: str) -> list[dict[str, Any]]:
    """Run a campaign in a process of its own, which forks for each trial; what does not hold fails the test."""
    ended = subprocess.run([sys.executable, CAMPAIGN, *arguments], capture_output=True, text=True, timeout=550)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [trial for trial in found if trial["problems"]] == []
    return found


def test_a_full_disk_stops_a_command_and_nothing_else() -> None:
    found = trials("inject", "--faults", "ENOSPC", "--step", "40", "--verbs", "train,pack,predict,calibrate")
    assert Counter(trial["scenario"] for trial in found).keys() == {"train", "pack", "predict", "calibrate"}
    assert not any(trial["survived"] for trial in found)


def test_a_broken_disk_is_survived_or_said_in_one_line() -> None:
    found = trials("inject", "--faults", "EIO", "--first", "20", "--step", "90", "--verbs", "sweep,ensemble,explain")
    assert {trial["scenario"] for trial in found} == {"sweep", "ensemble", "explain"}


def test_a_killed_command_can_be_repeated() -> None:
    found = trials("kill", "--trials", "6", "--seed", "1", "--verbs", "train,sweep,pack,predict shards,ensemble,report")
    assert len(found) == 6
