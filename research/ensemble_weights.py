"""How to weigh the members of the recommended ensemble: cross-validation inside the validation part.

    python -m research.ensemble_weights --scratch FOLDER

Networks (five as one), `rf-morgan` and `wl-linear` are put together on the logit scale, by weights that are fitted to
four fifths of the validation graphs and scored on the last, four times over, for three seeds. Test graphs are not
looked at. The logits are those that `research/recommended.py` keeps in its scratch folder. The ways to weigh:

    now      weights that sum to 1, of the least log loss, then a temperature: what `fit_group_weights` does
    free     weights of the least log loss, of any sum; so weights and temperature are fitted together
    equal    equal weights, then a temperature
    level    a temperature for each member, equal weights, a temperature
    alone    a member by itself, with a temperature

`share` is what of the sum's spread is the networks': weight times standard deviation of the logits, as a part of all.
Writes `research/results/ensemble_weights.csv`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import RepeatedStratifiedKFold

from benchmarks.records import made_by, real_data, write
from mlap.graphs import load_graphs
from mlap.models.weights import fit_weights

Floats = NDArray[np.float64]

SETS = {"molbace": "ogbg_molbace", "molbbbp": "ogbg_molbbbp", "NCI1": "NCI1"}
SEEDS, NETWORKS = 3, 5


def main() -> None:
    """Cross-validate, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True, help="the logits that research/recommended.py kept")
    options = parser.parse_args()
    rows = [row for name in SETS for row in measure(name, options.scratch)]
    write("ensemble_weights.csv", rows, made_by("scikit-learn", "scipy", arguments=["--scratch", "build/recommended"]))


def measure(name: str, scratch: Path) -> Iterator[dict[str, Any]]:
    """A row for each way to weigh."""
    graphs = load_graphs(real_data(SETS[name]))
    assert graphs.y is not None
    y = np.asarray(graphs.y[graphs.split("valid")], np.float64).reshape(-1)
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(SEEDS):
        names, z = members(name, scratch, seed)
        for way, w in ways(names, z, y):
            parts = w * z.std(axis=1)
            found.setdefault(way, {"share": [], "log_loss": [], "rocauc": []})["share"].append(parts[0] / parts.sum())
        folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=4, random_state=seed)
        for fit, held in folds.split(z.T, y):
            for way, w in ways(names, z[:, fit], y[fit]):
                found[way]["log_loss"].append(log_loss(w @ z[:, held], y[held]))
                found[way]["rocauc"].append(float(roc_auc_score(y[held], w @ z[:, held])))
    for way, values in found.items():
        row = {"set": name, "graphs": len(y), "positive": round(y.mean(), 3), "weights": way}
        row |= {what: round(float(np.mean(each)), 4) for what, each in values.items()}
        print(*row.values(), sep="  ", flush=True)
        yield row


def members(name: str, scratch: Path, seed: int) -> tuple[list[str], Floats]:
    """The names of the members and their validation logits of *yes*, `(members, graphs)`."""

    def logits(model: str) -> Floats:
        with np.load(scratch / f"{name}-{model}.npz") as content:
            found: Floats = content["valid"]
        return found[:, 0] if found.shape[1] == 1 else found[:, 1] - found[:, 0]

    networks = np.mean([logits(f"network-{10 * seed + member}") for member in range(NETWORKS)], axis=0)
    parts = {"networks": networks}
    if name.startswith("mol"):
        parts["rf-morgan"] = logits(f"rf-morgan-{seed}")
    parts["wl-linear"] = logits("wl-linear-0")
    return list(parts), np.stack(list(parts.values()))


def ways(names: list[str], z: Floats, y: Floats) -> Iterator[tuple[str, Floats]]:
    """Name and weights, the temperature included."""
    equal = np.full(len(z), 1 / len(z))
    fitted = np.array(fit_weights("binary", z[:, :, None], y[:, None]).values)
    level = equal * [scale(each, y) for each in z]
    yield "now", fitted * scale(fitted @ z, y)
    yield "free", free(z, y)
    yield "equal", equal * scale(equal @ z, y)
    yield "level", level * scale(level @ z, y)
    for one, name in zip(np.eye(len(z)), names, strict=True):
        yield f"{name} alone", one * scale(one @ z, y)


def log_loss(z: Floats, y: Floats) -> float:
    """The mean log loss of logits."""
    return float(np.mean(np.logaddexp(0, z) - y * z))


def scale(z: Floats, y: Floats) -> float:
    """The factor of the least log loss: one over the temperature."""
    return float(free(z[None], y)[0])


def free(z: Floats, y: Floats) -> Floats:
    """The weights of the least log loss, none negative."""

    def loss(w: Floats) -> tuple[float, Floats]:
        return log_loss(w @ z, y), z @ (expit(w @ z) - y) / len(y)

    start = np.full(len(z), 1 / len(z))
    found: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(z)).x
    return found


if __name__ == "__main__":
    main()
