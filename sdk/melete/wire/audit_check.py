"""Does the audit log hold together, and do the rows agree with it? The first place where not is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from sqlalchemy import Connection, exists, func, inspect, select

from melete.primitives import ZERO_BYTES32, Bytes32, keccak256
from melete.wire import migrations, recorded_check
from melete.wire.approval import Decision, fold_name
from melete.wire.audit import EMPTY, AuditHead, compute_digest, follow
from melete.wire.audit_state import DECISION, Live, Proposal, State
from melete.wire.cells import (
    number_of,
    read_bytes32,
    read_metadata,
    read_number,
    read_sources,
    read_tags,
    read_text,
)
from melete.wire.engines import Database
from melete.wire.errors import BrokenAudit
from melete.wire.lookup import load_rows
from melete.wire.merging import Source
from melete.wire.prepared import driver_connection
from melete.wire.queue import NAME, is_proposed, read_held, read_rest
from melete.wire.tables import AnyRow, audit, memories, memory_vectors, meta, metadata, names, pending, scopes
from melete.wire.words import SIZE_BITS, compute_size_class, compute_terms, split_words, tag_term

#: What is wrong with a row: the rule, what was expected, and what came.
_Fault: TypeAlias = tuple[str, object, object]

_ENTRIES_AT_A_TIME: Final = 1_000
#: Memories may be large.
_MEMORIES_AT_A_TIME: Final = 64


@dataclass(slots=True)
class _Sum:
    """What the memories of a scope that can be recalled come to; `number` is the audit row of the first of all."""

    number: int
    documents: int = 0
    words: int = 0


def verify(database: Database, connection: Connection, recorded: AuditHead | None) -> AuditHead:
    """Return the head of the chain. Errors: see `MemoryStore.verify_audit`."""
    with _any_text(connection):
        log = _Log(is_on_record=recorded_check.is_on_record(connection))
        head = log.read(connection, recorded)
        faults = [
            *log.check_memories(database, connection),
            *log.check_pending(connection),
            *_check_index(database, connection),
        ]
        if not faults:
            # A row that was altered shows in these, too, and is the place to name.
            faults = [
                *log.check_scopes(connection),
                *_check_merges(connection),
                *_check_vectors(connection, head.number),
                *log.check_names(connection, head.number),
                *log.check_recorded(connection, head.number),
                *_check_tables(connection, head.number),
            ]
    if faults:
        raise min(faults, key=lambda fault: fault.number)
    return head


@contextmanager
def _any_text(connection: Connection) -> Iterator[None]:
    """Read as text also what is no UTF-8, in a file, so that the row can be named; a server keeps no such."""
    if connection.dialect.name != "sqlite":
        yield
        return
    db = driver_connection(connection)
    before, db.text_factory = db.text_factory, _decode
    try:
        yield
    finally:
        db.text_factory = before


def _decode(data: bytes) -> str:
    """Return a text; what is no UTF-8 becomes surrogates, which no digest is of and no name holds."""
    return str(data, "utf-8", "surrogateescape")


class _Log:
    """The log, once it was read, against the rows."""

    def __init__(self, *, is_on_record: bool) -> None:
        self._state, self._is_on_record = State(keeps_ended=is_on_record), is_on_record
        self._sums: dict[int, _Sum] = {}

    def read(self, connection: Connection, recorded: AuditHead | None) -> AuditHead:
        if recorded is not None and recorded.number <= 0 and recorded != EMPTY:
            # Before the first row there is one head only.
            raise BrokenAudit(recorded.number, _ELSEWHERE, recorded.hash, EMPTY.hash)
        head = EMPTY
        for number, text, stored_hash in _rows_of_audit(connection):
            if not isinstance(text, str):
                raise BrokenAudit(number, "the entry of the audit row", "a text", "of another type")
            if not isinstance(stored_hash, bytes):
                raise BrokenAudit(number, "the hash of the audit row", "32 bytes", "of another type")
            data = text.encode(errors="surrogateescape")
            entry = follow(head, number, data, stored_hash)
            head = AuditHead(number, keccak256(data))
            if recorded is not None and recorded.number == number and recorded.hash != head.hash:
                raise BrokenAudit(number, _ELSEWHERE, recorded.hash, head.hash)
            self._state.apply(entry)
        if recorded is not None and recorded.number > head.number:
            raise BrokenAudit(head.number + 1, _ELSEWHERE, f"number {recorded.number}", head.number)
        _check_head(connection, head)
        return head

    # Rows

    def check_memories(self, database: Database, connection: Connection) -> Iterator[BrokenAudit]:
        """Yield what is wrong with memories, the text index and the counts of their scopes."""
        missing = dict(self._state.memories)
        for rows in _rows_of_memories(connection):
            indexed = database.load_terms(connection, [row.document for row in rows])
            for row in rows:
                number = row.document >> SIZE_BITS
                memory = missing.pop(row.id, None)
                fault = _fault_of_memory(row, memory, self._state.memories)
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
        query = select(scopes.c.id, scopes.c.agent, scopes.c.type, scopes.c.since, scopes.c.documents, scopes.c.words)
        for scope, agent, kind, *counts in connection.execute(query):
            total = self._sums.get(scope, _Sum(1))
            expected = [self._state.since.get((agent, kind)), total.documents, total.words]
            if counts != expected:
                told = ["since {}, {} memories of {} words".format(*each) for each in (expected, counts)]
                yield BrokenAudit(total.number, "the counts of a scope", *told)
        for scope, removals in connection.execute(select(scopes.c.id, scopes.c.removals)):
            if type(removals) is not int or removals < 0:
                number = self._sums.get(scope, _Sum(1)).number
                yield BrokenAudit(number, "the counts of a scope", "a number of removals", "of another form")

    def check_names(self, connection: Connection, head: int) -> Iterator[BrokenAudit]:
        """Yield the names that stand for somebody else's, and those of who decided that are not kept."""
        deciders: dict[str, int] = {}
        for proposal in self._state.proposals.values():
            if proposal.decision in (Decision.APPROVED, Decision.REJECTED) and proposal.by is not None:
                folded = fold_name(proposal.by)
                deciders[folded] = min(proposal.audited, deciders.get(folded, head))
        for folded, name, since in connection.execute(select(names.c.folded, names.c.name, names.c.since)):
            # Names of older stores were folded with fewer characters left out.
            is_text = isinstance(folded, str) and isinstance(name, str) and type(since) is int
            own = fold_name(folded) if is_text else ""
            number = deciders.pop(own, head)
            if not own or fold_name(name) != own:
                yield BrokenAudit(number, NAME, folded, name)
        for folded, number in deciders.items():
            yield BrokenAudit(number, NAME, folded, "missing")

    def check_recorded(self, connection: Connection, head: int) -> Iterator[BrokenAudit]:
        """Yield what is wrong with what the store keeps about its being on record."""
        if not self._is_on_record:
            return iter(())
        return recorded_check.check(connection, head, self._state.list_made())

    def check_pending(self, connection: Connection) -> Iterator[BrokenAudit]:
        """Yield what is wrong with waiting and decided writes: at most one fault for each."""
        missing = dict(self._state.proposals)
        columns = [*pending.columns, scopes.c.agent, scopes.c.type]
        query = select(*columns).join(scopes, scopes.c.id == pending.c.scope, isouter=True)
        # Whatever number a row was put in with.
        last = -(2**63)
        while rows := connection.execute(
            query.where(pending.c.number > last).order_by(pending.c.number).limit(_MEMORIES_AT_A_TIME)
        ).all():
            for row in rows:
                proposal = missing.pop(row.id, None)
                fault = _fault_of_proposal(connection, row, proposal)
                if fault:
                    yield BrokenAudit(row.number if proposal is None else proposal.made.number, *fault)
            last = rows[-1].number
        for memory_id, proposal in missing.items():
            yield BrokenAudit(proposal.made.number, "a pending write", memory_id, "missing")


_ELSEWHERE: Final = "the head that was recorded elsewhere"


def _check_head(connection: Connection, head: AuditHead) -> None:
    """Raise if the head that stands beside the chain is not the chain's."""
    rule = "the newest audit row"
    row = connection.execute(select(meta.c.number, meta.c.hash)).first()
    if row is None:
        raise BrokenAudit(head.number, rule, head.number, "missing")
    number = read_number(row.number, head.number, rule)
    if number != head.number:
        raise BrokenAudit(min(number, head.number) + 1, rule, number, head.number)
    if number and row.hash != head.hash:
        raise BrokenAudit(number, rule, row.hash, head.hash)


def _fault_of_memory(row: AnyRow, memory: Live | None, log: dict[str, Live]) -> _Fault | None:
    if memory is None:
        return "a memory's row", "none", row.id
    stated = (row.number, row.document >> SIZE_BITS, row.agent, row.type)
    if stated != (memory.number, memory.number, memory.agent, memory.type):
        return "a memory's row", f"{memory.agent}, {memory.type}", f"{row.agent}, {row.type}"
    try:
        digest = _digest_of(row, memory.number)
    except BrokenAudit as fault:
        return fault.rule, fault.expected, fault.received
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


def _digest_of(row: AnyRow, number: int) -> Bytes32:
    """Return the digest of what a row holds; zero for what has none. Errors: `BrokenAudit`."""
    content, tags = read_text(row.content, number), read_tags(row.tags, number)
    metadata, salt = read_metadata(row.metadata, number), read_bytes32(row.salt, number)
    try:
        return compute_digest(salt, content, tags, metadata)
    except (ValueError, RecursionError):  # what JSON or UTF-8 does not hold
        return ZERO_BYTES32


def _fault_of_proposal(connection: Connection, row: AnyRow, proposal: Proposal | None) -> _Fault | None:
    if proposal is None:
        return "a pending write", "none", row.id
    if not is_proposed(row, proposal.made):
        return "a pending write", "as it was proposed", "another"
    decided = None if proposal.decision is None else proposal.audited
    if (row.decision, row.decided, row.decided_by) != (proposal.decision, decided, proposal.by):
        return DECISION, proposal.decision or "none", row.decision or "none"
    held = (row.sources, row.salt, row.tags, row.metadata, row.content)
    if row.decision is not None:
        is_empty = held == (None,) * len(held)
        return None if is_empty else ("a pending write", "without what it held, once it is decided", "with it")
    try:
        _check_held(connection, row, proposal)
    except BrokenAudit as fault:
        return fault.rule, fault.expected, fault.received
    except (ValueError, RecursionError):
        return "the digest of a memory", proposal.made.digest, ZERO_BYTES32
    return None


def _check_held(connection: Connection, row: AnyRow, proposal: Proposal) -> None:
    """Raise if a write that waits holds something else than was proposed."""
    made = proposal.made
    if not made.sources:
        read_held(row, made, ())
        return
    wanted = read_sources(row.sources, made.number)
    if [*wanted.items()] != [*proposal.sources.items()] or row.content is not None:
        raise BrokenAudit(made.number, "a pending write", "as it was proposed", "another")
    read_rest(row)
    try:
        found = load_rows(connection, made.sources, content=True)
        sources = [Source.of(found[source]) for source in made.sources]
    except (BrokenAudit, KeyError):
        return  # named by itself, or gone: then the merge can only be rejected
    read_held(row, made, sources)


def _fault_of_words(database: Database, row: AnyRow, indexed: list[list[str]] | None) -> _Fault | None:
    """Return what is wrong with the words of a memory whose digest holds; that it is not indexed, is told elsewhere."""
    words = split_words(row.content)
    if row.words != len(words) or row.document & ((1 << SIZE_BITS) - 1) != compute_size_class(len(words)):
        return "the word count of a memory", len(words), row.words
    if indexed is None or row.merged_into is not None:
        return None
    tags = [tag_term(row.scope, tag) for tag in read_tags(row.tags, row.number)]
    if indexed != database.arrange_terms(compute_terms(row.scope, words), tags):
        return "the text index", "with the words and tags of this memory", "with others"
    return None


def _check_vectors(connection: Connection, head: int) -> Iterator[BrokenAudit]:
    """Yield the first vector that is in another scope than its memory, or beside none that can be recalled.

    And the first that is not as long as all.
    """
    rule = "the vectors of a scope"
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
        yield BrokenAudit(number_of(document), rule, "without this one", "with it")
    dimensions = connection.execute(select(meta.c.dimensions)).scalar()
    others = select(memory_vectors.c.document)
    if type(dimensions) is int and 0 < dimensions < _MOST_DIMENSIONS:
        others = others.where(func.length(memory_vectors.c.vector) != dimensions * 4)
    elif dimensions is not None:
        yield BrokenAudit(head, rule, "of some numbers each", dimensions)
    document = connection.execute(others.order_by(memory_vectors.c.document).limit(1)).scalar()
    if document is not None:
        yield BrokenAudit(number_of(document), rule, "as long as all", "of another length")


_MOST_DIMENSIONS: Final = 2**24


def _check_tables(connection: Connection, head: int) -> Iterator[BrokenAudit]:
    """Yield what is wrong with the settings of a store, and the first index that is missing."""
    rule = "the tables of the store"
    version, unscrubbed = connection.execute(select(meta.c.version, meta.c.unscrubbed)).one()
    if version != migrations.VERSION:
        yield BrokenAudit(head, rule, f"of version {migrations.VERSION}", version)
    if type(unscrubbed) is not int or unscrubbed < 0:
        yield BrokenAudit(head, rule, "with a count of what was erased", unscrubbed)
    tables = inspect(connection)
    found = {str(index["name"]) for table in metadata.tables for index in tables.get_indexes(table)}
    missing = migrations.find_missing_index(found)
    if missing:
        yield BrokenAudit(head, rule, f"with index {missing}", "without")


def _check_merges(connection: Connection) -> Iterator[BrokenAudit]:
    """Yield the first memory that was merged into a document that there is not."""
    other = memories.alias()
    nowhere = memories.c.merged_into.is_not(None) & ~exists().where(other.c.document == memories.c.merged_into)
    query = select(memories.c.document, memories.c.merged_into).where(nowhere).order_by(memories.c.document)
    row = connection.execute(query.limit(1)).first()
    if row is not None:
        yield BrokenAudit(number_of(row.document), "the merge of a memory", "into one that there is", row.merged_into)


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
