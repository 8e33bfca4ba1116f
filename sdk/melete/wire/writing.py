"""What every write has in common: one transaction, with its audit row, its rows and its entries in every index."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from melete.canonical import Json
from melete.errors import InvalidInput, MeleteError
from melete.primitives import Bytes32, keccak256
from melete.sqlite_errors import NEVER_WRITTEN
from melete.wire.approval import ApprovalHook, Decision, Diff
from melete.wire.audit import EMPTY, Action, AuditHead, Entry, compute_digest, read_time
from melete.wire.cells import read_bytes32, read_number
from melete.wire.embedding import Embedder, Vectors, embed, verify_dimensions
from melete.wire.engines import Database
from melete.wire.envelope import MemoryType
from melete.wire.errors import BrokenAudit, MemoryTaken
from melete.wire.prepared import Prepared
from melete.wire.tables import AnyRow, audit, memories, memory_vectors, meta, scopes
from melete.wire.values import Memory, MemoryState, WriteRecord
from melete.wire.words import SIZE_BITS, compute_size_class, compute_terms, split_words, tag_term

#: Rows that one statement names at most.
ROWS_AT_A_TIME: Final = 500

#: What Python raises where a row's values are of other types than they are written with.
_ILL_TYPED: Final = (TypeError, ValueError, ArithmeticError, AttributeError)


class Observer(Protocol):
    """Is told of every write inside its transaction; what it raises undoes the write."""

    def __call__(self, record: WriteRecord, connection: Connection, /) -> None: ...


@dataclass(slots=True)
class Core:
    """What the operations of one store share."""

    database: Database
    clock: Callable[[], int]
    new_id: Callable[[], str]
    new_salt: Callable[[], bytes]
    approval: ApprovalHook
    embedder: Embedder | None
    vectors: Vectors
    on_write: Observer | None
    scrub_at_once: bool
    #: The numbers of scopes that are known to be there for good.
    scopes: dict[tuple[str, str], int] = field(default_factory=dict)
    #: The hash of the audit row that was the newest when it was last looked at, and its time.
    newest: tuple[bytes, int] = (EMPTY.hash, 0)

    def now(self) -> int:
        """Return the time by the store's clock. Errors: `InvalidInput` for a clock that gives no whole seconds."""
        now = self.clock()
        if type(now) is not int or not 0 <= now < 2**53:
            raise InvalidInput("clock", now, "whole seconds since 1970")
        return now

    def decide(self, diff: Diff) -> Decision | None:
        """Return what the hook decides about a write; None where the type needs no approval."""
        return self.approval.decide(diff) if diff.type.is_long_term else None

    def embed(self, text: str) -> bytes | None:
        """Return the vector of a text, where there is an embedder."""
        return embed(self.embedder, [text])[0] if self.embedder is not None else None

    # Time

    def time(self, connection: Connection) -> int:
        """Return the time by which is judged what has expired: the clock's, or the newest audit row's if it is later.

        So nothing comes back when the clock goes back. Errors: `BrokenAudit`.
        """
        return self.time_after(connection, *load_head(self.database, connection))

    def time_after(self, connection: Connection, number: object, digest: object) -> int:
        """Return the time, as `time` does, where number and hash of the newest row are known. Errors: `BrokenAudit`."""
        known, at = self.newest
        if known != digest:
            head = read_head(number, digest)
            at = load_time(connection, head.number)
            self.newest = head.hash, at
        return max(self.now(), at)

    # Transactions

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees one unchanging state. Errors: `StoreUnreadable` for rows that were never written.

        Nothing of others' runs inside: what goes wrong here is laid at the rows' door.
        """
        try:
            with self.database.reading() as connection:
                yield connection
        except (MeleteError, UnicodeError):  # the engines know best what became of a text on its way
            raise
        except _ILL_TYPED as error:
            raise self.database.unreadable(NEVER_WRITTEN) from error

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Give a transaction that ends with its audit rows; all of it happens, or nothing. Errors: as `reading`."""
        with self.database.writing() as connection:
            change = Change(self, connection)
            try:
                yield change
            except (MeleteError, UnicodeError):
                raise
            except _ILL_TYPED as error:
                if error is change.of_observer:
                    raise
                raise self.database.unreadable(NEVER_WRITTEN) from error
            change.finish()


@dataclass(frozen=True, slots=True)
class Draft:
    """A memory that is to be written: what needs no lock is done already."""

    id: str
    content: str
    tags: tuple[str, ...]
    metadata: dict[str, Json] | None
    salt: Bytes32
    digest: Bytes32
    words: list[str]
    vector: bytes | None

    @classmethod
    def make(
        cls,
        core: Core,
        content: str,
        tags: tuple[str, ...],
        metadata: dict[str, Json] | None,
        *,
        memory_id: str | None = None,
        salt: bytes | None = None,
        is_embedded: bool = True,
    ) -> Draft:
        """Return a draft, with a fresh id and salt unless they are given."""
        drawn = Bytes32(core.new_salt() if salt is None else salt)
        return cls(
            core.new_id() if memory_id is None else memory_id,
            content,
            tags,
            metadata,
            drawn,
            compute_digest(drawn, content, tags, metadata),
            split_words(content),
            core.embed(content) if is_embedded else None,
        )


_ADD_AUDIT: Final = Prepared(insert(audit))
_ADD_MEMORY: Final = Prepared(insert(memories))
_ADD_VECTOR: Final = Prepared(insert(memory_vectors))
_ADD_SCOPE: Final = insert(scopes)
_MOVE_HEAD: Final = Prepared(
    update(meta).values(
        number=bindparam("at"), hash=bindparam("digest"), unscrubbed=meta.c.unscrubbed + bindparam("erases")
    )
)
_FIND_SCOPE: Final = Prepared(
    select(scopes.c.id).where(scopes.c.agent == bindparam("of_agent"), scopes.c.type == bindparam("of_type"))
)
_GROW_SCOPE: Final = Prepared(
    update(scopes)
    .where(scopes.c.id == bindparam("scope"))
    .values(documents=scopes.c.documents + 1, words=scopes.c.words + bindparam("more"))
)
_SHRINK_SCOPE: Final = Prepared(
    update(scopes)
    .where(scopes.c.id == bindparam("scope"))
    .values(
        documents=scopes.c.documents - bindparam("fewer"),
        words=scopes.c.words - bindparam("less"),
        removals=scopes.c.removals + 1,
    )
)


_HEAD: Final = Prepared(select(meta.c.number, meta.c.hash))
_FIND_ENTRY: Final = Prepared(select(audit.c.entry).where(audit.c.number == bindparam("of")))


def read_head(number: object, digest: object) -> AuditHead:
    """Return the head of the chain that stands beside it. Errors: `BrokenAudit`."""
    known = read_number(number, 0, "the newest audit row")
    return AuditHead(known, read_bytes32(digest, known, "the newest audit row")) if known else EMPTY


def load_head(database: Database, connection: Connection) -> AuditHead:
    """Return the head of the chain. Errors: `BrokenAudit`; `StoreUnreadable` where there is none."""
    row = _HEAD.run(connection, {}).fetchone()
    if row is None:
        raise database.unreadable(NEVER_WRITTEN)
    return read_head(row[0], row[1])


def load_time(connection: Connection, number: int) -> int:
    """Return the time of an audit row; 0 before the first. Errors: `BrokenAudit`."""
    if not number:
        return 0
    row = _FIND_ENTRY.run(connection, {"of": number}).fetchone()
    at = read_time(row[0]) if row is not None and isinstance(row[0], str) else None
    if at is None:
        raise BrokenAudit(number, "the newest audit row", "as it was written", "missing" if row is None else "another")
    return at


class Change:
    """A write transaction, and the audit chain as it will be after it. Its time is never before that of the chain."""

    def __init__(self, core: Core, connection: Connection) -> None:
        self.core, self.connection = core, connection
        self.head = read_head(*core.database.lock_head(connection))
        self.now = core.time_after(connection, *self.head)
        #: What the observer raised, which is no fault of the rows.
        self.of_observer: Exception | None = None
        self._erases = False

    def finish(self) -> None:
        """Keep the head of the chain beside the chain, so that a cut-off tail shows."""
        values = {"at": self.head.number, "digest": self.head.hash, "erases": int(self._erases)}
        _MOVE_HEAD.run(self.connection, values)

    # Audit

    def record(self, action: Action, agent: str, memory_type: str, ids: Sequence[str], **values: Any) -> Entry:
        """Add an entry to the chain, and return it."""
        entry = Entry(
            self.head.number + 1, self.head.hash, self.now, action, agent, str(memory_type), tuple(ids), **values
        )
        data = entry.to_bytes()
        self.head = AuditHead(entry.number, keccak256(data))
        self.core.newest = self.head.hash, self.now
        row = {"number": entry.number, "entry": data.decode(), "hash": self.head.hash}
        _ADD_AUDIT.run(self.connection, row)
        return entry

    def tell(
        self,
        entry: Entry,
        written: Memory | None = None,
        salt: Bytes32 | None = None,
        erased: tuple[str, ...] = (),
    ) -> None:
        """Tell the observer of a write whose rows are all there."""
        if self.core.on_write is not None:
            try:
                self.core.on_write(WriteRecord(entry, self.head.hash, written, salt, erased), self.connection)
            except Exception as error:
                self.of_observer = error
                raise

    # Rows

    def scope(self, agent: str, memory_type: str) -> int:
        """Return the number of a scope, made if there is none yet."""
        known = self.core.scopes.get((agent, memory_type))
        if known is not None:
            return known
        row_found = _FIND_SCOPE.run(self.connection, {"of_agent": agent, "of_type": str(memory_type)}).fetchone()
        if row_found is not None:
            found: int = row_found[0]
            if not self.core.database.is_nested:  # else the outer transaction may have made it, and be undone
                self.core.scopes[(agent, str(memory_type))] = found
        else:
            found = self.connection.execute(select(func.coalesce(func.max(scopes.c.id), 0) + 1)).scalar_one()
            row = {"agent": agent, "type": str(memory_type), "since": self.head.number + 1}
            self.connection.execute(_ADD_SCOPE, {"id": found, "documents": 0, "words": 0, "removals": 0, **row})
        return found

    def add_memory(self, scope: int, entry: Entry, draft: Draft) -> Memory:
        """Write a memory that an entry records, with its words, tags and vector. Errors: `MemoryTaken`."""
        document = compute_document(entry, draft)
        row = {
            "document": document,
            "id": draft.id,
            "scope": scope,
            "number": entry.number,
            "audited": entry.number,
            "created_at": entry.at,
            "expires_at": entry.expires,
            "merged_into": None,
            "words": len(draft.words),
            "salt": draft.salt,
            "tags": to_text(list(draft.tags)),
            "metadata": None if draft.metadata is None else to_text(draft.metadata),
            "content": draft.content,
        }
        try:
            _ADD_MEMORY.run(self.connection, row)
        except self.core.database.conflict_error:
            raise MemoryTaken(draft.id) from None
        tags = [tag_term(scope, tag) for tag in draft.tags]
        self.core.database.add_terms(self.connection, document, compute_terms(scope, draft.words), tags)
        _GROW_SCOPE.run(self.connection, {"scope": scope, "more": len(draft.words)})
        if draft.vector is not None:
            self._add_vector(scope, document, draft.vector)
        return Memory(
            draft.id,
            entry.agent,
            MemoryType(entry.type),
            draft.content,
            draft.tags,
            draft.metadata,
            MemoryState.ACTIVE,
            entry.at,
            entry.expires,
            None,
            entry.number,
            entry.number,
        )

    def _add_vector(self, scope: int, document: int, vector: bytes) -> None:
        embedder = self.core.embedder
        assert embedder is not None  # it gave the vector
        kept = self.connection.execute(select(meta.c.dimensions)).scalar_one()
        verify_dimensions(kept, embedder)
        if kept is None:
            self.connection.execute(update(meta).values(dimensions=embedder.dimensions))
        _ADD_VECTOR.run(self.connection, {"scope": scope, "document": document, "vector": vector})

    def withdraw(self, rows: Sequence[AnyRow]) -> None:
        """Take memories out of every index, so that they are recalled no more. They need `scope` and `words`."""
        active = [row for row in rows if row.merged_into is None]
        documents = [row.document for row in active]
        self.core.database.remove_terms(self.connection, documents)
        for some in in_portions(documents):
            self.connection.execute(delete(memory_vectors).where(memory_vectors.c.document.in_(some)))
        for scope in dict.fromkeys(row.scope for row in active):
            lengths = [row.words for row in active if row.scope == scope]
            _SHRINK_SCOPE.run(self.connection, {"scope": scope, "fewer": len(lengths), "less": sum(lengths)})

    def erase(self, rows: Sequence[AnyRow]) -> None:
        """Take memories out of every index, and their content and salts out of the store."""
        self.withdraw(rows)
        for some in in_portions([row.document for row in rows]):
            self.connection.execute(delete(memories).where(memories.c.document.in_(some)))
        self.note_erased()

    def note_erased(self) -> None:
        """Say that bytes were erased, which have to leave the file after the commit."""
        if self.core.database.scrubs:
            self._erases = True
            if self.core.scrub_at_once:
                self.core.database.scrub_after_commit()


def compute_document(entry: Entry, draft: Draft) -> int:
    """Return the document number of a memory that an entry records."""
    return entry.number << SIZE_BITS | compute_size_class(len(draft.words))


def to_text(value: Json) -> str:
    """Return JSON as a column keeps it: members in the order given."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def in_portions(rows: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield row numbers in portions that a statement may name."""
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        yield rows[start : start + ROWS_AT_A_TIME]
