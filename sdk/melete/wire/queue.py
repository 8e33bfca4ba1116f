"""Writes that wait for approval: proposed, listed, and decided exactly once by somebody other than the writer.

A waiting `remember` keeps its content in the queue and nowhere else. A waiting `merge` keeps none: it names its sources
and the last audit row of each. It is carried out only if they are still as they were when it was proposed; so what is
forgotten meanwhile is in no queue either.

What waits is what the audit log says was proposed: a row that says otherwise is decided about by nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from melete.canonical import Json
from melete.errors import InputError
from melete.primitives import Bytes32, keccak256
from melete.wire.approval import EXPIRED, Decision, PendingWrite, fold_name, is_same_name, verify_name
from melete.wire.audit import Action, Entry, compute_digest
from melete.wire.cells import (
    WAITING,
    altered,
    read_bytes32,
    read_metadata,
    read_sources,
    read_tags,
    read_text,
    read_text_or_none,
)
from melete.wire.envelope import MemoryType, Operation
from melete.wire.errors import AlreadyDecided, BrokenAudit, MemoryTaken, NotPending, OwnDecision, SourceChanged
from melete.wire.lookup import FIND_PENDING, checked_pending, load_rows
from melete.wire.merging import Source, join_sources
from melete.wire.prepared import Prepared
from melete.wire.tables import AnyRow, audit, memories, names, pending, scopes
from melete.wire.writing import Change, Draft, in_portions, to_text

#: What is broken where a kept name is another's.
NAME: Final = "the name of who decided"


def propose(
    change: Change,
    operation: Operation,
    agent: str,
    kind: MemoryType,
    draft: Draft,
    writer: str | None,
    expires: int | None,
    sources: tuple[tuple[str, int], ...],
) -> None:
    """Put a write into the queue. `sources` are ids and audit numbers. Errors: `MemoryTaken`."""
    if change.connection.execute(select(memories.c.id).where(memories.c.id == draft.id)).first() is not None:
        raise MemoryTaken(draft.id)
    scope = change.scope(agent, kind)
    entry = change.record(
        Action.PROPOSE,
        agent,
        kind,
        [draft.id],
        digest=draft.digest,
        sources=tuple(source for source, _ in sources),
        expires=expires,
        writer=writer or agent,
        operation=operation.value,
    )
    row = {
        "number": entry.number,
        "id": draft.id,
        "operation": operation.value,
        "scope": scope,
        "writer": writer or agent,
        "created_at": entry.at,
        "expires_at": expires,
        "sources": to_text([list(source) for source in sources]) if sources else None,
        "salt": draft.salt,
        "tags": to_text(list(draft.tags)),
        "metadata": None if draft.metadata is None else to_text(draft.metadata),
        "content": None if sources else draft.content,
    }
    try:
        change.connection.execute(insert(pending), row)
    except IntegrityError:
        raise MemoryTaken(draft.id) from None
    change.tell(entry)


def find_waiting(connection: Connection, ids: Sequence[str]) -> dict[str, AnyRow]:
    """Return the writes that wait under some ids."""
    found = {}
    for start in range(0, len(ids), 500):
        some = FIND_PENDING.where(pending.c.id.in_(ids[start : start + 500]), pending.c.decision.is_(None))
        found.update({row.id: checked_pending(row) for row in connection.execute(some)})
    return found


def list_waiting(
    connection: Connection, now: int, agent: str | None, after: int, limit: int
) -> tuple[PendingWrite, ...]:
    """Return writes that wait, oldest first, from after an audit number."""
    query = FIND_PENDING.where(
        pending.c.decision.is_(None),
        pending.c.number > after,
        pending.c.expires_at.is_(None) | (pending.c.expires_at > now),
    )
    if agent is not None:
        query = query.where(scopes.c.agent == agent)
    rows = connection.execute(query.order_by(pending.c.number).limit(limit)).all()
    return tuple(_describe(connection, row, now) for row in rows)


def _describe(connection: Connection, row: AnyRow, now: int) -> PendingWrite:
    checked_pending(row)
    sources: list[Source] = []
    content = read_text_or_none(row.content, row.number, WAITING)
    if row.sources:
        with suppress(SourceChanged):
            sources = load_sources(connection, row, now)
            content, _ = join_sources(sources, ())
    return PendingWrite(
        row.id,
        row.number,
        Operation(row.operation),
        row.agent,
        MemoryType(row.type),
        row.writer,
        row.created_at,
        row.expires_at,
        tuple(source.content for source in sources),
        content,
        read_tags(row.tags, row.number, WAITING),
        tuple(read_sources(row.sources, row.number)) if row.sources else (),
        read_metadata(row.metadata, row.number, WAITING),
    )


def load_sources(connection: Connection, row: AnyRow, now: int) -> list[Source]:
    """Return what a waiting merge would take up.

    Errors: `SourceChanged` if that is no longer as it was; `BrokenAudit`.
    """
    wanted = read_sources(row.sources, row.number)
    if not all(audited < row.number for audited in wanted.values()):
        raise BrokenAudit(row.number, WAITING, "of sources as they were before", "of later ones")
    found = load_rows(connection, list(wanted), content=True)
    for source_id, audited in wanted.items():
        source = found.get(source_id)
        reason = ""
        if source is None:
            reason = "was forgotten, or has expired,"
        elif source.merged_into is not None:
            reason = "was merged into another"
        elif source.expires_at is not None and source.expires_at <= now:
            reason = "has expired"
        elif source.audited != audited:
            reason = "was given another time to live"
        if reason:
            raise SourceChanged(row.id, source_id, reason)
    return [Source.of(found[source_id]) for source_id in wanted]


def require_waiting(connection: Connection, memory_id: str, by: str, now: int) -> AnyRow:
    """Return the write that waits under an id as it was proposed, once `by` may decide about it.

    Errors: `NotPending`, `AlreadyDecided`, `OwnDecision`; `BrokenAudit`.
    """
    row = connection.execute(FIND_PENDING.where(pending.c.id == memory_id)).first()
    if row is None:
        raise NotPending(memory_id)
    checked_pending(row)
    if row.decision is not None:
        raise AlreadyDecided(memory_id, row.decision, row.decided_by)
    load_proposal(connection, row)
    if row.expires_at is not None and row.expires_at <= now:
        raise AlreadyDecided(memory_id, EXPIRED, "its time to live")
    if is_same_name(by, row.writer) or is_same_name(by, row.agent):
        raise OwnDecision(memory_id, by)
    return row


_FIND_ENTRY: Final = Prepared(select(audit.c.entry, audit.c.hash).where(audit.c.number == bindparam("of")))


def load_proposal(connection: Connection, row: AnyRow) -> Entry:
    """Return the entry that proposed a write, once the write's row says the same of it. Errors: `BrokenAudit`.

    What the write holds is not looked at: that is for `read_held`.
    """
    found = _FIND_ENTRY.run(connection, {"of": row.number}).fetchone()
    if found is None:
        raise BrokenAudit(row.number, WAITING, "none", row.id)
    data = read_text(found[0], row.number, "the entry of the audit row").encode()
    if keccak256(data) != read_bytes32(found[1], row.number, "the hash of the audit row"):
        raise BrokenAudit(row.number, "the hash of the audit row", found[1], keccak256(data))
    try:
        entry = Entry.from_bytes(data)
    except InputError:
        raise altered(row.number, "the entry of the audit row") from None
    if not is_proposed(row, entry):
        raise BrokenAudit(row.number, WAITING, "as it was proposed", "another")
    return entry


def is_proposed(row: AnyRow, entry: Entry) -> bool:
    """Return whether a row says of a write what the entry that proposed it does: of everything but what it holds."""
    stated = (row.number, (row.id,), row.operation, row.agent, row.type, row.writer, row.created_at, row.expires_at)
    proposed = (entry.number, entry.memories, entry.operation, entry.agent, entry.type, entry.writer, entry.at)
    return entry.action is Action.PROPOSE and stated == (*proposed, entry.expires)


class Held(NamedTuple):
    """What a waiting write would write."""

    content: str
    tags: tuple[str, ...]
    metadata: dict[str, Json] | None
    salt: Bytes32


def read_held(row: AnyRow, entry: Entry, sources: Sequence[Source]) -> Held:
    """Return what a waiting write would write, once that is what its entry says was proposed. Errors: `BrokenAudit`.

    `sources` are those of a merge.
    """
    wanted = tuple(read_sources(row.sources, row.number)) if row.sources is not None else ()
    if wanted != entry.sources or (wanted and row.content is not None):
        raise BrokenAudit(row.number, WAITING, "as it was proposed", "another")
    content = join_sources(sources, ())[0] if wanted else read_text(row.content, row.number, WAITING)
    held = Held(content, *read_rest(row))
    digest = compute_digest(held.salt, content, held.tags, held.metadata)
    if digest != entry.digest:
        raise BrokenAudit(row.number, "the digest of a memory", entry.digest, digest)
    return held


def read_rest(row: AnyRow) -> tuple[tuple[str, ...], dict[str, Json] | None, Bytes32]:
    """Return tags, metadata and salt of a waiting write. Errors: `BrokenAudit`."""
    return (
        read_tags(row.tags, row.number, WAITING),
        read_metadata(row.metadata, row.number, WAITING),
        read_bytes32(row.salt, row.number, WAITING),
    )


def settle(change: Change, numbers: Sequence[int], decision: str, by: str, decided: int) -> None:
    """Note what became of waiting writes, and take what they held out of the queue."""
    for some in in_portions(numbers):
        change.connection.execute(
            update(pending)
            .where(pending.c.number.in_(some))
            .values(
                decision=decision,
                decided=decided,
                decided_by=by,
                sources=None,
                salt=None,
                tags=None,
                metadata=None,
                content=None,
            )
        )
    if numbers and decision != Decision.APPROVED:
        change.note_erased()


# Names


def register_name(change: Change, name: object) -> str:
    """Return a name as it was first written, and keep it if it is new.

    Errors: `InvalidInput`; `BrokenAudit` where somebody else's stands in its place.
    """
    given = verify_name(name)
    folded = fold_name(given)
    row = change.connection.execute(select(names.c.name).where(names.c.folded == folded)).first()
    if row is None:
        change.connection.execute(insert(names), {"folded": folded, "name": given, "since": change.now})
        return given
    kept = read_text(row.name, change.head.number, NAME)
    if fold_name(kept) != folded:
        raise BrokenAudit(change.head.number, NAME, given, kept)
    return kept


def list_names(connection: Connection) -> tuple[str, ...]:
    """Return all names that are kept, in order. Errors: `BrokenAudit`."""
    kept = connection.execute(select(names.c.name).order_by(names.c.folded)).scalars()
    return tuple(read_text(name, 0, NAME) for name in kept)
