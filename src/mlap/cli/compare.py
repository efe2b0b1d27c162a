"""`mlap compare`: the runs of a study, or of several, as the paper's tables."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from mlap.cli.common import Json, note, terminal_width
from mlap.errors import DataError, UsageError


class TableName(str, Enum):
    """Which table."""

    all = "all"
    results = "results"
    significance = "significance"
    summary = "summary"
    full = "full"
    runs = "runs"
    splits = "splits"


class Format(str, Enum):
    """How tables are written."""

    text = "text"
    csv = "csv"
    markdown = "markdown"
    latex = "latex"


def compare(
    studies: Annotated[
        list[Path],
        typer.Argument(
            help="A study file that `mlap sweep` made, or a CSV file of runs; several are taken together.",
            metavar="STUDY",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which data set, if the study has several (or a fingerprint's beginning)."),
    ] = None,
    table: Annotated[
        TableName,
        typer.Option(
            help="results: the selected model of each family; significance: they compared; summary: the best depth "
            "of each architecture; full: every cell; all: these four; runs: every run; splits: the selected models on "
            "several splits of a data set, compared over the splits."
        ),
    ] = TableName.all,
    reference: Annotated[
        str | None, typer.Option(metavar="FAMILY", help="Compare the others with this one.  [default: mlap]")
    ] = None,
    families: Annotated[
        list[str] | None,
        typer.Option("--family", metavar="ARCHITECTURE=FAMILY", help="Count an architecture to another family."),
    ] = None,
    finished: Annotated[
        bool, typer.Option("--finished", help="Leave out runs that failed or are not finished.")
    ] = False,
    form: Annotated[Format, typer.Option("--format", help="How to write the tables.")] = Format.text,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """Compare the architectures of a study as the paper does, with the paper's numbers beside.

    Depth, aggregator and normalisation are selected per family (naive, jk, mlap; any other architecture is its own)
    by mean validation score. The selected models are compared by the Mann–Whitney U test on their test scores.

    \b
    Examples:
      mlap compare study.db
      mlap compare study.db --table results --format latex --out results.tex
      mlap compare study.db --table runs --finished --format csv --out runs.csv
      mlap compare here.db from-another-machine.db runs.csv
      mlap compare study.db --reference jk --family mlap-max=ours
      mlap compare split-1.db split-2.db split-3.db --table splits
    """
    if form is Format.csv and table is TableName.all and not as_json:
        raise UsageError(
            "a CSV file holds one table; choose it with --table results, significance, summary, full, runs or splits"
        )
    membership = _membership(families or [])

    from mlap.report import render
    from mlap.report.split_tables import split_tables
    from mlap.report.tables import TABLES, paper_warnings, runs_table
    from mlap.study.compare import compare as compare_runs
    from mlap.study.compare import runs_on
    from mlap.study.gather import gather
    from mlap.study.splits import compare_splits

    gathered = gather(studies)
    kept = [run for run in gathered if run.status == "done" or not finished]
    if gathered and not kept:
        raise DataError(f"none of the {len(gathered)} runs is finished; see them without --finished")
    runs = runs_on(kept, data, several=table in (TableName.runs, TableName.splits))
    warnings: list[str] = []
    if table is TableName.runs:
        tables = [runs_table(runs, complete=as_json or form is Format.csv)]
    elif table is TableName.splits:
        over_splits = compare_splits(runs, reference=reference, families=membership)
        tables, warnings = split_tables(over_splits), [*over_splits.warnings]
    else:
        comparison = compare_runs(runs, reference=reference, families=membership)
        tables = [TABLES[name](comparison) for name in (TABLES if table is TableName.all else [table.value])]
        warnings = [*comparison.warnings, *paper_warnings(comparison)]
    if table in (TableName.all, TableName.splits) and not as_json:
        tables = [made for made in tables if made.rows]  # one family alone has nothing to be compared with

    if as_json:
        content = {
            "studies": list(map(str, studies)),
            "data": runs[0].data_name,
            "metric": runs[0].metric,
            "higher_is_better": runs[0].higher_is_better,
            "tables": {made.name: render.to_json(made) for made in tables},
            "warnings": warnings,
        }
        text = json.dumps(content, indent=2) + "\n"
    elif form is Format.csv:
        text = render.to_csv(tables[-1])  # the only one, or what the others of a comparison over splits are made of
        for warning in warnings:
            note(f"warning: {warning}")
    elif form is Format.markdown:
        text = render.to_markdown(tables, warnings)
    elif form is Format.latex:
        text = render.to_latex(tables, warnings)
    else:
        text = render.to_text(tables, warnings, terminal_width() if out is None else None)
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write(out, text)


def _membership(pairs: list[str]) -> dict[str, str]:
    membership = {}
    for pair in pairs:
        architecture, _, family = (part.strip() for part in pair.partition("="))
        if not architecture or not family:
            raise UsageError(f"--family takes ARCHITECTURE=FAMILY, got {pair!r}")
        membership[architecture] = family
    return membership


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    note(f"written to {path}")
