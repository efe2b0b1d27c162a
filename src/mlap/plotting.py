"""The look of all figures, and how they are written: as SVG, as PNG and, beside them, their data as CSV.

Colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart; signed values run from
blue over white to orange. Sizes are in inches and points at the size of print: `NARROW` is one column of a paper,
`WIDE` is two. No text is smaller than 7 points.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from mlap.files import csv_text, write_text, write_whole

NARROW, WIDE = 3.5, 7.0

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
GREY = "#8C8C8C"
#: for lines and points of several kinds, in this order
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, YELLOW)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

#: for shares and other signed values; light enough at both ends for black letters
DIVERGING = LinearSegmentedColormap.from_list("mlap", ["#2F7FC1", "#A6CDE8", "#F7F7F7", "#FBC58C", "#E0701A"])
#: for attention and other values from 0 up
SEQUENTIAL = LinearSegmentedColormap.from_list("mlap attention", ["#F7F7F7", "#00B283"])

STYLE: dict[str, Any] = {
    "text.parse_math": False,  # a target may be called ${7*7}; we write no mathematics and have no logarithmic axes
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "figure.titlesize": 9,
    "figure.dpi": 100,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 300,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.8,
    "axes.grid": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "errorbar.capsize": 2,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "mlap",  # the same figure is the same file
}

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure and the numbers it shows, one row per point."""

    figure: Figure
    rows: Rows


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; make and fill it within `styled()`."""
    return Figure(figsize=(width, height))


def styled() -> AbstractContextManager[None]:
    """A context in which the project's style holds, whatever the user's own settings are."""
    return matplotlib.style.context(["default", STYLE])


def save_plot(plot: Plot, path: Path) -> list[Path]:
    """Write `path` with the endings .svg, .png and .csv; the files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_name(f"{path.name}.{kind}") for kind in ("svg", "png", "csv")]
    svg, png, data = written

    def write_svg(part: Path) -> None:
        plot.figure.savefig(part, format="svg", metadata={"Date": None})

    def write_png(part: Path) -> None:
        plot.figure.savefig(part, format="png", metadata={"Software": None})

    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Creating legend")  # on a slow machine, that it is slow
        write_whole(svg, write_svg)
        write_whole(png, write_png)
    write_text(data, csv_text(plot.rows))
    return written
