"""The reliability diagram: how often probabilities come true."""

from __future__ import annotations

import math

from mlap.errors import UsageError
from mlap.models import Evaluation
from mlap.plotting import BLUE, GREY, NARROW, Plot, new_figure, styled

#: panels of one figure, at most; more would be too small to read
MOST_PANELS = 12


def reliability_plot(found: Evaluation) -> Plot:
    """A panel for each target: the share of graphs for which a probability came true, over that probability.

    The area of a point is the number of its graphs; on the dashed line predictions are perfectly calibrated.
    """
    if not found.reliability:
        raise UsageError("a regression has no probabilities whose reliability could be drawn", "plot")
    shown = list(found.reliability.items())[:MOST_PANELS]
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    data = []
    with styled():
        figure = new_figure(NARROW if columns == 1 else columns * NARROW * 0.75, rows * NARROW * 0.9)
        for number, (target, points) in enumerate(shown):
            axes = figure.add_subplot(rows, columns, number + 1)
            axes.plot((0, 1), (0, 1), color=GREY, linestyle="--", linewidth=0.8)
            most = max(graphs for _, _, graphs in points)
            axes.plot([mean for mean, _, _ in points], [share for _, share, _ in points], color=BLUE, linewidth=0.8)
            axes.scatter(
                [mean for mean, _, _ in points],
                [share for _, share, _ in points],
                s=[4 + 60 * graphs / most for _, _, graphs in points],
                color=BLUE,
            )
            error = found.by_target[target]["calibration_error"]
            axes.set_title(f"{target}{': ' if target else ''}calibration error {error:.3f}")
            axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="predicted probability", ylabel="came true")
            axes.set_aspect("equal")
            data += [
                {"target": target, "predicted": mean, "came_true": share, "graphs": graphs}
                for mean, share, graphs in points
            ]
    return Plot(figure, data)
