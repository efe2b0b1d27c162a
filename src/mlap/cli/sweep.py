"""`mlap sweep`: run a whole grid of networks into a study, or what is missing of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.cli import sweep_baselines, sweep_grid, sweep_search
from mlap.cli.common import (
    DataRoot,
    Device,
    Invalid,
    Json,
    Quiet,
    SmilesColumn,
    SplitBy,
    Targets,
    TaskKind,
    load,
    note,
    print_json,
    table_options,
)
from mlap.errors import UsageError
from mlap.names import BASELINES

if TYPE_CHECKING:
    from mlap.cli.sweep_call import SweepCall

_NORMS = {"on": "graph", "off": "none", "both": "none,graph"}


def sweep(
    dataset: Annotated[
        str,
        typer.Argument(help="A data set by name (see mlap data list), or the path of your own.", metavar="DATASET"),
    ],
    study: Annotated[
        Path, typer.Option("--study", "-s", metavar="FILE", help="The study file. It is created if it does not exist.")
    ] = Path("study.db"),
    plan: Annotated[
        str | None,
        typer.Option(metavar="paper|quick|FILE.toml", help="The plan to start from. Other options change it."),
    ] = None,
    architectures: Annotated[
        str | None,
        typer.Option("--architectures", "-a", metavar="NAMES", help="Names (naive,mlap-sum), or all, or paper."),
    ] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", "-l", metavar="DEPTHS", help="Numbers of layers: 1-10 or 1,3,5.")
    ] = None,
    graph_norm: Annotated[str | None, typer.Option(metavar="on|off|both", help="GraphNorm after each layer.")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="SEEDS", help="Random seeds for initial weights, shuffling and dropout: 0-29 or 0,1,2."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE[,VALUE…]",
            help="Any field of the recipe. One value fixes it, several are swept. With --hpo also LOW..HIGH[:log]. "
            "May be repeated.",
        ),
    ] = None,
    baselines: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help=f"Also fit simple models on the same data: {', '.join(BASELINES)}."),
    ] = None,
    hpo: Annotated[
        int | None,
        typer.Option("--hpo", metavar="N", min=1, help="Search for a good recipe in N trials, instead of a grid."),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(metavar="tpe|random", help="How the search proposes recipes.  [default: tpe]")
    ] = None,
    search_seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Random seed of the search.  [default: 0]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its estimated cost, and run nothing.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed before.")] = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep each trained network in its run directory in STUDY.runs.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-w", min=1, metavar="N", help="Train N networks at once.  [default: one per core]"),
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="local|ray", help="Train on this machine, or on a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="auto|local|ray://HOST:PORT",
            help="The Ray cluster: the running one, a new one for this sweep, or one elsewhere.  [default: auto]",
        ),
    ] = None,
    cpus_per_run: Annotated[
        float | None, typer.Option(metavar="N", help="CPU cores, and threads, of each run.  [default: 1]")
    ] = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(metavar="N", help="GPUs that each run reserves. With 0.25, four runs share one.  [default: 0]"),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait if another sweep is using the study.")] = False,
    smiles_column: SmilesColumn = None,
    target: Targets = None,
    task: TaskKind = None,
    split_by: SplitBy = None,
    split_seed: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]",
            help="Draw another random split of a table or TU set. Several (0-9 or 0,1,2) run the plan on each split.  "
            "[default: 0]",
        ),
    ] = None,
    invalid: Invalid = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train every network of a grid that is not in the study yet.

    The plan and its estimated cost are printed before anything runs. You can stop a sweep at any time, in any way: run
    the same command to continue. Anything you leave out is taken from the paper's recipe for a data set of the paper,
    and from the default recipe for other data.

    With --hpo, each recipe is proposed from the results of the earlier ones. The search space is printed first. Only
    validation scores count.

    \b
    Examples:
      mlap sweep synthetic --plan paper --dry-run
      mlap sweep synthetic --plan quick --study quick.db
      mlap sweep ogbg-molhiv --architectures paper --layers 1-10 --graph-norm both --seeds 0-29 --study molhiv.db
      mlap sweep mine.csv --architectures naive,mlap-sum --seeds 0-9 --set epochs=20 --set width=64,200
      mlap sweep mine.csv --architectures naive,mlap-sum --split-seed 0-9
      mlap sweep mine.csv --plan quick --baselines rf-morgan,wl-linear
      mlap sweep mine.csv --hpo 50 --set epochs=20 --set lr=1e-4..1e-2:log
      mlap sweep synthetic --plan paper --engine ray --address ray://head:10001 --gpus-per-run 0.25
    """
    from mlap.cli.sweep_call import SweepCall
    from mlap.models.run import resolve_device
    from mlap.study import EngineSettings, Plan, SweepSettings
    from mlap.study.baselines import check_baselines
    from mlap.study.plan import split_seeds
    from mlap.study.search import Space, check_sampler

    # A wrong value is an error before the data are read.
    changes = _changes(architectures, layers, graph_norm, seeds, settings or [])
    where = EngineSettings(engine, workers, cpus_per_run, gpus_per_run, address)
    drawn = split_seeds(split_seed)
    simple = check_baselines(baselines)
    if hpo is None:
        for name, value in (("sampler", sampler), ("search_seed", search_seed)):
            if value is not None:
                raise UsageError("{field} belongs to a search, which needs a number of trials", field=name)
        Plan.of("synthetic", plan, **changes)
    else:
        if len(drawn) > 1:
            raise UsageError("a search runs on one split of the data, got several seeds of {field}", field="split_seed")
        Space.of("synthetic", plan, **changes)
        check_sampler(sampler or "tpe")
    device = where.device(device) if engine == "ray" else resolve_device(device)
    silent = quiet or as_json

    def call(seed: int | None) -> SweepCall:
        options = table_options(smiles_column, target, task, split_by, seed, invalid)
        return SweepCall(
            graphs=load(dataset, data_root, silent, **options),
            settings=SweepSettings(dataset, study, options, data_root, device, retry_failed, keep_models, wait),
            engine=where,
            dry_run=dry_run,
            as_json=as_json,
            silent=silent,
        )

    try:
        if hpo is not None:
            (seed,) = drawn
            chosen = call(seed)
            fitted = sweep_baselines.run(simple, (0,), chosen)
            space = Space.of(chosen.graphs.name, plan, **changes)
            answers = [sweep_search.run(space, hpo, chosen, sampler or "tpe", search_seed or 0).beside(fitted)]
        else:
            answers = []
            for seed in drawn:
                chosen = call(seed)
                grid = Plan.of(chosen.graphs.name, plan, **changes)
                fitted = sweep_baselines.run(simple, grid.axes["seed"], chosen)
                answers.append(sweep_grid.run(grid, chosen).beside(fitted))
    except KeyboardInterrupt:
        note("mlap: stopped; run the same command to continue")
        raise typer.Exit(130) from None
    if as_json:
        contents = [answer.content for answer in answers]
        print_json(contents[0] if len(contents) == 1 else {"study": str(study), "splits": contents})
    if any(answer.failed for answer in answers):
        raise typer.Exit(1)


def _changes(
    architectures: str | None, layers: str | None, graph_norm: str | None, seeds: str | None, settings: list[str]
) -> dict[str, Any]:
    """The fields that options set, by their names in a recipe."""
    if graph_norm is not None and graph_norm not in _NORMS:
        raise UsageError(f"{{field}} must be on, off or both, got {graph_norm!r}", field="norm")
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
            raise UsageError(f"{{field}} takes KEY=VALUE or KEY=VALUE,VALUE, got {setting!r}", field="settings")
        if name in changes:
            raise UsageError(f"{name} is given twice: as {changes[name]} and as {value}", field="settings")
        changes[name] = value
    return changes
