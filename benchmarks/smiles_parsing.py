"""How near reading SMILES comes to RDKit's own parsing, on the 41,127 molecules of MoleculeNet's HIV.

    python benchmarks/smiles_parsing.py [--molecules N] [--repeats R]

Measures, on the same molecules: RDKit's `MolFromSmiles` alone; `mlap`'s `molecules` in one process and in two; and
OGB's `smiles2graph`, in one process, as the peer. The kinds of run take turns, so that a busy spell of the machine
meets them all, and the fastest of the repeats counts. Writes `results/smiles_parsing.csv`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import rdkit
from rdkit import Chem, rdBase

import mlap
from mlap.graphs.molecules import molecules

sys.modules["outdated"] = None  # type: ignore[assignment]  # without it, OGB starts no update check over the network
from ogb.utils.mol import smiles2graph  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, help="only the first so many")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    smiles = valid_smiles()[: options.molecules]

    kinds = {
        "rdkit MolFromSmiles": lambda: for_each(Chem.MolFromSmiles, smiles),
        "mlap molecules, 1 process": lambda: molecules(smiles, processes=1),
        "mlap molecules, 2 processes": lambda: molecules(smiles, processes=2),
        "ogb smiles2graph": lambda: for_each(smiles2graph, smiles),
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    with rdBase.BlockLogs():
        for _ in range(options.repeats):
            for kind, work in kinds.items():
                begun = time.perf_counter()
                work()
                seconds[kind].append(time.perf_counter() - begun)

    rdkit_alone = min(seconds["rdkit MolFromSmiles"])
    rows = [
        {
            "what": kind,
            "molecules": len(smiles),
            "seconds": round(min(times), 2),
            "microseconds_per_molecule": round(min(times) / len(smiles) * 1e6, 1),
            "times_rdkit": round(min(times) / rdkit_alone, 2),
            "slowest_seconds": round(max(times), 2),
            "repeats": options.repeats,
            "command": " ".join(["python", "benchmarks/smiles_parsing.py", *sys.argv[1:]]),
            "versions": f"mlap {mlap.__version__}, rdkit {rdkit.__version__}, numpy {np.__version__}, ogb 1.3.6, "
            f"python {platform.python_version()}",
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} shared cores",
        }
        for kind, times in seconds.items()
    ]
    print(f"{'':30}{'seconds':>9}{'µs/molecule':>13}{'× RDKit':>9}")
    for row in rows:
        print(f"{row['what']:30}{row['seconds']:9}{row['microseconds_per_molecule']:13}{row['times_rdkit']:9}")
    target = ROOT / "results" / "smiles_parsing.csv"
    target.parent.mkdir(exist_ok=True)
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"written to {target.relative_to(ROOT)}")


def valid_smiles() -> list[str]:
    """The molecules of HIV that this RDKit reads: `smiles2graph` fails on the few others."""
    data = Path(os.environ.get("MLAP_TEST_DATA") or ROOT.parent / "shared" / "data")
    path = data / "moleculenet" / "HIV.csv.gz"
    if not path.is_file():
        sys.exit(f"there is no file {path}; set MLAP_TEST_DATA to the folder that holds moleculenet")
    with gzip.open(path, "rt") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    return list(molecules(smiles, on_invalid="skip").graphs.ids or ())


def for_each(function: Callable[[str], object], smiles: list[str]) -> None:
    """Call a function for each molecule and keep nothing."""
    for text in smiles:
        function(text)


if __name__ == "__main__":
    main()
