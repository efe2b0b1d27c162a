"""Short forms of the fuzzing: sound inputs are read, so that there is something to break; damaged ones are answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from damage import damaged_bytes
from faults import fuzz

pytest.importorskip("rdkit")
pytest.importorskip("pyarrow")
pytest.importorskip("openpyxl")


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_a_target(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = fuzz.TARGETS[name]
    seeds = target.seeds(tmp_path)
    use = target.use(tmp_path)
    refused = []

    def answered(read: Callable[[], object]) -> None:
        try:
            read()
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}")

    with monkeypatch.context() as patch:
        patch.setattr(fuzz, "_answered", answered)
        use(seeds[0])
    assert len(refused) <= (name == "smi"), refused  # a file without labels is nothing to train on
    for trial in range(12):
        rng = np.random.default_rng(trial)
        seed = seeds[trial % len(seeds)]
        use(seed[:1] + damaged_bytes(seed[1:], rng))
