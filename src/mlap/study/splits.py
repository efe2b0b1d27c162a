"""The same networks on several splits of a data set, compared over the splits.

All seeds of a network share one split, and with it the sampling error of its test graphs, which no number of seeds
makes smaller. Here every split gives each network one score, the mean over its seeds, and two networks are compared by
the differences of these scores, split by split, with the Wilcoxon signed-rank test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlap.errors import DataError, UsageError
from mlap.statistics import Summary, signed_rank, summarise
from mlap.study.compare import (
    Cell,
    alone_warnings,
    cells_of,
    check_architectures,
    corrected_p,
    opponents,
    runs_on,
    select,
    settings_of,
    swept_of,
)
from mlap.study.store import RunRecord


@dataclass(frozen=True)
class SplitCell:
    """A cell on every split.

    Args:
        cells: its runs on each split, in the order of `SplitComparison.splits`.
    """

    cells: tuple[Cell, ...]

    @property
    def architecture(self) -> str:
        """How levels become one vector per graph."""
        return self.cells[0].architecture

    @property
    def norm(self) -> str:
        """The normalisation."""
        return self.cells[0].norm

    @property
    def layers(self) -> int:
        """The depth."""
        return self.cells[0].layers

    @property
    def others(self) -> tuple[Any, ...]:
        """The values of the other recipe fields that the study sweeps."""
        return self.cells[0].others

    @property
    def valid(self) -> Summary:
        """Mean and standard error, over splits, of the mean validation scores."""
        return summarise([cell.valid.mean for cell in self.cells])

    @property
    def tests(self) -> tuple[float, ...]:
        """The mean test score on each split; empty if there is none on one of them."""
        scores = [cell.test.mean for cell in self.cells if cell.test is not None]
        return tuple(scores) if len(scores) == len(self.cells) else ()

    @property
    def test(self) -> Summary | None:
        """Their mean and standard error over splits."""
        return summarise(self.tests) if self.tests else None


@dataclass(frozen=True)
class SplitContrast:
    """The selected cells of two families, compared split by split.

    Args:
        first: the reference family.
        second: the other one.
        differences: by how much the first is better in test score, on each split; empty if one has no test scores.
        p_holm: `p`, corrected by Holm's method for all comparisons with the same reference.
    """

    first: str
    second: str
    differences: tuple[float, ...]
    p_holm: float | None = None

    @property
    def p(self) -> float | None:
        """Two-sided, of the Wilcoxon signed-rank test."""
        return signed_rank(self.differences) if self.differences else None


@dataclass(frozen=True)
class SplitComparison:
    """A study on several splits of a data set, compared.

    Args:
        data_name: the data set's name.
        metric: how scores are measured.
        higher_is_better: whether a higher score is a better one.
        splits: the fingerprint of the data set with each split.
        swept: the recipe fields with more than one value, apart from norm, architecture, depth and seed.
        selected: family → its cell with the best mean validation score over all splits.
        contrasts: the reference family against each other one.
        warnings: what a reader should know before concluding anything.
    """

    data_name: str
    metric: str
    higher_is_better: bool
    splits: tuple[str, ...]
    swept: tuple[str, ...]
    selected: Mapping[str, SplitCell]
    contrasts: tuple[SplitContrast, ...]
    warnings: tuple[str, ...]


def compare_splits(
    records: Iterable[RunRecord],
    *,
    data: str | None = None,
    reference: str | None = None,
    families: Mapping[str, str] | None = None,
) -> SplitComparison:
    """Compare the runs of a study over several splits of one data set.

    Families are selected as `mlap.study.compare.compare` does, by the mean over splits of their mean validation scores,
    among the cells that have a finished run on every split. The arguments are the same.
    """
    runs = runs_on(records, data, several=True)
    check_architectures(families, runs)
    by_split: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_split.setdefault(run.fingerprint, []).append(run)
    if len(by_split) == 1:
        raise UsageError(
            f"the study has one split of {runs[0].data_name} only; a sweep with another seed of the split adds one",
            field="studies",
        )
    settings = settings_of(runs)
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for on_split in by_split.values():
        for cell in cells_of(on_split, settings):
            found.setdefault((cell.norm, cell.architecture, cell.layers, cell.others), []).append(cell)
    complete = [SplitCell(tuple(cells)) for cells in found.values() if len(cells) == len(by_split)]
    if not complete:
        raise DataError(f"no network has a finished run on each of the {len(by_split)} splits of {runs[0].data_name}")

    higher_is_better = runs[0].higher_is_better
    selected = select(complete, higher_is_better, families)
    sign = 1 if higher_is_better else -1
    contrasts = []
    for first, second in opponents(selected, reference):
        ours, theirs = selected[first].tests, selected[second].tests
        pairs = zip(ours, theirs, strict=True) if ours and theirs else ()
        contrasts.append(SplitContrast(first, second, tuple(sign * (a - b) for a, b in pairs)))
    corrected = corrected_p([contrast.p for contrast in contrasts])
    contrasts = [replace(contrast, p_holm=p) for contrast, p in zip(contrasts, corrected, strict=True)]
    warnings = alone_warnings(selected, reference)
    if left_out := len(found) - len(complete):
        warnings.append(f"{left_out} of {len(found)} networks have no finished run on some split: they are left out")
    seeds = {len(cell.seeds) for chosen in selected.values() for cell in chosen.cells}
    if len(seeds) > 1:
        warnings.append(f"the selected networks have unequal seeds, {min(seeds)} to {max(seeds)} a split")
    return SplitComparison(
        runs[0].data_name,
        runs[0].metric,
        higher_is_better,
        tuple(by_split),
        swept_of(settings),
        selected,
        tuple(contrasts),
        tuple(warnings),
    )
