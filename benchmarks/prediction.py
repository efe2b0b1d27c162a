"""Prediction of a million molecules and of one: `mlap predict` beside `chemprop predict`.

    python benchmarks/prediction.py --chemprop peers/bin/chemprop [--work build/prediction] [--sizes 100000 1000000]
                                    [--peer-sizes 10000 100000] [--parts tables startup shares scale peer
                                    recommended]

The molecules are those of MoleculeNet's HIV that RDKit can read (41,120), first as they are written there and then over
and over in random writings of the same molecules (RDKit's `MolToSmiles(doRandom=True)`), so no two rows need be the
same text. Both tools are run as commands. Their networks compute in as many threads as half of the cores: more would
spin while they wait for a core. mlap reads molecules in one process for each core. The networks have about as many
parameters: chemprop's default D-MPNN, and MLAP-sum with L = 3 and d = 126. They are trained on 500 molecules for one
epoch (chemprop: three, its least), since speed does not depend on the weights. Chemprop predicts fewer molecules: it is
slower, and its memory grows with them. So does the model that we recommend, trained on the same 500 molecules: five
networks with RDKit's descriptors, a forest and a linear model, which ask far more of RDKit.
Measured are

    startup   one molecule, from the command to the answer: the fastest of three runs
    scale     a table into shards (mlap) or into a CSV file (chemprop)
    shares    of mlap's time, one process on one core: RDKit's parsing, the features, the network, and the rest (reading
              the table, putting graphs together, writing), in processor time

with time on the clock, processor time of the command and all its children, and the most memory that they had together
(the sum of their proportional set sizes). `load` is the machine's load average when the run began: where it is higher
than the number of cores, others were at work as well, and processor time is what to compare.
Writes `research/results/prediction.csv`, a row as soon as it is measured.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from records import RESULTS, made_by, real_data, write

PARTS = ("tables", "startup", "shares", "scale", "peer", "recommended")
TRAINED_ON = 500
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chemprop", default="chemprop", help="the peer's command")
    parser.add_argument("--work", type=Path, default=Path("build/prediction"), help="for tables and models")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--peer-sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="others are kept as they were")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    paths = {options.chemprop: "peers/bin/chemprop", str(options.work): "build/prediction"}  # wherever they are here
    arguments = [paths.get(given, given) for given in sys.argv[1:]]
    record = Record(made_by("rdkit", "torch", arguments=arguments))

    library = options.work / "library.csv"
    if "tables" in options.parts or not library.exists():
        write_library(library, max(*options.sizes, *options.peer_sizes))
    run = train_mlap(options.work)
    peer = train_chemprop(options.work, options.chemprop) if shutil.which(options.chemprop) else None
    if "startup" in options.parts:
        one = first_rows(library, 1)
        mlap = [sys.executable, "-m", "mlap", "predict", str(run), "CCO"]
        record.add("startup", "mlap", 1, fastest(mlap))
        if peer is not None:
            record.add("startup", "chemprop", 1, fastest(chemprop_predict(options.chemprop, one, peer, options.work)))
    if "shares" in options.parts:
        for what, seconds in shares(run, first_rows(library, 20_000)).items():
            load = round(os.getloadavg()[0], 1)
            record.add(f"share: {what}", "mlap", 20_000, {"processor_seconds": seconds, "load": load})
    if "scale" in options.parts:
        for size in options.sizes:
            record.add("scale", "mlap", size, measured(mlap_predict(first_rows(library, size), run, options.work)))
    if "peer" in options.parts and peer is not None:
        for size in options.peer_sizes:
            table = first_rows(library, size)
            record.add(
                "scale", "chemprop", size, measured(chemprop_predict(options.chemprop, table, peer, options.work))
            )
    if "recommended" in options.parts:
        whole = train_recommended(options.work)
        for size in options.peer_sizes:
            command = mlap_predict(first_rows(library, size), whole, options.work)
            record.add("scale", "mlap, recommended", size, measured(command))


class Record:
    """The table of results; what is not measured now stays."""

    def __init__(self, common: dict[str, str]) -> None:
        path = RESULTS / "prediction.csv"
        self.rows: list[Row] = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
        self.common = common

    def add(self, what: str, tool: str, molecules: int, found: Row) -> None:
        """Add or replace a row, print it, and write the table."""
        if found.get("seconds"):
            found["molecules_per_second"] = round(molecules / found["seconds"], 1)
        found["molecules_per_processor_second"] = round(molecules / found["processor_seconds"], 1)
        key = {"what": what, "tool": tool, "molecules": str(molecules)}
        row = {**key, **found}
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        columns = ("seconds", "processor_seconds", "molecules_per_second", "molecules_per_processor_second")
        filled = {**key, **dict.fromkeys((*columns, "memory_mb", "load"), ""), **found, **self.common}
        self.rows = [old for old in self.rows if any(old[name] != value for name, value in key.items())] + [filled]
        write("prediction.csv", self.rows, {})


# ---- tables and models -----------------------------------------------------------------------------------------------


def write_library(path: Path, size: int) -> None:
    """Write so many rows: HIV's molecules as they are, then in random writings."""
    with path.open("w", encoding="utf-8") as file:
        file.write("smiles,name,HIV_active\n")
        for number, (smiles, active) in enumerate(itertools.islice(writings(), size)):
            file.write(f"{smiles},HIV-{number},{active}\n")


def writings() -> Iterator[tuple[str, str]]:
    """The molecules of HIV with their labels, without end."""
    from rdkit import Chem, rdBase

    rdBase.SeedRandomNumberGenerator(0)
    with gzip.open(real_data("moleculenet/HIV.csv.gz"), "rt") as file, rdBase.BlockLogs():
        rows = [(row["smiles"], Chem.MolFromSmiles(row["smiles"]), row["HIV_active"]) for row in csv.DictReader(file)]
    known = [row for row in rows if row[1] is not None]
    random.Random(0).shuffle(known)  # in the file, similar molecules are neighbours
    yield from ((smiles, active) for smiles, _, active in known)
    while True:
        for _, molecule, active in known:
            yield Chem.MolToSmiles(molecule, doRandom=True), active


def first_rows(library: Path, count: int) -> Path:
    """The beginning of the library as a table of its own."""
    path = library.with_name(f"first-{count}.csv")
    if not path.exists():
        with library.open(encoding="utf-8") as file, path.open("w", encoding="utf-8") as part:
            part.writelines(itertools.islice(file, count + 1))
    return path


def train_mlap(work: Path) -> Path:
    """A network of chemprop's size."""
    run = work / "mlap-run"
    if not (run / "result.json").exists():
        table = first_rows(work / "library.csv", TRAINED_ON)
        settings = (
            "--preset",
            "paper",
            "--architecture",
            "mlap-sum",
            "--layers",
            "3",
            "--width",
            "126",
            "--epochs",
            "1",
        )
        command = [sys.executable, "-m", "mlap", "train", str(table), "--out", str(run), *settings]
        subprocess.run([*command, "--target", "HIV_active", "--quiet"], check=True)
    return run


def train_recommended(work: Path) -> Path:
    """The model that we recommend."""
    model = work / "mlap-recommended"
    if not (model / "ensemble.json").exists():
        table = first_rows(work / "library.csv", TRAINED_ON)
        command = [sys.executable, "-m", "mlap", "train", str(table), "--out", str(model), "--overwrite"]
        subprocess.run([*command, "--target", "HIV_active", "--quiet"], check=True)
    return model


def train_chemprop(work: Path, chemprop: str) -> Path:
    """Chemprop's default network."""
    folder = work / "chemprop-run"
    if not (folder / "model_0" / "best.pt").exists():
        table = first_rows(work / "library.csv", TRAINED_ON)
        options = ("--smiles-columns", "smiles", "--target-columns", "HIV_active", "--task-type", "classification")
        command = [chemprop, "train", "-i", str(table), "-o", str(folder), *options, "--epochs", "3"]
        subprocess.run(command, check=True, capture_output=True, env=environment(command))
    return folder / "model_0" / "best.pt"


def mlap_predict(table: Path, model: Path, work: Path) -> list[str]:
    out = work / "scores"
    shutil.rmtree(out, ignore_errors=True)
    return [sys.executable, "-m", "mlap", "predict", str(model), str(table), "--out", f"{out}/", "--quiet"]


def chemprop_predict(chemprop: str, table: Path, model: Path, work: Path) -> list[str]:
    out = work / "chemprop-predictions.csv"
    return [chemprop, "predict", "-i", str(table), "-o", str(out), "--model-paths", str(model), "-s", "smiles"]


# ---- measuring -------------------------------------------------------------------------------------------------------


def fastest(command: Sequence[str]) -> Row:
    """The fastest of three runs."""
    return min((measured(command) for _ in range(3)), key=lambda row: float(row["processor_seconds"]))


def measured(command: Sequence[str]) -> Row:
    """Run a command: its time, its processor time and the most memory of it and its children."""
    load = os.getloadavg()[0]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(command))
    most = [0.0]
    watcher = threading.Thread(target=watch, args=(process.pid, most), daemon=True)
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    watcher.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return {
        "seconds": round(seconds, 2),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "memory_mb": round(most[0] / 1e6),
        "load": round(load, 1),
    }


def environment(command: Sequence[str]) -> dict[str, str]:
    """This process's own for mlap; for a tool in another environment, without what leads to the packages of this."""
    if command[0] == sys.executable:
        return dict(os.environ)
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**own, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // 2))}  # as many as mlap's network has


def watch(pid: int, most: list[float]) -> None:
    """Look at the memory of a process and its children, four times a second, until it is gone."""
    try:
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            most[0] = max(most[0], sum(map(memory, [process, *process.children(recursive=True)])))
            time.sleep(0.25)
    except psutil.NoSuchProcess:
        pass


def memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:  # it has just ended
        return 0


def shares(run: Path, table: Path) -> dict[str, float]:
    """Where the processor time goes, in one process on one core: what is spent in each function, in one pass."""
    import torch

    import mlap
    from mlap.graphs import _smiles
    from mlap.graphs.inputs import iter_pieces, of_cells
    from mlap.models.shards import predict_piece, shard_of

    torch.set_num_threads(1)
    model = mlap.load(run)
    model.predict(["CCO", "CCN"])  # what is compiled or loaded once
    spent: dict[str, float] = {}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            started = time.process_time()
            try:
                return function(*arguments)
            finally:
                spent[name] = spent.get(name, 0.0) + time.process_time() - started

        return call

    _smiles._parse = timed("parsing", _smiles._parse)
    _smiles.JOBS["featurise"] = timed("featurise", _smiles.featurise)
    model.logits = timed("network", model.logits)  # type: ignore[method-assign]
    started = time.process_time()
    for cells, column in iter_pieces(table, 20_000):
        predictions = predict_piece(model, of_cells(cells, column, "library", processes=1))
        shard_of(cells.first, 20_000, predictions, True)
    total = time.process_time() - started
    found = {
        "RDKit's parsing": spent["parsing"],
        "features": spent["featurise"] - spent["parsing"],
        "network": spent["network"],
        "the rest": total - spent["featurise"] - spent["network"],
    }
    return {what: round(seconds, 2) for what, seconds in found.items()}


if __name__ == "__main__":
    main()
