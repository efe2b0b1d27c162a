"""`mlap sweep --baselines`: what it prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from mlap.cli.common import note
from mlap.cli.sweep_call import Answer, SweepCall
from mlap.names import METRICS

if TYPE_CHECKING:
    from mlap.study import BaselineRecord


def run(names: Sequence[str], seeds: Sequence[int], call: SweepCall) -> Answer | None:
    """Fit the baselines that the study does not have yet; nothing in a dry run."""
    from mlap.study.baselines import fit_baselines

    if not names or call.dry_run:
        return None

    def on_baseline(record: BaselineRecord) -> None:
        note(f"{record.name} s{record.seed}  {_scores(record)}", call.silent)

    records = fit_baselines(names, seeds, call.settings, call.graphs, on_wait=call.on_wait, on_baseline=on_baseline)
    content = {"baselines": [asdict(record) for record in records]}
    return Answer(content, failed=any(record.status == "failed" for record in records))


def _scores(record: BaselineRecord) -> str:
    if record.status == "failed":
        return f"failed: {record.error}"
    label = METRICS[record.metric].label
    shown = (("validation", record.valid_score), ("test", record.test_score))
    return ", ".join(f"{part} {label} {score:.4f}" for part, score in shown if score is not None)
