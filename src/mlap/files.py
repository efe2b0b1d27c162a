"""Files that are whole or absent: atomic writes, JSON, and what an error says in one line."""

from __future__ import annotations

import csv
import errno
import functools
import hashlib
import io
import json
import os
import platform
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlap.errors import DataError


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file beside its place and move it there once it is safely on disk; its folder is made if need be."""
    temporary = aside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned_once(path.parent.absolute())
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder, where a file is to be written", str(path))
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # nobody asked for that one
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def aside(path: Path, kind: str = "part") -> Path:
    """A new hidden name beside `path`, and so on the same file system; it says whose it is."""
    return path.with_name(f".{path.name}.{os.getpid()}-{_machine()}-{uuid.uuid4().hex[:6]}.{kind}")


def remove_abandoned(folder: Path) -> None:
    """Remove what killed processes have put aside in a folder; but an old file or set, only if there is a new one."""
    with suppress(OSError):
        for entry in folder.iterdir():
            found = _ASIDE.fullmatch(entry.name)
            if (
                found is not None
                and (found["kind"] == "part" or (folder / found["name"]).exists())
                and _is_abandoned(entry, int(found["pid"]), found["machine"])
            ):
                remove(entry)


def scratch_folder(name: str) -> Path:
    """A new folder of our own in the temporary one; those that killed processes have left there are removed."""
    place = Path(tempfile.gettempdir())
    remove_abandoned(place)
    folder = aside(place / name)
    folder.mkdir(mode=0o700)
    return folder


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, as far as that is possible."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink(missing_ok=True)


@functools.lru_cache(maxsize=256)
def _remove_abandoned_once(folder: Path) -> None:
    """Once for each process: a folder may hold very many files."""
    remove_abandoned(folder)


#: the names that `aside` gives
_ASIDE = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)-(?P<machine>[0-9a-f]{8})-[0-9a-f]{6}\.(?P<kind>[a-z]+)")
#: seconds after which nobody still writes a file, if its writer cannot be asked
_ABANDONED = 86_400


@functools.cache
def _machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _is_abandoned(entry: Path, pid: int, machine: str) -> bool:
    if machine == _machine() and os.name == "posix":
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it is another user's
            pass
        return False
    with suppress(OSError):
        return time.time() - entry.stat().st_mtime > _ABANDONED
    return False


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="\n")

    write_whole(path, write)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file in one step."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, every number with all its digits; what is unknown is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return text.getvalue()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged: it holds a {type(content).__name__}, not an object")
    return content


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
