"""Whole tools on the molecules of MoleculeNet's HIV: mlap beside chemprop and torch-molecule.

    python benchmarks/molecule_tools.py --tools-python peers/bin/python [--threads 1 2] [--epochs 1]
                                        [--molecules 10000] [--train 4000]

Each tool does what a chemist asks of it, through its documented Python interface: read a CSV of SMILES and train on it,
then predict a second CSV. The peers have the networks of their defaults (chemprop the D-MPNN of its command line,
torch-molecule GIN with a virtual node); mlap has MLAP-sum with about as many parameters as each, and as in the paper.
All train in batches of 50, on the same randomly chosen molecules, and score the same others after each epoch. The tools
take turns, each in a process of its own. Measured are

    read     from the CSV to featurised training and validation molecules
    epoch    of training, with validation and checkpoint; the fastest, and never the first, which sets things up
    predict  from a CSV of SMILES to a probability for each molecule, in batches of 50 (mlap: of its own choice)
    memory   the most that the process and its children had resident at a time

on the clock; the processor time is in the CSV too. Networks with as many parameters can differ in the multiply-adds of
their matrix products (here those to predict a molecule, counted by torch), so the ratio of epochs is also given per
multiply-add. The peers read in one process (a second doubles chemprop's processor time), mlap in one per thread.
The seven molecules that RDKit cannot read are left out. Writes `research/results/molecule_tools.csv`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from records import made_by, real_data, write

# What only a tool needs is imported where it runs: the environment of the peers has no mlap, and that of mlap no peers.

BATCH_SIZE = 50
TIMES = ("read", "epoch", "predict")
MEASURES = {"read": "s", "epoch": "s", "predict": "s", "memory": "MB"}
Row = dict[str, Any]


class Setting(NamedTuple):
    """A network of a tool; those of the same `size` have about as many parameters."""

    tool: str
    network: str
    size: str
    layers: int = 0
    width: int = 0


SETTINGS = (
    Setting("chemprop", "D-MPNN, depth 3, width 300", "chemprop"),
    Setting("mlap", "MLAP-sum, L = 3, d = 126", "chemprop", 3, 126),
    Setting("torch-molecule", "GIN-virtual, 5 layers, width 300", "torch-molecule"),
    Setting("mlap", "MLAP-sum, L = 5, d = 338", "torch-molecule", 5, 338),
    Setting("mlap", "MLAP-sum, L = 5, d = 200 (paper)", "paper", 5, 200),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, default=10_000, help="to predict; there are 41,120")
    parser.add_argument("--train", type=int, default=4000, help="of these to train on; an eighth as many validate")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--epochs", type=int, default=1, help="to measure, after a first one")
    parser.add_argument("--tools-python", default=sys.executable, help="an interpreter with chemprop, torch-molecule")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        do_job(json.loads(options.job))
        return

    pythons = {"mlap": sys.executable, "chemprop": options.tools_python, "torch-molecule": options.tools_python}
    missing = [tool for tool, python in pythons.items() if not available(tool, python)]
    with tempfile.TemporaryDirectory() as folder:
        sizes = write_tables(Path(folder), options.molecules, options.train)
        print(", ".join(f"{count:,} molecules to {purpose}" for purpose, count in sizes.items()))
        rows = [
            measure(setting, threads, options.epochs, pythons[setting.tool], Path(folder), sizes["predict"])
            for threads in options.threads
            for setting in SETTINGS
            if setting.tool not in missing
        ]
    arguments = [given.replace(options.tools_python, "peers/bin/python") for given in sys.argv[1:]]
    common = {
        **{f"{purpose}_molecules": count for purpose, count in sizes.items()},
        "batch_size": BATCH_SIZE,
        **made_by(arguments=arguments),
    }
    add_ratios(rows)
    show(rows)
    write("molecule_tools.csv", rows, common)


def available(tool: str, python: str) -> bool:
    """Whether an interpreter has a tool; says what to do if not."""
    try:
        program = f"import importlib.metadata as packages; packages.version({tool!r})"
        found = subprocess.run([python, "-c", program], capture_output=True).returncode == 0
    except OSError:
        found = False
    if not found:
        version = importlib.metadata.version("torch").partition("+")[0]
        packages = f"torch=={version} chemprop torch-molecule"
        print(
            f"{tool} is left out, {python} does not have it; make an environment with `python -m venv peers && "
            f"peers/bin/pip install {packages}` and add --tools-python peers/bin/python",
            file=sys.stderr,
        )
    return found


def write_tables(folder: Path, molecules: int, train: int) -> dict[str, int]:
    """Write `fit.csv` to train and validate on, `all.csv` and its start `few.csv` to predict; how many for what."""
    import numpy as np

    from mlap.graphs.molecules import molecules as read_molecules

    with gzip.open(real_data("moleculenet/HIV.csv.gz"), "rt") as file:
        table = [(row["smiles"], row["HIV_active"]) for row in csv.DictReader(file)]
    readable = read_molecules([smiles for smiles, _ in table], on_invalid="skip").kept
    chosen = [table[index] for index in np.random.default_rng(0).permutation(readable)[:molecules]]
    train = min(train, len(chosen) * 8 // 9)
    valid = train // 8
    fit = [(*row, "train" if number < train else "valid") for number, row in enumerate(chosen[: train + valid])]
    for name, rows in {"fit": fit, "all": chosen, "few": chosen[:500]}.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("smiles", "HIV_active", "split")[: len(rows[0])], *rows])
    return {"train": train, "validate": valid, "predict": len(chosen)}


def measure(setting: Setting, threads: int, epochs: int, python: str, folder: Path, molecules: int) -> Row:
    """What one tool takes, in a process of its own."""
    print(f"{setting.tool}, {setting.network}, threads: {threads} …", file=sys.stderr, flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory(dir=folder) as scratch, (folder / "log").open("w") as log:
        job = {**setting._asdict(), "threads": threads, "epochs": epochs, "folder": str(folder), "scratch": scratch}
        command = [python, str(Path(__file__).resolve()), "--job", json.dumps(job)]
        process = subprocess.Popen(command, cwd=scratch, env=environment, stdout=log, stderr=log)
        memory = 0
        while process.poll() is None:
            memory = max(memory, resident(process.pid))
            time.sleep(0.05)
        if process.returncode:
            sys.exit(f"{setting.tool} failed:\n{(folder / 'log').read_text()[-3000:]}")
        result: Row = json.loads(Path(scratch, "result.json").read_text())
    if result.pop("predictions") != molecules:
        sys.exit(f"{setting.tool} did not predict a number for each molecule")
    named = {"tool": setting.tool, "network": setting.network, "size": setting.size, "threads": threads}
    return {**named, **result, "memory": memory >> 10}


def resident(process: int) -> int:
    """The resident memory of a process and its children in kB; nothing if it has just ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0
    own = sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return own + sum(resident(int(child)) for child in children)


def add_ratios(rows: list[Row]) -> None:
    """Beside every peer's measures, how many times they are those of mlap's network of its size."""
    ours = {(row["size"], row["threads"]): row for row in rows if row["tool"] == "mlap"}
    for row in rows:
        mine = ours[row["size"], row["threads"]]
        for name in MEASURES:
            row[f"{name}_ratio"] = "" if row is mine else round(row[name] / mine[name], 2)
        work = mine["mega_multiply_adds"] / row["mega_multiply_adds"]
        row["epoch_ratio_per_multiply_add"] = "" if row is mine else round(row["epoch"] / mine["epoch"] * work, 2)


def show(rows: list[Row]) -> None:
    """Print a table."""
    print("in brackets: how many times that of mlap with as many parameters; last: epochs per multiply-add, likewise")
    heads = "".join(f"{f'{name}, {unit}':>11}{'':9}" for name, unit in MEASURES.items())
    print(f"{'threads, tool, network':53}{'parameters':>10}{'M mult-adds':>13}{heads}per mult-add")
    for row in rows:
        title = f"{row['threads']}  {row['tool']}, {row['network']}"
        ratios = {name: f"({row[f'{name}_ratio']}×)" if row[f"{name}_ratio"] else "" for name in MEASURES}
        cells = "".join(f"{row[name]:>11} {ratios[name]:8}" for name in MEASURES)
        last = row["epoch_ratio_per_multiply_add"]
        print(f"{title:53}{row['parameters']:>10,}{row['mega_multiply_adds']:>13}{cells}{last and f'({last}×)'}")


# ---- in the process of a tool ----------------------------------------------------------------------------------------


Mark = Callable[..., None]  #: called when the tool starts, before the first epoch, and after every epoch
Tool = tuple[Any, Callable[[str], Any]]  #: the trained network, and what predicts the molecules of a CSV


def do_job(job: Row) -> None:
    """Train and predict with one tool, and leave what it took in a file."""
    import numpy as np
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    torch.set_num_threads(job["threads"])
    marks: list[tuple[float, float]] = []

    def mark(*_: object) -> None:
        marks.append((time.perf_counter(), sum(os.times()[:4])))

    tool = {"mlap": run_mlap, "chemprop": run_chemprop, "torch-molecule": run_torch_molecule}[job["tool"]]
    network, predict = tool(job, mark)
    mark()
    predictions = predict(f"{job['folder']}/all.csv")
    mark()
    read, _, *epochs, _, predicted = (np.subtract(end, begin).tolist() for begin, end in pairwise(marks))
    with FlopCounterMode(display=False) as counter:
        few = predict(f"{job['folder']}/few.csv")
    spans = dict(zip(TIMES, (read, min(epochs), predicted), strict=True))
    versions = {name: importlib.metadata.version(name) for name in (job["tool"], "torch", "rdkit", "numpy")}
    versions["python"] = platform.python_version()
    result = {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "mega_multiply_adds": round(counter.get_total_flops() / 2 / len(few) / 1e6, 2),
        **{name: round(clock, 2) for name, (clock, _) in spans.items()},
        **{f"{name}_processor": round(processor, 2) for name, (_, processor) in spans.items()},
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "predictions": int(np.isfinite(predictions).sum()),
    }
    Path(job["scratch"], "result.json").write_text(json.dumps(result))


def run_mlap(job: Row, mark: Mark) -> Tool:
    """As the README shows, with a run directory; predicts from that, as `mlap predict` does."""
    import numpy as np

    import mlap
    from mlap.training import predict_logits

    out = Path(job["scratch"]) / "run"

    def load(path: str, **options: Any) -> mlap.GraphSet:
        return mlap.load_graphs(path, root=job["scratch"], processes=job["threads"], **options)

    def predict(path: str) -> Any:
        graphs = load(path, targets=())
        return run.objective.predict(predict_logits(run.network, graphs, np.arange(len(graphs))))

    mark()
    graphs = load(f"{job['folder']}/fit.csv", targets=["HIV_active"], split="column:split")
    mark()
    recipe = mlap.Recipe(layers=job["layers"], width=job["width"], batch_size=BATCH_SIZE, epochs=job["epochs"] + 1)
    mlap.train(recipe, graphs, out, on_epoch=mark)
    run = mlap.load(out)
    return run.network, predict


def run_chemprop(job: Row, mark: Mark) -> Tool:
    """As its examples of training and prediction show, with the defaults of its command line, which caches features."""
    import pandas as pd
    import torch
    from chemprop import data, models, nn
    from lightning import pytorch as pl
    from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint

    def dataset(table: pd.DataFrame) -> data.MoleculeDataset:
        rows = zip(table["smiles"], table[["HIV_active"]].to_numpy(float), strict=True)
        return data.MoleculeDataset([data.MoleculeDatapoint.from_smi(smiles, y) for smiles, y in rows])

    def predict(path: str) -> Any:
        loader = data.build_dataloader(dataset(pd.read_csv(path)), BATCH_SIZE, shuffle=False)
        return torch.cat(trainer.predict(network, loader))

    mark()
    table = pd.read_csv(f"{job['folder']}/fit.csv")
    train, valid = (dataset(table[table["split"] == part]) for part in ("train", "valid"))
    train.cache = valid.cache = True
    mark()
    parts = nn.BondMessagePassing(), nn.NormAggregation(), nn.BinaryClassificationFFN()
    network = models.MPNN(*parts, metrics=[nn.metrics.BinaryAUROC()], warmup_epochs=1)  # fewer than there are epochs
    callbacks = [ModelCheckpoint(job["scratch"]), LambdaCallback(on_train_epoch_end=mark)]
    quiet: Row = {"logger": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_epochs=job["epochs"] + 1, accelerator="cpu", callbacks=callbacks, **quiet)
    loaders = [data.build_dataloader(part, BATCH_SIZE, shuffle=part is train) for part in (train, valid)]
    trainer.fit(network, *loaders)
    return network, predict


def run_torch_molecule(job: Row, mark: Mark) -> Tool:
    """As its README shows: fit and predict, in the manner of scikit-learn."""
    import pandas as pd
    from torch_molecule import GNNMolecularPredictor

    class Predictor(GNNMolecularPredictor):  # type: ignore[misc]
        def _train_epoch(self, *arguments: Any, **options: Any) -> Any:
            mark()
            return super()._train_epoch(*arguments, **options)

    mark()
    table = pd.read_csv(f"{job['folder']}/fit.csv")
    parts = [table[table["split"] == part] for part in ("train", "valid")]
    epochs = job["epochs"] + 1
    predictor = Predictor(task_type="classification", batch_size=BATCH_SIZE, epochs=epochs, device="cpu")
    predictor.fit(*(part[column].tolist() for part in parts for column in ("smiles", "HIV_active")))
    mark()
    return predictor.model, lambda path: predictor.predict(pd.read_csv(path)["smiles"].tolist())["prediction"]


if __name__ == "__main__":
    main()
