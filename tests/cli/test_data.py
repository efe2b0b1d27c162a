from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli.conftest import Command

from mlap.graphs import packed, synthetic


def test_list_names_the_papers_data_sets(mlap: Command) -> None:
    names = {entry["name"] for entry in mlap("data", "list", "--json").json["datasets"]}
    assert {"synthetic", "ogbg-molhiv", "ogbg-ppa", "MCF-7"} <= names
    text = mlap("data", "list").out
    assert all(name in text for name in names)


def test_list_and_info_of_another_folder(mlap: Command, tmp_path: Path) -> None:
    where = ("--data-root", tmp_path / "elsewhere")
    assert {entry["where"] for entry in mlap("data", "list", *where, "--json").json["datasets"]}
    assert mlap("data", "info", "synthetic", *where, "--json").json["graphs"] == 9000


def test_info_of_the_synthetic_set(mlap: Command) -> None:
    facts = mlap("data", "info", "synthetic", "--json").json
    assert (facts["graphs"], facts["nodes_per_graph"], facts["edges_per_graph"]) == (9000, 25.0, 65.0)
    assert facts["splits"] == {"train": 7200, "valid": 900, "test": 900}
    assert facts["fingerprint"] == synthetic().fingerprint
    text = mlap("data", "info", "synthetic").out
    assert "9,000" in text
    assert "9 classes" in text


def test_make_another_reading_and_train_on_it(mlap: Command) -> None:
    options = "--graphs-per-class 4 --extra-edges 2-4,0-3,0-4 --shared-node index --one-way none --seed 5"
    answer = mlap("data", "make", "synthetic", *options.split(), "--out", "other.graphs")
    assert answer.code == 0
    assert answer.out.startswith("36 graphs of synthetic-variant written to other.graphs")
    made = packed.load(Path("other.graphs"))
    types = [(2, 4), (0, 3), (0, 4)]
    expected = synthetic(4, extra_edges=types, shared_node="index", one_way="none", seed=5)
    assert made.fingerprint == expected.fingerprint
    assert np.array_equal(made.edges, expected.edges)
    assert mlap("train", "other.graphs", "--layers", 1, "--width", 4, "--epochs", 1, "--quiet").code == 0


@pytest.mark.parametrize(("options", "expected"), [(("--random-edges", 3, "--repeats"), 3), (("--no-repeats",), 5)])
def test_make_with_other_random_edges(mlap: Command, options: tuple[str, ...], expected: int) -> None:
    facts = mlap("data", "make", "synthetic", "--graphs-per-class", 2, *options, "--out", "a.graphs", "--json").json
    repeats = "--repeats" in options
    assert facts["fingerprint"] == synthetic(2, random_edges=expected, repeats=repeats).fingerprint


def test_wrong_calls(mlap: Command) -> None:
    answer = mlap("data", "make", "ogbg-molhiv", "--out", "x.graphs")
    assert answer.code == 2
    assert answer.error.startswith("only `synthetic` can be made")
    answer = mlap("data", "make", "synthetic", "--extra-edges", "0+2", "--out", "x.graphs")
    assert answer.code == 2
    assert answer.error.startswith("--extra-edges takes pairs of nodes")
    answer = mlap("data", "make", "synthetic", "--extra-edges", "0-1", "--out", "x.graphs")
    assert answer.code == 2
    assert answer.error.startswith("an extra edge joins two of the nodes 0 to 4 that the path does not")
    assert mlap("data", "info", "nonsense").code == 2
