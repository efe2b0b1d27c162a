"""Fingerprints against RDKit's own, one molecule at a time; what is cleaned; the same in several processes."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem import Descriptors, MACCSkeys, rdFingerprintGenerator

from mlap.errors import DataError, UsageError
from mlap.graphs import molecules
from mlap.graphs._smiles import CHUNK
from mlap.graphs.descriptors import check_descriptors, descriptor_names
from mlap.models.fingerprints import KINDS, fingerprints, molecule_features, width_of

SMILES = ["CCO", "c1ccccc1C(=O)O", "[Na+].[Cl-]", "C[C@H](N)C(=O)O", "[Fe]", "C" * 60, "N#N"]


def test_counts_and_descriptors_are_those_of_rdkit() -> None:
    graphs = molecules(SMILES).graphs
    chosen = np.array([6, 0, 1, 2, 3, 4, 5])
    found = molecule_features("morgan-counts", graphs, chosen, descriptor_names()).toarray()
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    for row, index in zip(found, chosen, strict=True):
        molecule = Chem.MolFromSmiles(SMILES[index])
        counts = np.zeros(2048)
        DataStructs.ConvertToNumpyArray(generator.GetCountFingerprint(molecule), counts)
        np.testing.assert_array_equal(row[:2048], counts)
        described = Descriptors.CalcMolDescriptors(molecule, missingVal=float("nan"))
        expected = [described[name] for name in descriptor_names()]
        np.testing.assert_array_equal(row[2048:], np.nan_to_num(expected).clip(-1e30, 1e30).astype(np.float32))


def test_bits_and_keys_are_those_of_rdkit() -> None:
    found = fingerprints("morgan-maccs", SMILES).toarray()
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    for row, text in zip(found, SMILES, strict=True):
        molecule = Chem.MolFromSmiles(text)
        bits, keys = np.zeros(2048), np.zeros(167)
        DataStructs.ConvertToNumpyArray(generator.GetFingerprint(molecule), bits)
        DataStructs.ConvertToNumpyArray(MACCSkeys.GenMACCSKeys(molecule), keys)
        np.testing.assert_array_equal(row, np.concatenate((bits, keys)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_a_finite_float32(kind: str) -> None:
    # A metal has no Gasteiger charges (NaN); Ipc of a long chain is beyond float32; a huge molecule is not described.
    texts = [*SMILES, "C" * 200, "C" * 600]
    found = molecule_features(kind, molecules(texts).graphs, np.arange(len(texts)), descriptor_names())
    assert found.dtype == np.float32
    assert np.isfinite(found.data).all()
    assert found.shape == (len(texts), width_of(kind) + len(descriptor_names()))


def test_chosen_descriptors_come_in_the_given_order() -> None:
    graphs = molecules(["CCO"]).graphs
    found = molecule_features("morgan-counts", graphs, np.array([0]), ("TPSA", "MolWt")).toarray()[0, 2048:]
    molecule = Chem.MolFromSmiles("CCO")
    np.testing.assert_allclose(found, [Descriptors.TPSA(molecule), Descriptors.MolWt(molecule)], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_no_molecules(kind: str) -> None:
    assert fingerprints(kind, []).shape == (0, width_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_several_processes_make_the_same_matrix(kind: str) -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("CNOS"), size=rng.integers(1, 9))) for _ in range(CHUNK + 20)]
    one = fingerprints(kind, texts, processes=1)
    two = fingerprints(kind, texts, processes=2)
    assert one.shape == two.shape == (len(texts), width_of(kind))
    assert one.nnz > len(texts)
    assert (one != two).nnz == 0


def test_a_text_that_is_no_molecule_is_named_with_its_place() -> None:
    with pytest.raises(DataError, match=f"{CHUNK + 1}.*C1CC"):
        fingerprints("morgan-maccs", ["CCO"] * (CHUNK + 1) + ["C1CC"])


def test_mistakes() -> None:
    with pytest.raises(UsageError, match="morgan-maccs"):
        fingerprints("morgan-macs", ["C"])
    check_descriptors(descriptor_names())
    with pytest.raises(UsageError, match="NoSuchDescriptor"):
        check_descriptors(["MolWt", "NoSuchDescriptor"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_valence_that_rdkit_objects_to(kind: str) -> None:
    """A molecule of ogbg-molhiv: it has features, and they are not those of nothing."""
    odd = "Cc1ccc([B-2]2(c3ccc(C)cc3)=NCCO2)cc1"
    assert Chem.MolFromSmiles(odd) is None
    rows = fingerprints(kind, [odd, "Cc1ccccc1"])
    assert rows[0].nnz > rows[1].nnz
    shared = rows[0, :2048].minimum(rows[1, :2048])
    assert shared.nnz > 5  # a toluene is in it
