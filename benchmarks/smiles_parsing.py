"""How near reading SMILES comes to RDKit's own parsing, on the 41,127 molecules of MoleculeNet's HIV.

    python benchmarks/smiles_parsing.py [--molecules N]

Measures, on the same molecules: RDKit's `MolFromSmiles` alone; `mlap`'s `molecules` in one process and in two; and
OGB's `smiles2graph`, in one process, as the peer. Those in one process take turns on blocks of 1,000 molecules, so that
a busy spell of the machine meets them all. The ratio is one of processor time (of two processes together, where there
are two), which a shared machine disturbs less than the time on the clock. Writes `research/results/smiles_parsing.csv`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import sys
import time
from collections.abc import Callable

import numpy as np
from rdkit import Chem, rdBase
from records import made_by, real_data, write

from mlap.graphs.molecules import molecules

sys.modules["outdated"] = None  # type: ignore[assignment]  # without it, OGB starts no update check over the network
from ogb.utils.mol import smiles2graph  # noqa: E402

BLOCK = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, help="only the first so many")
    options = parser.parse_args()
    smiles = valid_smiles()[: options.molecules]

    kinds: dict[str, Callable[[list[str]], object]] = {
        "rdkit MolFromSmiles": lambda block: for_each(Chem.MolFromSmiles, block),
        "mlap molecules, 1 process": lambda block: molecules(block, processes=1),
        "ogb smiles2graph": lambda block: for_each(smiles2graph, block),
    }
    seconds = {kind: np.zeros(2) for kind in kinds}
    with rdBase.BlockLogs():
        for start in range(0, len(smiles), BLOCK):
            for kind, work in kinds.items():
                seconds[kind] += measured(work, smiles[start : start + BLOCK])
    seconds["mlap molecules, 2 processes"] = measured(lambda whole: molecules(whole, processes=2), smiles)

    rdkit_alone = seconds["rdkit MolFromSmiles"][0]
    rows = [
        {
            "what": kind,
            "molecules": len(smiles),
            "processor_seconds": round(processor, 2),
            "microseconds_per_molecule": round(processor / len(smiles) * 1e6, 1),
            "times_rdkit": round(processor / rdkit_alone, 2),
            "clock_seconds": round(clock, 2),
        }
        for kind, (processor, clock) in seconds.items()
    ]
    print(f"{'processor time':30}{'seconds':>9}{'µs/molecule':>13}{'× RDKit':>9}{'clock':>9}")
    for row in rows:
        figures = f"{row['processor_seconds']:9}{row['microseconds_per_molecule']:13}{row['times_rdkit']:9}"
        print(f"{row['what']:30}{figures}{row['clock_seconds']:9}")
    write("smiles_parsing.csv", rows, made_by("rdkit", "numpy", "ogb"))


def valid_smiles() -> list[str]:
    """The molecules of HIV that this RDKit reads: `smiles2graph` fails on the few others."""
    with gzip.open(real_data("moleculenet/HIV.csv.gz"), "rt") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    return list(molecules(smiles, on_invalid="skip").graphs.ids or ())


def measured(work: Callable[[list[str]], object], smiles: list[str]) -> np.ndarray:
    """Seconds of processor time, with that of ended child processes, and seconds on the clock."""
    children, begun, clock = sum(os.times()[2:4]), time.process_time(), time.perf_counter()
    work(smiles)
    own = time.process_time() - begun
    return np.array([own + sum(os.times()[2:4]) - children, time.perf_counter() - clock])


def for_each(function: Callable[[str], object], smiles: list[str]) -> None:
    """Call a function for each molecule and keep nothing."""
    for text in smiles:
        function(text)


if __name__ == "__main__":
    main()
