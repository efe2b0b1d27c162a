"""`mlap sweep`: run a whole grid of networks into a study, or what is missing of it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.cli import sweep_search
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
    table_options,
)
from mlap.errors import MlapError, UsageError, unknown

if TYPE_CHECKING:
    from mlap.graphs import GraphSet
    from mlap.study import Cost, Engine, Outcome, Outlook, Plan

_NORMS = {"on": "graph", "off": "none", "both": "none,graph"}


def sweep(
    dataset: Annotated[
        str, typer.Argument(help="A data set's name (see mlap data list) or a path to your own.", metavar="DATASET")
    ],
    study: Annotated[Path, typer.Option("--study", "-s", help="The study file; made if there is none.")] = Path(
        "study.db"
    ),
    plan: Annotated[
        str | None,
        typer.Option(metavar="paper|quick|FILE.toml", help="Where to start from; the options below change it."),
    ] = None,
    architectures: Annotated[
        str | None, typer.Option("--architectures", "-a", help="all, paper, or names: naive,mlap-sum.")
    ] = None,
    layers: Annotated[str | None, typer.Option("--layers", "-l", help="Depths: 1-10 or 1,3,5.")] = None,
    graph_norm: Annotated[str | None, typer.Option(metavar="on|off|both", help="GraphNorm after each layer.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds: 0-29 or 0,1,2.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE[,VALUE…]",
            help="Any field of the recipe: one value fixes it, several sweep it; with --hpo also LOW..HIGH[:log]. "
            "May be given often.",
        ),
    ] = None,
    hpo: Annotated[
        int | None,
        typer.Option("--hpo", metavar="N", min=1, help="Search for a good recipe in N trials, rather than run a grid."),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(metavar="tpe|random", help="How a search proposes recipes.  [default: tpe]")
    ] = None,
    search_seed: Annotated[int | None, typer.Option(min=0, help="The seed of a search.  [default: 0]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run and what it costs, and stop.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run those again that failed before.")] = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep each run's directory with its weights in STUDY.runs.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-w", min=1, help="Networks trained at once.  [default: as many as cores allow]"),
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="local|ray", help="Where to run: on this machine, or on a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="auto|local|ray://HOST:PORT",
            help="The Ray cluster: the one that runs here, one just for this sweep, or one elsewhere.  [default: auto]",
        ),
    ] = None,
    cpus_per_run: Annotated[
        float | None, typer.Option(help="Processors, and so threads, of a run.  [default: 1]")
    ] = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(help="GPUs that a run reserves; 0.25 lets four networks share one.  [default: 0]"),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait while another sweep uses the study.")] = False,
    smiles_column: SmilesColumn = None,
    target: Targets = None,
    task: TaskKind = None,
    split_by: SplitBy = None,
    split_seed: SplitSeed = None,
    invalid: Invalid = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train every network of a grid, or those that the study does not have yet.

    The plan is printed in full with what it will cost, before anything runs. Stop it at any time and by any means:
    the same command goes on after the last finished epoch of each network. What no option says is the paper's
    recipe for a data set of the paper, and the default recipe for others.

    With --hpo, recipes are proposed one after the other from what is known of the earlier ones, in a space that is
    printed first. They are judged by their validation scores alone.

    \b
    Examples:
      mlap sweep synthetic --plan paper --dry-run
      mlap sweep synthetic --plan quick --study quick.db
      mlap sweep ogbg-molhiv --architectures paper --layers 1-10 --graph-norm both --seeds 0-29 --study molhiv.db
      mlap sweep mine.csv --architectures naive,mlap-sum --seeds 0-9 --set epochs=20 --set width=64,200
      mlap sweep mine.csv --hpo 50 --set epochs=20 --set lr=1e-4..1e-2:log
      mlap sweep synthetic --plan paper --engine ray --address ray://head:10001 --gpus-per-run 0.25
    """
    from mlap.study import Plan, estimate, look, run_hash
    from mlap.study import sweep as run_sweep
    from mlap.study.search import Space, check_sampler

    changes = _changes(architectures, layers, graph_norm, seeds, settings or [])
    if hpo is None:
        if sampler is not None or search_seed is not None:
            raise UsageError("--sampler and --search-seed belong to a search; say how many trials it has with --hpo N")
        Plan.of("synthetic", plan, **changes)  # a wrong value is an error before the data are read
    else:
        Space.of("synthetic", plan, **changes)
        check_sampler(sampler or "tpe")
    where = {"address": address, "cpus": cpus_per_run, "gpus": gpus_per_run}
    device = _device(device, engine, where)
    calibrate_on = "cpu" if engine == "ray" and not _has_gpu() else device
    silent = quiet or as_json
    options = table_options(smiles_column, target, task, split_by, split_seed, invalid)
    graphs = load(dataset, data_root, silent, **options)
    running = _engine(engine, workers, device, graphs, where)
    site: dict[str, Any] = {
        "engine": running,
        "graphs": graphs,
        "options": options,
        "data_root": data_root,
        "device": device,
        "retry_failed": retry_failed,
        "keep_models": keep_models,
        "wait": wait,
        "on_wait": lambda holder: note(f"waiting for another sweep on {study}{holder}", silent),
    }
    with ExitStack() as stack:
        stack.callback(running.close)
        if hpo is not None:
            sweep_search.run(
                Space.of(graphs.name, plan, **changes),
                hpo,
                dataset,
                study,
                sampler=sampler or "tpe",
                seed=search_seed or 0,
                dry_run=dry_run,
                calibrate_on=calibrate_on,
                as_json=as_json,
                silent=silent,
                **site,
            )
            return
        chosen = Plan.of(graphs.name, plan, **changes)
        if dry_run:
            outlook = look(chosen, graphs, study, retry_failed=retry_failed)
            cost = estimate(outlook.pending, graphs, outlook.records, device=calibrate_on)
            if as_json:
                print_json(_outlook_json(outlook, cost, running.capacity, study))
            else:
                typer.echo(_outlook_text(outlook, cost, running.capacity))
            return
        views: list[Any] = []

        def on_outlook(outlook: Outlook) -> None:
            if silent:
                return
            from mlap.cli.sweep_view import SweepView

            cost = estimate(outlook.pending, graphs, outlook.records, device=calibrate_on)
            note(_outlook_text(outlook, cost, running.capacity))
            if outlook.pending:
                assert graphs.task is not None
                hashes = [run_hash(recipe, graphs.fingerprint) for recipe in outlook.pending]
                costs = dict(zip(hashes, cost.seconds, strict=True))
                swept = [name for name, values in chosen.axes.items() if len(values) > 1]
                views.append(stack.enter_context(SweepView(graphs.task, swept, len(costs), costs)))

        try:
            outcome = run_sweep(
                chosen,
                dataset,
                study,
                on_outlook=on_outlook,
                on_event=lambda event: views[0](event) if views else None,
                **site,
            )
        except KeyboardInterrupt:
            raise MlapError("stopped; the same command goes on where this one ended") from None
    _say_outcome(outcome, chosen, study, as_json, silent)


def _changes(
    architectures: str | None, layers: str | None, graph_norm: str | None, seeds: str | None, settings: list[str]
) -> dict[str, str]:
    """The fields that options set, by their names in a recipe."""
    if graph_norm is not None and graph_norm not in _NORMS:
        raise UsageError(f"--graph-norm must be on, off or both, got {graph_norm!r}")
    options = {
        "architecture": architectures,
        "layers": layers,
        "norm": None if graph_norm is None else _NORMS[graph_norm],
        "seed": seeds,
    }
    changes = {name: value for name, value in options.items() if value is not None}
    for setting in settings:
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE or KEY=VALUE,VALUE, got {setting!r}")
        if name in changes:
            raise UsageError(f"{name} is given twice: as {changes[name]} and as {value}")
        changes[name] = value
    return changes


def _device(device: str, engine: str, where: dict[str, Any]) -> str:
    """The device of every run, after a look at whether the options for the engine go together."""
    from mlap.study.local_engine import whole_threads

    if engine not in ("local", "ray"):
        raise unknown("engine", engine, ("local", "ray"))
    if engine == "local":
        for name, option in (("address", "--address"), ("gpus", "--gpus-per-run")):
            if where[name] is not None:
                raise UsageError(f"{option} belongs to --engine ray")
        whole_threads(1 if where["cpus"] is None else where["cpus"])
        return resolve_device(device)
    # What this machine has says nothing about the nodes; a run sees the GPUs that it reserves, and no other.
    reserved = "cuda" if where["gpus"] else "cpu"
    if device not in ("auto", reserved):
        raise UsageError(
            f"--device {device}: on Ray, runs compute on a GPU if --gpus-per-run reserves one, else on a CPU"
        )
    return reserved


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _engine(engine: str, workers: int | None, device: str, graphs: GraphSet, where: dict[str, Any]) -> Engine:
    """The engine; on a GPU, which all local workers would share, there is one unless the user says otherwise."""
    from mlap.study import LocalEngine, RayEngine

    given = {name: value for name, value in where.items() if value is not None}
    if engine == "local":
        return LocalEngine(workers or (None if device == "cpu" else 1), **given)
    return RayEngine(workers=workers, graphs=graphs, **given)


def _outlook_text(outlook: Outlook, cost: Cost, workers: int) -> str:
    from mlap.cli.sweep_view import duration

    sizes = " × ".join(f"{len(values)} {name}" for name, values in outlook.plan.axes.items() if len(values) > 1)
    lines = [
        f"# plan {outlook.plan.name} for {outlook.graphs.name}{f': {sizes}' if sizes else ''}",
        outlook.plan.to_toml(),
        f"{count(len(outlook.plan), 'run')}: {outlook.done:,} done, {len(outlook.pending):,} to run"
        + (f", {outlook.failed:,} failed before (--retry-failed runs them again)" if outlook.failed else ""),
    ]
    if outlook.plan.name == "quick":
        lines.insert(
            1, "# a rehearsal: small networks, few epochs, few seeds; it says nothing about the paper's results"
        )
    if outlook.pending:
        basis = f"{count(cost.measured, 'kind')} of network timed in {duration(cost.calibration)}"
        work = (
            f"{cost.core_hours:,.1f} core-hours" if cost.core_hours > 1 else f"{duration(sum(cost.seconds))} of a core"
        )
        lines.append(
            f"about {work}: {duration(sum(cost.seconds) / workers)} with {count(workers, 'worker')}  "
            f"({basis if cost.measured else 'judged by the runs that are done'})"
        )
    return "\n".join(lines)


def _outlook_json(outlook: Outlook, cost: Cost, workers: int, study: Path) -> dict[str, Any]:
    return {
        **_about(outlook.plan, study),
        "data": outlook.graphs.name,
        "fingerprint": outlook.graphs.fingerprint,
        "runs": len(outlook.plan),
        "done": outlook.done,
        "failed": outlook.failed,
        "to_run": len(outlook.pending),
        "workers": workers,
        "core_hours": cost.core_hours,
    }


def _about(plan: Plan, study: Path) -> dict[str, Any]:
    return {"study": str(study), "plan": {"name": plan.name, **{name: list(v) for name, v in plan.axes.items()}}}


def _say_outcome(outcome: Outcome, plan: Plan, study: Path, as_json: bool, silent: bool) -> None:
    from mlap.cli.sweep_view import duration

    failures = [
        {"hash": run.hash, "error": run.error, "architecture": run.architecture, "layers": run.layers}
        | {"norm": run.norm, "seed": run.seed}
        for run in outcome.failures
    ]
    if as_json:
        counts = {"runs": outcome.total, "done": outcome.done, "ran": outcome.ran, "failed": len(failures)}
        print_json({**_about(plan, study), **counts, "seconds": outcome.seconds, "failures": failures})
    else:
        for run in outcome.failures:
            note(f"{run.architecture} L{run.layers} {run.norm} s{run.seed}  failed: {run.error}")
        typer.echo(
            f"{study}: {outcome.done:,} of {count(outcome.total, 'run')} done"
            + (f", {len(failures):,} failed (--retry-failed runs them again)" if failures else "")
            + (f"  ({outcome.ran:,} now, in {duration(outcome.seconds)})" if not silent else "")
        )
    if failures:
        raise typer.Exit(1)
