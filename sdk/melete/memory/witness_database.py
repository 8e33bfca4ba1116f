"""A connection to a witness store that processes and threads share: transactions, erased bytes, backups.

Every commit is on disk when it returns. All of SQLite's errors leave as errors of ours.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from melete.errors import (
    ConfigurationError,
    CouldNotTell,
    NotScrubbed,
    StoreBusy,
    StoreNotWritten,
    StoreUnreadable,
    WrongKey,
)
from melete.memory import witness_file
from melete.memory.witness_file import check_header, connect, connect_to_look, new_file, read_key_record
from melete.memory.witness_keys import Key, Sealer
from melete.sqlite_errors import translate

#: How long to wait for other processes.
BUSY_SECONDS: Final = 30.0


class Database:
    """A connection to one store, with the sealer that its key gives.

    Threads may share it; each process opens its own.
    """

    def __init__(self, path: Path, key: Key, *, read_only: bool = False, busy_seconds: float = BUSY_SECONDS) -> None:
        """Open an existing store. Errors: `MissingFile`, `StoreUnreadable`, `WrongKey`, `StoreBusy`."""
        self.path, self.read_only, self._busy_seconds = path, read_only, busy_seconds
        self.lock = threading.RLock()
        self._depth, self._scrub_due = 0, False
        self._next_sealer: Sealer | None = None
        check_header(path)
        with self.errors():
            with closing(connect_to_look(path, busy_seconds)) as db:
                self.sealer = Sealer.unlock(key, read_key_record(db, path), str(path))
            self.db = self._connect_to_read() if read_only else self._connect()
        if not read_only:
            self._make_ready()

    def close(self) -> None:
        """Close the file. The last one to close it folds SQLite's log into it."""
        with self.lock:
            self.db.close()

    # Transactions

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Open a transaction that is committed whole or not at all; one inside another joins it.

        Errors: `WrongKey` when another process changed the key; `StoreBusy`, `StoreNotWritten`; `NotScrubbed` once
        everything is committed.
        """
        with self.lock:
            if self.read_only:
                raise StoreNotWritten(str(self.path), "it was opened for reading only")
            if self._depth == 0:
                self.run("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                if self._depth == 1:
                    self.check_key()
                self._require_transaction()
                yield
                self._require_transaction()
                if self._depth == 1:
                    self.run("COMMIT")
                    self.sealer = self._next_sealer or self.sealer
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._next_sealer = None
                    if self.db.in_transaction:
                        self._scrub_due = False
                        self.run("ROLLBACK")
            if self._depth == 0 and self._scrub_due:
                self._scrub_after_commit()

    def _require_transaction(self) -> None:
        """SQLite rolls back by itself when there is no room; nothing more is written then, whoever caught the error."""
        if not self.db.in_transaction:
            raise StoreNotWritten(str(self.path), "the transaction was rolled back before, for lack of room")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read one unchanging state of the file inside."""
        with self.lock:
            if self.db.in_transaction:
                yield
                return
            self.run("BEGIN")
            try:
                yield
            finally:
                self.run("ROLLBACK")

    def run(self, statement: str, values: tuple[Any, ...] = ()) -> int:
        """Run a statement, and return how many rows it changed."""
        with self.errors():
            return self.db.execute(statement, values).rowcount

    def fetch(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Return all rows of a query."""
        with self.lock, self.errors():
            return self.db.execute(query, values).fetchall()

    def check_key(self) -> None:
        """Raise `WrongKey` if the file is encrypted with another key by now."""
        with self.errors():
            record = read_key_record(self.db, self.path)
        if record != self.sealer.record:
            raise WrongKey(f"{self.path} (it was changed meanwhile)")

    def replace_sealer(self, sealer: Sealer) -> Sealer:
        """Return the sealer so far; `sealer` takes over when the transaction, the outermost, is committed."""
        if self._depth != 1:
            raise ConfigurationError("the key is changed in a transaction of its own; end the other one first")
        self._next_sealer = sealer
        return self.sealer

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, str(self.path)) from None

    # What was erased

    def mark_unscrubbed(self) -> None:
        """Note, inside a transaction, that bytes which must go are left in the file until `scrub` ran."""
        self.run("UPDATE store SET unscrubbed = 1")
        self._scrub_due = True

    def scrub(self) -> None:
        """Rewrite the file from what it still holds, and empty SQLite's log.

        `secure_delete` zeroes what is deleted; that no copy is left where rows moved between pages, only rewriting
        the whole file can promise.
        Errors: `StoreBusy` while others read an older state of the file; `StoreNotWritten` without room for a copy.
        """
        with self.lock:
            self._scrub_due = False
            self.run("VACUUM")
            ((busy, _, _),) = self.fetch("PRAGMA wal_checkpoint(TRUNCATE)")
            if busy:
                raise StoreBusy(str(self.path), "others read an older state")
            self.run("UPDATE store SET unscrubbed = 0")

    def _scrub_after_commit(self) -> None:
        try:
            self.scrub()
        except StoreBusy:
            raise NotScrubbed(str(self.path), "others read an older state") from None
        except CouldNotTell as error:
            raise NotScrubbed(str(self.path), getattr(error, "reason", "")) from None

    # Backup

    def backup(self, path: Path) -> None:
        """Copy the file as it is at one moment, while others write, to a new file.

        Errors: `InvalidInput` for a file that exists; `StoreNotWritten`, `StoreUnreadable`.
        """
        with (
            self.errors(),
            closing(self._connect_to_read()) as source,
            new_file(path) as draft,
            closing(sqlite3.connect(draft, isolation_level=None)) as target,
        ):
            source.backup(target)
            (verdict,) = target.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise StoreUnreadable(str(self.path), "its copy is damaged")

    # Opening

    def _connect_to_read(self) -> sqlite3.Connection:
        db = connect(self.path, "mode=ro", self._busy_seconds)
        try:
            witness_file.version_of(db)
        except sqlite3.OperationalError:  # a folder that may not be written, where SQLite cannot lock
            db.close()
            db = connect_to_look(self.path, self._busy_seconds)
        return db

    def _connect(self) -> sqlite3.Connection:
        db = connect(self.path, "mode=rw", self._busy_seconds)
        try:
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA synchronous = FULL")
            with suppress(sqlite3.OperationalError):  # a file that may not be written is read as it is
                db.execute("PRAGMA journal_mode = WAL").fetchone()
        except BaseException:
            db.close()
            raise
        return db

    def _make_ready(self) -> None:
        try:
            with self.errors():
                self._migrate()
            if self.fetch("SELECT unscrubbed FROM store") == [(1,)]:
                with suppress(StoreBusy, StoreNotWritten):  # noted still; the next one tries again
                    self.scrub()
        except BaseException:
            self.db.close()
            raise

    def _migrate(self) -> None:
        if witness_file.version_of(self.db) == witness_file.VERSION:
            return
        self.db.execute("BEGIN IMMEDIATE")
        try:
            while (version := witness_file.version_of(self.db)) < witness_file.VERSION:
                witness_file.MIGRATIONS[version](self.db)
                self.db.execute(f"PRAGMA user_version = {version + 1}")
            self.db.execute("COMMIT")
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
