"""Errors: one line that says what was got, what is known, and what was probably meant."""

from __future__ import annotations

import pytest

from mlap.errors import DataError, MlapError, UsageError, unknown


@pytest.mark.parametrize("kind", [DataError, UsageError])
def test_errors_are_values_errors_of_ours(kind: type[Exception]) -> None:
    assert issubclass(kind, MlapError)
    assert issubclass(kind, ValueError)


@pytest.mark.parametrize(
    ("got", "known", "expected"),
    [
        ("summ", ["sum", "max"], "unknown jump 'summ'; did you mean 'sum'? Known: sum, max"),
        ("xyz", ["sum", "max"], "unknown jump 'xyz'; Known: sum, max"),
        ("mcf7", ["MCF-7", "NCI1"], "unknown jump 'mcf7'; did you mean 'MCF-7'? Known: MCF-7, NCI1"),
        ("MLAP-SUM", ["mlap-sum"], "unknown jump 'MLAP-SUM'; did you mean 'mlap-sum'? Known: mlap-sum"),
        ("", ["sum"], "unknown jump ''; Known: sum"),
    ],
)
def test_unknown_suggests_the_nearest_names(got: str, known: list[str], expected: str) -> None:
    error = unknown("jump", got, iter(known))
    assert isinstance(error, UsageError)
    assert str(error) == expected
