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

from mlap.checks import MOST_CATEGORIES, are, expect, is_count
from mlap.errors import DataError
from mlap.files import write_text
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.places import user_folder
from mlap.graphs.task import Task

#: What an index in 32 bits can count.
MOST_NODES = 2**31 - 1


# ---- the header ------------------------------------------------------------------------------------------------------


def check_header(content: Mapping[str, Any]) -> None:
    """Raise a `ValueError` unless everything that a header says is of the type that it should be."""
    expect(isinstance(content["directed"], bool), "directed", content["directed"])
    expect(isinstance(content["name"], str), "name", content["name"])
    expect(isinstance(content["fingerprint"], str), "fingerprint", content["fingerprint"])
    splits = content["splits"]
    expect(are(splits, str) and len(set(splits)) == len(splits), "splits", splits)
    expect(are(content.get("notes", []), str), "notes", content.get("notes"))
    for name in ("node_features", "edge_features"):
        if content[name] is not None:
            _check_features(name, content[name])
    if content["task"] is not None:
        Task.from_dict(content["task"])
    for entry in content.get("left_out", []):
        right = is_count(entry["row"]) and all(isinstance(entry[key], str) for key in ("place", "text", "reason"))
        expect(right, "left_out", entry)


def _check_features(name: str, said: Mapping[str, Any]) -> None:
    cardinalities, divisor = said["cardinalities"], said["divisor"]
    expect(is_count(divisor) and 1 <= divisor <= 2**31, f"divisor of {name}", divisor)
    if cardinalities is not None:
        counts = isinstance(cardinalities, list) and all(map(is_count, cardinalities))
        expect(counts and all(1 <= count <= MOST_CATEGORIES for count in cardinalities), name, cardinalities)


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
