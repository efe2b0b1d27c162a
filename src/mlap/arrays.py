"""Arrays in safetensors files that know their own checksum. Nothing in a file is executed.

The checksum lies in the file's header, so a file and its checksum are replaced in one step, also while a run goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from mlap.errors import DataError
from mlap.files import first_line, write_whole

Array = NDArray[Any]

_CHECKSUM = "sha256"


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays `name → array` in one step; the same arrays make the same bytes."""
    # safetensors takes the memory as it lies, whatever the strides say.
    kept = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = safetensors.numpy.save(kept, {_CHECKSUM: checksum(kept)})  # several entries would have no order

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_whole(path, write)


def read_arrays(path: Path) -> dict[str, Array]:
    """Read arrays again; a file that does not hold what was written is a `DataError`."""
    try:
        with safetensors.safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            said = (file.metadata() or {}).get(_CHECKSUM)
    except Exception as error:  # a damaged file can make the reader raise nearly anything
        raise DataError(f"{path} is damaged: {first_line(error)}") from error
    if said is not None and said != checksum(arrays):  # files of before 0.2 have none
        raise DataError(f"{path} is damaged: its content does not have the checksum {said[:12]}…; restore a copy")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"{path} is damaged: {name} holds numbers that are not finite")
    return arrays


def checksum_of(path: Path) -> str | None:
    """The checksum that a file says it has; `None` of a file of before 0.2."""
    try:
        with safetensors.safe_open(path, "np") as file:
            return (file.metadata() or {}).get(_CHECKSUM)
    except Exception as error:
        raise DataError(f"{path} is damaged: {first_line(error)}") from error


def checksum(arrays: Mapping[str, Array]) -> str:
    """A SHA-256 over names, types, shapes and contents."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        found.update(array.tobytes())
    return found.hexdigest()
