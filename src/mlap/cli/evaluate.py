"""`mlap evaluate`: score a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    Json,
    ModelPath,
    Quiet,
    Threads,
    count,
    note,
    print_json,
    terminal_width,
    use_threads,
)
from mlap.names import METRICS

if TYPE_CHECKING:
    from mlap.training import Scores


def evaluate(
    model: ModelPath,
    data: Annotated[
        str | None, typer.Option(help="Other labelled data to score on.  [default: the data it was trained on]")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="train, valid, test or all.  [default: test of the model's own data, all of other data]"),
    ] = None,
    threads: Threads = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model by all measures of its task, for each target and on average.

    \b
    Examples:
      mlap evaluate runs/mine
      mlap evaluate runs/mine --data new-measurements.csv
      mlap evaluate runs/mine --split valid --json
    """
    from mlap.models import load

    use_threads(threads)
    silent = quiet or as_json
    loaded = load(model, device)
    if data is None:
        graphs = loaded.data(root=data_root, say=lambda text: note(text, silent))
    else:
        graphs = loaded.labelled(data, root=data_root, say=lambda text: note(text, silent))
    same = loaded.trained_on(graphs)
    if data is None and not same:
        note(f"note: {graphs.name} has changed since the model was trained on it (fingerprints differ)", silent)
    scores = loaded.evaluate(graphs, split or ("test" if data is None else "all"))
    if as_json:
        print_json({"model": str(model), **scores.as_dict(), "same_data": same})
    elif quiet:
        typer.echo(f"{scores.score:.4f}")
    else:
        typer.echo(f"{count(scores.graphs, 'graph')} of {scores.data} ({scores.part})")
        print_scores(scores)


def print_scores(scores: Scores) -> None:
    """A table of scores: a row for each metric, a column for each of several targets."""
    from rich.console import Console
    from rich.table import Table

    targets = scores.by_target if len(scores.by_target) > 1 else {}
    table = Table("", "mean" if targets else "score", *targets, box=None, pad_edge=False)
    for name, value in scores.values.items():
        of_targets = [_number(values[name]) for values in targets.values()]
        table.add_row(METRICS[name].label, _number(value), *of_targets, style="bold" if name == scores.metric else None)
    Console(width=terminal_width() or 200, highlight=False).print(table)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"
