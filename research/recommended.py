"""Test scores of what `mlap train` recommends, and of the baselines, on the sets of the search.

    python research/recommended.py --data DATA [--scratch FOLDER] [--sets …]      # hours; the same command continues
    python research/recommended.py --page                                          # recommended.md from the CSV alone

`DATA` holds the sets' folders. Splits: OGB's own, and for TU sets mlap's (8:1:1, seed 0). The recipe was chosen on
validation graphs alone (`research/recipe_search`); nothing here chooses anything by test graphs. A row of
`results/recommended.csv` is one model of one seed. Networks have the seeds 10 s to 10 s + 4. The single network of
seed s is the first of them; the ensemble of seed s has all five, `wl-linear`, and for molecules `rf-morgan`. Its
weights are fitted on validation graphs, one for all networks. Logits are kept in the scratch folder, so that an
interrupted script goes on. One thread. The first network of a set also waits for the descriptors of all molecules.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import mlap
from mlap import load_graphs
from mlap.graphs import GraphSet
from mlap.models.weights import fit_group_weights
from mlap.statistics import summarise
from mlap.training import Objective, recipe_for
from mlap.training.scores import scores

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "recommended.csv"
PAGE = HERE / "recommended.md"
CHEMPROP = HERE / "peers" / "chemprop_runs.csv"
FIELDS = ("set", "model", "seed", "split", "metric", "test", "more", "valid", "seconds", "command", "commit")
#: small sets first
SETS = {
    "molesol": "ogbg_molesol",
    "molbace": "ogbg_molbace",
    "molbbbp": "ogbg_molbbbp",
    "NCI1": "NCI1",
    "Mutagenicity": "Mutagenicity",
    "NCI83": "NCI83",
    "Tox21_MMP": "Tox21_MMP_training",
    "molhiv": "ogbg_molhiv",
}
SEEDS = (0, 1, 2)
MEMBERS = 5
MODELS = ("network", "five networks", "ensemble", "rf-morgan", "rf-assay", "wl-linear")
PARTS = ("valid", "test")
Logits = dict[str, NDArray[np.float64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the sets' folders")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--scratch", type=Path, default=Path("build/recommended"), help="where logits are kept")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.page:
        torch.set_num_threads(1)
        for name in options.sets:
            measure(name, load_graphs(str(options.data / SETS[name])), options.scratch)
    PAGE.write_text(page(rows()))


def measure(name: str, graphs: GraphSet, scratch: Path) -> None:
    """Fit all models on a set, single networks and baselines first; add the rows that are not there yet."""
    done = {(row["set"], row["model"], row["seed"]) for row in rows()}

    def add(model: str, seed: int, split: str, found: Logits, seconds: float, command: str) -> None:
        if (name, model, str(seed)) not in done:
            append(
                {"set": name, "model": model, "seed": seed, "split": split, **scored(graphs, found)}, seconds, command
            )

    split = "OGB's" if graphs.name.startswith("ogbg-") else "random 8:1:1, seed 0"
    forests = ["rf-morgan", "rf-assay"] if graphs.ids is not None else []
    for seed in SEEDS:
        for model in [*forests, *(["wl-linear"] if seed == 0 else [])]:
            found, seconds = kept(scratch / f"{name}-{model}-{seed}", lambda m=model, s=seed: baseline(graphs, m, s))
            add(model, seed, split, found, seconds, f"mlap train {SETS[name]} --baseline {model} --seed {seed}")
    for member in range(MEMBERS):
        for seed in SEEDS:
            number = 10 * seed + member
            found, seconds = kept(scratch / f"{name}-network-{number}", lambda n=number: network(graphs, n))
            if member == 0:
                add(
                    "network",
                    seed,
                    split,
                    found,
                    seconds,
                    f"mlap train {SETS[name]} --preset recommended --seed {number}",
                )
    for seed in SEEDS:
        nets = [f"network-{10 * seed + member}" for member in range(MEMBERS)]
        others = [*(["rf-morgan-" + str(seed)] if forests else []), "wl-linear-0"]
        for model, members in (("five networks", nets), ("ensemble", nets + others)):
            groups = [0] * len(nets) + list(range(1, len(members) - len(nets) + 1))
            parts = [kept(scratch / f"{name}-{member}", unmade) for member in members]
            stacked = {part: np.stack([found[part] for found, _ in parts]) for part in PARTS}
            assert graphs.task is not None
            assert graphs.y is not None
            weights = fit_group_weights(graphs.task.kind, stacked["valid"], graphs.y[graphs.split("valid")], groups)
            sums = {part: np.tensordot(weights.values, stacked[part], 1) for part in PARTS}
            told = ", ".join(f"{m} {w:.3f}" for m, w in zip(members, weights.values, strict=True))
            add(model, seed, split, sums, sum(seconds for _, seconds in parts), f"weights: {told}")


def network(graphs: GraphSet, seed: int) -> Logits:
    """Train one recommended network."""
    run = mlap.train(graphs, recipe_for(graphs, "recommended", seed=seed), device="cpu", progress=False)
    return {part: own_units(run.objective, run.logits(graphs, graphs.split(part))) for part in PARTS}


def baseline(graphs: GraphSet, name: str, seed: int) -> Logits:
    """Fit one baseline."""
    model = mlap.train(graphs, baseline=name, seed=seed)
    return {part: own_units(model.objective, model.logits(graphs, graphs.split(part))) for part in PARTS}


def unmade() -> Logits:
    raise SystemExit("a member is missing")


def own_units(objective: Objective, logits: NDArray[Any]) -> NDArray[np.float64]:
    """Logits as they add up: values in the data's own units for a regression."""
    logits = logits.astype(np.float64)
    return logits if objective.mean is None else logits * objective.std + objective.mean


def kept(path: Path, make: Callable[[], Logits]) -> tuple[Logits, float]:
    """Logits and seconds from the scratch folder; made and put there, if they are not."""
    file = path.with_suffix(".npz")
    if not file.exists():
        started = time.perf_counter()
        found = make()
        seconds = time.perf_counter() - started
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.with_suffix(".part").open("wb") as part:
            np.savez(part, seconds=seconds, **found)
        file.with_suffix(".part").rename(file)
    with np.load(file) as content:
        return {part: content[part] for part in PARTS}, float(content["seconds"])


def scored(graphs: GraphSet, found: Logits) -> dict[str, Any]:
    """The task's metric on both parts, and more of them on the test part."""
    assert graphs.task is not None
    assert graphs.y is not None
    task = graphs.task
    values = {}
    for part in PARTS:
        logits = torch.from_numpy(found[part])
        predicted = found[part] if task.kind == "regression" else Objective(task).predict(logits)
        values[part] = scores(task, predicted, found[part], graphs.y[graphs.split(part)]).values
    more = {name: round(values["test"][name], 4) for name in ("ap", "log_loss", "mae", "r2") if name in values["test"]}
    return {
        "metric": task.metric,
        "test": f"{values['test'][task.metric]:.5f}",
        "more": json.dumps(more),
        "valid": f"{values['valid'][task.metric]:.5f}",
    }


def rows() -> list[dict[str, str]]:
    """What is in the CSV."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def append(row: dict[str, Any], seconds: float, command: str) -> None:
    """Add a row to the CSV."""
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row | {"seconds": f"{seconds:.1f}", "command": command, "commit": commit()})
    print(row, flush=True)


def commit() -> str:
    """The commit of the sources; a copy without git names it in a file."""
    named = HERE.parent / "COMMIT"
    if named.exists():
        return named.read_text().strip()
    return subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


# ---- the page --------------------------------------------------------------------------------------------------------


def page(found: list[dict[str, str]]) -> str:
    """The page that shows the CSV."""
    lines = [
        "# The recommended model beside others",
        "",
        "Made by `python research/recommended.py --page` from `results/recommended.csv` and `peers/chemprop_runs.csv`.",
        "Test scores, mean ± s.e. over seeds (in brackets their number, where it is not 3). Bold: the best of a row.",
        "ROC-AUC, and RMSE for molesol. The recipe and the ensemble's rules were chosen on validation graphs alone",
        "(`research/recipe_search`: seven sets, molhiv not among them, mostly one split and one seed each). An empty",
        "cell was not measured, or has no SMILES.",
        "",
    ]
    columns = [*MODELS, "chemprop", "chemprop, five"]
    table = {name: {column: summary(name, column, found) for column in columns} for name in SETS}
    lines += ["| set | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for name, cells in table.items():
        known = {column: cell[0] for column, cell in cells.items() if cell is not None}
        best = (min if name == "molesol" else max)(known.values()) if "ensemble" in known else None
        shown = ["" if cell is None else f"**{cell[1]}**" if cell[0] == best else cell[1] for cell in cells.values()]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    lines += ["", "## Mean rank", ""]
    lines += list(
        ranks(
            "all sets, without the models that need SMILES",
            table,
            [c for c in MODELS if c not in ("rf-morgan", "rf-assay")],
        )
    )
    lines += list(ranks("the sets with SMILES", {n: table[n] for n in SETS if n.startswith("mol")}, columns))
    lines += ["", "## Seconds", "", "Wall time of one thread on a machine that others used too; an upper bound.", ""]
    lines += ["| set | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for name in SETS:
        times = [times_of(name, column, found) for column in columns]
        lines.append(f"| {name} | " + " | ".join("" if not t else f"{fmean(t):.0f}" for t in times) + " |")
    return "\n".join([*lines, ""])


def of(name: str, column: str, found: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows of a cell."""
    if not column.startswith("chemprop"):
        return [row for row in found if (row["set"], row["model"]) == (name, column)]
    setting = "default" if column == "chemprop" else "rdkit_2d, ensemble of 5"
    with CHEMPROP.open(newline="") as file:
        return [row for row in csv.DictReader(file) if (row["set"], row["setting"]) == (name, setting)]


def times_of(name: str, column: str, found: list[dict[str, str]]) -> list[float]:
    return [float(row["seconds"]) for row in of(name, column, found)]


def summary(name: str, column: str, found: list[dict[str, str]]) -> tuple[float, str] | None:
    """The mean of a cell, and how it is shown."""
    values = [float(row["test"]) for row in of(name, column, found)]
    if not values:
        return None
    told = summarise(values)
    error = "" if told.standard_error is None else f" ± {told.standard_error:.3f}"
    number = "" if len(values) == 3 or column == "wl-linear" else f" ({len(values)})"
    return told.mean, f"{told.mean:.3f}{error}{number}"


def ranks(title: str, table: dict[str, dict[str, tuple[float, str] | None]], columns: list[str]) -> Iterator[str]:
    """The mean rank of each column over the sets in which all have a score."""
    whole = {name: cells for name, cells in table.items() if all(cells[column] for column in columns)}
    if not whole:
        yield f"No set of *{title}* is complete yet."
        return
    places: dict[str, list[int]] = {column: [] for column in columns}
    for name, cells in whole.items():
        scores_ = {column: cells[column][0] for column in columns}  # type: ignore[index]
        order = sorted(columns, key=lambda c: scores_[c], reverse=name != "molesol")
        for place, column in enumerate(order, 1):
            places[column].append(place)
    shown = ", ".join(f"{c} {fmean(p):.2f}" for c, p in sorted(places.items(), key=lambda item: fmean(item[1])))
    yield f"Of {title}, over the {len(whole)} that are complete ({', '.join(whole)}): {shown}."
    yield ""


if __name__ == "__main__":
    main()
