"""Whether what a file says is of the type that it should be; for readers of files that anyone may have written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mlap.errors import short

#: name → the type of the entry, or types that it may have
Kinds = Mapping[str, type | tuple[type, ...]]

#: More categories in a column, more classes, or more columns than any set has: their tables would fill the memory.
MOST_CATEGORIES = 10_000_000


def expect(right: bool, what: str, got: object) -> None:
    """Raise a `ValueError` of one short line unless something is right.

    >>> expect(False, "layers", "x" * 1000)
    Traceback (most recent call last):
    ...
    ValueError: layers cannot be 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
    """
    if not right:
        raise ValueError(f"{what} cannot be {short(got)}")


def is_count(value: object, most: float = math.inf) -> bool:
    """Whether this is a whole number from 0 on; JSON's `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def is_number(value: object) -> bool:
    """Whether this is a finite number."""
    # A whole number too large for a double cannot be asked whether it is finite.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf and _fits(value)


def are(values: object, kind: type) -> bool:
    """Whether this is a list of things of one type."""
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def are_numbers(values: object, count: int) -> bool:
    """Whether this is a list of so many finite numbers."""
    return isinstance(values, list) and len(values) == count and all(map(is_number, values))


def need(content: Any, kinds: Kinds, where: str = "") -> None:
    """Raise a `ValueError` unless this is an object that has these entries, each of its type.

    Args:
        content: what was read.
        kinds: which entries.
        where: the name of the object, for the message.
    """
    prefix = f"{where}." if where else ""
    expect(isinstance(content, dict), where or "the content", content)
    for name, kind in kinds.items():
        if name not in content:
            raise ValueError(f"it has no {prefix}{name}")
        kind_of = kind if isinstance(kind, Sequence) else (kind,)
        right = isinstance(content[name], kind_of) and (bool in kind_of or not isinstance(content[name], bool))
        expect(right, f"{prefix}{name}", content[name])


#: an annotation of a field → the types of its values
_TYPES: Kinds = {"str": str, "int": int, "float": (int, float), "bool": bool, "dict": dict}


def need_fields(content: Any, cls: Any, where: str = "", besides: Sequence[str] = ()) -> None:
    """Raise a `ValueError` unless this has a value of the right type for every field of a dataclass.

    Args:
        content: what was read.
        cls: the dataclass.
        where: see `need`.
        besides: fields that someone else looks at.

    >>> from dataclasses import make_dataclass
    >>> need_fields({"layers": "5"}, make_dataclass("Recipe", [("layers", "int | None")]))
    Traceback (most recent call last):
    ...
    ValueError: layers cannot be '5'
    """
    kinds: dict[str, tuple[type, ...]] = {}
    for field in dataclasses.fields(cls):
        if field.name in besides:
            continue
        kinds[field.name] = ()
        for name in str(field.type).split(" | "):
            kind = type(None) if name == "None" else _TYPES[name.partition("[")[0]]
            kinds[field.name] += kind if isinstance(kind, tuple) else (kind,)
    need(content, kinds, where)


def _fits(value: float) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True
