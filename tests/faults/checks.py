"""What must hold after a fault: files are whole or absent, and repeating the command gives its undisturbed result."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import re
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

#: what depends on the moment at which something was done
_TIMES = {"seconds", "started", "finished"}

#: a packed copy may be missing, or lie in another place: it is made again when it is needed
_CACHE = re.compile(r"home/|data/packed/")

Snapshot = dict[str, str]


def snapshot(folder: Path) -> Snapshot:
    """File → digest of what it says, times aside. What is hidden counts as well, but not what a cache holds."""
    found: Snapshot = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if hidden := re.match(r"(.*/)?\.[^/]+", name):
            found[hidden[0]] = ""
        elif path.is_file() and not _CACHE.match(name):
            found[name] = hashlib.sha256(repr(_content(path)).encode()).hexdigest()[:16]
    return found


def damaged(folder: Path) -> list[str]:
    """The files under their final names that are not whole, and why."""
    return list(_damaged(folder))


def _damaged(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") for part in parts) or path.is_dir() or path.suffix in (".lock", ".db-journal"):
            continue
        try:
            _check(path)
        except Exception as error:  # whatever it is, the file cannot be read
            yield f"{'/'.join(parts)}: {type(error).__name__}: {error}"


def _check(path: Path) -> None:
    """Read a file whole; raises if it is not."""
    from mlap.graphs import packed
    from mlap.training.run import read_checkpoint

    if path.parent.suffix == packed.SUFFIX:
        if path.name == "header.json":
            packed.verify(path.parent)
        return
    if path.suffix == ".ckpt":
        read_checkpoint(path)
    if path.suffix in _ENDS and not path.read_bytes().endswith(_ENDS[path.suffix]):
        raise ValueError(f"its end is {path.read_bytes()[-20:]!r}")
    if path.suffix == ".html" and not path.read_bytes().rstrip().endswith((b"</html>", b"</p>")):
        raise ValueError(f"its end is {path.read_bytes()[-20:]!r}")  # </p>: a page that says that it is unfinished
    _content(path)


#: how a whole file ends
_ENDS = {".csv": b"\n", ".json": b"\n", ".svg": b"</svg>\n", ".png": b"IEND\xaeB`\x82", ".parquet": b"PAR1"}


def _content(path: Path) -> Any:
    """What a file says, without the times of its making."""
    data = path.read_bytes()
    if path.suffix == ".json":
        return _timeless(json.loads(data))
    if path.suffix == ".csv":
        rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
        keep = [number for number, name in enumerate(rows[0]) if name not in _TIMES]
        return [[row[number] for number in keep] for row in rows]
    if path.suffix == ".svg":
        return ElementTree.fromstring(data) is not None and data
    if path.suffix == ".safetensors":
        from mlap.arrays import read_arrays

        return {name: (value.shape, value.tobytes()) for name, value in read_arrays(path).items()}
    if path.suffix == ".ckpt":
        import torch

        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
        return _timeless(torch.load(path, weights_only=True))
    if path.suffix == ".db":
        return _tables(path)
    return data


def _timeless(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {name: _timeless(value) for name, value in content.items() if name not in _TIMES}
    if isinstance(content, (list, tuple)):
        return [_timeless(value) for value in content]
    if hasattr(content, "numpy"):
        return content.numpy().tobytes()
    return content


def _tables(path: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:  # a copy: looking rolls back what an interrupted writer left
        for name in (path.name, f"{path.name}-journal"):
            if path.with_name(name).exists():
                shutil.copy(path.with_name(name), folder)
        return _rows(Path(folder) / path.name)


def _rows(path: Path) -> Any:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if found != "ok":
            raise ValueError(found)
        # `plans` notes each sweep, also those that were stopped
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'plans'"
        names = [row[0] for row in connection.execute(tables)]
        return {
            name: [
                {key: row[key] for key in row.keys() if key not in _TIMES}  # noqa: SIM118
                for row in connection.execute(f"SELECT * FROM {name}")
            ]
            for name in names
        }
