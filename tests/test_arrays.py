"""Arrays in files: what is read is what was written, or an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from mlap.arrays import checksum_of, read_arrays, write_arrays
from mlap.errors import DataError

ARRAYS = {
    "matrix": np.arange(12, dtype=np.float64).reshape(3, 4).T,  # not as it lies in memory
    "whole": np.array([1, 2, 3], np.int32),
    "number": np.array(7, np.int64),
    "none": np.zeros((0, 2), np.float32),
}


def test_through_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_arrays(path, ARRAYS)
    again = read_arrays(path)
    assert set(again) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_every_changed_byte_of_the_arrays_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_arrays(path, {"x": np.arange(4, dtype=np.float32)})
    whole = path.read_bytes()
    for place in range(len(whole) - 16, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match=r"a\.safetensors"):
            read_arrays(path)
    for length in (0, 4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"a\.safetensors"):
            read_arrays(path)
        with pytest.raises(DataError, match=r"a\.safetensors"):
            checksum_of(path)
    with pytest.raises(DataError, match="missing"):
        read_arrays(tmp_path / "missing")


def test_the_checksum_is_of_the_content(tmp_path: Path) -> None:
    found = []
    for number, arrays in enumerate((ARRAYS, dict(reversed(ARRAYS.items())), {**ARRAYS, "number": np.array(8)})):
        write_arrays(tmp_path / str(number), arrays)
        found.append(checksum_of(tmp_path / str(number)))
    assert found[0] == found[1] != found[2]


def test_files_of_before_have_none(tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    safetensors.numpy.save_file({"x": np.ones(3)}, path)
    assert checksum_of(path) is None
    np.testing.assert_array_equal(read_arrays(path)["x"], np.ones(3))
