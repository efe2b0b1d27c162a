"""Small real models, and real servers of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, running
from serving import Served, serving

import mlap
from mlap.graphs import GraphSet
from mlap.models import Baseline, Ensemble, Model
from mlap.serve.limits import Limits

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("rdkit", reason="the extra `chem` is not installed")

ALCOHOLS = [f"{'C' * n}O" for n in range(1, 13)] + [f"C{'C' * n}(O)C" for n in range(1, 13)]
OTHERS = [f"{'C' * n}N" for n in range(1, 13)] + [f"c1ccccc1{'C' * n}" for n in range(1, 13)]


@pytest.fixture(scope="session")
def molecules(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A small network that tells alcohols from others, trained on a table with names."""
    folder = tmp_path_factory.mktemp("molecules")
    names = ["Methanol", "Ethanol", "twin", "Twin", "CCN", *(f"compound {n}" for n in range(5, 48))]
    rows = [f"{name},{smiles},{int('O' in smiles)}" for name, smiles in zip(names, ALCOHOLS + OTHERS, strict=True)]
    (folder / "alcohols.csv").write_text("name,smiles,alcohol\n" + "\n".join(rows) + "\n")
    return mlap.train(
        str(folder / "alcohols.csv"),
        architecture="mlap-weighted",
        layers=3,
        width=16,
        epochs=8,
        lr=0.01,
        out=folder / "run",
        progress=False,
    )


@pytest.fixture(scope="session")
def forest(molecules: Model) -> Model:
    """A forest, fitted to the same table."""
    return Baseline.fit("rf-morgan", molecules.data())


@pytest.fixture(scope="session")
def ensemble(molecules: Model, forest: Model) -> Model:
    """The network and the forest together, calibrated."""
    return Ensemble.of([molecules, forest])


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, GraphSet]:
    """A small network for graphs of nine classes that are no molecules."""
    graphs = mlap.synthetic(graphs_per_class=10)
    out = tmp_path_factory.mktemp("synthetic") / "run"
    return mlap.train(graphs, layers=2, width=8, epochs=1, out=out, progress=False), graphs


@pytest.fixture(scope="session")
def served(molecules: Model) -> Iterator[Served]:
    """The molecules' model behind a server that has read its data."""
    with serving(molecules, molecules.data()) as found:
        yield found


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def small_limits() -> Limits:
    """Limits that a test reaches."""
    return Limits(body=2000, upload=5000, rows=30, tables=2, connections=8, waiting=2, seconds=1.0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with a row that is no molecule."""
    path = tmp_path / "upload.csv"
    path.write_text("id,smiles\na,CCO\nb,CCN\nbad,C(C\nd,CCCCO\n")
    return path
