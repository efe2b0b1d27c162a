"""Uploaded tables: predicted piece by piece while the page looks on, kept in a temporary folder, then forgotten."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from mlap.errors import MlapError
from mlap.files import first_line, scratch_folder
from mlap.graphs.inputs import iter_inputs
from mlap.models import Predictions
from mlap.serve import schemas
from mlap.serve.explorer import Explorer
from mlap.serve.limits import CHARACTERS
from mlap.serve.names import name_column
from mlap.serve.problems import Problem, busy

#: rows at a time, so that questions need not wait long between two pieces
PIECE = 50
#: rows of one answer
PAGE = 200
ENDINGS = (".csv", ".tsv", ".smi")
WORKERS = 2


class Table:
    """One uploaded table and what has been predicted of it.

    Args:
        name: what the user calls the file.
        folder: where it lies; its own, and removed with it.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.id = secrets.token_urlsafe(9)
        self.name = name
        self.folder = folder
        self.source = folder / f"table{_ending(name)}"
        self.result = folder / "predictions.csv"
        self.lines = 0
        self.columns: list[str] = []
        self.named = False
        self.rows: list[schemas.Row] = []
        self.invalid = 0
        self.notes: list[str] = []
        self.problem = ""
        self.finished = False
        self.stopped = False

    def state(self) -> schemas.Table:
        """What there is to tell."""
        return schemas.Table(
            id=self.id,
            name=self.name,
            lines=self.lines,
            done=len(self.rows),
            invalid=self.invalid,
            finished=self.finished,
            problem=self.problem or None,
            notes=self.notes,
            columns=self.columns,
            named=self.named,
        )

    def predict(self, explorer: Explorer) -> None:
        """Predict all rows; errors in the file end it with a reason."""
        limits = explorer.limits
        try:
            for inputs in iter_inputs(self.source, rows=PIECE, processes=1, say=self.notes.append):
                if self.stopped:
                    return
                too_long = next((text for text in inputs.smiles or () if len(text) > CHARACTERS), None)
                if too_long is not None:
                    raise Problem(422, f"a SMILES has {len(too_long):,} characters; at most {CHARACTERS:,} are read")
                with explorer.lock:
                    predictions = explorer.model.predict_inputs(inputs, **explorer.options)
                self._keep(predictions)
                if len(self.rows) >= limits.rows:
                    self.problem = f"only the first {limits.rows:,} rows were predicted"
                    break
                time.sleep(0.001)  # a waiting question takes the lock
        except (MlapError, Problem, OSError, UnicodeError) as error:
            self.problem = first_line(error)
        except Exception as error:  # a thread has nobody else to tell
            self.problem = f"the table could not be read: {type(error).__name__}"
        finally:
            self.source.unlink(missing_ok=True)
            self.finished = True

    def _keep(self, predictions: Predictions) -> None:
        text = predictions.to_csv()
        if self.rows:
            text = text.partition("\n")[2]
        with self.result.open("a", encoding="utf-8", newline="") as file:
            file.write(text)
        own = predictions.table(extra_columns=False)
        self.columns = [name for name in own if name not in (predictions.label, "error")]
        names = name_column(predictions.columns)
        self.named = names is not None
        if names is not None:
            own = {**own, names: list(predictions.columns[names])}
            self.columns = [names, *(name for name in self.columns if name != names)]
        first = len(self.rows)
        for number, name in enumerate(predictions.names):
            error = predictions.invalid.get(number)
            self.invalid += error is not None
            values = [_cell(own[column][number]) for column in self.columns]
            self.rows.append(schemas.Row(row=first + number, smiles=name, values=values, error=error))

    def page(
        self, offset: int, limit: int, sort: str | None, descending: bool, contains: str, show: str
    ) -> schemas.Rows:
        """Some of the rows that pass the filters, in the order asked for."""
        rows = self.rows[:]
        if show != "all":
            rows = [row for row in rows if (row.error is not None) == (show == "invalid")]
        if contains:
            wanted = contains.lower()
            rows = [row for row in rows if any(wanted in str(cell).lower() for cell in (row.smiles, *row.values))]
        if sort == "smiles":
            rows.sort(key=lambda row: row.smiles, reverse=descending)
        elif sort is not None:
            if sort not in self.columns:
                raise Problem(422, f"there is no column {sort!r}; there are {', '.join(self.columns)}", "sort")
            at = self.columns.index(sort)
            known = [row for row in rows if row.values[at] is not None]
            known.sort(key=lambda row: _order(row.values[at]), reverse=descending)
            rows = known + [row for row in rows if row.values[at] is None]  # what is unknown comes last, either way
        elif descending:
            rows.reverse()
        return schemas.Rows(total=len(rows), rows=rows[offset : offset + limit])


class Tables:
    """The tables that were uploaded, the newest few of them."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.folder = scratch_folder("mlap-serve")
        self._tables: OrderedDict[str, Table] = OrderedDict()

    def new(self, name: str) -> Table:
        """A table whose file is still to come."""
        if not self.explorer.model.reads_molecules:
            raise Problem(409, "this model does not read molecules, so there is no table of them to predict")
        if _ending(name) not in ENDINGS:
            raise Problem(415, f"the file must end in {', '.join(ENDINGS)}", "name")
        if sum(not table.finished for table in self._tables.values()) >= WORKERS:
            raise busy(f"{WORKERS} tables are being predicted")
        return Table(name, Path(tempfile.mkdtemp(dir=self.folder)))

    def start(self, table: Table) -> None:
        """Predict a table whose file is there; the oldest makes room for it."""
        self._tables[table.id] = table
        while len(self._tables) > self.explorer.limits.tables:
            self.remove(next(iter(self._tables)))
        threading.Thread(target=table.predict, args=(self.explorer,), name="mlap-table", daemon=True).start()

    def __getitem__(self, key: str) -> Table:
        if key not in self._tables:
            raise Problem(404, "there is no such table; old ones make room for new ones", "id")
        return self._tables[key]

    def finished(self, key: str) -> Table:
        """A table whose predictions are all there."""
        table = self[key]
        if not table.finished:
            raise Problem(409, f"the table is not predicted yet: {len(table.rows):,} rows are")
        if not table.rows:
            raise Problem(409, table.problem or "the table has no rows")
        return table

    def remove(self, key: str) -> None:
        """Forget a table and delete its files."""
        table = self[key]
        del self._tables[key]
        self.discard(table)

    def discard(self, table: Table) -> None:
        """Delete the files of a table."""
        table.stopped = True
        shutil.rmtree(table.folder, ignore_errors=True)

    def close(self) -> None:
        """Delete everything."""
        for table in self._tables.values():
            table.stopped = True
        end = time.monotonic() + 2
        while self.folder.exists() and time.monotonic() < end:
            # A thread that still predicts may write into a folder that is being removed, which then is not empty.
            shutil.rmtree(self.folder, ignore_errors=True)


def _ending(name: str) -> str:
    return Path(name).suffix.lower()


def _cell(value: Any) -> str | float | None:
    return value if value is None or isinstance(value, int | float) else str(value)


def _order(value: Any) -> tuple[bool, Any]:
    """Numbers before texts, each in its own order."""
    return isinstance(value, str), value
