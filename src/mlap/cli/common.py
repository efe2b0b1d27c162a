"""What the verbs share: options, loading data, and ways to talk to the user."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.errors import UsageError

if TYPE_CHECKING:
    from mlap.graphs import GraphSet

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda[:i]|mps", help="Where to compute.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Where data sets lie; $MLAP_DATA or the user's cache folder unless given.", show_default=False),
]


def load(source: str, data_root: Path | None, **options: Any) -> GraphSet:
    """The graph set that a DATASET argument names."""
    from mlap.graphs.sources import load_graphs

    return load_graphs(source, root=data_root, **options)


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


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 graph`, `9,000 graphs`.

    >>> count(9000, "graph")
    '9,000 graphs'
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
