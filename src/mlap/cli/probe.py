"""`mlap probe`: what each level of trained networks knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlap.cli.common import DataRoot, Device, Json, Quiet, Threads, count, note, print_json, use_threads
from mlap.progress import steps_bar

if TYPE_CHECKING:
    from mlap.analysis import Inspection, ProbeRow
    from mlap.statistics import Summary


def probe(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories that differ only in their seeds.", metavar="RUN…"),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="The folder to write the figures to.  [default: RUN/probe]"),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATASET", help="Use another data set.  [default: the training data]")
    ] = None,
    tsne: Annotated[
        bool, typer.Option("--tsne/--no-tsne", help="Draw t-SNE maps of the first run. This takes minutes.")
    ] = True,
    tsne_graphs: Annotated[
        int, typer.Option(min=0, help="Map at most N graphs, chosen at random. 0 maps all.", metavar="N")
    ] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed for the probes and the maps.")] = 0,
    threads: Threads = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train linear classifiers on each level, to see what it knows, and on the final vector, as in the paper.

    With several runs, scores are means with standard errors, and the Mann–Whitney U test with Bonferroni's correction
    compares the final vector with each level. The figures, each as SVG, PNG and CSV, show the classifiers' scores,
    t-SNE maps, how similar the nodes of a graph become from level to level, and the layer weights if there are any.

    \b
    Examples:
      mlap probe runs/synthetic/mlap-sum-L10-none-s*
      mlap probe runs/mine --no-tsne --json
    """
    from mlap.analysis import inspect_runs, write_inspection
    from mlap.models import load_run
    from mlap.models.run import resolve_device

    use_threads(threads)
    silent = quiet or as_json
    trained = [load_run(run) for run in runs]
    first = trained[0]

    def say(text: str) -> None:
        note(text, silent)

    if data is None:
        graphs = first.data(root=data_root, say=say)
        if not first.trained_on(graphs):
            note(f"note: {graphs.name} has changed since the networks were trained on it", as_json)
    else:
        graphs = first.labelled(data, root=data_root, say=say)
    if first.recipe.norm != "none":
        note("note: the paper looks into networks without normalisation (trained with --no-graph-norm)", silent)
    max_mapped = (tsne_graphs or None) if tsne else 0
    with steps_bar(silent) as on_step:
        inspection = inspect_runs(
            trained, graphs, max_mapped=max_mapped, seed=seed, device=resolve_device(device), on_step=on_step
        )
    out = out or runs[0] / "probe"
    files = write_inspection(inspection, out)
    if as_json:
        print_json({"runs": [str(run) for run in runs], **inspection.as_dict(), "files": [str(file) for file in files]})
        return
    _print_tables(inspection)
    note(f"{count(len(files) // 3, 'figure')} written to {out} (each as SVG, PNG and CSV)", quiet)


def _print_tables(inspection: Inspection) -> None:
    from rich.console import Console
    from rich.table import Table

    from mlap.statistics import smallest_p

    metric = inspection.task.metric_label
    number = len(inspection.runs)
    console = Console()
    for question, rows in inspection.tables.items():
        levels = len(rows) - 1
        over = f"mean ± standard error of {number} runs" if number > 1 else "1 run"
        typer.echo(f"{question}: {metric} of linear classifiers, {over}")
        compared = number > 1 and levels > 0
        headers = ["level", "train", "test", *(["p one-sided", "p two-sided", "effect r"] if compared else [])]
        table = Table(*headers, box=None, pad_edge=False)
        for row in rows:
            table.add_row(row.level, _scores(row.train), _scores(row.test), *(_comparison(row) if compared else ()))
        console.print(table)
        if compared:
            least = min(1.0, levels * smallest_p(number, number))
            typer.echo(
                f"p: aggregate against level, Mann–Whitney on test scores, corrected for {count(levels, 'level')}"
                f" (with {number} runs at least {least:.2g}); r > 0: the aggregate is better\n"
            )
        else:
            typer.echo("")


def _scores(summary: Summary) -> str:
    error = summary.standard_error
    return f"{summary.mean:.4f}" + ("" if error is None else f" ± {error:.4f}")


def _comparison(row: ProbeRow) -> tuple[str, ...]:
    if row.against is None:
        return "", "", ""
    return f"{row.p_one_sided:.2g}", f"{row.p_two_sided:.2g}", f"{row.against.r:+.3f}"
