"""Write `molecules.csv` and `new-molecules.csv`: molecules that come with RDKit, with a label whose rule is known.

The label `active` is 1 if the molecule has an aromatic amine or nitro group. Usage: `demo_table.py FOLDER`.
"""

import csv
import sys
from pathlib import Path

from rdkit import Chem, RDConfig, rdBase

#: an aromatic amine or nitro group
ACTIVE = "[$([NX3;H2]c),$([N+](=O)([O-])c)]"
TRAIN, NEW = 2000, 100


def main(folder: Path) -> None:
    """Write both tables."""
    active = Chem.MolFromSmarts(ACTIVE)
    found: dict[str, tuple[str, str, int]] = {}  # canonical SMILES → row: the collection has some molecules twice
    with rdBase.BlockLogs():  # a few of the collection's molecules are none to RDKit
        for line in Path(RDConfig.RDDataDir, "NCI", "first_5K.smi").read_text(encoding="utf-8").splitlines():
            smiles, number = line.split()
            if (molecule := Chem.MolFromSmiles(smiles)) is not None:
                row = (f"NSC{number}", smiles, int(molecule.HasSubstructMatch(active)))
                found.setdefault(Chem.MolToSmiles(molecule), row)
    rows = list(found.values())
    for name, part in (("molecules.csv", rows[:TRAIN]), ("new-molecules.csv", rows[TRAIN : TRAIN + NEW])):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("id", "smiles", "active"), *part])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
