"""Make a data set of ogbg-ppa's size and shape, in OGB's own folder layout.

    python benchmarks/ppa_like.py OUT [--scale 0.1] [--seed 0]

At full size: 158,100 graphs of 37 classes with 50 to 300 nodes, 243.4 on average, and 2,266.1 undirected edges on
average, each with 7 features in [0, 1] of three decimals, in a species split of 78,200 / 45,100 / 34,800. The edges are
random; how often each feature is above zero depends on the class, so that there is something to learn. The same seed
and scale give the same numbers. Memory does not grow with the size.

OUT becomes a folder that `mlap` reads as `ogbg-ppa` if it is called `ogbg_ppa`.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRAPHS, CLASSES, FEATURES = 158_100, 37, 7
MEAN_NODES, FEWEST_NODES, MOST_NODES = 243.4, 50, 300
MEAN_EDGES = 2266.1
SPLIT = {"train": 78_200, "valid": 45_100, "test": 34_800}
CHUNK = 1000  # graphs, about 2.3 million edges
LEVEL = 1  # of compression: at OGB's own, most of the time would go into it

#: More than there are pairs of nodes in a graph, so that steps by one of them around the pairs meet none twice.
PRIMES = np.array([44_851, 44_867, 44_879, 44_887, 44_893, 44_909, 44_917, 44_927, 44_939, 44_953])

Array = NDArray[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder that does not exist yet")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of ogbg-ppa's graphs to make")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.out.exists():
        sys.exit(f"{options.out} exists already")
    if not 0 < options.scale <= 1:
        sys.exit(f"--scale must be above 0 and at most 1, got {options.scale}")
    started = time.perf_counter()
    make(options.out, round(GRAPHS * options.scale), options.seed)
    size = sum(file.stat().st_size for file in options.out.rglob("*.gz"))
    print(f"{options.out}: {size / 1e9:.2f} GB in {time.perf_counter() - started:.0f} s")


def make(out: Path, num_graphs: int, seed: int) -> None:
    """Write the folder."""
    rng = np.random.default_rng(seed)
    (out / "raw").mkdir(parents=True)
    (out / "split" / "species").mkdir(parents=True)
    labels = rng.integers(0, CLASSES, num_graphs)
    # A power of a uniform number has the mean share / (share + 1) where `share` is the inverse of the power.
    mean = (MEAN_NODES - FEWEST_NODES) / (MOST_NODES - FEWEST_NODES)
    spread = rng.random(num_graphs) ** ((1 - mean) / mean)
    num_nodes = np.rint(FEWEST_NODES + (MOST_NODES - FEWEST_NODES) * spread).astype(np.int64)
    num_pairs = num_nodes * (num_nodes - 1) // 2
    # Edges go with the pairs of nodes, so that small graphs are not full.
    wanted = MEAN_EDGES * num_pairs / num_pairs.mean() * rng.gamma(8, 1 / 8, num_graphs)
    num_edges = np.clip(np.rint(wanted), 1, num_pairs).astype(np.int64)

    cuts = np.rint(np.cumsum(list(SPLIT.values())) / GRAPHS * num_graphs).astype(np.int64)
    for part, chosen in zip(SPLIT, np.split(rng.permutation(num_graphs), cuts[:-1]), strict=True):
        write_column(out / "split" / "species" / f"{part}.csv.gz", np.sort(chosen))
    for name, column in (("num-node-list", num_nodes), ("num-edge-list", num_edges), ("graph-label", labels)):
        write_column(out / "raw" / f"{name}.csv.gz", column)

    above_zero = rng.uniform(0.1, 0.6, (CLASSES, FEATURES))
    numbers = texts([str(node) for node in range(MOST_NODES)])
    decimals = texts([str(value / 1000) for value in range(1001)])
    with (
        gzip.open(out / "raw" / "edge.csv.gz", "wb", compresslevel=LEVEL) as edge_file,
        gzip.open(out / "raw" / "edge-feat.csv.gz", "wb", compresslevel=LEVEL) as feature_file,
    ):
        for start in range(0, num_graphs, CHUNK):
            part = slice(start, start + CHUNK)
            edge_file.write(table(numbers, pairs(rng, num_pairs[part], num_edges[part])))
            chances = np.repeat(above_zero[labels[part]], num_edges[part], axis=0)
            values = rng.integers(1, 1001, chances.shape, dtype=np.uint16)
            values[rng.random(chances.shape, dtype=np.float32) >= chances] = 0
            feature_file.write(table(decimals, values))
    print(f"{num_graphs:,} graphs, {num_nodes.mean():.1f} nodes and {num_edges.mean():.1f} edges on average")


def pairs(rng: np.random.Generator, num_pairs: Array, num_edges: Array) -> Array:
    """Different pairs of nodes for each graph, `(edges, 2)`: steps of a random length from a random pair on."""
    step = np.repeat(rng.choice(PRIMES, len(num_pairs)), num_edges)
    first = np.repeat(rng.integers(0, num_pairs), num_edges)
    number = np.arange(len(step)) - np.repeat(np.cumsum(num_edges) - num_edges, num_edges)
    pair = (first + step * number) % np.repeat(num_pairs, num_edges)
    larger = ((1 + np.sqrt(1 + 8 * pair)) / 2).astype(np.int64)  # pair = larger · (larger - 1) / 2 + smaller
    return np.stack((pair - larger * (larger - 1) // 2, larger), axis=1)


def texts(words: list[str]) -> Array:
    """Words as rows of bytes, a separator's place behind each, filled up with zero bytes."""
    width = max(map(len, words)) + 1
    return np.frombuffer("".join(f"{word},".ljust(width, "\0") for word in words).encode(), np.uint8).reshape(-1, width)


def table(words: Array, values: Array) -> bytes:
    """Values that count words, `(rows, columns)`, as comma-separated text, formatted all at once."""
    cells = words[values]  # (rows, columns, width)
    ends = cells[:, -1]
    ends[ends == ord(",")] = ord("\n")
    characters = cells.ravel()
    return characters[characters != 0].tobytes()


def write_column(path: Path, column: Array) -> None:
    with gzip.open(path, "wt", compresslevel=LEVEL) as file:
        file.write("\n".join(map(str, column.tolist())) + "\n")


if __name__ == "__main__":
    main()
