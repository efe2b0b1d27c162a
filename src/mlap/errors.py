"""The errors that `mlap` expects. Each message is one line: what was got, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MlapError(Exception):
    """The work could not be done; the command line prints the message and exits with 1."""


class DataError(MlapError, ValueError):
    """The data are not what they should be (a damaged file, a NaN, an edge that leaves its graph)."""


class UsageError(MlapError, ValueError):
    """The call was wrong (an unknown name, a value out of range); the command line exits with 2."""


def unknown(kind: str, got: str, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist, with the nearest names that do.

    >>> str(unknown("jump", "summ", ["sum", "max"]))
    "unknown jump 'summ'; did you mean 'sum'? Known: sum, max"
    """
    names = list(known)
    by_lower = {name.lower(): name for name in names}
    near = [by_lower[match] for match in difflib.get_close_matches(got.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return UsageError(f"unknown {kind} {got!r}; {hint}Known: {', '.join(names)}")
