"""`mlap explain`: which nodes mattered, and at which level."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    InputArgument,
    Json,
    ModelPath,
    Quiet,
    SmilesColumn,
    Threads,
    count,
    load_model,
    note,
    one_or_many,
    print_json,
    use_threads,
)
from mlap.errors import DataError, UsageError
from mlap.progress import steps_bar

if TYPE_CHECKING:
    from mlap.graphs import Task
    from mlap.graphs.inputs import Inputs

SHOWN = 10  # graphs about which something is printed


def explain(
    model: ModelPath,
    inputs: InputArgument,
    graphs: Annotated[
        str | None, typer.Option(metavar="I,J,K-L", help="Which rows of the input, counted from 0.  [default: all]")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write JSON, CSV and pictures.")] = Path(
        "explanations"
    ),
    output: Annotated[
        str | None,
        typer.Option("--class", metavar="C", help="The class or target to explain.  [default: the predicted class]"),
    ] = None,
    max_pictures: Annotated[int, typer.Option("--max", min=0, help="Draw at most so many graphs.")] = 12,
    atom_numbers: Annotated[
        bool, typer.Option("--atom-numbers", help="Write the number of each atom or node into the pictures.")
    ] = False,
    smiles_column: SmilesColumn = None,
    threads: Threads = None,
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
    from mlap.analysis.explanation_files import write_explanations

    use_threads(threads)
    silent = quiet or as_json
    loaded = load_model(model, device, silent)
    chosen_output = None if output is None else _output(output, loaded.task)
    explanations = loaded.explain(one_or_many(inputs), smiles=smiles_column, root=data_root)
    given = explanations.inputs
    for row, reason in list(given.invalid.items())[:SHOWN]:
        note(f"row {row} could not be read: {reason}", silent)
    if not len(given.graphs):
        raise DataError(f"{given.name} has no graph to explain")
    chosen = _chosen(graphs, given)
    explained: list[dict[str, Any]] = []

    with steps_bar(silent) as progress:

        def on_graph(content: dict[str, Any]) -> None:
            if as_json or len(explained) < SHOWN:
                explained.append(content)
            if progress is not None:
                progress("explaining", len(explained), len(chosen))

        written = write_explanations(
            explanations.of(chosen),
            given.graphs,
            loaded,
            out,
            output=chosen_output,
            rows=given.kept.tolist(),
            max_pictures=max_pictures,
            numbers=atom_numbers,
            on_graph=on_graph,
        )
    if as_json:
        print_json({"model": str(model), "data": given.name, "out": str(out), "explanations": explained})
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
    raise UsageError(f"{{field}} must be 0 to {task.num_outputs - 1}{names}, got {text!r}", "output")


def _chosen(text: str | None, inputs: Inputs) -> list[int]:
    """The graphs of the rows that `--graphs` names; rows that could not be read have none."""
    if text is None:
        return list(range(len(inputs.graphs)))
    rows: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"{{field}} takes numbers and ranges such as 0,5,10-19, got {text!r}", "graphs")
        rows.extend(range(int(first), int(last if dash else first) + 1))
    if wrong := [row for row in rows if row >= inputs.num_rows]:
        raise UsageError(f"there is no row {wrong[0]}; {inputs.name} has {inputs.num_rows}, counted from 0", "graphs")
    graph_of = {row: graph for graph, row in enumerate(inputs.kept.tolist())}
    return [graph_of[row] for row in rows if row in graph_of]


def _line(content: dict[str, Any]) -> str:
    """One graph in short: what is predicted, what the shares are of, and what it is the sum of."""
    line = f"row {content['graph']}: {content['answer']}; {content['explained']} {content['logit']:+.3f}"
    if not content["terms"]:
        return line
    line += " = " + ", ".join(f"{name} {term:+.3f}" for name, term in content["terms"].items())
    nodes = content["shares_of_nodes"]
    top = sorted(range(len(nodes)), key=lambda node: -abs(nodes[node]))[:3]
    elements = content["elements"] or [""] * len(nodes)
    return line + "; most: " + ", ".join(f"{elements[node]}{node} {nodes[node]:+.3f}" for node in top)
