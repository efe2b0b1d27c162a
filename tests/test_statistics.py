from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mlap.errors import DataError
from mlap.paper import PROTOCOLS
from mlap.report.published import Below, PublishedSignificance, published_significance
from mlap.statistics import (
    EXACT,
    EXACT_PAIRS,
    MannWhitney,
    Summary,
    bonferroni,
    holm,
    mann_whitney,
    signed_rank,
    smallest_p,
    summarise,
)

PUBLISHED = [(dataset, row) for dataset in PROTOCOLS for row in published_significance(dataset) or ()]

# Few different values, so that ties are the rule; and few of them, so that all divisions can be counted.
small = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=5)
large = st.lists(st.integers(0, 12).map(float), min_size=EXACT + 1, max_size=40)


def pairs_won(first: Sequence[float], second: Sequence[float]) -> float:
    return sum((a > b) + 0.5 * (a == b) for a in first for b in second)


def all_divisions(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """U of every way to divide the scores into two samples of the given sizes."""
    scores = [*first, *second]
    outcomes = []
    for chosen in itertools.combinations(range(len(scores)), len(first)):
        rest = [index for index in range(len(scores)) if index not in chosen]
        outcomes.append(pairs_won([scores[i] for i in chosen], [scores[i] for i in rest]))
    return outcomes


@given(small, small)
def test_small_samples_against_counting_all_divisions(first: list[float], second: list[float]) -> None:
    outcome = mann_whitney(first, second)
    u, possible = pairs_won(first, second), all_divisions(first, second)
    assert outcome.u == u
    above = u >= len(first) * len(second) / 2
    p = sum(other >= u if above else other <= u for other in possible) / len(possible)
    assert outcome.p_one_sided == pytest.approx(p)
    assert outcome.p_two_sided == pytest.approx(min(1, 2 * p))
    # z is U in standard deviations of its own distribution, which is known here in full.
    deviation = statistics.pstdev(possible)
    assert outcome.z == pytest.approx((u - statistics.mean(possible)) / deviation if deviation else 0, abs=1e-9)


@given(large, large)
def test_large_samples_against_scipy(first: list[float], second: list[float]) -> None:
    outcome = mann_whitney(first, second)
    assert outcome.u == pairs_won(first, second)
    if len({*first, *second}) == 1:
        assert (outcome.z, outcome.p_one_sided, outcome.p_two_sided) == (0, 1, 1)
        return
    side = "greater" if outcome.u >= len(first) * len(second) / 2 else "less"
    for alternative, p in ((side, outcome.p_one_sided), ("two-sided", outcome.p_two_sided)):
        expected = stats.mannwhitneyu(first, second, alternative=alternative, method="asymptotic")
        assert p == pytest.approx(min(1, expected.pvalue))
    uncorrected = stats.mannwhitneyu(first, second, alternative=side, method="asymptotic", use_continuity=False)
    assert stats.norm.sf(abs(outcome.z)) == pytest.approx(uncorrected.pvalue)


@given(st.permutations(range(2 * EXACT)), st.integers(1, EXACT))
def test_small_samples_without_ties_against_scipy(scores: list[int], size: int) -> None:
    first, second = scores[:size], scores[EXACT:]
    outcome = mann_whitney(first, second)
    expected = stats.mannwhitneyu(first, second, alternative="two-sided", method="exact")
    assert outcome.u == expected.statistic
    assert outcome.p_two_sided == pytest.approx(expected.pvalue)


@given(st.one_of(small, large), st.one_of(small, large))
def test_the_samples_exchanged(first: list[float], second: list[float]) -> None:
    one, other = mann_whitney(first, second), mann_whitney(second, first)
    assert one.u + other.u == len(first) * len(second)
    assert one.z == pytest.approx(-other.z)
    assert (one.r > 0) == (one.u > other.u)
    if one.u != other.u:  # else both are "above or at" the expectation, and a tied distribution need not be symmetric
        assert one.p_one_sided == pytest.approx(other.p_one_sided)


@given(large, large)
def test_a_lower_score_may_be_the_better_one(first: list[float], second: list[float]) -> None:
    lower = mann_whitney(first, second, higher_is_better=False)
    assert lower == mann_whitney([-score for score in first], [-score for score in second])
    assert lower.u == pytest.approx(pairs_won(second, first))


def untied(u: int, first: int, second: int) -> tuple[list[float], list[float]]:
    """Samples without ties of which the first wins `u` pairs."""
    wins, rest = divmod(u, first)
    # The second sample is 0, 1, 2, …; a score of k - 1/2 wins k pairs.
    a = [wins - 0.5 + (i < rest) + i * 1e-6 for i in range(first)]
    return a, [float(i) for i in range(second)]


def rounds_to(value: float, printed: float, digits: int = 3) -> bool:
    return value < printed if isinstance(printed, Below) else abs(value - printed) <= 0.5 * 10**-digits + 1e-9


def spread(row: PublishedSignificance) -> float:
    """The standard deviation of U without ties."""
    return math.sqrt((row.n / 2) ** 2 * (row.n + 1) / 12)


def outcomes_with_printed_r(row: PublishedSignificance) -> list[MannWhitney]:
    """The outcomes without ties whose effect size is the printed one."""
    n = row.n // 2
    near = round(n * n / 2 + row.z * spread(row))
    outcomes = [mann_whitney(*untied(u, n, n)) for u in range(near - 3, near + 4)]
    return [outcome for outcome in outcomes if rounds_to(outcome.r, row.r)]


@pytest.mark.parametrize(("dataset", "row"), PUBLISHED)
def test_the_papers_printed_figures(dataset: str, row: PublishedSignificance) -> None:
    assert row.n == 2 * PROTOCOLS[dataset].seeds
    outcomes = outcomes_with_printed_r(row)
    if (dataset, row.second) != ("synthetic", "jk"):
        assert [rounds_to(outcome.p_one_sided, row.p) for outcome in outcomes] == [True]
        return
    # No whole number of pairs has this r: there were ties (error rates of 900 graphs). Its z cannot have been
    # corrected for them, because p would then be above the printed one even for the largest z that rounds to this r.
    assert outcomes == []
    assert stats.norm.sf((row.r + 0.0005) * math.sqrt(row.n) - 0.5 / spread(row)) > row.p + 0.0005
    assert stats.norm.sf(row.z) == pytest.approx(row.p, abs=0.0015)


def test_the_papers_p_values_are_corrected_for_continuity() -> None:
    exact = [(row, outcome) for _, row in PUBLISHED for outcome in outcomes_with_printed_r(row)]
    assert len(exact) == 7
    assert sum(rounds_to(outcome.p_one_sided, row.p) for row, outcome in exact) == 7
    assert sum(rounds_to(stats.norm.sf(abs(outcome.z)), row.p) for row, outcome in exact) == 3


@pytest.mark.parametrize(("dataset", "row"), PUBLISHED)
def test_the_papers_p_values_are_one_sided(dataset: str, row: PublishedSignificance) -> None:
    p = stats.norm.sf(abs(row.z))
    assert row.p_two_sided == pytest.approx(2 * p)
    if isinstance(row.p, Below):
        assert p < row.p
    else:  # what remains is the continuity correction, largest for the ten seeds of ogbg-ppa
        assert row.p == pytest.approx(p, abs=0.0015 + 0.4 * 0.5 / spread(row))
        assert row.p < 0.6 * row.p_two_sided


def test_two_sided_two_of_the_papers_five_significant_results_are_not() -> None:
    significant = [row for _, row in PUBLISHED if row.p < 0.05]
    lost = sorted(round(row.p_two_sided, 3) for row in significant if row.p_two_sided >= 0.05)
    assert (len(significant), lost) == (5, [0.076, 0.080])


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_mean_and_standard_error(scores: list[float]) -> None:
    summary = summarise(scores)
    assert summary.n == len(scores)
    assert summary.mean == pytest.approx(np.mean(scores))
    assert summary.standard_error == pytest.approx(stats.sem(scores), abs=1e-12)
    assert summarise(scores[::-1]).mean == summary.mean


def test_a_single_score_has_no_standard_error() -> None:
    assert summarise([0.25]) == Summary(1, 0.25, None)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (3, 3), (4, 5)])
def test_the_smallest_p(sizes: tuple[int, int]) -> None:
    first, second = ([float(i) for i in range(size)] for size in sizes)
    outcome = mann_whitney([score + 100 for score in first], second)
    assert outcome.p_one_sided == pytest.approx(smallest_p(*sizes))
    assert outcome.p_one_sided == pytest.approx(1 / len(all_divisions(first, second)))


def slow_holm(p_values: list[float]) -> list[float]:
    """By definition: a hypothesis is rejected at level a if it and all smaller ones pass a / m, a / (m - 1) and so on.

    So the corrected p is the smallest level at which it is rejected, which is one of these products.
    """
    m = len(p_values)
    order = sorted(range(m), key=lambda index: p_values[index])

    def rejected(index: int, level: float) -> bool:
        before = order[: order.index(index) + 1]
        return all((m - place) * p_values[other] <= level for place, other in enumerate(before))

    levels = sorted({min(1.0, k * p) for k in range(1, m + 1) for p in p_values} | {1.0})
    return [next((level for level in levels if rejected(index, level)), 1.0) for index in range(m)]


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_against_its_definition(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert corrected == slow_holm(p_values)
    assert all(p <= least <= most for p, least, most in zip(p_values, corrected, bonferroni(p_values), strict=True))


def test_holm_of_known_values() -> None:
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_bonferroni() -> None:
    assert bonferroni([0.01, 0.2, 0.5]) == pytest.approx([0.03, 0.6, 1.0])
    assert bonferroni([]) == []


@pytest.mark.parametrize("bad", [[], [math.nan], [0.5, math.inf]])
def test_scores_must_exist_and_be_numbers(bad: list[float]) -> None:
    with pytest.raises(DataError, match=r"no scores|must be finite"):
        summarise(bad)
    with pytest.raises(DataError, match=r"no scores|must be finite"):
        mann_whitney([1.0], bad)


@given(st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=8))
def test_signed_ranks_against_counting_all_signs(differences: list[float]) -> None:
    """Every sign of every difference that is not zero is equally likely; the sum of positive ranks is the statistic."""
    sizes = [abs(difference) for difference in differences if difference]
    ranks = [sum(other < size for other in sizes) + (sizes.count(size) + 1) / 2 for size in sizes]

    def positive(signs: Sequence[bool]) -> float:
        return sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)

    observed = positive([difference > 0 for difference in differences if difference])
    possible = [positive(signs) for signs in itertools.product((False, True), repeat=len(sizes))]
    above, below = sum(other >= observed for other in possible), sum(other <= observed for other in possible)
    assert signed_rank(differences) == pytest.approx(min(1, 2 * min(above, below) / len(possible)))


@pytest.mark.parametrize("n", [9, EXACT_PAIRS, EXACT_PAIRS + 1, 40])
def test_signed_ranks_against_scipy(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.3, 1, n)
    method = "exact" if n <= EXACT_PAIRS else "asymptotic"
    expected = stats.wilcoxon(differences, method=method, correction=n > EXACT_PAIRS).pvalue
    assert signed_rank(differences.tolist()) == pytest.approx(expected)
    exact = stats.wilcoxon(differences, method="exact").pvalue
    assert signed_rank(differences.tolist()) == pytest.approx(exact, abs=0.01)


def test_signed_ranks_of_nothing() -> None:
    assert signed_rank([0.0, 0.0]) == 1
    with pytest.raises(DataError, match="no scores"):
        signed_rank([])


@pytest.mark.parametrize(("first", "second"), [(3, 4), (30, 25)])
def test_scores_that_are_all_equal_do_not_differ(first: int, second: int) -> None:
    found = mann_whitney([0.5] * first, [0.5] * second)
    assert (found.u, found.z) == (first * second / 2, 0.0)
    assert (found.p_one_sided, found.p_two_sided) == (1.0, 1.0)
