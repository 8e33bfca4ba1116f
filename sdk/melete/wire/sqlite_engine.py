"""A memory store in one SQLite file: WAL, FTS5, and erasing that leaves nothing in the file.

Forgetting deletes rows and index entries in one transaction, and `secure_delete` overwrites them. SQLite still leaves
copies where rows once moved between pages, and words in older segments of the index: so the index is merged into one
segment afterwards, the file rewritten (VACUUM) and its log emptied, in time that grows with the file. A process that is
killed before that leaves a note, and who opens the file next does it. Out of reach are copies of the file, backups,
snapshots, and blocks that a disk or a file system keeps.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from melete.errors import ConfigurationError, CouldNotTell, MeleteError, MissingFile
from melete.sqlite_errors import NEVER_WRITTEN, translate
from melete.wire import sqlite_file
from melete.wire.engines import Database, Match
from melete.wire.migrations import VERSION, run_step
from melete.wire.prepared import driver_connection
from melete.wire.tables import AnyRow

#: Up to this size the file is rewritten in memory, then copied: its content is in no second file.
_REWRITTEN_IN_MEMORY: Final = 256 * 2**20
#: How long scrubbing waits for those who read an older state, in milliseconds.
_SCRUB_PATIENCE: Final = 2_000


class SqliteDatabase(Database):
    """One file; several processes may use it."""

    BEGIN_WRITING = "BEGIN IMMEDIATE"
    BEGIN_READING = "BEGIN"
    conflict_error = sqlite3.IntegrityError
    scrubs = True

    def __init__(self, path: Path, busy_seconds: float) -> None:
        # Threads may connect after the process went to another folder.
        self.path, self._busy_seconds = path.absolute(), busy_seconds
        # The kept connections are ours (a thread each), so SQLAlchemy pools none.
        engine = create_engine("sqlite://", creator=self._connect, poolclass=NullPool, hide_parameters=True)
        super().__init__(engine, str(path))

    @classmethod
    def open(cls, path: Path, *, create: bool, busy_seconds: float) -> SqliteDatabase:
        """Open a file, or make one. Errors: see `engines.open_database`; `ConfigurationError` without FTS5."""
        try:
            version = sqlite_file.check_file(path, busy_seconds)
        except MissingFile:
            if not create:
                raise
            sqlite_file.create_file(path, partial(_fill, str(path)))
            version = sqlite_file.check_file(path, busy_seconds)
        database = cls(path, busy_seconds)
        try:
            if version < VERSION:
                database._migrate()
            database._finish_scrubbing()
        except BaseException:
            database.close()
            raise
        return database

    def _connect(self) -> sqlite3.Connection:
        return sqlite_file.connect_to_use(self.path, self._busy_seconds)

    def _migrate(self) -> None:
        version = 0
        while version < VERSION:
            with self.writing() as connection:
                version = connection.exec_driver_sql("SELECT version FROM meta").scalar_one()
                if version < VERSION:
                    version = run_step(connection, version)

    # Transactions

    def translate(self, error: BaseException | None) -> MeleteError:
        return translate(error, self.label)

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, UnicodeDecodeError)

    def _end(self, connection: Connection) -> None:
        # After a failed COMMIT the transaction is still open; when there was no room, SQLite has ended it by itself.
        with suppress(sqlite3.Error):
            db = driver_connection(connection)
            if db.in_transaction:
                db.execute("ROLLBACK")

    def lock_head(self, connection: Connection) -> tuple[int, bytes]:
        row = driver_connection(connection).execute("SELECT number, hash FROM meta").fetchone()
        if row is None:
            raise self.unreadable(NEVER_WRITTEN)
        number, digest = row
        return number, digest

    # Erasing

    def scrub(self) -> bool:
        session = self._session()
        if session.depth:
            raise ConfigurationError("a store is scrubbed outside of a transaction; end that one first")
        db = driver_connection(session.connection)
        try:
            in_memory = self.path.stat().st_size <= _REWRITTEN_IN_MEMORY
            db.execute(f"PRAGMA temp_store = {'MEMORY' if in_memory else 'FILE'}")
            # What was deleted from the index stays in its older segments until all are merged into one.
            db.execute("INSERT INTO memory_text (memory_text) VALUES ('optimize')")
            db.execute("VACUUM")
            db.execute(f"PRAGMA busy_timeout = {_SCRUB_PATIENCE}")
            ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not busy:
                db.execute("UPDATE meta SET unscrubbed = 0")
        except (sqlite3.Error, OSError):
            return False  # noted in the file still; the next one tries again
        else:
            return not busy
        finally:
            with suppress(sqlite3.Error):
                db.execute("PRAGMA temp_store = MEMORY")
                db.execute(f"PRAGMA busy_timeout = {round(self._busy_seconds * 1000)}")

    def _finish_scrubbing(self) -> None:
        with self.reading() as connection:
            due = connection.exec_driver_sql("SELECT unscrubbed FROM meta").scalar_one()
        if due:
            with suppress(CouldNotTell):
                self.scrub()

    # The text index

    def add_terms(self, connection: Connection, document: int, words: Sequence[str], tags: Sequence[str]) -> None:
        terms = " ".join([*words, *tags])
        db = driver_connection(connection)
        db.execute("INSERT INTO memory_text (rowid, terms) VALUES (?, ?)", (document, terms))

    def remove_terms(self, connection: Connection, documents: Sequence[int]) -> None:
        for document in documents:
            connection.exec_driver_sql("DELETE FROM memory_text WHERE rowid = ?", (document,))

    def find_documents(self, connection: Connection, matches: Sequence[Match], now: int | None) -> list[list[int]]:
        alive = ""
        if now is not None:
            alive = " AND NOT EXISTS (SELECT 1 FROM memories WHERE document = memory_text.rowid AND expires_at <= ?)"
        # One row for all: a statement, or a row for each document, would cost more than looking it up.
        found = (
            "(SELECT group_concat(d) FROM (SELECT rowid AS d FROM memory_text"  # noqa: S608
            f" WHERE memory_text MATCH ?{alive} ORDER BY rowid DESC LIMIT ?))"
        )
        query = f"SELECT {', '.join([found] * len(matches))}"
        values: list[object] = []
        for match in matches:
            values += [_expression(match), *([] if now is None else [now]), match.limit]
        row = driver_connection(connection).execute(query, values).fetchone()
        return [list(map(int, documents.split(","))) if documents else [] for documents in row]

    def count_documents(self, connection: Connection, match: Match) -> int:
        query = "SELECT count(*) FROM (SELECT 1 FROM memory_text WHERE memory_text MATCH ? LIMIT ?)"
        count: int = connection.exec_driver_sql(query, (_expression(match), match.limit)).scalar_one()
        return count

    def load_documents(self, connection: Connection, columns: str, documents: Sequence[int]) -> Sequence[AnyRow]:
        query = f"SELECT {columns} FROM memories WHERE document IN (SELECT value FROM json_each(?))"  # noqa: S608
        rows: Sequence[AnyRow] = driver_connection(connection).execute(query, (json.dumps(documents),)).fetchall()
        return rows

    def arrange_terms(self, words: Sequence[str], tags: Sequence[str]) -> list[list[str]]:
        return [sorted([*words, *tags])]

    def load_terms(self, connection: Connection, documents: Sequence[int]) -> dict[int, list[list[str]]]:
        query = "SELECT id, c0 FROM memory_text_content WHERE id IN (SELECT value FROM json_each(?))"
        rows = driver_connection(connection).execute(query, (json.dumps(list(documents)),)).fetchall()
        return {row[0]: [sorted(row[1].split() if isinstance(row[1], str) else [])] for row in rows}

    def compare_index(self, connection: Connection) -> tuple[int | None, int | None]:
        lacking = connection.exec_driver_sql(
            "SELECT min(document) FROM memories WHERE merged_into IS NULL"
            " AND document NOT IN (SELECT id FROM memory_text_content)"
        ).scalar_one()
        foreign = connection.exec_driver_sql(
            "SELECT min(id) FROM memory_text_content"
            " WHERE id NOT IN (SELECT document FROM memories WHERE merged_into IS NULL)"
        ).scalar_one()
        return lacking, foreign


def _expression(match: Match) -> str:
    """Return what FTS5 reads: every term quoted. A term holds no quotes, and nothing else that means something."""
    parts = [f'"{term}"' for term in match.all_of]
    if match.any_of:
        parts.append("(" + " OR ".join(f'"{term}"' for term in match.any_of) + ")")
    return " AND ".join(parts)


def _fill(label: str, path: Path) -> None:
    """Run all steps on a new, empty file, which nobody else sees before it is whole and on disk.

    Errors call it by `label`, the name that was asked for.
    """
    engine = create_engine("sqlite://", creator=lambda: sqlite_file.connect(path, "mode=rw", 0), poolclass=NullPool)
    try:
        with closing(engine.connect()) as connection:
            for setting in (
                f"application_id = {sqlite_file.APPLICATION_ID}",
                "journal_mode = MEMORY",
                "synchronous = OFF",
            ):
                connection.exec_driver_sql(f"PRAGMA {setting}")
            for version in range(VERSION):
                run_step(connection, version)
            # From the start, so that opening never changes it: half of that could not be looked at.
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    except DBAPIError as error:
        if "fts5" in str(error.orig):
            reason = "this Python's SQLite has no FTS5, which a memory store needs; use another build of Python"
            raise ConfigurationError(reason) from None
        raise translate(error.orig, label) from None
    finally:
        engine.dispose()
