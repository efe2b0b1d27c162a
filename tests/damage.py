"""Damage to files, as disks and strangers do it: bits that flip, ends that are missing, values of another type.

`MLAP_TRIALS` says how often each campaign tries; the suite tries less often than a campaign by hand would.
"""

from __future__ import annotations

import copy
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlap.errors import MlapError

#: what stands where something else should
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**70, 0.5, -0.5, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "x", "0", "../..", "/etc", "\0", "\ud800", "é" * 9, "{field}", "mlap-sum", "7" * 5000),
    *([], {}, [None], [[]], [1, 2], ["x"], {"": 0}, {"x": {}}, [[[[[[[[0]]]]]]]], [0.5] * 3),
)


def trials(usual: int) -> int:
    """How often to try."""
    return int(os.environ.get("MLAP_TRIALS", usual))


def answered(use: Callable[[], object], longest: int = 20_000) -> str | None:
    """The message of an expected error, one line of bounded length; `None` if there was none."""
    message = None
    try:
        use()
    except MlapError as error:
        message = str(error)
    if message is not None:
        assert "\n" not in message
        assert 0 < len(message) < longest  # a name of 5,000 characters may be in it, and more than once
    return message


def damaged_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """The content with some bytes changed, removed, doubled, or cut off."""
    if not content or rng.random() < 0.2:
        return content[: int(rng.integers(len(content) + 1))]
    array = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 2, 5, 50]))):
        start = int(rng.integers(len(array) or 1))
        stop = min(len(array), start + int(rng.choice([1, 1, 4, 20])))
        kind = rng.integers(4)
        if kind == 0:
            array[start:stop] = rng.bytes(stop - start)
        elif kind == 1 and stop > start:
            array[start] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            del array[start:stop]
        else:
            array[start:start] = array[start:stop]
    return bytes(array)


def damaged_tree(content: Any, rng: np.random.Generator) -> Any:
    """A copy of nested lists and dicts in which one thing is another, is missing, or is there twice."""
    tree = copy.deepcopy(content)
    parent, key = _places(tree)[int(rng.integers(len(_places(tree))))]
    kind = rng.integers(10)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.append(parent[key])
    elif kind == 2 and isinstance(parent, dict):
        parent["unexpected"] = parent[key]
    elif kind == 3 and isinstance(parent[key], int | float):
        parent[key] = parent[key] * float(rng.choice([-1.0, 1e6, 1e300, 0.5]))
    else:
        parent[key] = STRANGE[int(rng.integers(len(STRANGE)))]
    return tree


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree that something can be put to, as `(container, key)`."""
    found: list[tuple[Any, Any]] = []
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        found.append((tree, key))
        if isinstance(tree[key], dict | list):
            found += _places(tree[key])
    return found


def damaged_files(path: Path, count: int, seed: int = 0) -> Iterator[int]:
    """Damage a file in one way after the other, with the number of the trial; at the end it is whole again."""
    whole = path.read_bytes()
    try:
        for trial in range(count):
            rng = np.random.default_rng([seed, trial])
            if path.suffix == ".json" and trial % 4:
                text = json.dumps(damaged_tree(json.loads(whole), rng))
                path.write_bytes(text.encode("utf-8", "surrogatepass"))
            elif path.suffix == ".json" and trial % 40 == 0:
                path.write_text("[" * 100_000 + "]" * 100_000)
            elif path.suffix == ".db" and trial % 4:
                path.write_bytes(whole)
                _damage_cells(path, rng)
            else:
                path.write_bytes(damaged_bytes(whole, rng))
            yield trial
    finally:
        path.write_bytes(whole)


def _damage_cells(path: Path, rng: np.random.Generator) -> None:
    """Put something strange into a cell of a database whose tables allow it."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        filled = [name for name in tables if connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]
        table = filled[int(rng.integers(len(filled)))]
        columns = [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({table})")]
        column, _ = columns[int(rng.integers(len(columns)))]
        (before,) = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
        value: Any = STRANGE[int(rng.integers(len(STRANGE)))]
        if isinstance(before, str) and before[:1] in ("{", "[") and rng.random() < 0.7:
            tree = json.loads(before)
            value = json.dumps(damaged_tree(tree, rng) if tree else value)
        elif isinstance(value, list | dict):
            value = json.dumps(value)
        elif isinstance(value, int) and abs(value) >= 2**63:
            value = str(value)
        elif isinstance(value, str) and "\ud800" in value:
            value = b"\xff\xfe"
        try:
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
        except sqlite3.IntegrityError:  # the same value in a column of unlike ones
            connection.execute(f"DELETE FROM {table}")
    connection.close()
