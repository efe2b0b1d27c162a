"""The tables of a study, and how an older study becomes one of today.

`MIGRATIONS[n]` takes a study from version n to n + 1; a new file has version 0. What was released is never edited:
a change of the tables is one more entry at the end.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from mlap.errors import DataError

#: marks an SQLite file as a study, in a place that SQLite keeps for this purpose ("mlap" in ASCII)
APPLICATION_ID = 0x6D6C6170

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE data (
            fingerprint TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            source TEXT NOT NULL,
            metric TEXT NOT NULL,
            higher_is_better INTEGER NOT NULL CHECK (higher_is_better IN (0, 1))
        )
        """,
        """
        CREATE TABLE runs (
            hash TEXT PRIMARY KEY,
            fingerprint TEXT NOT NULL REFERENCES data,
            recipe TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('planned', 'running', 'done', 'failed')),
            best_epoch INTEGER,
            valid_score REAL,
            test_score REAL,
            num_parameters INTEGER,
            epochs INTEGER,
            seconds REAL,
            error TEXT,
            traceback TEXT,
            started TEXT,
            finished TEXT,
            host TEXT,
            device TEXT,
            versions TEXT
        )
        """,
        """
        CREATE TABLE epochs (
            hash TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
            epoch INTEGER NOT NULL,
            lr REAL,
            train_loss REAL,
            valid_loss REAL,
            valid_score REAL,
            seconds REAL,
            PRIMARY KEY (hash, epoch)
        ) WITHOUT ROWID
        """,
    ),
    (
        # How the data were read: a table of molecules has columns to choose, and ways to split it.
        "ALTER TABLE data ADD COLUMN options TEXT NOT NULL DEFAULT '{}'",
        # What was asked for, and when: a study says by itself whether its runs are the paper's protocol or less.
        """
        CREATE TABLE plans (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL,
            axes TEXT NOT NULL,
            fingerprint TEXT NOT NULL REFERENCES data,
            started TEXT NOT NULL
        )
        """,
    ),
    (
        # Searches: each trial is a run like any other; a run may be a trial of several searches, or of none.
        """
        CREATE TABLE searches (
            key TEXT PRIMARY KEY,
            fingerprint TEXT NOT NULL REFERENCES data,
            space TEXT NOT NULL,
            started TEXT NOT NULL
        )
        """,
        """
        CREATE TABLE trials (
            search TEXT NOT NULL REFERENCES searches,
            number INTEGER NOT NULL,
            hash TEXT NOT NULL REFERENCES runs,
            PRIMARY KEY (search, number)
        ) WITHOUT ROWID
        """,
    ),
    (
        # Which mlap was asked (`mlap.provenance.made_by`); a run says so in its versions.
        "ALTER TABLE plans ADD COLUMN made_by TEXT",
        "ALTER TABLE searches ADD COLUMN made_by TEXT",
    ),
    (
        # Simple models on the same data: they have no recipe and no epochs, so they are no runs.
        """
        CREATE TABLE baselines (
            hash TEXT PRIMARY KEY,
            fingerprint TEXT NOT NULL REFERENCES data,
            name TEXT NOT NULL,
            seed INTEGER NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
            valid_score REAL,
            test_score REAL,
            num_parameters INTEGER,
            seconds REAL,
            error TEXT,
            finished TEXT NOT NULL,
            host TEXT,
            versions TEXT
        )
        """,
    ),
)

VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection, path: object) -> int:
    """The version of an opened study; 0 if the file is empty. Any other file is an error."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    except sqlite3.DatabaseError as error:
        raise DataError(f"{path} is not a study: {error}") from error
    if application != APPLICATION_ID and tables:
        raise DataError(f"{path} is a database, but not a study")
    if version > VERSION:
        raise DataError(f"{path} has version {version}; this mlap knows studies up to version {VERSION}: update mlap")
    return int(version)


def migrate(connection: sqlite3.Connection, path: object) -> None:
    """Bring an opened study up to date, in one transaction: after any interruption it is as it was, or done."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for version in range(version_of(connection, path), VERSION):
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise DataError(f"{path} could not be brought to version {VERSION}: {error}") from error
