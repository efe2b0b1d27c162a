"""`mlap sweep --hpo`, a search for a good recipe: what it prints."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import typer

from mlap.cli.common import count, note, terminal_width
from mlap.cli.sweep_call import Answer, SweepCall

if TYPE_CHECKING:
    from mlap.study.search import Search, Space

#: the table of the best
_SHOWN = 10


def run(space: Space, trials: int, call: SweepCall, sampler: str, seed: int) -> Answer:
    """Search, and print what was found unless the answer is for JSON."""
    from mlap.study.cost import search_seconds
    from mlap.study.search import search, search_state

    about = {"study": str(call.study), "sampler": sampler, "seed": seed}
    title = f"# search for {call.graphs.name}: {', '.join(space.searched)}; sampler {sampler}, seed {seed}"
    state = search_state(space, trials, call.graphs, call.study)
    seconds = search_seconds(state, device=call.timing_device) if call.dry_run or not call.silent else 0.0
    if call.dry_run:
        workers = call.capacity()
        if not call.as_json:
            typer.echo(f"{title}\n{_state_text(state, seconds, workers)}")
        return Answer({**about, **_counts(state), "core_hours": seconds / 3600, "workers": workers})
    engine = call.start()  # which the search closes, so nothing that takes time is done in between
    with ExitStack() as stack:
        on_event = None
        if not call.silent:
            from mlap.cli.sweep_view import SweepView

            note(f"{title}\n{_state_text(state, seconds, engine.capacity)}")
            if state.left:
                on_event = stack.enter_context(SweepView.of_search(state))
        found = search(
            space,
            trials,
            call.settings,
            sampler=sampler,
            seed=seed,
            engine=engine,
            graphs=call.graphs,
            on_wait=call.on_wait,
            on_event=on_event,
        )
    if not call.as_json:
        typer.echo(_found_text(found, call))
    content = {**about, **_counts(found), "ran": found.ran, "seconds": found.seconds, **_found_json(found, call)}
    return Answer(content, failed=not found.ranking)


def _counts(found: Search) -> dict[str, Any]:
    space = {name: str(axis) if not isinstance(axis, tuple) else list(axis) for name, axis in found.space.axes.items()}
    return {"space": space, "trials": found.wanted, "done": found.done, "failed": found.failed, "to_run": found.left}


def _state_text(state: Search, seconds: float, workers: int) -> str:
    from mlap.cli.sweep_view import duration
    from mlap.study.cost import TIMED

    lines = [
        state.space.to_toml(),
        f"{count(state.wanted, 'trial')}: {state.done:,} done, {state.left:,} to run"
        + (f", {state.failed:,} failed" if state.failed else ""),
    ]
    if seconds:
        work = f"{seconds / 3600:,.1f} core-hours" if seconds > 3600 else f"{duration(seconds)} of a core"
        lines.append(
            f"roughly {work}: {duration(seconds / workers)} with {count(workers, 'worker')}  "
            f"(estimated from {TIMED} random recipes of the space)"
        )
    return "\n".join(lines)


def _found_text(found: Search, call: SweepCall) -> str:
    from mlap.cli.sweep_view import duration
    from mlap.report import render

    assert found.graphs.task is not None
    lines = [
        f"{call.study}: {found.done:,} of {count(found.wanted, 'trial')} done"
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
    advice = [
        f"The best of {len(found.ranking):,} is partly luck. Train it with more seeds before you trust it:",
        f"  {_command(found, call)}",
    ]
    return "\n".join([*lines, "", render.to_text([table], [], terminal_width()), *advice])


def _command(found: Search, call: SweepCall) -> str:
    """The command that trains the best recipe with ten seeds."""
    from mlap.report.facts import sweep_command
    from mlap.study import PlanRecord

    _, best = found.ranking[0]
    axes = {name: [value] for name, value in best.recipe.as_dict().items()} | {"seed": list(range(10))}
    return " ".join(sweep_command(PlanRecord("grid", axes, best.fingerprint, ""), best, str(call.study)))


def _found_json(found: Search, call: SweepCall) -> dict[str, Any]:
    if not found.ranking:
        return {"best": None, "ranking": [], "command": None}
    ranking = [
        {"trial": number, "hash": trial.hash, "valid_score": trial.valid_score, "recipe": trial.recipe.as_dict()}
        for number, trial in found.ranking[:_SHOWN]
    ]
    return {"best": ranking[0], "ranking": ranking, "command": _command(found, call)}
