"""The private half of an agent's memory: what opens its commitments, in one encrypted SQLite file.

    with WitnessStore.open(path, load_key_file(key_path)) as store:
        store.put_delta(delta, witness)              # before the delta is sent
        witness = store.get(DELTA.place(space_id, 1))

Which kind of record opens which commitment at which place stays readable; everything else of a row is one ciphertext,
bound to its place (`witness_keys`). How long a record is can be seen. Several processes may use one store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

from melete.errors import (
    InvalidInput,
    NotAuthentic,
    PlaceTaken,
    StoreUnreadable,
    WitnessErased,
    WitnessMismatch,
    WitnessMissing,
)
from melete.files import to_path
from melete.memory import witness_file
from melete.memory.batch import Batch, Operation, compute_batch
from melete.memory.delta import ExperienceDelta
from melete.memory.profiles import BATCH
from melete.memory.witness import Witness, verify_witness
from melete.memory.witness_database import BUSY_SECONDS, Database
from melete.memory.witness_keys import Key, Sealer
from melete.memory.witness_kinds import DELTA, OPERATION, Entry, Kind, Place, find_kind
from melete.primitives import NOT_SHOWN, Bytes32
from melete.sqlite_errors import NEVER_WRITTEN

#: Rows read at a time: what reading a store of any size keeps in memory.
ROWS_AT_A_TIME: Final = 64
_AT: Final = "kind = ? AND scope = ? AND number = ?"


class Row(NamedTuple):
    """What can be seen of a row without its key."""

    place: Place
    commitment: Bytes32
    erased: bool


class WitnessStore:
    """Witnesses by place; made by `create`, opened by `open`. Threads may share it; each process opens its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def create(cls, path: Path | str, key: Key) -> WitnessStore:
        """Make a new file, mode 0600, and open it. Errors: `InvalidInput` where one exists; `StoreNotWritten`."""
        path = to_path(path, "path")
        witness_file.create(path, Sealer.fresh(key).record)
        return cls.open(path, key)

    @classmethod
    def open(
        cls, path: Path | str, key: Key, *, read_only: bool = False, busy_seconds: float = BUSY_SECONDS
    ) -> WitnessStore:
        """Open a store. Whatever the answer, a file that is not opened is not changed.

        `busy_seconds` is how long to wait for other processes. Errors: `MissingFile`; `StoreUnreadable` for a
        truncated or foreign file, or one of a newer version; `WrongKey`; `StoreBusy`; `InvalidInput` for what is no
        path, or no key.
        """
        return cls(Database(to_path(path, "path"), key, read_only=read_only, busy_seconds=busy_seconds))

    @property
    def path(self) -> Path:
        return self._database.path

    def close(self) -> None:
        """Close the file; what was put is on disk already. Closing it again does nothing, using it is an error."""
        self._database.close()

    def __enter__(self) -> WitnessStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"WitnessStore({str(self.path)!r})"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything inside happen, on disk, or nothing of it: many witnesses at the price of one."""
        with self._database.writing():
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one unchanging state of the store inside, whatever others write."""
        with self._database.reading():
            yield

    # Writing

    def put(self, place: Place, record: Any) -> bool:
        """Keep a record, on disk when this returns; False if it was there already.

        Errors: `PlaceTaken` where another record is kept; `WitnessErased` where one was; `InvalidInput`.
        """
        kind, place = _checked(place)
        return self._put(place, kind.commit(record), kind.to_bytes(record))

    def put_delta(self, delta: ExperienceDelta, witness: Witness) -> bool:
        """Keep the witness of a delta, once it opens all its commitments.

        Errors: `WitnessMismatch`, and those of `put`.
        """
        verify_witness(delta, witness)
        return self._put(DELTA.place(delta.space_id, delta.sequence), delta.delta_commitment, DELTA.to_bytes(witness))

    def put_batch(self, delta: ExperienceDelta, witness: Witness, operations: Iterable[Operation]) -> Batch:
        """Keep the witness of a batch, and its operations, in one transaction; return the batch.

        Errors: `WitnessMismatch` for operations that are not those of the payload, and those of `put_delta`.
        """
        if witness.profile_id != BATCH.id:
            raise WitnessMismatch("profileId", BATCH.id, witness.profile_id)
        batch = Batch.from_payload(witness.payload)

        def keep() -> Iterator[Bytes32]:
            for index, operation in enumerate(operations):
                self.put(OPERATION.place(batch.root, index), operation)
                yield operation.compute_leaf()

        with self.transaction():
            self.put_delta(delta, witness)
            kept = compute_batch(keep())
            if kept != batch:
                raise WitnessMismatch("the batch's root", batch.root, kept.root)
        return batch

    def put_erased(self, place: Place, commitment: Bytes32) -> bool:
        """Note that the record of a place was erased elsewhere; False if anything is here already."""
        _, place = _checked(place)
        with self._database.writing():
            inserted = self._database.run(
                "INSERT OR IGNORE INTO witnesses VALUES (?, ?, ?, ?, NULL)",
                (*_columns(place), Bytes32(commitment, "commitment")),
            )
            return inserted == 1

    def move(self, kind: Kind[Any], scope: bytes, numbers: Mapping[int, int]) -> None:
        """Give records of a scope other numbers, old to new, all or none: their deltas were rebuilt on another head.

        Errors: `WitnessMissing`, `WitnessErased`, `PlaceTaken`; `InvalidInput` for one new number given twice.
        """
        _require_kind(kind)
        if len(set(numbers.values())) != len(numbers):
            raise InvalidInput("numbers", NOT_SHOWN, "a new number of its own for each record")
        with self._database.writing():
            rows = [(kind.place(scope, new), *self._open(kind.place(scope, old))) for old, new in numbers.items()]
            for place, _, _ in rows:
                if place.number not in numbers and self._row(place) is not None:
                    raise PlaceTaken(*place)
            for old in numbers:
                self._database.run(f"DELETE FROM witnesses WHERE {_AT}", _columns(kind.place(scope, old)))  # noqa: S608
            for place, commitment, record in rows:
                self._insert(place, commitment, record)

    def erase(self, *places: Place) -> int:
        """Erase records for good, and return how many there were; their rows stay and say so.

        Nothing of them is left in the file or in SQLite's log, which are rewritten once for all places given: the time
        grows with the store. Copies of the file, exports, and blocks that the disk keeps are out of reach.
        Errors: `WitnessMissing`, and nothing is erased; `NotScrubbed` when the records are erased, and their bytes
        could not go yet, because others read an older state or there is no room to rewrite the file: ask again.
        """
        with self._database.writing():
            erased = 0
            for place in places:
                _, place = _checked(place)
                if self._row(place) is None:
                    raise WitnessMissing(*place)
                erased += self._database.run(
                    f"UPDATE witnesses SET sealed = NULL WHERE {_AT} AND sealed IS NOT NULL",  # noqa: S608
                    _columns(place),
                )
            self._database.mark_unscrubbed()
        return erased

    def discard(self, places: Iterable[Place]) -> None:
        """Take away what was kept for something that never went out; unlike erasing, it leaves the places free."""
        with self._database.writing():
            for place in places:
                self._database.run(f"DELETE FROM witnesses WHERE {_AT}", _columns(_checked(place)[1]))  # noqa: S608

    def change_key(self, key: Key) -> None:
        """Encrypt every row anew, in one transaction: killed anywhere, the store has its old key or the new one.

        Other processes that have it open get `WrongKey` from then on. Errors: `NotAuthentic` for a row that cannot be
        opened (nothing is changed; erase it, or restore it first); `ConfigurationError` inside a transaction;
        `StoreNotWritten`, `StoreBusy`; `NotScrubbed` when the key is changed, and rows under the old one may remain.
        """
        new = Sealer.fresh(key)
        with self._database.writing():
            old = self._database.replace_sealer(new)
            for kind, scope, number, commitment, sealed in self._rows(None, None):
                if sealed is not None:
                    record = old.open(kind, scope, number, commitment, sealed)
                    resealed = new.seal(kind, scope, number, commitment, record)
                    where = (resealed, kind, scope, number)
                    self._database.run(f"UPDATE witnesses SET sealed = ? WHERE {_AT}", where)  # noqa: S608
            with self._database.errors():
                witness_file.write_key_record(self._database.db, new.record)
            self._database.mark_unscrubbed()

    def backup(self, path: Path | str) -> None:
        """Copy the store as it is now, while others write, to a new file of mode 0600 with the same key.

        The file appears whole or not at all, and is a store. Errors: `InvalidInput` for a file that exists;
        `StoreNotWritten`.
        """
        self._database.backup(to_path(path, "path"))

    # Reading

    def get(self, place: Place) -> Any:
        """Return the record of a place.

        Errors: `WitnessMissing`, `WitnessErased`; `NotAuthentic` for a row that was changed or moved; `WrongKey` when
        another process changed the key.
        """
        kind, place = _checked(place)
        return kind.from_bytes(self._open(place)[1])

    def find(self, commitment: Bytes32) -> list[Entry]:
        """Return all entries with a commitment; a layer that did not change has several."""
        rows = self._database.fetch(
            "SELECT kind, scope, number, commitment, sealed FROM witnesses WHERE commitment = ?"
            " ORDER BY kind, scope, number",
            (Bytes32(commitment, "commitment"),),
        )
        return list(self._entries(rows))

    def iterate(self, kind: Kind[Any] | None = None, scope: bytes | None = None) -> Iterator[Entry]:
        """Yield entries in order of kind, scope and number: all, or those of a kind, or those of a kind and a scope.

        Errors: as `get`, at the entry that cannot be opened.
        """
        return self._entries(self._rows(kind, scope))

    def list_rows(self, kind: Kind[Any] | None = None, scope: bytes | None = None) -> Iterator[Row]:
        """Yield what is kept, without opening it; the leaves of a batch, for example."""
        for name, place, number, commitment, sealed in self._rows(kind, scope):
            try:
                row = Row(Place(name, place, int.from_bytes(number, "big")), Bytes32(commitment), sealed is None)
            except (TypeError, InvalidInput):
                raise StoreUnreadable(str(self.path), NEVER_WRITTEN) from None
            yield row

    def _row(self, place: Place) -> tuple[bytes, bytes | None] | None:
        """Return commitment and sealed bytes of a place, or None."""
        rows = self._database.fetch(f"SELECT commitment, sealed FROM witnesses WHERE {_AT}", _columns(place))  # noqa: S608
        return rows[0] if rows else None

    def _open(self, place: Place) -> tuple[bytes, bytes]:
        """Return commitment and record bytes of a place."""
        row = self._row(place)
        if row is None:
            raise WitnessMissing(*place)
        commitment, sealed = row
        if sealed is None:
            raise WitnessErased(*place)
        try:
            kind, scope, number = _columns(place)
            return commitment, self._database.sealer.open(kind, scope, number, commitment, sealed)
        except NotAuthentic:
            self._database.check_key()
            raise

    def _put(self, place: Place, commitment: bytes, record: bytes) -> bool:
        with self._database.writing():
            if self._row(place) is None:
                self._insert(place, commitment, record)
                return True
            if self._open(place) != (commitment, record):
                raise PlaceTaken(*place)
            return False

    def _insert(self, place: Place, commitment: bytes, record: bytes) -> None:
        kind, scope, number = _columns(place)
        sealed = self._database.sealer.seal(kind, scope, number, commitment, record)
        values = (kind, scope, number, commitment, sealed)
        self._database.run("INSERT INTO witnesses VALUES (?, ?, ?, ?, ?)", values)

    def _rows(self, kind: Kind[Any] | None, scope: bytes | None) -> Iterator[tuple[str, bytes, bytes, bytes, Any]]:
        """Yield raw rows in order, some at a time, so that nothing is held open between them."""
        if kind is not None:
            _require_kind(kind)
        columns = ("kind", "scope", "number")
        fixed: tuple[Any, ...] = ()
        if kind is not None:
            fixed = (kind.name,) if scope is None else (kind.name, kind.place(scope, 0).scope)
        elif scope is not None:
            raise InvalidInput("scope", scope, "given only together with a kind")
        free = columns[len(fixed) :]
        conditions = [f"{column} = ?" for column in columns[: len(fixed)]]
        after: tuple[Any, ...] = ("", b"", b"")[len(fixed) :]
        conditions.append(f"({', '.join(free)}) > ({', '.join('?' * len(free))})")
        query = (
            f"SELECT kind, scope, number, commitment, sealed FROM witnesses WHERE {' AND '.join(conditions)}"  # noqa: S608
            f" ORDER BY kind, scope, number LIMIT {ROWS_AT_A_TIME}"
        )
        while True:
            rows = self._database.fetch(query, (*fixed, *after))
            yield from rows
            if len(rows) < ROWS_AT_A_TIME:
                return
            after = rows[-1][len(fixed) : 3]

    def _entries(self, rows: Iterable[tuple[str, bytes, bytes, bytes, Any]]) -> Iterator[Entry]:
        """Open rows one after the other: the hot path of every audit, so that what a scope's rows share is kept."""
        at: tuple[str, bytes] | None = None
        to_number, to_word, to_entry = int.from_bytes, bytes.__new__, tuple.__new__
        for name, scope, number, commitment, sealed in rows:
            if (name, scope) != at:
                at = (name, scope)
                read, open_row = _kind_in_file(name, self.path).from_bytes, self._database.sealer.opener(name, scope)
            try:
                record = None if sealed is None else read(open_row(number, commitment, sealed))
                entry = to_entry(Entry, (name, scope, to_number(number, "big"), to_word(Bytes32, commitment), record))
            except NotAuthentic:
                self._database.check_key()
                raise
            except TypeError:
                raise StoreUnreadable(str(self.path), NEVER_WRITTEN) from None
            yield entry


def _require_kind(kind: Kind[Any]) -> None:
    if not isinstance(kind, Kind):
        raise InvalidInput("kind", kind, "a kind of `melete.memory.witness_kinds`, such as `DELTA`")


def _checked(place: Place) -> tuple[Kind[Any], Place]:
    if not isinstance(place, Place):
        raise InvalidInput("place", place, "a Place, such as `DELTA.place(space_id, sequence)`")
    kind = find_kind(place.kind)
    return kind, kind.place(place.scope, place.number)


def _columns(place: Place) -> tuple[str, bytes, bytes]:
    return place.kind, place.scope, place.number.to_bytes(8, "big")


def _kind_in_file(name: str, path: Path) -> Kind[Any]:
    try:
        return find_kind(name)
    except InvalidInput:
        raise StoreUnreadable(str(path), "it holds a kind of record that this program does not know") from None
