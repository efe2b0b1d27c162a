"""Downloads from a real local server that misbehaves in every way, and archives that do."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import re
import socket
import stat
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.datasets import TUDataset

from mlap.errors import DataError, UsageError
from mlap.graphs import download as module
from mlap.graphs.download import TU_URL, download, extract_zip, fetch_ogb, fetch_tu
from mlap.graphs.ogb import read_ogb, required_files
from mlap.graphs.tu import read_tu

_KNOWN = module.KNOWN_FILES

CONTENT = np.random.RandomState(0).bytes(1_000_000)


@pytest.fixture(autouse=True)
def _sets_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers of these tests have other sets under the official names."""
    monkeypatch.setattr(module, "KNOWN_FILES", {})


class Server:
    """What the server has, how it behaves, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {"/file": CONTENT}
        self.ranges = True
        self.tags = True
        self.length = True
        self.cut_after: list[int] = []  # bytes after which the next answers break off
        self.refuse: list[int] = []  # status codes of the next answers
        self.shift = 0  # how far from the asked place a resumed answer begins
        self.asked: list[str | None] = []  # the Range of each request

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        if self.refuse:
            request.send_error(self.refuse.pop(0))
            return
        if request.path not in self.files:
            request.send_error(404)
            return
        body = self.files[request.path]
        tag = f'"{hashlib.sha256(body).hexdigest()[:8]}"'
        start = 0
        if wanted and self.ranges and request.headers.get("If-Range") == tag:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
            if start >= len(body):
                request.send_error(416)
                return
            start += self.shift
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            request.send_response(200)
        if self.tags:
            request.send_header("ETag", tag)
        if self.length:
            request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        with contextlib.suppress(ConnectionError):  # who asked may have hung up
            request.wfile.write(body[start:][: self.cut_after.pop(0) if self.cut_after else None])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *args: Any) -> None:
            pass

    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        state = Server(listening.server_port)
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        listening.shutdown()
        thread.join()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(server: Server, target: Path, **options: Any) -> Path:
    return download(f"{server.url}/file", target, **{"backoff": 0.001, **options})


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# ---- one file ------------------------------------------------------------------------------------------------


def test_a_whole_file(server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "folder" / "file"
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert get(server, target, sha256=digest.upper(), size=len(CONTENT)) == target
    assert target.read_bytes() == CONTENT
    assert names(target.parent) == ["file"]
    assert capfd.readouterr() == ("", "")  # no progress bar: stderr is not a terminal
    get(server, target)
    assert server.asked == [None]  # the second call found it there


def test_a_cut_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut_after = [300_000, 1, 0, 500_000]
    assert get(server, tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=300001-", "bytes=300001-", "bytes=800001-"]
    assert names(tmp_path) == ["file"]


def test_a_later_call_resumes(server: Server, tmp_path: Path) -> None:
    server.cut_after = [300_000, 0, 0]
    with pytest.raises(DataError, match=r"2 attempts got no further \(the connection ended after 300000 of 1000000"):
        get(server, tmp_path / "file", attempts=2)
    assert names(tmp_path) == ["file.part", "file.part.tag"]
    assert get(server, tmp_path / "file").read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=300000-"


def test_another_version_of_the_file_is_fetched_from_its_beginning(server: Server, tmp_path: Path) -> None:
    server.cut_after = [300_000, 0]
    with pytest.raises(DataError):
        get(server, tmp_path / "file", attempts=1)
    server.files["/file"] = CONTENT[::-1]
    assert get(server, tmp_path / "file").read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("lacking", ["ranges", "tags"])
def test_a_server_that_cannot_resume(server: Server, tmp_path: Path, lacking: str) -> None:
    setattr(server, lacking, False)
    server.cut_after = [300_000, 200_000, 999_999]
    assert get(server, tmp_path / "file").read_bytes() == CONTENT
    server.cut_after = [600_000] * 50
    with pytest.raises(DataError, match="3 attempts got no further"):
        get(server, tmp_path / "other", attempts=3)
    assert not (tmp_path / "other").exists()


def test_a_server_that_resumes_elsewhere_is_not_believed(server: Server, tmp_path: Path) -> None:
    server.cut_after, server.shift = [300_000], 7
    assert get(server, tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", None]


def test_a_part_as_long_as_the_file_is_started_anew(server: Server, tmp_path: Path) -> None:
    server.cut_after = [300_000, 0]
    with pytest.raises(DataError):
        get(server, tmp_path / "file", attempts=1)
    with (tmp_path / "file.part").open("ab") as part:
        part.write(bytes(900_000))
    assert get(server, tmp_path / "file").read_bytes() == CONTENT


def test_a_server_that_does_not_tell_the_length(server: Server, tmp_path: Path) -> None:
    server.length = False
    assert get(server, tmp_path / "file").read_bytes() == CONTENT


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.refuse = [503, 429, 500]
    assert get(server, tmp_path / "file").read_bytes() == CONTENT
    server.refuse = [503] * 3
    with pytest.raises(DataError, match="503 Service Unavailable"):
        get(server, tmp_path / "other", attempts=3)


def test_an_answer_that_will_not_change_is_final(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/nothing answers 404 Not Found"):
        download(f"{server.url}/nothing", tmp_path / "file")
    assert len(server.asked) == 1
    assert names(tmp_path) == []


def test_what_is_not_the_expected_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1000000 bytes, expected at most 5"):
        get(server, tmp_path / "file", size=5)
    assert names(tmp_path) == []
    with pytest.raises(DataError, match=f"checksum {hashlib.sha256(CONTENT).hexdigest()}, expected {'0' * 64}"):
        get(server, tmp_path / "file", sha256="0" * 64)
    assert names(tmp_path) == []


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DataError, match=r"http://127.0.0.1:\d+/file cannot be reached"):
        download(f"http://127.0.0.1:{closed_port()}/file", tmp_path / "file")
    with socket.socket() as silent:  # takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(DataError, match=r"2 attempts got no further \(timed out\)"):
            download(url, tmp_path / "file", timeout=0.05, attempts=2, backoff=0.001)


def test_a_place_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        get(server, tmp_path / "a file" / "target")
    (tmp_path / "target.part").mkdir()
    with pytest.raises(DataError, match=r"target.part cannot be written: Is a directory"):
        get(server, tmp_path / "target")


def test_only_http(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="http"):
        download("file:///etc/passwd", tmp_path / "file")


def test_progress_is_reported_to_the_end(server: Server, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    target = get(server, tmp_path / "file", progress=lambda *call: calls.append(call))
    size = target.stat().st_size
    assert calls[-1][1:] == (size, size)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)
    assert all("file" in what for what, _, _ in calls)


@pytest.mark.parametrize("length", [True, False])
def test_no_more_is_received_than_allowed(server: Server, tmp_path: Path, length: bool) -> None:
    server.length = length
    assert get(server, tmp_path / "file", limit=len(CONTENT)).read_bytes() == CONTENT
    for options in ({"limit": 999_999}, {"size": 999_999}):
        with pytest.raises(DataError, match=r"at least \d+ bytes, expected at most 999999"):
            get(server, tmp_path / "other", **options)
        assert names(tmp_path) == ["file"]


# ---- archives ------------------------------------------------------------------------------------------------


def pack(files: dict[str, bytes], level: int = 6) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def refused(tmp_path: Path, archive: bytes, message: str, **options: Any) -> None:
    """The archive is refused, and nothing is left of it anywhere."""
    place = tmp_path / "place"
    (tmp_path / "archive.zip").write_bytes(archive)
    with pytest.raises(DataError, match=message):
        extract_zip(tmp_path / "archive.zip", place / "set", **options)
    assert names(tmp_path) == ["archive.zip", "place"]


def test_one_folder_inside_becomes_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(
        pack({"hiv/": b"", "hiv/raw/edge": b"1", "hiv/notes": b"2", "__MACOSX/hiv/._notes": b"3"})
    )
    extract_zip(tmp_path / "a.zip", tmp_path / "set", required=["raw/edge"])
    assert names(tmp_path / "set") == ["notes", "raw", "raw/edge"]
    assert (tmp_path / "set" / "raw" / "edge").read_bytes() == b"1"
    (tmp_path / "b.zip").write_bytes(pack({"a": b"1", "b/c": b"2"}))
    (tmp_path / "empty").mkdir()
    extract_zip(tmp_path / "b.zip", tmp_path / "empty")
    assert names(tmp_path / "empty") == ["a", "b", "b/c"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "b.zip", "empty", "set"]
    with pytest.raises(DataError, match="exists already"):
        extract_zip(tmp_path / "b.zip", tmp_path / "set")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil", "C:/evil", "\\evil"])
def test_paths_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    refused(tmp_path, pack({"good": b"1", name: b"2"}), "not safe to unpack: .* leads out of the folder")


@pytest.mark.parametrize("name", ["./", ".", "\x07bell", "a\nb", "\u202egnp.exe", "\x7f"])
def test_names_that_are_none_are_refused(tmp_path: Path, name: str) -> None:
    refused(tmp_path, pack({"good": b"1", name: b"2"}), "is no name of a file")


def test_names_that_no_disk_takes_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, pack({"good": b"1", "x" * 5000: b"2"}), "cannot be unpacked")


def test_archives_of_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_MEMBERS", 3)
    refused(tmp_path, pack({str(number): b"" for number in range(4)}), "it has 4 files")
    monkeypatch.setattr(module, "LARGEST_UNPACKED", 5)
    refused(tmp_path, pack({"a": b"123456"}), "would become 6")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo("link")
        entry.create_system, entry.external_attr = 3, (kind | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    refused(tmp_path, buffer.getvalue(), "neither a file nor a folder")


def test_bombs_are_refused(tmp_path: Path) -> None:
    bomb = pack({"zeros": bytes(10_000_000)}, level=9)
    refused(tmp_path, bomb, r"not safe to unpack: \d+ bytes would become 10000000")
    # A smaller declared size does not help it: no more than that is unpacked, and the checksum is wrong.
    lying = bomb.replace((10_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert lying != bomb
    refused(tmp_path, lying, "is damaged")


def test_a_full_disk_is_noticed_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("usage", (), {"free": 2})
    monkeypatch.setattr(module.shutil, "disk_usage", lambda place: usage)  # type: ignore[attr-defined]
    refused(tmp_path, pack({"a": b"123"}), "needs 3 bytes in .*, only 2 are free")


def test_damaged_and_incomplete_archives_leave_nothing(tmp_path: Path) -> None:
    whole = pack({"a": CONTENT[:10_000], "b": CONTENT[:10_000]})
    flipped = bytearray(whole)
    flipped[5000] ^= 0xFF
    refused(tmp_path, bytes(flipped), "is damaged")
    refused(tmp_path, whole[:-100], "is damaged")
    refused(tmp_path, b"no archive", "is damaged")
    refused(tmp_path, whole, "lacks raw/edge", required=["a", "raw/edge"])
    refused(tmp_path, pack({"a": b"1", "a/b": b"2"}), "cannot be unpacked")
    twice = pack({"a": b"1", "b": b"2"}).replace(b"b", b"a")  # in the file's own header and in the directory
    refused(tmp_path, twice, "two files of the same name")


# ---- data sets -----------------------------------------------------------------------------------------------


def molhiv_files() -> dict[str, bytes]:
    """A set of two molecules that is complete."""
    texts = {
        "edge": "0,1\n0,1\n",
        "edge-feat": "0,0,0\n1,0,1\n",
        "graph-label": "0\n1\n",
        "num-edge-list": "1\n1\n",
        "num-node-list": "2\n2\n",
        "node-feat": "5,0,4,5,3,0,2,0,0\n" * 4,
    }
    splits = {"train": "0\n", "valid": "1\n", "test": ""}
    files = {f"hiv/raw/{stem}.csv.gz": gzip.compress(text.encode()) for stem, text in texts.items()}
    return files | {f"hiv/split/scaffold/{part}.csv.gz": gzip.compress(t.encode()) for part, t in splits.items()}


def test_fetching_an_ogb_set(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/ogb/csv_mol_download/hiv.zip"] = pack(molhiv_files())
    monkeypatch.setenv("MLAP_OGB_URL", f"{server.url}/ogb/")
    folder = fetch_ogb("ogbg-molhiv", tmp_path)
    assert folder == tmp_path / "ogbg_molhiv"
    assert names(tmp_path) == sorted(
        {"ogbg_molhiv"}
        | {f"ogbg_molhiv/{folder}" for folder in ("raw", "split", "split/scaffold")}
        | {f"ogbg_molhiv/{file}" for file in required_files("ogbg-molhiv")}
    )
    assert len(read_ogb(folder)) == 2
    assert fetch_ogb("ogbg_molhiv", tmp_path) == folder
    assert len(server.asked) == 1


def test_files_with_another_checksum_are_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/csv_mol_download/hiv.zip"] = pack(molhiv_files())
    monkeypatch.setattr(module, "KNOWN_FILES", {"ogbg-molhiv": {"raw/edge.csv.gz": "0" * 64}})
    with pytest.raises(DataError, match=r"raw/edge\.csv\.gz .* expected 0000"):
        fetch_ogb("ogbg-molhiv", tmp_path, base_url=server.url)
    assert names(tmp_path) == []


def test_the_known_checksums_are_those_of_the_real_files(shared_data: Path) -> None:
    known = _KNOWN["ogbg-molhiv"]
    assert set(known) == set(required_files("ogbg-molhiv"))
    for file, checksum in known.items():
        assert hashlib.sha256((shared_data / "ogbg_molhiv" / file).read_bytes()).hexdigest() == checksum


def test_fetching_a_tu_set(server: Server, tmp_path: Path) -> None:
    parts = {"A": b"1, 2\n2, 1\n", "graph_indicator": b"1\n1\n2\n", "graph_labels": b"0\n1\n"}
    server.files["/NCI1.zip"] = pack({f"NCI1/NCI1_{part}.txt": text for part, text in parts.items()})
    folder = fetch_tu("NCI1", tmp_path, base_url=server.url)
    assert folder == tmp_path / "NCI1" / "raw"
    assert names(tmp_path / "NCI1") == ["raw", *(f"raw/NCI1_{part}.txt" for part in parts)]
    assert len(read_tu(folder)) == 2
    assert len(read_tu(tmp_path / "NCI1")) == 2
    assert fetch_tu("NCI1", tmp_path, base_url=server.url) == folder
    assert len(server.asked) == 1


def test_real_folders_are_complete(shared_data: Path) -> None:
    nobody = f"http://127.0.0.1:{closed_port()}"
    assert fetch_ogb("ogbg-molhiv", shared_data, base_url=nobody) == shared_data / "ogbg_molhiv"
    assert fetch_tu("NCI1", shared_data, base_url=nobody) == shared_data / "NCI1" / "raw"


def test_tu_files_put_directly_into_the_folder(tmp_path: Path) -> None:
    (tmp_path / "S").mkdir()
    for part in ("A", "graph_indicator"):
        (tmp_path / "S" / f"S_{part}.txt").write_text("")
    assert fetch_tu("S", tmp_path) == tmp_path / "S"


def test_offline_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    nobody = f"http://127.0.0.1:{closed_port()}"
    with pytest.raises(DataError) as caught:
        fetch_ogb("ogbg-ppa", tmp_path, base_url=nobody)
    message = str(caught.value)
    assert "\n" not in message
    for part in ("ogbg-ppa", f"{nobody}/ogbg_ppi_medium.zip", *required_files("ogbg-ppa"), str(tmp_path / "ogbg_ppa")):
        assert part in message
    with pytest.raises(DataError) as caught:
        fetch_tu("MCF-7", tmp_path, base_url=nobody)
    message = str(caught.value)
    for part in (f"{nobody}/MCF-7.zip", "MCF-7_A.txt", "MCF-7_graph_labels.txt", str(tmp_path / "MCF-7" / "raw")):
        assert part in message
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_an_incomplete_archive_is_not_taken_for_the_set(server: Server, tmp_path: Path) -> None:
    files = molhiv_files()
    del files["hiv/raw/edge-feat.csv.gz"]
    server.files["/csv_mol_download/hiv.zip"] = pack(files)
    with pytest.raises(DataError, match=r"could not fetch ogbg-molhiv: .* lacks raw/edge-feat.csv.gz\."):
        fetch_ogb("ogbg-molhiv", tmp_path, base_url=server.url)
    assert names(tmp_path) == []


def test_an_incomplete_folder_is_left_alone(server: Server, tmp_path: Path) -> None:
    (tmp_path / "ogbg_molhiv" / "raw").mkdir(parents=True)
    (tmp_path / "ogbg_molhiv" / "raw" / "edge.csv.gz").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"ogbg_molhiv is incomplete, it has no raw/edge-feat.csv.gz, raw/graph-label"):
        fetch_ogb("ogbg-molhiv", tmp_path, base_url=server.url)
    assert server.asked == []


def test_names_that_are_no_sets(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'ogbg-molhiv'"):
        fetch_ogb("ogbg-molhvi", tmp_path)
    with pytest.raises(UsageError, match="sequence"):
        fetch_ogb("ogbg-code2", tmp_path)
    for name in ("../NCI1", "", "a/b", ".hidden"):
        with pytest.raises(UsageError, match="a TU set has a name like"):
            fetch_tu(name, tmp_path)


def test_the_address_is_the_one_that_pyg_uses() -> None:
    assert TUDataset.url == TU_URL
