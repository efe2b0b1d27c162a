"""Baselines of a study: simple models on the same data and split, so that people see when the simple thing wins.

They are fitted by the process that drives the sweep, with all cores: a forest takes seconds where a network takes
minutes. What is done is in the study, so a baseline is fitted once.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mlap.errors import MlapError, unknown
from mlap.files import first_line
from mlap.graphs import GraphSet
from mlap.graphs.sources import absolute_source
from mlap.locking import locked_study
from mlap.machines import usable_cores
from mlap.models.baseline import train_baseline
from mlap.names import BASELINES
from mlap.study.run_folders import RunFolders
from mlap.study.settings import SweepSettings
from mlap.study.store import BaselineRecord, Study

#: baselines that chance has no part in: one seed says it all
_CERTAIN = ("wl-linear",)


def check_baselines(text: str | None) -> tuple[str, ...]:
    """The baselines in a text such as `rf-morgan,wl-linear`.

    >>> check_baselines("wl-linear, rf-morgan"), check_baselines(None)
    (('wl-linear', 'rf-morgan'), ())
    """
    names = tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))
    for name in names:
        if name not in BASELINES:
            raise unknown("baseline", name, BASELINES, "baselines")
    return names


def baseline_hash(name: str, seed: int, fingerprint: str) -> str:
    """The identity of a fitted baseline."""
    text = json.dumps({"baseline": name, "seed": seed, "data": fingerprint}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fit_baselines(
    names: Iterable[str],
    seeds: Sequence[int],
    settings: SweepSettings,
    graphs: GraphSet,
    *,
    on_wait: Callable[[str], None] | None = None,
    on_baseline: Callable[[BaselineRecord], None] | None = None,
) -> list[BaselineRecord]:
    """Fit the baselines that a study does not have yet.

    A baseline that fails is recorded, as a run is. With `keep_models` the fitted ones stay in `STUDY.runs`.

    Args:
        names: of `mlap.names.BASELINES`.
        seeds: of those that draw by chance.
        settings: the data, the study, and how to run.
        graphs: the loaded data.
        on_wait: called before waiting for another sweep, with who is waited for.
        on_baseline: called with each one that was fitted now.

    Returns:
        All records of these baselines, of now and before.
    """
    path = Path(settings.study)
    wanted = [(name, seed) for name in names for seed in ((0,) if name in _CERTAIN else seeds)]
    hashes = {baseline_hash(name, seed, graphs.fingerprint): (name, seed) for name, seed in wanted}
    over = ("done",) if settings.retry_failed else ("done", "failed")
    folders = RunFolders(path, settings.keep_models)
    with locked_study(path, wait=settings.wait, on_wait=on_wait), Study.create(path) as study:
        there = {record.hash for record in study.baselines() if record.status in over}
        for hash, (name, seed) in hashes.items():
            if hash in there:
                continue
            _fit(study, name, seed, hash, graphs, settings, folders)
            if on_baseline is not None:
                on_baseline(next(record for record in study.baselines() if record.hash == hash))
        return [record for record in study.baselines() if record.hash in hashes]


def _fit(
    study: Study, name: str, seed: int, hash: str, graphs: GraphSet, settings: SweepSettings, folders: RunFolders
) -> None:
    """Fit one baseline and write what became of it."""
    began = time.perf_counter()
    out = folders.of(hash) if settings.keep_models else None
    values: dict[str, object] = {"hash": hash, "name": name, "seed": seed, "host": platform.node()}
    try:
        model = train_baseline(name, graphs, out, seed=seed, overwrite=True, n_jobs=usable_cores())
    except MlapError as error:
        values |= {"status": "failed", "error": first_line(error)}
    else:
        assert model.result is not None
        result = model.result
        values |= {
            "status": "done",
            "valid_score": result.valid_score,
            "test_score": result.test_score,
            "num_parameters": result.num_parameters,
            "seconds": time.perf_counter() - began,
            "versions": json.dumps(model.config["versions"]),
        }
    study.add_baseline(values, graphs, absolute_source(settings.source), dict(settings.options))
