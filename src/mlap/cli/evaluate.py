"""`mlap evaluate`: score a trained network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlap.cli.common import DataRoot, Device, Json, Quiet, count, load_data_of, note, print_json, resolve_device


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory that `mlap train` made.", metavar="RUN")],
    data: Annotated[
        str | None, typer.Option(help="Another DATASET to score on.  [default: the one it was trained on]")
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test; all for every graph.")] = "test",
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a trained network, with the weights of its best validation epoch.

    \b
    Examples:
      mlap evaluate runs/synthetic/mlap-sum-L3-graph-s0
      mlap evaluate runs/mine --split valid --json
    """
    import numpy as np

    from mlap.training import evaluate as score_graphs
    from mlap.training import load_run
    from mlap.training.run import check_fits

    trained = load_run(run)
    graphs = load_data_of(trained, data, data_root, as_json or quiet)
    check_fits(trained, graphs)
    same = graphs.fingerprint == trained.config["data"]["fingerprint"]
    if not same and data is None:
        note(f"note: {graphs.name} is not what the network was trained on any more (fingerprints differ)", as_json)
    indices = np.arange(len(graphs)) if split == "all" else graphs.split(split)
    device = resolve_device(device)
    score = score_graphs(trained.network.to(device), trained.objective, graphs, indices, device)
    if as_json:
        print_json(
            {
                "run": str(run),
                "data": graphs.name,
                "split": split,
                "graphs": len(indices),
                "metric": trained.task.metric,
                "score": score,
                "same_data": same,
            }
        )
    elif quiet:
        typer.echo(f"{score:.4f}")
    else:
        typer.echo(
            f"{split} {trained.task.metric_label} {score:.4f}  ({count(len(indices), 'graph')} of {graphs.name})"
        )
