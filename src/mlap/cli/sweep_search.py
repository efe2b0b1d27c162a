"""`mlap sweep --hpo`: a search for a good recipe rather than a grid."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mlap.cli.common import count, note, print_json, terminal_width
from mlap.errors import MlapError

if TYPE_CHECKING:
    from mlap.study.search import Search, Space

#: the table of the best
_SHOWN = 10
#: recipes of the space, drawn at random, that are timed to say what the search will cost
_TIMED = 12


def run(
    space: Space,
    trials: int,
    dataset: str,
    study: Path,
    *,
    sampler: str,
    seed: int,
    dry_run: bool,
    calibrate_on: str,
    as_json: bool,
    silent: bool,
    **site: Any,
) -> None:
    """Search, and print what was found; `site` are the arguments that `search` has in common with `sweep`."""
    from mlap.study.search import look, search

    workers: int = site["engine"].capacity
    about = {"study": str(study), "sampler": sampler, "seed": seed}

    def text(found: Search) -> str:
        return _outlook_text(found, sampler, seed, workers, calibrate_on)

    if dry_run:
        found = look(space, trials, site["graphs"], study)
        if as_json:
            costs = {"core_hours": _seconds(found, calibrate_on) / 3600, "workers": workers}
            print_json({**about, **_counts(found), **costs})
        else:
            typer.echo(text(found))
        return

    with ExitStack() as stack:
        views: list[Any] = []

        def on_outlook(found: Search) -> None:
            if silent:
                return
            from mlap.cli.sweep_view import SweepView

            note(text(found))
            assert found.graphs.task is not None
            if left := _left(found):
                view = SweepView(found.graphs.task, space.searched, left, show_test=False)
                views.append(stack.enter_context(view))

        try:
            found = search(
                space,
                trials,
                dataset,
                study,
                sampler=sampler,
                seed=seed,
                on_outlook=on_outlook,
                on_event=lambda event: views[0](event) if views else None,
                **site,
            )
        except KeyboardInterrupt:
            raise MlapError("stopped; the same command goes on where this one ended") from None
    if as_json:
        print_json({**about, **_counts(found), "ran": found.ran, "seconds": found.seconds, **_found_json(found, study)})
    else:
        typer.echo(_found_text(found, study))
    if not found.ranking:
        raise typer.Exit(1)


def _left(found: Search) -> int:
    """Runs that are still to be run, if no recipe is proposed twice."""
    return max(found.wanted, len(found.trials)) - found.done - found.failed


def _counts(found: Search) -> dict[str, Any]:
    space = {name: str(axis) if not isinstance(axis, tuple) else list(axis) for name, axis in found.space.axes.items()}
    return {"space": space, "trials": found.wanted, "done": found.done, "failed": found.failed, "to_run": _left(found)}


def _seconds(found: Search, device: str) -> float:
    """The estimated cost of the trials to come, from recipes of the space at random."""
    from mlap.study import estimate
    from mlap.study.search import propose

    if not (left := _left(found)):
        return 0.0
    drawn = [propose(found.space, [], False, "random", seed) for seed in range(_TIMED)]
    return left * sum(estimate(drawn, found.graphs, found.records, device=device).seconds) / len(drawn)


def _outlook_text(found: Search, sampler: str, seed: int, workers: int, device: str) -> str:
    from mlap.cli.sweep_view import duration

    lines = [
        f"# search for {found.graphs.name}: {', '.join(found.space.searched)}; sampler {sampler}, seed {seed}",
        found.space.to_toml(),
        f"{count(found.wanted, 'trial')}: {found.done:,} done, {_left(found):,} to run"
        + (f", {found.failed:,} failed" if found.failed else ""),
    ]
    if seconds := _seconds(found, device):
        work = f"{seconds / 3600:,.1f} core-hours" if seconds > 3600 else f"{duration(seconds)} of a core"
        lines.append(
            f"roughly {work}: {duration(seconds / workers)} with {count(workers, 'worker')}  "
            f"(judged by {_TIMED} recipes of the space, at random)"
        )
    return "\n".join(lines)


def _found_text(found: Search, study: Path) -> str:
    from mlap.cli.sweep_view import duration
    from mlap.report import render

    assert found.graphs.task is not None
    lines = [
        f"{study}: {found.done:,} of {count(found.wanted, 'trial')} done"
        + (f", {found.failed:,} failed" if found.failed else "")
        + f"  ({count(found.ran, 'run')} now, in {duration(found.seconds)})"
    ]
    if not found.ranking:
        return "\n".join([*lines, "no trial has a validation score"])
    metric = f"validation {found.graphs.task.metric_label}"
    columns = [render.Column("trial", "trial"), render.Column("valid_score", metric)]
    columns += [render.Column(name, name) for name in found.space.searched]
    rows = [
        (number, f"{trial.valid_score:.4f}", *(getattr(trial.recipe, name) for name in found.space.searched))
        for number, trial in found.ranking[:_SHOWN]
    ]
    shown = min(_SHOWN, len(found.ranking))
    table = render.Table("best", f"The best {shown} by validation score", tuple(columns), tuple(rows))
    lines += ["", render.to_text([table], [], terminal_width()), *_advice(found, study)]
    return "\n".join(lines)


def _advice(found: Search, study: Path) -> list[str]:
    return [
        f"The first of {len(found.ranking):,} has been lucky too. Train it with more seeds before you believe it:",
        f"  {_command(found, study)}",
    ]


def _command(found: Search, study: Path) -> str:
    """The command that trains the best recipe with ten seeds."""
    from mlap.report.facts import sweep_command
    from mlap.study import PlanRecord

    _, best = found.ranking[0]
    axes = {name: [value] for name, value in best.recipe.as_dict().items()} | {"seed": list(range(10))}
    return " ".join(sweep_command(PlanRecord("grid", axes, best.fingerprint, ""), best, str(study)))


def _found_json(found: Search, study: Path) -> dict[str, Any]:
    if not found.ranking:
        return {"best": None, "ranking": [], "command": None}
    ranking = [
        {"trial": number, "hash": trial.hash, "valid_score": trial.valid_score, "recipe": trial.recipe.as_dict()}
        for number, trial in found.ranking[:_SHOWN]
    ]
    return {"best": ranking[0], "ranking": ranking, "command": _command(found, study)}
