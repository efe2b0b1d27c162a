"""How fast batches of molecules are assembled, side by side with PyG's `DataLoader`.

    python benchmarks/batching.py [--epochs 5]

On ogbg-molhiv, shuffled, in batches of 20 and 256: `GraphSet.batch` on the set as it is loaded (packed and mapped),
and `torch_geometric.loader.DataLoader(num_workers=0)` on a list of the same graphs as `Data` in memory. The two take
turns, epoch by epoch; the fastest epoch of each counts. Both work in one thread, and their processor time is measured,
which other work on the machine hardly changes. Before that, a batch of each is compared, tensor by tensor. Writes
`research/results/batching.csv`.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from records import made_by, real_data, write
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from mlap.graphs import GraphSet
from mlap.graphs.convert import to_pyg
from mlap.graphs.sources import load_graphs

BATCH_SIZES = (20, 256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5, help="of each kind and batch size")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        graphs = load_graphs(real_data("ogbg_molhiv"), root=root)
        before = resident()
        data = to_pyg(graphs)
        data_memory = resident() - before
        compare(graphs, data)
        rows = [row for size in BATCH_SIZES for row in measure(graphs, data, size, options.epochs)]
        packed_memory = sum(file.stat().st_size for file in Path(root).rglob("*.bin")) >> 20

    for row in rows:
        row["set_mb"] = packed_memory if row["what"].startswith("mlap") else data_memory
        print(
            f"batch {row['batch_size']:>3}  {row['what']:<16}{row['batches_per_second']:>8} batches/s  "
            f"{row['microseconds_per_batch']:>7} µs  ratio {row['ratio']:>5}  set of {row['set_mb']} MB"
        )
    write("batching.csv", rows, {"epochs": options.epochs, **made_by("torch", "numpy", "torch_geometric")})


def compare(graphs: GraphSet, data: list[Data]) -> None:
    """Stop unless both make the same batch, but for the order in which the arcs are listed."""
    chosen = np.random.default_rng(1).permutation(len(graphs))[:256]
    ours, theirs = graphs.batch(chosen), Batch.from_data_list([data[index] for index in chosen])
    arcs = [torch.cat((b.edge_index, b.edge_attr.T)).T.tolist() for b in (ours, theirs)]  # type: ignore[union-attr]
    same = [torch.equal(getattr(ours, key), getattr(theirs, key)) for key in ("x", "batch", "ptr", "y")]
    if not all(same) or sorted(arcs[0]) != sorted(arcs[1]):
        sys.exit("the two kinds of batch differ")


def measure(graphs: GraphSet, data: list[Data], size: int, epochs: int) -> list[dict[str, str | int | float]]:
    """The fastest epoch of each kind."""
    loader = DataLoader(data, batch_size=size, shuffle=True, num_workers=0)
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {"mlap GraphSet": [], "PyG DataLoader": []}
    for _ in range(epochs):
        started = time.process_time()
        order = rng.permutation(len(graphs))
        for start in range(0, len(order), size):
            graphs.batch(order[start : start + size])
        seconds["mlap GraphSet"].append(time.process_time() - started)
        started = time.process_time()
        for _ in loader:
            pass
        seconds["PyG DataLoader"].append(time.process_time() - started)
    batches = math.ceil(len(graphs) / size)
    theirs = min(seconds["PyG DataLoader"])
    return [
        {
            "what": what,
            "batch_size": size,
            "cpu_seconds_per_epoch": round(min(times), 3),
            "slowest_epoch": round(max(times), 3),
            "batches_per_second": round(batches / min(times)),
            "microseconds_per_batch": round(min(times) / batches * 1e6, 1),
            "ratio": round(theirs / min(times), 1),
        }
        for what, times in seconds.items()
    ]


def resident() -> int:
    """The resident memory of the process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:"))


if __name__ == "__main__":
    main()
