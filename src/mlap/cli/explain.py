"""`mlap explain`: which nodes mattered, and at which level."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    Json,
    Quiet,
    SmilesColumn,
    count,
    load_input,
    note,
    print_json,
    resolve_device,
)
from mlap.errors import UsageError

if TYPE_CHECKING:
    from mlap.graphs import GraphSet, Task

SHOWN = 10  # graphs about which something is printed


def explain(
    run: Annotated[Path, typer.Argument(help="A run directory that `mlap train` made.", metavar="RUN")],
    inputs: Annotated[
        list[str], typer.Argument(help="A DATASET (a name or a path, e.g. a CSV), or SMILES.", metavar="INPUT…")
    ],
    graphs: Annotated[
        str | None, typer.Option(metavar="I,J,K-L", help="Which graphs, counted from 0.  [default: all]")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write JSON, CSV and pictures.")] = Path(
        "explanations"
    ),
    output: Annotated[
        str | None,
        typer.Option("--class", metavar="C", help="The class or target to explain.  [default: the predicted class]"),
    ] = None,
    max_pictures: Annotated[int, typer.Option("--max", min=0, help="Draw at most so many graphs.")] = 12,
    smiles_column: SmilesColumn = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Explain predictions: the share of every node, at every level, in the logit. The shares add up to it.

    Molecules are drawn with atoms coloured by their shares, other graphs likewise at stable places: one panel for each
    level and one for all. Everything is also written to explanations.csv and explanations.json.

    \b
    Examples:
      mlap explain runs/mine "CC(=O)Oc1ccccc1C(=O)O"
      mlap explain runs/mine molecules.csv --graphs 0-9 --out looked-at
      mlap explain runs/synthetic/mlap-sum-L5-graph-s0 synthetic --graphs 3 --class 7
    """
    from mlap.models.explanation import explain as explain_graphs
    from mlap.analysis.explanation_files import write_explanations
    from mlap.training import load_run
    from mlap.training.run import check_fits

    silent = quiet or as_json
    trained = load_run(run)
    chosen_output = None if output is None else _output(output, trained.task)
    given = load_input(trained, inputs, data_root, smiles_column, silent)
    check_fits(trained, given)
    chosen = _chosen(graphs, given)
    device = resolve_device(device)
    explained: list[dict[str, Any]] = []

    with _progress(len(chosen), silent) as advance:

        def on_graph(content: dict[str, Any]) -> None:
            if as_json or len(explained) < SHOWN:
                explained.append(content)
            advance()

        written = write_explanations(
            explain_graphs(trained.network.to(device), given, chosen, device),
            given,
            trained.objective,
            out,
            output=chosen_output,
            max_pictures=max_pictures,
            on_graph=on_graph,
        )
    if as_json:
        print_json({"run": str(run), "data": given.name, "out": str(out), "explanations": explained})
        return
    if not quiet:
        for content in explained:
            typer.echo(_line(content))
        if written.graphs > len(explained):
            typer.echo(f"… and {written.graphs - len(explained):,} more")
    if written.reason:
        note(f"note: {written.reason}", quiet)
    if written.not_drawn:
        note(f"note: not drawn, because they are empty or too large: {', '.join(map(str, written.not_drawn))}", quiet)
    typer.echo(
        f"{count(written.graphs, 'graph')} explained, {count(len(written.pictures), 'picture')}, written to {out}"
        + ("" if explained and explained[0]["shares"] is None else f"; sums are exact to {written.residual:.1e}")
    )


def _output(text: str, task: Task) -> int:
    """The output that a class or target is, given by its name or number."""
    if text in task.names:
        return task.names.index(text)
    if text.isdigit() and int(text) < task.num_outputs:
        return int(text)
    names = f" or one of {', '.join(task.names)}" if task.names else ""
    raise UsageError(f"--class must be 0 to {task.num_outputs - 1}{names}, got {text!r}")


def _chosen(text: str | None, graphs: GraphSet) -> list[int]:
    """The graphs that `--graphs` names."""
    if text is None:
        return list(range(len(graphs)))
    chosen: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"--graphs takes numbers and ranges such as 0,5,10-19, got {text!r}")
        chosen.extend(range(int(first), int(last if dash else first) + 1))
    if wrong := [number for number in chosen if number >= len(graphs)]:
        raise UsageError(f"there is no graph {wrong[0]}; {graphs.name} has {len(graphs)}, counted from 0")
    return chosen


@contextmanager
def _progress(total: int, silent: bool) -> Iterator[Callable[[], None]]:
    if silent or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("explaining", total=total)
        yield lambda: progress.advance(bar)


def _line(content: dict[str, Any]) -> str:
    """One graph in short."""
    line = f"graph {content['graph']}: {content['output_name']}, logit {content['logit']:+.3f}"
    if content["shares"] is None:
        return line
    line += f" = bias {content['bias']:+.3f}"
    for level, share in zip(content["levels"] or ["all"], content["shares_of_levels"], strict=True):
        line += f", level {level} {share:+.3f}" if content["levels"] else f", nodes {share:+.3f}"
    nodes = content["shares_of_nodes"]
    top = sorted(range(len(nodes)), key=lambda node: -abs(nodes[node]))[:3]
    elements = content["elements"] or [""] * len(nodes)
    return line + "; most: " + ", ".join(f"{elements[node]}{node} {nodes[node]:+.3f}" for node in top)
