"""Files of tables in every format: the same molecules and labels come out."""

from __future__ import annotations

import gzip
import io
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from mlap.errors import DataError, UsageError
from mlap.graphs import _formats, load_graphs
from mlap.graphs._formats import iter_cells, read_cells
from mlap.graphs.tables import read_table

pytest.importorskip("rdkit")

SMILES = ["CCO", "CCN", "c1ccccc1", "CC(=O)O", "C1CC1", "CCCC", "OCCO", "CNC", "Clc1ccccc1", "C#N"]
VALUES = [0.5, 1.25, -3.0, 4.75, 5.5, -6.25, 7.0, 8.5, 9.75, 10.0]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def put(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return put


# ---- SMILES files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "CCO ethanol\nCCN ethyl amine\n",
        "CCO\tethanol\nCCN\tethyl amine\n",
        "\ufeffCCO   ethanol\r\n\r\nCCN ethyl amine",
        "smiles name\nCCO ethanol\nCCN ethyl amine\n",
        "SMILES\tname\nCCO\tethanol\nCCN\tethyl amine\n",
    ],
)
@pytest.mark.parametrize("file", ["a.smi", "a.smi.gz", "A.SMI"])
def test_a_molecule_per_line(tmp_path: Path, file: str, text: str) -> None:
    content = text.encode()
    (tmp_path / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
    cells = read_cells(tmp_path / file)
    assert [cell.lower() for cell in cells.columns] == ["smiles", "name"]
    assert list(cells.columns.values()) == [["CCO", "CCN"], ["ethanol", "ethyl amine"]]


def test_an_extension_belongs_to_the_smiles(tmp_path: Path) -> None:
    (tmp_path / "a.smi").write_text("CCO |$a;b;c$| the name\nC\n")
    assert read_cells(tmp_path / "a.smi").columns == {"smiles": ["CCO |$a;b;c$|", "C"], "name": ["the name", ""]}


# ---- SD files --------------------------------------------------------------------------------------------------------


def test_structures_with_their_properties(tmp_path: Path) -> None:
    from rdkit import Chem

    blocks = []
    for number, smiles in enumerate(SMILES):
        mol = Chem.MolFromSmiles(smiles)
        mol.SetProp("_Name", f"m{number}")
        properties = f">  <active>  (1)\n{number % 2}\n\n>  <remark>\ntwo\nlines\n\n" if number != 3 else ""
        blocks.append(f"{Chem.MolToMolBlock(mol)}{properties}$$$$\n")
    path = tmp_path / "mols.sdf.gz"
    path.write_bytes(gzip.compress("".join(blocks).encode()))
    read = read_table(path, targets=["active"])
    assert read.graphs.ids == [Chem.CanonSmiles(smiles) for number, smiles in enumerate(SMILES) if number != 3]
    assert read.graphs.y is not None
    assert read.graphs.y.ravel().tolist() == [number % 2 for number in range(10) if number != 3]
    assert read_cells(path).columns["remark"][:4] == ["two lines", "two lines", "two lines", ""]
    assert read_cells(path).columns["name"][9] == "m9"


def test_a_structure_that_is_none_is_a_row_all_the_same(tmp_path: Path) -> None:
    from rdkit import Chem

    good = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO"))
    (tmp_path / "a.sdf").write_text(f"{good}$$$$\nnonsense\n$$$$\n{good}$$$$\n")
    cells = read_cells(tmp_path / "a.sdf")
    assert cells.columns["smiles"] == ["CCO", "", "CCO"]
    assert len(load_graphs(tmp_path / "a.sdf", targets=(), cache=False)) == 2


# ---- encodings and numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    text = "smiles,Löslichkeit\n" + "".join(f"{s},{v}\n" for s, v in zip(SMILES, VALUES, strict=True))
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    read = read_table(tmp_path / "t.csv")
    assert read.targets == ("Löslichkeit",)
    assert read.graphs.y is not None
    assert read.graphs.y.ravel().tolist() == VALUES
    assert any("UTF-8" in note for note in read.notes) == (encoding in ("latin-1", "cp1252"))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas(tmp_path: Path, delimiter: str) -> None:
    german = [str(value).replace(".", ",") for value in VALUES]
    rows = [f"{s}{delimiter}{v}" for s, v in zip(SMILES, german, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join([f"smiles{delimiter}logS", *rows]))
    read = read_table(tmp_path / "t.csv")
    assert read.graphs.y is not None
    assert read.graphs.y.ravel().tolist() == VALUES
    assert any("decimal comma" in note for note in read.notes)


def test_a_decimal_comma_in_a_table_of_commas_is_explained(tmp_path: Path) -> None:
    rows = [f'{s},"{str(v).replace(".", ",")}"' for s, v in zip(SMILES, VALUES, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["smiles,logS", *rows]))
    with pytest.raises(DataError, match=r"line 2, column 'logS': got '0,5'.*point"):
        read_table(tmp_path / "t.csv", targets=["logS"], task="regression")


# ---- standard input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(stdin: Callable[[bytes], None], pack: Callable[[bytes], bytes]) -> None:
    table = "smiles,active\n" + "".join(f"{s},{n % 2}\n" for n, s in enumerate(SMILES))
    stdin(pack(table.encode()))
    graphs = load_graphs("-")
    assert graphs.ids == SMILES
    assert (graphs.name, graphs.source) == ("stdin", None)
    stdin(pack(b"CCO ethanol\nCCN\n"))
    assert load_graphs("-", targets=()).ids == ["CCO", "CCN"]
    stdin(pack(b""))
    with pytest.raises(DataError, match="stdin is empty"):
        load_graphs("-")


# ---- Excel -----------------------------------------------------------------------------------------------------------


def test_the_first_sheet_of_an_excel_file(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append([])
    sheet.append(["smiles", "logS", "when", None])
    for smiles, value in zip(SMILES, VALUES, strict=True):
        sheet.append([smiles, value, None, None])
    book.create_sheet("other").append(["smiles"])
    book.save(tmp_path / "t.xlsx")
    read = read_table(tmp_path / "t.xlsx")
    assert read.graphs.ids == SMILES
    assert read.graphs.y is not None
    assert read.graphs.y.ravel().tolist() == VALUES
    (tmp_path / "bad.xlsx").write_bytes(b"PK\x03\x04 nonsense")
    with pytest.raises(DataError, match=r"bad\.xlsx"):
        read_table(tmp_path / "bad.xlsx")


def test_without_openpyxl_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(UsageError, match=r"t\.xlsx.*pip install openpyxl.*CSV"):
        read_table(tmp_path / "t.xlsx")


# ---- pieces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["t.csv", "t.csv.gz", "t.smi", "t.parquet"])
@pytest.mark.parametrize("rows", [1, 3, 10, 100])
def test_pieces_are_the_whole(tmp_path: Path, file: str, rows: int) -> None:
    if file.endswith(".parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"smiles": SMILES, "name": VALUES}), tmp_path / file)
    else:
        comma = " " if file.endswith(".smi") else ","
        text = f"smiles{comma}name\n" + "".join(f"{s}{comma}{v}\n" for s, v in zip(SMILES, VALUES, strict=True))
        (tmp_path / file).write_bytes(gzip.compress(text.encode()) if file.endswith(".gz") else text.encode())
    whole = read_cells(tmp_path / file)
    pieces = list(iter_cells(tmp_path / file, rows))
    assert all(len(piece) <= rows for piece in pieces)
    for name, cells in whole.columns.items():
        assert [cell for piece in pieces for cell in piece.columns[name]] == cells
    assert [piece.place(row) for piece in pieces for row in range(len(piece))] == [
        whole.place(row) for row in range(10)
    ]


def test_pieces_take_no_more_memory_for_a_longer_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_formats, "_BLOCK", 1 << 14)
    peaks = []
    for lines in (5000, 50_000):
        path = tmp_path / f"{lines}.csv"
        path.write_text("smiles,name\n" + "CCO,ethanol\n" * lines)
        tracemalloc.start()
        assert sum(len(piece) for piece in iter_cells(path, 500)) == lines
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
