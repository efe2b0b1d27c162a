"""A tiny trained network and a table of molecules, for tests of what models do with tables."""

from __future__ import annotations

import csv
from pathlib import Path

import mlap

SMILES = ("CCO", "CCN", "CCC", "CCCC", "OCCO", "CC(C)O", "CCCO", "CNC", "c1ccccc1", "Oc1ccccc1")
#: rows of `write_library` that are no molecules
BROKEN = 17


def small_run(folder: Path) -> Path:
    """A network that has learned next to nothing."""
    labels = [int("O" in smiles) for smiles in SMILES] * 3
    mlap.train(SMILES * 3, labels=labels, out=folder, layers=2, width=8, epochs=1, metric="log_loss")
    return folder


def write_library(path: Path, rows: int) -> Path:
    """A table of chains of all kinds; every `BROKEN`th row is no molecule. A name may have a comma and a line end."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("name", "smiles", "code"))
        for row in range(rows):
            smiles = "C(" if row % BROKEN == BROKEN - 1 else "C" * (row % 7 + 1) + SMILES[row % len(SMILES)]
            writer.writerow((f"no. {row},\nalias {row}", smiles, f"00{row}"))
    return path
