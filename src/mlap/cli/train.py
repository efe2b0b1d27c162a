"""`mlap train`: train a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    Invalid,
    Json,
    NoCache,
    Positive,
    Quiet,
    SmilesColumn,
    SplitBy,
    SplitSeed,
    SplitsFile,
    SplitSizes,
    Targets,
    TaskKind,
    Threads,
    print_json,
    table_options,
    use_threads,
)
from mlap.cli.train_call import TrainCall, train_folds, train_one
from mlap.errors import UsageError, unknown
from mlap.names import ARCHITECTURES, BACKBONES, BASELINES, PRESETS


def train(
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="A data set's name (see mlap data list) or a path to your own.", show_default=False, metavar="DATASET"
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(PRESETS),
            help="What to train with.  [default: recommended; paper for the paper's data sets]",
        ),
    ] = None,
    time: Annotated[
        float | None,
        typer.Option("--time", metavar="MINUTES", help="Train for about so long: fewer networks, then fewer epochs."),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(
            "--architecture",
            "-a",
            help=f"{', '.join(ARCHITECTURES[:-1])} or {ARCHITECTURES[-1]}.  [default: mlap-sum]",
        ),
    ] = None,
    layers: Annotated[
        int | None, typer.Option("--layers", "-l", help="Message-passing layers.  [default: the preset's]")
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(metavar="1,3|last:2|learned", help="The levels that the readout reads.  [default: all]"),
    ] = None,
    graph_norm: Annotated[
        bool | None,
        typer.Option("--graph-norm/--no-graph-norm", help="GraphNorm after each layer.  [default: the preset's]"),
    ] = None,
    width: Annotated[int | None, typer.Option(help="Width of node representations.  [default: the preset's]")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training graphs.  [default: the preset's]")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Graphs per step.  [default: the preset's]")] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate.  [default: the preset's]")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout after each layer.  [default: the preset's]")] = None,
    backbone: Annotated[str | None, typer.Option(help=f"{', '.join(BACKBONES)}.  [default: gin]")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed for initial weights, shuffling and dropout.  [default: 0]")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="The validation score that selects epochs, e.g. rocauc, mcc, rmse.  [default: the task's]"),
    ] = None,
    class_weight: Annotated[
        str | None, typer.Option(metavar="none|balanced", help="balanced: rare classes count more.  [default: none]")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(metavar="N", help="Stop after N epochs without a better validation score.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other field of the recipe, e.g. --set lr_decay=0.5."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The run directory.  [default: runs/DATASET/…]")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in --out after its last epoch; with more --epochs, extend it."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    init: Annotated[
        Path | None, typer.Option("--init", metavar="RUN", help="Start from the weights of a trained run.")
    ] = None,
    freeze_backbone: Annotated[
        bool, typer.Option("--freeze-backbone", help="With --init: train only the readout and the head.")
    ] = False,
    folds: Annotated[
        int | None, typer.Option("--folds", min=3, metavar="K", help="Cross-validate: K runs, each tested on one fold.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="NAME", help=f"Fit a simple model instead: {', '.join(BASELINES)}."),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            "--members",
            min=1,
            metavar="N",
            help="Train N networks from different seeds, as one ensemble.  [default: 5 for what we recommend, and 1 if "
            "you choose settings of the network]",
        ),
    ] = None,
    smiles_column: SmilesColumn = None,
    target: Targets = None,
    task: TaskKind = None,
    positive: Positive = None,
    split_by: SplitBy = None,
    split_seed: SplitSeed = None,
    split_sizes: SplitSizes = None,
    splits_file: SplitsFile = None,
    invalid: Invalid = None,
    no_cache: NoCache = False,
    threads: Threads = None,
    device: Device = "auto",
    compile: Annotated[
        bool, typer.Option("--compile", help="Train with torch.compile, meant for GPUs; its first steps take minutes.")
    ] = False,
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model.

    Anything you leave out is inferred, and printed. A data set of the paper is trained with the paper's recipe. For any
    other, without further options, you get the model that we recommend: five networks and one or two simple models,
    which answer together.

    \b
    Examples:
      mlap train molecules.csv --target active --split-by scaffold --out runs/mine
      mlap train molecules.csv
      mlap train molecules.csv --time 5
      mlap train molecules.csv --preset quick
      mlap train molecules.csv --folds 5 --out runs/folds
      mlap train molecules.csv --members 5 --out runs/five
      mlap train molecules.csv --baseline rf-morgan --out runs/forest
      mlap train --resume --out runs/mine
      mlap train synthetic --architecture mlap-sum --layers 3 --graph-norm
    """
    changes: dict[str, Any] = {
        "architecture": architecture,
        "layers": layers,
        "levels": levels,
        "norm": None if graph_norm is None else "graph" if graph_norm else "none",
        "width": width,
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "dropout": dropout,
        "backbone": backbone,
        "seed": seed,
        "select_metric": metric,
        "class_weight": class_weight,
        "patience": patience,
    }
    changes = {key: value for key, value in changes.items() if value is not None} | _settings(settings or [])

    from mlap.models.run import resolve_device
    from mlap.training import parallel

    use_threads(threads)
    device = parallel.join_group(resolve_device(device))
    silent = quiet or as_json or parallel.rank() > 0
    options = table_options(
        smiles_column, target, task, split_by, split_seed, invalid, positive, split_sizes, splits_file
    )
    if no_cache:
        options["cache"] = False
    if preset is not None and preset not in PRESETS:  # a wrong value is an error before the data are read
        raise unknown("preset", preset, PRESETS, "preset")
    several = members is not None and members > 1
    if (baseline is not None) + several + (init is not None) > 1 or (several and folds):
        raise UsageError("of a baseline, several members, folds of them and a run to start from, choose one")
    chosen = set(changes) - {"seed"} or folds or init or baseline or compile or parallel.world_size() > 1
    if members is None and chosen:
        members = 1
    call = TrainCall(
        *(dataset, data_root, options, changes, out, resume, overwrite, init, freeze_backbone, baseline),
        *(preset, time, members),
    )
    try:
        if folds is None:
            answer = train_one(call, device, compile, silent)
        else:
            answer = train_folds(call, folds, device, compile, silent)
    finally:
        parallel.leave_group()
    if parallel.rank() > 0:
        return
    if as_json:
        print_json(answer.json)
    else:
        typer.echo(answer.line)


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, got {pair!r}")
        settings[key.strip()] = value.strip()
    return settings
