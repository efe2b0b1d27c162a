"""`mlap compare`: the runs of a study, or of several, as the paper's tables."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from mlap.cli.common import Json, note, terminal_width
from mlap.errors import UsageError
from mlap.files import write_text


class TableName(str, Enum):
    """Which table."""

    all = "all"
    results = "results"
    significance = "significance"
    summary = "summary"
    full = "full"
    baselines = "baselines"
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
            help="A study file from `mlap sweep`, or a CSV file of runs. Several are compared together.",
            metavar="STUDY",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The data set, if the study has several: its name or the start of its fingerprint."
        ),
    ] = None,
    table: Annotated[
        TableName,
        typer.Option(
            help="results: the selected model of each family; significance: tests between them; summary: the best "
            "depth of each architecture; full: every cell; baselines: simple models beside the best network; "
            "all: these; runs: every run; splits: the selected models compared over several splits of the data."
        ),
    ] = TableName.all,
    reference: Annotated[
        str | None, typer.Option(metavar="FAMILY", help="Compare the other families with this one.  [default: mlap]")
    ] = None,
    families: Annotated[
        list[str] | None,
        typer.Option(
            "--family", metavar="ARCHITECTURE=FAMILY", help="Put an architecture into another family. May be repeated."
        ),
    ] = None,
    finished: Annotated[bool, typer.Option("--finished", help="Leave out failed and unfinished runs.")] = False,
    form: Annotated[Format, typer.Option("--format", help="How to write the tables.")] = Format.text,
    as_json: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to a file instead of the terminal.")
    ] = None,
) -> None:
    """Compare the architectures of a study as the paper does, next to the paper's numbers.

    Each family (naive, jk, mlap; any other architecture is a family of its own) is represented by the depth, join and
    normalisation with the best mean validation score. The Mann–Whitney U test compares their test scores over seeds,
    or with --table splits the Wilcoxon signed-rank test compares them over splits. P-values are also given with Holm's
    correction for several comparisons.

    \b
    Examples:
      mlap compare study.db
      mlap compare study.db --table results --format latex --out results.tex
      mlap compare study.db --table runs --finished --format csv --out runs.csv
      mlap compare here.db from-another-machine.db runs.csv
      mlap compare study.db --reference jk --family mlap-max=ours
      mlap compare split-1.db split-2.db split-3.db --table splits
    """
    from mlap.report import render
    from mlap.report.study_tables import check_csv, study_tables, written

    as_csv = form is Format.csv and not as_json
    if as_csv:
        check_csv(table.value)
    found = study_tables(
        studies,
        table.value,
        data=data,
        reference=reference,
        families=_membership(families or []),
        finished=finished,
        complete=as_json or as_csv,
    )
    if as_json:
        content = {
            "studies": list(map(str, studies)),
            "data": found.data_name,
            "metric": found.metric,
            "higher_is_better": found.higher_is_better,
            "tables": {made.name: render.to_json(made) for made in found.tables},
            "warnings": list(found.warnings),
        }
        text = json.dumps(content, indent=2) + "\n"
    else:
        text = written(found, form.value, terminal_width() if out is None else None)
    if as_csv:
        for warning in found.warnings:
            note(f"warning: {warning}")
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        write_text(out, text)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}", field="out") from error
    note(f"written to {out}")


def _membership(pairs: list[str]) -> dict[str, str]:
    membership = {}
    for pair in pairs:
        architecture, _, family = (part.strip() for part in pair.partition("="))
        if not architecture or not family:
            raise UsageError(f"{{field}} takes ARCHITECTURE=FAMILY, got {pair!r}", field="families")
        membership[architecture] = family
    return membership
