"""Graphs as SVG, drawn once; the page colours the nodes. Nothing in it is a user's text."""

from __future__ import annotations

import numpy as np
from matplotlib.path import Path
from numpy.typing import NDArray

from mlap.analysis.sketch import MAX_NODES, Sketch, sketch
from mlap.graphs import GraphSet

#: a node's own colour, where no share colours it: the middle of `mlap.plotting.DIVERGING`
BLANK = "#F7F7F7"
#: of a node, in all pictures; sketches have units of their own
RADIUS = 9
_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
_POINTS = {Path.MOVETO: 1, Path.LINETO: 1, Path.CURVE3: 2, Path.CURVE4: 3, Path.CLOSEPOLY: 1}


def svg_of(graphs: GraphSet, index: int, *, shaded: bool = False) -> str | None:
    """Graph `index` of a set as SVG; `None` if it is empty or too large to be drawn.

    Each node is a circle of class `node` with its number in `data-node`; circles of class `target`, on top of
    everything, are there to be pointed at.

    Args:
        graphs: the set.
        index: which graph.
        shaded: whether the circles of atoms show, ready to be coloured.
    """
    nodes = int(graphs.node_ptr[index + 1] - graphs.node_ptr[index])
    return _svg(sketch(graphs, index), shaded) if 0 < nodes <= MAX_NODES else None


def _svg(drawing: Sketch, shaded: bool) -> str:
    molecule = drawing.symbols is not None
    low, high = drawing.box
    unit = RADIUS / drawing.radius
    width, height = (high - low) * unit
    view = f"{low[0] * unit:.1f} {-high[1] * unit:.1f} {width:.1f} {height:.1f}"
    fill = BLANK if shaded or not molecule else "none"
    edge = "" if molecule else ' stroke="#8C8C8C" stroke-width="1.2"'
    circles = "".join(
        f'<circle class="node" data-node="{number}" cx="{x * unit:.2f}" cy="{-y * unit:.2f}" r="{RADIUS}" '
        f'fill="{fill}"{edge}/>'
        for number, (x, y) in enumerate(drawing.places)
    )
    targets = "".join(
        f'<circle class="target" data-node="{number}" cx="{x * unit:.2f}" cy="{-y * unit:.2f}" r="12" '
        'fill="transparent"/>'
        for number, (x, y) in enumerate(drawing.places)
    )
    ink = "#000000" if molecule else "#8C8C8C"
    lines = "".join(
        f'<path d="{_commands(stroke.path, unit)}" '
        + (f'fill="{ink}"' if stroke.filled else 'fill="none"')
        + (f' stroke="{ink}" stroke-width="{max(stroke.width * unit, 0.1):.2f}"' if stroke.width else "")
        + (' stroke-dasharray="3 3"' if stroke.dashed else "")
        + "/>"
        for stroke in drawing.strokes
    )
    layers = circles + lines if molecule else lines + circles  # letters are written on atoms, edges end under nodes
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" width="{width:.0f}" height="{height:.0f}" '
        f'stroke-linecap="round" stroke-linejoin="round">{layers}{targets}</svg>'
    )


def _commands(path: Path, unit: float) -> str:
    """The outline in the words of SVG, which counts downwards."""
    places: NDArray[np.float64] = np.asarray(path.vertices, np.float64) * [unit, -unit]
    straight = [Path.MOVETO] + [Path.LINETO] * (len(places) - 1)
    codes = straight if path.codes is None else np.asarray(path.codes).tolist()
    words = []
    at = 0
    while at < len(codes):
        code = codes[at]
        taken = _POINTS[code]
        if code == Path.CLOSEPOLY:
            words.append("Z")
        else:
            numbers = " ".join(f"{x:.2f} {y:.2f}" for x, y in places[at : at + taken])
            words.append(_LETTERS[code] + numbers)
        at += taken
    return "".join(words)
