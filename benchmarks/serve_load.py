"""How `mlap serve` bears many clients: latency, refusals and memory, on this machine.

    python benchmarks/serve_load.py MODEL… [--out research/results/serve_load.csv]

Each MODEL is a model of molecules. Every client asks, waits for the answer and asks again; a client that is told to
come again waits as long as it is told. Beside each row stand things that other work on the machine does not change, or
that tell of it: the processor time that the server took for an answer, the model's own time for such a question (its
median in this process, taken before and after), and the load (processes that run or wait for a core, mean of a minute).
The times of refusals are those of the crowd: hundreds of clients that begin at once in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

import mlap

SMILES = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
    "CC1(C)SC2C(NC(=O)Cc3ccccc3)C(=O)N2C1C(=O)O",
    "CN1CCC[C@H]1c2cccnc2",
]
CROWDS = (1, 10, 50, 200, 400)
COLUMNS = (
    *("model", "question", "clients", "answers", "refusals", "median_ms", "p95_ms", "max_ms", "refusal_ms"),
    *("answers_per_s", "processor_ms", "model_ms", "memory_mb", "load"),
)


async def crowd(address: str, path: str, clients: int, questions: int) -> tuple[list[float], list[float], float]:
    """The times of all answers and of all refusals in seconds, and how long it took."""
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    times: list[float] = []
    refusals: list[float] = []

    async def client(http: httpx.AsyncClient, number: int) -> None:
        done = 0
        while done < questions:
            began = time.perf_counter()
            response = await http.post(path, json={"inputs": [SMILES[(number + done) % len(SMILES)]]})
            if response.status_code == 503:
                refusals.append(time.perf_counter() - began)
                await asyncio.sleep(int(response.headers["retry-after"]))
                continue
            response.raise_for_status()
            times.append(time.perf_counter() - began)
            done += 1

    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=120) as http:
        began = time.perf_counter()
        await asyncio.gather(*(client(http, number) for number in range(clients)))
        return times, refusals, time.perf_counter() - began


def own_time(model: Any, path: str) -> float:
    """The median time in milliseconds that the model itself takes for such a question, once it is warm."""

    def ask(smiles: str) -> float:
        began = time.perf_counter()
        if path == "/api/predict":
            model.predict([smiles])
        else:
            list(model.explain([smiles]))
        return 1000 * (time.perf_counter() - began)

    return median([ask(smiles) for smiles in SMILES * 10][len(SMILES) :])


@contextmanager
def serving(model: str) -> Iterator[tuple[str, psutil.Process]]:
    """The address of a server that has read its data, and its process."""
    call = [sys.executable, "-m", "mlap", "serve", model, "--quiet"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            while reference := httpx.get(f"{address}api/model", timeout=60).json()["reference"]:
                if reference["ready"] and reference["done"] == reference["mapped"]:
                    break
                time.sleep(0.2)
            yield address, psutil.Process(server.pid)
        finally:
            server.send_signal(signal.SIGINT)


def processor_time(process: psutil.Process) -> float:
    """In milliseconds."""
    times = process.cpu_times()
    return 1000 * float(times.user + times.system)


def rows_of(name: str, questions: int) -> Iterator[dict[str, Any]]:
    """Ask a server of a model with all crowds."""
    model = mlap.load(name)
    with serving(name) as (address, server):
        for path in ("/api/predict", "/api/explain"):
            asyncio.run(crowd(address, path, 1, len(SMILES)))  # nobody's first question is counted
            for clients in CROWDS:
                own = own_time(model, path)
                before = processor_time(server)
                times, refusals, seconds = asyncio.run(crowd(address, path, clients, max(1, questions // clients)))
                taken = processor_time(server) - before
                own = (own + own_time(model, path)) / 2
                ordered = sorted(1000 * found for found in times)
                values = (
                    *(model.path.name if model.path else model.name, path.removeprefix("/api/"), clients),
                    *(len(ordered), len(refusals)),
                    f"{median(ordered):.1f}",
                    f"{ordered[int(0.95 * len(ordered))]:.1f}",
                    f"{ordered[-1]:.1f}",
                    f"{1000 * median(refusals):.1f}" if refusals else "",
                    f"{len(ordered) / seconds:.0f}",
                    f"{taken / len(ordered):.1f}",
                    f"{own:.1f}",
                    f"{server.memory_info().rss / 1e6:.0f}",
                    f"{os.getloadavg()[0]:.1f}",
                )
                yield dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    """Start a server of each model, send crowds, write a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--out", type=Path, default=Path("research/results/serve_load.csv"))
    parser.add_argument("--questions", type=int, default=400, help="of each crowd, about")
    options = parser.parse_args()
    rows = []
    for model in options.models:
        for row in rows_of(model, options.questions):
            rows.append(row)
            print(row, flush=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
