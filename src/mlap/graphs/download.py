"""Official data sets from their official addresses, whole or not at all.

An archive is fetched into a `.part` file beside its place, resumed after an interruption (also by a later call), and
gets its name when it is complete. It is unpacked in a temporary folder, which gets its name when everything that the
set needs is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import shutil
import socket
import ssl
import stat
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from mlap.errors import DataError, MlapError, UsageError, unknown
from mlap.files import first_line
from mlap.graphs.ogb import OGB_SETS, ogb_name, required_files
from mlap.graphs.progress import Progress

#: Where the archives lie: OGB's own table, and the TU collection (PyG's `TUDataset` uses the same address).
OGB_URL = "https://snap.stanford.edu/ogb/data/graphproppred"
TU_URL = "https://www.chrsmrrs.com/graphkerneldatasets"

READ_BYTES = 1 << 18

#: An archive that claims to be more than this many times its size when unpacked is refused. The data sets, whose
#: files are digits at worst, stay far below.
MAX_EXPANSION = 200

#: No data set comes near these. What claims more, or goes on for longer, is refused.
LARGEST_ARCHIVE = 16 << 30  # bytes; ogbg-ppa has about 3 GB
LARGEST_UNPACKED = 128 << 30
MOST_MEMBERS = 10_000

#: The SHA-256 checksums of files that are known: those of OGB's release v1 of 4 May 2020.
KNOWN_FILES = {
    "ogbg-molhiv": {
        "raw/edge.csv.gz": "d279b2d408f553cdc6e8ff9712e8eb52ee8831e6f63d29431812e27bca119389",
        "raw/edge-feat.csv.gz": "a59f5bcf890de811555f5d3819a96f713b4f8b6204801f286991c197afacf836",
        "raw/graph-label.csv.gz": "88f950d08c606556cca1c1ffef05229f46d64043ad7fa617e8938a3ae9779993",
        "raw/node-feat.csv.gz": "1e875d13c6442622d2b4f3763e7b0ef48cf2c769828b087ef0efe91c3bdb574b",
        "raw/num-edge-list.csv.gz": "fa058f23514328fd69bc9c4c31fd8f5938c4ce18726855489d0c0e2dfeaddd37",
        "raw/num-node-list.csv.gz": "e26f7e29de4a3985c7f47482838c62f870c90c4d01871c57bfeae1b8d993a24b",
        "split/scaffold/train.csv.gz": "9f1e46e77897b3de3d19452cbd47c312e2844a0ec664c1c9dc897c10d12e42f0",
        "split/scaffold/valid.csv.gz": "eaf4d6b4630f9e689d2b203669674d0dc309673319e8ac32daa9e9ca90e2e1fa",
        "split/scaffold/test.csv.gz": "27485729d83edd6f47eb3b8daff69fdb32c9df6b36b17204ef87f8dc1a30eab1",
    },
}

#: Answers after which asking again may help.
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


def fetch_ogb(name: str, root: Path, *, base_url: str | None = None, progress: Progress | None = None) -> Path:
    """The folder of an official OGB set in `root`, fetched if it is not there yet.

    Args:
        name: such as `ogbg-molhiv`.
        root: where data sets are kept; the folder gets OGB's name for it, `ogbg_molhiv`.
        base_url: instead of `$MLAP_OGB_URL`, or else OGB's own address.
        progress: called as the work goes on.
    """
    official = ogb_name(name)
    if official is None:
        raise unknown("OGB graph-property set", name, OGB_SETS, "source")
    folder = Path(root) / official.replace("-", "_")
    base = base_url or os.environ.get("MLAP_OGB_URL") or OGB_URL
    url = f"{base.rstrip('/')}/{OGB_SETS[official].archive}"
    return _fetch(official, url, folder, required_files(official), progress)


def fetch_tu(name: str, root: Path, *, base_url: str | None = None, progress: Progress | None = None) -> Path:
    """The folder with the files of a TU set in `root`, fetched if it is not there yet.

    Args:
        name: such as `NCI1` or `MCF-7`.
        root: where data sets are kept; the files are in `NAME/raw` (or directly in `NAME`, if somebody put them there).
        base_url: instead of `$MLAP_TU_URL`, or else the collection's own address.
        progress: called as the work goes on.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise UsageError(f"a TU set has a name like NCI1 or MCF-7, got {name!r}", field="source")
    required = [f"{name}_A.txt", f"{name}_graph_indicator.txt"]
    folder = Path(root) / name
    if not _absent(folder, required):
        return folder
    base = base_url or os.environ.get("MLAP_TU_URL") or TU_URL
    optional = [f"{name}_graph_labels.txt and whatever other {name}_*.txt files the set has"]
    return _fetch(name, f"{base.rstrip('/')}/{name}.zip", folder / "raw", required, progress, optional)


def _fetch(
    name: str, url: str, folder: Path, required: Sequence[str], progress: Progress | None, optional: Sequence[str] = ()
) -> Path:
    absent = _absent(folder, required)
    if not absent:
        return folder
    if folder.is_dir() and any(folder.iterdir()):
        raise DataError(
            f"{folder} is incomplete, it has no {', '.join(absent)}: put the missing files there, or remove the folder "
            "to have the set fetched again"
        )
    archive = folder.parent / f"{name}.zip"
    try:
        download(url, archive, progress=progress)
        try:
            extract_zip(archive, folder, required=required, known=KNOWN_FILES.get(name, {}))
        finally:
            archive.unlink(missing_ok=True)  # unpacked, or of no use
    except DataError as error:
        files = ", ".join((*required, *optional))
        raise DataError(
            f"could not fetch {name}: {error}. To do without the network, put {files} into {folder}"
        ) from None
    return folder


def _absent(folder: Path, required: Sequence[str]) -> list[str]:
    return [file for file in required if not (folder / file).is_file()]


# ---- one file ------------------------------------------------------------------------------------------------


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    size: int | None = None,
    limit: int = LARGEST_ARCHIVE,
    progress: Progress | None = None,
    timeout: float = 30,
    attempts: int = 5,
    backoff: float = 1,
) -> Path:
    """Fetch a file over HTTP; `target` comes to exist only when it is whole. An existing target is kept.

    Args:
        url: an `http` or `https` address.
        target: where to put the file.
        sha256: its checksum in hexadecimal digits, if known.
        size: its bytes, if known; what the server says is checked in any case.
        limit: the most bytes that are received, whatever the server says.
        progress: called as the work goes on.
        timeout: seconds without an answer before a connection is given up.
        attempts: how often to connect again in a row without getting any further.
        backoff: seconds to wait before the second attempt; doubled for each one after that.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"expected an address that starts with http:// or https://, got {url!r}")
    if target.exists():
        return target
    part = _Part(target)
    with _writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)

    def show(received: int, total: int | None) -> None:
        if progress is not None:
            known = "" if total is None else f" of {total / 1e6:.1f}"
            progress(f"downloading {target.name}, {received / 1e6:.1f}{known} MB", received, total)

    _persist(url, part, limit if size is None else size, show, timeout, attempts, backoff)
    got = part.size()
    if size is not None and got != size:
        part.discard()
        raise DataError(f"{url} has {got} bytes, expected {size}")
    if sha256 is not None and (digest := _sha256(part.path)) != sha256.lower():
        part.discard()
        raise DataError(f"{url} has the SHA-256 checksum {digest}, expected {sha256.lower()}")
    with _writing(target):
        part.become(target)
    return target


class _Part:
    """What has been received of a file so far, and the tag by which the server knows that version of it."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.part")
        self._tag = target.with_name(f"{target.name}.part.tag")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def tag(self) -> str | None:
        return self._tag.read_text() if self._tag.exists() else None

    def start(self, tag: str | None) -> None:
        """Begin anew, with a version of the file that the server calls `tag`."""
        self.path.write_bytes(b"")
        self._tag.unlink(missing_ok=True)
        if tag:
            self._tag.write_text(tag)

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._tag.unlink(missing_ok=True)

    def become(self, target: Path) -> None:
        self.path.replace(target)
        self._tag.unlink(missing_ok=True)


def _persist(
    url: str,
    part: _Part,
    limit: int,
    show: Callable[[int, int | None], None],
    timeout: float,
    attempts: int,
    backoff: float,
) -> None:
    """Connect again and again until the part is whole, or no attempt gets any further."""
    failures, furthest = 0, part.size()
    while True:
        try:
            return _receive(url, part, limit, show, timeout)
        except urllib.error.HTTPError as error:
            if error.code == 416:  # the part is no beginning of what the server has
                part.discard()
            elif error.code not in TRANSIENT:
                raise DataError(f"{url} answers {error.code} {error.reason}") from None
            reason = f"{error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            reason = str(cause) or type(cause).__name__
            if furthest == 0 and isinstance(cause, (socket.gaierror, ConnectionRefusedError, ssl.SSLError)):
                raise DataError(f"{url} cannot be reached ({reason})") from None
        failures = 0 if part.size() > furthest else failures + 1
        furthest = max(furthest, part.size())
        if failures >= attempts:
            raise DataError(f"{url} cannot be fetched, {attempts} attempts got no further ({reason})")
        time.sleep(backoff * 2 ** max(failures - 1, 0))


def _receive(url: str, part: _Part, limit: int, show: Callable[[int, int | None], None], timeout: float) -> None:
    """One connection: append to the part, or begin it anew if the server does not go on where it ends."""
    headers = {"User-Agent": "mlap", "Accept-Encoding": "identity"}
    size, tag = part.size(), part.tag()
    if size and tag:
        headers |= {"Range": f"bytes={size}-", "If-Range": tag}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
        if url.startswith("https:") and not response.url.startswith("https:"):
            raise DataError(f"{url} leads to {response.url}, which anybody on the way can change")
        if response.status == 206:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
                part.discard()
                raise http.client.HTTPException("the server went on at another place than asked")
        else:
            size = 0
            with _writing(part.path):
                part.start(_strong_tag(response.headers.get("ETag"), response.headers.get("Last-Modified")))
        total = None if response.length is None else size + response.length
        if total is not None:
            _check_limit(url, part, total, limit)
        with _writing(part.path):
            file = part.path.open("ab")
        with file:
            show(size, total)
            while piece := response.read(READ_BYTES):
                _check_limit(url, part, size + len(piece), limit)
                with _writing(part.path):
                    file.write(piece)
                    file.flush()
                size += len(piece)
                show(size, total)
    if total is not None and size != total:
        raise http.client.HTTPException(f"the connection ended after {size} of {total} bytes")


def _check_limit(url: str, part: _Part, size: int, limit: int) -> None:
    if size > limit:
        part.discard()
        raise DataError(f"{url} has at least {size} bytes, expected at most {limit}")


def _strong_tag(etag: str | None, modified: str | None) -> str | None:
    """What `If-Range` takes: a weak ETag does not promise the same bytes."""
    return etag if etag and not etag.startswith("W/") else modified


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


# ---- unpacking -----------------------------------------------------------------------------------------------


def extract_zip(
    archive: Path, folder: Path, *, required: Sequence[str] = (), known: Mapping[str, str] | None = None
) -> Path:
    """Unpack an archive into a new folder, which comes to exist only when everything is in it.

    If all that is in the archive lies in one folder, that one becomes `folder`. Members that would end up elsewhere, or
    are not plain files, and archives that unpack to a suspicious size are refused before anything is written.

    Args:
        archive: a zip file.
        folder: a folder that does not exist yet, or is empty.
        required: files that must be there, relative to `folder`.
        known: the SHA-256 checksums of some of them.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} exists already")
    with _writing(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        content = temporary / "content"
        content.mkdir()
        with zipfile.ZipFile(archive) as unpacked:
            members = _checked_members(archive, unpacked, folder.parent)
            for path, member in members:
                _extract(unpacked, member, content / path)
        top = list(content.iterdir())
        whole = top[0] if len(top) == 1 and top[0].is_dir() else content
        if absent := _absent(whole, required):
            raise DataError(f"{archive} lacks {', '.join(absent)}")
        for file, checksum in (known or {}).items():
            if (digest := _sha256(whole / file)) != checksum:
                raise DataError(f"{file} in {archive} has the SHA-256 checksum {digest}, expected {checksum}")
        whole.replace(folder)
    except MlapError:
        raise
    except OSError as error:
        raise DataError(f"{archive} cannot be unpacked into {folder}: {error.strerror or error}") from None
    # What zipfile raises for archives that nobody packs: BadZipFile, zlib.error, lzma.LZMAError, struct.error,
    # RuntimeError, NotImplementedError, ValueError …
    except Exception as error:
        raise DataError(f"{archive} is damaged: {first_line(error)}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _checked_members(
    archive: Path, unpacked: zipfile.ZipFile, place: Path
) -> list[tuple[PurePosixPath, zipfile.ZipInfo]]:
    """The files in the archive with the paths to put them at, or an error."""
    members = []
    if len(unpacked.infolist()) > MOST_MEMBERS:
        raise DataError(f"{archive} is not safe to unpack: it has {len(unpacked.infolist())} files")
    for member in unpacked.infolist():
        path = PurePosixPath(member.filename.replace("\\", "/"))
        kind = stat.S_IFMT(member.external_attr >> 16)
        if not path.parts or not member.filename.isprintable():
            raise DataError(f"{archive} is not safe to unpack: {member.filename!r} is no name of a file")
        if path.is_absolute() or ".." in path.parts or ":" in member.filename:
            raise DataError(f"{archive} is not safe to unpack: {member.filename!r} leads out of the folder")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DataError(f"{archive} is not safe to unpack: {member.filename!r} is neither a file nor a folder")
        if member.flag_bits & 1:
            raise DataError(f"{archive} is encrypted")
        if not member.is_dir() and path.parts[0] != "__MACOSX":  # what a Mac adds to every archive
            members.append((path, member))
    if len({path for path, _ in members}) < len(members):
        raise DataError(f"{archive} is not safe to unpack: it has two files of the same name")
    size, packed = sum(member.file_size for _, member in members), archive.stat().st_size
    if size > min(MAX_EXPANSION * packed, LARGEST_UNPACKED):
        raise DataError(f"{archive} is not safe to unpack: {packed} bytes would become {size}")
    if size > (free := shutil.disk_usage(place).free):
        raise DataError(f"{archive} needs {size} bytes in {place}, only {free} are free")
    return members


def _extract(unpacked: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    # zipfile reads no more than the declared size and compares the checksum.
    path.parent.mkdir(parents=True, exist_ok=True)
    with unpacked.open(member) as source, path.open("xb") as target:
        shutil.copyfileobj(source, target, READ_BYTES)
