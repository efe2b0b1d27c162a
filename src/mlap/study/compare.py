"""Comparing the runs of a study as the paper does: select per family on validation, test on the seeds' test scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeGuard, TypeVar

from mlap.errors import DataError, UsageError, unknown
from mlap.names import ARCHITECTURES, NORMS
from mlap.statistics import MannWhitney, Summary, holm, mann_whitney, smallest_p, summarise
from mlap.study.store import BaselineRecord, RunRecord

#: the paper's families; an architecture belongs to the one that its name begins with, any other is its own family
FAMILIES = ("naive", "jk", "mlap")
#: the family that the others are compared with
REFERENCE = "mlap"
#: With fewer seeds on a side a comparison comes with a warning.
ENOUGH_SEEDS = 8

#: the recipe fields that always tell cells apart; the seed never does
_CELL = ("norm", "architecture", "layers")


@dataclass(frozen=True)
class Cell:
    """All finished runs that differ in nothing but their seed.

    Args:
        architecture: how levels become one vector per graph.
        norm: the normalisation.
        layers: the depth.
        others: the values of the other recipe fields that the study sweeps; see `Comparison.swept`.
        seeds: the seeds of the runs.
        valid_scores: their validation scores.
        test_scores: the test scores of those that have one.
    """

    architecture: str
    norm: str
    layers: int
    others: tuple[Any, ...]
    seeds: tuple[int, ...]
    valid_scores: tuple[float, ...]
    test_scores: tuple[float, ...]

    @property
    def valid(self) -> Summary:
        """Mean and standard error of the validation scores."""
        return summarise(self.valid_scores)

    @property
    def test(self) -> Summary | None:
        """Mean and standard error of the test scores, if there are any."""
        return summarise(self.test_scores) if self.test_scores else None


@dataclass(frozen=True)
class BaselineCell:
    """The finished fits of one baseline, which differ in nothing but their seed.

    Args:
        name: the baseline.
        valid_scores: their validation scores.
        test_scores: the test scores of those that have one.
        against: of the Mann–Whitney U test of its test scores with those of the best network; `None` where one of the
            two has fewer than two.
    """

    name: str
    valid_scores: tuple[float, ...]
    test_scores: tuple[float, ...]
    against: MannWhitney | None = None

    @property
    def valid(self) -> Summary:
        """Mean and standard error of the validation scores."""
        return summarise(self.valid_scores)

    @property
    def test(self) -> Summary | None:
        """Mean and standard error of the test scores, if there are any."""
        return summarise(self.test_scores) if self.test_scores else None


@dataclass(frozen=True)
class Contrast:
    """The selected cells of two families, compared by the test scores of their seeds.

    Args:
        first: the reference family.
        second: the other one.
        outcome: of the Mann–Whitney U test; `None` if one of the cells has no test scores.
        p_holm: its two-sided p, corrected by Holm's method for all comparisons of the study with the same reference.
    """

    first: str
    second: str
    outcome: MannWhitney | None
    p_holm: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A study on one data set, compared.

    Args:
        data_name: the data set's name.
        metric: how scores are measured.
        higher_is_better: whether a higher score is a better one.
        settings: recipe field → the values it has in the study, in order; without the seed.
        cells: one for each combination of swept fields that has a finished run.
        selected: family → its cell with the best mean validation score.
        contrasts: the reference family against each other one.
        warnings: what a reader should know before concluding anything.
        baselines: the simple models on the same data, the best by validation first.
    """

    data_name: str
    metric: str
    higher_is_better: bool
    settings: Mapping[str, tuple[Any, ...]]
    cells: tuple[Cell, ...]
    selected: Mapping[str, Cell]
    contrasts: tuple[Contrast, ...]
    warnings: tuple[str, ...]
    baselines: tuple[BaselineCell, ...] = ()

    @property
    def best_network(self) -> Cell:
        """Of the selected cells the one with the best mean validation score."""
        return best(self.selected.values(), self.higher_is_better)

    @property
    def swept(self) -> tuple[str, ...]:
        """The recipe fields with more than one value, apart from norm, architecture, depth and seed."""
        return swept_of(self.settings)


class Scored(Protocol):
    """What can be selected: a cell of a study, or of the paper."""

    @property
    def architecture(self) -> str: ...

    @property
    def layers(self) -> int: ...

    @property
    def valid(self) -> Summary: ...


AnyScored = TypeVar("AnyScored", bound=Scored)


def family_of(architecture: str, families: Mapping[str, str] | None = None) -> str:
    """The family of an architecture, unless `families` (architecture → family) says otherwise.

    >>> family_of("mlap-sum"), family_of("naive"), family_of("my-own")
    ('mlap', 'naive', 'my-own')
    """
    if families and architecture in families:
        return families[architecture]
    prefix = architecture.partition("-")[0]
    return prefix if prefix in FAMILIES else architecture


def best(cells: Iterable[AnyScored], higher_is_better: bool) -> AnyScored:
    """The cell with the best mean validation score; of equal ones the shallowest, then the first."""
    sign = -1 if higher_is_better else 1
    return min(cells, key=lambda cell: (sign * cell.valid.mean, cell.layers))


def select(
    cells: Iterable[AnyScored], higher_is_better: bool, families: Mapping[str, str] | None = None
) -> dict[str, AnyScored]:
    """Family → its cell with the best mean validation score."""
    by_family: dict[str, list[AnyScored]] = {}
    for cell in cells:
        by_family.setdefault(family_of(cell.architecture, families), []).append(cell)
    return {family: best(by_family[family], higher_is_better) for family in sorted(by_family, key=_place(FAMILIES))}


def opponents(selected: Mapping[str, Any], reference: str | None = None) -> list[tuple[str, str]]:
    """The reference family, `mlap` unless given, with each other one; nothing if the study does not have it."""
    if reference is not None and reference not in selected:
        raise unknown("family", reference, selected, "reference")
    first = REFERENCE if reference is None else reference
    return [(first, second) for second in selected if second != first] if first in selected else []


def runs_on(records: Iterable[RunRecord], data: str | None = None, several: bool = False) -> list[RunRecord]:
    """The runs on one data set: the only one, or the one whose name or beginning of fingerprint is `data`.

    Args:
        records: the runs.
        data: which data set, if there are several.
        several: whether it may be there several times, split otherwise each time.
    """
    runs = list(records)
    if not runs:
        raise DataError("the study has no runs yet")
    names = sorted({run.data_name for run in runs})
    if data is not None:
        chosen = [run for run in runs if data == run.data_name or (data and run.fingerprint.startswith(data))]
        if not chosen:
            raise unknown("data set in the study", data, names, "data")
        runs = chosen
    elif len(names) > 1:
        raise UsageError(f"the study has runs on {', '.join(names)}; compare one at a time", "data", names[0])
    prints = list(dict.fromkeys(run.fingerprint for run in runs))
    if len(prints) > 1 and not several:
        short = ", ".join(print[:12] for print in prints)
        raise UsageError(
            f"the study has runs on {len(prints)} different data sets called {runs[0].data_name} "
            f"(fingerprints {short}); choose one by its fingerprint, or compare over all of them as splits",
            field="data",
            suggest=prints[0][:12],
        )
    return runs


def compare(
    records: Iterable[RunRecord],
    *,
    data: str | None = None,
    reference: str | None = None,
    families: Mapping[str, str] | None = None,
    baselines: Iterable[BaselineRecord] = (),
) -> Comparison:
    """Compare the runs of a study on one data set.

    Depth, architecture, normalisation and whatever else the study sweeps are selected per family by the mean
    validation score over seeds. Test scores decide nothing; they are only reported and compared.

    Args:
        records: the runs, as `Study.runs` gives them.
        data: which data set, if there are several; see `runs_on`.
        reference: the family to compare the others with; `mlap` unless given.
        families: architecture → family, where it is not the one of `family_of`.
        baselines: as `Study.baselines` gives them; those on other data are left out.
    """
    runs = runs_on(records, data)
    check_architectures(families, runs)
    settings = settings_of(runs)
    cells = cells_of(runs, settings)
    if not cells:
        raise DataError(f"none of the {len(runs)} runs on {runs[0].data_name} has a validation score: {_states(runs)}")

    higher_is_better = runs[0].higher_is_better
    selected = select(cells, higher_is_better, families)
    contrasts = _contrasts(opponents(selected, reference), selected, higher_is_better)
    warnings = [*_run_warnings(runs, cells, settings), *_seed_warnings(cells, selected)]
    warnings += [_too_few(contrast) for contrast in contrasts if _too_few(contrast)]
    warnings += alone_warnings(selected, reference)
    simple = [record for record in baselines if record.fingerprint == runs[0].fingerprint]
    warnings += [f"the baseline {each.name} failed: {each.error}" for each in simple if each.status == "failed"]
    return Comparison(
        runs[0].data_name,
        runs[0].metric,
        higher_is_better,
        settings,
        cells,
        selected,
        contrasts,
        tuple(warnings),
        baseline_cells(simple, best(selected.values(), higher_is_better), higher_is_better),
    )


def baseline_cells(
    records: Iterable[BaselineRecord], network: Cell, higher_is_better: bool
) -> tuple[BaselineCell, ...]:
    """The baselines with a validation score, the best first, each compared with the best network."""
    groups: dict[str, list[BaselineRecord]] = {}
    for record in records:
        if record.status == "done" and _usable(record.valid_score):
            groups.setdefault(record.name, []).append(record)
    cells = []
    for name, found in groups.items():
        valid = tuple(record.valid_score for record in found if _usable(record.valid_score))
        test = tuple(record.test_score for record in found if _usable(record.test_score))
        enough = min(len(test), len(network.test_scores)) > 1
        against = mann_whitney(test, network.test_scores, higher_is_better=higher_is_better) if enough else None
        cells.append(BaselineCell(name, valid, test, against))
    return tuple(sorted(cells, key=lambda cell: cell.valid.mean, reverse=higher_is_better))


def check_architectures(families: Mapping[str, str] | None, runs: Sequence[RunRecord]) -> None:
    """Complain if a family is said of an architecture that there is no run of."""
    known = sorted({run.architecture for run in runs})
    for architecture in families or ():
        if architecture not in known:
            raise unknown("architecture in the study", architecture, known, "families")


def alone_warnings(selected: Mapping[str, Any], reference: str | None = None) -> list[str]:
    """What to say where nothing is compared with anything."""
    if len(selected) == 1:
        return [f"the study has runs of one family only, {next(iter(selected))}: there is nothing to compare it with"]
    if reference is None and REFERENCE not in selected:
        return [f"the study has no {REFERENCE} to compare with: choose one of {', '.join(selected)} as the reference"]
    return []


def settings_of(runs: Sequence[RunRecord]) -> dict[str, tuple[Any, ...]]:
    """Recipe field → the values it has in the runs, in order; without the seed."""
    recipes = [run.recipe.as_dict() for run in runs]
    return {
        name: tuple(sorted({recipe[name] for recipe in recipes}, key=_place(_ORDERS.get(name, ()))))
        for name in recipes[0]
        if name != "seed"
    }


_ORDERS: dict[str, Sequence[str]] = {"architecture": ARCHITECTURES, "norm": tuple(NORMS)}


def _place(order: Sequence[str]) -> Callable[[Any], tuple[int, Any]]:
    """A sort key: known names in their order, then all others in theirs."""
    return lambda value: (order.index(value) if value in order else len(order), value)


def swept_of(settings: Mapping[str, tuple[Any, ...]]) -> tuple[str, ...]:
    """The recipe fields with more than one value, apart from norm, architecture, depth and seed."""
    return tuple(name for name, values in settings.items() if len(values) > 1 and name not in _CELL)


def _usable(score: float | None) -> TypeGuard[float]:
    return score is not None and math.isfinite(score)


def cells_of(runs: Sequence[RunRecord], settings: Mapping[str, tuple[Any, ...]]) -> tuple[Cell, ...]:
    """The cells of runs on one data set that have a finished run, in the order of the settings' values."""
    fields = (*_CELL, *swept_of(settings))
    groups: dict[tuple[int, ...], list[RunRecord]] = {}
    for run in runs:
        if run.status == "done" and _usable(run.valid_score):
            key = tuple(settings[name].index(getattr(run.recipe, name)) for name in fields)
            groups.setdefault(key, []).append(run)
    return tuple(_cell(sorted(groups[key], key=lambda run: run.seed), fields[len(_CELL) :]) for key in sorted(groups))


def _cell(runs: Sequence[RunRecord], swept: Sequence[str]) -> Cell:
    recipe = runs[0].recipe
    return Cell(
        recipe.architecture,
        recipe.norm,
        recipe.layers,
        tuple(getattr(recipe, name) for name in swept),
        tuple(run.seed for run in runs),
        tuple(run.valid_score for run in runs if _usable(run.valid_score)),
        tuple(run.test_score for run in runs if _usable(run.test_score)),
    )


def _contrasts(
    pairs: Iterable[tuple[str, str]], selected: Mapping[str, Cell], higher_is_better: bool
) -> tuple[Contrast, ...]:
    contrasts = []
    for first, second in pairs:
        a, b = selected[first].test_scores, selected[second].test_scores
        outcome = mann_whitney(a, b, higher_is_better=higher_is_better) if a and b else None
        contrasts.append(Contrast(first, second, outcome))
    corrected = corrected_p([c.outcome.p_two_sided if c.outcome else None for c in contrasts])
    return tuple(replace(contrast, p_holm=p) for contrast, p in zip(contrasts, corrected, strict=True))


def corrected_p(p_values: Sequence[float | None]) -> list[float | None]:
    """P-values corrected by Holm's method; a comparison that could not be made is none.

    >>> corrected_p([0.03, None, 0.01])
    [0.03, None, 0.02]
    """
    corrected = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(corrected) for p in p_values]


def _states(runs: Sequence[RunRecord]) -> str:
    counts = {
        "failed": sum(run.status == "failed" for run in runs),
        "not finished": sum(run.status in ("planned", "running") for run in runs),
        "done with a score that is not a number": sum(
            run.status == "done" and not _usable(run.valid_score) for run in runs
        ),
    }
    return ", ".join(f"{number} {state}" for state, number in counts.items() if number)


def _run_warnings(
    runs: Sequence[RunRecord], cells: Sequence[Cell], settings: Mapping[str, tuple[Any, ...]]
) -> list[str]:
    warnings = []
    if states := _states(runs):
        warnings.append(f"of {len(runs)} runs, {states}: they are left out")
    untested = sum(len(cell.seeds) - len(cell.test_scores) for cell in cells)
    if untested:
        warnings.append(f"{untested} finished runs have no test score: they count for validation only")
    grid = math.prod(len(settings[name]) for name in _CELL)
    missing = grid - len({(cell.norm, cell.architecture, cell.layers) for cell in cells})
    if missing:
        warnings.append(
            f"{missing} of {grid} combinations of normalisation, architecture and depth have no finished run: "
            "families are not selected from equal choices"
        )
    return warnings


def _seed_warnings(cells: Sequence[Cell], selected: Mapping[str, Cell]) -> list[str]:
    sizes = [len(cell.seeds) for cell in cells]
    if len({cell.seeds for cell in cells}) == 1:
        return []
    if min(sizes) == max(sizes):
        return [f"cells have {sizes[0]} seeds each, but not the same ones"]
    short = [f"{family} ({len(cell.seeds)})" for family, cell in selected.items() if len(cell.seeds) < max(sizes)]
    also = f"; selected with fewer than {max(sizes)}: {', '.join(short)}" if short else ""
    return [f"cells have unequal seeds, {min(sizes)} to {max(sizes)}: a mean over few is easily lucky{also}"]


def _too_few(contrast: Contrast) -> str:
    name, outcome = f"{contrast.first} vs {contrast.second}", contrast.outcome
    if outcome is None:
        return f"{name}: no test, because a selected model has no test scores"
    if min(outcome.first, outcome.second) >= ENOUGH_SEEDS:
        return ""
    p = smallest_p(outcome.first, outcome.second)
    return (
        f"{name}: {outcome.first} and {outcome.second} seeds are too few to conclude; the smallest p that they "
        f"can reach is {p:.2g} one-sided, {min(1, 2 * p):.2g} two-sided"
    )
