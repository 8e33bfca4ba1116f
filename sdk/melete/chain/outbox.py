"""An outbox on disk: what is to be sent is written down first, and is done only when the chain can no longer lose it.

    draft -> queued -> sent -> mined -> done    conflict, refused: what cannot be sent as it is

An item has a lane (a space, a subject) and a position in it. A registry takes each position once, so an item may be
sent as often as it takes: it lands exactly once. This file only keeps what is known; `melete.chain.submitter` acts.

One SQLite file. Several processes may add items; one at a time may act on them (`acting`).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from melete.chain.scan.blocks import BlockReference
from melete.errors import InvalidInput, MissingFile, OutboxBusy, StoreNotWritten, StoreUnreadable
from melete.primitives import Address, Bytes32, trusted_bytes32
from melete.sqlite_errors import NEVER_WRITTEN, translate

APPLICATION_ID: Final = 0x4D454C4F  # "MELO"
SCHEMA_VERSION: Final = 1
BUSY_SECONDS: Final = 30

_SCHEMA: Final = """
CREATE TABLE item (
    id INTEGER PRIMARY KEY,
    chain_id TEXT NOT NULL,
    target BLOB NOT NULL,
    lane BLOB NOT NULL,
    position TEXT NOT NULL,
    effect BLOB NOT NULL,
    data BLOB NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued',
    sender BLOB,
    nonce INTEGER,
    raw BLOB,
    transaction_hash BLOB,
    block_number INTEGER,
    block_hash BLOB,
    reason TEXT
) STRICT;
CREATE UNIQUE INDEX item_place ON item (chain_id, target, lane, position) WHERE state NOT IN ('refused', 'replaced');
CREATE INDEX item_state ON item (state, id);
"""
#: Counts, blocks and lanes without a look at the items; files that are older get them when they are opened.
_INDEXES: Final = {
    "item_count": "ON item (chain_id, state)",
    "item_done": "ON item (chain_id, block_number, block_hash) WHERE state = 'done'",
    "item_queued": "ON item (chain_id, target, lane) WHERE state = 'queued'",
}


class State(StrEnum):
    """How far an item has come."""

    #: Written down, but not yet what it must not go out without (its witness).
    DRAFT = "draft"
    QUEUED = "queued"
    SENT = "sent"
    MINED = "mined"
    DONE = "done"
    #: Somebody else's change took its position; `MemoryOutbox.rebuild` makes a new item of it.
    CONFLICT = "conflict"
    #: The contract refuses it, whatever it is built on.
    REFUSED = "refused"
    #: A conflict that was rebuilt as another item.
    REPLACED = "replaced"


#: What still needs somebody to act.
OPEN: Final = (State.QUEUED, State.SENT, State.MINED)


#: Whose items follow each other: the contract that they call, and a lane of it.
Place: TypeAlias = tuple[Address, bytes]


@dataclass(frozen=True, slots=True)
class Item:
    """One call to be sent: `data` to `target` on a chain.

    `effect` is the 32-byte word by which the registry shows that this very item landed (for a delta, the state root
    after it). The rest is what is known of the last transaction that carried it.
    """

    chain_id: int
    target: Address
    lane: bytes
    position: int
    effect: Bytes32
    data: bytes
    id: int = 0
    state: State = State.QUEUED
    sender: Address | None = None
    nonce: int | None = None
    raw: bytes | None = None
    transaction_hash: Bytes32 | None = None
    block_number: int | None = None
    block_hash: Bytes32 | None = None
    reason: str | None = None

    @property
    def place(self) -> Place:
        """The contract and the lane."""
        return self.target, self.lane

    def as_sent(self, sender: Address, nonce: int, raw: bytes, transaction_hash: Bytes32) -> Item:
        """Return the item as it is once a transaction carries it."""
        return Item(
            self.chain_id, self.target, self.lane, self.position, self.effect, self.data, self.id, State.SENT,
            sender, nonce, raw, transaction_hash, reason=self.reason,
        )  # fmt: skip


class Outbox:
    """The items of one file. Safe to share between processes, not between threads.

    Errors: `MissingFile` for a file that cannot be opened or is no outbox; it is left as it is.
    """

    def __init__(self, path: Path | str) -> None:
        # The locks beside the file go by its name: one name for it, whatever leads there.
        self.path = Path(path).resolve() if Path(path).is_symlink() else Path(path)
        self._is_adding = False
        try:
            is_new = not self.path.exists() or self.path.stat().st_size == 0
            if is_new:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            self._prepare()
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            raise MissingFile(str(self.path), f"the outbox cannot be opened ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Outbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Adding and reading

    def add(self, items: Iterable[Item], state: State = State.QUEUED) -> list[Item]:
        """Write new items in a state, all or none, and return them with their ids once they are on disk.

        Errors: `InvalidInput` when a position of a lane is taken by an open item.
        """
        given = list(items)
        statement = (
            "INSERT INTO item (chain_id, target, lane, position, effect, data, state) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"
        )
        added = []
        with self._transaction():
            for item in given:
                place = (str(item.chain_id), bytes(item.target), item.lane, str(item.position))
                try:
                    ((number,),) = self._fetch(statement, (*place, bytes(item.effect), item.data, state))
                except _Taken:
                    rule = "free: another item of the lane has it already, in this outbox"
                    raise InvalidInput("position", item.position, rule) from None
                added.append(replace(item, id=number, state=state))
        return added

    def get(self, number: int) -> Item:
        """Return an item by its id. Errors: `InvalidInput`."""
        for row in self._fetch(f"SELECT {_COLUMNS} FROM item WHERE id = ?", (number,)):
            return _item(row)
        raise InvalidInput("item", number, "the id of an item in the outbox")

    def items(
        self, *states: State, chain_id: int | None = None, only: Collection[Place] | None = None, limit: int = -1
    ) -> list[Item]:
        """Return the items in these states (all, without any), the oldest first: of one chain, of some lanes, so many
        at most, where that is given."""
        where, values = _among(states, chain_id, only)
        rows = self._fetch(f"SELECT {_COLUMNS} FROM item WHERE {where} ORDER BY id LIMIT ?", (*values, limit))
        return [_item(row) for row in rows]

    def find(self, chain_id: int, target: Address, lane: bytes, position: int, effect: Bytes32) -> Item | None:
        """Return the newest item at a position that has an effect, in whatever state it is, or None."""
        rows = self._fetch(
            f"SELECT {_COLUMNS} FROM item WHERE {_OF_LANE} AND position = ? AND effect = ? ORDER BY id DESC LIMIT 1",
            (str(chain_id), bytes(target), lane, str(position), bytes(effect)),
        )
        return next(map(_item, rows), None)

    def lane(self, chain_id: int, target: Address, lane: bytes, *states: State) -> list[Item]:
        """Return the items of a lane in the order of their positions: those in certain states, or all that are not
        refused or replaced."""
        where = f"state IN ({', '.join('?' * len(states))})" if states else _STANDING
        rows = self._fetch(
            f"SELECT {_COLUMNS} FROM item WHERE {_OF_LANE} AND {where} ORDER BY length(position), position, id",
            (str(chain_id), bytes(target), lane, *states),
        )
        return [_item(row) for row in rows]

    def last(self, chain_id: int, target: Address, lane: bytes) -> Item | None:
        """Return the item with a lane's highest position that is not refused or replaced; None where there is none."""
        rows = self._fetch(
            f"SELECT {_COLUMNS} FROM item WHERE {_OF_LANE} AND {_STANDING} "
            "ORDER BY length(position) DESC, position DESC LIMIT 1",
            (str(chain_id), bytes(target), lane),
        )
        return next(map(_item, rows), None)

    def places(self, state: State, chain_id: int, only: Collection[Place] | None = None) -> set[Place]:
        """Return the lanes of a chain that have items in a state; of some lanes, where they are given."""
        where, values = _among((state,), chain_id, only)
        return {(Address(target), lane) for target, lane in self._fetch(
            f"SELECT DISTINCT target, lane FROM item WHERE {where}", values)}  # fmt: skip

    def queued_places(self, chain_id: int, only: Collection[Place] | None = None) -> list[Place]:
        """Return the lanes that have queued items, the one that has waited longest first."""
        where, values = _among((), chain_id, only)
        rows = self._fetch(
            f"SELECT target, lane FROM item WHERE {where} AND state = 'queued' GROUP BY target, lane ORDER BY min(id)",
            values,
        )
        return [(Address(target), lane) for target, lane in rows]

    def queue_of(self, chain_id: int, place: Place, limit: int = -1) -> list[Item]:
        """Return the queued items of a lane, in the order of their positions."""
        target, lane = place
        rows = self._fetch(
            f"SELECT {_COLUMNS} FROM item WHERE {_OF_LANE} AND state = 'queued' "
            "ORDER BY length(position), position LIMIT ?",
            (str(chain_id), bytes(target), lane, limit),
        )
        return [_item(row) for row in rows]

    def nonces(self, chain_id: int, sender: Address) -> set[int]:
        """Return the nonces of an account that are on their way."""
        where, values = _among((State.SENT,), chain_id, None)
        rows = self._fetch(f"SELECT nonce FROM item WHERE {where} AND sender = ?", (*values, bytes(sender)))
        return {nonce for (nonce,) in rows}

    def due(self, chain_id: int, sender: Address, used: int) -> list[Item]:
        """Return what is on its way but is not `waiting`: it is in a block, or will never be."""
        rows = self._fetch(
            f"SELECT {_COLUMNS} FROM item WHERE chain_id = ? AND state = 'sent' "
            "AND NOT (sender = ? AND raw IS NOT NULL AND nonce >= ?) ORDER BY id",
            (str(chain_id), bytes(sender), used),
        )
        return [_item(row) for row in rows]

    def waiting(self, chain_id: int, sender: Address, used: int) -> list[Item]:
        """Return an account's transactions that may get into a block yet."""
        rows = self._fetch(f"SELECT {_COLUMNS} FROM item WHERE {_WAITING} ORDER BY id",
                           (str(chain_id), bytes(sender), used))  # fmt: skip
        return [_item(row) for row in rows]

    def waiting_nonces(self, chain_id: int, sender: Address, used: int) -> tuple[int, int] | None:
        """Return the lowest and the highest nonce of `waiting`; None where nothing waits."""
        ((lowest, highest),) = self._fetch(f"SELECT min(nonce), max(nonce) FROM item WHERE {_WAITING}",
                                           (str(chain_id), bytes(sender), used))  # fmt: skip
        return None if lowest is None else (lowest, highest)

    def done_blocks(self, chain_id: int, *, below: int | None = None, limit: int = -1) -> list[BlockReference]:
        """Return the blocks that items were done in, the highest first: those of so many numbers."""
        where, above = "chain_id = ? AND state = 'done'", 2**63 - 1 if below is None else below
        rows = self._fetch(
            f"SELECT DISTINCT block_number, block_hash FROM item WHERE {where} AND block_number IN "
            f"(SELECT DISTINCT block_number FROM item WHERE {where} AND block_number < ? "
            "ORDER BY block_number DESC LIMIT ?) ORDER BY block_number DESC",
            (str(chain_id), str(chain_id), above, limit),
        )
        return [BlockReference(number, Bytes32(block_hash)) for number, block_hash in rows]

    def in_blocks(self, chain_id: int, blocks: Iterable[BlockReference]) -> list[Item]:
        """Return the items that were done in these blocks."""
        query = (
            f"SELECT {_COLUMNS} FROM item WHERE chain_id = ? AND state = 'done' AND block_number = ? "
            "AND block_hash = ? ORDER BY id"
        )
        found = (self._fetch(query, (str(chain_id), block.number, bytes(block.hash))) for block in blocks)
        return [_item(row) for rows in found for row in rows]

    def count(self, *, chain_id: int | None = None, only: Collection[Place] | None = None) -> dict[State, int]:
        """Return how many items are in each state: of one chain, of some lanes, where that is given."""
        where, values = _among((), chain_id, only)
        rows = dict(self._fetch(f"SELECT state, count(*) FROM item WHERE {where} GROUP BY state", values))
        return {state: rows.get(state, 0) for state in State}

    # What the submitter writes down

    def record_sent(self, signed: Sequence[Item]) -> None:
        """Write down the signed transactions of items before they go out."""
        with self._transaction():
            self._run_many(
                "UPDATE item SET state = 'sent', sender = ?, nonce = ?, raw = ?, transaction_hash = ?, "
                "block_number = NULL, block_hash = NULL WHERE id = ?",
                [(item.sender, item.nonce, item.raw, item.transaction_hash, item.id) for item in signed],
            )

    def record_mined(self, places: Iterable[tuple[Item, int, Bytes32]]) -> None:
        """Write down in which block (number and hash) items were seen."""
        with self._transaction():
            self._run_many(
                "UPDATE item SET state = 'mined', block_number = ?, block_hash = ? WHERE id = ?",
                [(number, bytes(block_hash), item.id) for item, number, block_hash in places],
            )

    def record_state(self, items: Iterable[Item], state: State, reason: str | None = None) -> None:
        """Write down that items reached a state. Back in the queue, their transaction is forgotten."""
        forget = ", sender = NULL, nonce = NULL, raw = NULL, transaction_hash = NULL" if state is State.QUEUED else ""
        with self._transaction():
            self._run_many(
                f"UPDATE item SET state = ?, reason = ?{forget} WHERE id = ?",
                [(state, reason, item.id) for item in items],
            )

    def drop(self, items: Iterable[Item]) -> None:
        """Forget drafts."""
        with self._transaction():
            self._run_many("DELETE FROM item WHERE id = ? AND state = 'draft'", [(item.id,) for item in items])

    def replace(self, old: Sequence[Item], new: Sequence[Item]) -> list[Item]:
        """Put new items in the place of conflicting ones, all or none."""
        with self._transaction():
            self.record_state(old, State.REPLACED)
            return self.add(new)

    @contextmanager
    def adding(self, *, wait_seconds: float = BUSY_SECONDS) -> Iterator[None]:
        """Hold the right to write drafts and to judge those that are there: one process at a time; others wait.

        Without it, one process would take another's draft, whose witness is about to be kept, for that of a dead one.
        May be entered again by who holds it. Errors: `OutboxBusy` after so many seconds.
        """
        if self._is_adding:
            yield
            return
        with self._lock_file("adding") as file:
            until = time.monotonic() + wait_seconds
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() >= until:
                        raise OutboxBusy(str(self.path)) from None
                    time.sleep(0.01)
            self._is_adding = True
            try:
                yield
            finally:
                self._is_adding = False

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Hold the right to send: one process at a time, given back by the system when it dies.

        Errors: `OutboxBusy` while another process holds it.
        """
        with self._lock_file("lock") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OutboxBusy(str(self.path)) from None
            yield

    # Private

    def _lock_file(self, name: str) -> IO[str]:
        path = f"{self.path}.{name}"
        try:
            return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
        except OSError as error:
            raise StoreNotWritten(path, f"the lock cannot be opened: {error.strerror}") from None

    def _prepare(self) -> None:
        application_id, version = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if (application_id, version) == (0, 0) and not self._db.execute("SELECT 1 FROM sqlite_schema").fetchone():
            self._db.execute("PRAGMA journal_mode = WAL")
            with self._transaction():
                if not self._db.execute("SELECT 1 FROM sqlite_schema").fetchone():
                    for statement in _SCHEMA.split(";\n"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif (application_id, version) != (APPLICATION_ID, SCHEMA_VERSION):
            raise sqlite3.DatabaseError("it is another program's, or a newer version's")
        self._db.execute("PRAGMA synchronous = FULL")
        known = {name for (name,) in self._db.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
        for name, what in _INDEXES.items():
            if name not in known:
                self._db.execute(f"CREATE INDEX IF NOT EXISTS {name} {what}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One write, whole or not at all; within another one, a part of it."""
        if self._db.in_transaction:
            yield
            return
        self._fetch("BEGIN IMMEDIATE")
        try:
            yield
            self._fetch("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # without room for it, SQLite has rolled back by itself
                self._db.execute("ROLLBACK")
            raise

    def _fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, with SQLite's errors as ours."""
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.IntegrityError:
            raise _Taken from None
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, str(self.path)) from None

    def _run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise translate(error, str(self.path)) from None


class _Taken(Exception):
    """A position is taken."""


def _among(
    states: Sequence[State], chain_id: int | None, only: Collection[Place] | None
) -> tuple[str, tuple[Any, ...]]:
    """Return a condition for items, and its values."""
    conditions, values = ["TRUE"], [*map(str, states)]
    if states:
        conditions.append(f"state IN ({', '.join('?' * len(states))})")
    if chain_id is not None:
        conditions.append("chain_id = ?")
        values.append(str(chain_id))
    if only is None:
        return " AND ".join(conditions), tuple(values)
    conditions.append(f"(target, lane) IN (VALUES {', '.join(['(?, ?)'] * len(only))})" if only else "FALSE")
    return " AND ".join(conditions), (*values, *(bytes(part) for place in only for part in place))


_OF_LANE: Final = "chain_id = ? AND target = ? AND lane = ?"
_WAITING: Final = "chain_id = ? AND state = 'sent' AND sender = ? AND raw IS NOT NULL AND nonce >= ?"
#: What has a position for itself.
_STANDING: Final = "state NOT IN ('refused', 'replaced')"
_COLUMNS: Final = (
    "chain_id, target, lane, position, effect, data, id, state, sender, nonce, raw, transaction_hash, "
    "block_number, block_hash, reason"
)


def _item(row: Sequence[Any]) -> Item:
    chain_id, target, lane, position, effect, data, number, state, sender, nonce, raw, known, block, block_hash, why = (
        row
    )
    try:
        return Item(
            chain_id=int(chain_id),
            target=_address(target),
            lane=lane,
            position=int(position),
            effect=_word(effect),
            data=data,
            id=number,
            state=State(state),
            sender=_address(sender) if sender else None,
            nonce=nonce,
            raw=raw,
            transaction_hash=_word(known) if known else None,
            block_number=block,
            block_hash=_word(block_hash) if block_hash else None,
            reason=why,
        )
    except ValueError as error:
        raise StoreUnreadable("the outbox", f"item {number}: {NEVER_WRITTEN}") from error


def _word(cell: Any) -> Bytes32:
    # Thousands of items are read at a time, and nearly all cells are as they were written.
    return trusted_bytes32(cell) if type(cell) is bytes and len(cell) == 32 else Bytes32(cell)


def _address(cell: Any) -> Address:
    return bytes.__new__(Address, cell) if type(cell) is bytes and len(cell) == 20 else Address(cell)
