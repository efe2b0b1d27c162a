"""Files from anywhere: every reader answers with a set or with one of our own errors, in bounded time and memory.

The first half keeps files that once broke a reader, made on the spot; the second half looks for new ones.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import struct
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import damage
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlap.graphs import load_graphs, packed, synthetic
from mlap.graphs.inputs import iter_inputs, read_inputs

pytest.importorskip("rdkit")


#: the message of an expected error, of a length that can be read
answered = partial(damage.answered, longest=3000)


@contextlib.contextmanager
def memory_below(megabytes: float) -> Iterator[None]:
    """What Python allocates at once stays below a limit."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < megabytes * 1e6, f"{peak / 1e6:.0f} MB"


# ---- files that once broke a reader ----------------------------------------------------------------------------------


def zeros(count: int, byte: bytes = b"\0") -> bytes:
    """So many equal bytes, gzipped without being held."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1) as file:
        for _ in range(count >> 20):
            file.write(byte * (1 << 20))
    return buffer.getvalue()


HOSTILE: dict[str, Callable[[], bytes]] = {
    "line.csv.gz": lambda: zeros(300 << 20, b"C"),
    "line.smi.gz": lambda: zeros(300 << 20, b"C"),
    "line.sdf.gz": lambda: zeros(300 << 20, b"C"),
    "zeros.csv.gz": lambda: zeros(300 << 20),
    "header.csv.gz": lambda: gzip.compress(b"smiles,y\nC,1\n") + zeros(100 << 20, b","),
    "field.csv": lambda: b'smiles,y\n"' + b"C" * 200_000 + b'",1\n',
    "quote.csv": lambda: b'smiles,y\n"C,1\n' + b"CC,0\n" * 50_000,
    "cut.csv.gz": lambda: gzip.compress(b"smiles,y\nC,1\n" * 100)[:-30],
    "plain.csv.gz": lambda: b"smiles,y\nC,1\n",
    "columns.csv": lambda: b",".join(b"c%d" % number for number in range(20_000)) + b"\n",
    "same.csv": lambda: b"smiles,smiles\nC,C\n",
    "empty.csv": lambda: b"",
    "blank.csv": lambda: b"\n" * 10_000,
    "bom.csv": lambda: b"\xef\xbb\xbf",
    "utf16.csv": lambda: b"\xff\xfes\0m\0i",
    "nul.csv": lambda: b"smiles,y\nC\0C,1\n",
    "empty.sdf": lambda: b"$$$$\n$$$$\n",
    "counts.sdf": lambda: b"\n\n\n999999  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n$$$$\n",
    "v3000.sdf": lambda: (
        b"\n\n\n  0  0  0     0  0            999 V3000\nM  V30 BEGIN CTAB\nM  V30 COUNTS -1 9 0 0 0\n"
    ),
    "deep.smi": lambda: b"C(" * 20_000 + b"C" + b")" * 20_000 + b"\n",
    "large.smi": lambda: b"C" * 200_000 + b"\n",
    "rings.smi": lambda: b"C%99" * 3000 + b"\n",
    "extension.smi": lambda: b"C |" + b"$" * 10_000 + b"|\n",
    "not.parquet": lambda: b"PAR1" + b"\xff" * 100 + b"PAR1",
    "not.xlsx": lambda: b"PK\x03\x04" + b"\xff" * 100,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_tables(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[name]())
    with memory_below(400):
        message = answered(lambda: load_graphs(path, root=tmp_path, cache=False, targets=()))
        assert message is None or name in message
        answered(lambda: read_inputs(path, molecules=True))
        answered(lambda: list(iter_inputs(path, rows=1000)))


def test_parquet_with_text_that_is_no_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    wrong = pyarrow.array([b"CCO", b"\xff\xfe", b"C"], pyarrow.binary()).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"smiles": wrong, "y": [0, 1, 0]}), tmp_path / "bad.parquet")
    message = answered(lambda: load_graphs(tmp_path / "bad.parquet", cache=False))
    assert message is not None
    assert "bad.parquet" in message
    nested = pyarrow.table({"smiles": [["C"], ["CC"]], "y": [{"a": 1}, None], "z": [b"\xff", None]})
    parquet.write_table(nested, tmp_path / "nested.parquet")
    answered(lambda: load_graphs(tmp_path / "nested.parquet", cache=False))


def test_a_workbook_that_would_fill_the_memory(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path = tmp_path / "large.xlsx"
    book = openpyxl.Workbook()
    for row in (("smiles", "y"), ("CCO", 1), ("C", 0)):
        book.active.append(row)
    book.save(path)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("xl/media/image1.png", "w", force_zip64=True) as file,
    ):
        for _ in range(1100):
            file.write(bytes(1 << 20))
    assert path.stat().st_size < 8 << 20
    with memory_below(50):
        message = answered(lambda: read_inputs(path, molecules=True))
    assert message is not None
    assert "1100 MB" in message


@pytest.mark.parametrize("content", [zeros(200 << 20, b"1"), zeros(200 << 20, b","), gzip.compress(b'"' * 300_000)])
def test_ogb_files(tmp_path: Path, content: bytes) -> None:
    for file in ("num-node-list", "num-edge-list", "edge", "graph-label"):
        (tmp_path / "raw").mkdir(exist_ok=True)
        (tmp_path / "raw" / f"{file}.csv.gz").write_bytes(content)
    with memory_below(200):
        assert answered(lambda: load_graphs(tmp_path, cache=False)) is not None


# ---- looking for new ones --------------------------------------------------------------------------------------------

many = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

#: what tables are made of, in an order that nobody expects
SNIPPETS = st.sampled_from(
    [
        *("smiles", "y", "name", "Active", "Inactive", "CCO", "c1ccccc1", "[Na+].[Cl-]", "C(C", "CC |$a$|"),
        *("1", "0", "-1", "1,5", "1.5", "1e999", "nan", "NA", "2", "é", "\ufeff", "\0", "'", "|", "$$$$", "M  END"),
        *("> <a>", "\n", "\r\n", "\r", ",", ";", "\t", " ", '"', "smiles,y\nC,1\n", "\n\n\n  1  0  0  V2000\n"),
    ]
)
TEXTS = st.lists(SNIPPETS, max_size=30).map("".join)


def encoded(text: str, how: str) -> bytes:
    return text.encode(how, "replace")


@given(
    text=TEXTS,
    how=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    suffix=st.sampled_from([".csv", ".tsv", ".smi", ".sdf", ".csv.gz"]),
    whole=st.booleans(),
)
@many
def test_any_text(tmp_path: Path, text: str, how: str, suffix: str, whole: bool) -> None:
    content = encoded(text, how)
    content = gzip.compress(content) if suffix.endswith(".gz") else content
    path = tmp_path / f"t{suffix}"
    path.write_bytes(content if whole else content[: len(content) // 2])
    answered(lambda: load_graphs(path, cache=False))
    answered(lambda: load_graphs(path, cache=False, targets=()))
    answered(lambda: read_inputs(path, molecules=True))


@given(
    content=st.binary(max_size=300), suffix=st.sampled_from([".csv", ".smi", ".sdf", ".csv.gz", ".parquet", ".xlsx"])
)
@many
def test_any_bytes(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"b{suffix}"
    path.write_bytes(content)
    answered(lambda: load_graphs(path, cache=False, targets=()))
    answered(lambda: list(iter_inputs(path, rows=3)))


@given(text=st.text(max_size=60))
@many
def test_any_text_as_an_argument(text: str) -> None:
    answered(lambda: read_inputs(text, molecules=True))
    answered(lambda: read_inputs([text], molecules=True))


@given(columns=st.dictionaries(st.text(min_size=1, max_size=5), st.lists(TEXTS, min_size=4, max_size=4), min_size=1))
@many
def test_any_columns(columns: dict[str, list[str]]) -> None:
    smiles = ["CCO", "C", "CC", "CN"]
    answered(lambda: load_graphs(smiles, labels=columns))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "s.graphs"
    packed.save(synthetic(1), path)
    return path


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)


@given(data=st.data())
@many
def test_packed_sets_that_lie(tmp_path: Path, whole: Path, data: st.DataObject) -> None:
    """Headers and arrays changed at random, with right checksums: a sound set, or an error."""
    path = tmp_path / "s.graphs"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(whole, path)
    header = json.loads((path / "header.json").read_text())
    said = header["set"]
    if data.draw(st.booleans()):
        said[data.draw(st.sampled_from(sorted(said)))] = data.draw(JSON)
    else:
        name = data.draw(st.sampled_from(sorted(said["arrays"])))
        entry = said["arrays"][name]
        values = np.fromfile(path / f"{name}.bin", entry["dtype"]).reshape(entry["shape"])
        dtype = data.draw(st.sampled_from(["<u1", "<i2", "<u4", "<i8", "<f4", "<f8"]))
        values = values.astype(dtype)
        limits = np.iinfo(dtype) if dtype[1] in "ui" else np.finfo(dtype)
        place = data.draw(st.integers(0, max(0, values.size - 1)))
        if values.size:
            values.flat[place] = data.draw(st.sampled_from([limits.min, limits.max, 0, 1, 25]))
        values.tofile(path / f"{name}.bin")
        entry.update(dtype=dtype, crc32=zlib.crc32(values.tobytes()))
    header["sha256"] = packed._digest(said)
    (path / "header.json").write_text(json.dumps(header))

    def use() -> None:
        graphs = packed.load(path)
        packed.notes(path)
        batch = graphs.batch(np.arange(len(graphs)))
        assert batch.edge_index.numel() == 0 or int(batch.edge_index.max()) < batch.num_nodes
        assert batch.edge_index.numel() == 0 or int(batch.edge_index.min()) >= 0
        graphs.validate()

    message = answered(use)
    assert message is None or str(path) in message


#: what the lines of OGB's and TU's files are made of
NUMBERS = st.lists(
    st.sampled_from(
        ["0", "1", "2", "7", "-1", "1.5", "4294967296", "1e400", "nan", "", "x", ",", ", ", "\n", "\r\n", '""']
    ),
    max_size=12,
).map("".join)


@given(
    files=st.dictionaries(
        st.sampled_from(
            [
                "A",
                "graph_indicator",
                "graph_labels",
                "node_labels",
                "edge_labels",
                "node_attributes",
                "edge_attributes",
                "graph_attributes",
            ]
        ),
        NUMBERS | st.binary(max_size=20).map(repr),
    )
)
@many
def test_tu_folders(tmp_path: Path, files: dict[str, str]) -> None:
    shutil.rmtree(tmp_path / "T", ignore_errors=True)
    (tmp_path / "T").mkdir()
    sound = {"A": "1, 2\n2, 1\n3, 4\n4, 3\n", "graph_indicator": "1\n1\n2\n2\n", "graph_labels": "0\n1\n"}
    for name, text in {**sound, **files}.items():
        (tmp_path / "T" / f"T_{name}.txt").write_text(text)
    answered(lambda: load_graphs(tmp_path / "T", cache=False).validate())


@given(
    files=st.dictionaries(
        st.sampled_from(["edge", "edge-feat", "graph-label", "node-feat", "num-edge-list", "num-node-list"]), NUMBERS
    ),
    split=NUMBERS,
    smiles=TEXTS,
)
@many
def test_ogb_folders(tmp_path: Path, files: dict[str, str], split: str, smiles: str) -> None:
    shutil.rmtree(tmp_path / "o", ignore_errors=True)
    sound = {"edge": "0,1\n0,1\n", "graph-label": "0\n1\n", "num-edge-list": "1\n1\n", "num-node-list": "2\n2\n"}
    parts = {"split/s/train": split, "split/s/valid": "1\n", "split/s/test": "", "mapping/mol": smiles}
    for name, text in {**{f"raw/{stem}": text for stem, text in {**sound, **files}.items()}, **parts}.items():
        path = tmp_path / "o" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    answered(lambda: load_graphs(tmp_path / "o", cache=False).validate())


@given(content=st.binary(max_size=100), where=st.integers(0, 60))
@many
def test_damaged_gzip_members(tmp_path: Path, content: bytes, where: int) -> None:
    whole = gzip.compress(b"smiles,y\n" + b"CCO,1\nCN,0\n" * 20)
    path = tmp_path / "d.csv.gz"
    path.write_bytes(whole[:where] + content + whole[where + len(content) :])
    answered(lambda: load_graphs(path, cache=False))


def test_standard_input_of_any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"", b"\n", b"\x1f\x8b", gzip.compress(b"C\n")[:-3], b"\xff\xfe", struct.pack("<I", 7), b"C" * 9):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        answered(lambda: load_graphs("-", targets=()))
