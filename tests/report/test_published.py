from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from mlap.names import PAPER_ARCHITECTURES
from mlap.paper import PROTOCOLS
from mlap.report.published import (
    Below,
    published_significance,
    published_test,
    published_validation,
)
from mlap.study.compare import best, family_of

LOWER_IS_BETTER = {"synthetic"}


@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_the_full_tables_are_full(dataset: str) -> None:
    cells = published_validation(dataset)
    assert cells is not None
    assert sorted((cell.architecture, cell.norm, cell.layers) for cell in cells) == sorted(
        itertools.product(PAPER_ARCHITECTURES, ("graph", "none"), range(1, 11))
    )
    assert all(0 < cell.valid.mean < 1 and cell.valid.n == PROTOCOLS[dataset].seeds for cell in cells)
    assert all(cell.valid.standard_error and cell.valid.standard_error < 0.05 for cell in cells)


@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_the_selection_rule_gives_the_papers_selected_models(dataset: str) -> None:
    cells, tests = published_validation(dataset), published_test(dataset)
    assert cells is not None
    assert tests is not None
    assert [row.family for row in tests] == ["naive", "jk", "mlap"]
    for row in tests:
        family = [cell for cell in cells if family_of(cell.architecture) == row.family]
        selected = best(family, higher_is_better=dataset not in LOWER_IS_BETTER)
        assert (selected.architecture, selected.norm, selected.layers) == (row.architecture, row.norm, row.layers)


@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_effect_sizes_have_the_sign_of_the_difference_in_test_scores(dataset: str) -> None:
    tests = {row.family: row.test.mean for row in published_test(dataset) or ()}
    rows = published_significance(dataset)
    assert rows is not None
    assert [(row.first, row.second) for row in rows] == [("mlap", "naive"), ("mlap", "jk")]
    for row in rows:
        better = tests[row.first] - tests[row.second]
        if dataset in LOWER_IS_BETTER:
            better = -better
        assert better * row.r > 0


def test_a_bound_is_not_a_number_like_others() -> None:
    rows = published_significance("MCF-7")
    assert rows is not None
    assert [(type(row.p), row.p) for row in rows] == [(Below, 0.001), (Below, 0.001)]
    assert all(type(row.p) is float for row in published_significance("ogbg-ppa") or ())


def test_other_data_sets_have_no_published_numbers() -> None:
    for read in (published_validation, published_test, published_significance):
        assert read("NCI1") is None


def test_the_package_data_are_the_papers(shared_data: Path) -> None:
    """Every score of the paper's LaTeX tables is in the package data, as often as it is printed there."""
    paper = shared_data.parent / "paper" / "mlap.tex"
    if not paper.exists():
        pytest.skip(f"no text of the paper at {paper}")
    text = paper.read_text(encoding="utf-8")
    for dataset, label in zip(PROTOCOLS, ("fractal", "molhiv", "ppa", "mcf"), strict=True):
        end = text.index(f"\\TblLab{{valid-full-{label}}}")
        table = text[text.rindex("\\begin{table*}", 0, end) : end]
        plain = re.sub(r"\\textbf\{\*?([\d.]+)\}", r"\1", table)
        printed = [(float(a), float(b)) for a, b in re.findall(r"([\d.]+)\s*\$\\pm\$\s*([\d.]+)", plain)]
        cells = published_validation(dataset) or ()
        assert sorted(printed) == sorted((cell.valid.mean, cell.valid.standard_error) for cell in cells)
