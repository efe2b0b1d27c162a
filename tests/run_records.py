"""Hand-made runs of a study, for all tests that read studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlap.study import RunRecord
from mlap.study.store import run_hash
from mlap.training import Recipe


def run(
    architecture: str,
    valid: float | None,
    test: float | None = None,
    *,
    data: str = "mine",
    fingerprint: str = "f" * 64,
    metric: str = "rocauc",
    higher_is_better: bool = True,
    status: str = "done",
    **fields: Any,
) -> RunRecord:
    """One run; an architecture that `mlap` does not know stands for a user's own."""
    recipe = Recipe.of(fields)
    object.__setattr__(recipe, "architecture", architecture)
    return RunRecord(
        run_hash(recipe, fingerprint),
        recipe,
        data,
        fingerprint,
        data,
        metric,
        higher_is_better,
        status,
        valid_score=valid,
        test_score=test,
    )


def cell(
    architecture: str, valid: Sequence[float], test: Sequence[float | None] | None = None, **options: Any
) -> list[RunRecord]:
    """The runs of one cell, one for each score, with seeds from 0."""
    tests = [None] * len(valid) if test is None else test
    return [
        run(architecture, *scores, seed=seed, **options) for seed, scores in enumerate(zip(valid, tests, strict=True))
    ]
