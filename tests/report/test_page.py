from __future__ import annotations

import copy
import csv
import dataclasses
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_pages import HOSTILE, Made, study_by_hand
from run_records import cell, run

from mlap.errors import DataError, UsageError
from mlap.files import aside
from mlap.graphs import Features, GraphSet, Task
from mlap.models import load
from mlap.names import PAPER_ARCHITECTURES
from mlap.paper import PROTOCOLS
from mlap.report.curves import depth_plot, scores_plot
from mlap.report.facts import differences_from_paper, facts, sweep_command, whole_numbers
from mlap.report.networks import MOST_SEEDS, graphs_to_explain, group_by_recipe, kept_models
from mlap.report.page import check_out, headline, runs_table, write_report
from mlap.report.published import published_validation
from mlap.study import Plan, PlanRecord, RunRecord, Study
from mlap.study.compare import compare
from mlap.study.store import BaselineRecord
from mlap.training import Recipe, predict_logits, train


class Reader(HTMLParser):
    """What a page is made of: its tags with their attributes, its headings and its text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.text = ""
        self._inside: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag in ("h2", "script", "style"):
            self._inside.append(tag)
            self.headings += [""] if tag == "h2" else []

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if "h2" in self._inside:
            self.headings[-1] += data
        if not {"script", "style"} & set(self._inside):
            self.text += data


def words(reader: Reader) -> str:
    return " ".join(reader.text.split())


@pytest.fixture(scope="module")
def reader(report: Made) -> Reader:
    return Reader(report.written.page)


@pytest.fixture(scope="module")
def records(report: Made) -> list[RunRecord]:
    with Study.open(report.study) as study:
        return study.runs()


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def nothing(run: object) -> Any:
    raise AssertionError("there is nothing to look into")


# ---- the page of a real study ----------------------------------------------------------------------------------------


def test_the_questions_come_in_order(reader: Reader) -> None:
    assert reader.headings == [
        *("What was run", "Who won", "How depth matters", "What each level knows", "What it looks at", "All tables"),
    ]


def test_the_page_needs_nothing_from_elsewhere(reader: Reader) -> None:
    for tag, attributes in reader.tags:
        for name in ("src", "srcset", "data", "poster", "action"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
        target = attributes.get("href") or "#"
        assert target.startswith("#") or "download" in attributes or (tag == "link" and target == "data:,")
    assert [attributes["rel"] for tag, attributes in reader.tags if tag == "link"] == ["icon"]
    assert all(attributes.get("alt") for tag, attributes in reader.tags if tag == "img")


def test_what_was_run(reader: Reader, report: Made, records: list[RunRecord]) -> None:
    text = words(reader)
    done = [run for run in records if run.status == "done"]
    assert (len(done), len(records)) == (23, 24)
    assert report.graphs.fingerprint in text
    assert "23 done, 1 failed" in text
    seconds = sum(run.seconds or 0 for run in done)
    assert f"{seconds:.1f} core-seconds of training" in text
    assert done[0].versions
    assert all(f"{package} {version}" in text for package, version in done[0].versions.items())
    assert "Reduced or changed against the paper." in text
    assert "23 trained networks; the paper trained 4,200 on this data set" in text
    assert "depth 1, 2; the paper has 1–10" in text
    assert "width 8 (paper 200); epochs 2 (paper 65)" in text
    assert "too few to conclude" in text


def test_every_figure_is_there_as_svg_png_and_csv(report: Made) -> None:
    folder = report.written.page.parent / "figures"
    inside = "mlap-weighted-L2-none"
    names = {figure.relative_to(folder).as_posix() for figure in report.written.figures}
    assert {"depth", "scores", *(f"{inside}/{name}" for name in ("probe", "probe-types", "smoothing"))} < names
    assert {f"{inside}/weights", f"{inside}/tsne"} < names
    assert any(name.startswith(f"{inside}/graph-") for name in names)
    for figure in report.written.figures:
        svg, png, data = (figure.with_name(f"{figure.name}.{kind}") for kind in ("svg", "png", "csv"))
        texts = ["".join(text.itertext()) for text in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
        assert texts, "text stays text"
        assert png.read_bytes().startswith(b"\x89PNG")
        assert rows_of(data)
    depth = (folder / "depth.svg").read_text(encoding="utf-8")
    assert ">layers L<" in depth
    assert "error rate, lower is better<" in depth


def test_the_data_of_the_depth_figure(report: Made, records: list[RunRecord]) -> None:
    rows = rows_of(report.written.page.parent / "figures" / "depth.csv")
    ours = [row for row in rows if row["source"] == "ours"]
    assert len(ours) == 3 * 2 * 2
    for row in ours:
        scores = [
            run.valid_score or 0.0
            for run in records
            if run.status == "done"
            and (run.architecture, run.norm, str(run.layers)) == (row["architecture"], row["norm"], row["layers"])
        ]
        assert float(row["mean"]) == pytest.approx(statistics.mean(scores))
        if len(scores) > 1:
            error = statistics.stdev(scores) / math.sqrt(len(scores))
            assert float(row["standard_error"]) == pytest.approx(error, abs=1e-12)
        else:
            assert row["standard_error"] == ""
    paper = {
        (row["architecture"], row["norm"], int(row["layers"])): float(row["mean"])
        for row in rows
        if row["source"] == "paper"
    }
    assert len(paper) == 3 * 2 * 10
    for published in published_validation("synthetic") or ():
        key = published.architecture, published.norm, published.layers
        assert key not in paper or paper[key] == published.valid.mean


def test_the_table_of_all_runs(report: Made, records: list[RunRecord]) -> None:
    rows = rows_of(report.written.page.parent / "tables" / "runs.csv")
    assert [row["hash"] for row in rows] == [run.hash for run in records]
    for row, record in zip(rows, records, strict=True):
        assert row["test_score"] == ("" if record.test_score is None else repr(record.test_score))
    assert [row["error"] for row in rows if row["error"]] == ["out of memory"]


def test_the_deepest_kept_networks_without_normalisation_are_looked_into(
    report: Made, records: list[RunRecord], reader: Reader
) -> None:
    folder = report.study.with_name("study.db.runs")
    expected = [
        folder / run.hash for run in records if (run.architecture, run.layers, run.norm) == ("mlap-weighted", 2, "none")
    ]
    assert list(report.written.looked_into) == expected
    assert "mlap-weighted, 2 layers, without normalisation, seeds 0, 1" in words(reader)
    assert "The paper finds the peripheral type decided in low levels" in words(reader)


def test_the_same_study_gives_the_same_page(report: Made, tmp_path: Path) -> None:
    def made() -> bytes:
        return write_report(report.study, tmp_path, load_data=nothing, models=False).page.read_bytes()

    first = made()
    assert made() == first  # over the first one
    assert b"Left out (<code>--no-models</code>)." in first


def test_runs_on_other_data_come_with_a_warning(report: Made, tmp_path: Path) -> None:
    other = dataclasses.replace(report.graphs, y=report.graphs.y[::-1].copy())  # type: ignore[index]
    recipe = Recipe(architecture="naive", layers=1, width=4, epochs=1)
    for width in (4, 5):
        train(recipe.replace(width=width), other, tmp_path / f"run{width}")
    written = write_report(
        *(report.study, tmp_path / "out", [tmp_path / "run4", tmp_path / "run5"]),
        load_data=lambda run: other,
        max_mapped=0,
    )
    text = words(Reader(written.page))
    assert text.count(f"trained on other data than the study's, synthetic with fingerprint {other.fingerprint}") == 2
    assert "One network only" in text
    folders = {figure.parent.name for figure in written.figures}
    assert folders == {"figures", "naive-L1-graph", "naive-L1-graph-2"}  # widths 4 and 5 do not share files


# ---- what users can do wrong -----------------------------------------------------------------------------------------


def test_without_networks_the_page_says_how_to_get_them(tmp_path: Path) -> None:
    study_by_hand(tmp_path / "study.db")
    written = write_report(tmp_path / "study.db", tmp_path / "out", load_data=nothing)
    reader = Reader(written.page)
    assert words(reader).count("mlap sweep … --keep-models") == 2
    assert "is not a data set of the paper" in words(reader)
    assert "9.0 core-hours of training" in words(reader)
    assert HOSTILE in words(reader)
    assert [tag for tag, attributes in reader.tags if "onerror" in attributes or attributes.get("src") == "x"] == []
    assert len([tag for tag, _ in reader.tags if tag == "script"]) == 1


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    check_out(mine)  # empty
    (mine / "index.html").write_text("<!doctype html><title>my page</title>")
    with pytest.raises(UsageError, match="holds something else than a report"):
        check_out(mine)
    with pytest.raises(UsageError, match="must be a folder"):
        check_out(mine / "index.html")
    with pytest.raises(UsageError, match="cannot write to"):
        check_out(mine / "index.html" / "below")


def test_a_report_that_was_killed_as_it_began_can_be_written_again(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    half = aside(tmp_path / "index.html")
    half = half.with_name(half.name.replace(f".{os.getpid()}-", f".{dead.pid}-"))
    half.write_text("<!doc")
    check_out(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_study_without_results_writes_nothing(tmp_path: Path) -> None:
    Study.create(tmp_path / "empty.db").close()
    with pytest.raises(DataError, match="has no runs yet"):
        write_report(tmp_path / "empty.db", tmp_path / "out", load_data=nothing)
    with pytest.raises(UsageError, match="there is no study"):
        write_report(tmp_path / "none.db", tmp_path / "out", load_data=nothing)
    assert not (tmp_path / "out").exists()


def test_an_interrupted_report_can_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study_by_hand(tmp_path / "study.db")
    with monkeypatch.context() as patched:
        patched.setattr("mlap.report.page.runs_table", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_report(tmp_path / "study.db", tmp_path / "out", load_data=nothing)
    assert "not finished" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    write_report(tmp_path / "study.db", tmp_path / "out", load_data=nothing)
    assert "not finished" not in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def interrupt(_: object) -> None:
    raise KeyboardInterrupt


# ---- commands and protocol -------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 60), min_size=1, unique=True))
def test_whole_numbers_are_read_back_as_they_were(values: list[int]) -> None:
    assert Plan.of("synthetic", layers=whole_numbers(values)).axes["layers"] == tuple(values)


@pytest.mark.parametrize(
    ("data", "plan"),
    [
        ("synthetic", Plan.of("synthetic", "paper")),
        ("synthetic", Plan.of("synthetic", "quick", seed="0-4")),
        ("ogbg-molhiv", Plan.of("ogbg-molhiv", architecture="paper", layers="1,3-5", norm="none", lr="0.1,1e-5")),
        ("mine", Plan.of("mine", norm="none,graph,batch", residual="true,false", seed="7")),
    ],
)
def test_the_command_asks_for_the_same_plan(data: str, plan: Plan) -> None:
    record = PlanRecord(plan.name, {name: list(values) for name, values in plan.axes.items()}, "f", "2026-01-01")
    options = {"smiles": "a column", "targets": ["x", "y"], "on_invalid": "skip"}
    example = dataclasses.replace(run("naive", 0.5, data=data), source="my data.csv", options=options)
    command = shlex.split(" ".join(sweep_command(record, example, "s.db")))
    assert command[:5] == ["mlap", "sweep", "my data.csv", "--study", "s.db"]
    pairs = list(zip(command[5::2], command[6::2], strict=True))
    assert pairs[-4:] == [
        *(("--smiles-column", "a column"), ("--target", "x"), ("--target", "y"), ("--invalid", "skip")),
    ]
    norms = {"on": "graph", "off": "none", "both": "none,graph"}
    fields: dict[str, str] = {}
    named = None
    for option, value in pairs[:-4]:
        if option == "--plan":
            named = value
        elif option == "--set":
            field, _, value = value.partition("=")
            fields[field] = value
        else:
            field = {"--architectures": "architecture", "--graph-norm": "norm", "--seeds": "seed"}.get(option, "layers")
            fields[field] = norms.get(value, value)
    assert Plan.of(data, named, **fields).axes == plan.axes


def test_a_command_says_what_only_python_can_ask_for() -> None:
    record = PlanRecord("custom", {"layers": [1]}, "f", "2026-01-01")
    example = dataclasses.replace(run("naive", 0.5, data="synthetic"), options={"graphs_per_class": 6, "split_seed": 1})
    *command, last = sweep_command(record, example, "s.db")
    assert command[-1] == "--split-seed 1"
    assert last == "# from Python, with graphs_per_class=6"


def test_facts_of_several_devices_and_versions() -> None:
    records = [
        dataclasses.replace(record, seconds=1800.0, device=device, versions={"torch": version}, host="here")
        for record, device, version in zip(
            cell("naive", [0.5, 0.6, 0.7]), ("cpu", "cuda", "cpu"), ("2.6", "2.6", "2.7"), strict=True
        )
    ]
    found = facts([*records, run("naive", None, status="failed", seed=9)], [], "study.db")
    assert found.hours == {"cpu": 1.0, "cuda": 0.5}
    assert found.versions == {"torch": ("2.6", "2.7")}
    assert (found.seeds, found.states, found.hosts) == ((0, 1, 2), {"done": 3, "failed": 1}, ("here",))


def protocol(seeds: int, **changes: Any) -> list[RunRecord]:
    """The paper's whole grid on its synthetic set, with some fields changed."""
    fields = {**PROTOCOLS["synthetic"].recipe, **changes}
    return [
        record
        for architecture in PAPER_ARCHITECTURES
        for norm in ("none", "graph")
        for layers in range(1, 11)
        for record in cell(
            *(architecture, [0.5] * seeds), data="synthetic", higher_is_better=False, norm=norm, layers=layers, **fields
        )
    ]


def test_differences_from_the_paper() -> None:
    assert differences_from_paper(compare(protocol(30))) == []
    assert differences_from_paper(compare(protocol(2))) == [
        "280 trained networks; the paper trained 4,200 on this data set",
        "2 seeds for each mean; the paper has 30",
    ]
    (recipe,) = differences_from_paper(compare(protocol(30, epochs=20))) or ()
    assert "epochs 20 (paper 65)" in recipe
    few = [record for record in protocol(30) if record.norm == "graph" and record.layers in (1, 2, 3, 5)]
    few = [record for record in few if not record.architecture.startswith("jk")]
    assert (differences_from_paper(compare(few)) or [])[1:] == [
        *("no jk-sum, jk-concat, jk-max, jk-lstm", "depth 1–3, 5; the paper has 1–10", "no networks without GraphNorm"),
    ]
    assert differences_from_paper(compare(cell("naive", [0.5]))) is None


# ---- sentences -------------------------------------------------------------------------------------------------------


def sentences(*runs: list[RunRecord]) -> list[str]:
    return list(headline(compare([record for group in runs for record in group])))


def test_the_headline() -> None:
    low, high = [0.50 + 0.01 * i for i in range(10)], [0.70 + 0.01 * i for i in range(10)]
    first, second = sentences(cell("naive", low, low), cell("mlap-sum", high, high))
    assert first.startswith("mlap-sum, 5 layers, with GraphNorm has the best mean test ROC-AUC: 0.7450 ± ")
    assert first.endswith("over 10 seeds.")
    assert second.startswith("mlap against naive: significantly better (two-sided p <0.001, effect size r = 0.8")
    assert "significantly worse" in sentences(cell("naive", high, high), cell("mlap-sum", low, low))[1]
    mixed = [value - 0.2 if i % 2 else value for i, value in enumerate(high)]
    assert "no significant difference" in sentences(cell("naive", low, mixed), cell("mlap-sum", low, mixed[::-1]))[1]
    assert sentences(cell("naive", low[:1], low[:1]), cell("mlap-sum", high[:1], high[:1]))[0].endswith("over 1 seed.")
    assert "too few seeds" in sentences(cell("naive", low[:3], low[:3]), cell("mlap-sum", high[:3], high[:3]))[1]
    (tie,) = sentences(cell("naive", low, low), cell("jk-sum", low, low))
    assert tie.startswith("A tie.")
    assert sentences(cell("naive", low), cell("mlap-sum", high)) == [
        "No selected model has a test score, so nobody won."
    ]
    assert sentences(cell("naive", low, low))[0].startswith("Only one family has a test score.")


def test_one_sided_significance_is_called_so() -> None:
    naive = [float(value) for value in range(10)]
    for shift in range(40):
        mlap = [value + 0.25 * shift for value in naive]
        comparison = compare([*cell("naive", naive, naive), *cell("mlap-sum", naive, mlap)])
        outcome = comparison.contrasts[0].outcome
        assert outcome is not None
        if outcome.p_one_sided < 0.05 <= outcome.p_two_sided:
            assert "significant only one-sided" in list(headline(comparison))[1]
            return
    raise AssertionError("no shift lies between the two")


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_figures_of_unusual_studies() -> None:
    own = [
        *cell("my-own", [0.5, 0.6], norm="batch", layers=1),
        *cell("my-own", [0.5, 0.6], norm="layer", layers=40),
        *cell("naive", [0.5, 0.6], norm="none", layers=1),
        *cell("naive", [0.8, 0.9], norm="none", layers=1, lr=0.1),
    ]
    comparison = compare(own)
    assert scores_plot(comparison) is None
    rows = depth_plot(comparison).rows
    assert [(row["architecture"], row["norm"], row["layers"]) for row in rows] == [
        *(("naive", "none", 1), ("my-own", "batch", 1), ("my-own", "layer", 40)),
    ]
    assert rows[0]["mean"] == pytest.approx(0.85)  # the better learning rate
    keys = [column.key for column in runs_table(own).columns]
    assert "lr" in keys
    assert "width" not in keys


def test_points_of_the_scores_figure() -> None:
    plot = scores_plot(compare([*cell("naive", [0.5, 0.6], [0.4, 0.7]), *cell("mlap-sum", [0.9], [0.8])]))
    assert plot is not None
    assert [(row["architecture"], row["score"], row["mean"]) for row in plot.rows] == [
        ("naive", 0.4, pytest.approx(0.55)),
        ("naive", 0.7, pytest.approx(0.55)),
        ("mlap-sum", 0.8, 0.8),
    ]


def fitted(name: str, seed: int, valid: float, test: float, beside: RunRecord) -> BaselineRecord:
    """A baseline on the data of a run."""
    data = (beside.data_name, beside.fingerprint, beside.metric, beside.higher_is_better)
    return BaselineRecord(f"{name}{seed}", name, seed, *data, "done", valid_score=valid, test_score=test)


@pytest.mark.parametrize("metric", ["rocauc", "rmse"])
def test_baselines_stand_in_the_scores_figure_and_the_best_mean_is_marked(metric: str) -> None:
    higher = metric == "rocauc"
    runs = [
        dataclasses.replace(each, metric=metric, higher_is_better=higher)
        for each in (*cell("naive", [0.5, 0.6], [0.4, 0.7]), *cell("mlap-sum", [0.9, 0.9], [0.6, 0.8]))
    ]
    simple = [
        fitted("rf-morgan", 0, 0.8, 0.95, runs[0]),
        fitted("rf-morgan", 1, 0.8, 0.85, runs[0]),
        fitted("wl-linear", 0, 0.7, 0.3, runs[0]),
    ]
    plot = scores_plot(compare(runs, baselines=simple))
    assert plot is not None
    found = {(row["source"], row["architecture"], row["score"]) for row in plot.rows}
    assert {row for row in found if row[0] == "baseline"} == {
        ("baseline", "rf-morgan", 0.95),
        ("baseline", "rf-morgan", 0.85),
        ("baseline", "wl-linear", 0.3),
    }
    axes = plot.figure.axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert [label.splitlines()[0] for label in labels[:2]] == ["naive", "mlap-sum"]
    assert {label.splitlines()[0] for label in labels[2:]} == {"rf-morgan", "wl-linear"}
    (best,) = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"]
    assert best == pytest.approx(0.9 if higher else 0.3)


def test_a_users_own_architectures_have_a_line_of_their_own() -> None:
    """However many architectures there are, ours or theirs, no two lines look the same, and ours always the same."""
    own = sorted(f"my-{number}" for number in range(30))
    names = ["naive", "mlap-sum", *own]
    runs = [run for name in names for layers in (1, 2) for run in cell(name, [0.5, 0.6], [0.5, 0.6], layers=layers)]
    figure = depth_plot(compare(runs)).figure
    legend = {entry.get_label(): (entry.get_color(), entry.get_marker()) for entry in figure.legends[0].legend_handles}
    assert list(legend) == names
    assert len(set(legend.values())) == len(names)
    few = depth_plot(compare(cell("mlap-sum", [0.5], [0.5]))).figure.legends[0].legend_handles[0]
    assert (few.get_color(), few.get_marker()) == legend["mlap-sum"]
    assert scores_plot(compare(runs)) is not None


# ---- which networks and graphs are looked at -------------------------------------------------------------------------


def test_kept_models(tmp_path: Path) -> None:
    study = tmp_path / "s.db"
    seeds = [0.5] * (MOST_SEEDS + 2)
    deep = cell("mlap-sum", seeds, layers=4, norm="graph")
    chosen = cell("mlap-sum", seeds, layers=3, norm="none")
    others = [
        *cell("naive", seeds, layers=9, norm="none"),
        *cell("mlap-sum", seeds, layers=2, norm="none"),
        *cell("mlap-weighted", seeds, layers=9, norm="none"),
    ]
    assert kept_models(study, [*deep, *chosen, *others]) == []  # none was kept
    for record in [*deep, *chosen, *others[: 2 * len(seeds)]]:
        folder = tmp_path / "s.db.runs" / record.hash
        folder.mkdir(parents=True)
        (folder / "model.safetensors").touch()
    paths = kept_models(study, [*deep, *chosen[::-1], *others])
    assert [path.name for path in paths] == [record.hash for record in chosen[:MOST_SEEDS]]


def test_alike(report: Made) -> None:
    first, second = (load(path) for path in report.written.looked_into)
    other = copy.copy(first)
    other.recipe = first.recipe.replace(width=9)
    assert [[run.recipe.seed for run in group] for group in group_by_recipe([first, other, second])] == [[0, 1], [0]]


def binary_graphs() -> GraphSet:
    """Paths of 2 to 5 nodes with two targets: are there more than 3 nodes, and something that is never known."""
    sizes = np.tile(np.arange(2, 6), 10)
    edges = np.concatenate([np.stack([np.arange(size - 1), np.arange(1, size)]) for size in sizes], axis=1)
    y = np.stack([(sizes > 3).astype(np.float32), np.full(len(sizes), np.nan, np.float32)], axis=1)
    y[5, 0] = np.nan
    everything = np.arange(len(sizes))
    return GraphSet(
        node_ptr=np.concatenate([[0], np.cumsum(sizes)]),
        edge_ptr=np.concatenate([[0], np.cumsum(sizes - 1)]),
        edges=edges,
        y=y,
        task=Task("binary", 2, "accuracy"),
        splits={"train": everything, "valid": everything, "test": everything},
        name="paths",
    )


def test_the_explained_graphs_are_what_is_said_of_them(tmp_path: Path) -> None:
    graphs = binary_graphs()
    train(Recipe(architecture="mlap-sum", layers=1, width=4, epochs=1), graphs, tmp_path / "run")
    trained = load(tmp_path / "run")
    chosen = list(graphs_to_explain(trained, graphs))
    logits = predict_logits(trained.network, graphs, np.array([graph for graph, _ in chosen])).numpy()[:, 0]
    assert graphs.y is not None
    assert 0 < len(chosen) <= 4
    for (graph, why), logit in zip(chosen, logits, strict=True):
        truth = graphs.y[graph, 0]
        assert why.startswith("positive" if truth else "negative")
        assert ("rightly" in why) == ((logit > 0) == bool(truth))


def test_the_explained_graphs_of_a_regression(tmp_path: Path) -> None:
    graphs = binary_graphs()
    assert graphs.y is not None
    graphs = dataclasses.replace(
        graphs, y=np.nan_to_num(graphs.y), task=Task("regression", 2, "rmse"), node_features=Features(np.ones((140, 1)))
    )
    train(Recipe(architecture="naive", layers=1, width=4, epochs=1), graphs, tmp_path / "run")
    chosen = list(graphs_to_explain(load(tmp_path / "run"), graphs))
    assert [graph for graph, _ in chosen] == [0, 1, 2, 3]


def test_this_reader_reads(tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text("<h2>One</h2><script>var h2 = '<p>'</script><p>a &lt;b&gt;</p><h2>Two</h2>")
    reader = Reader(tmp_path / "x.html")
    assert reader.headings == ["One", "Two"]
    assert re.sub(r"\s+", " ", reader.text) == "Onea <b>Two"
