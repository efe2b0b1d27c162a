"""The figures of `mlap probe`: what each level knows, what it weighs, how smooth it is, and how it maps the graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from mlap import plotting
from mlap.analysis.embedding import Maps
from mlap.analysis.probe import ProbeRow, component_types
from mlap.analysis.smoothing import Smoothing
from mlap.graphs import GraphSet, Task
from mlap.plotting import Plot
from mlap.statistics import Summary, summarise

#: name of a field of `Smoothing` → how to call it
MEASURES = {
    "neighbours": "distance of neighbours",
    "all_nodes": "distance of all nodes",
    "dirichlet": "relative Dirichlet energy",
}


def probe_plot(tables: Mapping[str, Sequence[ProbeRow]], task: Task) -> Plot:
    """Train and test score of the layer-wise classifiers, a panel for each question, with standard errors over runs."""
    with plotting.styled():
        figure = plotting.new_figure(plotting.NARROW if len(tables) == 1 else plotting.WIDE, 2.6)
        panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
        for axes, (question, rows) in zip(panels, tables.items(), strict=True):
            draw_probe(axes, rows)
            axes.set_title(f"{question}, {_runs(rows[0].test.n)}")
        panels[0].set_ylabel(f"{task.metric_label} ({'higher' if task.higher_is_better else 'lower'} is better)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return Plot(figure, [probe_row(question, row) for question, rows in tables.items() for row in rows])


def draw_probe(axes: Axes, rows: Sequence[ProbeRow]) -> None:
    """Draw one table of probes: the levels as a line, the aggregate a little apart."""
    places = np.arange(1.0, len(rows) + 1)
    places[-1] += 0.5 if len(rows) > 1 else 0
    # The two are drawn a little apart, so that neither hides the other's error bars.
    styles = (("train", "test"), (plotting.ORANGE, plotting.BLUE), ("s", "o"), ("white", plotting.BLUE), (-0.06, 0.06))
    for part, colour, marker, face, aside in zip(*styles, strict=True):
        found = [getattr(row, part) for row in rows]
        for chosen, line in ((slice(0, -1), "-"), (slice(-1, None), "none")):
            axes.errorbar(
                places[chosen] + aside,
                [summary.mean for summary in found][chosen],
                _errors(found[chosen]),
                color=colour,
                marker=marker,
                markerfacecolor=face,
                linestyle=line,
                label=f"{part} graphs" if line == "none" else None,
            )
    axes.set_xticks(places, [*(row.level for row in rows[:-1]), "aggregate"])
    axes.set_xlim(0.5, places[-1] + 0.5)
    if len(rows) > 1:
        axes.axvline(places[-1] - 0.75, color=plotting.GREY, linewidth=0.6, linestyle=":")
        axes.set_xlabel("level")


def weights_plot(weights: NDArray[np.float64], levels: Sequence[int] = ()) -> Plot:
    """The layer weights `(runs, L)`, a line for each run, and the dashed line 1 / L of equal weights.

    Args:
        weights: the weights.
        levels: the numbers of the levels; 1 to L unless given.
    """
    levels = levels or range(1, weights.shape[1] + 1)
    with plotting.styled():
        figure = plotting.new_figure(plotting.NARROW, 2.4)
        axes = figure.subplots()
        many = len(weights) > len(plotting.COLOURS)
        for number, run in enumerate(weights):
            colour = plotting.BLUE if many else plotting.COLOURS[number]
            axes.plot(levels, run, marker="o", markersize=3, color=colour, alpha=0.5 if many else 1)
        axes.axhline(1 / len(levels), color=plotting.BLACK, linestyle="--", linewidth=1)
        axes.text(1.01, 1 / len(levels), "1 / L", transform=axes.get_yaxis_transform(), va="center", fontsize=7)
        axes.set_xticks(levels)
        axes.set_xlabel("level")
        axes.set_ylabel("weight")
        axes.set_title(
            "layer weights of 1 run" if len(weights) == 1 else f"layer weights, {len(weights)} runs, a line each"
        )
        axes.set_ylim(0, 1.1 * weights.max())
    rows = [
        {"run": number, "level": int(level), "weight": float(weight)}
        for number, run in enumerate(weights)
        for level, weight in zip(levels, run, strict=True)
    ]
    return Plot(figure, rows)


def smoothing_plot(runs: Sequence[Smoothing], table: Sequence[ProbeRow], task: Task) -> Plot:
    """How alike the nodes of a graph are at each level, beside what the level-wise classifiers make of it."""
    found = {
        measure: [_summary(values) for values in zip(*(getattr(run, measure) for run in runs), strict=True)]
        for measure in MEASURES
    }
    levels = np.arange(1, len(found["neighbours"]) + 1)
    with plotting.styled():
        figure = plotting.new_figure(plotting.WIDE, 2.5)
        left, middle, right = figure.subplots(1, 3)
        draw_probe(left, table)
        left.set_title("layer-wise classifiers")
        left.set_ylabel(task.metric_label)
        left.legend()
        for number, (measure, label) in enumerate(MEASURES.items()):
            axes = right if measure == "dirichlet" else middle
            axes.errorbar(
                levels,
                [summary.mean for summary in found[measure]],
                _errors(found[measure]),
                color=plotting.COLOURS[number],
                marker=plotting.MARKERS[number],
                label=label,
            )
        for axes, title, quantity in (
            (middle, "nodes of a graph", "mean cosine distance"),
            (right, "along edges", "relative Dirichlet energy"),
        ):
            axes.set_title(title)
            axes.set_xlabel("level")
            axes.set_xticks(levels)
            axes.set_ylabel(quantity)
            axes.set_ylim(bottom=0)
        middle.legend()
        figure.suptitle(f"{_runs(len(runs))}, {runs[0].num_graphs:,} test graphs; 0: all nodes alike")
    rows = [
        {"level": int(level), "measure": measure, **_summary_row(summary)}
        for measure, summaries in found.items()
        for level, summary in zip(levels, summaries, strict=True)
    ]
    return Plot(figure, rows)


def maps_plot(maps: Maps, graphs: GraphSet, of: str) -> Plot:
    """The t-SNE maps of all levels and the aggregate, coloured by label.

    Args:
        maps: maps of graphs of a set, or of some drawn from it.
        graphs: the set.
        of: which run's representations they show.
    """
    assert graphs.y is not None
    assert graphs.task is not None
    labels = graphs.y[maps.rows]
    labels = labels if labels.ndim == 1 else labels[:, 0]
    columns = min(4, len(maps.names))
    lines = math.ceil(len(maps.names) / columns)
    width = plotting.WIDE if columns > 2 else plotting.NARROW
    handles = _legend(graphs, labels)
    legend_columns = _legend_columns(handles, width)
    legend_height = 0.16 * math.ceil(len(handles) / legend_columns) + 0.1
    with plotting.styled():
        figure = plotting.new_figure(width, width / columns * lines + 0.3 + legend_height)
        panels = figure.subplots(lines, columns, squeeze=False).flat
        for axes, name, points in zip(panels, maps.names, maps.points, strict=False):
            _scatter(axes, points, labels, graphs)
            axes.set_title(name if name == "aggregate" else f"level {name}")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(True)
            axes.spines[:].set_color(plotting.GREY)
            axes.set_aspect("equal", "datalim")
        for axes in list(figure.axes)[len(maps.names) :]:
            axes.set_axis_off()
        sample = "all" if len(maps.rows) == maps.num_graphs else f"{len(maps.rows):,}, drawn at random, of"
        end_of_line = ",\n" if width == plotting.NARROW else ", "
        figure.suptitle(f"t-SNE of {sample} {maps.num_graphs:,} graphs{end_of_line}{of}")
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=legend_columns)
        elif graphs.task.kind == "regression":
            figure.colorbar(figure.axes[0].collections[0], ax=figure.axes, label=_target(graphs.task), shrink=0.6)
    rows = [
        {"level": name, "graph": int(graph), "label": _plain(label), "x": float(x), "y": float(y)}
        for name, points in zip(maps.names, maps.points, strict=True)
        for graph, label, (x, y) in zip(maps.rows, labels, points, strict=True)
    ]
    return Plot(figure, rows)


# ---- the colours of labels -------------------------------------------------------------------------------------------


def _label_styles(graphs: GraphSet) -> dict[float, tuple[Any, str, str]]:
    """Label → colour, marker and name, in the order in which they are drawn.

    As in the paper: the hue of a synthetic graph is its centre type (its marker as well, here) and the brightness its
    peripheral type; of two classes the one is grey, the other black.
    """
    task = graphs.task
    assert task is not None
    if task.kind == "regression":
        return {}
    types = component_types(graphs)
    if types is not None and types <= 3:
        hues = (plotting.VERMILION, plotting.GREEN, plotting.BLUE)
        shades = {
            types * centre + peripheral: (_shade(hues[centre], peripheral / (types - 1)), plotting.MARKERS[centre])
            for centre in range(types)
            for peripheral in range(types)
        }
        return {
            label: (*look, f"centre {label // types}, peripheral {label % types}") for label, look in shades.items()
        }
    if task.kind == "binary" or task.num_outputs == 2:
        names = task.names if task.kind == "multiclass" and task.names else ("negative", "positive")
        return {0: ("#B0B0B0", "o", names[0]), 1: (plotting.BLACK, "o", names[1])}
    return {
        label: (
            plotting.COLOURS[label % len(plotting.COLOURS)],
            plotting.MARKERS[label // len(plotting.COLOURS) % len(plotting.MARKERS)],
            task.names[label] if task.names else f"class {label}",
        )
        for label in range(task.num_outputs)
    }


def _shade(colour: str, brightness: float) -> tuple[float, ...]:
    """A hue from dark (0) over itself to light (1)."""
    towards, amount = (0.0, 0.45 - 0.9 * brightness) if brightness < 0.5 else (1.0, 1.3 * (brightness - 0.5))
    return tuple(channel + amount * (towards - channel) for channel in to_rgb(colour))


def _scatter(axes: Axes, points: NDArray[np.float32], labels: NDArray[Any], graphs: GraphSet) -> None:
    size = max(1.0, min(9.0, 4000 / len(points)))
    styles = _label_styles(graphs)
    if not styles:
        axes.scatter(points[:, 0], points[:, 1], c=labels, cmap="cividis", s=size, linewidths=0, rasterized=True)
        return
    if (unknown := np.isnan(labels.astype(np.float64))).any():
        axes.scatter(points[unknown, 0], points[unknown, 1], color=plotting.SKY, s=size, linewidths=0, rasterized=True)
    # In several rounds, so that no class covers the others; but of two classes the second lies on top.
    rounds = 1 if len(styles) == 2 else 4
    for part in range(rounds):
        for label, (colour, marker, _) in styles.items():
            chosen = points[part::rounds][labels[part::rounds] == label]
            if len(chosen):
                axes.scatter(
                    chosen[:, 0], chosen[:, 1], color=colour, marker=marker, s=size, linewidths=0, rasterized=True
                )


def _legend(graphs: GraphSet, labels: NDArray[Any]) -> list[Line2D]:
    styles = _label_styles(graphs)
    if len(styles) > 45:
        return []
    handles = [
        Line2D([], [], linestyle="none", marker=marker, color=colour, label=name)
        for colour, marker, name in styles.values()
    ]
    if styles and np.isnan(labels.astype(np.float64)).any():
        handles.append(Line2D([], [], linestyle="none", marker="o", color=plotting.SKY, label="unknown"))
    return handles


def _legend_columns(handles: Sequence[Line2D], width: float) -> int:
    """How many entries fit side by side; the nine of a synthetic set in columns of three."""
    widest = max((len(str(handle.get_label())) for handle in handles), default=0)
    fitting = max(1, int((width - 0.2) / (0.55 + 0.06 * widest)))
    return min(fitting, 3 if len(handles) <= 9 else len(handles))


def _target(task: Task) -> str:
    return task.names[0] if task.names else "target"


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _summary(values: Sequence[float]) -> Summary:
    """The mean and standard error over runs; a mean of NaN where a measure is undefined."""
    if np.isnan(values).any():
        return Summary(len(values), math.nan, None)
    return summarise(values)


def _errors(summaries: Sequence[Summary]) -> list[float] | None:
    """The lengths of error bars; none for a single run."""
    errors = [summary.standard_error for summary in summaries]
    return None if any(error is None for error in errors) else [error or 0.0 for error in errors]


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"mean ± s.e. of {number} runs"


def _summary_row(summary: Summary) -> dict[str, Any]:
    return {
        "runs": summary.n,
        "mean": None if math.isnan(summary.mean) else summary.mean,
        "standard_error": summary.standard_error,
    }


def probe_row(question: str, row: ProbeRow) -> dict[str, Any]:
    """One representation's scores as plain values."""
    return {
        "question": question,
        "level": row.level,
        "runs": row.test.n,
        "train": row.train.mean,
        "train_standard_error": row.train.standard_error,
        "test": row.test.mean,
        "test_standard_error": row.test.standard_error,
        "p_one_sided_corrected": row.p_one_sided,
        "p_two_sided_corrected": row.p_two_sided,
        "effect_size": None if row.against is None else row.against.r,
    }


def _plain(label: Any) -> Any:
    value = label.item()
    return None if isinstance(value, float) and math.isnan(value) else value
