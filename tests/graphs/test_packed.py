"""Packed sets come back as they were, or with an error that names the file: never a crash, never nonsense."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import mmap
import multiprocessing
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlap.errors import DataError, UsageError
from mlap.files import aside
from mlap.graphs import Features, GraphSet, Task, packed, places, random_split, synthetic


@pytest.fixture(autouse=True)
def _own_memory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked before is remembered for one test only, and not in the user's cache."""
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path_factory.getbasetemp() / "user" / os.urandom(8).hex()))


FEATURES = st.sampled_from(["none", "categories", "reals", "scaled", "signed"])
LABELS = st.sampled_from(["none", "multiclass", "binary", "regression"])


def make_set(seed: int, num_graphs: int, nodes: str, edges: str, labels: str, directed: bool, ids: bool) -> GraphSet:
    """A random set; sizes jump over 255 and 65,535 now and then, where the stored types change."""
    rng = np.random.default_rng(seed)
    node_counts = rng.choice([0, 1, 2, 5, 300], num_graphs, p=[0.1, 0.2, 0.3, 0.3, 0.1])
    edge_counts = np.where(node_counts > (0 if directed else 1), rng.integers(0, 9, num_graphs), 0)
    size = np.repeat(node_counts, edge_counts)
    source = rng.integers(0, np.maximum(size, 1))
    target = rng.integers(0, np.maximum(size, 1))
    if not directed:
        target = (source + 1 + target % np.maximum(size - 1, 1)) % np.maximum(size, 1)

    def features(kind: str, rows: int) -> Features | None:
        if kind == "none":
            return None
        if kind == "categories":
            return Features(rng.integers(0, 400, (rows, 3)), (400, 401, 70_000))
        if kind == "reals":
            return Features.reals(rng.normal(size=(rows, 2)))
        low = 0 if kind == "scaled" else -40_000
        return Features.reals(rng.integers(low, 40_000, (rows, 2)), divisor=1000)

    y: Any = None
    task = None
    if labels == "multiclass":
        y, task = rng.integers(0, 4, num_graphs), Task("multiclass", 4, "accuracy", ("a", "b", "c", "ü"))
    elif labels == "binary":
        y, task = rng.choice([0.0, 1.0, np.nan], (num_graphs, 2)).astype(np.float32), Task("binary", 2, "rocauc")
    elif labels == "regression":
        y, task = rng.normal(size=(num_graphs, 1)).astype(np.float32), Task("regression", 1, "rmse")
    return GraphSet(
        node_ptr=np.concatenate(([0], np.cumsum(node_counts))),
        edge_ptr=np.concatenate(([0], np.cumsum(edge_counts))),
        edges=np.stack((source, target)).reshape(2, -1),
        directed=directed,
        node_features=features(nodes, int(node_counts.sum())),
        edge_features=features(edges, int(edge_counts.sum())),
        y=y,
        task=task,
        splits=random_split(num_graphs, seed),
        name="ünïcode",
        ids=[f"C\N{DEGREE SIGN}{i}" * (i % 3) for i in range(num_graphs)] if ids else None,
    ).validate()


sets = st.builds(
    make_set, st.integers(0, 2**32 - 1), st.integers(0, 12), FEATURES, FEATURES, LABELS, st.booleans(), st.booleans()
)
#: `tmp_path` is shared by the examples of a test, each of which writes to a folder of its own.
several = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same(loaded: GraphSet, original: GraphSet) -> None:
    assert loaded.fingerprint == original.fingerprint == dataclasses.replace(loaded).fingerprint
    assert (loaded.name, loaded.task, loaded.directed) == (original.name, original.task, original.directed)
    assert loaded.ids == original.ids
    assert list(loaded.splits) == list(original.splits)
    order = np.random.default_rng(0).permutation(len(original))
    for one, other in zip(slots(loaded.batch(order)), slots(original.batch(order)), strict=True):
        if isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert torch.equal(torch.nan_to_num(one, -7), torch.nan_to_num(other, -7))
        else:
            assert one == other


def write(path: Path, pieces: Iterable[GraphSet], splits: Any = None) -> None:
    with packed.Writer(path) as writer:
        for piece in pieces:
            writer.append(piece)
        writer.splits = splits or {}


def slots(batch: Any) -> list[Any]:
    return [getattr(batch, entry.name) for entry in dataclasses.fields(batch)]


@given(original=sets)
@several
def test_round_trip(tmp_path: Path, original: GraphSet) -> None:
    path = tmp_path / "set.graphs"
    packed.save(original, path)
    assert_same(packed.load(path), original)
    assert_same(packed.verify(path), original)
    assert os.listdir(tmp_path) == ["set.graphs"]  # replaced in place, nothing left behind


@given(original=sets, cuts=st.lists(st.integers(0, 12), max_size=4))
@several
def test_pieces_make_the_same_set(tmp_path: Path, original: GraphSet, cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(original)) for cut in cuts), len(original)]
    pieces = (original.subset(np.arange(start, stop)) for start, stop in pairwise(bounds))
    write(tmp_path / "pieces", pieces, original.splits)
    assert_same(packed.verify(tmp_path / "pieces"), original)


def test_types_widen_while_writing(tmp_path: Path) -> None:
    """The first piece fits one byte, the second needs two and the third four: nothing of the first is lost."""
    pieces = [
        GraphSet(
            node_ptr=np.array([0, nodes]),
            edge_ptr=np.array([0, 2]),
            edges=np.array([[0, nodes - 1], [1, 0]]),
            edge_features=Features.reals(np.array([[nodes], [-nodes]]), divisor=10),
            name="growing",
        )
        for nodes in (3, 300, 70_000, 3)
    ]
    write(tmp_path / "w", pieces)
    loaded = packed.verify(tmp_path / "w")
    assert loaded.edges.dtype == np.uint32
    assert loaded.edge_features is not None
    assert loaded.edge_features.values.dtype == np.int32
    assert_same(loaded, GraphSet.concatenate(pieces))


def test_arrays_are_small_mapped_and_read_only(tmp_path: Path) -> None:
    packed.save(synthetic(10), tmp_path / "s")
    loaded = packed.load(tmp_path / "s")
    assert loaded.edges.dtype == np.uint8
    assert not loaded.edges.flags.writeable
    assert isinstance(loaded.edges.base.base, mmap.mmap | np.memmap)
    assert type(loaded.edges) is np.ndarray
    assert (tmp_path / "s" / "edges.bin").stat().st_size == 2 * loaded.num_edges


def test_large_arrays_keep_no_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken from a large array is an ordinary copy, and its pages leave the process."""
    statm = Path("/proc/self/smaps")
    if not statm.exists():
        pytest.skip("resident pages of a mapping can only be read on Linux")
    monkeypatch.setattr(packed, "SMALL", 1 << 16)
    original = make_set(3, 20_000, "reals", "reals", "none", True, False)
    packed.save(original, tmp_path / "large")
    loaded = packed.load(tmp_path / "large")
    assert_same(loaded, original)
    assert type(loaded.edges[0, [1, 2]]) is np.ndarray
    assert type(loaded.edges < 9) is not np.memmap

    def resident(name: str) -> int:
        """The resident kilobytes of the mapping of a file."""
        lines = statm.read_text().splitlines()
        start = next(i for i, line in enumerate(lines) if line.endswith(f"large/{name}.bin"))
        return next(int(line.split()[1]) for line in lines[start:] if line.startswith("Rss:"))

    loaded.batch(np.arange(len(loaded)))
    assert resident("edges") == resident("node_features") == resident("edge_features") == 0
    assert int(np.asarray(loaded.edges).sum()) == int(original.edges.sum())
    assert resident("edges") > 0  # the measure does measure something
    loaded.batch([0])
    assert resident("edges") == 0


# ---- damage ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "set.graphs"
    packed.save(make_set(1, 30, "categories", "scaled", "binary", False, True), path)
    return path


@given(data=st.data())
@settings(parent=several, max_examples=200)
def test_flipped_bits_and_truncations_are_found(tmp_path: Path, whole: Path, data: st.DataObject) -> None:
    path = tmp_path / "damaged"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(whole, path)
    file = path / data.draw(st.sampled_from(sorted(os.listdir(path))))
    content = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] ^= data.draw(st.integers(1, 255))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    file.write_bytes(content)
    if file.name == "header.json" and json_equal(bytes(content), (whole / "header.json").read_bytes()):
        return  # white space between the entries
    with pytest.raises(DataError) as caught:
        packed.load(path, verify=True)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def json_equal(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def rewrite_header(path: Path, change: Any) -> None:
    """Change what the header says and make its checksum right again: a lie, not an accident."""
    header = json.loads((path / "header.json").read_text())
    change(header["set"])
    header["sha256"] = hashlib.sha256(json.dumps(header["set"], sort_keys=True).encode()).hexdigest()
    (path / "header.json").write_text(json.dumps(header))


LIES: dict[str, Any] = {
    "rows": lambda s: s["arrays"]["edges"].update(shape=[2 * n for n in s["arrays"]["edges"]["shape"]]),
    "transposed": lambda s: s["arrays"]["edges"]["shape"].reverse(),
    "negative": lambda s: s["arrays"]["edges"].update(shape=[-n for n in s["arrays"]["edges"]["shape"]]),
    "type": lambda s: s["arrays"]["edges"].update(dtype="|O"),
    "signed": lambda s: s["arrays"]["node_ptr"].update(dtype="<f8"),
    "escape": lambda s: s["arrays"].update({"../../x": s["arrays"]["edges"]}),
    "no arrays": lambda s: s.update(arrays={}),
    "list": lambda s: s.update(arrays=[]),
    "no y": lambda s: s["arrays"].pop("y"),
    "no task": lambda s: s.update(task=None),
    "task": lambda s: s["task"].update(kind="magic"),
    "cardinalities": lambda s: s["node_features"].update(cardinalities=[1]),
    "divisor": lambda s: s["edge_features"].update(divisor=0),
    "directed": lambda s: s.pop("directed"),
    "splits": lambda s: s.update(splits=["train", "valid", "test", "more"]),
    "id_ptr": lambda s: s["arrays"].pop("id_ptr"),
    "fingerprint": lambda s: s.pop("fingerprint"),
    "a number for a name": lambda s: s.update(name=7),
    "a word for directed": lambda s: s.update(directed="no"),
    "two parts of one name": lambda s: s.update(splits=["train", "train", "test"]),
    "parts that are no names": lambda s: s.update(splits=[1, 2, 3]),
    "half an output": lambda s: s["task"].update(num_outputs=2.5),
    "true outputs": lambda s: s["task"].update(num_outputs=True),
    "endless categories": lambda s: s["node_features"].update(cardinalities=[10**12, 401, 70_000]),
    "categories in a text": lambda s: s["node_features"].update(cardinalities="aaa"),
    "a fractional divisor": lambda s: s["edge_features"].update(divisor=0.5),
    "categories that are floats": lambda s: s["node_features"].update(cardinalities=[4.5, 4, 4]),
    "names of the task": lambda s: s["task"].update(names=[["a"], ["b"]]),
    "labels of the task": lambda s: s["task"].update(labels=[[1, 2], [3, 4]]),
    "notes": lambda s: s.update(notes=3),
    "rows that were left out": lambda s: s.update(left_out=[{"row": "1", "place": "", "text": "", "reason": ""}]),
    "entries that were left out": lambda s: s.update(left_out=[7]),
    "a part of floats": lambda s: s["arrays"]["split_0"].update(dtype="<f8"),
    "a matrix of pointers": lambda s: s["arrays"]["node_ptr"].update(shape=[s["arrays"]["node_ptr"]["shape"][0], 1]),
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_headers_are_errors(tmp_path: Path, whole: Path, lie: str) -> None:
    path = tmp_path / "lie"
    shutil.copytree(whole, path)
    rewrite_header(path, LIES[lie])
    with pytest.raises(DataError, match=r"lie.*pack the set again"):
        packed.load(path)
    assert not isinstance(packed.notes(path), str)


def replace_array(path: Path, name: str, change: Any) -> None:
    """Change an array and make every checksum right again."""
    entry = json.loads((path / "header.json").read_text())["set"]["arrays"][name]
    values = np.fromfile(path / f"{name}.bin", entry["dtype"]).reshape(entry["shape"])
    change(values)
    values.tofile(path / f"{name}.bin")
    rewrite_header(path, lambda s: s["arrays"][name].update(crc32=zlib.crc32(values.tobytes())))


@pytest.mark.parametrize("name", ["node_ptr", "edge_ptr", "id_ptr", "split_0"])
def test_pointers_that_do_not_rise_are_errors(tmp_path: Path, whole: Path, name: str) -> None:
    path = tmp_path / "pointers"
    shutil.copytree(whole, path)
    replace_array(path, name, lambda values: values.__setitem__(3, 10**9))
    with pytest.raises(DataError, match=r"pointers.*pack the set again"):
        packed.load(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("edges", 65535, "an edge points to"), ("node_features", 65535, "category 65535"), ("y", 7, "label 7")],
)
def test_contents_are_looked_at(tmp_path: Path, whole: Path, name: str, value: int, message: str) -> None:
    path = tmp_path / "contents"
    shutil.copytree(whole, path)
    replace_array(path, name, lambda values: values.__setitem__((5, 0), value))
    with pytest.raises(DataError, match=rf"contents.*{message}"):
        packed.load(path)


def test_verify_recomputes_the_fingerprint(tmp_path: Path, whole: Path) -> None:
    path = tmp_path / "other"
    shutil.copytree(whole, path)
    rewrite_header(path, lambda s: s.update(fingerprint="0" * 16))
    with pytest.raises(DataError, match="fingerprint"):
        packed.verify(path)


def test_foreign_things_are_errors(tmp_path: Path, whole: Path) -> None:
    (tmp_path / "file").write_text("smiles,label\n")
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "header.json").write_text('{"format": "something else"}')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "header.json").write_text("[" * 100_000)
    for name in ("absent", "file", "json", "deep"):
        assert not packed.is_packed(tmp_path / name)
        with pytest.raises(DataError, match=name):
            packed.load(tmp_path / name)
    shutil.copytree(whole, tmp_path / "incomplete")
    (tmp_path / "incomplete" / "edges.bin").unlink()
    with pytest.raises(DataError, match=r"edges.bin is missing; pack the set again"):
        packed.load(tmp_path / "incomplete")


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_other_versions_are_errors(tmp_path: Path, whole: Path, version: Any) -> None:
    path = tmp_path / "version"
    shutil.copytree(whole, path)
    header = json.loads((path / "header.json").read_text())
    (path / "header.json").write_text(json.dumps({**header, "version": version}))
    with pytest.raises(DataError, match=f"version {version!r}, this mlap reads version 1; pack the set again"):
        packed.load(path)


def hostile(path: Path, source: Path, node: int) -> Path:
    """A copy of a set in which the first edge points to another node, with every checksum right."""
    shutil.copytree(source, path)
    entry = json.loads((path / "header.json").read_text())["set"]["arrays"]["edges"]
    values = np.fromfile(path / "edges.bin", entry["dtype"]).astype("<u4")
    values[1] = node
    values.tofile(path / "edges.bin")
    change = {"dtype": "<u4", "crc32": zlib.crc32(values.tobytes())}
    rewrite_header(path, lambda s: s["arrays"]["edges"].update(change))
    return path


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("node", [25, 4_000_000_000, 1_000_000])  # of the next graph, of nobody
def test_edges_that_leave_their_graph_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: int, small: bool
) -> None:
    packed.save(synthetic(2), tmp_path / "s")
    monkeypatch.setattr(packed, "SMALL", 1 << 30 if small else 100)
    path = hostile(tmp_path / "hostile", tmp_path / "s", node)
    with pytest.raises(DataError, match=f"hostile.*graph 0: .* node {node}, "):
        packed.load(path)


@pytest.mark.parametrize("block", [1, 30, 1 << 20])
def test_edges_are_looked_at_in_every_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    packed.save(synthetic(2), tmp_path / "s")
    monkeypatch.setattr(packed, "_LOOK", block)
    assert_same(packed.load(tmp_path / "s"), synthetic(2))
    edges = packed.load(tmp_path / "s").num_edges
    replace_array(tmp_path / "s", "edges", lambda values: values.__setitem__((edges - 1, 0), 25))
    with pytest.raises(DataError, match="node 25, but the graph has 25 nodes"):
        packed.load(tmp_path / "s")


def test_categories_that_are_no_numbers_are_errors(tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "nan")
    values = np.full(json.loads((whole / "header.json").read_text())["set"]["arrays"]["node_features"]["shape"], np.nan)
    values.astype("<f4").tofile(tmp_path / "nan" / "node_features.bin")
    change = {"dtype": "<f4", "crc32": zlib.crc32(values.astype("<f4").tobytes())}
    rewrite_header(tmp_path / "nan", lambda s: s["arrays"]["node_features"].update(change))
    with pytest.raises(DataError, match="node categories must be integers"):
        packed.load(tmp_path / "nan")


def test_large_sets_are_checked_until_their_files_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SMALL", 100)
    path = tmp_path / "s"
    packed.save(synthetic(10), path)
    looked: list[int] = []
    check_sum = packed._check_sum
    monkeypatch.setattr(packed, "_check_sum", lambda *given: (looked.append(1), check_sum(*given))[1])
    packed.load(path)
    assert not looked  # its own writer has looked at every piece
    packed.load(path, verify=True)
    assert looked
    shutil.copytree(path, tmp_path / "copy")
    for expected in (True, False):  # a copy is another file: once
        looked.clear()
        packed.load(tmp_path / "copy")
        assert bool(looked) is expected
    content = bytearray((path / "edges.bin").read_bytes())
    content[7] ^= 1
    stat = (path / "edges.bin").stat()
    (path / "edges.bin").write_bytes(content)
    os.utime(path / "edges.bin", ns=(stat.st_atime_ns, stat.st_mtime_ns))  # a forged time does not help
    for _ in range(2):
        with pytest.raises(DataError, match=r"edges\.bin is damaged"):
            packed.load(path)


def test_what_was_checked_is_not_believed_from_the_set_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes a set can put any file into it."""
    monkeypatch.setattr(packed, "SMALL", 100)
    packed.save(synthetic(2), tmp_path / "s")
    path = hostile(tmp_path / "hostile", tmp_path / "s", 9999)
    for file in (places.user_folder() / "checked").iterdir():
        shutil.copy(file, path)
    with pytest.raises(DataError, match="node 9999"):
        packed.load(path)


# ---- writing -----------------------------------------------------------------------------------------------------


def test_a_set_that_a_killed_process_moved_aside_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "s.graphs"
    packed.save(synthetic(2), path)
    path.rename(tmp_path / ".s.graphs.0123456789ab.old")
    assert packed.is_packed(path)
    assert packed.load(path).fingerprint == synthetic(2).fingerprint
    assert os.listdir(tmp_path) == ["s.graphs"]


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    packed.save(synthetic(2), tmp_path / "s.graphs")
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    for kind in ("part", "old"):
        left = Path(str(aside(tmp_path / "s.graphs", kind)).replace(f".{os.getpid()}-", f".{killed.pid}-"))
        left.mkdir()
        (left / "y.bin").touch()
    ours = aside(tmp_path / "s.graphs")  # of a process that lives
    ours.mkdir()
    packed.save(synthetic(2), tmp_path / "s.graphs")
    assert sorted(os.listdir(tmp_path)) == [ours.name, "s.graphs"]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "s"
    packed.save(synthetic(2), path)
    before = packed.load(path).fingerprint
    with pytest.raises(ZeroDivisionError):
        write(path, (synthetic(3 // left) for left in (1, 0)))
    with pytest.raises(DataError, match="no graphs to pack"):
        write(path, [])
    with pytest.raises(DataError, match="'train' names graph 99"):
        write(path, [synthetic(1)], {"train": np.array([99])})
    assert packed.load(path).fingerprint == before
    assert os.listdir(tmp_path) == ["s"]


def test_only_a_packed_set_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "file").write_text("more of it")
    for name in ("thesis", "file"):
        with pytest.raises(UsageError, match="is not a packed set; give another name"):
            packed.save(synthetic(1), tmp_path / name)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "more of it"
    (tmp_path / "empty").mkdir()
    packed.save(synthetic(1), tmp_path / "empty")
    packed.save(synthetic(2), tmp_path / "empty")
    packed.save(synthetic(2), tmp_path / "new" / "folders" / "s")
    assert_same(packed.load(tmp_path / "empty"), packed.load(tmp_path / "new" / "folders" / "s"))
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "new", "thesis"]


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write .*sub"):
        packed.save(synthetic(1), tmp_path / "file" / "sub")


def test_pieces_of_different_kinds_are_errors(tmp_path: Path) -> None:
    one = make_set(1, 3, "categories", "none", "binary", True, True)
    others = [
        dataclasses.replace(one, node_features=None),
        dataclasses.replace(one, node_features=Features(one.node_features.values, (401, 401, 70_000))),  # type: ignore[union-attr]
        dataclasses.replace(one, y=None, task=None),
        dataclasses.replace(one, ids=None),
        make_set(1, 3, "categories", "none", "binary", False, True),
    ]
    for other in others:
        with pytest.raises(DataError, match="differs in"):
            write(tmp_path / "s", [one, other])
    with pytest.raises(DataError, match="an edge points to"):
        write(tmp_path / "s", [dataclasses.replace(one, edges=one.edges + 300)])
    assert os.listdir(tmp_path) == []


def test_writers_at_the_same_time(tmp_path: Path) -> None:
    """Several processes write to one name over and over: every one succeeds, and what is there is whole."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_save_often, args=(tmp_path / "s", seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert packed.verify(tmp_path / "s").fingerprint in {synthetic(2, seed=seed).fingerprint for seed in range(3)}
    assert os.listdir(tmp_path) == ["s"]


def _save_often(path: Path, seed: int) -> None:
    for _ in range(20):
        packed.save(synthetic(2, seed=seed), path)
