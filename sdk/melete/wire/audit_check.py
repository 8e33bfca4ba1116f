"""Does the audit log hold together, and do the rows agree with it? The first place where not is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Final

from sqlalchemy import Connection, select

from melete.primitives import ZERO_BYTES32, Bytes32, keccak256
from melete.wire.approval import EXPIRED, FORGOTTEN, Decision
from melete.wire.audit import EMPTY, Action, AuditHead, Entry, compute_digest, follow
from melete.wire.engines import Database
from melete.wire.errors import BrokenAudit
from melete.wire.tables import AnyRow, audit, memories, memory_vectors, meta, pending, scopes
from melete.wire.words import SIZE_BITS, compute_size_class, compute_terms, split_words, tag_term

_ENTRIES_AT_A_TIME: Final = 1_000
#: Memories may be large.
_MEMORIES_AT_A_TIME: Final = 64


@dataclass(slots=True)
class _Live:
    """What the log says of a memory that is not erased. There may be millions, so it holds no more than is compared."""

    number: int
    at: int
    agent: str
    type: str
    digest: bytes
    audited: int
    expires: int | None
    merged_into: str | None = None


@dataclass(slots=True)
class _Proposal:
    """What the log says of a write that was put into the queue."""

    made: Entry
    audited: int
    decision: str | None = None
    by: str | None = None


@dataclass(slots=True)
class _Sum:
    """What the memories of a scope that can be recalled come to; `number` is the audit row of the first of all."""

    number: int
    documents: int = 0
    words: int = 0


def verify(database: Database, connection: Connection, recorded: AuditHead | None) -> AuditHead:
    """Return the head of the chain. Errors: see `MemoryStore.verify_audit`."""
    log = _Log()
    head = log.read(connection, recorded)
    faults = [
        *log.check_memories(database, connection),
        *log.check_pending(connection),
        *_check_index(database, connection),
    ]
    if not faults:
        # A row that was altered shows in these, too, and is the place to name.
        faults = [*log.check_scopes(connection), *_check_vectors(connection)]
    if faults:
        raise min(faults, key=lambda fault: fault.number)
    return head


class _Log:
    """The state of all memories and proposals, as the log tells it."""

    def __init__(self) -> None:
        self._memories: dict[str, _Live] = {}
        self._proposals: dict[str, _Proposal] = {}
        self._sums: dict[int, _Sum] = {}

    def read(self, connection: Connection, recorded: AuditHead | None) -> AuditHead:
        head = EMPTY
        for number, text, stored_hash in _rows_of_audit(connection):
            if not isinstance(text, str):
                raise BrokenAudit(number, "the entry of the audit row", "a text", "of another type")
            if not isinstance(stored_hash, bytes):
                raise BrokenAudit(number, "the hash of the audit row", "32 bytes", "of another type")
            entry = follow(head, number, text.encode(), stored_hash)
            head = AuditHead(number, keccak256(text.encode()))
            if recorded is not None and recorded.number == number and recorded.hash != head.hash:
                raise BrokenAudit(number, "the head that was recorded elsewhere", recorded.hash, head.hash)
            self._apply(entry)
        if recorded is not None and recorded.number > head.number:
            raise BrokenAudit(
                head.number + 1, "the head that was recorded elsewhere", f"number {recorded.number}", head.number
            )
        number, digest = connection.execute(select(meta.c.number, meta.c.hash)).one()
        if number != head.number:
            raise BrokenAudit(min(number, head.number) + 1, "the newest audit row", number, head.number)
        if number and digest != head.hash:
            raise BrokenAudit(number, "the newest audit row", digest, head.hash)
        return head

    def _apply(self, entry: Entry) -> None:
        try:
            if entry.action in (Action.FORGET, Action.SWEEP):
                for memory_id in entry.memories:
                    self._end(memory_id, entry)
            elif entry.action is Action.EXPIRE:
                for memory_id in entry.memories:
                    memory = self._memories[memory_id]
                    memory.expires, memory.audited = entry.expires, entry.number
            elif entry.action is Action.PROPOSE:
                (memory_id,) = entry.memories
                self._proposals[memory_id] = _Proposal(entry, entry.number)
            elif entry.action is Action.REJECT:
                for memory_id in entry.memories:
                    self._decide(memory_id, Decision.REJECTED, entry)
            else:
                self._add(entry)
        except (KeyError, ValueError):
            raise BrokenAudit(
                entry.number, "the entry of the audit row", "about memories that there are", entry.action.value
            ) from None

    def _add(self, entry: Entry) -> None:
        (memory_id,) = entry.memories
        if memory_id in self._memories or entry.digest is None:
            raise ValueError(memory_id)
        if entry.action is Action.APPROVE:
            self._decide(memory_id, Decision.APPROVED, entry)
        self._memories[memory_id] = _Live(
            entry.number, entry.at, intern(entry.agent), intern(entry.type), entry.digest, entry.number, entry.expires
        )
        for source in entry.sources:
            memory = self._memories[source]
            memory.merged_into, memory.audited = memory_id, entry.number

    def _decide(self, memory_id: str, decision: str, entry: Entry) -> None:
        proposal = self._proposals[memory_id]
        if proposal.decision is not None:
            raise ValueError(memory_id)
        proposal.decision, proposal.audited = decision, entry.number
        proposal.by = entry.by if entry.action in (Action.APPROVE, Action.REJECT) else entry.agent

    def _end(self, memory_id: str, entry: Entry) -> None:
        if self._memories.pop(memory_id, None) is None:
            self._decide(memory_id, FORGOTTEN if entry.action is Action.FORGET else EXPIRED, entry)

    # Rows

    def check_memories(self, database: Database, connection: Connection) -> Iterator[BrokenAudit]:
        """Yield what is wrong with memories, the text index and the counts of their scopes."""
        missing = dict(self._memories)
        for rows in _rows_of_memories(connection):
            indexed = database.load_terms(connection, [row.document for row in rows])
            for row in rows:
                number = row.document >> SIZE_BITS
                memory = missing.pop(row.id, None)
                fault = _fault_of_memory(row, memory, self._memories)
                if not fault:
                    fault = _fault_of_words(database, row, indexed.get(row.document))
                if fault:
                    yield BrokenAudit(number if memory is None else memory.number, *fault)
                    continue
                total = self._sums.setdefault(row.scope, _Sum(number))
                if row.merged_into is None:
                    total.documents, total.words = total.documents + 1, total.words + row.words
        for memory_id, memory in missing.items():
            yield BrokenAudit(memory.number, "a memory's row", memory_id, "missing")

    def check_scopes(self, connection: Connection) -> Iterator[BrokenAudit]:
        """Yield the scopes that count otherwise than `check_memories` found them, which has to be asked before."""
        return _check_scopes(connection, self._sums)

    def check_pending(self, connection: Connection) -> Iterator[BrokenAudit]:
        """Yield what is wrong with waiting and decided writes: at most one fault for each."""
        missing = dict(self._proposals)
        query = select(*pending.columns, scopes.c.agent, scopes.c.type).join(scopes, scopes.c.id == pending.c.scope)
        last = 0
        while rows := connection.execute(
            query.where(pending.c.number > last).order_by(pending.c.number).limit(_MEMORIES_AT_A_TIME)
        ).all():
            for row in rows:
                proposal = missing.pop(row.id, None)
                fault = _fault_of_proposal(row, proposal)
                if fault:
                    yield BrokenAudit(row.number if proposal is None else proposal.made.number, *fault)
            last = rows[-1].number
        for memory_id, proposal in missing.items():
            yield BrokenAudit(proposal.made.number, "a pending write", memory_id, "missing")


def _fault_of_memory(row: AnyRow, memory: _Live | None, log: dict[str, _Live]) -> tuple[str, object, object] | None:
    if memory is None:
        return "a memory's row", "none", row.id
    if not isinstance(row.content, str):
        return "a memory's row", "a text as content", "of another type"
    stated = (row.number, row.document >> SIZE_BITS, row.agent, row.type)
    if stated != (memory.number, memory.number, memory.agent, memory.type):
        return "a memory's row", f"{memory.agent}, {memory.type}", f"{row.agent}, {row.type}"
    digest = _digest_of(row)
    if digest != memory.digest:
        return "the digest of a memory", memory.digest, digest
    if row.created_at != memory.at:
        return "the time of a memory", memory.at, row.created_at
    if row.expires_at != memory.expires:
        return "the expiry of a memory", memory.expires, row.expires_at
    into = None if memory.merged_into is None else log.get(memory.merged_into)
    expected = None if into is None else into.number
    received = row.merged_into >> SIZE_BITS if isinstance(row.merged_into, int) else row.merged_into
    if received != expected:
        return "the merge of a memory", expected, received
    if row.audited != memory.audited:
        return "the last audit row of a memory", memory.audited, row.audited
    return None


def _fault_of_proposal(row: AnyRow, proposal: _Proposal | None) -> tuple[str, object, object] | None:
    if proposal is None:
        return "a pending write", "none", row.id
    made = proposal.made
    stated = (row.number, row.operation, row.agent, row.type, row.writer, row.created_at, row.expires_at)
    if stated != (made.number, made.operation, made.agent, made.type, made.writer, made.at, made.expires):
        return "a pending write", "as it was proposed", "another"
    decided = None if proposal.decision is None else proposal.audited
    if (row.decision, row.decided, row.decided_by) != (proposal.decision, decided, proposal.by):
        return "the decision about a pending write", proposal.decision or "none", row.decision or "none"
    if row.decision is not None:
        return None
    if made.sources:
        try:
            sources = tuple(source for source, _ in json.loads(row.sources or "[]"))
        except (ValueError, TypeError, RecursionError):
            return "a pending write", "as it was proposed", "of another form"
        return None if sources == made.sources else ("a pending write", "as it was proposed", "another")
    digest = _digest_of(row)
    return None if digest == made.digest else ("the digest of a memory", made.digest, digest)


def _digest_of(row: AnyRow) -> Bytes32:
    """Return the digest of what a row holds; zero where that cannot have been written by a store."""
    try:
        tags = json.loads(row.tags)
        metadata = None if row.metadata is None else json.loads(row.metadata)
        return compute_digest(bytes(row.salt), row.content, tags, metadata)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ZERO_BYTES32


def _fault_of_words(
    database: Database, row: AnyRow, indexed: list[list[str]] | None
) -> tuple[str, object, object] | None:
    """Return what is wrong with the words of a memory whose digest holds; that it is not indexed, is told elsewhere."""
    words = split_words(row.content)
    if row.words != len(words) or row.document & ((1 << SIZE_BITS) - 1) != compute_size_class(len(words)):
        return "the word count of a memory", len(words), row.words
    if indexed is None or row.merged_into is not None:
        return None
    tags = [tag_term(row.scope, tag) for tag in json.loads(row.tags)]
    if indexed != database.arrange_terms(compute_terms(row.scope, words), tags):
        return "the text index", "with the words and tags of this memory", "with others"
    return None


def _check_scopes(connection: Connection, sums: dict[int, _Sum]) -> Iterator[BrokenAudit]:
    for row in connection.execute(select(scopes.c.id, scopes.c.documents, scopes.c.words)):
        total = sums.get(row.id, _Sum(1))
        if (row.documents, row.words) != (total.documents, total.words):
            expected, received = (total.documents, total.words), (row.documents, row.words)
            told = ["{} memories of {} words".format(*each) for each in (expected, received)]
            yield BrokenAudit(total.number, "the counts of a scope", *told)


def _check_vectors(connection: Connection) -> Iterator[BrokenAudit]:
    """Yield the first vector that stands in another scope than its memory, or beside none that can be recalled."""
    query = (
        select(memory_vectors.c.document)
        .join(memories, memories.c.document == memory_vectors.c.document, isouter=True)
        .where(
            memories.c.document.is_(None)
            | memories.c.merged_into.is_not(None)
            | (memories.c.scope != memory_vectors.c.scope)
        )
    )
    document = connection.execute(query.order_by(memory_vectors.c.document).limit(1)).scalar()
    if document is not None:
        yield BrokenAudit(document >> SIZE_BITS, "the vectors of a scope", "without this one", "with it")


def _check_index(database: Database, connection: Connection) -> Iterator[BrokenAudit]:
    lacking, foreign = database.compare_index(connection)
    if lacking is not None:
        yield BrokenAudit(lacking >> SIZE_BITS, "the text index", "with this memory", "without")
    if foreign is not None:
        yield BrokenAudit(foreign >> SIZE_BITS, "the text index", "without this row", "with it")


def _rows_of_audit(connection: Connection) -> Iterator[AnyRow]:
    # Numbers may have been changed to anything, so the first page starts below all of them.
    last = -(2**63)
    query = select(audit.c.number, audit.c.entry, audit.c.hash).order_by(audit.c.number).limit(_ENTRIES_AT_A_TIME)
    while rows := connection.execute(query.where(audit.c.number > last)).all():
        yield from rows
        last = rows[-1].number


def _rows_of_memories(connection: Connection) -> Iterator[Sequence[AnyRow]]:
    last = -(2**63)
    query = (
        select(*memories.columns, scopes.c.agent, scopes.c.type)
        .join(scopes, scopes.c.id == memories.c.scope, isouter=True)
        .order_by(memories.c.document)
        .limit(_MEMORIES_AT_A_TIME)
    )
    while rows := connection.execute(query.where(memories.c.document > last)).all():
        yield rows
        last = rows[-1].document
