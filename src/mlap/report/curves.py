"""The figures of a study: how depth matters, and the test scores of selected models, baselines and the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from mlap import plotting
from mlap.paper import PROTOCOLS
from mlap.plotting import Plot
from mlap.report.published import PublishedValidation, published_test, published_validation
from mlap.report.render import NORM
from mlap.report.words import metric_words
from mlap.statistics import Summary
from mlap.study.compare import BaselineCell, Cell, Comparison, best

#: the architectures that we know, each always in its colour: the naive network black, the paper's MLAP in strong ones
_COLOURS = {
    "naive": plotting.BLACK,
    "jk-sum": plotting.GREEN,
    "jk-concat": plotting.ORANGE,
    "jk-max": plotting.SKY,
    "jk-lstm": plotting.PURPLE,
    "mlap-sum": plotting.BLUE,
    "mlap-weighted": plotting.VERMILION,
    "jk-weighted": "#7A7A00",
    "mlap-concat": "#5E3C99",
    "mlap-max": "#8C510A",
    "mlap-lstm": "#01665E",
    "jk-linear": "#C51B7D",
    "mlap-linear": "#4D4D4D",
}
_NORMS = {"none": "without normalisation (−)", "graph": "with GraphNorm (+)"}
_MOST_TICKS = 12
_BASELINE: dict[str, Any] = {"color": plotting.BLACK, "marker": "s", "markerfacecolor": "white"}
_BEST: dict[str, Any] = {"color": plotting.GREY, "linestyle": ":", "linewidth": 1, "zorder": 0}

AnyCell = TypeVar("AnyCell", Cell, PublishedValidation)


def depth_plot(comparison: Comparison) -> Plot:
    """Validation score by depth, a panel for each normalisation and a line for each architecture.

    Error bars are standard errors over seeds. The paper's curves are faint and dashed behind ours. Where the study
    sweeps further fields of the recipe, a point is the best of them.
    """
    ours = _best_cells(comparison)
    norms = list(dict.fromkeys(cell.norm for cell in ours))
    architectures = list(dict.fromkeys(cell.architecture for cell in ours))
    paper = [
        cell
        for cell in published_validation(comparison.data_name) or ()
        if cell.architecture in architectures and cell.norm in norms
    ]
    depths = sorted({cell.layers for cell in ours} | {cell.layers for cell in paper})
    styles = _styles(architectures)
    lines = -(-len(norms) // 2)
    with plotting.styled():
        figure = plotting.new_figure(plotting.WIDE if len(norms) > 1 else plotting.NARROW, 2.7 * lines + 0.5)
        panels = figure.subplots(lines, min(2, len(norms)), sharex=True, sharey=True, squeeze=False)
        for axes, norm in zip(panels.flat, norms, strict=False):
            for number, name in enumerate(architectures):
                _draw_paper(axes, _line(paper, norm, name), styles[name])
                # A little apart, so that no error bar hides another.
                _draw_ours(axes, _line(ours, norm, name), styles[name], 0.04 * (number - (len(architectures) - 1) / 2))
            axes.set_title(_NORMS.get(norm, norm))
            axes.set_xticks(depths[:: -(-len(depths) // _MOST_TICKS)])
        for axes in panels[-1]:
            axes.set_xlabel("layers L")
        for axes in panels[:, 0]:
            axes.set_ylabel(f"validation {metric_words(comparison)}")
        for axes in panels.flat[len(norms) :]:
            axes.set_axis_off()
        handles = [Line2D([], [], color=styles[name][0], marker=styles[name][1], label=name) for name in architectures]
        if paper:
            label = f"paper, {PROTOCOLS[comparison.data_name].seeds} seeds"
            handles.append(Line2D([], [], color=plotting.GREY, linestyle="--", linewidth=1, label=label))
        # Three entries fit below a panel.
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 3 * panels.shape[1]))
    return Plot(figure, [*(_depth_row("ours", cell) for cell in ours), *(_depth_row("paper", cell) for cell in paper)])


def _draw_ours(axes: Axes, line: Sequence[Cell], style: tuple[str, str], aside: float) -> None:
    axes.errorbar(
        [cell.layers + aside for cell in line],
        [cell.valid.mean for cell in line],
        [cell.valid.standard_error or 0.0 for cell in line],
        color=style[0],
        marker=style[1],
        zorder=2,
    )


def _draw_paper(axes: Axes, line: Sequence[PublishedValidation], style: tuple[str, str]) -> None:
    depths, scores = [cell.layers for cell in line], [cell.valid.mean for cell in line]
    axes.plot(depths, scores, color=style[0], alpha=0.4, linestyle="--", linewidth=1, zorder=1)


def scores_plot(comparison: Comparison) -> Plot | None:
    """The test scores of the selected models and of the baselines, a point for each seed, with means and errors.

    The paper's selected models are grey beside them, and a line marks the best mean of the study. `None` if no selected
    model has a test score.
    """
    paper = {row.family: row for row in published_test(comparison.data_name) or ()}
    selected = [(family, cell, cell.test) for family, cell in comparison.selected.items()]
    tested = [(family, cell, summary) for family, cell, summary in selected if summary is not None]
    if not tested:
        return None
    simple = [(cell, cell.test) for cell in comparison.baselines if cell.test is not None]
    styles = _styles([cell.architecture for _, cell, _ in tested])
    rows: list[dict[str, Any]] = []
    with plotting.styled():
        narrow = len(tested) + len(simple) <= 4
        figure = plotting.new_figure(plotting.NARROW if narrow else plotting.WIDE, 2.8 if narrow and simple else 2.6)
        axes = figure.subplots()
        for place, (family, cell, summary) in enumerate(tested):
            colour, marker = styles[cell.architecture]
            _draw_scores(axes, place, cell.test_scores, summary, color=colour, marker=marker)
            rows += [_score_row("ours", family, cell, summary, score) for score in cell.test_scores]
            if theirs := paper.get(family):
                mean, error = theirs.test.mean, theirs.test.standard_error
                axes.errorbar(place + 0.22, mean, error, color=plotting.GREY, marker="D", markerfacecolor="white")
                rows.append(_score_row("paper", family, theirs, theirs.test, None))
        for place, (baseline, summary) in enumerate(simple, len(tested)):
            _draw_scores(axes, place, baseline.test_scores, summary, **_BASELINE)
            rows += [_baseline_row(baseline, summary, score) for score in baseline.test_scores]
        means = [*(summary.mean for *_, summary in tested), *(summary.mean for _, summary in simple)]
        axes.axhline(max(means) if comparison.higher_is_better else min(means), **_BEST)
        names = [f"{cell.architecture}\nL = {cell.layers} {NORM.show(cell.norm)}" for _, cell, _ in tested]
        names += [f"{cell.name}\nbaseline" for cell, _ in simple]
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylabel(f"test {metric_words(comparison)}")
        points: dict[str, Any] = {"color": plotting.BLACK, "linestyle": "none"}
        handles = [
            Line2D([], [], **points, marker=".", alpha=0.5, label="one seed"),
            Line2D([], [], **points, marker="o", label="mean ± s.e."),
            Line2D([], [], **_BEST, label="best mean"),
        ]
        if simple:
            handles.insert(2, Line2D([], [], **_BASELINE, linestyle="none", label="of a baseline"))
        if paper:
            grey = {**points, "color": plotting.GREY, "marker": "D", "markerfacecolor": "white"}
            handles.append(Line2D([], [], **grey, label="paper"))
        figure.legend(handles=handles, loc="outside lower center", ncols=3 if narrow else 5)
    return Plot(figure, rows)


def _draw_scores(axes: Axes, place: int, scores: Sequence[float], summary: Summary, **style: Any) -> None:
    """A model's seeds and, beside them, their mean."""
    places = place - 0.12 + np.linspace(-0.1, 0.1, summary.n)
    axes.plot(places, scores, color=style["color"], marker=".", linestyle="none", alpha=0.5)
    axes.errorbar(place + 0.05, summary.mean, summary.standard_error, **style)


def _best_cells(comparison: Comparison) -> list[Cell]:
    """One cell for each normalisation, architecture and depth: the best over whatever else is swept."""
    groups: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in comparison.cells:
        groups.setdefault((cell.norm, cell.architecture, cell.layers), []).append(cell)
    return [best(cells, comparison.higher_is_better) for cells in groups.values()]


def _line(cells: Sequence[AnyCell], norm: str, architecture: str) -> list[AnyCell]:
    found = [cell for cell in cells if (cell.norm, cell.architecture) == (norm, architecture)]
    return sorted(found, key=lambda cell: cell.layers)


def _styles(architectures: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each architecture; one that `mlap` knows always has the same."""
    styles = dict(zip(_COLOURS, zip(_COLOURS.values(), cycle(plotting.MARKERS), strict=False), strict=False))
    others = [name for name in dict.fromkeys(architectures) if name not in styles]
    free = [colour for name, colour in _COLOURS.items() if name not in architectures] or list(_COLOURS.values())
    # Colours that no other line has come first; with the markers in the other order, the same pair comes late.
    styles |= dict(zip(others, zip(cycle(free), cycle(reversed(plotting.MARKERS)), strict=False), strict=False))
    return {name: styles[name] for name in architectures}


def _depth_row(source: str, cell: Cell | PublishedValidation) -> dict[str, Any]:
    where = {"source": source, "architecture": cell.architecture, "norm": cell.norm, "layers": cell.layers}
    return where | _summary(cell.valid)


def _score_row(source: str, family: str, cell: Any, summary: Summary, score: float | None) -> dict[str, Any]:
    where = {"source": source, "family": family, "architecture": cell.architecture}
    return where | {"norm": cell.norm, "layers": cell.layers, "score": score} | _summary(summary)


def _baseline_row(cell: BaselineCell, summary: Summary, score: float) -> dict[str, Any]:
    where = {"source": "baseline", "family": None, "architecture": cell.name, "norm": None, "layers": None}
    return where | {"score": score} | _summary(summary)


def _summary(summary: Summary) -> dict[str, Any]:
    return {"seeds": summary.n, "mean": summary.mean, "standard_error": summary.standard_error}
