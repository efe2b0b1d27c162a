"""The number reader, against Python's own `float`, cell by cell."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlap.errors import DataError
from mlap.graphs import _csv
from mlap.graphs._csv import Rows, blocks, read_integers, read_reals

unsigned = st.integers(0, 999_999_999).map(str)
thousandths = st.integers(0, 9999).map(lambda n: f"{n / 1000}") | st.sampled_from(["0", "1", "7.", "0.000", "0.5"])
anything = st.floats(allow_nan=False, width=32).map(str) | st.integers(-(10**12), 10**12).map(str) | unsigned
cells = st.sampled_from([unsigned, thousandths, anything, st.one_of(unsigned, thousandths)])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines, so that small files have several."""
    monkeypatch.setattr(_csv, "BLOCK_BYTES", 40)


@st.composite
def tables(draw: st.DrawFn, empty: bool = False) -> list[list[str]]:
    columns = draw(st.integers(2 if empty else 1, 4))
    kind = draw(cells)
    cell = kind | st.just("") if empty else kind
    return draw(st.lists(st.lists(cell, min_size=columns, max_size=columns), min_size=1, max_size=30))


def text(table: list[list[str]], separator: str = ",", end: str = "\n") -> str:
    return "".join(separator.join(row) + end for row in table)


@given(tables(), st.sampled_from([",", ", "]), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n\n"]))
def test_reads_what_python_reads(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]], separator: str, end: str, tail: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "table.txt"
    path.write_bytes((text(table, separator, end) + tail).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_csv, "BLOCK_BYTES", 40)
        got = read_reals(path)
    np.testing.assert_array_equal(got, np.array([[float(cell) for cell in row] for row in table]))


@given(tables(empty=True))
def test_missing_values_are_nan(tmp_path_factory: pytest.TempPathFactory, table: list[list[str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "missing.txt"
    path.write_text(text(table))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_csv, "BLOCK_BYTES", 40)
        got = read_reals(path, missing=True)
    np.testing.assert_array_equal(got, np.array([[float(cell or "nan") for cell in row] for row in table]))


@pytest.mark.usefixtures("small_blocks")
def test_missing_values_of_a_single_column_to_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "y.csv").write_text('1\n\n0\n""\n\n')
    np.testing.assert_array_equal(read_reals(tmp_path / "y.csv", missing=True)[:, 0], [1, np.nan, 0, np.nan, np.nan])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("bad", ["x", "", "1_0", "0x1", "--1", "1.2.3", "1 2", "#", "1e", "1:2", "/", "٣", "\x00"])
@pytest.mark.parametrize("line", [1, 2, 77, 100])
@pytest.mark.parametrize("good", ["5", "0.25", "-1.5e3"])
def test_a_cell_that_is_no_number_is_refused_with_its_line(tmp_path: Path, good: str, line: int, bad: str) -> None:
    table = [[good, good] for _ in range(100)]
    table[line - 1][1] = bad
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(text(table).encode()))
    with pytest.raises(DataError, match=rf"a\.csv\.gz, line {line}: expected"):
        read_reals(path)


@pytest.mark.parametrize("row", ["1", "1,2,3", "", "1,2,"])
@pytest.mark.usefixtures("small_blocks")
def test_a_line_of_another_length_is_refused(tmp_path: Path, row: str) -> None:
    lines = ["1,2"] * 40
    lines[20] = row
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="line 21: expected 2 values"):
        read_reals(tmp_path / "a.csv")
    # Two wrong lines whose cells add up to whole rows.
    (tmp_path / "b.csv").write_text("1\n1,2,3\n")
    with pytest.raises(DataError, match="line 1: expected 2 values, got 1"):
        read_integers(tmp_path / "b.csv", 2)


def test_integers_are_exact_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "i.csv"
    path.write_text("3.0,-4\n999999999,1e3\n")
    assert read_integers(path).tolist() == [[3, -4], [999999999, 1000]]
    for wrong in ("0.5", "1.001", "nan", "inf"):
        path.write_text(f"1\n{wrong}\n")
        with pytest.raises(DataError, match="line 2: expected an integer"):
            read_integers(path)


def test_numbers_that_do_not_fit_their_type_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "i.csv"
    path.write_text("255\n256\n")
    (block,) = (b for b in blocks(path) if 256 in b.values)
    with pytest.raises(DataError, match=r"line \d: expected 0 to 255, got 256"):
        block.integers(np.uint8)
    path.write_text("-1\n")
    (block,) = blocks(path)
    with pytest.raises(DataError, match="line 1: expected 0 to 255, got -1"):
        block.integers(np.uint8)


@given(st.lists(st.integers(0, 65535), min_size=1, max_size=50))
def test_thousandths_are_exact(tmp_path_factory: pytest.TempPathFactory, numbers: list[int]) -> None:
    path = tmp_path_factory.getbasetemp() / "thousandths.csv"
    path.write_text("".join(f"{n // 1000}.{n % 1000:03}\n" for n in numbers))
    stored = np.concatenate([block.thousandths(np.uint16) for block in blocks(path)])[:, 0]
    assert stored.tolist() == numbers
    assert stored.dtype == np.uint16


@pytest.mark.parametrize("wrong", ["0.1234", "65.536", "-0.001", "nan", "inf", "66"])
def test_what_is_no_two_byte_thousandth_is_refused(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"0.5\n1\n{wrong}\n")
    with pytest.raises(DataError, match=r"line 3: expected"):
        [block.thousandths(np.uint16) for block in blocks(path)]


@given(st.lists(st.integers(0, 20), max_size=12), st.integers(0, 3))
def test_rows_come_in_any_portions(tmp_path_factory: pytest.TempPathFactory, portions: list[int], surplus: int) -> None:
    total = sum(portions)
    numbers = np.arange(2 * (total + surplus)).reshape(-1, 2)
    path = tmp_path_factory.getbasetemp() / "rows.csv"
    path.write_text(text([[str(n) for n in row] for row in numbers]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_csv, "BLOCK_BYTES", 40)
        rows = Rows(path, 2, np.uint16, total=total, because="so many are needed")
        parts = [rows.take(count) for count in portions]
        assert [len(part) for part in parts] == portions
        np.testing.assert_array_equal(np.concatenate([np.empty((0, 2)), *parts]), numbers[:total])
        if surplus:
            with pytest.raises(DataError, match=rf"more than {total} lines, but so many are needed"):
                rows.finish()
        else:
            rows.finish()
            with pytest.raises(DataError, match=rf"has {total} lines, expected {total}"):
                rows.take(1)


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    rng = np.random.RandomState(0)
    whole = gzip.compress(text([[str(n)] for n in rng.randint(0, 10**6, 200_000)]).encode())
    path = tmp_path / "a.csv.gz"
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"no gzip", whole[:-8] + bytes(8)):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.csv\.gz is damaged"):
            read_integers(path)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    path.write_bytes(flipped)
    with pytest.raises(DataError, match=r"a\.csv\.gz"):
        read_integers(path)
    with pytest.raises(DataError, match=r"b\.csv\.gz is missing"):
        read_integers(tmp_path / "b.csv.gz")
    with pytest.raises(DataError, match="cannot be read"):
        read_integers(tmp_path)


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"\n"))
    assert read_integers(tmp_path / "a.txt", 2).shape == (0, 2)
    assert read_reals(tmp_path / "b.csv.gz").shape == (0, 1)
