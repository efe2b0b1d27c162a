"""What the verbs share: options, loading data, and ways to talk to the user."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.errors import UsageError
from mlap.progress import steps_bar

if TYPE_CHECKING:
    from mlap.graphs import GraphSet
    from mlap.models import Model

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda[:i]|mps", help="Where to compute.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads.  [default: torch's own choice]")]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder of data sets.  [default: the one a model was trained with; $MLAP_DATA; the user's cache folder]",
        show_default=False,
    ),
]
ModelPath = Annotated[Path, typer.Argument(help="A model directory that `mlap train` made.", metavar="MODEL")]
InputArgument = Annotated[
    list[str],
    typer.Argument(help="A file (CSV, SMI, SDF, …; - for stdin), a data set's name, or SMILES.", metavar="INPUT…"),
]

SmilesColumn = Annotated[
    str | None, typer.Option("--smiles-column", help="A table's column of SMILES.  [default: inferred, and printed]")
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", help="A table's column of labels; may be repeated.  [default: inferred, and printed]"
    ),
]
TaskKind = Annotated[
    str | None, typer.Option("--task", help="binary, multiclass or regression.  [default: inferred from the labels]")
]
Positive = Annotated[
    str | None,
    typer.Option("--positive", metavar="VALUE", help="Which of two classes is the positive one.  [default: inferred]"),
]
SplitBy = Annotated[
    str | None,
    typer.Option(
        "--split-by",
        metavar="random|stratified|scaffold|column:NAME",
        help="How to divide the data into train, valid and test; or the name of an OGB split.  "
        "[default: stratified for a table with one target of classes, else random]",
    ),
]
SplitSeed = Annotated[
    int | None, typer.Option("--split-seed", metavar="N", help="Draw another random split.  [default: 0]")
]
SplitSizes = Annotated[
    str | None,
    typer.Option("--split-sizes", metavar="A,B,C", help="Shares of train, valid and test.  [default: 0.8,0.1,0.1]"),
]
SplitsFile = Annotated[
    Path | None,
    typer.Option("--splits-file", help="A file that says which row is for train, valid or test; a run's splits.json."),
]
Invalid = Annotated[
    str | None,
    typer.Option("--invalid", metavar="skip|error", help="What to do about rows with invalid SMILES.  [default: skip]"),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Read the data afresh, and keep no packed copy.")]


def table_options(
    smiles: str | None = None,
    targets: list[str] | None = None,
    task: str | None = None,
    split: str | None = None,
    split_seed: int | None = None,
    invalid: str | None = None,
    positive: str | None = None,
    split_sizes: str | None = None,
    splits_file: Path | None = None,
) -> dict[str, Any]:
    """The options of a reader that were given, under the reader's own names."""
    given = {
        "smiles": smiles,
        "targets": targets or None,
        "task": task,
        "positive": positive,
        "split": split,
        "split_seed": split_seed,
        "split_sizes": None if split_sizes is None else _shares(split_sizes),
        "splits_file": None if splits_file is None else str(splits_file.absolute()),
        "on_invalid": invalid,
    }
    return {key: value for key, value in given.items() if value is not None}


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{{field}} takes three shares such as 0.8,0.1,0.1, got {text!r}", "split_sizes") from None


def load(source: str, data_root: Path | None, quiet: bool = False, **options: Any) -> GraphSet:
    """The graph set that a DATASET argument names; what had to be inferred about it is said on stderr."""
    from mlap.graphs.sources import load_graphs

    with steps_bar(quiet) as progress:
        return load_graphs(source, root=data_root, progress=progress, say=lambda text: note(text, quiet), **options)


def load_model(path: Path, device: str = "cpu", quiet: bool = False) -> Model:
    """The model of a MODEL argument; that its training has not ended is said on stderr."""
    from mlap.models import Run, load

    model = load(path, device)
    members = getattr(model, "members", (model,))
    for text in [text for member in members if isinstance(member, Run) for text in member.notes]:
        note(f"note: {path}: {text}", quiet)
    return model


def use_threads(threads: int | None) -> None:
    """Compute with so many threads, if a number is given."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def one_or_many(inputs: list[str]) -> str | list[str]:
    """What the INPUT arguments are to the library: a single text may be a file, several are SMILES."""
    return inputs[0] if len(inputs) == 1 else inputs


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


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 graph`, `9,000 graphs`.

    >>> count(9000, "graph")
    '9,000 graphs'
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
