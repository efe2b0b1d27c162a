"""The runs of several studies together, and of files of runs as `mlap compare --table runs --format csv` writes them.

Such a file says of every run what identifies it, recipe and data, and how it ended. So it is enough to compare runs
again, can be kept under version control where a study cannot, and has nothing of the machine it was made on.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mlap.errors import DataError, UsageError, unknown
from mlap.names import METRICS
from mlap.study.store import FOUNDING_FIELDS, BaselineRecord, RunRecord, Study, run_hash
from mlap.training import Recipe

_RECIPE = tuple(field.name for field in dataclasses.fields(Recipe))
_ABOUT = ("data_name", "fingerprint", "metric")
#: what a run that is not done may lack → its type
_RESULT: dict[str, Callable[[str], Any]] = {
    "best_epoch": int,
    "valid_score": float,
    "test_score": float,
    "num_parameters": int,
    "seconds": float,
    "device": str,
}
#: The columns that every file of runs has. There may be others: fields that recipes gained later, `error` where a run
#: failed.
COLUMNS = (
    *_ABOUT,
    *(name for name in _RECIPE if name in FOUNDING_FIELDS),
    *("status", *_RESULT, "hash", "packages"),
)


def gather(paths: Iterable[str | Path]) -> list[RunRecord]:
    """The runs of studies and of CSV files of runs, each run once; if it is in several, a finished one counts."""
    runs: dict[str, RunRecord] = {}
    for path in map(Path, paths):
        if path.suffix.lower() == ".csv":
            found = read_runs(path)
        else:
            with Study.open(path) as study:
                found = study.runs()
        for run in found:
            if run.hash not in runs or (run.status == "done" and runs[run.hash].status != "done"):
                runs[run.hash] = run
    return list(runs.values())


def gather_baselines(paths: Iterable[str | Path]) -> list[BaselineRecord]:
    """The baselines of studies, each once; a CSV file of runs has none."""
    found: dict[str, BaselineRecord] = {}
    for path in map(Path, paths):
        if path.suffix.lower() != ".csv":
            with Study.open(path) as study:
                for record in study.baselines():
                    if record.hash not in found or record.status == "done":
                        found[record.hash] = record
    return list(found.values())


def read_runs(path: Path) -> list[RunRecord]:
    """The runs of a CSV file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.DictReader(file)
            if missing := [name for name in COLUMNS if name not in (lines.fieldnames or ())]:
                raise DataError(
                    f"{path} has no column {missing[0]!r}; a file of runs is the table `runs` of a study as CSV"
                )
            return [_run(line, f"{path}, line {lines.line_num}") for line in lines]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file: {error}") from error


def _run(line: dict[str, str], where: str) -> RunRecord:
    if None in line.values() or None in line:
        raise DataError(f"{where}: there are more or fewer values than columns")
    if line["metric"] not in METRICS:
        raise DataError(f"{where}: {unknown('metric', line['metric'], METRICS)}")
    try:
        recipe = Recipe.of({name: line[name] for name in _RECIPE if line.get(name)})
        values: dict[str, Any] = {name: read(line[name]) if line[name] else None for name, read in _RESULT.items()}
    except (UsageError, ValueError) as error:
        raise DataError(f"{where}: {error}") from error
    if run_hash(recipe, line["fingerprint"]) != line["hash"]:
        raise DataError(f"{where}: run {line['hash']} has another recipe or other data; was the line edited?")
    values |= {name: line[name] for name in (*_ABOUT, "status", "hash")}
    return RunRecord(
        **values,
        recipe=recipe,
        source=line["data_name"],
        higher_is_better=METRICS[line["metric"]].higher_is_better,
        error=line.get("error") or None,
        versions=_versions(line["packages"]),
    )


def _versions(packages: str) -> dict[str, str] | None:
    """Names and versions from how the table of runs writes them.

    >>> _versions("mlap 0.1.0, torch 2.13.0+cpu")
    {'mlap': '0.1.0', 'torch': '2.13.0+cpu'}
    """
    names_and_versions = (package.partition(" ") for package in packages.split(", ") if package)
    return {name: version for name, _, version in names_and_versions} or None
