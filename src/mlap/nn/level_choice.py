"""Which levels a readout reads, as people write it."""

from __future__ import annotations

import re
from typing import NamedTuple

from mlap.errors import UsageError

#: the price of a level in a learned subset unless given
PRICE = 0.01


class LevelChoice(NamedTuple):
    """Which levels a readout reads; all of them unless told otherwise.

    Args:
        numbers: these.
        last: the last so many.
        price: those that training finds worth this price each; see `mlap.nn.relations.SparseSum`.

    Example:
        >>> str(LevelChoice.parse("5, 1,3")), LevelChoice.parse("last:2").among(range(1, 6))
        ('1+3+5', (4, 5))
    """

    numbers: tuple[int, ...] = ()
    last: int = 0
    price: float | None = None

    @classmethod
    def parse(cls, text: str) -> LevelChoice:
        """Read `1,3,5` or `1+3+5`, `last:2`, `learned` or `learned:0.01`; an empty text is all levels."""
        text = text.replace(" ", "")
        if not text:
            return cls()
        if re.fullmatch(r"\d+([,+]\d+)*", text):
            return cls(numbers=tuple(sorted({int(number) for number in re.split("[,+]", text)})))
        if (last := re.fullmatch(r"last:(\d+)", text)) and int(last[1]):
            return cls(last=int(last[1]))
        if learned := re.fullmatch(r"learned(?::(\d*\.?\d+(?:e-?\d+)?))?", text):
            return cls(price=float(learned[1] or PRICE))
        raise UsageError(
            f"{{field}} must be numbers such as 1+3, or last:2, or learned:{PRICE}; got {text!r}", "levels", "last:2"
        )

    def among(self, numbers: range) -> tuple[int, ...]:
        """The chosen ones of the levels that a network of some depth has."""
        if self.last > len(numbers) or any(number not in numbers for number in self.numbers):
            raise UsageError(f"{{field}} {self} are not all among the levels {numbers[0]} to {numbers[-1]}", "levels")
        return self.numbers or tuple(numbers[-self.last :])

    def __str__(self) -> str:
        if self.price is not None:
            return f"learned:{self.price:g}"
        return f"last:{self.last}" if self.last else "+".join(map(str, self.numbers))
