"""`mlap train`: train one network."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    count,
    load,
    note,
    print_json,
    table_options,
    use_threads,
)
from mlap.errors import UsageError, unknown
from mlap.names import ARCHITECTURES, BACKBONES, BASELINES, METRICS, PRESETS
from mlap.progress import steps_bar, training_bar

if TYPE_CHECKING:
    from mlap.graphs import GraphSet
    from mlap.models import Model
    from mlap.training import Recipe


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
        bool | None, typer.Option("--graph-norm/--no-graph-norm", help="GraphNorm after each layer.  [default: yes]")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Width of node representations.  [default: 200]")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training graphs.  [default: the data set's]")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Graphs per step.  [default: the data set's]")] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate.  [default: the data set's]")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout after each layer.  [default: 0.5]")] = None,
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
            answer = _train_one(call, device, compile, silent)
        else:
            answer = _train_folds(call, folds, device, compile, silent)
    finally:
        parallel.leave_group()
    if parallel.rank() > 0:
        return
    if as_json:
        print_json(answer.json)
    else:
        typer.echo(answer.line)


@dataclass(frozen=True)
class TrainCall:
    """What was asked for, apart from how to show it."""

    dataset: str | None
    data_root: Path | None
    options: dict[str, Any]
    changes: dict[str, Any]
    out: Path | None
    resume: bool
    overwrite: bool
    init: Path | None
    freeze_backbone: bool
    baseline: str | None = None
    preset: str | None = None
    time: float | None = None
    members: int | None = None  # `None`: what we recommend, if that is the preset


@dataclass(frozen=True)
class Answer:
    """What is printed in the end, for people and for machines."""

    line: str
    json: dict[str, Any]
    model: Model


def _train_one(call: TrainCall, device: str, compile: bool, silent: bool) -> Answer:
    """Train one run, and say what is trained on what."""
    import torch

    from mlap.graphs.dividing import check_parts
    from mlap.models import train as train_run
    from mlap.training.presets import MEMBERS

    dataset, data_root, options, recipe = _resolve(call)
    graphs = load(dataset, data_root, silent, **options)
    if graphs.task is None:
        raise UsageError(f"{graphs.name} has no labels to train on", "targets")
    if call.baseline is not None:
        return _fit_baseline(call, call.baseline, graphs, silent)
    alone = recipe is not None or call.members == 1 or (call.members is None and not _recommended(call, graphs))
    members = 1 if alone else call.members or MEMBERS
    if recipe is None:
        recipe, members = _chosen(call, graphs, members, device, silent)
    check_parts(graphs, recipe.select_metric)
    if not alone:
        return _train_members(call, graphs, recipe, members, device, silent)
    norm = {"graph": "GraphNorm", "none": "no normalisation"}.get(recipe.norm, f"{recipe.norm} normalisation")
    out = call.out or Path("runs") / graphs.name / (
        f"{recipe.architecture}-L{recipe.layers}-{recipe.norm}-s{recipe.seed}"
    )
    splits = ", ".join(f"{len(part):,} {name}" for name, part in graphs.splits.items())
    note(
        f"{recipe.architecture}, {count(recipe.layers, 'layer')}, {norm}, width {recipe.width}, seed {recipe.seed}",
        silent,
    )
    note(f"on {graphs.name}: {count(len(graphs), 'graph')} ({splits})", silent)
    note(f"writing to {out} (device {device}, {count(torch.get_num_threads(), 'thread')})", silent)
    metric = recipe.select_metric or graphs.task.metric
    try:
        with training_bar(recipe.epochs, metric, silent=silent, lines=note) as (on_epoch, on_step):
            run = train_run(
                graphs,
                recipe,
                out=out,
                resume=call.resume,
                overwrite=call.overwrite,
                init=call.init,
                freeze_backbone=call.freeze_backbone,
                device=device,
                compile=compile,
                progress=False,
                on_epoch=on_epoch,
                on_step=on_step,
            )
    except KeyboardInterrupt:
        note(f"stopped; continue with: mlap train --resume --out {out}", silent)
        raise
    result = run.result
    assert result is not None
    label = METRICS[result.metric].label
    test = "" if result.test_score is None else f", test {label} {result.test_score:.4f}"
    kept = "" if run.levels is None else f", levels {'+'.join(map(str, run.levels))}"
    line = f"epoch {result.best_epoch}: validation {label} {result.valid_score:.4f}{test}{kept}  ({out})"
    content = {"run": str(out), "recipe": recipe.as_dict(), **asdict(result)}
    return Answer(line, content if run.levels is None else {**content, "levels": list(run.levels)}, run)


def _fit_baseline(call: TrainCall, name: str, graphs: GraphSet, silent: bool) -> Answer:
    """Fit a baseline, and say what on."""
    from mlap.machines import usable_cores
    from mlap.models import train as train_model

    out = call.out or Path("runs") / graphs.name / f"{name}-s{call.changes.get('seed', 0)}"
    splits = ", ".join(f"{len(part):,} {part_name}" for part_name, part in graphs.splits.items())
    note(f"{name}: {BASELINES.get(name, '')}", silent)
    note(f"on {graphs.name}: {count(len(graphs), 'graph')} ({splits})", silent)
    model = train_model(
        graphs,
        baseline=name,
        out=out,
        resume=call.resume,
        overwrite=call.overwrite,
        n_jobs=usable_cores(),
        **call.changes,
    )
    for text in model.notes:
        note(f"note: {text}", silent)
    result = model.result
    assert result is not None
    label = METRICS[result.metric].label
    test = "" if result.test_score is None else f", test {label} {result.test_score:.4f}"
    line = f"{name}: validation {label} {result.valid_score:.4f}{test}  ({out})"
    return Answer(line, {"model": str(out), "baseline": name, **asdict(result)}, model)


def _train_members(
    call: TrainCall, graphs: GraphSet, recipe: Recipe, members: int, device: str, silent: bool
) -> Answer:
    """Train an ensemble, and say what became of it."""
    from mlap.cli.ensemble import ensemble_json, ensemble_lines
    from mlap.study import train_ensemble
    from mlap.training.presets import baselines_for

    baselines = baselines_for(graphs) if _recommended(call, graphs) else ()
    kind = "recommended" if baselines else f"{recipe.architecture}-L{recipe.layers}-{recipe.norm}-x{members}"
    out = call.out or Path("runs") / graphs.name / kind
    networks = f"{members} × {recipe.architecture}, {count(recipe.layers, 'layer')}, width {recipe.width}"
    note(" + ".join([networks, *baselines]), silent)
    note(f"writing to {out}", silent)
    try:
        with steps_bar(silent) as progress:
            ensemble = train_ensemble(
                graphs,
                recipe,
                members=members,
                baselines=baselines,
                out=out,
                resume=call.resume,
                overwrite=call.overwrite,
                device=device,
                on_epoch=None if progress is None else lambda done, total: progress("epochs", done, total),
            )
    except KeyboardInterrupt:
        note("stopped; run the same command with --resume to continue", silent)
        raise
    for line in ensemble_lines(ensemble):
        note(line, silent)
    scores = {part: ensemble.evaluate(graphs, part) for part in ("valid", "test") if len(graphs.splits.get(part, ()))}
    label = METRICS[ensemble.task.metric].label
    shown = ", ".join(
        f"{'validation' if part == 'valid' else part} {label} {found.score:.4f}" for part, found in scores.items()
    )
    content = {**ensemble_json(ensemble), **{part: found.as_dict() for part, found in scores.items()}}
    return Answer(f"{count(len(ensemble.members), 'member')}: {shown}  ({out})", content, ensemble)


def _recommended(call: TrainCall, graphs: GraphSet) -> bool:
    """Whether what we recommend was asked for, or nothing."""
    from mlap.training.presets import preset_of

    return (call.preset or preset_of(graphs)) == "recommended"


def _chosen(call: TrainCall, graphs: GraphSet, members: int, device: str, silent: bool) -> tuple[Recipe, int]:
    """The recipe of a new model and its number of networks, within the time that there is; their cost is said."""
    from mlap.cli.sweep_view import duration
    from mlap.machines import usable_cores
    from mlap.training import parallel, recipe_for
    from mlap.training.presets import cost_of, within

    recipe = recipe_for(graphs, call.preset, **call.changes)
    if (silent and call.time is None) or parallel.world_size() > 1:
        return recipe, members
    cost = cost_of(recipe, graphs, device)
    at_a_time = usable_cores() if device == "cpu" and members > 1 else 1
    if call.time is not None:
        fitted, fewer = within(call.time, recipe, cost, members, at_a_time)
        if (fitted, fewer) != (recipe, members):
            trained = f"{count(fewer, 'network')} of {count(fitted.epochs, 'epoch')}"
            note(f"{trained} instead of {members} of {recipe.epochs}, for {call.time:g} minutes", silent)
        cost = dataclasses.replace(cost, network=cost.network * fitted.epochs / recipe.epochs)
        recipe, members = fitted, fewer
    note(f"this will take about {duration(cost.seconds(members, at_a_time))}", silent)
    return recipe, members


def _train_folds(call: TrainCall, folds: int, device: str, compile: bool, silent: bool) -> Answer:
    """Train a run for each fold, and average their test scores."""
    from mlap.statistics import summarise

    if call.dataset is None:
        raise UsageError("{field} needs a DATASET", "folds")
    folder = call.out or Path("runs") / f"{Path(call.dataset).stem}-folds"
    answers = []
    for fold in range(folds):
        out = folder / f"fold-{fold}"
        note(f"fold {fold + 1} of {folds}", silent)
        options = {**call.options, "folds": folds, "fold": fold}
        one = dataclasses.replace(call, options=options, out=out, resume=call.resume or (out / "config.json").exists())
        answers.append(_train_one(one, device, compile, silent))
        note(answers[-1].line, silent)
    scores = [answer.json["test_score"] for answer in answers if answer.json["test_score"] is not None]
    summary = summarise(scores)
    label = METRICS[answers[0].json["metric"]].label
    error = "" if summary.standard_error is None else f" ± {summary.standard_error:.4f} (s.e.)"
    content = {
        "run": str(folder),
        "metric": answers[0].json["metric"],
        "test_scores": scores,
        "mean": summary.mean,
        "standard_error": summary.standard_error,
        "folds": [answer.json for answer in answers],
    }
    line = f"test {label} {summary.mean:.4f}{error} over {count(len(scores), 'fold')}  ({folder})"
    return Answer(line, content, answers[0].model)


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, got {pair!r}")
        settings[key.strip()] = value.strip()
    return settings


def _resolve(call: TrainCall) -> tuple[str, Path | None, dict[str, Any], Recipe | None]:
    """The data and, of a run to resume, the recipe: others wait for the data."""
    from mlap.training import Recipe
    from mlap.training.run import CONFIG, read_config

    if call.resume and call.out is None:
        raise UsageError("{field} needs the run directory, --out DIR", "resume")
    if call.resume and call.baseline is None and call.out is not None and (call.out / CONFIG).exists():
        config = read_config(call.out)
        if config.get("kind", "run") != "run":
            raise UsageError(f"{call.out} holds a {config['kind']}, which is finished; {{field}} is for runs", "resume")
        recipe = Recipe.of(config["recipe"]).replace(**call.changes)
        if call.dataset is None:
            data = config["data"]
            root = data.get("root")
            data_root = call.data_root or (Path(root) if root and Path(root).is_dir() else None)
            return data["source"], data_root, {**data["options"], **call.options}, recipe
        return call.dataset, call.data_root, call.options, recipe
    if call.dataset is None:
        if call.resume:
            raise UsageError(f"{call.out} holds no run to resume; name a DATASET to start one")
        raise UsageError("name a DATASET to train on, e.g. `mlap train synthetic`; `mlap data list` shows known ones")
    if call.baseline is None:
        Recipe.of(call.changes)  # a wrong value is an error before the data are read
    return call.dataset, call.data_root, call.options, None
