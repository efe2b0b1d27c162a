"""Which column of a table holds the SMILES and which the labels, as given or guessed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlap.errors import DataError, UsageError
from mlap.graphs import _smiles
from mlap.graphs._cells import Cells, number, quoted, shown
from mlap.graphs._labels import is_text, yes_or_no

CLEAR_NAMES = ("smiles", "canonical_smiles", "isomeric_smiles")
LIKELY_NAMES = ("smi", "mol", "molecule", "structure", "compound")
TARGET_NAMES = ("label", "target", "y", "class", "active", "activity", "outcome")
OTHER_NAMES = re.compile(r"((.*[\W_])?([acs]?id|idx|index|row|num|name|split|fold|set|weight))?|unnamed.*")

MOST_WORDS = 20  # more different words than this are names rather than classes


def choose_smiles(cells: Cells, smiles: str | None) -> tuple[str, list[str]]:
    """The column of the SMILES, and what was guessed about it."""
    if smiles is not None:
        return cells.check(smiles, "smiles"), []
    if list(cells.columns) == ["smiles"]:
        return "smiles", []
    found = _guess_smiles(cells)
    return found, [f"SMILES are taken from column {quoted(found)} (guessed)"]


def choose_targets(
    cells: Cells, targets: Sequence[str] | None, smiles: str, split: str | None
) -> tuple[tuple[str, ...], list[str]]:
    """The columns of the labels, and what was guessed about them."""
    notes = []
    if targets is None:
        targets = _guess_targets(cells, taken={smiles, split})
        notes = [f"labels are taken from {shown(targets)} (guessed)"]
    for name in targets:
        cells.check(name, "targets")
    if len(set(targets)) < len(targets) or smiles in targets:
        raise UsageError(
            f"{{field}} must each be a column of their own, got {shown(targets)} with SMILES in {quoted(smiles)}",
            field="targets",
        )
    return tuple(targets), notes


def _guess_smiles(cells: Cells) -> str:
    """By name, if a column's name says it; by content otherwise."""
    by_name = {name.lower().replace(" ", "_"): name for name in reversed(cells.columns)}
    clear = [name for name in cells.columns if "smiles" in name.lower()]
    if len(clear) > 1:
        clear = [by_name[known] for known in CLEAR_NAMES if known in by_name][:1] or clear
    likely = [by_name[known] for known in LIKELY_NAMES if known in by_name and _holds_molecules(cells, by_name[known])]
    found = clear or likely[:1] or [name for name in cells.columns if _holds_molecules(cells, name)]
    if len(found) > 1:
        raise UsageError(
            f"{cells.file}: {shown(found)} could all be SMILES; name one", field="smiles", suggest=found[0]
        )
    if not clear and not likely and any(map(_is_molecule, found or cells.columns)):
        raise DataError(
            f"{cells.file}: the first line looks like data ({' '.join(', '.join(cells.columns)[:60].split())}); "
            "expected the names of the columns, such as smiles,label"
        )
    if not found:
        raise UsageError(
            f"{cells.file}: none of {shown(tuple(cells.columns))} holds SMILES; name one by {{field}}", field="smiles"
        )
    return found[0]


def _holds_molecules(cells: Cells, name: str) -> bool:
    """Whether most of the first cells are molecules, and not only a few codes that could be (CI is iodomethane)."""
    sample = cells.known(name)[:50]
    few = len(sample) >= 20 and len(set(sample)) < 5
    return not few and sum(map(_is_molecule, sample)) > len(sample) / 2


def _is_molecule(text: str) -> bool:
    return number(text) is None and not next(_smiles.run("featurise", [text]))[0]


def _guess_targets(cells: Cells, taken: set[str | None]) -> tuple[str, ...]:
    """The columns that can only be labels: a single one, or several that are all yes or no, or one named so.

    A column of numbers may hold labels; a column of words only if they say yes and no, or if it is named like labels.
    """
    binary: dict[str, bool] = {}  # column → whether it is yes or no
    for name in cells.columns:
        if name not in taken and not OTHER_NAMES.fullmatch(name.lower()) and _can_be_labels(cells, name):
            binary[name] = yes_or_no(cells, name)
    named = [name for name in binary if _named_like_labels(name)]
    if len(named) > 1:  # HIV_active beside the classes in `activity`
        named = [name for name in named if binary[name]]
    words = [name for name in binary if is_text(cells, name)]
    if len(binary) > 1 and len(named) == 1 and (words or not all(binary.values())):
        return (named[0],)
    if len(binary) == 1 or (binary and all(binary.values())):
        return tuple(binary)
    if binary:
        raise UsageError(f"{cells.file}: {shown(tuple(binary))} could all be labels; name {{field}}", field="targets")
    others = tuple(name for name in cells.columns if name not in taken)
    raise UsageError(
        f"{cells.file}: no column looks like labels; name {{field}}" + (f" among {shown(others)}" if others else ""),
        field="targets",
    )


def _named_like_labels(name: str) -> bool:
    """Whether a column's name, or its last word, says that it holds labels."""
    words = re.split(r"[\W_]+", name.lower())
    return name.lower() in TARGET_NAMES or (len(words) > 1 and words[-1] in TARGET_NAMES and words[-1] != "y")


def _can_be_labels(cells: Cells, name: str) -> bool:
    known = cells.known(name)
    if not known:
        return False
    if is_text(cells, name):
        return yes_or_no(cells, name) or (
            _named_like_labels(name) and 2 <= len(set(known)) <= min(MOST_WORDS, len(known) // 2)
        )
    values = [cells.number(cell) for cell in known]
    return None not in values and not _counts_rows(values)


def _counts_rows(values: Sequence[float | None]) -> bool:
    """Whether the values are the numbers of the rows."""
    return len(values) > 2 and values in ([*range(len(values))], [*range(1, len(values) + 1)])
