"""Descriptors against RDKit's own, one molecule at a time."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rdkit", reason="descriptors need RDKit")

from rdkit import Chem
from rdkit.Chem import Descriptors

from mlap.errors import DataError, UsageError
from mlap.graphs import _smiles, molecules, synthetic
from mlap.graphs import descriptors as module
from mlap.graphs.descriptors import descriptor_names, descriptors, descriptors_of

# A metal has no partial charges (NaN); Ipc of a long chain is beyond float32.
SMILES = ["CCO", "c1ccccc1C(=O)O", "[Fe]", "C" * 300, "C[C@H](N)C(=O)O"]


def test_they_are_rdkits() -> None:
    found = descriptors(SMILES)
    assert found.dtype == np.float32
    for row, text in zip(found, SMILES, strict=True):
        described = Descriptors.CalcMolDescriptors(Chem.MolFromSmiles(text), missingVal=float("nan"))
        expected = np.clip([described[name] for name in descriptor_names()], -1e30, 1e30)
        np.testing.assert_array_equal(row, expected.astype(np.float32))
    assert np.isnan(found[2]).any()
    assert not np.isinf(found).any()


def test_no_molecules() -> None:
    assert descriptors([]).shape == (0, len(descriptor_names()))


def test_several_processes_find_the_same() -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("CNOS"), size=rng.integers(1, 4))) for _ in range(_smiles.CHUNK + 20)]
    one = descriptors(texts, 1)
    np.testing.assert_array_equal(descriptors(texts, 2), one)
    with _smiles.Readers(2) as readers:
        np.testing.assert_array_equal(descriptors(texts, readers), one)


def test_a_valence_that_rdkit_objects_to() -> None:
    """A molecule of ogbg-molhiv."""
    odd = "Cc1ccc([B-2]2(c3ccc(C)cc3)=NCCO2)cc1"
    assert Chem.MolFromSmiles(odd) is None
    weight = descriptors([odd])[0, descriptor_names().index("HeavyAtomMolWt")]
    assert 230 < weight < 240  # C16 B N O


def test_rows_of_a_set_and_the_order_of_names() -> None:
    graphs = molecules(SMILES).graphs
    names = ("TPSA", "MolWt")
    found = descriptors_of(graphs, np.array([4, 0, 4]), names)
    every = descriptors(SMILES)
    columns = [descriptor_names().index(name) for name in names]
    np.testing.assert_array_equal(found, every[[4, 0, 4]][:, columns])
    np.testing.assert_array_equal(descriptors_of(graphs, np.array([1, 0]), descriptor_names()), every[[1, 0]])


def test_a_molecule_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = molecules(SMILES).graphs
    asked: list[str] = []
    real = module.descriptors
    monkeypatch.setattr(module, "descriptors", lambda smiles, processes: (asked.extend(smiles), real(smiles))[1])
    for indices in ([0, 1], [1, 2, 2], [0]):
        descriptors_of(graphs, np.array(indices), descriptor_names())
    assert asked == SMILES[:3]


def test_mistakes() -> None:
    with pytest.raises(DataError, match=r"molecule 1 .*C1CC"):
        descriptors(["CCO", "C1CC"])
    with pytest.raises(UsageError, match="no SMILES"):
        descriptors_of(synthetic(graphs_per_class=1), np.array([0]), descriptor_names())
    with pytest.raises(UsageError, match="NoSuchDescriptor"):
        descriptors_of(molecules(["C"]).graphs, np.array([0]), ("NoSuchDescriptor",))


def test_huge_molecules_have_none() -> None:
    """RDKit would take ten seconds for 400 atoms, and hours for 2,500."""
    rows = descriptors(["C" * 2500, "C"])
    assert np.isnan(rows[0]).all()
    assert not np.isnan(rows[1]).all()
