"""The paper's published numbers: validation (appendix A), test (table 1) and significance (table 2)."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TypeVar

from scipy import stats

from mlap.paper import PROTOCOLS
from mlap.statistics import Summary

_NORMS = {"+": "graph", "-": "none"}


class Below(float):
    """A number that is only known to be smaller than this."""


@dataclass(frozen=True)
class PublishedValidation:
    """A cell of the paper's full tables.

    Args:
        architecture: one of `mlap.names.PAPER_ARCHITECTURES`.
        norm: `graph` or `none`.
        layers: the depth.
        valid: the validation score over seeds.
    """

    architecture: str
    norm: str
    layers: int
    valid: Summary


@dataclass(frozen=True)
class PublishedTest:
    """The paper's selected model of a family.

    Args:
        family: `naive`, `jk` or `mlap`.
        architecture: the selected one.
        norm: likewise.
        layers: likewise.
        test: its test score over seeds.
    """

    family: str
    architecture: str
    norm: str
    layers: int
    test: Summary


@dataclass(frozen=True)
class PublishedSignificance:
    """The paper's comparison of two selected models.

    Args:
        first: the family that is compared (`mlap`).
        second: the one it is compared with.
        n: all samples, of both models.
        p: the printed p-value, a `Below` where it is printed with `<`. All are one-sided; see
            `mlap.statistics.mann_whitney`.
        r: the effect size, positive if the first is better.
    """

    first: str
    second: str
    n: int
    p: float
    r: float

    @property
    def z(self) -> float:
        """The test statistic that the effect size stands for."""
        return self.r * math.sqrt(self.n)

    @property
    def p_two_sided(self) -> float:
        """What the paper does not print, recomputed from its effect size by the normal approximation."""
        return float(2 * stats.norm.sf(abs(self.z)))


def published_validation(dataset: str) -> tuple[PublishedValidation, ...] | None:
    """The paper's validation scores for every architecture, normalisation and depth, if it has the data set."""
    return _rows(
        "validation.csv",
        dataset,
        lambda row: PublishedValidation(
            row["architecture"], _NORMS[row["graphnorm"]], int(row["layers"]), _summary(row)
        ),
    )


def published_test(dataset: str) -> tuple[PublishedTest, ...] | None:
    """The paper's selected models with their test scores, if it has the data set."""
    return _rows(
        "test.csv",
        dataset,
        lambda row: PublishedTest(
            row["family"],
            "-".join(filter(None, (row["family"], row["aggregator"]))),
            _NORMS[row["graphnorm"]],
            int(row["layers"]),
            _summary(row),
        ),
    )


def published_significance(dataset: str) -> tuple[PublishedSignificance, ...] | None:
    """The paper's comparisons of its selected models, if it has the data set."""

    def read(row: Mapping[str, str]) -> PublishedSignificance:
        first, _, second = row["comparison"].partition(" vs ")
        p = Below(row["p"][1:]) if row["p"].startswith("<") else float(row["p"])
        return PublishedSignificance(first, second, 2 * PROTOCOLS[dataset].seeds, p, float(row["effect_size"]))

    return _rows("significance.csv", dataset, read)


T = TypeVar("T")


def _rows(file: str, dataset: str, read: Callable[[Mapping[str, str]], T]) -> tuple[T, ...] | None:
    return tuple(read(row) for row in _read(file) if row["dataset"] == dataset) or None


@cache
def _read(file: str) -> tuple[dict[str, str], ...]:
    text = resources.files("mlap.report").joinpath("data", file).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def _summary(row: Mapping[str, str]) -> Summary:
    return Summary(PROTOCOLS[row["dataset"]].seeds, float(row["mean"]), float(row["standard_error"]))
