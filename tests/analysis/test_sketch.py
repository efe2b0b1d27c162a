from __future__ import annotations

from pathlib import Path as FilePath

import numpy as np
import pytest
from matplotlib.path import Path
from small import random_graphs

from mlap.analysis.sketch import molecule_of, sketch, sketch_graph, symbols_of
from mlap.graphs import GraphSet, synthetic
from mlap.graphs.molecules import molecules
from mlap.graphs.sources import load_graphs

SMILES = [
    "CCO",
    "C[C@H](N)C(=O)[O-].[Na+]",  # a hashed wedge, charges, two parts
    "F/C=C/[13CH3]",
    "c1ccc2c(c1)[nH]c1ccccc12",
    "[Cu]",
    "C",
    "[NH3]->[Pt](Cl)(Cl)<-[NH3]",  # dative bonds
    "CC.O=[N+]([O-])c1ccccc1 |c:4|",
    "C[N]C",  # a radical
]


@pytest.mark.parametrize("smiles", SMILES)
def test_molecules_are_drawn_by_rdkit(smiles: str) -> None:
    graphs = molecules([smiles]).graphs
    molecule = molecule_of(graphs, 0)
    drawing = sketch(graphs, 0)
    assert drawing.symbols == symbols_of(graphs, 0) == [atom.GetSymbol() for atom in molecule.GetAtoms()]
    assert drawing.places.shape == (molecule.GetNumAtoms(), 2)
    low, high = drawing.box
    for points in [drawing.places, *(stroke.path.vertices for stroke in drawing.strokes)]:
        assert (points >= low).all()
        assert (points <= high).all()
    letters = [stroke for stroke in drawing.strokes if stroke.filled]
    lines = [stroke for stroke in drawing.strokes if not stroke.filled]
    if not set(drawing.symbols) <= {"C"}:
        assert letters, "an element other than carbon is written out"
    assert (len(lines) > 0) == (molecule.GetNumBonds() > 0)
    assert all(len(stroke.path.vertices) > 1 for stroke in drawing.strokes)


def test_bonds_join_the_atoms_that_they_should() -> None:
    drawing = sketch(molecules(["CCCC"]).graphs, 0)
    ends = {tuple(np.round(point, 0)) for stroke in drawing.strokes for point in stroke.path.vertices[[0, -1]]}
    for place in drawing.places:
        assert min(np.linalg.norm(np.array(end) - place) for end in ends) < 1.5
    steps = np.linalg.norm(np.diff(drawing.places, axis=0), axis=1)
    np.testing.assert_allclose(steps, steps[0], rtol=0.05)


def test_ids_that_are_no_molecules_of_the_graph() -> None:
    graphs = molecules(["CCO", "CCCC"]).graphs
    for ids in (["CCCC", "CCO"], ["nonsense", ""], None):
        renamed = GraphSet(**{**vars(graphs), "ids": ids})
        assert symbols_of(renamed, 0) is None
        assert sketch(renamed, 0).symbols is None


def test_one_way_arcs_have_heads_and_two_way_ones_are_one_line() -> None:
    arcs = np.array([[0, 1, 1, 2], [1, 0, 2, 2]])  # 0 ⇄ 1 → 2, and a loop at 2
    drawing = sketch_graph(GraphSet(np.array([0, 3]), np.array([0, 4]), arcs, directed=True), 0)
    lines = [stroke.path for stroke in drawing.strokes if not stroke.filled]
    heads = [stroke.path for stroke in drawing.strokes if stroke.filled]
    assert len(lines) == 2
    assert len(heads) == 1
    tip = heads[0].vertices[0]
    assert np.linalg.norm(tip - drawing.places[2]) == pytest.approx(drawing.radius)
    assert np.linalg.norm(tip - drawing.places[1]) < np.linalg.norm(drawing.places[2] - drawing.places[1])


def test_undirected_edges_are_drawn_once() -> None:
    graphs = random_graphs([6], density=0.6)
    drawing = sketch_graph(graphs, 0)
    assert len(drawing.strokes) == graphs.num_edges
    for stroke, (source, target) in zip(drawing.strokes, sorted(map(tuple, graphs.edges.T.tolist())), strict=True):
        np.testing.assert_array_equal(stroke.path.vertices, drawing.places[[source, target]])


def test_a_synthetic_graph() -> None:
    drawing = sketch(synthetic(graphs_per_class=1), 3)
    assert sum(not stroke.filled for stroke in drawing.strokes) >= 30  # 30 edges of components, 5 random arcs
    assert isinstance(drawing.strokes[0].path, Path)


def test_atoms_of_molhiv_are_in_the_order_of_its_nodes(shared_data: FilePath, tmp_path: FilePath) -> None:
    graphs = load_graphs(shared_data / "ogbg_molhiv", root=tmp_path)
    assert graphs.node_features is not None
    for graph in range(0, len(graphs), 400):
        molecule = molecule_of(graphs, graph)
        assert molecule is not None
        rows = slice(graphs.node_ptr[graph], graphs.node_ptr[graph + 1])
        atomic_numbers = graphs.node_features.values[rows, 0] + 1  # OGB counts from 0
        assert [atom.GetAtomicNum() for atom in molecule.GetAtoms()] == atomic_numbers.tolist()
