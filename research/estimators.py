"""The estimators beside scikit-learn's own tools, all through scikit-learn's cross-validation.

    python -m research.estimators

On NCI83 (graphs with atom and bond types, no SMILES) and on BACE (a table of SMILES). Each row is a mean over the same
folds. `MLAPClassifier` has its defaults, or three members, or gives its vectors to a logistic regression in a
`Pipeline`. Beside it are a forest and a logistic regression on what scikit-learn's users would compute by themselves:
Morgan bits and MACCS keys of SMILES, counts of Weisfeiler–Lehman subtrees of graphs. Nothing is tuned. Writes
`research/results/estimators.csv`, a row as soon as it is measured; rows that are there are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, StandardScaler

from benchmarks.records import RESULTS, made_by, real_data, write
from mlap import MLAPClassifier
from mlap.graphs import GraphSet, load_graphs
from mlap.graphs.inputs import read_inputs
from mlap.models.fingerprints import fingerprints
from mlap.models.wl import wl_features

SCORES = {"rocauc": "roc_auc", "accuracy": "accuracy", "log_loss": "neg_log_loss"}


def main() -> None:
    """Cross-validate, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="of the networks; what the recipe says unless given")
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = RESULTS / "estimators.csv"
    rows: list[dict[str, Any]] = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    there = {(row["data"], row["folds"], row["estimator"]) for row in rows}
    for data, x, y, features in data_sets():
        for name, estimator in estimators(features, options.epochs):
            if (data, str(options.folds), name) in there:
                continue
            folds = StratifiedKFold(options.folds, shuffle=True, random_state=0)
            began = time.process_time()
            found = cross_validate(estimator, x, y, cv=folds, scoring=list(SCORES.values()), error_score="raise")
            row: dict[str, Any] = {"data": data, "graphs": len(y), "folds": options.folds, "estimator": name}
            for short, scorer in SCORES.items():
                scores = abs(found[f"test_{scorer}"])
                row[short] = round(scores.mean(), 4)
                row[f"{short}_se"] = round(scores.std(ddof=1) / np.sqrt(len(scores)), 4)
            row["processor_seconds"] = round(time.process_time() - began, 1)
            print(*row.values(), sep="  ", flush=True)
            rows.append(row | made_by("scikit-learn", "torch", "rdkit"))
            write("estimators.csv", rows, {})


def data_sets() -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, X, y, and what turns X into a matrix for scikit-learn's own estimators."""
    bace = load_graphs(real_data("ogbg_molbace"))
    assert bace.ids is not None
    yield "ogbg-molbace", np.array(bace.ids, dtype=object), _labels(bace), FunctionTransformer(_morgan)
    nci = load_graphs(real_data("NCI83"))
    yield "NCI83", nci, _labels(nci), FunctionTransformer(_subtrees)


def estimators(features: Any, epochs: int | None) -> Iterator[tuple[str, Any]]:
    """Name and estimator."""
    network = MLAPClassifier(epochs=epochs, random_state=0)
    yield "forest on features", make_pipeline(features, RandomForestClassifier(500, random_state=0))
    yield "logistic regression on features", make_pipeline(features, MaxAbsScaler(), LogisticRegression(max_iter=2000))
    yield "MLAPClassifier", network
    on_vectors = make_pipeline(network, StandardScaler(), LogisticRegression(max_iter=2000))
    yield "MLAPClassifier, logistic regression on its vectors", on_vectors
    yield "MLAPClassifier(members=3)", MLAPClassifier(epochs=epochs, members=3, random_state=0)


def _morgan(smiles: Any) -> Any:
    return fingerprints("morgan-maccs", list(smiles))


def _subtrees(graphs: Any) -> Any:
    # In 4,096 columns: a forest on a million takes hours.
    return wl_features(read_inputs(graphs, molecules=False).graphs, rounds=3, bits=12)


def _labels(graphs: GraphSet) -> Any:
    assert graphs.y is not None
    return np.asarray(graphs.y).reshape(-1).astype(int)


if __name__ == "__main__":
    main()
