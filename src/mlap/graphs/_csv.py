"""Fast reading of comma-separated numbers, without a header, from text files of any size.

A file is read in blocks of some thousand lines. Two notations cover nearly everything in OGB's and TU's files: unsigned
integers, and one digit with up to three decimals. Both are decoded for a whole block at once, from the positions
of the separators; every byte is checked on the way, and a block that has anything else in it is given to
`numpy.loadtxt`. An error names the file and the line.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mlap.errors import DataError

Array = NDArray[Any]

#: Tells which values of an array are wrong, and what was expected instead.
Check = tuple[Callable[[Array], Array], str]

#: Of text; small enough for the arrays made from it to stay in a core's cache.
BLOCK_BYTES = 1 << 18
#: A longer line is an error: a small gzipped file may hold one that fills the memory.
LONGEST_LINE = 1 << 24
COMMA, NEWLINE, POINT, ZERO = b",\n.0"


@dataclass(frozen=True)
class Block:
    """Consecutive lines of a file: the numbers `values / scale`.

    Args:
        path: the file.
        first_line: the number of the first of the lines, counted from 1.
        values: `(lines, columns)`, unsigned integers or float64; a missing value is NaN.
        scale: 1 or 1000; 1 if the values are floats.
    """

    path: Path
    first_line: int
    values: Array
    scale: int

    @property
    def exact(self) -> bool:
        """Whether the values are integers, of the scale, rather than floats."""
        return self.values.dtype.kind == "u"

    def reals(self) -> Array:
        """The numbers as float64."""
        return self.values / np.float64(self.scale)

    def integers(self, dtype: DTypeLike = np.int64) -> Array:
        """The numbers in an integer type; the file may write `3` or `3.0`."""
        values = self.values
        if not self.exact or self.scale != 1:
            values = self.reals()
            self.refuse(~np.isfinite(values) | (values != np.rint(values)), "an integer")
        return self._fit(values, 1, dtype)

    def thousandths(self, dtype: DTypeLike) -> Array:
        """The numbers times 1000 in an integer type, exactly."""
        if self.exact:
            values = self.values if self.scale == 1000 else self.values.astype(np.uint64) * np.uint64(1000)
        else:
            values = np.rint(self.values * 1000)
            # A fourth decimal does not survive the way there and back; NaN is unequal to everything.
            self.refuse(values / 1000 != self.values, "at most three decimals")
        return self._fit(values, 1000, dtype)

    def refuse(self, wrong: Array, expected: str) -> None:
        """Raise an error for the first number at fault, if there is one."""
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            got = float(self.values[row, column]) / self.scale
            shown = "nothing" if np.isnan(got) else f"{got:.15g}"
            raise DataError(f"{self.path}, line {self.first_line + row}: expected {expected}, got {shown}")

    def _fit(self, values: Array, scale: int, dtype: DTypeLike) -> Array:
        limits = np.iinfo(np.dtype(dtype))
        if values.size and (values.max() > limits.max or values.min() < limits.min):
            expected = f"{limits.min / scale:.15g} to {limits.max / scale:.15g}"
            self.refuse((values > limits.max) | (values < limits.min), expected)
        return values.astype(dtype)


class Rows:
    """The rows of a file that is read alongside others, as many at a time as asked for, in one type.

    Args:
        path: the file, as for `blocks`.
        columns: values per line.
        dtype: of the rows; an integer type for integers and thousandths, else a float type.
        scale: 1000 to get the numbers times 1000 in an integer type.
        missing: as for `blocks`.
        check: what else the numbers must satisfy.
        total: how many lines the file must have.
        because: what says so, for the error.
    """

    def __init__(
        self,
        path: Path,
        columns: int,
        dtype: DTypeLike,
        *,
        scale: int = 1,
        missing: bool = False,
        check: Check | None = None,
        total: int,
        because: str,
    ) -> None:
        self.path = path
        self.columns = columns
        self.dtype = np.dtype(dtype)
        self.scale = scale
        self._blocks = blocks(path, columns, missing=missing)
        self._rest: Array = np.empty((0, columns), self.dtype)
        self._check = check
        self._read = 0
        self._total, self._because = total, because

    def take(self, count: int) -> Array:
        """The next `count` rows, `(count, columns)`."""
        rows = np.empty((count, self.columns), self.dtype)
        filled = 0
        while filled < count:
            if not len(self._rest):
                self._rest = self._next()
            part = self._rest[: count - filled]
            self._rest = self._rest[len(part) :]
            rows[filled : filled + len(part)] = part
            filled += len(part)
        return rows

    def finish(self) -> None:
        """Raise if the file goes on after its last expected line."""
        if len(self._rest) or next(self._blocks, None) is not None:
            raise DataError(f"{self.path} has more than {self._total} lines, but {self._because}")

    def _next(self) -> Array:
        block = next(self._blocks, None)
        if block is None:
            raise DataError(f"{self.path} has {self._read} lines, expected {self._total}: {self._because}")
        self._read += len(block.values)
        if self.dtype.kind == "f":
            rows = block.reals().astype(self.dtype)
        else:
            rows = block.thousandths(self.dtype) if self.scale == 1000 else block.integers(self.dtype)
        if self._check is not None:
            is_wrong, expected = self._check
            block.refuse(is_wrong(rows), expected)
        return rows


def read_integers(path: Path, columns: int | None = None) -> NDArray[np.int64]:
    """All lines of a file of integers, `(lines, columns)`."""
    parts = [block.integers() for block in blocks(path, columns)]
    return np.concatenate(parts) if parts else np.empty((0, columns or 1), np.int64)


def read_reals(path: Path, *, missing: bool = False) -> NDArray[np.float64]:
    """All lines of a file of real numbers, `(lines, columns)`."""
    parts = [block.reals() for block in blocks(path, missing=missing)]
    return np.concatenate(parts) if parts else np.empty((0, 1))


def refuse_line(path: Path, values: Array, wrong: Array, problem: str) -> None:
    """Raise an error for the first line of a file whose values are wrong, if there is one."""
    if wrong.any():
        row = int(np.argmax(wrong))
        got = ",".join(f"{value:.15g}" for value in np.atleast_1d(values[row]))
        raise DataError(f"{path}, line {row + 1}: got {got}; {problem}")


def blocks(path: Path, columns: int | None = None, *, missing: bool = False) -> Iterator[Block]:
    """The lines of a file, a block at a time.

    Args:
        path: a text file, compressed if its name ends in `.gz`.
        columns: values per line; by default as many as the first line has.
        missing: whether an empty cell, or `""`, is a missing value rather than an error.
    """
    decoders = [_unsigned, _three_decimals]
    line = 1
    for text in _texts(path, keep_blank_end=missing):
        if columns is None:
            columns = text.count(b",", 0, text.index(b"\n")) + 1
        for decoder in decoders:
            if (decoded := decoder(text, columns, missing)) is not None:
                # What a file begins with, it mostly goes on with: try that first in the next block.
                decoders.sort(key=lambda other: other is not decoder)
                break
        else:
            decoded = _any_numbers(path, line, text, columns, missing), 1
        yield Block(path, line, *decoded)
        line += len(decoded[0])


def _texts(path: Path, *, keep_blank_end: bool) -> Iterator[bytes]:
    """The file's text in pieces of whole lines; blank lines at its end are left out unless they mean something."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            rest = b""
            while piece := file.read(BLOCK_BYTES):
                rest += piece
                cut = rest.rfind(b"\n", 0, len(rest.rstrip())) + 1
                if cut:
                    yield _tidy(rest[:cut])
                    rest = rest[cut:]
                elif len(rest) > LONGEST_LINE:
                    raise DataError(f"{path} has a line of more than {LONGEST_LINE} characters")
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged, fetch it again: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    if keep_blank_end:
        rest = rest if rest.endswith(b"\n") or not rest else rest + b"\n"
    elif rest := rest.rstrip():
        rest += b"\n"
    if rest:
        yield _tidy(rest)


def _tidy(text: bytes) -> bytes:
    """The same numbers without the variations that TU's files have: a blank after the comma, Windows line ends."""
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    return text.replace(b", ", b",") if b" " in text else text


def _cells(text: bytes, columns: int) -> tuple[NDArray[np.uint8], Array, Array] | None:
    """The text as bytes, where its cells end and how long they are, or `None` if it is not a regular table.

    Everything below the decimal point in the character table counts as the end of a cell, so that a sign, a blank or
    a quotation mark breaks the pattern of commas and newlines and is noticed.
    """
    characters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(characters < POINT)
    if len(ends) % columns:
        return None
    separators = characters[ends].reshape(-1, columns)
    if (separators[:, -1] != NEWLINE).any() or (separators[:, :-1] != COMMA).any():
        return None
    return characters, ends, np.diff(ends, prepend=-1) - 1


def _unsigned(text: bytes, columns: int, missing: bool) -> tuple[Array, int] | None:
    """Integers of up to nine digits without a sign, or `None` if the text has anything else."""
    if (cells := _cells(text, columns)) is None:
        return None
    characters, ends, lengths = cells
    longest, shortest = int(lengths.max()), int(lengths.min())
    if longest > 9 or (shortest == 0 and not missing):
        return None
    dtype = np.uint8 if longest < 3 else np.uint16 if longest < 5 else np.uint32
    values: Array = np.zeros(len(ends), dtype)
    for place in range(longest):
        digits = characters[ends - (place + 1)] - np.uint8(ZERO)  # a character below zero wraps around to above 9
        if place >= shortest:
            digits *= lengths > place
        if digits.max() > 9:
            return None
        values += digits.astype(dtype) * dtype(10**place)
    return _with_missing(values, lengths, 1, columns)


def _three_decimals(text: bytes, columns: int, missing: bool) -> tuple[Array, int] | None:
    """Thousandths of numbers like 0, 0.5 or 1.125, or `None` if the text has anything else."""
    if (cells := _cells(text + b"0000", columns)) is None:
        return None
    characters, ends, lengths = cells
    shortest = int(lengths.min())
    if lengths.max() > len("0.000") or (shortest == 0 and not missing):
        return None
    starts = ends - lengths
    if ((characters[starts + 1] != POINT) & (lengths > 1)).any():
        return None
    values = np.zeros(len(ends), np.uint16)
    for place, worth in ((0, 1000), (2, 100), (3, 10), (4, 1)):
        digits = characters[starts + place] - np.uint8(ZERO)
        if place >= shortest:
            digits *= lengths > place
        if digits.max() > 9:
            return None
        values += digits.astype(np.uint16) * np.uint16(worth)
    return _with_missing(values, lengths, 1000, columns)


def _with_missing(values: Array, lengths: Array, scale: int, columns: int) -> tuple[Array, int]:
    """The decoded table; if it has empty cells, as floats with NaN in them."""
    empty = lengths == 0
    if empty.any():
        values, scale = np.where(empty, np.nan, values / scale), 1
    return values.reshape(-1, columns), scale


def _any_numbers(path: Path, first_line: int, text: bytes, columns: int, missing: bool) -> Array:
    """Numbers in any notation, as float64, or an error that names the line."""
    if not missing and text.strip():
        with contextlib.suppress(ValueError):
            table: Array = np.loadtxt(io.BytesIO(text), delimiter=",", comments=None, ndmin=2)
            if table.shape == (text.count(b"\n"), columns):  # it skips blank lines
                return table
    rows = []
    for number, line in enumerate(text.splitlines(), first_line):
        cells = line.split(b",")
        if missing:
            cells = [b"nan" if cell.strip() in (b"", b'""') else cell for cell in cells]
        if len(cells) != columns:
            raise DataError(f"{path}, line {number}: expected {columns} values, got {len(cells)}: {_shown(line)}")
        try:
            if b"_" in line:  # Python reads 1_000, nobody else does
                raise ValueError
            rows.append([float(cell) for cell in cells])
        except ValueError:
            raise DataError(f"{path}, line {number}: expected {columns} numbers, got {_shown(line)}") from None
    return np.array(rows, dtype=np.float64).reshape(-1, columns)


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")
