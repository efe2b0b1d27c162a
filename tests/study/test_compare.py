from __future__ import annotations

import dataclasses
import math
import random

import pytest
from run_records import cell, run

from mlap.errors import DataError, UsageError
from mlap.statistics import mann_whitney
from mlap.study.compare import best, compare, family_of

#: two families, two depths each; on validation the shallow naive and the deep mlap are best, on test the others
RUNS = [
    *cell("naive", [0.70, 0.72], [0.50, 0.52], layers=1),
    *cell("naive", [0.60, 0.62], [0.90, 0.92], layers=2),
    *cell("mlap-sum", [0.71, 0.73], [0.80, 0.82], layers=1),
    *cell("mlap-sum", [0.75, 0.77], [0.60, 0.62], layers=2),
    *cell("mlap-weighted", [0.74, 0.74], [0.99, 0.99], layers=1),
    *cell("mlap-weighted", [0.74, 0.73], [0.99, 0.99], layers=2),
]


def test_selection_is_by_mean_validation_score_and_never_by_test() -> None:
    comparison = compare(RUNS)
    chosen = {family: (cell.architecture, cell.layers) for family, cell in comparison.selected.items()}
    assert chosen == {"naive": ("naive", 1), "mlap": ("mlap-sum", 2)}
    shuffled = [dataclasses.replace(run, test_score=random.Random(i).random()) for i, run in enumerate(RUNS)]
    assert {family: (cell.architecture, cell.layers) for family, cell in compare(shuffled).selected.items()} == chosen


def test_known_numbers() -> None:
    comparison = compare(RUNS)
    assert (comparison.data_name, comparison.metric, comparison.higher_is_better) == ("mine", "rocauc", True)
    assert len(comparison.cells) == 6
    naive, mlap = comparison.selected["naive"], comparison.selected["mlap"]
    assert (naive.valid.n, naive.valid.mean, naive.valid.standard_error) == (
        2,
        pytest.approx(0.71),
        pytest.approx(0.01),
    )
    assert mlap.test is not None
    assert (mlap.test.mean, mlap.test.standard_error) == (pytest.approx(0.61), pytest.approx(0.01))
    (contrast,) = comparison.contrasts
    assert (contrast.first, contrast.second) == ("mlap", "naive")
    assert contrast.outcome == mann_whitney([0.60, 0.62], [0.50, 0.52])
    assert contrast.outcome.p_one_sided == pytest.approx(1 / 6)
    assert contrast.outcome.r > 0


def test_several_comparisons_are_corrected_together() -> None:
    scores = {"mlap-sum": [0.9, 0.91, 0.92], "naive": [0.1, 0.2, 0.3], "jk-sum": [0.89, 0.895, 0.93]}
    runs = [run for name, found in scores.items() for run in cell(name, found, found)]
    untested = cell("my-own", [0.1, 0.2], None)
    contrasts = {contrast.second: contrast for contrast in compare([*runs, *untested]).contrasts}
    assert contrasts["my-own"].p_holm is None
    naive, jk = contrasts["naive"], contrasts["jk"]
    assert naive.outcome is not None
    assert jk.outcome is not None
    assert naive.outcome.p_two_sided == pytest.approx(0.1)
    assert naive.p_holm == pytest.approx(0.2)  # the smaller of two
    assert jk.p_holm == pytest.approx(max(0.2, jk.outcome.p_two_sided))


def test_a_lower_score_may_be_better() -> None:
    comparison = compare([dataclasses.replace(run, metric="error_rate", higher_is_better=False) for run in RUNS])
    assert {family: (cell.architecture, cell.layers) for family, cell in comparison.selected.items()} == {
        "naive": ("naive", 2),
        "mlap": ("mlap-sum", 1),
    }
    (contrast,) = comparison.contrasts
    assert contrast.outcome is not None
    assert contrast.outcome.r > 0  # 0.80, 0.82 against 0.90, 0.92


def test_the_order_of_the_runs_does_not_matter() -> None:
    mixed = RUNS.copy()
    random.Random(0).shuffle(mixed)
    assert compare(mixed) == compare(RUNS)


def test_of_equal_means_the_shallower_is_selected_then_the_first() -> None:
    comparison = compare(
        [
            *cell("mlap-weighted", [0.8], layers=2),
            *cell("mlap-sum", [0.8], layers=2),
            *cell("mlap-sum", [0.8], layers=3),
            *cell("mlap-sum", [0.7], layers=1),
        ]
    )
    chosen = comparison.selected["mlap"]
    assert (chosen.architecture, chosen.layers) == ("mlap-sum", 2)


def test_families() -> None:
    assert [family_of(name) for name in ("naive", "jk-lstm", "mlap-max", "my-own", "jkx")] == [
        "naive",
        "jk",
        "mlap",
        "my-own",
        "jkx",
    ]
    runs = [*RUNS, *cell("my-own", [0.9, 0.9], [0.7, 0.7])]
    comparison = compare(runs, reference="my-own")
    assert list(comparison.selected) == ["naive", "mlap", "my-own"]
    assert [(contrast.first, contrast.second) for contrast in comparison.contrasts] == [
        ("my-own", "naive"),
        ("my-own", "mlap"),
    ]
    joined = compare(runs, families={"my-own": "mlap", "mlap-weighted": "weighted"})
    assert {family: cell.architecture for family, cell in joined.selected.items()} == {
        "naive": "naive",
        "mlap": "my-own",
        "weighted": "mlap-weighted",
    }


def test_normalisation_and_other_swept_fields_make_cells() -> None:
    runs = [
        run("mlap-sum", 0.5 + 0.1 * index, 0.5, norm=norm, lr=lr, seed=seed)
        for seed in (0, 1)
        for index, (norm, lr) in enumerate([("graph", 0.01), ("graph", 0.001), ("none", 0.01), ("none", 0.001)])
    ]
    comparison = compare(runs)
    assert comparison.swept == ("lr",)
    assert comparison.settings["lr"] == (0.001, 0.01)
    assert [(cell.norm, cell.others, cell.seeds) for cell in comparison.cells] == [
        ("none", (0.001,), (0, 1)),
        ("none", (0.01,), (0, 1)),
        ("graph", (0.001,), (0, 1)),
        ("graph", (0.01,), (0, 1)),
    ]
    assert comparison.selected["mlap"] is best(comparison.cells, higher_is_better=True)
    assert comparison.selected["mlap"].others == (0.001,)


def test_no_warning_where_all_is_well() -> None:
    scores = [0.5 + 0.01 * i for i in range(8)]
    assert compare([*cell("naive", scores, scores), *cell("mlap-sum", scores, scores)]).warnings == ()


def test_too_few_seeds_are_called_so() -> None:
    (warning,) = compare([*cell("naive", [0.5] * 3, [0.1] * 3), *cell("mlap-sum", [0.5] * 3, [0.2] * 3)]).warnings
    assert "3 and 3 seeds are too few" in warning
    assert "0.05 one-sided, 0.1 two-sided" in warning
    (warning,) = compare([*cell("naive", [0.5], [0.1]), *cell("mlap-sum", [0.5], [0.2])]).warnings
    assert "0.5 one-sided, 1 two-sided" in warning


def test_unequal_seeds_are_called_so() -> None:
    runs = [*cell("naive", [0.5] * 9, [0.1] * 9), *cell("mlap-sum", [0.5] * 8, [0.2] * 8)]
    (warning,) = compare(runs).warnings
    assert warning.startswith("cells have unequal seeds, 8 to 9")
    assert warning.endswith("selected with fewer than 9: mlap (8)")
    shifted = [*runs[:8], *(dataclasses.replace(r, recipe=r.recipe.replace(seed=r.seed + 1)) for r in runs[9:])]
    assert compare(shifted).warnings == ("cells have 8 seeds each, but not the same ones",)


def test_failed_unfinished_and_broken_runs_are_left_out_and_counted() -> None:
    scores = [0.5 + 0.01 * i for i in range(8)]
    runs = [
        *cell("naive", scores, scores),
        *cell("mlap-sum", scores, scores),
        run("naive", None, status="failed", seed=8),
        run("naive", None, status="planned", seed=9),
        run("naive", None, status="running", seed=10),
        run("mlap-sum", math.nan, 0.9, seed=8),
        run("mlap-sum", None, 0.9, seed=9),
    ]
    comparison = compare(runs)
    assert [len(cell.seeds) for cell in comparison.cells] == [8, 8]
    assert comparison.warnings == (
        "of 21 runs, 1 failed, 2 not finished, 2 done with a score that is not a number: they are left out",
    )


def test_a_cell_without_a_finished_run_is_a_hole_in_the_grid() -> None:
    runs = [*cell("naive", [0.5] * 8, [0.5] * 8, layers=1), *cell("mlap-sum", [0.5] * 8, [0.5] * 8, layers=1)]
    runs += [*cell("naive", [0.6] * 8, [0.5] * 8, layers=2), run("mlap-sum", None, layers=2, status="planned")]
    comparison = compare(runs)
    assert comparison.selected["mlap"].layers == 1
    assert any(warning.startswith("1 of 4 combinations") for warning in comparison.warnings)


def test_missing_test_scores() -> None:
    comparison = compare(
        [*cell("naive", [0.5, 0.6, 0.7], [0.5, None, math.nan]), *cell("mlap-sum", [0.8] * 3), *cell("jk-sum", [0.1])]
    )
    naive, mlap = comparison.selected["naive"], comparison.selected["mlap"]
    assert naive.valid.n == 3
    assert naive.test_scores == (0.5,)
    assert mlap.test is None
    assert [contrast.outcome for contrast in comparison.contrasts] == [None, None]
    assert any("6 finished runs have no test score" in warning for warning in comparison.warnings)
    assert any(warning.startswith("mlap vs jk: no test") for warning in comparison.warnings)


def test_all_scores_equal() -> None:
    comparison = compare([*cell("naive", [0.5] * 9, [0.5] * 9), *cell("mlap-sum", [0.5] * 9, [0.5] * 9)])
    (contrast,) = comparison.contrasts
    assert contrast.outcome is not None
    assert (contrast.outcome.p_one_sided, contrast.outcome.p_two_sided, contrast.outcome.r) == (1, 1, 0)


def test_one_data_set_at_a_time() -> None:
    other = [dataclasses.replace(run, data_name="yours", fingerprint="e" * 64) for run in RUNS]
    with pytest.raises(UsageError, match="runs on mine, yours;"):
        compare([*RUNS, *other])
    assert compare([*RUNS, *other], data="mine") == compare(RUNS)
    assert compare([*RUNS, *other], data="yours").data_name == "yours"
    with pytest.raises(UsageError, match="unknown data set in the study 'your'; did you mean 'yours'"):
        compare([*RUNS, *other], data="your")


def test_one_version_of_a_data_set_at_a_time() -> None:
    other = [dataclasses.replace(run, fingerprint="abc" + "e" * 61) for run in RUNS[:4]]
    for data in (None, "mine"):
        with pytest.raises(UsageError, match=r"2 different data sets called mine .*ffffffffffff, abceeeeeeeee"):
            compare([*RUNS, *other], data=data)
    assert len(compare([*RUNS, *other], data="abc").cells) == 2


def test_an_empty_study() -> None:
    with pytest.raises(DataError, match="no runs yet"):
        compare([])


def test_a_single_family() -> None:
    comparison = compare(RUNS[:2])
    assert comparison.contrasts == ()
    assert comparison.warnings == ("the study has runs of one family only, naive: there is nothing to compare it with",)


def test_no_finished_run() -> None:
    with pytest.raises(DataError, match="none of the 2 runs on mine has a validation score: 1 failed, 1 not finished"):
        compare([run("naive", None, status="failed"), run("naive", None, status="planned", seed=1)])


def test_without_mlap_a_reference_must_be_chosen() -> None:
    runs = [*cell("naive", [0.5], [0.5]), *cell("jk-sum", [0.5], [0.5])]
    comparison = compare(runs)
    assert comparison.contrasts == ()
    (warning,) = comparison.warnings
    assert "no mlap" in warning
    assert "naive, jk" in warning
    assert len(compare(runs, reference="jk").contrasts) == 1
    with pytest.raises(UsageError, match="unknown family 'mlap'"):
        compare(runs, reference="mlap")
    with pytest.raises(UsageError, match="unknown architecture in the study 'jk-max'; did you mean 'jk-sum'"):
        compare(runs, families={"jk-max": "mine"})
