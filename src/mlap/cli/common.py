"""What the verbs share: options, loading data, and ways to talk to the user."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.errors import UsageError

if TYPE_CHECKING:
    from mlap.graphs import GraphSet
    from mlap.training import Run

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda[:i]|mps", help="Where to compute.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        help="Where data sets lie.  [default: where a run has them from; $MLAP_DATA; the user's cache folder]",
        show_default=False,
    ),
]


SmilesColumn = Annotated[
    str | None, typer.Option("--smiles-column", help="A table's column of SMILES.  [default: guessed, and stated]")
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", help="A table's column of labels; may be given often.  [default: guessed, and stated]"
    ),
]
TaskKind = Annotated[
    str | None, typer.Option("--task", help="binary, multiclass or regression.  [default: guessed from the labels]")
]
SplitBy = Annotated[
    str | None,
    typer.Option(
        "--split-by",
        metavar="random|stratified|scaffold|column:NAME",
        help="How a table is divided into train, valid and test, or the name of an OGB split.",
    ),
]
SplitSeed = Annotated[
    int | None, typer.Option(metavar="N", help="Draw another random split of a table or TU set.  [default: 0]")
]
Invalid = Annotated[
    str | None, typer.Option(metavar="error|skip", help="What to do about rows with invalid SMILES.  [default: skip]")
]


def table_options(
    smiles: str | None,
    targets: list[str] | None,
    task: str | None,
    split: str | None,
    split_seed: int | None,
    invalid: str | None,
) -> dict[str, Any]:
    """The options of a reader that were given, under the reader's own names."""
    given = {
        "smiles": smiles,
        "targets": targets or None,
        "task": task,
        "split": split,
        "split_seed": split_seed,
        "on_invalid": invalid,
    }
    return {key: value for key, value in given.items() if value is not None}


def load(source: str, data_root: Path | None, quiet: bool = False, **options: Any) -> GraphSet:
    """The graph set that a DATASET argument names; what had to be guessed about it is said on stderr."""
    from mlap.graphs.sources import load_graphs

    with steps_bar(quiet) as progress:
        return load_graphs(source, root=data_root, progress=progress, say=lambda text: note(text, quiet), **options)


def root_of(data: Mapping[str, Any]) -> Path | None:
    """The `--data-root` that a run was trained with, by the `data` of its configuration, as long as it is there."""
    root = data.get("root")  # runs of before have none
    return Path(root) if root and Path(root).is_dir() else None


def load_data_of(run: Run, data: str | None, data_root: Path | None, quiet: bool = False) -> GraphSet:
    """The data that a run was trained on, read as it was then; or other data, read for the same task."""
    from mlap.graphs.sources import is_table

    config = run.config["data"]
    data_root = data_root or root_of(config)
    if data is None:
        return load(config["source"], data_root, quiet, **config["options"])
    if not is_table(data):
        return load(data, data_root, quiet)
    targets = config["options"].get("targets") or (run.task.names if run.task.kind != "multiclass" else None)
    return load(data, data_root, quiet, task=run.task, **({"targets": targets} if targets else {}))


def load_input(
    run: Run, inputs: list[str], data_root: Path | None, smiles: str | None = None, quiet: bool = False
) -> GraphSet:
    """Graphs to predict or explain: a data set, or SMILES themselves. Labels in a table are not needed."""
    from mlap.graphs.molecules import ATOM_CARDINALITIES, molecules
    from mlap.graphs.sources import is_source, is_table

    data_root = data_root or root_of(run.config["data"])
    if len(inputs) == 1 and is_source(inputs[0], data_root):
        if is_table(inputs[0]):
            given = {"smiles": smiles} if smiles else {}
            return load(inputs[0], data_root, quiet, targets=(), on_invalid="skip", **given)
        return load(inputs[0], data_root, quiet)
    if run.config["features"]["nodes"] != list(ATOM_CARDINALITIES):
        raise UsageError(
            f"{inputs[0]!r} is no data set, and {run.path} was not trained on molecules, so it is not read as SMILES"
        )
    read = molecules(inputs, on_invalid="skip")
    for invalid in read.invalid:
        note(f"left out: {invalid.smiles!r} is neither a data set nor valid SMILES ({invalid.reason})")
    if not len(read.graphs):
        raise UsageError(f"{inputs[0]!r} is neither a data set nor valid SMILES; `mlap data list` names the data sets")
    return read.graphs


def resolve_device(device: str) -> str:
    """The torch device that a `--device` option names."""
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    kind = device.partition(":")[0]
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in available:
        raise UsageError(f"--device must be auto, cpu, cuda, cuda:<number> or mps, got {device!r}")
    if not available[kind]:
        raise UsageError(f"--device {device}: this machine has no such device; use --device cpu")
    try:
        return str(torch.device(device))
    except RuntimeError:
        raise UsageError(f"--device must be auto, cpu, cuda, cuda:<number> or mps, got {device!r}") from None


def print_json(content: dict[str, Any]) -> None:
    """Print a result for machines."""
    typer.echo(json.dumps(content, indent=2, default=str))


def note(message: str, quiet: bool = False) -> None:
    """Say something beside the result, on stderr."""
    if not quiet:
        print(message, file=sys.stderr, flush=True)


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is; `None` where it is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@contextmanager
def steps_bar(silent: bool) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A progress bar for work of named steps, called with (what, done, total); `None` where there is no terminal."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None)
        yield lambda what, done, total: progress.update(bar, description=what, completed=done, total=total)


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 graph`, `9,000 graphs`.

    >>> count(9000, "graph")
    '9,000 graphs'
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
