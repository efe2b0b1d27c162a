"""A study: many runs in one SQLite file.

A run is identified by a hash of its recipe and its data, so a study is a set: what is in it need not be run again.
Anyone may read a study at any time, also while a sweep goes on; only the driver of a sweep writes. Reading changes
nothing, so that it also works on a disk, or for a user, that may not write.

The file has a rollback journal. Earlier studies had a write-ahead log, which can damage a database in SQLite 3.7.0 to
3.51.2 (https://www.sqlite.org/wal.html), and which one writer does not need.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from mlap.checks import expect, need_fields
from mlap.errors import DataError, MlapError, UsageError
from mlap.files import first_line
from mlap.graphs import GraphSet
from mlap.names import METRICS
from mlap.provenance import made_by
from mlap.study import schema
from mlap.study.engine import Done, Failed
from mlap.training import Epoch, Recipe

#: The fields of version 0.1.0, which every hash covers. A field that recipes gained later counts only where it is not
#: at its default, so that the hashes of older runs stay what they are.
FOUNDING_FIELDS = frozenset(
    (
        *("architecture", "layers", "width", "backbone", "norm", "residual", "dropout"),
        *("epochs", "batch_size", "lr", "lr_decay", "lr_decay_every", "weight_decay", "seed"),
    )
)
_DEFAULTS = Recipe().as_dict()

_Record = TypeVar("_Record")


def run_hash(recipe: Recipe, fingerprint: str) -> str:
    """The identity of a run: the same recipe on the same data is the same run."""
    fields = {
        name: value for name, value in recipe.as_dict().items() if name in FOUNDING_FIELDS or value != _DEFAULTS[name]
    }
    text = json.dumps({"recipe": fields, "data": fingerprint}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RunRecord:
    """One run of a study.

    Args:
        hash: its identity; see `run_hash`.
        recipe: how the network is trained.
        data_name: the name of the data set.
        fingerprint: the identity of the data.
        source: how the data were named by the user.
        metric: how scores are measured.
        higher_is_better: whether a higher score is a better one.
        status: `planned`, `running`, `done` or `failed`.
        best_epoch: the first epoch with the best validation score; this and the following are `None` until done.
        valid_score: the validation score there.
        test_score: the test score there; also `None` if the set has no test split.
        num_parameters: of the network.
        epochs: how many epochs were trained.
        seconds: the time that training took, without interruptions.
        error: of a failed run, one line.
        traceback: of a failed run, where the error came from.
        started: when it was last started (ISO 8601, UTC).
        finished: when it was done or failed.
        host: the machine it ran on.
        device: the torch device.
        versions: of the packages that matter; `source` is `mlap.provenance.source_id`.
        options: how the data were read: the options of `mlap.graphs.load_graphs`.
    """

    hash: str
    recipe: Recipe
    data_name: str
    fingerprint: str
    source: str
    metric: str
    higher_is_better: bool
    status: str
    best_epoch: int | None = None
    valid_score: float | None = None
    test_score: float | None = None
    num_parameters: int | None = None
    epochs: int | None = None
    seconds: float | None = None
    error: str | None = None
    traceback: str | None = None
    started: str | None = None
    finished: str | None = None
    host: str | None = None
    device: str | None = None
    versions: dict[str, str] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """How levels become one vector per graph."""
        return self.recipe.architecture

    @property
    def layers(self) -> int:
        """The depth."""
        return self.recipe.layers

    @property
    def norm(self) -> str:
        """The normalisation; `graph` is GraphNorm, `none` is none."""
        return self.recipe.norm

    @property
    def seed(self) -> int:
        """The seed."""
        return self.recipe.seed


@dataclass(frozen=True)
class BaselineRecord:
    """A simple model that was fitted to the data of a study.

    Args:
        hash: its identity.
        name: one of `mlap.names.BASELINES`.
        seed: its seed.
        data_name: the name of the data set.
        fingerprint: the identity of the data.
        metric: how scores are measured.
        higher_is_better: whether a higher score is a better one.
        status: `done` or `failed`.
        valid_score: the validation score; `None` if it failed, or if the part does not define it.
        test_score: the test score likewise.
        num_parameters: the numbers that it keeps.
        seconds: how long the fit took, on all cores.
        error: why it failed, in one line.
        finished: when (ISO 8601, UTC).
        host: the machine.
        versions: of the packages that matter.
    """

    hash: str
    name: str
    seed: int
    data_name: str
    fingerprint: str
    metric: str
    higher_is_better: bool
    status: str
    valid_score: float | None = None
    test_score: float | None = None
    num_parameters: int | None = None
    seconds: float | None = None
    error: str | None = None
    finished: str | None = None
    host: str | None = None
    versions: dict[str, str] | None = None


@dataclass(frozen=True)
class PlanRecord:
    """What a sweep was asked for.

    Args:
        name: `paper`, `quick`, the name of a file, or `grid`.
        axes: recipe field → its values.
        fingerprint: the identity of the data.
        started: when (ISO 8601, UTC).
        made_by: the version and sources of `mlap`; `None` in older studies.
    """

    name: str
    axes: dict[str, list[Any]]
    fingerprint: str
    started: str
    made_by: str | None = None


_COLUMNS = tuple(
    field.name
    for field in dataclasses.fields(RunRecord)
    if field.name not in ("data_name", "source", "options", "metric", "higher_is_better")
)
_RUNS = (
    f"SELECT {', '.join(f'runs.{column}' for column in _COLUMNS)}, "
    "data.name AS data_name, source, options, metric, higher_is_better "
    "FROM runs JOIN data ON data.fingerprint = runs.fingerprint"
)
_RESULT = ("best_epoch", "valid_score", "test_score", "num_parameters", "epochs")
_EPOCH = tuple(field.name for field in dataclasses.fields(Epoch))


class Study:
    """An open study; a context manager that closes it.

    Example:
        >>> with Study.open("study.db") as study:  # doctest: +SKIP
        ...     scores = [run.test_score for run in study.runs() if run.status == "done"]
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @staticmethod
    def exists(path: str | Path) -> bool:
        """Whether a sweep has written to a study: the file may be empty if the first one was stopped at once."""
        path = Path(path)
        if not path.exists():
            return False
        if not path.is_file():
            return True  # whatever it is, opening it will say so
        with _closed_on_error(path, _connect_to_read(path)) as connection, closing(connection):
            return schema.version_of(connection, path) > 0

    @classmethod
    def open(cls, path: str | Path) -> Study:
        """Open a study to read it. One of an older version is brought up to date in memory; the file stays as it is."""
        path = Path(path)
        if not path.is_file():
            raise UsageError(f"there is no study {path}", field="study")
        with _closed_on_error(path, _connect_to_read(path)) as connection:
            version = schema.version_of(connection, path)
            if version == 0:
                raise DataError(f"{path} is empty: no sweep has written to it yet")
        if version < schema.VERSION:
            connection = _updated_copy(path, connection)
        return cls(path, connection)

    @classmethod
    def create(cls, path: str | Path) -> Study:
        """Open a study to write to it; make it if there is none. The caller holds its lock (`mlap.locking`)."""
        path = Path(path)
        if path.is_dir():
            raise UsageError(
                f"a study is a file, but {path} is a folder", field="study", suggest=str(path / "study.db")
            )
        with _closed_on_error(path, _connect(path, path)) as connection:
            version = schema.version_of(connection, path)
            connection.execute("PRAGMA journal_mode = DELETE")
            # Power may fail: a run directory is removed only after its result is really on disk.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA foreign_keys = ON")
            if version < schema.VERSION:
                schema.migrate(connection, path)
        return cls(path, connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ---- reading ---------------------------------------------------------------------------------------------

    def runs(self) -> list[RunRecord]:
        """All runs, in the order in which they were planned."""
        return self._made(_record, f"{_RUNS} ORDER BY runs.rowid")

    def runs_on(self, fingerprint: str) -> list[RunRecord]:
        """The runs on one data set, in the same order."""
        return self._made(_record, f"{_RUNS} WHERE runs.fingerprint = ? ORDER BY runs.rowid", (fingerprint,))

    def trials(self, search: str) -> list[RunRecord]:
        """The runs of a search in the order of its trials; the same run may be there more than once."""
        joined = f"{_RUNS} JOIN trials ON trials.hash = runs.hash"
        return self._made(_record, f"{joined} WHERE search = ? ORDER BY number", (search,))

    def history(self, hash: str) -> list[Epoch]:
        """The epochs of a finished run."""
        query = f"SELECT {', '.join(_EPOCH)} FROM epochs WHERE hash = ? ORDER BY epoch"
        return self._made(_epoch, query, (hash,))

    def plans(self) -> list[PlanRecord]:
        """What the sweeps on this study were asked for, the first one first."""
        return self._made(_plan, "SELECT name, axes, fingerprint, started, made_by FROM plans ORDER BY id")

    def baselines(self) -> list[BaselineRecord]:
        """The baselines, in the order in which they were fitted."""
        columns = [field.name for field in dataclasses.fields(BaselineRecord)]
        of_data = {"data_name": "data.name AS data_name", "metric": "metric", "higher_is_better": "higher_is_better"}
        chosen = ", ".join(of_data.get(column, f"baselines.{column}") for column in columns)
        joined = "baselines JOIN data ON data.fingerprint = baselines.fingerprint"
        return self._made(_baseline, f"SELECT {chosen} FROM {joined} ORDER BY baselines.rowid")

    def _made(self, make: Callable[[dict[str, Any]], _Record], query: str, values: Sequence[Any] = ()) -> list[_Record]:
        """The records of a query's rows; a cell that such a record cannot have is a `DataError`."""
        rows = self._read(query, values)
        try:
            return [make(row) for row in rows]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise DataError(f"{self.path} is damaged: {first_line(error)}") from error

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        try:
            cursor = self._connection.execute(query, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        except sqlite3.Error as error:
            raise DataError(f"{self.path} cannot be read: {error}") from error

    # ---- writing: the driver of a sweep only -----------------------------------------------------------------

    def plan(
        self,
        name: str,
        axes: Mapping[str, Sequence[Any]],
        recipes: Iterable[Recipe],
        graphs: GraphSet,
        source: str,
        options: Mapping[str, Any],
    ) -> None:
        """Note what is asked for; runs that are not in the study yet become planned ones."""
        with self._transaction() as execute:
            execute(*_insert_data(graphs, source, options))
            for recipe in recipes:
                execute(*_insert_run(recipe, graphs.fingerprint))
            execute(
                "INSERT INTO plans (name, axes, fingerprint, started, made_by) VALUES (?, ?, ?, ?, ?)",
                (name, json.dumps(axes), graphs.fingerprint, _now(), made_by()),
            )

    def search(self, key: str, space: str, graphs: GraphSet, source: str, options: Mapping[str, Any]) -> None:
        """Note that a space is searched on some data; a search that is there already goes on."""
        with self._transaction() as execute:
            execute(*_insert_data(graphs, source, options))
            execute(
                "INSERT OR IGNORE INTO searches (key, fingerprint, space, started, made_by) VALUES (?, ?, ?, ?, ?)",
                (key, graphs.fingerprint, space, _now(), made_by()),
            )

    def add_trial(self, search: str, recipe: Recipe, fingerprint: str) -> None:
        """One more trial of a search; if its run is not in the study yet, it is planned."""
        with self._transaction() as execute:
            execute(*_insert_run(recipe, fingerprint))
            execute(
                "INSERT INTO trials (search, number, hash) "
                "VALUES (?1, (SELECT count(*) FROM trials WHERE search = ?1), ?2)",
                (search, run_hash(recipe, fingerprint)),
            )

    def add_baseline(
        self, values: Mapping[str, Any], graphs: GraphSet, source: str, options: Mapping[str, Any]
    ) -> None:
        """A baseline was fitted, or failed; it replaces an earlier record of the same."""
        values = {**values, "fingerprint": graphs.fingerprint, "finished": _now()}
        with self._transaction() as execute:
            execute(*_insert_data(graphs, source, options))
            execute(
                f"INSERT OR REPLACE INTO baselines ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
                tuple(values.values()),
            )

    def reset(self) -> None:
        """No run is running: what an interrupted sweep left so is planned again."""
        with self._transaction() as execute:
            execute("UPDATE runs SET status = 'planned' WHERE status = 'running'")

    def start(self, hash: str) -> None:
        """A run starts, or goes on."""
        with self._transaction() as execute:
            execute(
                "UPDATE runs SET status = 'running', error = NULL, traceback = NULL, finished = NULL, started = ? "
                "WHERE hash = ?",
                (_now(), hash),
            )

    def finish(self, done: Done) -> None:
        """A run is done: its scores and its epochs, in one step."""
        values = {column: done.result[column] for column in _RESULT} | {
            "seconds": sum(epoch["seconds"] for epoch in done.history),
            "finished": _now(),
            "host": done.host,
            "device": done.device,
            "versions": json.dumps(done.versions),
        }
        with self._transaction() as execute:
            execute(
                f"UPDATE runs SET status = 'done', {', '.join(f'{column} = ?' for column in values)} WHERE hash = ?",
                (*values.values(), done.hash),
            )
            for epoch in done.history:
                execute(
                    f"INSERT OR REPLACE INTO epochs (hash, {', '.join(_EPOCH)}) VALUES (?{', ?' * len(_EPOCH)})",
                    (done.hash, *(epoch[column] for column in _EPOCH)),
                )

    def fail(self, failed: Failed) -> None:
        """A run failed."""
        with self._transaction() as execute:
            execute(
                "UPDATE runs SET status = 'failed', error = ?, traceback = ?, host = ?, finished = ? WHERE hash = ?",
                (failed.error, failed.traceback, failed.host, _now(), failed.hash),
            )

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection.execute
            self._connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise MlapError(f"{self.path} cannot be written: {error}") from error
            raise


def _connect(path: Path, database: str | Path) -> sqlite3.Connection:
    try:
        # A reader waits while the driver ends a transaction, and the driver while someone reads; nobody waits long.
        return sqlite3.connect(database, timeout=30, isolation_level=None, uri=isinstance(database, str))
    except sqlite3.Error as error:
        raise DataError(f"{path} cannot be opened: {error}") from error


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, also to a file with a write-ahead log where no file can be made beside it."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = _connect(path, address)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        if path.with_name(f"{path.name}-journal").exists():
            connection.close()
            return _rolled_back_copy(path)
        log = path.with_name(f"{path.name}-wal")
        if _has_log(path) and not (log.exists() and log.stat().st_size):
            connection.close()  # nothing is in the log: the file itself is the whole study
            return _connect(path, f"{address}&immutable=1")
    except sqlite3.Error:
        pass  # whatever it is, the first question about the file will say so
    return connection


def _rolled_back_copy(path: Path) -> sqlite3.Connection:
    """A copy in memory of a study whose writer was killed, as it was before: to mend the file itself is for writers."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with _closed_on_error(path, copy), tempfile.TemporaryDirectory() as folder:
        for name in (f"{path.name}-journal", path.name):
            shutil.copyfile(path.with_name(name), Path(folder) / name)
        with closing(sqlite3.connect(Path(folder) / path.name)) as file:
            file.backup(copy)
    return copy


def _has_log(path: Path) -> bool:
    """Whether the header of a database says that it has a write-ahead log (https://www.sqlite.org/fileformat.html)."""
    try:
        with path.open("rb") as file:
            return file.read(20)[18:] == b"\2\2"
    except OSError:
        return False


def _updated_copy(path: Path, connection: sqlite3.Connection) -> sqlite3.Connection:
    """A copy of an older study in memory, with the tables of today."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with _closed_on_error(path, copy):
        try:
            connection.backup(copy)
        finally:
            connection.close()
        schema.migrate(copy, path)
        copy.execute("PRAGMA query_only = ON")
    return copy


@contextmanager
def _closed_on_error(path: Path, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Close a connection if what is done with it first fails."""
    try:
        yield connection
    except sqlite3.Error as error:
        connection.close()
        raise DataError(f"{path} cannot be opened: {error}") from error
    except BaseException:
        connection.close()
        raise


def _insert_data(graphs: GraphSet, source: str, options: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    assert graphs.task is not None
    data = {
        "fingerprint": graphs.fingerprint,
        "name": graphs.name,
        "source": source,
        "options": json.dumps(options),
        "metric": graphs.task.metric,
        "higher_is_better": graphs.task.higher_is_better,
    }
    marks = ", ".join("?" * len(data))
    return f"INSERT OR IGNORE INTO data ({', '.join(data)}) VALUES ({marks})", tuple(data.values())


def _insert_run(recipe: Recipe, fingerprint: str) -> tuple[str, tuple[Any, ...]]:
    return (
        "INSERT OR IGNORE INTO runs (hash, fingerprint, recipe, status) VALUES (?, ?, ?, 'planned')",
        (run_hash(recipe, fingerprint), fingerprint, json.dumps(recipe.as_dict())),
    )


def _record(row: dict[str, Any]) -> RunRecord:
    row = {**row, **_parsed(row, "recipe", "options", "versions"), "higher_is_better": bool(row["higher_is_better"])}
    need_fields(row, RunRecord, besides=("recipe",))
    _check_names(row)
    return RunRecord(**{**row, "recipe": Recipe.of(row["recipe"])})


def _baseline(row: dict[str, Any]) -> BaselineRecord:
    row = {**row, **_parsed(row, "versions"), "higher_is_better": bool(row["higher_is_better"])}
    need_fields(row, BaselineRecord)
    _check_names(row)
    return BaselineRecord(**row)


def _plan(row: dict[str, Any]) -> PlanRecord:
    row = {**row, **_parsed(row, "axes")}
    need_fields(row, PlanRecord)
    expect(all(isinstance(values, list) for values in row["axes"].values()), "axes", row["axes"])
    return PlanRecord(**row)


def _epoch(row: dict[str, Any]) -> Epoch:
    row = {name: _number(value) for name, value in row.items()}
    need_fields(row, Epoch)
    return Epoch(**row)


def _parsed(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The cells that hold JSON objects, read."""
    found = {name: None if row[name] is None else json.loads(row[name]) for name in names}
    for name, value in found.items():
        expect(value is None or isinstance(value, dict), name, value)
    return found


def _check_names(row: Mapping[str, Any]) -> None:
    expect(row["metric"] in METRICS, "metric", row["metric"])
    expect(row["status"] in ("planned", "running", "done", "failed"), "status", row["status"])
    if row["status"] == "done" and "best_epoch" in row:
        expect(None not in (row["best_epoch"], row["epochs"]), "the epochs of a finished run", None)


def _number(value: Any) -> Any:
    """A number of an epoch; SQLite has no NaN and keeps one as NULL."""
    return float("nan") if value is None else value


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
