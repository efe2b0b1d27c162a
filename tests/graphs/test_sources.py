"""One loader for names and paths, and the packed sets that it keeps."""

from __future__ import annotations

import functools
import gzip
import multiprocessing
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlap.errors import DataError, UsageError
from mlap.graphs import GraphSet, packed, sources, synthetic
from mlap.graphs.ogb import read_ogb
from mlap.graphs.places import data_root
from mlap.graphs.sources import known_datasets, load_graphs
from mlap.graphs.tu import read_tu


@pytest.fixture(autouse=True)
def _nothing_leaves_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reaches the network or the user's own cache."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "user"))
    monkeypatch.delenv("MLAP_DATA", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def make_ogb(folder: Path, num_graphs: int = 5) -> Path:
    """Paths of two, three, … nodes in OGB's layout, with two splits."""

    def write(name: str, rows: Any) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(folder / name, "wt") as file:
            file.writelines(f"{row}\n" for row in rows)

    sizes = range(2, 2 + num_graphs)
    write("raw/num-node-list.csv.gz", sizes)
    write("raw/num-edge-list.csv.gz", [size - 1 for size in sizes])
    write("raw/edge.csv.gz", [f"{node},{node + 1}" for size in sizes for node in range(size - 1)])
    write("raw/graph-label.csv.gz", [size % 3 for size in sizes])
    for split, order in (("first", range(num_graphs)), ("second", range(num_graphs - 1, -1, -1))):
        for part, chosen in zip(("train", "valid", "test"), (order[:2], order[2:3], order[3:]), strict=True):
            write(f"split/{split}/{part}.csv.gz", chosen)
    return folder


def make_tu(folder: Path, name: str) -> Path:
    """Two single edges in TU's layout."""
    folder.mkdir(parents=True)
    for part, text in {
        "A": "1, 2\n2, 1\n3, 4\n4, 3\n",
        "graph_indicator": "1\n1\n2\n2\n",
        "graph_labels": "0\n1\n",
    }.items():
        (folder / f"{name}_{part}.txt").write_text(text)
    return folder


def make_table(path: Path) -> Path:
    path.write_text("smiles,active\n" + "".join(f"{'C' * length}O,{length % 2}\n" for length in range(1, 21)))
    return path


@pytest.fixture
def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function after whose call every reader of text raises."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the text was read again")

    def forbid() -> None:
        for name in ("ogb_chunks", "read_tu", "read_table"):
            reader = getattr(sources, name)
            monkeypatch.setattr(sources, name, functools.wraps(reader)(lambda *_, **__: refuse()))

    return forbid


# ---- names and paths ---------------------------------------------------------------------------------------------


def test_synthetic(root: Path) -> None:
    assert (
        load_graphs("synthetic", root=root, graphs_per_class=3, seed=5).fingerprint == synthetic(3, seed=5).fingerprint
    )
    with pytest.raises(UsageError, match="synthetic, which takes no smiles"):
        load_graphs("synthetic", root=root, smiles="x")


def test_every_kind_of_path(root: Path, tmp_path: Path) -> None:
    ogb, tu = make_ogb(tmp_path / "paths"), make_tu(tmp_path / "pairs" / "raw", "PAIRS").parent
    packed.save(synthetic(2), tmp_path / "s.graphs")
    assert load_graphs(ogb, root=root, split="first").fingerprint == read_ogb(ogb, split="first").fingerprint
    assert load_graphs(str(tu), root=root).fingerprint == read_tu(tu).fingerprint
    assert load_graphs(tmp_path / "s.graphs", root=root).fingerprint == synthetic(2).fingerprint
    for options, message in (({"smiles": "x"}, "takes no smiles"), ({"split": "x"}, "split")):
        with pytest.raises(UsageError, match=message):
            load_graphs(ogb, root=root, **options)
    with pytest.raises(UsageError, match="packed set, which takes no smiles"):
        load_graphs(tmp_path / "s.graphs", root=root, smiles="x")
    with pytest.raises(UsageError, match="unknown split 'x'"):
        load_graphs(tmp_path / "s.graphs", root=root, split="x")


def test_names_are_looked_up_in_the_root(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An official set whose files are there, and any other folder: the network is not touched (see the fixture)."""
    make_tu(root / "NCI1" / "raw", "NCI1")
    make_tu(root / "MINE", "MINE")
    assert load_graphs("nci1", root=root).name == "NCI1"
    assert load_graphs("MINE", root=root).name == "MINE"
    monkeypatch.setenv("MLAP_DATA", str(root))
    assert load_graphs("NCI1").name == "NCI1"
    make_tu(tmp_path / "here" / "NCI1", "OTHER")
    monkeypatch.chdir(tmp_path / "here")
    assert load_graphs("NCI1").name == "OTHER"  # what exists as a path is taken as one


def test_an_absent_official_set_is_fetched_to_the_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(name: str, where: Path, **_: Any) -> Path:
        asked.append((name, where))
        return make_tu(where / name / "raw", name).parent

    monkeypatch.setattr(sources, "fetch_tu", fetch)
    monkeypatch.setattr(sources, "fetch_ogb", lambda name, where, **_: make_ogb(where / name))
    assert len(load_graphs("mcf-7", root=root)) == 2
    assert asked == [("MCF-7", root)]
    assert load_graphs("MCF-7", root=root).name == "MCF-7"
    assert len(asked) == 1


def test_what_is_not_there(root: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"unknown data set 'ogbg-molhif'; did you mean 'ogbg-molhiv'.*paths of a packed"
    ):
        load_graphs("ogbg-molhif", root=root)
    with pytest.raises(UsageError, match="did you mean 'NCI1'"):
        load_graphs("nci-1", root=root)
    for path in (tmp_path / "absent", "some/where", "absent.csv", "absent.graphs"):
        with pytest.raises(UsageError, match="there is no file or folder"):
            load_graphs(path, root=root)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    for name in ("empty", "notes.txt"):
        with pytest.raises(UsageError, match=f"{name} is not a data set: expected a packed set"):
            load_graphs(tmp_path / name, root=root)


# ---- the cache ---------------------------------------------------------------------------------------------------


def entries(root: Path) -> list[str]:
    return sorted(os.listdir(root / "packed")) if (root / "packed").exists() else []


def test_the_second_time_nothing_is_read(root: Path, tmp_path: Path, forbid_reading: Any) -> None:
    pytest.importorskip("rdkit")
    ogb, tu, table = make_ogb(tmp_path / "paths"), make_tu(tmp_path / "PAIRS", "PAIRS"), make_table(tmp_path / "t.csv")
    calls: list[tuple[Path, dict[str, Any]]] = [
        (ogb, {"split": "first"}),
        (ogb, {"split": "second"}),
        (tu, {}),
        (table, {}),
    ]
    said: list[str] = []
    first = [load_graphs(path, root=root, say=said.append, **options) for path, options in calls]
    assert len(entries(root)) == 4
    assert any("'smiles' (guessed)" in sentence for sentence in said)
    forbid_reading()
    said_again: list[str] = []
    for (path, options), graphs in zip(calls, first, strict=True):
        again = load_graphs(path, root=root, say=said_again.append, **options)
        assert again.fingerprint == graphs.fingerprint
        assert again.ids == graphs.ids
    # What was guessed is said again; where the packed set lies was said once.
    assert said_again == [sentence for sentence in said if str(root) not in sentence]
    assert sum(str(root / "packed") in sentence for sentence in said) == 4
    assert first[0].fingerprint != first[1].fingerprint
    load_graphs(table, root=root, processes=1, progress=None)  # these change nothing in what is read
    with pytest.raises(AssertionError, match="read again"):
        load_graphs(table, root=root, split="scaffold")


def test_without_the_cache_nothing_is_kept(root: Path, tmp_path: Path) -> None:
    ogb = make_ogb(tmp_path / "paths")
    graphs = load_graphs(ogb, root=root, cache=False, split="first")
    assert graphs.fingerprint == load_graphs(ogb, root=root, split="first").fingerprint
    shutil.rmtree(root / "packed")
    load_graphs(ogb, root=root, cache=False, split="first")
    assert os.listdir(root) == []


def test_a_changed_source_is_read_again(root: Path, tmp_path: Path) -> None:
    ogb = make_ogb(tmp_path / "paths", 5)
    assert len(load_graphs(ogb, root=root, split="first")) == 5
    load_graphs(ogb, root=root, split="second")
    make_ogb(ogb, 6)
    said: list[str] = []
    assert len(load_graphs(ogb, root=root, split="first", say=said.append)) == 6
    assert len(said) == 1
    assert said[0].startswith(f"reading {ogb} again: ")
    assert len(entries(root)) == 2  # the outdated one is gone, the other split's is left
    os.utime(ogb / "raw" / "edge.csv.gz", ns=(1, 1))
    load_graphs(ogb, root=root, split="first", say=said.append)
    assert len(said) == 2


@pytest.mark.parametrize("damage", ["flip", "truncate", "header", "magic", "missing", "version"])
def test_a_damaged_cache_is_made_anew(root: Path, tmp_path: Path, damage: str) -> None:
    ogb = make_ogb(tmp_path / "paths")
    fingerprint = load_graphs(ogb, root=root, split="first").fingerprint
    (entry,) = (root / "packed").iterdir()
    edges, header = entry / "edges.bin", entry / "header.json"
    if damage == "flip":
        edges.write_bytes(bytes([edges.read_bytes()[0] ^ 1]) + edges.read_bytes()[1:])
    elif damage == "truncate":
        edges.write_bytes(edges.read_bytes()[:-1])
    elif damage == "missing":
        edges.unlink()
    else:
        old, new = {"header": (",", ";"), "magic": ("mlap", "mlop"), "version": (": 1", ": 9")}[damage]
        header.write_text(header.read_text().replace(old, new))
    said: list[str] = []
    assert load_graphs(ogb, root=root, split="first", say=said.append).fingerprint == fingerprint
    assert len(said) == 1
    assert said[0].startswith(f"reading {ogb} again: ")
    said.clear()
    assert load_graphs(ogb, root=root, split="first", say=said.append).fingerprint == fingerprint
    assert said == []


def test_a_root_that_cannot_be_written(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cache is used instead, and if that cannot be written either, nothing is kept."""
    monkeypatch.setattr(sys, "platform", "linux")
    ogb = make_ogb(root / "paths")
    root.chmod(0o555)
    try:
        expected = read_ogb(ogb, split="first").fingerprint
        assert load_graphs("paths", root=root, split="first").fingerprint == expected
        assert len(entries(tmp_path / "user" / "mlap")) == 1
        assert entries(root) == []
        shutil.rmtree(tmp_path / "user")
        (tmp_path / "user").mkdir(mode=0o555)
        said: list[str] = []
        assert load_graphs("paths", root=root, split="first", say=said.append).fingerprint == expected
        assert "is not kept as a packed set" in said[0]
        assert os.listdir(tmp_path / "user") == []
    finally:
        root.chmod(0o755)


def test_processes_at_the_same_time(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them reads the set, the others wait for it."""
    ogb = make_ogb(tmp_path / "paths", 200)
    pack = sources._Reader.pack

    def noted(self: Any, *arguments: Any) -> None:
        with (tmp_path / "packed_by").open("a") as file:
            file.write(f"{os.getpid()}\n")
        pack(self, *arguments)

    monkeypatch.setattr(sources._Reader, "pack", noted)
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        loaded = pool.starmap(_load, [(ogb, root)] * 12, chunksize=1)
    assert set(loaded) == {read_ogb(ogb, split="first").fingerprint}
    assert len(entries(root)) == 1
    assert len((tmp_path / "packed_by").read_text().splitlines()) == 1


def _load(ogb: Path, root: Path) -> str:
    return load_graphs(ogb, root=root, split="first").fingerprint


def test_an_error_while_reading_leaves_nothing(root: Path, tmp_path: Path) -> None:
    ogb = make_ogb(tmp_path / "paths")
    (ogb / "raw" / "edge.csv.gz").write_bytes(gzip.compress(b"0,1\n0,9\n"))
    with pytest.raises(DataError, match=r"edge\.csv\.gz"):
        load_graphs(ogb, root=root, split="first")
    assert entries(root) == []


# ---- what there is -----------------------------------------------------------------------------------------------


def test_known_datasets(root: Path) -> None:
    known = {entry.name: entry for entry in known_datasets(root)}
    assert {"synthetic", "ogbg-molhiv", "ogbg-ppa", "MCF-7", "NCI1"} <= known.keys()
    assert known["ogbg-ppa"].graphs == 158_100
    assert known["MCF-7"].where == "to be downloaded"
    make_tu(root / "MCF-7" / "raw", "MCF-7")
    make_tu(root / "MINE", "MINE")
    make_ogb(root / "ogbg_molhiv")
    known = {entry.name: entry for entry in known_datasets(root)}
    assert [known[name].where for name in ("MCF-7", "MINE", "ogbg-molhiv")] == [
        str(root / folder) for folder in ("MCF-7", "MINE", "ogbg_molhiv")
    ]
    assert known_datasets(root / "absent")[0].name == "synthetic"


def test_data_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    user = tmp_path / "user"
    for platform, variables, expected in (
        ("linux", {}, user / "mlap"),
        ("linux", {"XDG_CACHE_HOME": ""}, user / ".cache" / "mlap"),
        ("darwin", {}, user / "Library" / "Caches" / "mlap"),
        ("win32", {}, user / "mlap"),
        ("linux", {"MLAP_DATA": str(tmp_path / "mine")}, tmp_path / "mine"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert data_root() == expected


# ---- real data ---------------------------------------------------------------------------------------------------


def test_real_sets_from_their_names(root: Path, shared_data: Path, forbid_reading: Any) -> None:
    for name in ("ogbg_molhiv", "NCI83"):
        if not (shared_data / name).is_dir():
            pytest.skip(f"no {name} in {shared_data}")
        (root / name).symlink_to(shared_data / name)
    cold: dict[str, GraphSet] = {name: load_graphs(name, root=root) for name in ("ogbg-molhiv", "NCI83")}
    assert {name: len(graphs) for name, graphs in cold.items()} == {"ogbg-molhiv": 41_127, "NCI83": 3918}
    forbid_reading()
    started = time.perf_counter()
    warm = {name: load_graphs(name, root=root) for name in cold}
    assert time.perf_counter() - started < 2  # about 0.05 s on an idle machine
    for name, graphs in warm.items():
        assert graphs.fingerprint == cold[name].fingerprint
        assert graphs.ids == cold[name].ids
    assert np.array_equal(warm["ogbg-molhiv"].batch([0, 7]).x.numpy(), cold["ogbg-molhiv"].batch([0, 7]).x.numpy())  # type: ignore[union-attr]
