"""The paper's statistics: mean and standard error over seeds, and the Mann–Whitney U test with its effect size.

And what the paper has no use for: the Wilcoxon signed-rank test of paired scores, for networks on several splits, and
corrections for making several comparisons.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mlap.errors import DataError

#: Up to this many scores on each side p-values are exact: at most 12,870 divisions into two samples are counted.
EXACT = 8
#: Up to this many pairs p-values of the signed-rank test are exact: at most 32,768 choices of signs are counted.
EXACT_PAIRS = 15


@dataclass(frozen=True)
class Summary:
    """Scores over seeds in short.

    Args:
        n: the number of scores.
        mean: their mean.
        standard_error: the unbiased standard deviation divided by sqrt(n); `None` for a single score.
    """

    n: int
    mean: float
    standard_error: float | None


@dataclass(frozen=True)
class MannWhitney:
    """The outcome of a Mann–Whitney U test of a first sample against a second one.

    Args:
        first, second: the sizes of the samples.
        u: the pairs in which the first is better, ties counted as halves.
        z: `u` standardised by the normal approximation.
        p_one_sided: of the side on which the difference lies, as published: the first is better where `u` is
            above its expectation, the second where it is below.
        p_two_sided: twice that, at most 1.
    """

    first: int
    second: int
    u: float
    z: float
    p_one_sided: float
    p_two_sided: float

    @property
    def r(self) -> float:
        """The effect size `z / sqrt(N)`, N all samples; positive if the first is better."""
        return self.z / math.sqrt(self.first + self.second)


def summarise(scores: Sequence[float]) -> Summary:
    """The mean and standard error of scores.

    >>> summarise([0.25, 0.75])
    Summary(n=2, mean=0.5, standard_error=0.25)
    """
    values = _finite(scores)
    # fsum, because the order of the seeds must not decide which of two equal means is the better one.
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Summary(1, mean, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Summary(len(values), mean, math.sqrt(variance / len(values)))


def mann_whitney(first: Sequence[float], second: Sequence[float], *, higher_is_better: bool = True) -> MannWhitney:
    """Test whether the scores of one of two samples tend to be better.

    The paper does not say how its p-values were made, but its effect sizes tell: z is not corrected for continuity
    (only then do its r stand for whole numbers of pairs), the p-values are, and they are one-sided in the direction
    of the observed difference. So it is here. Both are corrected for ties. The paper has ties in the synthetic data
    set only, where p = .039 beside r = .226 suggests that its z was not corrected: a difference of about .002 in r.

    With at most `EXACT` scores on each side the p-values are exact instead, with ties or without.

    Args:
        first: scores of the first sample.
        second: scores of the second one.
        higher_is_better: whether a higher score is a better one.
    """
    sign = 1 if higher_is_better else -1
    a, b = sign * _finite(first), sign * _finite(second)
    ranks = stats.rankdata(np.concatenate((a, b)))
    rank_sum = float(ranks[: len(a)].sum())
    u = rank_sum - len(a) * (len(a) + 1) / 2
    above = u - len(a) * len(b) / 2
    deviation = _deviation(ranks, len(a))
    if deviation == 0:  # all scores are equal, and so are all divisions of them into two samples
        return MannWhitney(len(a), len(b), u, 0.0, 1.0, 1.0)
    if max(len(a), len(b)) <= EXACT:
        sums = np.array([sum(part) for part in itertools.combinations(ranks.tolist(), len(a))])
        p = float(np.mean(sums >= rank_sum if above >= 0 else sums <= rank_sum))
    else:
        side = "greater" if above >= 0 else "less"
        p = float(stats.mannwhitneyu(a, b, alternative=side, method="asymptotic", use_continuity=True).pvalue)
    return MannWhitney(len(a), len(b), u, above / deviation, p, min(1.0, 2 * p))


def signed_rank(differences: Sequence[float]) -> float:
    """The two-sided p of the Wilcoxon signed-rank test that paired scores differ to neither side.

    Pairs without a difference say nothing and are left out. With up to `EXACT_PAIRS` others p is exact, with ties or
    without; with more it is the normal approximation, corrected for ties and continuity.

    >>> signed_rank([1.0, 2.0, 3.0])
    0.25
    """
    values = _finite(differences)
    values = values[values != 0]
    if not len(values):
        return 1.0
    if len(values) > EXACT_PAIRS:
        return float(stats.wilcoxon(values, method="asymptotic", correction=True).pvalue)
    ranks = stats.rankdata(np.abs(values))
    signs = np.array(list(itertools.product((False, True), repeat=len(values))))
    sums = signs @ ranks
    observed = ranks[values > 0].sum()
    return min(1.0, 2 * float(min(np.mean(sums >= observed), np.mean(sums <= observed))))


def smallest_p(first: int, second: int) -> float:
    """The smallest one-sided p that samples of these sizes can reach: all of one better than all of the other.

    >>> smallest_p(3, 3)
    0.05
    """
    return 1 / math.comb(first + second, first)


def bonferroni(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for being several: each times their number, at most 1.

    >>> bonferroni([0.01, 0.5])
    [0.02, 1.0]
    """
    return [min(1.0, p * len(p_values)) for p in p_values]


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for being several by Holm's step-down method: never larger than Bonferroni's, as safe.

    The smallest of m is multiplied by m, the next one by m - 1, and so on; none becomes smaller than the one before it,
    or larger than 1 (Holm 1979, https://www.jstor.org/stable/4615733).

    >>> holm([0.03, 0.01])
    [0.03, 0.02]
    """
    corrected = [0.0] * len(p_values)
    least = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = least
    return corrected


def _finite(scores: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        raise DataError("there are no scores to summarise or compare")
    if not np.isfinite(values).all():
        raise DataError(f"scores must be finite numbers, got {values[~np.isfinite(values)][0]}")
    return values


def _deviation(ranks: NDArray[np.float64], first: int) -> float:
    """The standard deviation of U over all divisions of the ranked scores into samples, corrected for ties."""
    n = len(ranks)
    _, ties = np.unique(ranks, return_counts=True)
    if len(ties) == 1:
        return 0.0
    return math.sqrt(first * (n - first) / 12 * (n + 1 - float((ties**3 - ties).sum()) / (n * (n - 1))))
