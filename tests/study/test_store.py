"""The study file: identity of runs, reading and writing, migration, and files that are no studies."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_tools import fork, tiny_plan

from mlap.errors import DataError, MlapError, UsageError
from mlap.graphs import synthetic
from mlap.provenance import made_by
from mlap.study import schema, store
from mlap.study.engine import Done, Failed
from mlap.study.store import Study, run_hash
from mlap.training import Recipe

GRAPHS = synthetic(2)


def done(hash: str, test_score: float | None = 0.25) -> Done:
    epochs = [
        {"epoch": n, "lr": 0.1 / n, "train_loss": 1 / 3, "valid_loss": math.nan, "valid_score": 0.5 / n, "seconds": 1.5}
        for n in (1, 2)
    ]
    result = {"metric": "error_rate", "best_epoch": 2, "valid_score": 0.25, "test_score": test_score}
    result |= {"epochs": 2, "num_parameters": 10}
    return Done(hash, result, epochs, "here", "cpu", {"torch": "2.6"})


# ---- identity ------------------------------------------------------------------------------------------------------


def test_a_hash_is_that_of_recipe_and_data() -> None:
    fields = {"architecture": "naive", "layers": 2, "width": 8, "backbone": "gin", "norm": "none", "residual": False}
    fields |= {"dropout": 0.5, "epochs": 3, "batch_size": 50, "lr": 1e-3, "lr_decay": 0.5, "lr_decay_every": 15}
    fields |= {"weight_decay": 0.0, "seed": 4}
    text = json.dumps({"recipe": fields, "data": "abc"}, sort_keys=True)
    assert run_hash(Recipe(**fields), "abc") == hashlib.sha256(text.encode()).hexdigest()[:16]


@given(st.sampled_from(["layers", "width", "epochs", "batch_size", "seed", "lr_decay_every"]), st.integers(1, 50))
def test_every_field_counts_and_text_is_the_same_as_a_number(field: str, value: int) -> None:
    recipe = Recipe(**{field: value})
    assert run_hash(recipe, "a") == run_hash(Recipe.of({field: str(value)}), "a")
    assert run_hash(recipe, "a") != run_hash(recipe.replace(**{field: value + 1}), "a")
    assert run_hash(recipe, "a") != run_hash(recipe, "b")


def test_hashes_of_recipes_without_later_options_stay() -> None:
    """What studies of before hold, computed then: a hash that changes makes a sweep run again."""
    assert run_hash(Recipe(), "abc") == "044f07637ab587e2"
    assert run_hash(Recipe.paper("ogbg-molhiv", layers=3, seed=2), "0123456789abcdef") == "e6cf40540db3c4ce"
    later = Recipe(norm="batch", optimizer="adamw", schedule="cosine", warmup=2, clip=1, select="last")
    assert run_hash(later, "abc") == "d58003ee957478b5"
    for option in ({"pooling": "sum"}, {"inner_norm": "batch"}, {"descriptors": True}, {"walk_features": 4}):
        assert run_hash(Recipe(**option), "abc") != run_hash(Recipe(), "abc")


def test_a_field_that_recipes_gain_later_keeps_old_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later:
        def __init__(self, extra: int) -> None:
            self.extra = extra

        def as_dict(self) -> dict[str, object]:
            return {**Recipe().as_dict(), "extra": self.extra}

    monkeypatch.setitem(store._DEFAULTS, "extra", 0)
    assert run_hash(Later(0), "a") == run_hash(Recipe(), "a")  # type: ignore[arg-type]
    assert run_hash(Later(1), "a") != run_hash(Recipe(), "a")  # type: ignore[arg-type]


# ---- reading and writing -------------------------------------------------------------------------------------------


def test_the_life_of_runs(tmp_path: Path) -> None:
    plan = tiny_plan(seed="0-2")
    path = tmp_path / "study.db"
    with Study.create(path) as study:
        study.plan("grid", plan.axes, plan.recipes(), GRAPHS, "here.graphs", {"split": "scaffold"})
        runs = study.runs()
        assert [run.recipe for run in runs] == plan.recipes()
        assert {run.status for run in runs} == {"planned"}
        first, second, third = (run.hash for run in runs)
        for hash in (first, second, third):
            study.start(hash)
        study.finish(done(first))
        study.fail(Failed(second, "no", "Traceback …", "there"))
        study.reset()
        study.plan("again", plan.axes, plan.recipes(), GRAPHS, "here.graphs", {"split": "scaffold"})

    with Study.open(path) as study:
        a, b, c = study.runs()
        assert (a.status, b.status, c.status) == ("done", "failed", "planned")
        assert (a.best_epoch, a.valid_score, a.test_score, a.num_parameters, a.epochs) == (2, 0.25, 0.25, 10, 2)
        assert (a.seconds, a.host, a.device, a.versions) == (3.0, "here", "cpu", {"torch": "2.6"})
        assert (a.data_name, a.fingerprint, a.source) == (GRAPHS.name, GRAPHS.fingerprint, "here.graphs")
        assert a.options == {"split": "scaffold"}
        assert (a.metric, a.higher_is_better) == ("error_rate", False)
        assert (a.architecture, a.layers, a.norm, a.seed) == ("mlap-sum", 5, "graph", 0)
        assert a.started is not None
        assert a.finished is not None
        assert a.started <= a.finished
        assert (b.error, b.traceback, b.host) == ("no", "Traceback …", "there")
        history = study.history(first)
        assert [(epoch.epoch, epoch.lr, epoch.train_loss) for epoch in history] == [(1, 0.1, 1 / 3), (2, 0.05, 1 / 3)]
        assert all(math.isnan(epoch.valid_loss) for epoch in history)
        assert study.history(third) == []
        assert [(p.name, p.axes["seed"]) for p in study.plans()] == [("grid", [0, 1, 2]), ("again", [0, 1, 2])]


def test_a_run_that_is_retried_loses_its_error(tmp_path: Path) -> None:
    plan = tiny_plan()
    with Study.create(tmp_path / "s.db") as study:
        study.plan("grid", plan.axes, plan.recipes(), GRAPHS, "x", {})
        (run,) = study.runs()
        study.fail(Failed(run.hash, "no", "…", "here"))
        study.start(run.hash)
        study.finish(done(run.hash, None))
        (run,) = study.runs()
        assert (run.status, run.error, run.traceback, run.test_score) == ("done", None, None, None)


def test_readers_read_while_the_driver_writes_and_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    plan = tiny_plan(seed="0-4")
    with Study.create(path) as writer:
        writer.plan("grid", plan.axes, plan.recipes(), GRAPHS, "x", {})
        with Study.open(path) as reader:
            with writer._transaction() as execute:
                execute("UPDATE runs SET status = 'running'")
                assert {run.status for run in reader.runs()} == {"planned"}
            assert {run.status for run in reader.runs()} == {"running"}
            with pytest.raises(MlapError, match="cannot be written"):
                reader.reset()


def test_a_transaction_is_whole_or_nothing(tmp_path: Path) -> None:
    plan = tiny_plan()
    with Study.create(tmp_path / "s.db") as study:
        study.plan("grid", plan.axes, plan.recipes(), GRAPHS, "x", {})
        (run,) = study.runs()
        broken = done(run.hash)
        broken.history[1].pop("lr")
        with pytest.raises(KeyError):
            study.finish(broken)
        assert study.runs() == [run]
        assert study.history(run.hash) == []
        with pytest.raises(MlapError, match="cannot be written: FOREIGN KEY"):
            study.finish(done("unknown"))


# ---- migration -----------------------------------------------------------------------------------------------------

#: a study of version 1, written down by hand; never to be changed
VERSION_1 = """
CREATE TABLE data (fingerprint TEXT PRIMARY KEY, name TEXT NOT NULL, source TEXT NOT NULL, metric TEXT NOT NULL,
    higher_is_better INTEGER NOT NULL CHECK (higher_is_better IN (0, 1)));
CREATE TABLE runs (hash TEXT PRIMARY KEY, fingerprint TEXT NOT NULL REFERENCES data, recipe TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('planned', 'running', 'done', 'failed')), best_epoch INTEGER,
    valid_score REAL, test_score REAL, num_parameters INTEGER, epochs INTEGER, seconds REAL, error TEXT,
    traceback TEXT, started TEXT, finished TEXT, host TEXT, device TEXT, versions TEXT);
CREATE TABLE epochs (hash TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, epoch INTEGER NOT NULL, lr REAL,
    train_loss REAL, valid_loss REAL, valid_score REAL, seconds REAL, PRIMARY KEY (hash, epoch)) WITHOUT ROWID;
INSERT INTO data VALUES ('f00d', 'ogbg-molhiv', 'ogbg-molhiv', 'rocauc', 1);
INSERT INTO runs VALUES ('cafe', 'f00d', '{"architecture": "naive", "layers": 3}', 'done', 1, 0.75, 0.7, 99, 1, 2.5,
    NULL, NULL, '2022-01-01T00:00:00.000+00:00', '2022-01-01T00:00:02.500+00:00', 'old', 'cpu', '{"torch": "2.6"}');
INSERT INTO epochs VALUES ('cafe', 1, 0.0001, 0.5, 0.6, 0.75, 2.5);
PRAGMA application_id = 0x6D6C6170;
PRAGMA user_version = 1;
"""


def write_sql(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def pragma(path: Path, name: str) -> object:
    connection = sqlite3.connect(path)
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    connection.close()
    return value


def check_version_1(study: Study) -> None:
    (run,) = study.runs()
    assert (run.hash, run.data_name, run.architecture, run.layers) == ("cafe", "ogbg-molhiv", "naive", 3)
    assert (run.valid_score, run.test_score, run.higher_is_better) == (0.75, 0.7, True)
    assert [epoch.valid_score for epoch in study.history("cafe")] == [0.75]
    assert run.options == {}
    assert study.plans() == []


def test_a_study_of_version_1_is_brought_up_to_date_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    write_sql(path, VERSION_1)
    for _ in range(2):
        with Study.create(path) as study:
            check_version_1(study)
    assert pragma(path, "user_version") == schema.VERSION


def test_a_study_of_version_1_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    write_sql(path, VERSION_1)
    before = path.read_bytes()
    for _ in range(2):
        with Study.open(path) as study:
            check_version_1(study)
            with pytest.raises(MlapError, match="cannot be written"):
                study.reset()
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["old.db"]


def test_plans_of_an_older_study_do_not_say_who_made_them(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    statements = (statement for version in schema.MIGRATIONS[:3] for statement in version)
    script = ";".join((*statements, f"PRAGMA application_id = {schema.APPLICATION_ID}", "PRAGMA user_version = 3", ""))
    write_sql(
        path,
        script + "INSERT INTO data VALUES ('f', 'n', 's', 'rocauc', 1, '{}');"
        "INSERT INTO plans (name, axes, fingerprint, started) VALUES ('grid', '{}', 'f', '2022');",
    )
    with Study.open(path) as study:
        assert [plan.made_by for plan in study.plans()] == [None]
    with Study.create(path) as study:
        study.plan("grid", {}, [], GRAPHS, "x", {})
        assert [plan.made_by for plan in study.plans()] == [None, made_by()]


def test_an_old_study_has_the_same_tables_as_a_new_one(tmp_path: Path) -> None:
    write_sql(tmp_path / "old.db", VERSION_1)
    Study.create(tmp_path / "old.db").close()
    Study.create(tmp_path / "new.db").close()
    tables: list[dict[str, object]] = []
    for name in ("old.db", "new.db"):
        connection = sqlite3.connect(tmp_path / name)
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE sql NOT NULL ORDER BY 1")]
        tables.append({name: list(connection.execute(f"PRAGMA table_info({name})")) for name in names})
        connection.close()
    assert tables[0] == tables[1]
    assert len(tables[0]) == 7


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.db"
    write_sql(path, VERSION_1)
    before = path.read_bytes()
    broken = (*schema.MIGRATIONS, ("CREATE TABLE fine (id INTEGER)", "CREATE TABLE runs (id INTEGER)"))
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    monkeypatch.setattr(schema, "VERSION", len(broken))
    with pytest.raises(DataError, match="could not be brought to version 6: table runs already exists"):
        Study.create(path)
    assert path.read_bytes() == before
    assert pragma(path, "user_version") == 1


# ---- what is no study ----------------------------------------------------------------------------------------------


def test_files_that_are_no_studies(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no study .*none\.db"):
        Study.open(tmp_path / "none.db")
    with pytest.raises(UsageError, match="is a folder"):
        Study.create(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("not a database " * 100)
    other = tmp_path / "other.db"
    write_sql(other, "CREATE TABLE music (title TEXT)")
    newer = tmp_path / "newer.db"
    write_sql(newer, VERSION_1 + "PRAGMA user_version = 99;")
    empty = tmp_path / "empty.db"
    empty.touch()
    for path, message in (
        (text, "is not a study: file is not a database"),
        (other, "is a database, but not a study"),
        (newer, "has version 99; this mlap knows studies up to version"),
    ):
        before = path.read_bytes()
        for way in (Study.open, Study.create):
            with pytest.raises(DataError, match=message):
                way(path)
        assert path.read_bytes() == before
    with pytest.raises(DataError, match="is empty"):
        Study.open(empty)
    Study.create(empty).close()
    with Study.open(empty) as study:
        assert study.runs() == []


# ---- the journal ---------------------------------------------------------------------------------------------------


def write_with_log(path: Path) -> None:
    """A study of version 1 with a write-ahead log, as earlier versions made them."""
    write_sql(path, "PRAGMA journal_mode = WAL;" + VERSION_1)
    assert pragma(path, "journal_mode") == "wal"


def test_a_study_has_a_rollback_journal(tmp_path: Path) -> None:
    Study.create(tmp_path / "s.db").close()
    assert pragma(tmp_path / "s.db", "journal_mode") == "delete"
    assert pragma(tmp_path / "s.db", "application_id") == schema.APPLICATION_ID
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_an_older_study_gets_one_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    write_with_log(path)
    with Study.open(path) as study:
        check_version_1(study)
    assert pragma(path, "journal_mode") == "wal"
    with Study.create(path) as study:
        check_version_1(study)
    assert pragma(path, "journal_mode") == "delete"
    assert [file.name for file in tmp_path.iterdir()] == ["s.db"]


def test_what_is_still_in_the_log_of_a_killed_driver_is_not_lost(tmp_path: Path) -> None:
    write_with_log(tmp_path / "s.db")
    driver = sqlite3.connect(tmp_path / "s.db")
    driver.execute("UPDATE runs SET test_score = 0.5")
    driver.commit()
    (tmp_path / "killed").mkdir()
    for name in ("s.db", "s.db-wal"):
        shutil.copy(tmp_path / name, tmp_path / "killed" / name)
    driver.close()
    path = tmp_path / "killed" / "s.db"
    with Study.open(path) as study:
        assert [run.test_score for run in study.runs()] == [0.5]
    with Study.create(path) as study:
        assert [run.test_score for run in study.runs()] == [0.5]
    assert [file.name for file in path.parent.iterdir()] == ["s.db"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks")
@pytest.mark.parametrize("with_log", [False, True])
def test_a_user_who_may_not_write_reads(tmp_path: Path, with_log: bool) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    if with_log:
        write_with_log(folder / "s.db")
    else:
        write_sql(folder / "s.db", VERSION_1)
        Study.create(folder / "s.db").close()
    (folder / "s.db").chmod(0o444)
    folder.chmod(0o555)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and "pytest-" in str(parent):
            parent.chmod(0o755)

    def read() -> None:
        if os.getuid() == 0:  # who may write anywhere
            os.setuid(65534)
        with pytest.raises(OSError):  # noqa: PT011 (read-only, or not permitted)
            (folder / "new").touch()
        with Study.open(folder / "s.db") as study:
            check_version_1(study)

    child = fork(read)
    _, code = os.waitpid(child, 0)
    folder.chmod(0o755)
    assert code == 0
    assert [file.name for file in folder.iterdir()] == ["s.db"]


def test_a_reader_waits_for_the_end_of_a_transaction(tmp_path: Path) -> None:
    """A commit needs the file for itself; who reads meanwhile gets the old rows or the new ones, and no error."""
    plan = tiny_plan(seed="0-4")
    with Study.create(tmp_path / "s.db") as writer:
        writer.plan("grid", plan.axes, plan.recipes(), GRAPHS, "x", {})
        exclusive = sqlite3.connect(tmp_path / "s.db", isolation_level=None, check_same_thread=False)
        exclusive.execute("BEGIN EXCLUSIVE")
        exclusive.execute("UPDATE runs SET status = 'running'")
        threading.Timer(0.3, lambda: exclusive.execute("COMMIT")).start()
        with Study.open(tmp_path / "s.db") as reader:
            assert {run.status for run in reader.runs()} == {"running"}
        exclusive.close()
