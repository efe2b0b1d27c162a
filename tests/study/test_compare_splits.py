from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from run_records import cell
from scipy import stats

from mlap.errors import DataError, UsageError
from mlap.study import RunRecord
from mlap.study.splits import compare_splits

#: on validation the deep mlap is best over all splits, though not on the first; on test it is the worse one
VALID = {("naive", 1): [0.70, 0.60, 0.65], ("mlap-sum", 1): [0.90, 0.50, 0.50], ("mlap-sum", 2): [0.70, 0.75, 0.65]}
TEST = {("naive", 1): [0.50, 0.52, 0.60], ("mlap-sum", 1): [0.99, 0.99, 0.99], ("mlap-sum", 2): [0.60, 0.54, 0.59]}


def on_split(number: int, names: Sequence[tuple[str, int]] = tuple(VALID)) -> list[RunRecord]:
    """Two seeds of every network on a split, around its scores above."""
    runs: list[RunRecord] = []
    for name in names:
        valid, test = ([mean[name][number] + shift for shift in (-0.01, 0.01)] for mean in (VALID, TEST))
        runs += cell(name[0], valid, test, layers=name[1], fingerprint=f"{number}" * 64)
    return runs


RUNS = [run for number in range(3) for run in on_split(number)]


def test_selection_is_by_validation_over_all_splits() -> None:
    comparison = compare_splits(RUNS)
    chosen = {family: (model.architecture, model.layers) for family, model in comparison.selected.items()}
    assert chosen == {"naive": ("naive", 1), "mlap": ("mlap-sum", 2)}
    lower = [dataclasses.replace(run, higher_is_better=False, metric="error_rate") for run in RUNS]
    assert compare_splits(lower).selected["mlap"].layers == 1
    assert comparison.warnings == ()


def test_known_numbers() -> None:
    comparison = compare_splits(RUNS)
    assert comparison.splits == ("0" * 64, "1" * 64, "2" * 64)
    mlap = comparison.selected["mlap"]
    assert mlap.tests == pytest.approx((0.60, 0.54, 0.59))
    assert mlap.test is not None
    assert (mlap.test.n, mlap.test.mean) == (3, pytest.approx(1.73 / 3))
    assert mlap.valid.mean == pytest.approx(0.70)
    (contrast,) = comparison.contrasts
    assert (contrast.first, contrast.second) == ("mlap", "naive")
    assert contrast.differences == pytest.approx((0.10, 0.02, -0.01))
    assert contrast.p == stats.wilcoxon(contrast.differences, method="exact").pvalue
    assert contrast.p_holm == contrast.p  # the only comparison
    (turned,) = compare_splits(RUNS, reference="naive").contrasts
    assert (turned.differences, turned.p) == (tuple(-by for by in contrast.differences), contrast.p)


def test_several_comparisons_are_corrected_together() -> None:
    runs = [
        run
        for split in range(6)
        for name, score in (("mlap-sum", 0.9), ("naive", 0.5), ("jk-sum", 0.8 if split else 0.95))
        for run in cell(name, [score + split / 100], [score + split / 100], fingerprint=f"{split}" * 64)
    ]
    found = {contrast.second: contrast for contrast in compare_splits(runs).contrasts}
    assert found["naive"].p == pytest.approx(2 / 2**6)
    assert found["naive"].p_holm == pytest.approx(4 / 2**6)
    assert found["jk"].p_holm == max(found["naive"].p_holm, found["jk"].p)


def test_where_a_lower_score_is_better_a_difference_is_turned_round() -> None:
    names = [("naive", 1), ("mlap-sum", 2)]
    runs = [run for number in range(3) for run in on_split(number, names)]
    (higher,) = compare_splits(runs).contrasts
    (lower,) = compare_splits([dataclasses.replace(run, higher_is_better=False) for run in runs]).contrasts
    assert lower.differences == tuple(-by for by in higher.differences)


def test_a_network_that_lacks_a_split_is_left_out() -> None:
    runs = [*on_split(0), *on_split(1), *on_split(2, [("naive", 1), ("mlap-sum", 1)])]
    comparison = compare_splits(runs)
    assert comparison.selected["mlap"].layers == 1
    assert comparison.warnings == ("1 of 3 networks have no finished run on some split: they are left out",)
    with pytest.raises(DataError, match="no network has a finished run on each of the 2 splits"):
        compare_splits([*on_split(0, [("naive", 1)]), *on_split(1, [("mlap-sum", 1)])])


def test_unequal_seeds_are_said() -> None:
    assert compare_splits(RUNS[:-1]).warnings == ("the selected networks have unequal seeds, 1 to 2 a split",)


def test_without_test_scores_there_is_no_comparison() -> None:
    runs = [dataclasses.replace(run, test_score=None) if run.architecture == "naive" else run for run in RUNS]
    comparison = compare_splits(runs)
    assert comparison.selected["naive"].test is None
    (contrast,) = comparison.contrasts
    assert (contrast.differences, contrast.p) == ((), None)


def test_one_split_or_one_family_alone() -> None:
    with pytest.raises(UsageError, match="one split of mine only"):
        compare_splits(on_split(0))
    with pytest.raises(UsageError, match="one split of mine only"):
        compare_splits(RUNS, data="1111")
    naive = [run for run in RUNS if run.architecture == "naive"]
    comparison = compare_splits(naive)
    assert comparison.contrasts == ()
    assert comparison.warnings == ("the study has runs of one family only, naive: there is nothing to compare it with",)
