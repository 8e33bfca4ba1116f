"""Writes that wait for approval: proposed, listed, and decided exactly once by somebody other than the writer.

A waiting `remember` keeps its content in the queue and nowhere else. A waiting `merge` keeps none: it names its sources
and the last audit row of each. It is carried out only if they are still as they were when it was proposed; so what is
forgotten meanwhile is in no queue either.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from melete.wire.approval import EXPIRED, Decision, PendingWrite, fold_name, is_same_name, verify_name
from melete.wire.audit import Action
from melete.wire.cells import read_metadata, read_sources, read_tags
from melete.wire.envelope import MemoryType, Operation
from melete.wire.errors import AlreadyDecided, MemoryTaken, NotPending, OwnDecision, SourceChanged
from melete.wire.lookup import load_rows
from melete.wire.merging import Source, join_sources
from melete.wire.tables import AnyRow, memories, names, pending, scopes
from melete.wire.writing import Change, Draft, in_portions, to_text

_FIND: Final = select(*pending.columns, scopes.c.agent, scopes.c.type).join(scopes, scopes.c.id == pending.c.scope)


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
        some = _FIND.where(pending.c.id.in_(ids[start : start + 500]), pending.c.decision.is_(None))
        found.update({row.id: row for row in connection.execute(some)})
    return found


def list_waiting(
    connection: Connection, now: int, agent: str | None, after: int, limit: int
) -> tuple[PendingWrite, ...]:
    """Return writes that wait, oldest first, from after an audit number."""
    query = _FIND.where(
        pending.c.decision.is_(None),
        pending.c.number > after,
        pending.c.expires_at.is_(None) | (pending.c.expires_at > now),
    )
    if agent is not None:
        query = query.where(scopes.c.agent == agent)
    rows = connection.execute(query.order_by(pending.c.number).limit(limit)).all()
    return tuple(_describe(connection, row, now) for row in rows)


def _describe(connection: Connection, row: AnyRow, now: int) -> PendingWrite:
    sources: list[Source] = []
    content = row.content
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
        read_tags(row.tags, row.number),
        tuple(read_sources(row.sources, row.number)) if row.sources else (),
        read_metadata(row.metadata, row.number),
    )


def load_sources(connection: Connection, row: AnyRow, now: int) -> list[Source]:
    """Return what a waiting merge would take up. Errors: `SourceChanged` if that is no longer as it was."""
    wanted = read_sources(row.sources, row.number)
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
    """Return the write that waits under an id, once `by` may decide about it.

    Errors: `NotPending`, `AlreadyDecided`, `OwnDecision`.
    """
    row = connection.execute(_FIND.where(pending.c.id == memory_id)).one_or_none()
    if row is None:
        raise NotPending(memory_id)
    if row.decision is not None:
        raise AlreadyDecided(memory_id, row.decision, row.decided_by)
    if row.expires_at is not None and row.expires_at <= now:
        raise AlreadyDecided(memory_id, EXPIRED, "its time to live")
    if is_same_name(by, row.writer) or is_same_name(by, row.agent):
        raise OwnDecision(memory_id, by)
    return row


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
    """Return a name as it was first written, and keep it if it is new. Errors: `InvalidInput`."""
    given = verify_name(name)
    folded = fold_name(given)
    kept: str | None = change.connection.execute(select(names.c.name).where(names.c.folded == folded)).scalar()
    if kept is None:
        change.connection.execute(insert(names), {"folded": folded, "name": given, "since": change.now})
    return kept or given


def list_names(connection: Connection) -> tuple[str, ...]:
    """Return all names that are kept, in order."""
    return tuple(connection.execute(select(names.c.name).order_by(names.c.folded)).scalars())
