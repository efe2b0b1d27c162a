"""Files of tables: CSV, TSV, SMILES files, SD files, Parquet and Excel sheets, and standard input.

Texts may be gzipped, in UTF-8, UTF-16 or Windows' own Latin letters, separated by commas, semicolons or tabs.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mlap.errors import DataError, MlapError, UsageError
from mlap.files import first_line
from mlap.graphs import _smiles
from mlap.graphs._cells import Cells, check_names, texts

#: The name that stands for standard input.
STDIN = "-"

_TEXTS = (".csv", ".tsv", ".smi", ".sdf")
SUFFIXES = (*_TEXTS, *(f"{suffix}.gz" for suffix in _TEXTS), ".parquet", ".xlsx")

_BLOCK = 1 << 20  # bytes

#: A longer line is an error: a small gzipped file may hold one that fills the memory.
LONGEST_LINE = 1 << 24  # characters

#: An Excel file is an archive, and a small one may hold as much as fills the memory. Nobody reads this much of XML.
LARGEST_BOOK = 1 << 30  # bytes


@dataclass(frozen=True)
class _Rows:
    """A table as it is read: the names of its columns, and its rows with the line on which each ends."""

    names: Sequence[str]
    rows: Iterable[tuple[int, Sequence[str]]]
    decimal_comma: bool = False
    notes: tuple[str, ...] = ()


def is_table(source: object) -> bool:
    """Whether a source is a table, judged by its name."""
    return str(source) == STDIN or str(source).lower().endswith(SUFFIXES)


def table_name(path: str | Path) -> str:
    """What to call the graph set of a table: its file's name without the ending."""
    return "stdin" if str(path) == STDIN else Path(path).name.removesuffix(".gz").rpartition(".")[0]


def read_cells(path: str | Path) -> Cells:
    """Read a table; blank lines and the spaces around cells are dropped."""
    (cells,) = iter_cells(path)
    return cells


def iter_cells(path: str | Path, rows: int | None = None) -> Iterator[Cells]:
    """The rows of a table in pieces of `rows` rows, in memory that does not grow with the file; or all in one.

    SD files and Excel sheets have to be read whole, and are cut afterwards.
    """
    file = "stdin" if str(path) == STDIN else Path(path).name
    if not is_table(path):
        raise UsageError(f"{file} is not a table that can be read; expected a file in {', '.join(SUFFIXES)}")
    if str(path) != STDIN and not Path(path).is_file():
        raise UsageError(f"there is no file {path}")
    lowered = file.lower()
    if lowered.endswith(".parquet"):
        pieces = _parquet(Path(path), rows)
    elif lowered.endswith(".xlsx"):
        pieces = _cut(file, _sheet(Path(path)), rows)
    else:
        pieces = _text_pieces(path, file, rows)
    empty = True
    for piece in pieces:
        empty = False
        yield piece
    if empty:
        raise DataError(f"{file} has no rows below its header")


def about_rows(path: str | Path) -> int | None:
    """About how many rows a table has, for progress: counted by its lines, or `None` where there are none to count."""
    path = Path(path)
    name = path.name.lower()
    if name.endswith(".xlsx") or not path.is_file():
        return None
    if name.endswith(".parquet"):
        import pyarrow.parquet

        return int(pyarrow.parquet.read_metadata(path).num_rows)
    mark = b"$$$$" if ".sdf" in name else b"\n"
    count, quoted = 0, False
    with gzip.open(path) if name.endswith(".gz") else path.open("rb") as file:
        while block := file.read(_BLOCK):
            for number, part in enumerate(block.split(b'"')):  # a quoted cell may hold line ends
                quoted ^= number > 0
                count += 0 if quoted else part.count(mark)
    return max(1, count - (mark == b"\n"))


def _cut(file: str, table: _Rows, rows: int | None) -> Iterator[Cells]:
    """A table's rows as pieces of columns."""
    names = [name or f"unnamed {number + 1}" for number, name in enumerate(table.names)]
    check_names(file, names)
    numbered = iter(table.rows)
    first = 0
    while piece := list(itertools.islice(numbered, rows)):
        for line, row in piece:
            # A spreadsheet may leave separators behind the last column.
            if len(row) < len(names) or any(row[len(names) :]):
                raise DataError(f"{file}, line {line}: got {len(row)} cells, but the header has {len(names)}")
        columns = {name: [row[place] for _, row in piece] for place, name in enumerate(names)}
        yield Cells(file, columns, [line for line, _ in piece], first, table.decimal_comma, table.notes)
        first += len(piece)


# ---- text ------------------------------------------------------------------------------------------------------------


def _text_pieces(path: str | Path, file: str, rows: int | None) -> Iterator[Cells]:
    """The pieces of a text file, by what its name says it is."""
    with _opened(path, file) as (content, encoding):
        notes = () if encoding != "cp1252" else (f"{file} is not UTF-8; it is read as Windows (Latin) text",)
        lowered = file.lower().removesuffix(".gz")
        if lowered.endswith(".sdf"):
            table = _structures(file, content, notes)
        elif lowered.endswith(".smi") or (file == "stdin" and _starts_with_smiles(content)):
            table = _smiles_file(file, content, notes)
        else:
            table = _delimited(file, content, notes)
        yield from _cut(file, table, rows)


@contextlib.contextmanager
def _opened(path: str | Path, file: str) -> Iterator[tuple[io.TextIOWrapper, str]]:
    """A file, or standard input, as text; and the encoding it is in."""
    with contextlib.ExitStack() as stack:
        try:
            raw: IO[bytes] = stack.enter_context(_stdin() if str(path) == STDIN else open(path, "rb"))  # noqa: SIM115
            if file.lower().endswith(".gz") or (str(path) == STDIN and _begins(raw, b"\x1f\x8b")):
                raw = stack.enter_context(gzip.open(raw))  # type: ignore[arg-type]
            encoding = _encoding(raw, file)
            # Windows' Latin letters leave five bytes without a meaning.
            errors = "replace" if encoding == "cp1252" else "strict"
            content = io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline="")
            yield stack.enter_context(content), encoding
        except UnicodeError as error:
            raise DataError(f"{file} is not a text file; save it as CSV in UTF-8") from error
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{file} cannot be read: {error}") from error


def _stdin() -> IO[bytes]:
    """Standard input in a temporary file: it is looked at before it is read."""
    copy: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by the caller)
    try:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return copy


def _begins(file: IO[bytes], start: bytes) -> bool:
    found = file.read(len(start)) == start
    file.seek(0)
    return found


def _encoding(file: IO[bytes], name: str) -> str:
    """UTF-8 if all of the file is; UTF-16 if it says so; else what Windows writes in Western languages."""
    if _begins(file, codecs.BOM_UTF16_LE) or _begins(file, codecs.BOM_UTF16_BE):
        return "utf-16"
    decoder = codecs.getincrementaldecoder("utf-8")()
    length = 0
    try:
        while block := file.read(_BLOCK):
            if b"\0" in block:
                raise DataError(f"{name} is not a text file; save it as CSV in UTF-8")
            length = len(block) - 1 - last if (last := block.rfind(b"\n")) >= 0 else length + len(block)
            if length > 4 * LONGEST_LINE and b"\r" not in block:  # no need to read on to the end of it
                raise _too_long(name)
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "cp1252"
    finally:
        file.seek(0)
    return "utf-8-sig"


def _too_long(file: str) -> DataError:
    return DataError(f"{file} has a line of more than {LONGEST_LINE} characters")


def _lines(file: str, content: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a text with their ends, none longer than there may be."""
    while line := content.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise _too_long(file)
        yield line


def _first_line(content: io.TextIOWrapper) -> str:
    """The first line of a text, of which nothing is taken."""
    line = content.readline(LONGEST_LINE)
    content.seek(0)
    return line


def _delimited(file: str, content: io.TextIOWrapper, notes: tuple[str, ...]) -> _Rows:
    """A header and rows, separated by whatever stands most often in the first line outside quotes."""
    first = re.sub(r'"[^"]*"', "", _first_line(content))
    delimiter = max(",", ";", "\t", key=first.count)  # a German Excel writes semicolons
    reader = csv.reader(_lines(file, content), delimiter=delimiter, strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for row in reader:
                if any(cell.strip() for cell in row):
                    yield reader.line_num, [cell.strip() for cell in row]
        except csv.Error as error:
            raise DataError(f"{file}, line {reader.line_num}: {error}") from error

    numbered = rows()
    _, header = next(numbered, (0, None))
    if header is None:
        raise DataError(f"{file} is empty; expected a header and rows")
    return _Rows(header, numbered, decimal_comma=delimiter != ",", notes=notes)


def _smiles_file(file: str, content: io.TextIOWrapper, notes: tuple[str, ...]) -> _Rows:
    """A molecule per line: its SMILES, then a blank and its name. A header that says so is taken for one."""
    first = _first_line(content)
    if "\t" in first and "smiles" in first.lower():
        return _delimited(file, content, notes)

    def rows() -> Iterator[tuple[int, tuple[str, str]]]:
        for line, row in enumerate(_lines(file, content), 1):
            # An extension between bars belongs to the SMILES: `CCO |$a;b;c$| name`.
            if match := re.match(r"\s*(\S+(?:\s+\|[^|]*\|)?)\s*(.*)", row):
                if line == 1 and "smiles" in match[1].lower():
                    continue
                yield line, (match[1], match[2].strip())

    return _Rows(("smiles", "name"), rows(), notes=notes)


def _starts_with_smiles(content: io.TextIOWrapper) -> bool:
    """Whether a text without separators begins with a molecule rather than with the name of a column."""
    first = _first_line(content)
    words = first.split()
    if not words or any(mark in first for mark in ",;") or "smiles" in first.lower():
        return False
    return not next(_smiles.run("featurise", words[:1]))[0]


# ---- structures ------------------------------------------------------------------------------------------------------


def _structures(file: str, content: io.TextIOWrapper, notes: tuple[str, ...]) -> _Rows:
    """The molecules of an SD file as SMILES, with their names and properties as further columns."""
    _smiles.require_rdkit()
    found: list[tuple[int, dict[str, str]]] = []
    record: list[str] = []
    for line, row in enumerate(itertools.chain(_lines(file, content), ("$$$$",)), 1):
        if row.rstrip() != "$$$$":
            record.append(row.rstrip("\r\n"))
        else:
            if any(part.strip() for part in record):
                found.append((line, _structure(record)))
            record = []
    names = list(dict.fromkeys(name for _, values in found for name in values))
    return _Rows(names, [(line, [values.get(name, "") for name in names]) for line, values in found], notes=notes)


def _structure(record: Sequence[str]) -> dict[str, str]:
    """One molecule: SMILES, name, properties. A molecule that breaks the rules keeps a SMILES that says so."""
    from rdkit import Chem, rdBase

    end = next((place + 1 for place, line in enumerate(record) if line.startswith("M  END")), len(record))
    block = "\n".join(record[:end])
    with rdBase.BlockLogs():
        try:
            mol = Chem.MolFromMolBlock(block) or Chem.MolFromMolBlock(block, sanitize=False)
            smiles = "" if mol is None or mol.GetNumAtoms() > _smiles.MOST_ATOMS else Chem.MolToSmiles(mol)
        except (RuntimeError, ValueError):
            smiles = ""
    values = {"smiles": smiles, "name": record[0].strip() if record else ""}
    name = None
    for line in record[end:]:
        if header := re.match(r">.*<([^>]+)>", line):
            name = header[1].strip()
            # The SMILES that we make are the ones that are read.
            name = f"{name} (property)" if name in ("smiles", "name") else name
            values[name] = ""
        elif name is not None and line.strip():
            values[name] = f"{values[name]} {line.strip()}".strip()
    return values


# ---- Parquet and Excel -----------------------------------------------------------------------------------------------


def _parquet(path: Path, rows: int | None) -> Iterator[Cells]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError("Parquet files need pyarrow, which is not installed: pip install 'mlap[chem]'") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = [str(name) for name in file.schema_arrow.names]
            check_names(path.name, names)
            first = 0
            for piece in [file.read()] if rows is None else file.iter_batches(rows):
                columns = {name: texts(piece.column(name).to_pylist()) for name in names}
                if len(piece):
                    yield Cells(path.name, columns, None, first)
                first += len(piece)
    except MlapError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # text that is not UTF-8, too
        raise DataError(f"{path.name} cannot be read as Parquet: {first_line(error)}") from error


def _sheet(path: Path) -> _Rows:
    """The first sheet of an Excel file."""
    try:
        import openpyxl
    except ImportError as error:
        raise UsageError(
            f"{path.name}: Excel files need openpyxl, which is not installed (pip install openpyxl); "
            "or save the sheet as CSV"
        ) from error
    try:
        with zipfile.ZipFile(path) as archive:  # it reads no more of a member than it says here
            size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST_BOOK:
            raise ValueError(f"it holds {size >> 20} MB, and at most {LARGEST_BOOK >> 20} are read; save it as CSV")
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheet = book.worksheets[0]
        numbered = [(line, texts(row)) for line, row in enumerate(sheet.values, 1)]
        book.close()
    except Exception as error:  # openpyxl raises whatever the parts of the archive raise
        raise DataError(f"{path.name} cannot be read as an Excel file: {first_line(error)}") from error
    filled = [(line, row) for line, row in numbered if any(row)]
    if not filled:
        raise DataError(f"{path.name} is empty; expected a header and rows")
    (_, header), *rest = filled
    width = max(place + 1 for place, name in enumerate(header) if name)
    return _Rows(header[:width], rest)
