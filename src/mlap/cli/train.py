"""`mlap train`: train one network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    Invalid,
    Json,
    Quiet,
    SmilesColumn,
    SplitBy,
    SplitSeed,
    Targets,
    TaskKind,
    count,
    load,
    note,
    print_json,
    resolve_device,
    root_of,
    table_options,
)
from mlap.errors import MlapError, UsageError
from mlap.names import ARCHITECTURES

if TYPE_CHECKING:
    from mlap.graphs import Task
    from mlap.training import Epoch, Recipe


def train(
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="A data set's name (see mlap data list) or a path to your own.", show_default=False, metavar="DATASET"
        ),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(
            "--architecture",
            "-a",
            help=f"{', '.join(ARCHITECTURES[:-1])} or {ARCHITECTURES[-1]}.  [default: mlap-sum]",
        ),
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", "-l", help="Message-passing layers.  [default: 5]")] = None,
    graph_norm: Annotated[
        bool | None, typer.Option("--graph-norm/--no-graph-norm", help="GraphNorm after each layer.  [default: yes]")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Width of node representations.  [default: 200]")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training graphs.  [default: the data set's]")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Graphs per step.  [default: the data set's]")] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate.  [default: the data set's]")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout after each layer.  [default: 0.5]")] = None,
    backbone: Annotated[str | None, typer.Option(help="gin, gcn or gat.  [default: gin]")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights, shuffling and dropout.  [default: 0]")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other field of the recipe, e.g. --set lr_decay=0.5."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The run directory.  [default: runs/DATASET/…]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out after its last epoch.")] = False,
    smiles_column: SmilesColumn = None,
    target: Targets = None,
    task: TaskKind = None,
    split_by: SplitBy = None,
    split_seed: SplitSeed = None,
    invalid: Invalid = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.  [default: torch's own choice]")] = None,
    device: Device = "auto",
    compile: Annotated[
        bool, typer.Option("--compile", help="Train with torch.compile, meant for GPUs; its first steps take minutes.")
    ] = False,
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train one network and keep the weights of its best validation epoch.

    Unless you say otherwise, a data set of the paper is trained with the paper's recipe.

    \b
    Examples:
      mlap train synthetic --architecture mlap-sum --layers 3 --graph-norm
      mlap train molecules.csv --target active --split-by scaffold --epochs 20 --out runs/mine
      mlap train --resume --out runs/mine
    """
    changes: dict[str, Any] = {
        "architecture": architecture,
        "layers": layers,
        "norm": None if graph_norm is None else "graph" if graph_norm else "none",
        "width": width,
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "dropout": dropout,
        "backbone": backbone,
        "seed": seed,
    }
    changes = {key: value for key, value in changes.items() if value is not None} | _settings(settings or [])

    import torch

    from mlap.graphs.sources import absolute_root, absolute_source
    from mlap.training import Recipe, parallel
    from mlap.training import train as train_network

    if threads is not None:
        torch.set_num_threads(threads)
    device = parallel.join_group(resolve_device(device))
    first = parallel.rank() == 0
    silent = quiet or as_json or not first
    options = table_options(smiles_column, target, task, split_by, split_seed, invalid)
    dataset, data_root, options, recipe = _resolve(dataset, data_root, options, changes, out, resume)
    graphs = load(dataset, data_root, silent, **options)
    if recipe is None:
        recipe = Recipe.preset(graphs.name, **changes)
    if graphs.task is None:
        raise UsageError(f"{graphs.name} has no labels to train on")
    norm = {"graph": "GraphNorm", "none": "no normalisation"}.get(recipe.norm, f"{recipe.norm} normalisation")
    out = out or Path("runs") / graphs.name / f"{recipe.architecture}-L{recipe.layers}-{recipe.norm}-s{recipe.seed}"
    splits = ", ".join(f"{len(part):,} {name}" for name, part in graphs.splits.items())
    note(
        f"{recipe.architecture}, {count(recipe.layers, 'layer')}, {norm}, width {recipe.width}, seed {recipe.seed}",
        silent,
    )
    note(f"on {graphs.name}: {count(len(graphs), 'graph')} ({splits})", silent)
    note(f"writing to {out} (device {device}, {count(torch.get_num_threads(), 'thread')})", silent)
    try:
        with _progress(recipe, graphs.task, silent) as (on_epoch, on_step):
            trained = train_network(
                recipe,
                graphs,
                out,
                resume=resume,
                device=device,
                compile=compile,
                source={
                    "source": absolute_source(dataset),
                    "options": options,
                    "root": absolute_root(data_root),
                },
                on_epoch=on_epoch,
                on_step=on_step,
            )
    except KeyboardInterrupt:
        raise MlapError(f"stopped; continue with `mlap train --resume --out {out}`") from None
    parallel.leave_group()
    result = trained.result
    if not first:
        return
    if as_json:
        print_json({"run": str(out), "recipe": recipe.as_dict(), **asdict(result)})
        return
    metric = graphs.task.metric_label
    test = "" if result.test_score is None else f", test {metric} {result.test_score:.4f}"
    typer.echo(f"best epoch {result.best_epoch}: validation {metric} {result.valid_score:.4f}{test}  ({out})")


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, got {pair!r}")
        settings[key.strip()] = value.strip()
    return settings


def _resolve(
    dataset: str | None,
    data_root: Path | None,
    options: dict[str, Any],
    changes: dict[str, Any],
    out: Path | None,
    resume: bool,
) -> tuple[str, Path | None, dict[str, Any], Recipe | None]:
    """The data set to train on, its root and options; and the recipe of a run to resume: others wait for the data."""
    from mlap.training import Recipe
    from mlap.training.run import CONFIG, read_config

    if resume and out is None:
        raise UsageError("--resume needs the run directory: --out DIR")
    if resume and out is not None and (out / CONFIG).exists():
        config = read_config(out)
        recipe = Recipe.of(config["recipe"]).replace(**changes)
        if dataset is None:
            data = config["data"]
            return data["source"], data_root or root_of(data), {**data["options"], **options}, recipe
        return dataset, data_root, options, recipe
    if dataset is None:
        if resume:
            raise UsageError(f"{out} holds no run to resume; name a DATASET to start one")
        raise UsageError(
            "name a DATASET to train on, e.g. `mlap train synthetic`; `mlap data list` shows the known ones"
        )
    Recipe.of(changes)  # a wrong value is an error before the data are read
    return dataset, data_root, options, None


@contextmanager
def _progress(
    recipe: Recipe, task: Task, silent: bool
) -> Iterator[tuple[Callable[[Epoch], None] | None, Callable[[int, int], None] | None]]:
    """Callbacks that show progress: a live bar on a terminal, a line per epoch elsewhere."""
    if silent:
        yield None, None
        return
    best: list[tuple[float, int]] = []

    def summary(done: Epoch) -> str:
        sign = -1 if task.higher_is_better else 1
        best.append((sign * done.valid_score, done.epoch))
        score, epoch = min(best)
        return (
            f"loss {done.train_loss:.4f}  validation {task.metric_label} {done.valid_score:.4f}"
            f"  (best {sign * score:.4f} in epoch {epoch})"
        )

    if not sys.stderr.isatty():
        yield lambda done: note(f"epoch {done.epoch}/{recipe.epochs}  {summary(done)}  {done.seconds:.1f} s"), None
        return

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[summary]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=recipe.epochs, epoch=1, epochs=recipe.epochs, summary="")
        finished = 0

        def on_epoch(done: Epoch) -> None:
            nonlocal finished
            finished = done.epoch
            progress.update(bar, completed=finished, epoch=min(finished + 1, recipe.epochs), summary=summary(done))

        def on_step(step: int, steps: int) -> None:
            progress.update(bar, completed=finished + 0.95 * step / steps)

        yield on_epoch, on_step
