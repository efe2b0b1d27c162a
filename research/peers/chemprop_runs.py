"""Test scores of chemprop on OGB's molecule sets, by its own command line, on OGB's scaffold splits.

    python research/peers/chemprop_runs.py --chemprop peers/bin/chemprop --data DATA [--scratch FOLDER]

`peers` is a virtual environment of its own: `pip install torch==2.13.0 && pip install chemprop==2.3.1`. `DATA` holds
the folders `ogbg_molbace`, … in OGB's layout. Two settings: the defaults, and RDKit's descriptors with an ensemble of
five. The epoch of a run is chosen by chemprop itself, by the validation loss. One thread. Rows are appended to
`chemprop_runs.csv` beside this script as runs end; the same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from sklearn.metrics import roc_auc_score, root_mean_squared_error

RESULTS = Path(__file__).with_suffix(".csv")
FIELDS = ("set", "setting", "seed", "metric", "test", "seconds", "chemprop", "command")
SETTINGS = {
    "default": (),
    "rdkit_2d, ensemble of 5": ("--molecule-featurizers", "rdkit_2d", "--ensemble-size", "5"),
}
TASKS = {"molbace": "classification", "molbbbp": "classification", "molesol": "regression", "molhiv": "classification"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chemprop", required=True, help="the command, in the peers' environment")
    parser.add_argument("--data", type=Path, required=True, help="the folder of OGB's folders")
    parser.add_argument("--sets", nargs="+", default=["molbace", "molbbbp", "molesol"], choices=TASKS)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--scratch", type=Path, help="where chemprop writes; a temporary folder unless given")
    options = parser.parse_args()

    done = {(row["set"], row["setting"], int(row["seed"])) for row in finished()}
    plan = [(n, s, seed) for s in options.settings for n in options.sets for seed in options.seeds]
    for name, setting, seed in plan:
        if (name, setting, seed) not in done:
            with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
                append(run(options.chemprop, options.data, name, setting, seed, Path(folder)))


def finished() -> list[dict[str, str]]:
    """The rows that earlier calls wrote."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def append(row: dict[str, object]) -> None:
    """Add a row to the results."""
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
    print(row, flush=True)


def run(chemprop: str, data: Path, name: str, setting: str, seed: int, folder: Path) -> dict[str, object]:
    """Train once and score the test molecules."""
    labels = write_table(data / f"ogbg_{name}", folder / "data.csv")
    command = ["chemprop", "train", "--data-path", "data.csv", "--output-dir", "out", "--splits-column", "split"]
    command += ["--smiles-columns", "smiles", "--target-columns", "target", "--task-type", TASKS[name]]
    command += ["--pytorch-seed", str(seed), "--num-workers", "0", "--accelerator", "cpu", *SETTINGS[setting]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    started = time.perf_counter()
    with (folder / "log").open("w") as log:
        code = subprocess.run([chemprop, *command[1:]], cwd=folder, env=environment, stdout=log, stderr=log).returncode
    seconds = time.perf_counter() - started
    if code:
        raise SystemExit(f"{' '.join(command)} failed:\n{(folder / 'log').read_text()[-4000:]}")

    # One file per member; the ensemble's prediction is their mean, as `chemprop predict` has it.
    members = [column(path) for path in sorted(folder.glob("out/model_*/test_predictions.csv"))]
    scores = [fmean(values) for values in zip(*members, strict=True)]
    regression = TASKS[name] == "regression"
    score = root_mean_squared_error(labels, scores) if regression else roc_auc_score(labels, scores)
    version = subprocess.run([chemprop, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return {
        "set": name,
        "setting": setting,
        "seed": seed,
        "metric": "rmse" if regression else "rocauc",
        "test": f"{score:.5f}",
        "seconds": f"{seconds:.1f}",
        "chemprop": version,
        "command": " ".join(command),
    }


def column(path: Path) -> list[float]:
    """The predictions in a file of chemprop's."""
    with path.open(newline="") as file:
        return [float(row["target"]) for row in csv.DictReader(file)]


def write_table(source: Path, path: Path) -> list[float]:
    """Write a set as chemprop reads it, with its split as a column; the labels of the test molecules, in its order."""
    (mapping,) = source.glob("mapping/mol.csv.gz")
    part = {i: name for name in ("train", "valid", "test") for i in indices(source / f"split/scaffold/{name}.csv.gz")}
    labels = []
    with gzip.open(mapping, "rt", newline="") as rows, path.open("w", newline="") as file:
        reader, writer = csv.reader(rows), csv.writer(file)
        smiles_column = next(reader).index("smiles")
        writer.writerow(("smiles", "target", "split"))
        for index, row in enumerate(reader):
            writer.writerow((row[smiles_column].strip(), row[0], part[index].replace("valid", "val")))
            if part[index] == "test":
                labels.append(float(row[0]))
    return labels


def indices(path: Path) -> Iterator[int]:
    """The graph numbers in a file of OGB's split."""
    with gzip.open(path, "rt") as file:
        yield from map(int, file)


if __name__ == "__main__":
    main()
