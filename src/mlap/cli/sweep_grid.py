"""`mlap sweep` of a grid: what it prints."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import typer

from mlap.cli.common import count, note
from mlap.cli.sweep_call import Answer, SweepCall

if TYPE_CHECKING:
    from mlap.study import Cost, Forecast, Outcome, Plan


def run(plan: Plan, call: SweepCall) -> Answer:
    """Run a plan, and print what becomes of it unless the answer is for JSON."""
    from mlap.study import estimate, forecast, sweep

    todo = forecast(plan, call.graphs, call.study, retry_failed=call.settings.retry_failed)
    cost = None
    if call.dry_run or not call.silent:
        cost = estimate(todo.pending, call.graphs, todo.records, device=call.timing_device)
    if call.dry_run and cost:
        workers = call.capacity()
        if not call.as_json:
            typer.echo(_forecast_text(todo, cost, workers))
        return Answer(_forecast_json(todo, cost, workers, call))
    engine = call.start()  # which the sweep closes, so nothing that takes time is done in between
    with ExitStack() as stack:
        on_event = None
        if cost:
            from mlap.cli.sweep_view import SweepView

            note(_forecast_text(todo, cost, engine.capacity))
            if todo.pending:
                on_event = stack.enter_context(SweepView.of_grid(todo, cost))
        outcome = sweep(plan, call.settings, engine=engine, graphs=call.graphs, on_wait=call.on_wait, on_event=on_event)
    if not call.as_json:
        _print_outcome(outcome, call)
    return Answer(_outcome_json(outcome, plan, call), failed=bool(outcome.failures))


def _forecast_text(todo: Forecast, cost: Cost, workers: int) -> str:
    from mlap.cli.sweep_view import duration

    sizes = " × ".join(f"{len(values)} {name}" for name, values in todo.plan.axes.items() if len(values) > 1)
    lines = [
        f"# plan {todo.plan.name} for {todo.graphs.name}{f': {sizes}' if sizes else ''}",
        todo.plan.to_toml(),
        f"{count(len(todo.plan), 'run')}: {todo.done:,} done, {len(todo.pending):,} to run"
        + (f", {todo.failed:,} failed before (--retry-failed runs them again)" if todo.failed else ""),
    ]
    if todo.plan.name == "quick":
        lines.insert(
            1, "# a rehearsal: small networks, few epochs, few seeds. It says nothing about the paper's results"
        )
    if todo.pending:
        basis = f"{count(cost.measured, 'kind')} of network timed in {duration(cost.calibration)}"
        work = (
            f"{cost.core_hours:,.1f} core-hours" if cost.core_hours > 1 else f"{duration(sum(cost.seconds))} of a core"
        )
        lines.append(
            f"about {work}: {duration(sum(cost.seconds) / workers)} with {count(workers, 'worker')}  "
            f"({basis if cost.measured else 'estimated from finished runs'})"
        )
    return "\n".join(lines)


def _forecast_json(todo: Forecast, cost: Cost, workers: int, call: SweepCall) -> dict[str, Any]:
    return {
        **_about(todo.plan, call),
        "data": todo.graphs.name,
        "fingerprint": todo.graphs.fingerprint,
        "runs": len(todo.plan),
        "done": todo.done,
        "failed": todo.failed,
        "to_run": len(todo.pending),
        "workers": workers,
        "core_hours": cost.core_hours,
    }


def _about(plan: Plan, call: SweepCall) -> dict[str, Any]:
    axes = {name: list(values) for name, values in plan.axes.items()}
    return {"study": str(call.study), "plan": {"name": plan.name, **axes}}


def _outcome_json(outcome: Outcome, plan: Plan, call: SweepCall) -> dict[str, Any]:
    failures = [
        {"hash": run.hash, "error": run.error, "architecture": run.architecture, "layers": run.layers}
        | {"norm": run.norm, "seed": run.seed}
        for run in outcome.failures
    ]
    counts = {"runs": outcome.total, "done": outcome.done, "ran": outcome.ran, "failed": len(failures)}
    return {**_about(plan, call), **counts, "seconds": outcome.seconds, "failures": failures}


def _print_outcome(outcome: Outcome, call: SweepCall) -> None:
    from mlap.cli.sweep_view import duration

    for run in outcome.failures:
        note(f"{run.architecture} L{run.layers} {run.norm} s{run.seed}  failed: {run.error}")
    failed = len(outcome.failures)
    typer.echo(
        f"{call.study}: {outcome.done:,} of {count(outcome.total, 'run')} done"
        + (f", {failed:,} failed (--retry-failed runs them again)" if failed else "")
        + (f"  ({outcome.ran:,} now, in {duration(outcome.seconds)})" if not call.silent else "")
    )
