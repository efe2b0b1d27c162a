"""What `mlap train` does once its options are read: one network, folds of it, an ensemble, or a baseline."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlap.cli.common import count, load, note
from mlap.errors import UsageError
from mlap.names import BASELINES, METRICS
from mlap.progress import steps_bar, training_bar

if TYPE_CHECKING:
    from mlap.graphs import GraphSet
    from mlap.models import Model
    from mlap.training import Recipe


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


def train_one(call: TrainCall, device: str, compile: bool, silent: bool) -> Answer:
    """Train one run, and say what is trained on what."""
    import torch

    from mlap.graphs.dividing import check_parts
    from mlap.models import train as train_run
    from mlap.training.presets import MEMBERS

    dataset, data_root, options, recipe = _resolve(call)
    graphs = load(dataset, data_root, silent, **options)
    if graphs.task is None:
        raise UsageError(f"{graphs.name} has no labels to train on", "targets")
    _say_what_is_in(graphs, silent)
    if call.baseline is not None:
        return _fit_baseline(call, call.baseline, graphs, silent)
    alone = recipe is not None or call.members == 1 or (call.members is None and not _recommended(call, graphs))
    members = 1 if alone else call.members or MEMBERS
    told = ""
    if recipe is None:
        recipe, members, told = _chosen(call, graphs, members, device, silent)
    check_parts(graphs, recipe.select_metric)
    if not alone:
        return _train_members(call, graphs, recipe, members, told, device, silent)
    norm = {"graph": "GraphNorm", "none": "no normalisation"}.get(recipe.norm, f"{recipe.norm} normalisation")
    out = call.out or Path("runs") / graphs.name / (
        f"{recipe.architecture}-L{recipe.layers}-{recipe.norm}-s{recipe.seed}"
    )
    note(
        f"{recipe.architecture}, {count(recipe.layers, 'layer')}, {norm}, width {recipe.width}, seed {recipe.seed}",
        silent,
    )
    note(f"writing to {out} (device {device}, {count(torch.get_num_threads(), 'thread')})", silent)
    note(told, silent or not told)
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


def _say_what_is_in(graphs: GraphSet, silent: bool) -> None:
    """Show what its owner should know of a data set before a model learns it."""
    from mlap.graphs.summary import summary

    if silent:
        return
    with steps_bar(silent) as progress:
        first, *others = summary(graphs, progress=progress).lines()
    note(f"{graphs.name}: {first}")
    for line in others:
        note(f"  {line}")


def _fit_baseline(call: TrainCall, name: str, graphs: GraphSet, silent: bool) -> Answer:
    """Fit a baseline, and say what on."""
    from mlap.machines import usable_cores
    from mlap.models import train as train_model

    out = call.out or Path("runs") / graphs.name / f"{name}-s{call.changes.get('seed', 0)}"
    note(f"{name}: {BASELINES.get(name, '')}", silent)
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
    call: TrainCall, graphs: GraphSet, recipe: Recipe, members: int, told: str, device: str, silent: bool
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
    note(told, silent or not told)
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


def _chosen(call: TrainCall, graphs: GraphSet, members: int, device: str, silent: bool) -> tuple[Recipe, int, str]:
    """The recipe of a new model and its number of networks, within the time that there is; what to say of it."""
    from mlap.cli.sweep_view import duration
    from mlap.machines import usable_cores
    from mlap.training import parallel, recipe_for
    from mlap.training.presets import cost_of, within

    recipe = recipe_for(graphs, call.preset, **call.changes)
    if (silent and call.time is None) or parallel.world_size() > 1:
        return recipe, members, ""
    cost = cost_of(recipe, graphs, device)
    at_a_time = usable_cores() if device == "cpu" and members > 1 else 1
    if call.time is not None:
        fitted, fewer = within(call.time, recipe, cost, members, at_a_time)
        if (fitted, fewer) != (recipe, members):
            trained = f"{count(fewer, 'network')} of {count(fitted.epochs, 'epoch')}"
            note(f"{trained} instead of {members} of {recipe.epochs}, for {call.time:g} minutes", silent)
        cost = dataclasses.replace(cost, network=cost.network * fitted.epochs / recipe.epochs)
        recipe, members = fitted, fewer
    return recipe, members, f"this will take about {duration(cost.seconds(members, at_a_time))}"


def train_folds(call: TrainCall, folds: int, device: str, compile: bool, silent: bool) -> Answer:
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
        answers.append(train_one(one, device, compile, silent))
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
