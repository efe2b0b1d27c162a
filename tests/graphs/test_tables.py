"""Tables of molecules: what is read, what is guessed, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlap.errors import DataError, UsageError
from mlap.graphs.splits import random_split
from mlap.graphs.tables import Table, read_table
from mlap.graphs.task import Task

pytest.importorskip("rdkit")

SMILES = ["CCO", "CCN", "c1ccccc1", "CC(=O)O", "C1CC1", "CCCC", "OCCO", "CNC", "Clc1ccccc1", "C#N"]


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Table]:
    """Write a text to a file and read it as a table."""

    def read(text: str | bytes, file: str = "table.csv", **options: Any) -> Table:
        path = tmp_path / file
        content = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
        return read_table(path, **options)

    return read


def rows(**columns: list[Any]) -> str:
    """CSV text of the given columns."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


# ---- files -----------------------------------------------------------------------------------------------------------


def test_hiv_as_a_user_has_it(shared_data: Path, tmp_path: Path) -> None:
    with gzip.open(shared_data / "moleculenet" / "HIV.csv.gz", "rt") as file:
        head = [next(file) for _ in range(1001)]
    path = tmp_path / "HIV.csv.gz"
    path.write_bytes(gzip.compress("".join(head).encode()))
    with pytest.raises(DataError, match=r"HIV.csv.gz, line 139: .* Al, 6, .*\(and 1 more row\); .* on_invalid='skip'"):
        read_table(path, on_invalid="error")
    read = read_table(path)
    assert (read.smiles, read.targets) == ("smiles", ("HIV_active",))
    assert read.graphs.task == Task("binary", 1, "rocauc", ("HIV_active",))
    assert read.graphs.name == "HIV"
    assert (read.num_rows, len(read.graphs)) == (1000, 998)
    assert [entry.row for entry in read.graphs.left_out] == [137, 987]
    expected = list(csv.DictReader(head))
    assert read.graphs.ids == [expected[row]["smiles"] for row in read.graphs.rows]
    assert read.graphs.y.ravel().tolist() == [float(expected[row]["HIV_active"]) for row in read.graphs.rows]
    assert {name: len(part) for name, part in read.graphs.splits.items()} == {"train": 798, "valid": 100, "test": 100}
    assert read.notes[:3] == (
        "SMILES are taken from column 'smiles' (guessed)",
        "labels are taken from column 'HIV_active' (guessed)",
        "the task is binary, scored by ROC-AUC (guessed)",
    )
    assert read.notes[3].startswith("line 139 is left out, 'O=C1O[Al]")

    classes = read_table(path, targets=["activity"], split="stratified")
    assert classes.graphs.task == Task("multiclass", 3, "accuracy", ("CA", "CI", "CM"))
    assert [classes.graphs.task.names[label] for label in classes.graphs.y] == [
        expected[row]["activity"] for row in classes.graphs.rows
    ]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("table.csv", lambda text: text),
        ("TABLE.CSV", lambda text: text),
        ("table.csv.gz", lambda text: text),
        ("table.csv", lambda text: "\ufeff" + text),  # a byte-order mark
        ("table.csv.gz", lambda text: "\ufeff" + text),
        ("table.csv", lambda text: text.replace("\r\n", "\n")),
        ("table.csv", lambda text: text.replace("\r\n", "\r")),
        ("table.csv", lambda text: text.replace("\r\n", "\r\n\r\n") + ",,\r\n"),  # blank lines
        ("table.csv", lambda text: text.replace(",", ";")),
        ("table.csv", lambda text: text.replace(",", " , ")),
        ("table.tsv", lambda text: text.replace(",", "\t")),
        ("table.csv", lambda text: text.replace("name,", '"a, quoted ""name""",')),
        ("table.csv", lambda text: text.replace("x3,", '"two\nlines",')),
        ("table.csv", lambda text: text.rstrip()),
    ],
)
def test_kinds_of_text_file(table: Callable[..., Table], file: str, change: Callable[[str], str]) -> None:
    text = rows(name=[f"x{i}" for i in range(10)], smiles=SMILES, active=[0, 1] * 5)
    read = table(change(text), file)
    assert read.graphs.ids == SMILES
    assert read.graphs.y.ravel().tolist() == [0, 1] * 5


def test_parquet_is_as_csv(tmp_path: Path, table: Callable[..., Table]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"smiles": SMILES, "a": [1.5, None, *range(8)], "b": [float("nan"), 0.25, *range(8)]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet", targets=["a", "b"])
    cells = {name: ["" if cell is None else cell for cell in column] for name, column in columns.items()}
    as_csv = table(rows(**cells), targets=["a", "b"])
    assert found.graphs.fingerprint == as_csv.graphs.fingerprint
    assert np.isnan(found.graphs.y).sum() == 2

    parquet.write_table(pyarrow.table({"smiles": SMILES, "on": [True, False] * 5}), tmp_path / "b.parquet")
    truth = read_table(tmp_path / "b.parquet")
    assert truth.graphs.task.kind == "binary"
    assert truth.graphs.y.ravel().tolist() == [1, 0] * 5

    parquet.write_table(pyarrow.table({"smiles": ["C", "C(C"], "on": [1, 0]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c.parquet, row 2: no molecule in column 'smiles', 'C\(C'"):
        read_table(tmp_path / "c.parquet", targets=["on"], on_invalid="error")


def test_damaged_files(table: Callable[..., Table], tmp_path: Path) -> None:
    good = rows(smiles=SMILES, y=[0, 1] * 5)
    with pytest.raises(DataError, match=r"table.csv, line 3: got 3 cells, but the header has 2"):
        table("smiles,y\nC,1\nCC,0,5\n")
    with pytest.raises(DataError, match=r"table.csv, line 3: got 1 cells"):
        table("smiles,y\nC,1\nCC\n")
    with pytest.raises(DataError, match="2 columns named 'y'"):
        table("smiles,y,y\nC,1,1\n")
    with pytest.raises(DataError, match="is empty"):
        table("\n\n")
    with pytest.raises(DataError, match="no rows below its header"):
        table("smiles,y\n")
    with pytest.raises(DataError, match="not a text file"):
        table(good.encode() + b"\0")
    with pytest.raises(DataError, match=r"table.csv, line 2: "):
        table('smiles,y\n"C"C,1\n')
    (tmp_path / "plain.csv.gz").write_text(good)
    with pytest.raises(DataError, match=r"plain.csv.gz cannot be read: Not a gzipped file"):
        read_table(tmp_path / "plain.csv.gz")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(good.encode())[:-20])
    with pytest.raises(DataError, match=r"cut.csv.gz cannot be read"):
        read_table(tmp_path / "cut.csv.gz")
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"table.parquet cannot be read as Parquet"):
        table(good, "table.parquet")


def test_files_that_are_no_tables(table: Callable[..., Table], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a.xls is not a table .* \.csv, "):
        table("x", "a.xls")
    with pytest.raises(UsageError, match="there is no file"):
        read_table(tmp_path / "none.csv")


def test_pyarrow_missing_says_what_to_install(table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'mlap\[chem\]'"):
        table("x", "a.parquet")


@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_table_or_an_expected_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    with pytest.raises((DataError, UsageError)):
        read_table(path, smiles="smiles", targets=["y"])


# ---- the SMILES column -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("SMILES", "SMILES"),
        ("Canonical SMILES", "Canonical SMILES"),
        ("rdkit_smiles", "rdkit_smiles"),
        ("mol", "mol"),
        ("Structure", "Structure"),
        ("ligand", "ligand"),  # by content
    ],
)
def test_the_smiles_column_is_found(table: Callable[..., Table], header: str, expected: str) -> None:
    read = table(rows(**{"comment": ["none of it"] * 10, header: SMILES, "y": [0, 1] * 5}))
    assert read.smiles == expected
    assert f"SMILES are taken from column {expected!r} (guessed)" in read.notes


def test_the_best_name_wins(table: Callable[..., Table]) -> None:
    read = table(rows(product_smiles=SMILES, smiles=SMILES, canonical_smiles=SMILES, y=[0, 1] * 5))
    assert read.smiles == "smiles"
    with pytest.raises(UsageError, match="columns 'product_smiles', 'educt_smiles' could all be SMILES"):
        table(rows(product_smiles=SMILES, educt_smiles=SMILES, y=[0, 1] * 5))


def test_codes_that_happen_to_be_smiles_are_no_smiles_column(table: Callable[..., Table]) -> None:
    codes = ["CI", "CN"] * 10  # iodomethane and methylamine, if you like
    read = table(rows(code=codes, ligand=SMILES * 2, y=[0, 1] * 10))
    assert read.smiles == "ligand"


def test_no_smiles_column(table: Callable[..., Table]) -> None:
    with pytest.raises(UsageError, match=r"none of columns 'text', 'y' holds SMILES; name one by smiles"):
        table(rows(text=["hello"] * 10, y=[0, 1] * 5))
    with pytest.raises(UsageError, match=r"unknown column of table.csv 'smile'; did you mean 'smiles'"):
        table(rows(smiles=SMILES, y=[0, 1] * 5), smiles="smile")


def test_a_table_without_header(table: Callable[..., Table]) -> None:
    text = "\n".join(f"{smiles},{number % 2}" for number, smiles in enumerate(SMILES))
    with pytest.raises(DataError, match=r"the first line looks like data \(CCO, 0\); expected the names"):
        table(text)
    with pytest.raises(DataError, match="the first line looks like data"):
        table("\n".join(SMILES), targets=())


# ---- the targets -----------------------------------------------------------------------------------------------------


def test_targets_that_are_all_yes_or_no_are_all_taken(table: Callable[..., Table]) -> None:
    read = table(
        rows(
            mol_id=range(100, 110),
            smiles=SMILES,
            tox=[0, 1, "", 1, 0, 0, 1, 1, "", 0],
            bbb=["1.0", "", "", "0.0", "1", "0", "NaN", "1", "", "0"],
        )
    )
    assert read.targets == ("tox", "bbb")
    assert read.graphs.task == Task("binary", 2, "rocauc", ("tox", "bbb"))
    assert [entry.row for entry in read.graphs.left_out] == [2, 8]
    assert read.graphs.rows.tolist() == [0, 1, 3, 4, 5, 6, 7, 9]
    unknown = np.nan
    expected = [[0, 1], [1, unknown], [1, 0], [0, 1], [0, 0], [1, unknown], [1, 1], [0, 0]]
    assert np.array_equal(read.graphs.y, expected, equal_nan=True)


def test_row_numbers_and_names_are_not_guessed(table: Callable[..., Table]) -> None:
    read = table(
        rows(**{"": range(10), "count": range(1, 11), "CID": range(50, 60), "smiles": SMILES, "y": [0, 1] * 5})
    )
    assert read.targets == ("y",)


def test_a_name_decides_between_numbers(table: Callable[..., Table]) -> None:
    read = table(rows(smiles=SMILES, Class=[0, 1] * 5, pIC50=np.linspace(3, 9, 10), weight=[1] * 10))
    assert read.targets == ("Class",)
    with pytest.raises(UsageError, match="columns 'expt', 'calc' could all be labels; name targets"):
        table(rows(smiles=SMILES, expt=np.linspace(0, 1, 10), calc=np.linspace(0, 2, 10)))
    with pytest.raises(UsageError, match="no column looks like labels; name targets among column 'kind'"):
        table(rows(smiles=SMILES, kind=["a", "b"] * 5))
    with pytest.raises(UsageError, match=r"no column looks like labels; name targets$"):
        table(rows(smiles=SMILES))


def test_targets_must_be_columns(table: Callable[..., Table]) -> None:
    text = rows(smiles=SMILES, y=[0, 1] * 5)
    with pytest.raises(UsageError, match=r"unknown column of table.csv 'Y'; did you mean 'y'"):
        table(text, targets=["Y"])
    assert table(text, targets="y").targets == ("y",)
    with pytest.raises(UsageError, match="a column of their own"):
        table(text, targets=["y", "y"])
    with pytest.raises(UsageError, match="a column of their own"):
        table(text, targets=["smiles"])


def test_without_targets_there_are_neither_labels_nor_splits(table: Callable[..., Table]) -> None:
    read = table(rows(smiles=["CCO", "C(C", "C"], y=["", 1, "?"]), targets=())
    assert read.graphs.y is None
    assert read.graphs.splits == {}
    assert read.graphs.rows.tolist() == [0, 2]
    assert table("smiles\nCCO\n", targets=()).graphs.ids == ["CCO"]


# ---- the task --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0, 1] * 5, Task("binary", 1, "rocauc", ("y",))),
        (["True", "False"] * 5, Task("binary", 1, "rocauc", ("y",), (("False", "True"),))),
        ([10, 2, 1, 10, 2, 1, 10, 2, 1, 1], Task("multiclass", 3, "accuracy", ("1", "2", "10"))),
        (["2.0", "2", "0", "1"] * 2 + ["0", "1"], Task("multiclass", 3, "accuracy", ("0", "1", "2"))),
        (["b", "a", "", "c", "a"] * 2, Task("multiclass", 3, "accuracy", ("a", "b", "c"))),
        (["active", "Inactive"] * 5, Task("binary", 1, "rocauc", ("y",), (("Inactive", "active"),))),
        (["", "no", "yes", "No", "no"] * 2, Task("binary", 1, "rocauc", ("y",), (("no", "yes"),))),
        (["A", "I"] * 5, Task("binary", 1, "rocauc", ("y",), (("I", "A"),))),
        ([-1, 1] * 5, Task("binary", 1, "rocauc", ("y",), (("-1", "1"),))),
        (["red", "blue", "red", "red", "blue"] * 2, Task("binary", 1, "rocauc", ("y",), (("red", "blue"),))),
        (list(np.linspace(-1, 1, 10)), Task("regression", 1, "rmse", ("y",))),
        (list(range(5, 15)), Task("regression", 1, "rmse", ("y",))),  # too many for classes
    ],
)
def test_the_task_follows_from_the_labels(table: Callable[..., Table], values: list[Any], task: Task) -> None:
    read = table(rows(smiles=SMILES, y=values), targets=["y"])
    assert read.graphs.task == task
    assert f"the task is {task.kind}, scored by {task.metric_label} (guessed)" in read.notes
    for row, label in zip(read.graphs.rows, read.graphs.y, strict=True):
        if task.kind == "multiclass":
            assert str(values[row]).removesuffix(".0") == task.names[label]
        elif task.labels:
            assert str(values[row]).lower() == task.labels[0][int(label[0])].lower()
        else:
            assert label[0] == pytest.approx(values[row])


def test_the_task_can_be_said(table: Callable[..., Table]) -> None:
    text = rows(smiles=SMILES, y=[0, 1] * 5)
    assert table(text, task="regression", metric="mae").graphs.task == Task("regression", 1, "mae", ("y",))
    assert table(text, task="multiclass").graphs.task == Task("multiclass", 2, "accuracy", ("0", "1"))
    assert table(text, metric="ap").graphs.task.metric == "ap"
    with pytest.raises(UsageError, match="unknown kind of task 'regress'"):
        table(text, task="regress")
    with pytest.raises(UsageError, match="'mae' does not score a binary task"):
        table(text, metric="mae")
    with pytest.raises(UsageError, match="one target, got columns 'y', 'z'"):
        table(rows(smiles=SMILES, y=[0, 1] * 5, z=[0, 1] * 5), task="multiclass")


def test_a_whole_task_fixes_classes_and_targets(table: Callable[..., Table]) -> None:
    task = Task("multiclass", 3, "accuracy", ("low", "mid", "high"))
    read = table(rows(smiles=SMILES[:2], level=["high", "low"]), targets=["level"], task=task)
    assert read.graphs.task == task
    assert read.graphs.y.tolist() == [2, 0]
    with pytest.raises(
        DataError, match=r"line 3, column 'level': got class 'huge', expected one of 'low', 'mid', 'high'"
    ):
        table(rows(smiles=SMILES[:2], level=["high", "huge"]), targets=["level"], task=task)

    task = Task("binary", 1, "ap", ("active",))
    read = table(rows(smiles=SMILES[:2], other=[3, 4], active=[1, 1]), task=task)
    assert (read.targets, read.graphs.task) == (("active",), task)
    with pytest.raises(UsageError, match="the task has 1 targets, got columns 'other', 'active'"):
        table(rows(smiles=SMILES[:2], other=[0, 1], active=[1, 1]), task=task, targets=["other", "active"])


def test_labels_that_make_no_sense(table: Callable[..., Table]) -> None:
    with pytest.raises(DataError, match=r"table.csv, line 4, column 'y': got 'high', expected a number"):
        table(rows(smiles=SMILES, y=[0.1, 0.2, "high", *range(7)]), targets=["y"])
    with pytest.raises(DataError, match=r"line 2, column 'y': got '1e99', expected a number"):
        table(rows(smiles=SMILES, y=["1e99", *range(9)]), targets=["y"])
    with pytest.raises(DataError, match=r"line 4, column 'y': got '2', expected '0', '1' or nothing"):
        table(rows(smiles=SMILES, y=[0, 1, 2, *[1] * 7]), task="binary")
    with pytest.raises(DataError, match="column 'y' is '1' in every row; there is nothing to learn"):
        table(rows(smiles=SMILES, y=[1] * 10))
    with pytest.raises(DataError, match="column 'y' has no values"):
        table(rows(smiles=SMILES, y=[""] * 10), targets=["y"])
    with pytest.raises(DataError, match="column 'name' has 10 different values in 10 rows"):
        table(rows(smiles=SMILES, name=[f"molecule {i}" for i in range(10)]), targets=["name"])
    with pytest.raises(UsageError, match="target 'a' is '0' and '1', but 'b' is not"):
        table(rows(smiles=SMILES, a=[0, 1] * 5, b=np.linspace(0, 1, 10)), targets=["a", "b"])


# ---- rows and splits -------------------------------------------------------------------------------------------------


def test_rows_that_are_left_out_are_noted(table: Callable[..., Table]) -> None:
    text = rows(smiles=["C", "C(C", "C", "", "CC"], y=[0, 1, 1, 0, ""])
    with pytest.raises(DataError, match=r"table.csv, line 3: .* 'smiles', 'C\(C': .*\(and 1 more row\)"):
        table(text, on_invalid="error")
    read = table(text)
    assert [(entry.row, entry.place, entry.text) for entry in read.graphs.left_out] == [
        (1, "line 3", "C(C"),
        (3, "line 5", ""),
        (4, "line 6", "CC"),
    ]
    assert read.graphs.rows.tolist() == [0, 2]
    assert read.notes[-3:] == (
        "line 3 is left out, 'C(C': it is not written as SMILES",
        "line 5 is left out, '': it is empty",
        "1 row is left out, without a label (line 6)",
    )
    with pytest.raises(DataError, match="line 2: no molecule"):
        table(rows(smiles=["C(C", "CC("], y=[0, 1]))
    with pytest.raises(UsageError, match=r"'ignore'.*error, skip"):
        table(text, on_invalid="ignore")


def test_splits_of_a_table(table: Callable[..., Table]) -> None:
    text = rows(smiles=SMILES * 4, y=[0, 0, 0, 1] * 10, part=["train"] * 30 + ["Val"] * 5 + ["test"] * 5)
    random = table(text, split_seed=3).graphs.splits
    assert [len(random[name]) for name in ("train", "valid", "test")] == [32, 4, 4]
    for part in random.values():  # each molecule stands four times in the table, and in one part only
        assert {number % 10 + 10 * turn for number in part for turn in range(4)} == set(part.tolist())
    once = table(rows(smiles=SMILES, y=[0, 1] * 5), split="random", split_seed=3).graphs.splits
    for name, expected in random_split(10, seed=3).items():
        np.testing.assert_array_equal(once[name], expected)
    other = table(text, split="stratified", split_seed=3).graphs
    unless_told = table(text, split_seed=3).graphs
    assert all(unless_told.split(part).tolist() == other.split(part).tolist() for part in other.splits)
    assert other.split("test").tolist() != table(text, split="stratified").graphs.split("test").tolist()
    stratified = table(text, split="stratified", split_sizes=(0.5, 0.25, 0.25)).graphs
    assert stratified.y[stratified.split("train")].sum() in (4, 5, 6)
    scaffold = table(text, split="scaffold").graphs
    assert {scaffold.ids[i] for i in scaffold.split("train")}.isdisjoint(
        scaffold.ids[i] for i in scaffold.split("test")
    )
    column = table(text, split="column:part", targets=["y"])
    assert column.graphs.split("valid").tolist() == [30, 31, 32, 33, 34]
    assert column.targets == ("y",)
    for split in ("scaffold", "column:part"):
        with pytest.raises(UsageError, match=f"split_seed is for random and stratified splits; '{split}' is the same"):
            table(text, split=split, split_seed=0)


def test_a_split_column_follows_the_rows_that_are_kept(table: Callable[..., Table]) -> None:
    text = rows(smiles=["C(C", "C", "CC", "CCC"], y=[1, 0, "", 1], split=["train", "test", "nowhere", "train"])
    read = table(text, split="column:split")
    assert read.graphs.ids == ["C", "CCC"]
    assert {name: part.tolist() for name, part in read.graphs.splits.items()} == {
        "train": [1],
        "valid": [],
        "test": [0],
    }


def test_wrong_splits(table: Callable[..., Table]) -> None:
    text = rows(smiles=SMILES, y=np.linspace(0, 1, 10), part=["train"] * 9 + ["fold"])
    with pytest.raises(UsageError, match="unknown split 'scafold'; did you mean 'scaffold'"):
        table(text, split="scafold")
    with pytest.raises(UsageError, match=r"unknown column of table.csv 'parts'"):
        table(text, split="column:parts")
    with pytest.raises(
        DataError, match=r"table.csv, line 11, column 'part': got 'fold', expected train, valid or test"
    ):
        table(text, split="column:part", targets=["y"])
    with pytest.raises(UsageError, match="a stratified split needs one target of classes"):
        table(text, split="stratified", targets=["y"])
