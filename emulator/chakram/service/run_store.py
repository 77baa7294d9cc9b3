"""Runs of a service, in SQLite: queued, in progress, and ended.

Everything else about a run is in its run directory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chakram.foundation.errors import RunDirectoryError
from chakram.service.api_models import RunDescription

QUEUED, RUNNING = "queued", "running"
DONE, FAILED, CANCELED, INTERRUPTED = "done", "failed", "canceled", "interrupted"
STATES = (QUEUED, RUNNING, DONE, FAILED, CANCELED, INTERRUPTED)
"""Possible states. An interrupted run was in progress when the service ended."""

ENDED = (DONE, FAILED, CANCELED, INTERRUPTED)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    verb TEXT NOT NULL,
    fabric TEXT NOT NULL,
    tags TEXT NOT NULL,
    experiment TEXT NOT NULL,
    digest TEXT NOT NULL,
    state TEXT NOT NULL,
    submitted_s REAL NOT NULL,
    started_s REAL,
    ended_s REAL,
    exit_code INTEGER,
    reason TEXT,
    directory TEXT
);
CREATE INDEX IF NOT EXISTS by_state ON runs (state, number);
CREATE INDEX IF NOT EXISTS by_digest ON runs (digest, number);
"""


class StoredRun(RunDescription):
    """One run, including properties that the API does not show.

    Attributes:
        number: Position in the order of submissions.
        experiment: Text of the experiment. Empty unless requested.
        directory: Run directory of the run.
    """

    number: int
    experiment: str
    directory: Path | None

    def document(self) -> dict[str, Any]:
        """Return the run as the API describes it, without the experiment."""
        return self.model_dump(exclude={"number", "experiment", "directory"})


_COLUMNS = tuple(name for name in StoredRun.model_fields if name != "run_directory")


class RunStore:
    """All runs of a service.

    All methods may raise ``RunDirectoryError``, for example if the disk is full.

    Args:
        path: The database, which is created if it is missing.

    Raises:
        RunDirectoryError: If the database cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained("opened as a database"):
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            # Data that a client has received must survive a crash of the machine.
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Convert database errors, such as the error of a full disk."""
        try:
            yield
        except sqlite3.Error as error:
            found = f"cannot be {what} ({error})"
            raise RunDirectoryError(str(self._path), found) from error

    def _execute(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        """Execute a statement and return its rows."""
        with self._explained("read or written"):
            return self._db.execute(text, values).fetchall()

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def add(self, **fields: Any) -> StoredRun:
        """Add a queued run and return it."""
        fields["tags"] = json.dumps(list(fields["tags"]))
        names = ", ".join(fields)
        places = ", ".join("?" * len(fields))
        self._execute(
            f"INSERT INTO runs ({names}) VALUES ({places})", tuple(fields.values())
        )
        found = self.find(fields["id"])
        assert found is not None
        return found

    def find(self, run_id: str, *, with_experiment: bool = True) -> StoredRun | None:
        """Return a run, or None."""
        found = self._select(
            "id = ?", (run_id,), limit=1, with_experiment=with_experiment
        )
        return next(iter(found), None)

    def change(self, run_id: str, **fields: Any) -> None:
        """Change fields of a run."""
        if fields.get("directory") is not None:
            fields["directory"] = str(fields["directory"])
        if "tags" in fields:
            fields["tags"] = json.dumps(list(fields["tags"]))
        texts = ", ".join(f"{name} = ?" for name in fields)
        self._execute(
            f"UPDATE runs SET {texts} WHERE id = ?", (*fields.values(), run_id)
        )

    def remove(self, run_id: str) -> None:
        """Delete a run."""
        self._execute("DELETE FROM runs WHERE id = ?", (run_id,))

    def waiting(self) -> list[StoredRun]:
        """Return the queued runs, the first one first."""
        return self._select("state = ?", (QUEUED,), order="number")

    def counts(self) -> dict[str, int]:
        """Return the number of runs by state."""
        found = dict.fromkeys(STATES, 0)
        found.update(self._execute("SELECT state, COUNT(*) FROM runs GROUP BY state"))
        return found

    def search(
        self,
        *,
        states: Sequence[str] = (),
        text: str = "",
        tag: str = "",
        owner: str = "",
        before: int | None = None,
        limit: int = 50,
    ) -> list[StoredRun]:
        """Return runs that match, the latest first.

        Args:
            states: States of the runs, or empty for all states.
            text: Part of the name or ID.
            tag: Tag of the runs, or empty for any tag.
            owner: Owner of the runs, or empty for any owner.
            before: Return only runs with smaller numbers, which start at 1.
            limit: Maximum number of runs.
        """
        conditions: dict[str, Sequence[Any]] = {
            f"state IN ({', '.join('?' * len(states))})": states,
            "(instr(lower(name), lower(?)) OR instr(id, ?))": [text, text],
            "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)": [tag],
            "owner = ?": [owner],
            "number < ?": [before],
        }
        wanted = {part: each for part, each in conditions.items() if any(each)}
        values = [value for each in wanted.values() for value in each]
        return self._select(" AND ".join(wanted) or "1", values, limit=limit)

    def last_good(self, run: StoredRun) -> StoredRun | None:
        """Return the last complete run of the same experiment before *run*, or None."""
        rows = self._select(
            "digest = ? AND verb = ? AND state = ? AND number < ?",
            (run.digest, run.verb, DONE, run.number),
            limit=1,
        )
        return next(iter(rows), None)

    def ended(self) -> list[StoredRun]:
        """Return all runs that ended, the oldest first."""
        unended = (QUEUED, RUNNING)
        return self._select("state NOT IN (?, ?)", unended, order="number")

    def _select(
        self,
        where: str,
        values: Sequence[Any],
        *,
        order: str = "number DESC",
        limit: int = -1,
        with_experiment: bool = False,
    ) -> list[StoredRun]:
        # Texts of experiments are long, and lists do not need them.
        columns = ", ".join(
            "''" if name == "experiment" and not with_experiment else name
            for name in _COLUMNS
        )
        rows = self._execute(
            f"SELECT {columns} FROM runs WHERE {where} ORDER BY {order} LIMIT ?",
            (*values, limit),
        )
        return [_run(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def _run(fields: dict[str, Any]) -> StoredRun:
    directory = fields["directory"]
    fields["tags"] = json.loads(fields["tags"])
    name = None if directory is None else Path(directory).name
    return StoredRun(**fields, run_directory=name)
