"""`mlap report`: a study as one page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from mlap.cli.common import DataRoot, Device, Json, Quiet, Threads, count, note, print_json, use_threads
from mlap.progress import steps_bar


def report(
    study: Annotated[Path, typer.Argument(help="A study file from `mlap sweep`.", metavar="STUDY")],
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Run directories to look into.  [default: some that `mlap sweep --keep-models` kept]",
            metavar="RUN…",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder to write the report to.")] = Path(
        "report"
    ),
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The data set, if the study has several: its name or the start of its fingerprint."
        ),
    ] = None,
    models: Annotated[
        bool,
        typer.Option("--models/--no-models", help="Look into trained networks. This takes minutes if there are many."),
    ] = True,
    tsne: Annotated[bool, typer.Option("--tsne/--no-tsne", help="Draw t-SNE maps of the graphs.")] = True,
    tsne_graphs: Annotated[
        int, typer.Option(min=0, help="Map at most N graphs, chosen at random. 0 maps all.", metavar="N")
    ] = 1000,
    threads: Threads = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a report on a study: what was run, who won, how depth matters, what each level knows and looks at.

    The report is one HTML page, DIR/index.html, which opens without a network connection. Each figure is also saved as
    SVG, PNG and CSV, and each table as CSV.

    \b
    Examples:
      mlap report study.db --out report
      mlap report study.db runs/synthetic/mlap-sum-L10-none-s* --out report
    """
    began = time.perf_counter()
    from mlap.models.run import resolve_device
    from mlap.report.page import write_report

    use_threads(threads)
    silent = quiet or as_json
    with steps_bar(silent) as on_step:
        written = write_report(
            study,
            out,
            runs or [],
            load_data=lambda run: run.data(root=data_root, say=lambda text: note(text, silent)),
            data=data,
            models=models,
            max_mapped=(tsne_graphs or None) if tsne else 0,
            device=resolve_device(device),
            on_step=on_step,
        )
    seconds = time.perf_counter() - began
    if as_json:
        print_json(
            {
                "study": str(study),
                "page": str(written.page),
                "figures": [str(figure) for figure in written.figures],
                "tables": [str(table) for table in written.tables],
                "looked_into": [str(run) for run in written.looked_into],
                "warnings": list(written.warnings),
                "seconds": seconds,
            }
        )
        return
    for warning in written.warnings:
        note(f"warning: {warning}", quiet)
    made = f"{count(len(written.figures), 'figure')} and {count(len(written.tables), 'table')}"
    typer.echo(str(written.page) if quiet else f"{written.page}: {made}, in {seconds:.0f} s")
