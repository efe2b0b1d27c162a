"""Numbers in safetensors files with a checksum: what a stored baseline is made of. Nothing in a file is executed."""

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


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write arrays in one step and return the SHA-256 of the file."""
    # safetensors takes the memory as it lies, whatever the strides say.
    content = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_whole(path, write)
    return hashlib.sha256(content).hexdigest()


def read_arrays(path: Path, sha256: str) -> dict[str, Array]:
    """Read arrays again; a file with another checksum is damaged, or is not the one that was written."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {first_line(error)}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{path} is damaged: its checksum is not {sha256[:12]}…; restore a copy or fit it again")
    try:
        return safetensors.numpy.load(content)
    except safetensors.SafetensorError as error:
        raise DataError(f"{path} is damaged: {first_line(error)}") from error


def take(arrays: Mapping[str, Array], name: str, dtype: str, *shape: int | None) -> Array:
    """The array of that name if it has this type and shape (`None` for any length), else a `DataError`."""
    if name not in arrays:
        raise DataError(f"the stored model has no array {name!r}; it has {', '.join(sorted(arrays)) or 'none'}")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(want in (None, got) for want, got in zip(shape, array.shape, strict=True))
    if array.dtype != np.dtype(dtype) or not fits:
        expected = ", ".join("any" if length is None else str(length) for length in shape)
        raise DataError(f"array {name!r} is {array.dtype} {array.shape}, expected {dtype} ({expected})")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"array {name!r} holds {array[~np.isfinite(array)][0]}; expected finite numbers")
    return array
