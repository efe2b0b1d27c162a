"""How to draw one graph: a molecule as RDKit draws it, any other graph with nodes at stable places."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.path import Path
from numpy.typing import NDArray

from mlap.analysis.layout import layout
from mlap.graphs import GraphSet

#: nodes of the largest graph that is drawn; a larger one would be a blot
MAX_NODES = 1000


@dataclass(frozen=True)
class Stroke:
    """A line, or an outline that is filled; `width` is that of the line, 0 for a letter, which has none."""

    path: Path
    width: float
    filled: bool = False
    dashed: bool = False


@dataclass(frozen=True, eq=False)
class Sketch:
    """A drawing without colours, in units of its own, y upwards.

    Args:
        places: `(n, 2)`, of the nodes.
        radius: of the circle that a node's colour fills.
        strokes: bonds or edges, and letters.
        symbols: the elements of atoms; `None` if the graph is no molecule.
    """

    places: NDArray[np.float64]
    radius: float
    strokes: list[Stroke] = field(default_factory=list)
    symbols: list[str] | None = None

    @property
    def box(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The lower left and upper right corner of everything, with a margin."""
        points = np.concatenate([self.places, *(stroke.path.vertices for stroke in self.strokes)])
        margin = 1.3 * self.radius
        return points.min(axis=0) - margin, points.max(axis=0) + margin


def sketch(graphs: GraphSet, index: int) -> Sketch:
    """How to draw graph `index` of a set: as a molecule, if it is one."""
    molecule = molecule_of(graphs, index)
    return sketch_graph(graphs, index) if molecule is None else sketch_molecule(molecule)


def molecule_of(graphs: GraphSet, index: int) -> Any:
    """The RDKit molecule that is graph `index`, its atoms in the order of the nodes; `None` if the graph is none."""
    if graphs.ids is None:
        return None
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        return None
    with rdBase.BlockLogs():  # an id that is no SMILES is nothing to complain about
        molecule = Chem.MolFromSmiles(graphs.ids[index])
    sizes = np.diff(graphs.node_ptr[index : index + 2])[0], np.diff(graphs.edge_ptr[index : index + 2])[0]
    if molecule is None or (molecule.GetNumAtoms(), molecule.GetNumBonds()) != sizes:
        return None
    return molecule


def symbols_of(graphs: GraphSet, index: int) -> list[str] | None:
    """The elements of the atoms of graph `index`; `None` if it is no molecule."""
    molecule = molecule_of(graphs, index)
    return None if molecule is None else [atom.GetSymbol() for atom in molecule.GetAtoms()]


def sketch_molecule(molecule: Any) -> Sketch:
    """A molecule as RDKit draws it, with letters as outlines; a bond is about 25 units long."""
    from rdkit.Chem.Draw import rdMolDraw2D

    drawer = rdMolDraw2D.MolDraw2DSVG(-1, -1)
    options: Any = drawer.drawOptions()
    options.useBWAtomPalette()
    options.clearBackground = False
    options.fixedBondLength = options.scalingFactor = 25
    rdMolDraw2D.PrepareAndDrawMolecule(drawer, molecule)
    drawer.FinishDrawing()
    flipped = np.array([1.0, -1.0])  # SVG counts downwards
    places = [tuple(drawer.GetDrawCoords(atom)) for atom in range(molecule.GetNumAtoms())]
    return Sketch(
        np.array(places).reshape(-1, 2) * flipped,
        9.0,
        _strokes(drawer.GetDrawingText(), flipped),
        [atom.GetSymbol() for atom in molecule.GetAtoms()],
    )


def sketch_graph(graphs: GraphSet, index: int) -> Sketch:
    """Any graph, edges as straight lines; an arc without its opposite ends in an arrow head."""
    first, last = graphs.edge_ptr[index : index + 2]
    edges = np.asarray(graphs.edges[:, first:last], dtype=np.int64)
    places = layout(int(graphs.node_ptr[index + 1] - graphs.node_ptr[index]), edges)
    radius = 0.28
    arcs = set(map(tuple, edges.T.tolist()))
    strokes = []
    for source, target in sorted(arcs):
        both = not graphs.directed or (target, source) in arcs
        if source == target or (both and graphs.directed and source > target):
            continue
        strokes.append(Stroke(Path(places[[source, target]]), 0.06))
        if not both:
            strokes.append(Stroke(_arrow_head(places[source], places[target], radius), 0, filled=True))
    return Sketch(places, radius, strokes)


def _arrow_head(source: NDArray[np.float64], target: NDArray[np.float64], radius: float) -> Path:
    along = (target - source) / max(float(np.linalg.norm(target - source)), 1e-9)
    across = np.array([-along[1], along[0]])
    tip = target - radius * along
    corners = [tip, tip - 0.22 * along + 0.09 * across, tip - 0.22 * along - 0.09 * across, tip]
    return Path(np.array(corners), closed=True)


# ---- RDKit's drawings ------------------------------------------------------------------------------------------------

_CODES = {"M": (Path.MOVETO,), "L": (Path.LINETO,), "Q": (Path.CURVE3,) * 2, "C": (Path.CURVE4,) * 3}


def _strokes(svg: str, scale: NDArray[np.float64]) -> list[Stroke]:
    """The paths of an SVG that RDKit wrote."""
    found = []
    for element in ElementTree.fromstring(svg.encode("iso-8859-1")).iter("{http://www.w3.org/2000/svg}path"):
        style = element.get("style", "")
        path = _path(element.get("d", ""), scale)
        filled = "fill" in element.attrib or ("fill:#" in style and "fill:none" not in style)
        width = re.search(r"stroke-width:([\d.]+)", style)
        found.append(Stroke(path, float(width[1]) if width else 0.0, filled, "stroke-dasharray" in style))
    return found


def _path(commands: str, scale: NDArray[np.float64]) -> Path:
    """The outline that the commands of an SVG path describe."""
    codes: list[Any] = []
    points: list[list[float]] = []
    for letter, text in re.findall(r"([A-Za-z])([^A-Za-z]*)", commands):
        if letter in "Zz":
            codes.append(Path.CLOSEPOLY)
            points.append(points[-1])
            continue
        numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]
        pairs = [numbers[at : at + 2] for at in range(0, len(numbers), 2)]
        codes += _CODES[letter] * (len(pairs) // len(_CODES[letter]))
        points += pairs
    return Path(np.array(points).reshape(-1, 2) * scale, codes)
