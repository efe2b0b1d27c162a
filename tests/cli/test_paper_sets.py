"""The paper's real data sets by name: generated data in their official layouts, the paper's networks on them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from cli.conftest import Command

from mlap.graphs import load_graphs
from mlap.graphs.splits import random_split
from mlap.models import load
from mlap.nn import CategoryEncoder, ConstantEncoder, RealEncoder
from mlap.training import Recipe

FAST = ("--layers", 2, "--width", 8, "--epochs", 1, "--threads", 1, "--out", "run", "--json")


def write_column(path: Path, values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, np.asarray(values), fmt="%g", delimiter=",")


def test_ogbg_ppa(mlap: Command, tmp_path: Path) -> None:
    """37 classes, seven real edge features, no node features, the species split, accuracy."""
    rng = np.random.default_rng(0)
    folder, number = tmp_path / "root" / "ogbg_ppa", 111
    nodes, edges = rng.integers(3, 9, number), rng.integers(2, 12, number)
    ends = [(u, (u + rng.integers(1, n)) % n) for n, e in zip(nodes, edges, strict=True) for u in rng.integers(0, n, e)]
    write_column(folder / "raw" / "num-node-list.csv.gz", nodes)
    write_column(folder / "raw" / "num-edge-list.csv.gz", edges)
    write_column(folder / "raw" / "edge.csv.gz", ends)
    write_column(folder / "raw" / "edge-feat.csv.gz", rng.integers(0, 1001, (len(ends), 7)) / 1000)
    write_column(folder / "raw" / "graph-label.csv.gz", np.arange(number) % 37)
    for part, name in zip(np.split(np.arange(number), [74, 92]), ("train", "valid", "test"), strict=True):
        write_column(folder / "split" / "species" / f"{name}.csv.gz", part)

    answer = mlap("train", "ogbg-ppa", "--data-root", tmp_path / "root", *FAST)
    assert answer.code == 0, answer.err
    assert answer.json["metric"] == "accuracy"
    run = load("run")
    assert run.recipe == Recipe.paper("ogbg-ppa", layers=2, width=8, epochs=1)
    assert run.task.num_outputs == 37
    assert isinstance(run.network.encoder, ConstantEncoder)
    encoders = [conv.edge_encoder for conv in run.network.backbone.convs]
    assert all(isinstance(encoder, RealEncoder) and encoder[0].in_features == 7 for encoder in encoders)
    assert encoders[0] is not encoders[1]


def test_mcf_7(mlap: Command, tmp_path: Path) -> None:
    """Two classes, one categorical node and edge feature, a fixed random 8:1:1 split, ROC-AUC."""
    rng = np.random.default_rng(0)
    raw, number = tmp_path / "root" / "MCF-7" / "raw", 100
    raw.mkdir(parents=True)
    ring = [(6 * g + i + 1, 6 * g + (i + 1) % 6 + 1) for g in range(number) for i in range(6)]
    arcs = [arc for u, v in ring for arc in ((u, v), (v, u))]
    files = {
        "A": [f"{u}, {v}" for u, v in arcs],
        "graph_indicator": [node // 6 + 1 for node in range(6 * number)],
        "graph_labels": rng.integers(0, 2, number),
        "node_labels": rng.integers(0, 5, 6 * number),
        "edge_labels": np.repeat(rng.integers(0, 3, len(ring)), 2),
    }
    for name, lines in files.items():
        (raw / f"MCF-7_{name}.txt").write_text("".join(f"{line}\n" for line in lines))

    answer = mlap("train", "MCF-7", "--data-root", tmp_path / "root", "--split-seed", 3, *FAST)
    assert answer.code == 0, answer.err
    assert answer.json["metric"] == "rocauc"
    run = load("run")
    assert run.recipe == Recipe.paper("MCF-7", layers=2, width=8, epochs=1)
    assert run.config["data"]["splits"] == {"train": 80, "valid": 10, "test": 10}
    graphs = run.data()
    for part, expected in random_split(number, seed=3).items():
        np.testing.assert_array_equal(graphs.split(part), expected)
    assert isinstance(run.network.encoder, CategoryEncoder)
    assert run.network.encoder.cardinalities == (5,)
    assert [conv.edge_encoder.cardinalities for conv in run.network.backbone.convs] == [(3,), (3,)]


def test_ogbg_molhiv(shared_data: Path) -> None:
    """The real set: one logit, OGB's features and scaffold split, ROC-AUC, the paper's recipe."""
    graphs = load_graphs("ogbg-molhiv", root=shared_data)
    assert {name: len(part) for name, part in graphs.splits.items()} == {"train": 32901, "valid": 4113, "test": 4113}
    assert graphs.y is not None
    positives = {name: int(graphs.y[part].sum()) for name, part in graphs.splits.items()}
    assert positives == {"train": 1232, "valid": 81, "test": 130}
    assert graphs.task is not None
    assert (graphs.task.kind, graphs.task.metric) == ("binary", "rocauc")
    assert graphs.node_features is not None
    assert graphs.edge_features is not None
    assert graphs.node_features.cardinalities == (119, 5, 12, 12, 10, 6, 6, 2, 2)
    assert graphs.edge_features.cardinalities == (5, 6, 2)
    assert Recipe.preset(graphs.name) == Recipe.paper("ogbg-molhiv")
