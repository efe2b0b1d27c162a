"""Which groups of atoms, at which level, move the logits of trained networks on ogbg-molhiv.

    python -m research.molecule_groups RUN …

A RUN is a directory that `mlap train` made, or one of a sweep's. Writes two tables about the test molecules into
`research/results/`, from the exact shares of `mlap.analysis.explain`:

- `molhiv_levels.csv`: for each level, and for all together, the sum of its shares over a molecule: mean and
  standard deviation over molecules, and the ROC-AUC of that sum alone; and how many atoms the level's attention amounts
  to, the exponential of its entropy, as a fraction of the molecule's.
- `molhiv_groups.csv`: for each group and level, how much more the group's atoms have of that sum than as many
  atoms of the same molecule have on average: mean and standard error over the molecules with the group.

The data are looked for in $MLAP_TEST_DATA, by default `../shared/data` beside the checkout.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from sklearn.metrics import roc_auc_score

from benchmarks.records import DATA, made_by, write
from mlap.graphs import GraphSet, load_graphs
from mlap.models import Run, explain, load
from mlap.statistics import summarise

#: name → SMARTS
GROUPS = {
    "sulphonic acid": "[SX4](=O)(=O)[OH,O-]",
    "carbon with a sulphonic acid": "[#6;$([#6][SX4](=O)(=O)[OH,O-])]",
    "azo": "[NX2]=[NX2]",
    "carboxylic acid": "C(=O)[OH,O-]",
    "amide": "C(=O)[NX3]",
    "nitro": "[N+](=O)[O-]",
    "phenol": "c[OH]",
    "halogen": "[F,Cl,Br,I]",
}


def main() -> None:
    """Look into every run, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, default=DATA / "ogbg_molhiv", help="the data set")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    graphs = load_graphs(arguments.data)
    tables: dict[str, list[dict[str, Any]]] = {"levels": [], "groups": []}
    for run in map(load, arguments.runs):
        network = {"network": f"{run.recipe.architecture}, L = {run.recipe.layers}, seed {run.recipe.seed}"}
        for table, rows in zip(tables.values(), look_into(run, graphs), strict=True):
            table += [network | row for row in rows]
    for name, table in tables.items():
        for row in table:
            print(*row.values(), sep="  ")
        write(f"molhiv_{name}.csv", table, made_by("torch", "rdkit", arguments=["RUN"] * len(arguments.runs)))


def look_into(run: Run, graphs: GraphSet) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Explain all test molecules and add up: rows of the levels, and of the groups."""
    assert graphs.ids is not None
    assert graphs.y is not None
    test = graphs.split("test")
    patterns = {name: Chem.MolFromSmarts(smarts) for name, smarts in GROUPS.items()}
    sums, attended = [], []
    excess: dict[str, list[NDArray[np.floating]]] = {name: [] for name in GROUPS}
    for found in explain(run.network, graphs, test):
        assert found.shares is not None
        shares = with_total(found.shares[:, :, 0])
        sums.append(shares.sum(axis=0))
        entropy = -np.sum(found.attention * np.log(np.maximum(found.attention, 1e-30)), axis=0)
        attended.append(np.exp(entropy) / found.num_nodes)
        with rdBase.BlockLogs():  # some SMILES of the set are none for RDKit
            molecule = Chem.MolFromSmiles(graphs.ids[found.graph])
        if molecule is None or molecule.GetNumAtoms() != found.num_nodes:
            continue
        for name, pattern in patterns.items():
            atoms = sorted({atom for match in molecule.GetSubstructMatches(pattern) for atom in match})
            if atoms:
                excess[name].append((shares[atoms] - shares.mean(axis=0)).sum(axis=0))

    names = [*map(str, found.levels), "all"]
    labels = graphs.y[test, 0]
    by_level = [
        {
            "level": name,
            "mean": round(float(values.mean()), 4),
            "standard_deviation": round(float(values.std(ddof=1)), 4),
            "rocauc": round(float(roc_auc_score(labels, values)), 4),
            "attended_fraction": "" if name == "all" else round(float(np.mean(attended, axis=0)[number]), 3),
            "molecules": len(values),
        }
        for number, (name, values) in enumerate(zip(names, np.stack(sums, axis=1), strict=True))
    ]
    by_group = [
        {
            "group": group,
            "smarts": GROUPS[group],
            "level": name,
            "molecules": summary.n,
            "excess_share": round(summary.mean, 4),
            "standard_error": round(summary.standard_error or 0, 4),
        }
        for group, rows in excess.items()
        for name, summary in zip(names, map(summarise, np.stack(rows, axis=1)), strict=True)
    ]
    return by_level, by_group


def with_total(shares: NDArray[np.floating]) -> NDArray[np.floating]:
    """Shares `(n, S)` of a molecule's atoms with their sum over levels as the last column."""
    return np.column_stack((shares, shares.sum(axis=1)))


if __name__ == "__main__":
    main()
