"""What a stored model must hold: arrays of the right type and shape, with finite numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import DataError

Array = NDArray[Any]


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
