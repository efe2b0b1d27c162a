"""The tables of one or several studies, from their files: all that `mlap compare` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlap.errors import DataError, UsageError, unknown
from mlap.report import render
from mlap.report.split_tables import split_tables
from mlap.report.tables import TABLES, paper_warnings, runs_table
from mlap.study.compare import compare, runs_on
from mlap.study.gather import gather, gather_baselines
from mlap.study.splits import compare_splits

#: what may be asked for; `all` are those of the paper
NAMES = ("all", *TABLES, "runs", "splits")


@dataclass(frozen=True)
class StudyTables:
    """Tables of the runs on one data set.

    Args:
        data_name: the data set.
        metric: how scores are measured.
        higher_is_better: whether a higher score is a better one.
        tables: the tables.
        warnings: what a reader should know before concluding anything.
    """

    data_name: str
    metric: str
    higher_is_better: bool
    tables: tuple[render.Table, ...]
    warnings: tuple[str, ...]


def study_tables(
    studies: Sequence[str | Path],
    table: str = "all",
    *,
    data: str | None = None,
    reference: str | None = None,
    families: Mapping[str, str] | None = None,
    finished: bool = False,
    complete: bool = False,
) -> StudyTables:
    """Compare the runs of studies, and of files of runs, taken together.

    Args:
        studies: study files and CSV files of runs.
        table: one of `NAMES`.
        data: which data set, if there are several; see `mlap.study.compare.runs_on`.
        reference: the family to compare the others with; `mlap` unless given.
        families: architecture → family, where it is not the one of its name.
        finished: leave out runs that failed or are not finished.
        complete: for machines: the table of runs with all that is known of them, and tables without a row too.
    """
    if table not in NAMES:
        raise unknown("table", table, NAMES, "table")
    gathered = gather(studies)
    kept = [run for run in gathered if run.status == "done" or not finished]
    if gathered and not kept:
        raise DataError(f"none of the {len(gathered)} runs is finished", field="finished", suggest=False)
    runs = runs_on(kept, data, several=table in ("runs", "splits"))
    tables: list[render.Table]
    warnings: list[str] = []
    if table == "runs":
        tables = [runs_table(runs, complete)]
    elif table == "splits":
        over_splits = compare_splits(runs, reference=reference, families=families)
        tables, warnings = split_tables(over_splits), [*over_splits.warnings]
    else:
        comparison = compare(runs, reference=reference, families=families, baselines=gather_baselines(studies))
        tables = [TABLES[name](comparison) for name in (TABLES if table == "all" else [table])]
        warnings = [*comparison.warnings, *paper_warnings(comparison)]
    if table in ("all", "splits") and not complete:
        tables = [made for made in tables if made.rows]  # one family alone has nothing to be compared with
    elif table == "baselines" and not tables[0].rows:
        raise DataError("the study has no baselines on these data; sweep with some first", "baselines")
    first = runs[0]
    return StudyTables(first.data_name, first.metric, first.higher_is_better, tuple(tables), tuple(warnings))


def written(found: StudyTables, form: str, width: int | None = None) -> str:
    """Tables in one of the forms that people read, or the last one as CSV.

    Args:
        found: the tables. As CSV the last one is written: the only one, or what the others of a comparison over
            splits are made of.
        form: `text`, `csv`, `markdown` or `latex`.
        width: the columns of the terminal, for text.
    """
    tables, warnings = found.tables, found.warnings
    if form == "csv":
        return render.to_csv(tables[-1], signed=tables[-1].name != "runs")  # a run says itself what made it
    if form == "markdown":
        return render.to_markdown(tables, warnings)
    if form == "latex":
        return render.to_latex(tables, warnings)
    return render.to_text(tables, warnings, width)


def check_csv(table: str) -> None:
    """Raise unless a table can be written as CSV."""
    if table == "all":
        raise UsageError(f"a CSV file holds one {{field}}: {', '.join(NAMES[1:])}", field="table", suggest="results")
