"""Tables of networks that were trained on several splits of a data set."""

from __future__ import annotations

from mlap.report.render import SCORE, Column, Kind, P, Table
from mlap.report.tables import HOLM, WHERE, columns_of, join_of
from mlap.report.words import metric_words
from mlap.statistics import summarise
from mlap.study.splits import SplitComparison

#: Fingerprints are told apart by their beginnings.
_SHORT = 12
_OF = Kind(lambda pair: f"{pair[0]} of {pair[1]}", {"": lambda pair: pair[0]})


def split_tables(comparison: SplitComparison) -> list[Table]:
    """The selected model of each family over all splits, them compared, and their scores on each split."""
    return [_results(comparison), _significance(comparison), _splits(comparison)]


def _results(comparison: SplitComparison) -> Table:
    rows = tuple(
        (
            *(family, join_of(model.architecture, family), model.layers, model.norm, *model.others),
            *(len(model.cells), model.valid, model.test),
        )
        for family, model in comparison.selected.items()
    )
    columns = (
        *(Column("family", "Family"), Column("join", "Join"), *WHERE[1:], *columns_of(comparison.swept)),
        *(Column("splits", "Splits"), Column("valid", "Validation", SCORE), Column("test", "Test", SCORE)),
    )
    caption = (
        f"Selected models on {comparison.data_name} ({metric_words(comparison)}; mean ± standard error over splits)"
    )
    return Table("results", caption, columns, rows)


def _significance(comparison: SplitComparison) -> Table:
    rows = []
    for contrast in comparison.contrasts:
        by = contrast.differences
        won = (sum(difference > 0 for difference in by), len(by)) if by else None
        mean = summarise(by) if by else None
        rows.append((f"{contrast.first} vs {contrast.second}", won, mean, contrast.p, contrast.p_holm))
    columns = (
        *(Column("comparison", "Comparison"), Column("better_on", "Better on", _OF)),
        *(Column("by", "Better by", SCORE), Column("p_two_sided", "p 2-sided", P)),
        Column("p_holm", "p Holm", P),
    )
    notes = ("Splits of one set share graphs, so they are not independent: p is somewhat too small.", HOLM)
    caption = f"Wilcoxon signed-rank test of the selected models' test scores over splits of {comparison.data_name}"
    return Table("significance", caption, columns, tuple(rows), notes)


def _splits(comparison: SplitComparison) -> Table:
    rows = tuple(
        (fingerprint[:_SHORT], *(model.cells[index].test for model in comparison.selected.values()))
        for index, fingerprint in enumerate(comparison.splits)
    )
    columns = (Column("split", "Split"), *(Column(family, family, SCORE) for family in comparison.selected))
    caption = f"Test scores on each split of {comparison.data_name} (mean ± standard error over seeds)"
    notes = ("A split goes by the beginning of its data set's fingerprint.",)
    return Table("splits", caption, columns, rows, notes)
