from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from run_records import cell, run

from mlap.paper import PROTOCOLS
from mlap.report.published import published_test, published_validation
from mlap.report.render import Table, to_csv, to_json, to_latex, to_markdown, to_text
from mlap.report.tables import (
    TABLES,
    full_table,
    paper_warnings,
    results_table,
    runs_table,
    significance_table,
    summary_table,
)
from mlap.report.tables import verdict as judge
from mlap.statistics import Summary
from mlap.study import RunRecord
from mlap.study.compare import compare


def of_paper(dataset: str) -> list[RunRecord]:
    """Three runs in every cell, around the paper's mean; test scores only where the paper has them."""
    tests = {(row.architecture, row.norm, row.layers): row.test for row in published_test(dataset) or ()}
    runs = []
    for published in published_validation(dataset) or ():
        test = tests.get((published.architecture, published.norm, published.layers))
        for seed, shift in enumerate((-1e-7, 0.0, 1e-7)):
            runs.append(
                run(
                    published.architecture,
                    published.valid.mean + shift,
                    test.mean + shift if test else 0.0,
                    data=dataset,
                    metric="error_rate" if dataset == "synthetic" else "rocauc",
                    higher_is_better=dataset != "synthetic",
                    layers=published.layers,
                    norm=published.norm,
                    seed=seed,
                    **PROTOCOLS[dataset].recipe,
                )
            )
    return runs


def rows(table: Table) -> list[dict[str, Any]]:
    return [dict(zip((column.key for column in table.columns), values, strict=True)) for values in table.rows]


@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_a_study_with_the_papers_means_gives_the_papers_tables(dataset: str) -> None:
    comparison = compare(of_paper(dataset))
    results = rows(results_table(comparison))
    assert [row["source"] for row in results] == 3 * ["ours", "paper"]
    for ours, paper in zip(results[::2], results[1::2], strict=True):
        for key in ("family", "join", "layers", "norm"):
            assert ours[key] == paper[key]
        assert (ours["seeds"], paper["seeds"]) == (3, PROTOCOLS[dataset].seeds)
        assert (ours["verdict"], paper["verdict"]) == ("agrees", None)
        assert ours["valid"].mean == pytest.approx(paper["valid"].mean)
        assert ours["test"].mean == pytest.approx(paper["test"].mean)
    assert paper_warnings(comparison) == []

    full = rows(full_table(comparison))
    assert len(full) == 140
    assert {row["verdict"] for row in full} == {"agrees"}
    assert all(row["valid"].mean == pytest.approx(row["paper_valid"].mean) for row in full)
    assert sum(row["best"] == "*" for row in full) == 12
    assert sum(row["best"] == "**" for row in full) == 2

    summary = rows(summary_table(comparison))
    assert len(summary) == 14
    assert all(row["layers"] == row["paper_layers"] for row in summary)
    starred = {(row["norm"], row["architecture"]) for row in summary if row["best"]}
    assert starred == {(row["norm"], row["architecture"]) for row in full if row["best"] == "**"}


def test_the_papers_stars() -> None:
    """The best of each normalisation, as the paper marks it in its summary of validation scores."""
    stars = {
        "synthetic": [("none", "mlap-sum", 10), ("graph", "mlap-sum", 9)],
        "ogbg-molhiv": [("none", "mlap-weighted", 5), ("graph", "jk-sum", 2)],
        "ogbg-ppa": [("none", "mlap-sum", 3), ("graph", "jk-lstm", 1)],
        "MCF-7": [("none", "mlap-sum", 4), ("graph", "mlap-sum", 5)],
    }
    for dataset, expected in stars.items():
        table = rows(summary_table(compare(of_paper(dataset))))
        assert [(row["norm"], row["architecture"], row["layers"]) for row in table if row["best"]] == expected


def test_a_study_without_the_network_that_the_paper_selected_is_not_judged() -> None:
    """The paper's MLAP is mlap-sum of nine layers with GraphNorm, its naive network also has nine layers."""
    runs = [run for run in of_paper("synthetic") if run.architecture != "mlap-sum" or run.layers < 9]
    comparison = compare(runs)
    verdicts = {row["family"]: row["verdict"] for row in rows(results_table(comparison)) if row["source"] == "ours"}
    assert verdicts == {"naive": "agrees", "jk": "agrees", "mlap": "incomplete"}
    summary = {(row["norm"], row["architecture"]): row["verdict"] for row in rows(summary_table(comparison))}
    assert {key for key, value in summary.items() if value == "incomplete"} == {
        ("none", "mlap-sum"),
        ("graph", "mlap-sum"),
    }
    assert {row["verdict"] for row in rows(full_table(comparison))} == {"agrees"}
    for make in (results_table, summary_table):  # what the word means is said where it stands, and only there
        assert any(note.startswith("Incomplete: ") for note in make(comparison).notes)
        assert not any(note.startswith("Incomplete: ") for note in make(compare(of_paper("synthetic"))).notes)


def test_every_run() -> None:
    runs = [*MINE[:2], replace(MINE[2], versions={"mlap": "0.1.0", "torch": "2.13.0"})]
    table = runs_table(runs, complete=True)
    made = rows(table)
    assert [(row["architecture"], row["seed"], row["valid_score"]) for row in made] == [
        ("naive", seed, score) for seed, score in enumerate(SCORES)
    ]
    assert to_csv(table).splitlines()[-1].count('"mlap 0.1.0, torch 2.13.0"') == 1


def test_significance_beside_the_papers() -> None:
    first, second = rows(significance_table(compare(of_paper("synthetic"))))
    assert (first["comparison"], second["comparison"]) == ("mlap vs naive", "mlap vs jk")
    assert first["seeds"] == (3, 3)
    assert (first["p_one_sided"], first["p_two_sided"]) == (pytest.approx(0.05), pytest.approx(0.1))
    assert first["r"] > 0
    assert (second["paper_p_one_sided"], second["paper_r"]) == (0.039, 0.226)
    assert second["paper_p_two_sided"] == pytest.approx(0.080, abs=5e-4)


SCORES = [0.5, 0.6, 0.7]
MINE = [*cell("naive", SCORES, SCORES), *cell("jk-max", SCORES, [*SCORES[:2], None]), *cell("my-own", SCORES, SCORES)]


def test_a_data_set_that_the_paper_does_not_have() -> None:
    comparison = compare(MINE, reference="my-own")
    for make in TABLES.values():
        table = make(comparison)
        assert not any("paper" in column.key or "paper" in column.title.lower() for column in table.columns)
        assert not any(column.key in ("verdict", "source") for column in table.columns)
        assert "aper" not in table.caption + "".join(table.notes)
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert [(row["family"], row["join"]) for row in rows(results_table(comparison))] == [
        ("naive", None),
        ("jk", "max"),
        ("my-own", None),
    ]
    assert [row["comparison"] for row in rows(significance_table(comparison))] == ["my-own vs naive", "my-own vs jk"]
    assert paper_warnings(comparison) == []


def test_an_architecture_that_the_paper_does_not_have() -> None:
    paper = {"data": "MCF-7", **PROTOCOLS["MCF-7"].recipe, "layers": 3}
    runs = cell("my-own", SCORES, SCORES, **paper) + cell("naive", SCORES, SCORES, **paper)
    comparison = compare(runs, reference="my-own")
    naive, own = rows(full_table(comparison))
    assert (naive["paper_valid"].mean, naive["verdict"]) == (0.8616, "worse")
    assert (own["paper_valid"], own["verdict"]) == (None, None)
    assert [(row["family"], row["source"]) for row in rows(results_table(comparison))] == [
        ("naive", "ours"),
        ("naive", "paper"),
        ("my-own", "ours"),
    ]
    (contrast,) = rows(significance_table(comparison))
    assert contrast["paper_r"] is None


def test_another_recipe_than_the_papers_is_named() -> None:
    comparison = compare([run("naive", 0.5, data="MCF-7", epochs=e, lr=1e-4, batch_size=20, seed=e) for e in (5, 50)])
    assert paper_warnings(comparison) == [
        "the paper's numbers were made with another recipe; here it is epochs 5, 50 (paper 50)"
    ]
    results = rows(results_table(comparison))
    assert [row["epochs"] for row in results] == [5, 50]
    assert [row["epochs"] for row in rows(full_table(comparison))] == [5, 50]


@pytest.mark.parametrize(
    ("ours", "higher_is_better", "verdict"),
    [
        (Summary(5, 0.56, 0.03), True, "agrees"),
        (Summary(5, 0.44, 0.03), True, "agrees"),
        (Summary(5, 0.599, 0.03), True, "agrees"),
        (Summary(5, 0.601, 0.03), True, "better"),
        (Summary(5, 0.601, 0.03), False, "worse"),
        (Summary(5, 0.399, 0.03), True, "worse"),
        (Summary(5, 0.399, 0.03), False, "better"),
        (Summary(2, 0.399, 0.03), False, "too few seeds"),
        (Summary(1, 0.9, None), True, "too few seeds"),
        (None, True, None),
    ],
)
def test_verdict(ours: Summary | None, higher_is_better: bool, verdict: str | None) -> None:
    paper = Summary(30, 0.5, 0.04)  # with 0.03 the difference has the standard error 0.05
    assert judge(ours, paper, higher_is_better) == verdict
    assert judge(ours, None, higher_is_better) is None


def test_verdict_without_any_spread() -> None:
    assert judge(Summary(3, 0.5, 0.0), Summary(3, 0.5, 0.0), True) == "agrees"
    assert judge(Summary(3, 0.6, 0.0), Summary(2, 0.5, 0.0), True) == "better"


@pytest.mark.parametrize("runs", [MINE, MINE[:1], of_paper("ogbg-ppa")], ids=["mine", "a single run", "ogbg-ppa"])
def test_every_table_in_every_form(runs: list[RunRecord]) -> None:
    comparison = compare(runs)
    tables = [make(comparison) for make in TABLES.values()]
    text = to_text(tables, comparison.warnings)
    assert max(map(len, text.split("\n"))) <= 100
    for rendered in (text, to_markdown(tables, comparison.warnings), to_latex(tables, comparison.warnings)):
        assert "None" not in rendered
        assert "naive" in rendered
    for table in tables:
        assert to_csv(table).count("\n") == 1 + len(table.rows) == 1 + len(to_json(table)["rows"])
    # Nothing is folded: no row of a table of the paper's is broken into two lines.
    assert sum(len(table.rows) for table in tables) == sum(
        line.startswith(("naive ", "jk", "mlap", "my-own")) for line in text.split("\n")
    )


def test_no_verdict_on_another_recipe() -> None:
    runs = cell("naive", SCORES, SCORES, **{"data": "MCF-7", **PROTOCOLS["MCF-7"].recipe, "epochs": 3, "layers": 3})
    comparison = compare(runs)
    assert [row["verdict"] for row in rows(full_table(comparison))] == ["other recipe"]
    assert [row["verdict"] for row in rows(results_table(comparison))] == ["other recipe", None]
