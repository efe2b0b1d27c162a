"""The other members of an ensemble, in the cells of the search: forests, and WL features with a linear model.

    python research/recipe_search/members.py --data DATA

Appends a row for each model to `members.csv` and keeps its outputs for the validation graphs (logits or values) in
the scratch folder. Validation graphs only, as everywhere in the search. One thread.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import sets
from fit import score
from numpy.typing import NDArray
from plans import MEMBER_CELLS, Cell
from scipy import sparse
from search import outputs_path
from sets import Indices, SearchSet
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV

MEMBERS = Path(__file__).with_name("members.csv")
FIELDS = ("model", "set", "train_size", "split", "valid", "seconds")
Outputs = NDArray[np.float64]
WL_ROUNDS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets' folders")
    options = parser.parse_args()
    sets.DATA = options.data
    done = set()
    if MEMBERS.exists():
        with MEMBERS.open(newline="") as file:
            done = {(r["model"], r["set"], r["train_size"], r["split"]) for r in csv.DictReader(file)}
    for cell in MEMBER_CELLS:
        data = sets.search_set(cell.set)
        models = ["wl-linear"] if data.graphs.ids is None else ["rf-morgan", "rf-assay", "wl-linear"]
        for model in models:
            if (model, cell.set, str(cell.train_size), str(cell.split)) not in done:
                run(model, data, cell)


def run(model: str, data: SearchSet, cell: Cell) -> None:
    """Fit one model in one cell."""
    started = time.perf_counter()
    train, valid = data.split(cell.split, cell.train_size or None)
    features = wl_features(data) if model == "wl-linear" else fingerprints(model, data)
    fitted = linear if model == "wl-linear" else forest
    outputs = fitted(model, features, data, train, valid, cell.seed)
    np.savez(outputs_path(cell, model), valid=valid, outputs=outputs[None])
    row = {
        "model": model,
        "set": cell.set,
        "train_size": cell.train_size,
        "split": cell.split,
        "valid": f"{score(data.graphs.y[valid, 0].astype(float), outputs, data.regression):.5f}",
        "seconds": f"{time.perf_counter() - started:.1f}",
    }
    new = not MEMBERS.exists()
    with MEMBERS.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
    print(*row.values(), flush=True)


def fingerprints(model: str, data: SearchSet) -> NDArray[np.float32]:
    """rf-morgan: Morgan counts and RDKit's descriptors; rf-assay: Morgan bits and MACCS keys."""
    smiles = list(data.graphs.ids)
    kinds = ("morgan", "rdkit") if model == "rf-morgan" else ("morgan-bits", "maccs")
    return np.hstack([sets.descriptors_of(data.name, smiles, kind) for kind in kinds]).astype(np.float32)


def forest(model: str, x: NDArray[np.float32], data: SearchSet, train: Indices, valid: Indices, seed: int) -> Outputs:
    """The forests as the product has them: values, or logits of the share of trees."""
    y = data.graphs.y[:, 0]
    trees = 500 if model == "rf-morgan" else 1000
    if data.regression:
        found: Outputs = (
            RandomForestRegressor(trees, random_state=seed, max_features=1 / 3, n_jobs=1)
            .fit(x[train], y[train])
            .predict(x[valid])
        )
        return found
    settings = {"max_features": "sqrt", "random_state": seed, "n_jobs": 1}
    if model == "rf-assay":
        settings |= {"criterion": "entropy", "min_samples_leaf": 2, "class_weight": {0: 1, 1: 10}}
    p = RandomForestClassifier(trees, **settings).fit(x[train], y[train]).predict_proba(x[valid])[:, 1]
    p = np.clip(p, 0.5 / trees, 1 - 0.5 / trees)
    return np.log(p / (1 - p))


def wl_features(data: SearchSet) -> sparse.csr_matrix:
    """How often each Weisfeiler–Leman colour of rounds 0 to 4 occurs in each graph, as log(1 + count)."""
    g = data.graphs
    graph = np.repeat(np.arange(len(g)), np.diff(g.node_ptr))
    shift = np.repeat(g.node_ptr[:-1], np.diff(g.edge_ptr))
    ends = g.edges.astype(np.int64) + shift
    source, target = np.concatenate([ends[0], ends[1]]), np.concatenate([ends[1], ends[0]])
    kind = np.tile(data._kind, 2)
    colour = np.unique(g.node_features.values, axis=0, return_inverse=True)[1].reshape(-1)
    blocks = []
    rng = np.random.RandomState(0)
    for _ in range(WL_ROUNDS + 1):
        counts = sparse.coo_matrix((np.ones(len(colour)), (graph, colour))).tocsr()
        blocks.append(counts)
        # The multiset of a node's neighbours as a sum of random 62-bit words, one for each (edge kind, colour).
        words = rng.randint(0, 2**62, size=(colour.max() + 1, kind.max() + 1), dtype=np.int64).astype(np.uint64)
        gathered = np.zeros(len(colour), dtype=np.uint64)
        np.add.at(gathered, target, words[colour[source], kind])
        own = rng.randint(0, 2**62, size=colour.max() + 1, dtype=np.int64).astype(np.uint64)
        with np.errstate(over="ignore"):
            colour = np.unique(gathered * np.uint64(3) + own[colour], return_inverse=True)[1]
    features = sparse.hstack(blocks).tocsr()
    features.data = np.log1p(features.data)
    return features


def linear(model: str, x: sparse.csr_matrix, data: SearchSet, train: Indices, valid: Indices, seed: int) -> Outputs:
    """Logistic regression or ridge; the penalty by cross-validation within the training graphs."""
    y = data.graphs.y[:, 0]
    seen = x[train][:, np.asarray((x[train] > 0).sum(0)).ravel() > 0]
    new = x[valid][:, np.asarray((x[train] > 0).sum(0)).ravel() > 0]
    if data.regression:
        search = GridSearchCV(Ridge(), {"alpha": [0.3, 1, 3, 10, 30, 100]}, scoring="neg_mean_squared_error", cv=4)
        found: Outputs = search.fit(seen, y[train]).predict(new)
        return found
    grid = {"C": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0]}
    search = GridSearchCV(LogisticRegression(solver="liblinear"), grid, scoring="roc_auc", cv=4)
    decided: Outputs = search.fit(seen, y[train]).decision_function(new)
    return decided


if __name__ == "__main__":
    main()
