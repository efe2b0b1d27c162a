"""The paper's tables for any study: results, significance, summary and full, the paper's numbers beside ours.

The verdict on a score takes the difference of the two means in units of its own standard error,
`z = (ours − paper) / sqrt(ours.standard_error² + paper.standard_error²)`: below 2 in size the scores agree, else ours
is better or worse. With few seeds our standard error is itself uncertain; with fewer than three there is no verdict.
Nor is there one on networks that were trained by another recipe than the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlap.paper import PROTOCOLS
from mlap.report.published import (
    PublishedValidation,
    published_significance,
    published_test,
    published_validation,
)
from mlap.report.render import EFFECT, NORM, SCORE, SIZES, Column, Kind, P, Table
from mlap.report.words import metric_words
from mlap.statistics import Summary
from mlap.study.compare import Cell, Comparison, best
from mlap.study.store import RunRecord
from mlap.training import Recipe

#: of two, the standard error says next to nothing
SEEDS_TO_JUDGE = 3

_VERDICT = (
    "Verdict: agrees if the means differ by less than 2 standard errors of their difference, "
    "which are themselves uncertain with few seeds."
)
HOLM = "Holm: the two-sided p, corrected for the number of comparisons in this table."
_INCOMPLETE = "Incomplete: the study lacks the network that the paper selected, so there is nothing to judge."

_FOUR_DIGITS, _ONE_DIGIT, _THOUSANDS = (
    Kind(form.format, {"": lambda value: value}) for form in ("{:.4f}", "{:.1f}", "{:,}")
)


def verdict(ours: Summary | None, paper: Summary | None, higher_is_better: bool) -> str | None:
    """Whether our score `agrees` with the paper's, is `better` or `worse`, or has `too few seeds` to tell."""
    if ours is None or paper is None:
        return None
    if ours.n < SEEDS_TO_JUDGE or ours.standard_error is None or paper.standard_error is None:
        return "too few seeds"
    difference = (ours.mean - paper.mean) * (1 if higher_is_better else -1)
    if abs(difference) < 2 * math.hypot(ours.standard_error, paper.standard_error) or difference == 0:
        return "agrees"
    return "better" if difference > 0 else "worse"


def _judge(
    comparison: Comparison, ours: Summary | None, paper: Summary | None, selected: tuple[str, str, int] | None = None
) -> str | None:
    """The verdict on a score of a study.

    Where the paper's score is of a network that it `selected` (normalisation, architecture, depth), the study must have
    had the choice: else there is nothing to conclude from its own selection.
    """
    if ours is not None and paper is not None and paper_warnings(comparison):
        return "other recipe"
    if selected and selected not in {(cell.norm, cell.architecture, cell.layers) for cell in comparison.cells}:
        return "incomplete"
    return verdict(ours, paper, comparison.higher_is_better)


def results_table(comparison: Comparison) -> Table:
    """The selected model of each family (the paper's table 1)."""
    tests = {row.family: row for row in published_test(comparison.data_name) or ()}
    validation = _published(comparison)
    rows = []
    for family, cell in comparison.selected.items():
        paper = tests.get(family)
        choice = (paper.norm, paper.architecture, paper.layers) if paper else None
        judged = _judge(comparison, cell.test, paper.test if paper else None, choice)
        rows.append(
            (
                *(family, "ours", join_of(cell.architecture, family), cell.layers, cell.norm, *cell.others),
                *(cell.valid.n, cell.valid, cell.test, judged),
            )
        )
        if paper:
            valid = validation[paper.norm, paper.architecture, paper.layers].valid
            others = [getattr(Recipe.paper(comparison.data_name), name) for name in comparison.swept]
            rows.append(
                (
                    *(family, "paper", join_of(paper.architecture, family), paper.layers, paper.norm, *others),
                    *(paper.test.n, valid, paper.test, None),
                )
            )
    columns = (
        *(Column("family", "Family"), Column("source", "From"), Column("join", "Join"), *WHERE[1:]),
        *columns_of(comparison.swept),
        *(Column("seeds", "Seeds"), Column("valid", "Validation", SCORE), Column("test", "Test", SCORE)),
        Column("verdict", "Verdict"),
    )
    notes = _on_verdicts(rows)
    table = Table("results", f"Selected models on {_scores(comparison)}", columns, tuple(rows), notes)
    return table if tests else _without(table, "source", "verdict")


def significance_table(comparison: Comparison) -> Table:
    """The reference family against the others (the paper's table 2)."""
    published = {(row.first, row.second): row for row in published_significance(comparison.data_name) or ()}
    rows = []
    for contrast in comparison.contrasts:
        outcome, paper = contrast.outcome, published.get((contrast.first, contrast.second))
        ours = (outcome.p_one_sided, outcome.p_two_sided, contrast.p_holm, outcome.r) if outcome else (None,) * 4
        theirs = (paper.p, paper.p_two_sided, paper.r) if paper else (None, None, None)
        sizes = (outcome.first, outcome.second) if outcome else None
        rows.append((f"{contrast.first} vs {contrast.second}", sizes, *ours, *theirs))
    columns = (
        *(Column("comparison", "Comparison"), Column("seeds", "Seeds", SIZES)),
        *(Column("p_one_sided", "p 1-sided", P), Column("p_two_sided", "p 2-sided", P)),
        *(Column("p_holm", "p Holm", P), Column("r", "r", EFFECT)),
        *(Column("paper_p_one_sided", "Paper 1-sided", P), Column("paper_p_two_sided", "Paper 2-sided", P)),
        Column("paper_r", "Paper r", EFFECT),
    )
    notes = [
        "The effect size r is positive where the first is better; the one-sided p is of the side that r shows.",
        HOLM,
    ]
    if published:
        notes.append("The paper prints one-sided p only; its two-sided ones are recomputed from its r.")
    caption = f"Mann–Whitney U test of the selected models' test scores on {comparison.data_name}"
    table = Table("significance", caption, columns, tuple(rows), tuple(notes))
    return table if published else _without(table, "paper_p_one_sided", "paper_p_two_sided", "paper_r")


def summary_table(comparison: Comparison) -> Table:
    """The best depth of each architecture, with and without normalisation (the paper's table of appendix A)."""
    better = comparison.higher_is_better
    groups, published = _grouped(comparison.cells), _grouped(tuple(_published(comparison).values()))
    bests = {group: best(cells, better) for group, cells in groups.items()}
    top = _best_of_norm(comparison)
    rows = []
    for (norm, architecture), cell in bests.items():
        paper = best(published[norm, architecture], better) if (norm, architecture) in published else None
        theirs = (paper.layers, paper.valid) if paper else (None, None)
        choice = (norm, architecture, paper.layers) if paper else None
        judged = _judge(comparison, cell.valid, paper.valid if paper else None, choice)
        mark = "*" if cell is top[norm] else ""
        rows.append((architecture, cell.layers, norm, *cell.others, cell.valid.n, cell.valid, *theirs, judged, mark))
    columns = (
        *(*WHERE, *columns_of(comparison.swept), Column("seeds", "Seeds"), Column("valid", "Validation", SCORE)),
        *(Column("paper_layers", "Paper L"), Column("paper_valid", "Paper validation", SCORE)),
        *(Column("verdict", "Verdict"), Column("best", "Best")),
    )
    notes = (*_on_verdicts(rows), "Best: * is the best with its normalisation.")
    table = Table("summary", f"Best depth of each architecture on {_scores(comparison)}", columns, tuple(rows), notes)
    return _beside_paper(table, bool(published))


def full_table(comparison: Comparison) -> Table:
    """Every architecture, normalisation and depth (the paper's full tables of appendix A)."""
    better = comparison.higher_is_better
    published = _published(comparison)
    bests = {group: best(cells, better) for group, cells in _grouped(comparison.cells).items()}
    top = _best_of_norm(comparison)
    rows = []
    for cell in comparison.cells:
        paper = published.get((cell.norm, cell.architecture, cell.layers))
        theirs = paper.valid if paper else None
        mark = "**" if cell is top[cell.norm] else "*" if cell is bests[cell.norm, cell.architecture] else ""
        judged = _judge(comparison, cell.valid, theirs)
        rows.append(
            (
                *(cell.architecture, cell.layers, cell.norm, *cell.others),
                *(cell.valid.n, cell.valid, theirs, judged, mark),
            )
        )
    columns = (
        *(*WHERE, *columns_of(comparison.swept), Column("seeds", "Seeds"), Column("valid", "Validation", SCORE)),
        *(Column("paper_valid", "Paper validation", SCORE), Column("verdict", "Verdict"), Column("best", "Best")),
    )
    notes = (_VERDICT, "Best: * is the best of its architecture and normalisation, ** of its normalisation.")
    table = Table("full", f"Validation scores on {_scores(comparison)}", columns, tuple(rows), notes)
    return _beside_paper(table, bool(published))


def baselines_table(comparison: Comparison) -> Table:
    """The simple models below the best network."""
    network = comparison.best_network
    sign = 1 if comparison.higher_is_better else -1
    of_all = [network.test, *(cell.test for cell in comparison.baselines)]
    top = max((sign * test.mean for test in of_all if test is not None), default=None)

    def mark(test: Summary | None) -> str:
        return "*" if test is not None and sign * test.mean == top else ""

    rows: list[tuple[Any, ...]] = []
    if comparison.baselines:
        name = f"{network.architecture} L{network.layers}"
        rows.append((name, "network", network.valid.n, network.valid, network.test, None, None, mark(network.test)))
    for cell in comparison.baselines:
        ahead = sign * (cell.test.mean - network.test.mean) if cell.test and network.test else None
        p = None if cell.against is None else cell.against.p_two_sided
        rows.append((cell.name, "baseline", cell.valid.n, cell.valid, cell.test, ahead, p, mark(cell.test)))
    columns = (
        *(Column("model", "Model"), Column("kind", "Kind"), Column("seeds", "Seeds")),
        *(Column("valid", "Validation", SCORE), Column("test", "Test", SCORE)),
        *(Column("ahead", "Ahead by", _FOUR_DIGITS), Column("p_two_sided", "p 2-sided", P), Column("best", "Best")),
    )
    notes = (
        "The network is the one with the best validation score of all families.",
        "Ahead by: how much better than the network on test; p is of the Mann–Whitney U test over seeds.",
        "Best: * has the best test score.",
    )
    return Table("baselines", f"Baselines on {_scores(comparison)}", columns, tuple(rows), notes)


def runs_table(runs: Sequence[RunRecord], complete: bool = False) -> Table:
    """Every run of a study, finished or not.

    Args:
        runs: the runs.
        complete: for machines: also the data, recipe fields that are the same for all runs, and packages. As a CSV
            file it is what `mlap.study.gather` reads.
    """
    recipes = [run.recipe.as_dict() for run in runs]
    known = {*(column.key for column in WHERE), "seed"}
    others = [
        name for name in recipes[0] if name not in known and (complete or len({recipe[name] for recipe in recipes}) > 1)
    ]
    data = (Column("data_name", "Data"), Column("fingerprint", "Fingerprint"), Column("metric", "Metric"))
    columns = [
        *(*(data if complete else ()), *WHERE, *columns_of(others)),
        *(Column("seed", "Seed"), Column("status", "Status"), Column("best_epoch", "Best epoch")),
        *(Column("valid_score", "Validation", _FOUR_DIGITS), Column("test_score", "Test", _FOUR_DIGITS)),
        *(Column("num_parameters", "Parameters", _THOUSANDS), Column("seconds", "Seconds", _ONE_DIGIT)),
        *(Column("device", "Device"), Column("hash", "Run")),
    ]
    if complete:
        columns.append(Column("packages", "Packages"))
    if any(run.error for run in runs):
        columns.append(Column("error", "Error"))
    rows = []
    for run, recipe in zip(runs, recipes, strict=True):
        packages = ", ".join(f"{name} {version}" for name, version in (run.versions or {}).items())
        values = {**vars(run), **recipe, "packages": packages or None}
        rows.append(tuple(values[column.key] for column in columns))
    return Table("runs", f"All {len(runs):,} runs", tuple(columns), tuple(rows))


#: name → the function that makes the table
TABLES: dict[str, Callable[[Comparison], Table]] = {
    "results": results_table,
    "significance": significance_table,
    "summary": summary_table,
    "full": full_table,
    "baselines": baselines_table,
}


def paper_warnings(comparison: Comparison) -> list[str]:
    """Where a study on one of the paper's data sets does not follow the paper's protocol."""
    if comparison.data_name not in PROTOCOLS:
        return []
    paper = Recipe.paper(comparison.data_name).as_dict()
    differing = [
        f"{name} {', '.join(map(str, values))} (paper {paper[name]})"
        for name, values in comparison.settings.items()
        if name not in ("architecture", "norm", "layers") and values != (paper[name],)
    ]
    if not differing:
        return []
    return [f"the paper's numbers were made with another recipe; here it is {'; '.join(differing)}"]


#: what tells cells apart
WHERE = (Column("architecture", "Architecture"), Column("layers", "L"), Column("norm", "GN", NORM))


def _published(comparison: Comparison) -> dict[tuple[str, str, int], PublishedValidation]:
    cells = published_validation(comparison.data_name) or ()
    return {(cell.norm, cell.architecture, cell.layers): cell for cell in cells}


def _grouped(cells: Sequence[Any]) -> dict[tuple[str, str], list[Any]]:
    groups: dict[tuple[str, str], list[Any]] = {}
    for cell in cells:
        groups.setdefault((cell.norm, cell.architecture), []).append(cell)
    return groups


def _best_of_norm(comparison: Comparison) -> Mapping[str, Cell]:
    norms = dict.fromkeys(cell.norm for cell in comparison.cells)
    return {
        norm: best((cell for cell in comparison.cells if cell.norm == norm), comparison.higher_is_better)
        for norm in norms
    }


def join_of(architecture: str, family: str) -> str | None:
    """What an architecture is called within its family."""
    return architecture.removeprefix(family).removeprefix("-") or None


def columns_of(fields: Sequence[str]) -> tuple[Column, ...]:
    """A column for each field of a recipe."""
    return tuple(Column(name, name) for name in fields)


def _scores(comparison: Comparison) -> str:
    paper = f"; paper: {PROTOCOLS[comparison.data_name].seeds} seeds" if comparison.data_name in PROTOCOLS else ""
    return f"{comparison.data_name} ({metric_words(comparison)}; mean ± standard error over seeds{paper})"


def _beside_paper(table: Table, has_paper: bool) -> Table:
    return table if has_paper else _without(table, "paper_layers", "paper_valid", "verdict")


def _on_verdicts(rows: Sequence[Sequence[Any]]) -> tuple[str, ...]:
    """What the verdicts of these rows mean."""
    return (_VERDICT, _INCOMPLETE) if any("incomplete" in row for row in rows) else (_VERDICT,)


def _without(table: Table, *keys: str) -> Table:
    """The table without the columns, and the notes, that need the paper's numbers."""
    kept = [index for index, column in enumerate(table.columns) if column.key not in keys]
    return Table(
        table.name,
        table.caption,
        tuple(table.columns[index] for index in kept),
        tuple(tuple(row[index] for index in kept) for row in table.rows),
        tuple(note for note in table.notes if note not in (_VERDICT, _INCOMPLETE)),
    )
