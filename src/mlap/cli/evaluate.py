"""`mlap evaluate`: score a model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    Json,
    ModelPath,
    Quiet,
    Threads,
    count,
    load_model,
    note,
    print_json,
    terminal_width,
    use_threads,
)
from mlap.names import METRICS

if TYPE_CHECKING:
    from mlap.graphs import GraphSet, Task
    from mlap.models import Evaluation, Model
    from mlap.models.conformal import Coverage
    from mlap.training import Scores

#: the confidence at which a calibrated model's sets are measured unless told otherwise
CONFIDENCE = 0.9
#: targets of which reliability and coverage are printed
SHOWN_TARGETS = 12
#: the width of a bar, in characters
BAR = 40


def evaluate(
    model: ModelPath,
    data: Annotated[
        str | None, typer.Option(help="Other labelled data to score on.  [default: the data it was trained on]")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="train, valid, test or all.  [default: test of the model's own data, all of other data]"),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help="Measure sets or intervals of this confidence.  [default: 0.9 if the model is calibrated]"),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the reliability diagram: FILE.svg, FILE.png and FILE.csv."),
    ] = None,
    threads: Threads = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model by all measures of its task, for each target and on average, and measure how honest it is.

    The reliability diagram compares probabilities with the share of graphs for which they come true. Of a calibrated
    model, the coverage is how often its sets or intervals hold the truth, for each class beside what was promised.

    \b
    Examples:
      mlap evaluate runs/mine
      mlap evaluate runs/mine --data new-measurements.csv
      mlap evaluate runs/mine --split valid --json
      mlap evaluate runs/mine --confidence 0.8 --plot reliability
    """
    use_threads(threads)
    silent = quiet or as_json
    loaded = load_model(model, device, silent)
    if data is None:
        graphs = loaded.data(root=data_root)  # how they are read was told when the model was trained
    else:
        graphs = loaded.labelled(data, root=data_root, say=lambda text: note(text, silent))
    same = loaded.trained_on(graphs)
    if data is None and not same:
        note(f"note: {graphs.name} has changed since the model was trained on it (fingerprints differ)", silent)
    if confidence is None and loaded.calibrated is not None:
        confidence = CONFIDENCE
    part = split or ("test" if data is None else "all")
    found = loaded.evaluate(graphs, part, confidence=confidence)
    if plot is not None:
        from mlap.analysis.reliability import reliability_plot
        from mlap.plotting import save_plot

        written = save_plot(reliability_plot(found), plot.with_suffix("") if plot.suffix in (".svg", ".png") else plot)
        note(f"written to {', '.join(map(str, written))}", silent)
    notes = [] if loaded.calibrated is None or confidence is None else _notes(loaded, graphs, part, confidence)
    if as_json:
        honest = {"confidence": confidence, "notes": notes, "same_data": same}
        print_json({"model": str(model), **found.as_dict(), **honest})
    elif quiet:
        typer.echo(f"{found.score:.4f}")
    else:
        typer.echo(f"{count(found.graphs, 'graph')} of {found.data} ({found.part})")
        print_scores(found)
        print_reliability(found)
        if found.coverage is not None and confidence is not None:
            print_coverage(found, loaded.task, confidence)
        for text in notes:
            note(f"note: {text}")


def _notes(model: Model, graphs: GraphSet, part: str, confidence: float) -> list[str]:
    """What to know before believing a coverage."""
    assert model.calibrated is not None
    told = list(model.calibrated.warnings(model.task, confidence))
    where = model.calibrated.data
    if where["fingerprint"] == graphs.fingerprint and part in (where["part"], "all"):
        told.append("the model was calibrated on these graphs: what they show of coverage and calibration is flattered")
    return told


def print_scores(scores: Scores) -> None:
    """A table of scores: a row for each metric, a column for each of several targets."""
    targets = scores.by_target if len(scores.by_target) > 1 else {}
    table = _table("", "mean" if targets else "score", *targets)
    for name, value in scores.values.items():
        of_targets = [_number(values[name]) for values in targets.values()]
        table.add_row(METRICS[name].label, _number(value), *of_targets, style="bold" if name == scores.metric else None)
    _print(table)


def print_reliability(found: Evaluation) -> None:
    """For each bin of probabilities, how often they came true, as numbers and as bars."""
    for target, points in list(found.reliability.items())[:SHOWN_TARGETS]:
        error = _number(found.by_target[target]["calibration_error"])
        of = f" of {target}" if target and len(found.reliability) > 1 else ""
        typer.echo(f"\nreliability{of} (calibration error {error})")
        table = _table("predicted", "came true", "graphs", "")
        for mean, share, number in points:
            table.add_row(f"{mean:.3f}", f"{share:.3f}", f"{number:,}", _bar(mean, share))
        _print(table)
    if len(found.reliability) > SHOWN_TARGETS:
        typer.echo(f"… and {len(found.reliability) - SHOWN_TARGETS} more targets, which --json has")


def _bar(predicted: float, share: float) -> str:
    """The share as a bar, with a mark where it should end."""
    cells = ["█" if place < round(share * BAR) else "·" for place in range(BAR)]
    cells[min(BAR - 1, round(predicted * BAR))] = "┃"
    return "".join(cells)


def print_coverage(found: Evaluation, task: Task, confidence: float) -> None:
    """Promised and measured coverage, for each target and class."""
    assert found.coverage is not None
    regression = task.kind == "regression"
    typer.echo("\ncoverage of intervals" if regression else "\ncoverage of conformal sets")
    headers = ("median width",) if regression else ("classes in a set", "sets of one class")
    table = _table("", "promised", "measured", "graphs", *headers)
    for each in found.coverage[: SHOWN_TARGETS * 3]:
        numbers = (f"{each.size:.4g}",) if regression else (f"{each.size:.2f}", f"{each.single:.3f}")
        table.add_row(_who(each, task), f"{confidence:g}", _number(each.covered), f"{each.graphs:,}", *numbers)
    _print(table)


def _who(each: Coverage, task: Task) -> str:
    """The target and class that a coverage is of."""
    if task.kind == "multiclass":
        return "all" if each.label is None else str((task.names or range(task.num_outputs))[each.label])
    target = task.names[each.target] if task.names else (f"target {each.target}" if task.num_outputs > 1 else "")
    if each.label is None:
        return target or "all"
    word = task.labels[each.target][each.label] if task.labels else str(each.label)
    return f"{target} = {word}" if target else word


def _table(*headers: str) -> Any:
    from rich.table import Table

    return Table(*headers, box=None, pad_edge=False)


def _print(table: Any) -> None:
    from rich.console import Console

    Console(width=terminal_width() or 200, highlight=False).print(table)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"
