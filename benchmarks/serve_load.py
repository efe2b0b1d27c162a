"""How `mlap serve` bears many clients: latency, refusals and memory, on this machine.

    python benchmarks/serve_load.py MODEL [--out research/results/serve_load.csv]

MODEL is a model of molecules. Every client asks, waits for the answer and asks again; a client that is told to come
again waits as long as it is told. The model's own time for the same questions stands beside, from this process, and the
load of the machine (processes that run or wait for a core, mean of a minute).
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
    *("question", "clients", "answers", "refusals", "median_ms", "p95_ms", "max_ms", "answers_per_s"),
    *("model_ms", "memory_mb", "load"),
)


async def crowd(address: str, path: str, clients: int, questions: int) -> tuple[list[float], int, float]:
    """The times of all answers in seconds, the number of refusals, and how long it took."""
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    times: list[float] = []
    refusals = 0

    async def client(http: httpx.AsyncClient, number: int) -> None:
        nonlocal refusals
        done = 0
        while done < questions:
            began = time.perf_counter()
            response = await http.post(path, json={"inputs": [SMILES[(number + done) % len(SMILES)]]})
            if response.status_code == 503:
                refusals += 1
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
    """The median time that the model itself takes for such a question."""

    def ask(smiles: str) -> float:
        began = time.perf_counter()
        if path == "/api/predict":
            model.predict([smiles])
        else:
            list(model.explain([smiles]))
        return time.perf_counter() - began

    return median([ask(smiles) for smiles in SMILES * 10][len(SMILES) :])


def main() -> None:
    """Start a server, send crowds, write a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, default=Path("research/results/serve_load.csv"))
    parser.add_argument("--questions", type=int, default=400, help="of each crowd, about")
    options = parser.parse_args()
    call = [sys.executable, "-m", "mlap", "serve", options.model, "--quiet"]
    server = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        while reference := httpx.get(f"{address}api/model", timeout=60).json()["reference"]:
            if reference["ready"] and reference["done"] == reference["mapped"]:
                break
            time.sleep(0.2)
        model = mlap.load(options.model)
        rows = []
        for path in ("/api/predict", "/api/explain"):
            model_ms = 1000 * own_time(model, path)
            for clients in CROWDS:
                each = max(1, options.questions // clients)
                times, refusals, seconds = asyncio.run(crowd(address, path, clients, each))
                ordered = sorted(1000 * found for found in times)
                row = dict(
                    zip(
                        COLUMNS,
                        (
                            path.removeprefix("/api/"),
                            clients,
                            len(ordered),
                            refusals,
                            f"{median(ordered):.1f}",
                            f"{ordered[int(0.95 * len(ordered))]:.1f}",
                            f"{ordered[-1]:.1f}",
                            f"{len(ordered) / seconds:.0f}",
                            f"{model_ms:.1f}",
                            f"{psutil.Process(server.pid).memory_info().rss / 1e6:.0f}",
                            f"{os.getloadavg()[0]:.1f}",
                        ),
                        strict=True,
                    )
                )
                rows.append(row)
                print(row, flush=True)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
