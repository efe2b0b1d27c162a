"""Divisions: what may be asked for, what comes of it, and which parts cannot be trained on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlap.errors import DataError, UsageError
from mlap.graphs import GraphSet, Task, load_graphs, molecules, synthetic
from mlap.graphs.dividing import Division, check_parts, divide, fold_split, read_splits, write_splits
from mlap.graphs.duplicates import first_alike

pytest.importorskip("rdkit")

#: twenty molecules, each written in two ways
PAIRS = [
    (f"{'C' * length}{end}", f"{start}{'C' * length}")
    for length in range(1, 6)
    for end, start in (("O", "O"), ("N", "N"), ("F", "F"), ("C(=O)O", "OC(=O)"))
]
TWICE = [smiles for pair in PAIRS for smiles in pair]


# ---- repeated molecules ----------------------------------------------------------------------------------------------


@given(order=st.permutations(range(len(TWICE))))
@settings(max_examples=20)
def test_the_same_molecule_is_found_however_it_is_written(order: list[int]) -> None:
    graphs = molecules([TWICE[number] for number in order]).graphs
    first = first_alike(graphs)
    kind = np.array(order) // 2
    expected = [int(np.flatnonzero(kind == mine)[0]) for mine in kind]
    assert first.tolist() == expected


def test_stereo_isomers_are_different_molecules() -> None:
    smiles = ["C[C@H](N)O", "C[C@@H](N)O", "CC(N)O", "O[C@@H](N)C", "F/C=C/F", "F/C=C\\F", "F\\C=C\\F"]
    from rdkit import Chem

    canonical = [Chem.CanonSmiles(text) for text in smiles]
    expected = [canonical.index(text) for text in canonical]
    assert first_alike(molecules(smiles).graphs).tolist() == expected
    assert len(set(expected)) == 5


@pytest.mark.parametrize("split", ["random", "stratified"])
@pytest.mark.parametrize("folds", [None, 4])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_identical_molecules_are_never_in_different_parts(split: str, folds: int | None, seed: int) -> None:
    labels = [number % 3 % 2 for number in range(len(TWICE))]  # also where their labels differ
    graphs = load_graphs(TWICE, labels=labels, split=split, split_seed=seed, **({"folds": folds} if folds else {}))
    part_of = {int(index): name for name, part in graphs.splits.items() for index in part}
    assert sorted(part_of) == list(range(len(TWICE)))
    assert all(part_of[number] == part_of[number + 1] for number in range(0, len(TWICE), 2))


def test_parts_keep_their_shares_on_average() -> None:
    sizes = {"train": 0, "valid": 0, "test": 0}
    labels = [number // 2 % 2 for number in range(len(TWICE))]
    for seed in range(100):
        graphs = load_graphs(TWICE, labels=labels, split="stratified", split_seed=seed)
        for name, part in graphs.splits.items():
            sizes[name] += len(part)
    total = 100 * len(TWICE)
    assert sizes["train"] / total == pytest.approx(0.8, abs=0.02)
    assert sizes["test"] / total == pytest.approx(0.1, abs=0.02)


# ---- what may be asked for -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ({"split": "scafold"}, "split"),
        ({"split": "scaffold", "split_seed": 1}, "split_seed"),
        ({"split": "column:x", "split_sizes": (0.8, 0.1, 0.1)}, "split_sizes"),
        ({"split_sizes": (0.8, 0.1)}, "split_sizes"),
        ({"split_sizes": (0.8, 0.3, -0.1)}, "split_sizes"),
        ({"folds": 5, "split_sizes": (0.8, 0.1, 0.1)}, "split_sizes"),
        ({"folds": 2}, "folds"),
        ({"folds": 5, "split": "column:x"}, "folds"),
        ({"fold": 1}, "fold"),
        ({"folds": 5, "fold": 5}, "fold"),
        ({"splits_file": "s.json", "split": "random"}, "splits_file"),
        ({"splits_file": "s.json", "split_seed": 0}, "splits_file"),
    ],
)
def test_what_does_not_go_together(given_: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        Division(**given_)
    assert caught.value.field == field


def test_sizes() -> None:
    graphs = load_graphs(["C" * length for length in range(1, 21)], labels=[0, 1] * 10, split_sizes=(0.5, 0.25, 0.25))
    sizes = [len(part) for part in graphs.splits.values()]
    assert sizes[0] == 10
    assert sizes == pytest.approx([10, 5, 5], abs=2)  # to within one graph of each class
    smiles = ["C" * length for length in range(1, 21)]
    random = load_graphs(smiles, labels=[0, 1] * 10, split="random", split_sizes=(0.5, 0.25, 0.25))
    assert [len(part) for part in random.splits.values()] == [10, 5, 5]


@pytest.mark.parametrize("split", ["random", "stratified", "scaffold"])
def test_folds_test_each_graph_once(split: str) -> None:
    smiles = [f"{'C' * (number % 10 + 1)}C1{'C' * (number // 10 + 1)}C1" for number in range(40)]
    graphs = load_graphs(smiles, labels=[0, 1] * 20)
    tested = []
    for fold in range(4):
        parts = fold_split(graphs, 4, fold, split=split)
        assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(40))
        tested += parts["test"].tolist()
    assert sorted(tested) == list(range(40))


def test_a_set_that_is_no_table_can_be_divided_too() -> None:
    graphs = synthetic(10)
    parts = divide(graphs, Division("stratified", split_seed=3, split_sizes=(0.6, 0.2, 0.2)))
    assert [len(part) for part in parts.values()] == [54, 18, 18]
    assert set(np.bincount(graphs.y[parts["valid"]])) == {2}  # type: ignore[index]
    for split, why in (("scaffold", "no molecules"), ("column:x", "no table")):
        with pytest.raises(UsageError, match=why):
            divide(graphs, Division(split))


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Ten molecules; the third and the sixth row are not in the set."""
    smiles = ["C", "CC", "C(C", "CCC", "CCCC", "CCCCC", "CO", "CCO", "CCCO", "CCCCO"]
    labels = [0, 1, 0, 1, 0, "", 1, 0, 1, 0]
    path = tmp_path / "t.csv"
    path.write_text("smiles,y\n" + "".join(f"{s},{y}\n" for s, y in zip(smiles, labels, strict=True)))
    return path


def test_what_is_written_is_read_again(table: Path, tmp_path: Path) -> None:
    graphs = load_graphs(table, cache=False, split_seed=5)
    write_splits(tmp_path / "splits.json", graphs)
    written = json.loads((tmp_path / "splits.json").read_text())
    assert 2 not in sum(written.values(), [])  # noqa: RUF017
    assert 9 in sum(written.values(), [])  # noqa: RUF017  (rows of the table, not numbers of graphs)
    again = load_graphs(table, cache=False, splits_file=tmp_path / "splits.json")
    assert again.fingerprint == graphs.fingerprint


@pytest.mark.parametrize("name", ["by row.csv", "by smiles.csv", "s.json"])
def test_a_file_says_it(table: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(
        {
            "by row.csv": "row,split\n0,train\n1,Train\n2,train\n3,val\n4,test\n",
            "by smiles.csv": "part,smiles\ntrain,C\ntrain,CC\ntrain,C(C\nvalidation,CCC\ntest,CCCC\n",
            "s.json": '{"train": [0, 1, 2], "valid": [3], "test": [4]}',
        }[name]
    )
    graphs = load_graphs(table, cache=False, splits_file=path)
    assert {part: graphs.rows[chosen].tolist() for part, chosen in graphs.splits.items()} == {  # type: ignore[index]
        "train": [0, 1],
        "valid": [3],
        "test": [4],
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.json", '{"train": [99], "valid": []}'),
        ("s.json", '{"train": [0, 0]}'),
        ("s.json", '{"train": [0], "test": [0]}'),
        ("s.json", '{"train": [0.5]}'),
        ("s.json", '{"train": [true]}'),
        ("s.json", '{"train": [1e400]}'),
        ("s.json", '{"train": 3}'),
        ("s.json", '{"somewhere": [0]}'),
        ("s.json", "[1, 2]"),
        ("s.json", "[" * 100_000),
        ("s.json", '{"valid": [0]}'),
        ("s.json", "not json"),
        ("s.csv", "row,split\n0,somewhere\n"),
        ("s.csv", "row,split\n²,train\n"),
        ("s.csv", "row,split\n-1,train\n"),
        ("s.csv", "a,b\n1,2\n"),
    ],
)
def test_files_that_say_nonsense(table: Path, tmp_path: Path, name: str, text: str) -> None:
    graphs = load_graphs(table, cache=False)
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as caught:
        read_splits(tmp_path / name, graphs)
    assert name in str(caught.value)
    assert len(str(caught.value)) < 400
    with pytest.raises(UsageError, match="absent"):
        read_splits(tmp_path / "absent.json", graphs)


# ---- is it fit to train on? ------------------------------------------------------------------------------------------


def parted(y: Any, task: Task, train: int, valid: int) -> GraphSet:
    graphs = molecules(["C" * (number + 1) for number in range(len(y))]).graphs
    splits = {
        "train": np.arange(train),
        "valid": np.arange(train, train + valid),
        "test": np.arange(train + valid, len(y)),
    }
    return dataclasses.replace(graphs, y=np.array(y, dtype=np.float32), task=task, splits=splits, name="mine")


BINARY = Task("binary", 1, "rocauc", ("y",), (("dull", "bright"),))
NAN = float("nan")


def test_the_part_and_the_class_that_it_lacks_are_named() -> None:
    good = parted([[0], [1], [0], [1], [0]], BINARY, 2, 2)
    check_parts(good)
    with pytest.raises(UsageError, match=r"mine: valid has no 'bright' \(1 in train, 0 in valid, 1 in test\).*ROC-AUC"):
        check_parts(parted([[0], [1], [0], [0], [1]], BINARY, 2, 2))
    check_parts(parted([[0], [1], [0], [0], [1]], BINARY, 2, 2), metric="accuracy")
    with pytest.raises(UsageError, match="train has no 'dull'"):
        check_parts(parted([[1], [1], [0], [1], [1]], BINARY, 2, 2), metric="accuracy")
    for train, valid, part in ((0, 2, "train"), (2, 0, "valid")):
        with pytest.raises(UsageError, match=f"{part} has no graphs"):
            check_parts(parted([[0], [1]] * 3, BINARY, train, valid))


def test_another_split_is_suggested_where_it_helps() -> None:
    y = [[0]] * 20 + [[1]] * 10
    with pytest.raises(UsageError) as caught:
        check_parts(parted(y, BINARY, 15, 5))
    assert (caught.value.field, caught.value.suggest) == ("split", "stratified")
    with pytest.raises(UsageError) as caught:
        check_parts(parted([[0]] * 20 + [[1]], BINARY, 15, 5))
    assert caught.value.suggest != "stratified"


def test_targets_without_a_single_value_are_refused() -> None:
    task = Task("regression", 2, "rmse", ("a", "b"))
    check_parts(parted([[1, NAN], [NAN, 2], [3, NAN], [1, 1]], task, 2, 1))
    with pytest.raises(UsageError, match="train has no label of 'b'"):
        check_parts(parted([[1, NAN], [2, NAN], [3, 4], [1, 1]], task, 2, 1))
    with pytest.raises(UsageError, match="valid has no label"):
        check_parts(parted([[1, 2], [2, 3], [NAN, NAN], [1, 1]], task, 2, 1))
    with pytest.raises(UsageError, match="no labels"):
        check_parts(molecules(["C"]).graphs)
