from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.text import Text
from small import random_graphs, small_network

from mlap.analysis import Maps, ProbeScores, Smoothing, layer_weights, summarise_probes
from mlap.analysis.figures import maps_plot, probe_plot, smoothing_plot, weights_plot
from mlap.analysis.pictures import explanation_plot
from mlap.analysis.sketch import sketch
from mlap.files import csv_text
from mlap.graphs import Task, synthetic
from mlap.graphs.molecules import molecules
from mlap.models import explain
from mlap.nn import graph_network
from mlap.plotting import DIVERGING, NARROW, WIDE, Plot, save_plot

TASK = Task("multiclass", 9, "error_rate")


def rows_of(levels: int, runs: int) -> list:  # type: ignore[type-arg]
    rng = np.random.default_rng(levels)
    scores = [ProbeScores(rng.random(levels + 1), rng.random(levels + 1)) for _ in range(runs)]
    names = (*map(str, range(1, levels + 1)), "aggregate")
    return summarise_probes(scores, names, higher_is_better=False)


def some_maps(graphs: int, drawn_from: int, num_maps: int) -> Maps:
    points = np.random.default_rng(0).normal(size=(num_maps, graphs, 2)).astype(np.float32)
    names = (*map(str, range(1, num_maps)), "aggregate")
    return Maps(points, np.arange(graphs), drawn_from, names)


def smooth(levels: int) -> Smoothing:
    return Smoothing(*np.random.default_rng(levels).random((3, levels)), num_graphs=7)


def explained(architecture: str, levels: int) -> Plot:
    graphs = random_graphs([9], density=0.3, directed=True)
    (one,) = explain(small_network(architecture, levels, 3).float(), graphs, [0])
    return explanation_plot(one, sketch(graphs, 0), 1, "small 0: P(class 1) = 0.500\nlogit +1.00 = bias and shares")


PCBA = Task("binary", 2, "rocauc")
PPA = Task("multiclass", 37, "accuracy", tuple(f"species {number}" for number in range(37)))
VALUE = Task("regression", 1, "rmse", ("solubility",))

CASES: dict[str, Callable[[], Plot]] = {
    "probe": lambda: probe_plot({"class": rows_of(10, 3)}, TASK),
    "probe, one run, no levels": lambda: probe_plot({"label": rows_of(0, 1)}, TASK),
    "types": lambda: probe_plot({"centre type": rows_of(10, 2), "peripheral type": rows_of(10, 2)}, TASK),
    "weights": lambda: weights_plot(np.random.default_rng(0).dirichlet([5] * 10, 30)),
    "weights, one run": lambda: weights_plot(np.full((1, 2), 0.5)),
    "smoothing": lambda: smoothing_plot([smooth(4), smooth(4)], rows_of(4, 2), TASK),
    "maps, synthetic": lambda: maps_plot(some_maps(18, 18, 6), synthetic(graphs_per_class=2), "seed 0"),
    "maps, binary": lambda: maps_plot(some_maps(30, 30, 2), random_graphs([2] * 30, task=PCBA), "seed 0"),
    "maps, one panel": lambda: maps_plot(some_maps(1000, 3918, 1), random_graphs([1] * 1000, task=PCBA), "seed 0"),
    "maps, 37 classes": lambda: maps_plot(some_maps(40, 50, 3), random_graphs([2] * 50, task=PPA), "seed 0"),
    "maps, values": lambda: maps_plot(some_maps(40, 40, 1), random_graphs([2] * 40, task=VALUE), "seed 0"),
    "explanation": lambda: explained("mlap-sum", 10),
    "explanation, one panel": lambda: explained("naive", 2),
}


@pytest.fixture(scope="module")
def plots() -> dict[str, Plot]:
    return {name: make() for name, make in CASES.items()}


def test_sizes_of_print_and_letters_that_can_be_read(plots: dict[str, Plot]) -> None:
    for name, plot in plots.items():
        assert plot.figure.get_figwidth() in (NARROW, WIDE), name
        for text in plot.figure.findobj(Text):
            assert isinstance(text, Text)
            assert text.get_fontsize() >= 7, (name, text)
        plot.figure.draw_without_rendering()
        drawn = plot.figure.get_tightbbox()  # what there is to see must lie on the page
        assert drawn.min.min() >= -0.01, name
        assert (drawn.max <= plot.figure.get_size_inches() + 0.01).all(), name


@pytest.mark.parametrize("name", ["probe", "explanation, one panel"])
def test_files_are_whole_and_the_same_every_time(name: str, tmp_path: Path) -> None:
    plot = CASES[name]()
    svg, png, table = save_plot(plot, tmp_path / "new" / "1.5")
    assert [path.name for path in (svg, png, table)] == ["1.5.svg", "1.5.png", "1.5.csv"]
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(plot.rows)
    again = save_plot(CASES[name](), tmp_path / "again" / "1.5")
    for first, second in zip((svg, png, table), again, strict=True):
        assert first.read_bytes() == second.read_bytes(), f"{name}: {first.suffix}"


def test_the_table_of_a_probe_has_all_digits(plots: dict[str, Plot]) -> None:
    rows = rows_of(10, 3)
    written = list(csv.DictReader(csv_text(plots["probe"].rows).splitlines()))
    assert [row["level"] for row in written] == [*map(str, range(1, 11)), "aggregate"]
    for row, expected in zip(written, rows, strict=True):
        assert float(row["test"]) == expected.test.mean
        assert float(row["train_standard_error"]) == expected.train.standard_error
        assert row["runs"] == "3"
    assert written[-1]["p_one_sided_corrected"] == ""


def test_labels_are_honest(plots: dict[str, Plot]) -> None:
    def texts(name: str) -> str:
        return " | ".join(text.get_text() for text in plots[name].figure.findobj(Text))  # type: ignore[attr-defined]

    assert "mean ± s.e. of 3 runs" in texts("probe")
    assert "lower is better" in texts("probe")
    assert "1 run" in texts("probe, one run, no levels")
    assert "30 runs, a line each" in texts("weights")
    assert "t-SNE of all 18 graphs, seed 0" in texts("maps, synthetic")
    assert "t-SNE of 40, drawn at random, of 50 graphs" in texts("maps, 37 classes")
    assert "share of the logit" in texts("explanation")


def test_the_line_of_equal_weights(plots: dict[str, Plot]) -> None:
    axes = plots["weights"].figure.axes[0]
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 1
    assert {*np.ravel(dashed[0].get_ydata())} == {0.1}
    assert len(axes.lines) == 31


def test_colours_of_maps_are_the_papers(plots: dict[str, Plot]) -> None:
    colours = {
        tuple(np.round(handle.get_color() if isinstance(handle.get_color(), tuple) else to_rgba(handle.get_color()), 3))
        for handle in plots["maps, synthetic"].figure.legends[0].legend_handles
    }
    assert len(colours) == 9
    names = [text.get_text() for text in plots["maps, binary"].figure.legends[0].texts]
    assert names == ["negative", "positive", "unknown"]
    black = plots["maps, binary"].figure.legends[0].legend_handles[1]
    assert to_rgba(black.get_color()) == (0, 0, 0, 1)
    assert len(plots["maps, 37 classes"].figure.legends[0].texts) == 37


def test_nodes_have_the_colours_of_their_shares() -> None:
    graphs = molecules(["CC(=O)Nc1ccc(O)cc1"]).graphs
    assert graphs.node_features is not None
    assert graphs.edge_features is not None
    network = graph_network(
        "mlap-sum",
        num_layers=2,
        channels=4,
        out_channels=1,
        nodes=graphs.node_features.cardinalities,
        edges=graphs.edge_features.cardinalities,
    )
    (one,) = explain(network, graphs, [0])
    assert one.shares is not None
    figure = explanation_plot(one, sketch(graphs, 0), 0, "paracetamol").figure
    panels = figure.axes[:3]
    assert [axes.get_title().split(":")[0] for axes in panels] == ["level 1", "level 2", "all levels"]
    shown = [*one.shares[:, :, 0].T, one.shares[:, :, 0].sum(1)]
    largest = max(np.abs(values).max() for values in shown)
    for axes, values in zip(panels, shown, strict=True):
        expected = DIVERGING((values + largest) / (2 * largest))
        np.testing.assert_allclose(axes.collections[0].get_facecolor(), expected, atol=1e-6)
    assert {row["element"] for row in explanation_plot(one, sketch(graphs, 0), 0, "").rows} == {"C", "N", "O"}


def test_layer_weights() -> None:
    for architecture in ("mlap-weighted", "jk-weighted"):
        network = small_network(architecture, 4, 1)
        weights = layer_weights(network)
        assert weights is not None
        join = network.readout.join
        scores = join.scores.detach().numpy()
        np.testing.assert_allclose(weights, np.exp(scores) / np.exp(scores).sum())
    assert layer_weights(small_network("mlap-sum", 4, 1)) is None
    assert layer_weights(small_network("naive", 4, 1)) is None
