"""What is owed to a store that could not be reached: a small file of its own, which never holds content.

A forget, an expiry and a merge are noted for every store before the first one is asked, and struck out store by store
as they answer. So neither a store that is down nor a process that is killed half-way leaves a copy that nobody knows
of. A debt names operation, agent, type and ids; for an expiry also when, for a merge the id of what takes up the
others. What has to be written to settle it, a copy or the tags of a merge, is then taken from a store that has it.

    intended    noted beforehand; who began it may still be at it, or was killed
    owed        the other stores have done it, this one has not

The file is a SQLite database, mode 0600, on disk before anything else happens; without one, debts end with the process.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from melete.errors import StoreNotWritten, StoreUnreadable
from melete.sqlite_errors import translate
from melete.wire.envelope import MemoryType, Operation
from melete.wire.sqlite_file import create_file

#: "MLTO": how such a file is told from others.
APPLICATION_ID: Final = 0x4D4C544F
VERSION: Final = 1
BUSY_SECONDS: Final = 10.0

_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE debts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    store TEXT NOT NULL,
    operation TEXT NOT NULL,
    agent TEXT NOT NULL,
    type TEXT NOT NULL,
    ids TEXT NOT NULL,
    into_id TEXT,
    expires_at INTEGER,
    writer TEXT,
    since INTEGER NOT NULL,
    intended INTEGER NOT NULL
);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
COMMIT;
"""
_COLUMNS: Final = "number, store, operation, agent, type, ids, into_id, expires_at, writer, since, intended"


@dataclass(frozen=True, slots=True)
class Debt:
    """One operation that one store has not done. Times are seconds since 1970, UTC.

    `memory_ids` are what is to be copied, forgotten, let end at `expires_at`, or merged into `into`.
    """

    number: int
    store: str
    operation: Operation
    agent_id: str
    memory_type: MemoryType
    memory_ids: tuple[str, ...]
    into: str | None
    expires_at: int | None
    writer: str | None
    since: int
    is_intended: bool


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be noted for several stores at once: a debt without store and number."""

    operation: Operation
    agent_id: str
    memory_type: MemoryType
    memory_ids: tuple[str, ...]
    since: int
    into: str | None = None
    expires_at: int | None = None
    writer: str | None = None


def _fill(label: str, path: Path) -> None:
    """Make a new file of no debts; errors call it by `label`."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.executescript(_SCHEMA)
    except sqlite3.Error as error:
        raise translate(error, label) from None


class Debts:
    """The debts of one router, or of several that share a file. Threads may share it."""

    def __init__(self, path: Path | None = None) -> None:
        """Use a file, after making it if there is none; with None, keep debts in memory.

        Errors: `StoreUnreadable` for a file of something else, or an empty one; `StoreNotWritten`, `StoreBusy`.
        """
        self.path: Final = path
        self._lock = threading.Lock()
        self._kept: sqlite3.Connection | None = None
        if path is None:
            self._kept = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._kept.executescript(_SCHEMA)
        else:
            self._prepare(path)

    @property
    def label(self) -> str:
        """What messages call it."""
        return "memory" if self.path is None else str(self.path)

    @property
    def outlasts(self) -> bool:
        """Whether what is noted here is still known when the process has ended."""
        return self.path is not None

    def close(self) -> None:
        """Forget what was kept in memory."""
        if self._kept is not None:
            self._kept.close()

    # Noting and striking out

    def note(self, order: Order, stores: Sequence[str], *, intended: bool) -> dict[str, int]:
        """Note an order for some stores, and return the number of each one's debt."""
        numbers: dict[str, int] = {}
        with self._changing() as db:
            for store in stores:
                row = (
                    store,
                    order.operation.value,
                    order.agent_id,
                    order.memory_type.value,
                    json.dumps(order.memory_ids),
                    order.into,
                    order.expires_at,
                    order.writer,
                    order.since,
                    int(intended),
                )
                added = db.execute(
                    f"INSERT INTO debts ({_COLUMNS.partition(', ')[2]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                    row,
                )
                assert added.lastrowid is not None  # it was just added
                numbers[store] = added.lastrowid
        return numbers

    def conclude(self, *, settled: Sequence[int] = (), owed: Sequence[int] = ()) -> None:
        """Strike out what is settled; what was intended, and is not, is owed from now on."""
        if not settled and not owed:
            return
        with self._changing() as db:
            db.executemany("DELETE FROM debts WHERE number = ?", [(number,) for number in settled])
            db.executemany("UPDATE debts SET intended = 0 WHERE number = ?", [(number,) for number in owed])

    def widen(self, numbers: Sequence[int], ids: Sequence[str]) -> None:
        """Give debts other ids, and leave them as they are otherwise."""
        with self._changing() as db:
            text = json.dumps(list(ids))
            db.executemany("UPDATE debts SET ids = ? WHERE number = ?", [(text, number) for number in numbers])

    def release(self, ids: Sequence[str], operations: Sequence[Operation], before: int) -> None:
        """Take ids out of older debts of some operations, because something later makes up for them.

        A merge goes whole, once its result is among the ids; `before` is the number of the debt that replaces them.
        """
        gone = set(ids)
        with self._changing() as db:
            for debt in self._rows(db):
                if debt.number >= before or debt.operation not in operations:
                    continue
                rest = [memory_id for memory_id in debt.memory_ids if memory_id not in gone]
                if debt.into is not None:
                    rest = [] if debt.into in gone else list(debt.memory_ids)
                if not rest:
                    db.execute("DELETE FROM debts WHERE number = ?", (debt.number,))
                elif len(rest) < len(debt.memory_ids):
                    db.execute("UPDATE debts SET ids = ? WHERE number = ?", (json.dumps(rest), debt.number))

    def load(self) -> tuple[Debt, ...]:
        """Return all debts, oldest first."""
        with self._connected() as db:
            return tuple(self._rows(db))

    def _rows(self, db: sqlite3.Connection) -> list[Debt]:
        rows = db.execute(f"SELECT {_COLUMNS} FROM debts ORDER BY number").fetchall()  # noqa: S608
        return [self._read(row) for row in rows]

    def _read(self, row: tuple[Any, ...]) -> Debt:
        number, store, operation, agent, kind, ids, into, expires_at, writer, since, intended = row
        try:
            return Debt(
                number,
                store,
                Operation(operation),
                agent,
                MemoryType(kind),
                tuple(json.loads(ids)),
                into,
                expires_at,
                writer,
                since,
                bool(intended),
            )
        except (ValueError, TypeError):
            raise StoreUnreadable(self.label, "it holds what was never written by this program") from None

    # The file

    def _prepare(self, path: Path) -> None:
        if not os.path.lexists(path):
            create_file(path, partial(_fill, self.label))  # whole or not at all: an empty one has lost what it held
        try:
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise StoreNotWritten(str(path), error.strerror or "it cannot be made") from None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise StoreUnreadable(str(path), "it is no file")
            head = os.read(handle, 100)
        finally:
            os.close(handle)
        if not head:
            raise StoreUnreadable(str(path), "it is empty, and what was owed to memory stores is not known any more")
        if not (head.startswith(b"SQLite format 3\0") and head[68:72] == APPLICATION_ID.to_bytes(4, "big")):
            raise StoreUnreadable(str(path), "it is not a file of what is owed to memory stores")
        with self._connected() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                raise StoreUnreadable(str(path), f"it is of version {version}, and this program knows {VERSION}")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if self._kept is not None:
            with self._lock:
                yield self._kept
            return
        assert self.path is not None  # it has one or the other
        try:
            # A connection for each look survives forks, and is nobody's while nobody looks.
            uri = f"{self.path.absolute().as_uri()}?mode=rw"
            db = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
            with closing(db):
                db.execute("PRAGMA trusted_schema = OFF")
                db.execute("PRAGMA synchronous = FULL")
                yield db
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, self.label) from None

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._connected() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
