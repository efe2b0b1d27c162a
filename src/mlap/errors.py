"""The errors that `mlap` expects. Each message is one line: what was got, what was expected, what to do.

A message speaks of an argument by its place, not by its name: `{field}` stands for the argument that `field` names,
and `suggest` is a value worth giving it. Python says `on_invalid='skip'` where the command line says `--invalid skip`;
each caller spells it in its own way (`MlapError.told`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

#: stands for "no value suggested"; `None` and `False` are values
_NOTHING: Any = object()


def _in_python(field: str, value: Any = _NOTHING) -> str:
    return field if value is _NOTHING else f"{field}={value!r}"


class MlapError(Exception):
    """The work could not be done; the command line prints the message and exits with 1.

    Args:
        message: one line; `{field}` in it stands for the argument's name.
        field: the argument that it is about, by its name in Python.
        suggest: a value of that argument that may help.

    >>> str(UsageError("{field} must be at least 1, got 0", field="layers"))
    'layers must be at least 1, got 0'
    >>> str(DataError("3 rows are no molecules", field="on_invalid", suggest="skip"))
    "3 rows are no molecules; try on_invalid='skip'"
    """

    def __init__(self, message: str = "", field: str | None = None, suggest: Any = _NOTHING) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.suggest = suggest

    def told(self, spell: Callable[..., str]) -> str:
        """The message in a caller's spelling: `spell(field)` of an argument, `spell(field, value)` with a value."""
        if self.field is None:
            return self.message
        text = self.message.replace("{field}", spell(self.field))
        return text if self.suggest is _NOTHING else f"{text}; try {spell(self.field, self.suggest)}"

    def __str__(self) -> str:
        return self.told(_in_python)


class DataError(MlapError, ValueError):
    """The data are not what they should be (a damaged file, a NaN, an edge that leaves its graph)."""


class UsageError(MlapError, ValueError):
    """The call was wrong (an unknown name, a value out of range); the command line exits with 2."""


def short(value: object, most: int = 60) -> str:
    """How Python writes a value, cut to a length that a line has room for.

    >>> short("x" * 100, 10)
    "'xxxxxxxx…"
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def unknown(kind: str, got: str, known: Iterable[str], field: str | None = None) -> UsageError:
    """The error for a name that does not exist, with the nearest names that do.

    >>> str(unknown("join", "summ", ["sum", "max"]))
    "unknown join 'summ'; did you mean 'sum'? Known: sum, max"
    """
    names = list(known)
    by_lower = {name.lower(): name for name in names}
    near = [by_lower[match] for match in difflib.get_close_matches(got[:100].lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    more = f" and {len(names) - 60} more" if len(names) > 60 else ""
    return UsageError(f"unknown {kind} {short(got)}; {hint}Known: {', '.join(names[:60])}{more}", field)
