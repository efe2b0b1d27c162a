"""Whether a packed set is what it says: files from strangers, and from disks that fail.

Kernels follow the numbers of a set without looking: an edge that leaves its graph reads foreign memory. So every
number is looked at before the set is used, a piece at a time. For a large set this takes seconds; it is done once,
and remembered in the user's cache, never beside the set: whoever made the set could have written it there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlap.errors import DataError
from mlap.files import write_text
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.places import user_folder

#: More categories in a column, or more classes, than any set has: tables of that many rows would fill the memory.
MOST_CATEGORIES = 10_000_000

#: What an index in 32 bits can count.
MOST_NODES = 2**31 - 1


# ---- the header ------------------------------------------------------------------------------------------------------


def check_header(content: Mapping[str, Any]) -> None:
    """Raise a `ValueError` unless everything that a header says is of the type that it should be."""
    _expect(isinstance(content["directed"], bool), "directed", content["directed"])
    _expect(isinstance(content["name"], str), "name", content["name"])
    _expect(isinstance(content["fingerprint"], str), "fingerprint", content["fingerprint"])
    splits = content["splits"]
    _expect(_are(splits, str) and len(set(splits)) == len(splits), "splits", splits)
    _expect(_are(content.get("notes", []), str), "notes", content.get("notes"))
    for name in ("node_features", "edge_features"):
        if content[name] is not None:
            _check_features(name, content[name])
    if content["task"] is not None:
        _check_task(content["task"])
    for entry in content.get("left_out", []):
        right = _is_count(entry["row"]) and all(isinstance(entry[key], str) for key in ("place", "text", "reason"))
        _expect(right, "left_out", entry)


def _check_features(name: str, said: Mapping[str, Any]) -> None:
    cardinalities, divisor = said["cardinalities"], said["divisor"]
    _expect(_is_count(divisor) and 1 <= divisor <= 2**31, f"divisor of {name}", divisor)
    if cardinalities is not None:
        counts = isinstance(cardinalities, list) and all(map(_is_count, cardinalities))
        _expect(counts and all(1 <= count <= MOST_CATEGORIES for count in cardinalities), name, cardinalities)


def _check_task(said: Mapping[str, Any]) -> None:
    outputs = said["num_outputs"]
    _expect(_is_count(outputs) and 1 <= outputs <= MOST_CATEGORIES, "num_outputs", outputs)
    _expect(_are(said["names"], str), "names", said["names"])
    labels = said.get("labels", [])
    _expect(isinstance(labels, list) and all(_are(pair, str) for pair in labels), "labels", labels)


def _expect(right: bool, what: str, got: object) -> None:
    if not right:
        raise ValueError(f"{what} cannot be {str(got)[:60]!r}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are(values: object, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


# ---- the contents ----------------------------------------------------------------------------------------------------


def check_contents(graphs: GraphSet, pieces: Iterable[tuple[int, int]]) -> None:
    """Raise a `DataError` unless every edge stays in its graph and every feature and label is one that there may be.

    Args:
        graphs: the set; its pointers and shapes have been checked.
        pieces: ranges of graphs to look at, one after the other, so that no more than that is in memory.
    """
    if len(graphs) and int(np.diff(graphs.node_ptr).max()) > MOST_NODES:
        raise DataError(f"graph {int(np.argmax(np.diff(graphs.node_ptr)))} has more than {MOST_NODES} nodes")
    graphs.validate_labels()
    for start, stop in pieces:
        try:
            graphs.cut(start, stop).validate()
        except DataError as error:
            where = f"in graphs {start} to {stop - 1}, " if start else ""
            raise DataError(f"{where}{error}") from None


# ---- what has been looked at before ----------------------------------------------------------------------------------


def remembered(folder: Path, digest: str) -> bool:
    """Whether the packed set in a folder was looked at before and has not been touched since."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return _memory(folder).read_text(encoding="utf-8") == _state(folder, digest)
    return False


def remember(folder: Path, digest: str) -> None:
    """Remember that the packed set in a folder has been looked at; where that cannot be written, it is forgotten."""
    with contextlib.suppress(OSError):
        place = _memory(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, _state(folder, digest))


def forget_all() -> None:
    """Forget all that was looked at."""
    shutil.rmtree(user_folder() / "checked", ignore_errors=True)


def _memory(folder: Path) -> Path:
    return user_folder() / "checked" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]


def _state(folder: Path, digest: str) -> str:
    """What changes when the set does: its header's checksum, and the sizes and times of its files."""
    files = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    # The time of the last change of the file's entry cannot be set at will, as that of its content can.
    facts = [(name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in files]
    return hashlib.sha256(json.dumps([digest, facts]).encode()).hexdigest()
