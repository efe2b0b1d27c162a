"""Pictures of explanations: the graph once for each level and once for all, its nodes coloured by their shares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize
from matplotlib.patches import Circle, PathPatch
from numpy.typing import NDArray

from mlap import plotting
from mlap.analysis.explanation_words import signed
from mlap.analysis.sketch import Sketch
from mlap.models.explanation import Explanation
from mlap.plotting import Plot

Floats = NDArray[np.floating[Any]]

#: radii of a node across a panel: a single atom does not fill it
SMALLEST = 12


def explanation_plot(
    explanation: Explanation, drawing: Sketch, output: int, title: str, *, numbers: bool = False
) -> Plot:
    """A panel for each level that has shares of its own and one for their sum, on one scale; or the attention.

    Args:
        explanation: what to show.
        drawing: how to draw the graph.
        output: which logit.
        title: above everything.
        numbers: whether to write the number of each node beside it.
    """
    panels, label = _panels(explanation, output)
    largest = max((float(np.abs(values).max(initial=0)) for values in panels.values()), default=0) or 1.0
    colours = plotting.DIVERGING if explanation.shares is not None else plotting.SEQUENTIAL
    scale = ScalarMappable(Normalize(-largest if explanation.shares is not None else 0, largest), colours)
    low, high = drawing.box
    room = np.maximum(0, SMALLEST * drawing.radius * np.array([1.0, 0.5]) - (high - low))
    low, high = low - room / 2, high + room / 2
    size = high - low
    columns = _columns(len(panels), size, drawing)
    lines = math.ceil(len(panels) / columns)
    width = plotting.WIDE if columns > 1 else plotting.NARROW
    side = (width - 0.9) / columns
    tall = min(max(side * size[1] / size[0], 0.5 * side), 1.2 * side)
    with plotting.styled():
        figure = plotting.new_figure(width, lines * (tall + 0.25) + 0.15 + 0.2 * (title.count("\n") + 1))
        grid = figure.subplots(lines, columns, squeeze=False)
        points_per_unit = 72 * min(side / size[0], tall / size[1])
        for axes, (name, values) in zip(grid.flat, panels.items(), strict=False):
            _draw(axes, drawing, values, scale, points_per_unit)
            if numbers:
                _write_numbers(axes, drawing, points_per_unit)
            axes.set_xlim(low[0], high[0])
            axes.set_ylim(low[1], high[1])
            axes.set_title(name)
        for axes in grid.flat:
            axes.set_aspect("equal")
            axes.set_axis_off()
        figure.colorbar(scale, ax=grid, label=label, shrink=min(1.0, 1.6 / (lines * tall)), aspect=18)
        figure.suptitle(title.replace("$", r"\$"))  # a dollar would begin a formula
    return Plot(figure, explanation_rows(explanation, output, drawing.symbols))


def _panels(explanation: Explanation, output: int) -> tuple[dict[str, Floats], str]:
    """What each panel shows `(n,)`, and what the colours mean."""
    if explanation.shares is None:
        attention = explanation.attention
        names = [f"level {level + 1}" for level in range(attention.shape[1])] if attention.shape[1] > 1 else ["nodes"]
        return dict(zip(names, attention.T, strict=True)), "attention"
    shares = explanation.shares[:, :, output]
    panels = {
        f"level {level}: {signed(shares[:, number].sum())}": shares[:, number]
        for number, level in enumerate(explanation.levels)
    }
    if len(panels) != 1:
        panels[f"all levels: {signed(shares.sum())}"] = shares.sum(axis=1)
    return panels, "share of the logit"


def _columns(panels: int, size: NDArray[np.float64], drawing: Sketch) -> int:
    """As many panels side by side as keep a node large enough to see, and the rows as full as that allows."""
    across = size[0] / drawing.radius
    most = min(panels, 4 if across < 30 else 3 if across < 45 else 2)
    return math.ceil(panels / math.ceil(panels / most))


def _draw(axes: Axes, drawing: Sketch, values: Floats, scale: ScalarMappable, points_per_unit: float) -> None:
    molecule = drawing.symbols is not None
    nodes = PatchCollection(
        [Circle((x, y), drawing.radius) for x, y in drawing.places],
        facecolors=scale.to_rgba(values),
        edgecolors="none" if molecule else plotting.GREY,
        linewidths=0.5,
        zorder=1 if molecule else 3,  # letters are written on atoms, edges end under nodes
    )
    axes.add_collection(nodes)
    for filled in (False, True):
        strokes = [stroke for stroke in drawing.strokes if stroke.filled == filled]
        axes.add_collection(
            PatchCollection(
                [PathPatch(stroke.path) for stroke in strokes],
                facecolors=plotting.BLACK if filled else "none",
                edgecolors=plotting.BLACK if molecule else plotting.GREY,
                linewidths=[stroke.width and max(0.4, stroke.width * points_per_unit) for stroke in strokes],
                linestyles=["--" if stroke.dashed else "-" for stroke in strokes],
                capstyle="butt" if filled else "round",
                zorder=2,
            )
        )


def _write_numbers(axes: Axes, drawing: Sketch, points_per_unit: float) -> None:
    """Write the number of each node at the upper right of its circle."""
    size = float(np.clip(0.9 * drawing.radius * points_per_unit, 3, 8))
    for node, (x, y) in enumerate(drawing.places + 0.8 * drawing.radius):
        axes.text(x, y, str(node), fontsize=size, color=plotting.GREY, ha="left", va="bottom", zorder=4)


def explanation_rows(explanation: Explanation, output: int, symbols: list[str] | None) -> list[dict[str, Any]]:
    """A row for every node and level: attention and share of a logit.

    The level is empty where a share or an attention holds for all levels together.
    """
    shares, attention = explanation.shares, explanation.attention
    columns: list[tuple[int | None, Floats, Floats | None]]
    if shares is None:
        levels = range(attention.shape[1])
        columns = [(level + 1 if len(levels) > 1 else None, attention[:, level], None) for level in levels]
    else:
        columns = [
            (level, attention[:, number if attention.shape[1] > 1 else 0], shares[:, number, output])
            for number, level in enumerate(explanation.levels or (None,))
        ]
    return [
        {
            "graph": explanation.graph,
            "node": node,
            "element": "" if symbols is None else symbols[node],
            "level": level,
            "output": output,
            "attention": float(weights[node]),
            "share": None if of_logit is None else float(of_logit[node]),
        }
        for node in range(explanation.num_nodes)
        for level, weights, of_logit in columns
    ]
