"""What the scripts here and in `research` share: where data and results lie, and tables that say what made them."""

from __future__ import annotations

import csv
import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlap.provenance import made_by as made_by_mlap

ROOT = Path(__file__).resolve().parents[1]
#: where all measured tables are kept
RESULTS = ROOT / "research" / "results"
#: the folder of real data
DATA = Path(os.environ.get("MLAP_TEST_DATA") or ROOT.parent / "shared" / "data")


def real_data(name: str) -> Path:
    """A file or folder of the real data; ends the program if there is none."""
    path = DATA / name
    if not path.exists():
        sys.exit(f"there is no {path}; set MLAP_TEST_DATA to the folder that holds {name}")
    return path


def made_by(*packages: str, arguments: Sequence[str] | None = None) -> dict[str, str]:
    """The last columns of a table: the command, the version and sources of mlap, some packages and python, the machine.

    Args:
        packages: whose versions matter.
        arguments: of the command, where they are not to be written as they were given.
    """
    module = sys.modules["__main__"].__spec__  # what `python -m` started, if it did
    program = ["-m", module.name] if module else [f"benchmarks/{Path(sys.argv[0]).name}"]
    command = ["python", *program, *(sys.argv[1:] if arguments is None else arguments)]
    versions = [made_by_mlap(), *(f"{package} {importlib.metadata.version(package)}" for package in packages)]
    return {
        "command": shlex.join(command),
        "versions": ", ".join([*versions, f"python {platform.python_version()}"]),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_processor()}",
    }


def _processor() -> str:
    """What the machine calls its processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def write(name: str, rows: Sequence[Mapping[str, Any]], common: Mapping[str, Any]) -> None:
    """Write rows with what they have in common into `research/results/`; a row need not have all columns."""
    columns = dict.fromkeys(key for row in rows for key in row if key not in common)
    with (RESULTS / name).open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [*columns, *common], lineterminator="\n")
        table.writeheader()
        table.writerows({**common, **row} for row in rows)
