"""What the four operations that write do: remember, forget, merge, expire; and the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select, update

from melete.errors import InvalidInput
from melete.wire.approval import EXPIRED, FORGOTTEN, Decision, Diff
from melete.wire.audit import Action
from melete.wire.cells import read_id
from melete.wire.envelope import DEFAULT_AGENT, Envelope, MemoryType, Operation, Result
from melete.wire.errors import MemoryMerged
from melete.wire.lookup import (
    FIND_PENDING,
    checked_pending,
    find_final_id,
    load_rows,
    require_memories,
    require_row,
    with_merged,
)
from melete.wire.merging import Source, join_sources
from melete.wire.queue import find_waiting, propose, settle
from melete.wire.tables import AnyRow, memories, pending
from melete.wire.writing import Change, Core, Draft, compute_document, in_portions

#: Seconds since 1970 that a database can keep.
LATEST: Final = 2**63 - 1
PENDING_APPROVAL: Final = "pending approval"
#: What a result says when bytes could not leave the file yet.
NOT_SCRUBBED: Final = (
    "done, but old bytes may still be in the file, because others read it; they go when it is scrubbed"
)
#: Memories that one step of a sweep removes.
_SWEPT_AT_A_TIME: Final = 1_000


def agent_of(envelope: Envelope) -> str:
    """Return the agent that an envelope means."""
    return DEFAULT_AGENT if envelope.agent_id is None else envelope.agent_id


def compute_deadline(now: int, ttl_seconds: int | None) -> int | None:
    """Return when a time to live ends, None for never. Errors: `InvalidInput` for what no database can keep."""
    if ttl_seconds is None:
        return None
    if now + ttl_seconds > LATEST:
        raise InvalidInput("ttl_seconds", ttl_seconds, "such that the deadline is within 2^63 - 1")
    return now + ttl_seconds


# Remember


def remember(core: Core, envelope: Envelope, writer: str | None) -> Result:
    """Write a memory, put it into the queue, or have it rejected. Errors: `InvalidInput` for a TTL of 0."""
    agent, kind, content = agent_of(envelope), envelope.memory_type, envelope.content
    assert content is not None  # an envelope to remember has content
    if envelope.ttl_seconds == 0:
        raise InvalidInput("ttl_seconds", 0, "1 at least to remember, or left out for no end")
    decision = core.decide(Diff((), content, envelope.tags, agent, kind, envelope.metadata))
    waits = decision is Decision.PENDING
    draft = Draft.make(core, content, envelope.tags, envelope.metadata, is_embedded=decision in _WRITING)
    with core.change() as change:
        expires = compute_deadline(change.now, envelope.ttl_seconds)
        if waits:
            propose(change, Operation.REMEMBER, agent, kind, draft, writer, expires, ())
        elif decision is Decision.REJECTED:
            reject_at_once(change, Operation.REMEMBER, agent, kind, draft, writer, ())
        else:
            scope = change.scope(agent, kind)
            approved_by = None if decision is None else core.approval.name
            entry = change.record(
                Action.REMEMBER,
                agent,
                kind,
                [draft.id],
                digest=draft.digest,
                expires=expires,
                writer=writer,
                by=approved_by,
            )
            change.tell(entry, change.add_memory(scope, entry, draft), draft.salt)
    return answer(core, Operation.REMEMBER, decision, draft.id)


_WRITING: Final = (None, Decision.APPROVED)


def reject_at_once(
    change: Change,
    operation: Operation,
    agent: str,
    kind: MemoryType,
    draft: Draft,
    writer: str | None,
    sources: tuple[str, ...],
) -> None:
    """Record that a hook rejected a write, of which nothing is kept but a digest that nobody can test."""
    entry = change.record(
        Action.REJECT,
        agent,
        kind,
        [],
        digest=draft.digest,
        sources=sources,
        writer=writer,
        by=change.core.approval.name,
        operation=operation.value,
    )
    change.tell(entry)


def answer(core: Core, operation: Operation, decision: Decision | None, memory_id: str) -> Result:
    """Return what is answered once a decision about a write is carried out."""
    if decision is Decision.REJECTED:
        return Result(operation, ok=False, approved=False, detail=f"rejected by {core.approval.name}")
    if decision is Decision.PENDING:
        return Result(operation, ok=True, ids=(memory_id,), approved=False, detail=PENDING_APPROVAL)
    return Result(operation, ok=True, ids=(memory_id,), approved=None if decision is None else True)


# Merge


def merge(core: Core, envelope: Envelope, writer: str | None) -> Result:
    """Write one memory that takes up others, and retire these: all of it, or nothing."""
    agent, kind, ids = agent_of(envelope), envelope.memory_type, envelope.memory_ids
    with core.reading() as connection:
        rows = require_memories(connection, ids, agent, kind, core.time(connection), content=True)
        sources = [Source.of(row) for row in rows]
    content, tags = join_sources(sources, envelope.tags)
    decision = core.decide(
        Diff(tuple(source.content for source in sources), content, tags, agent, kind, envelope.metadata)
    )
    draft = Draft.make(core, content, tags, envelope.metadata, is_embedded=decision in _WRITING)
    with core.change() as change:
        # What a memory holds never changes, but the memory may have gone, or got another time to live, meanwhile.
        now_rows = require_memories(change.connection, ids, agent, kind, change.now)
        deadline = compute_deadline(change.now, envelope.ttl_seconds)
        if decision is Decision.PENDING:
            audited = tuple((row.id, row.audited) for row in now_rows)
            propose(change, Operation.MERGE, agent, kind, draft, writer, deadline, audited)
        elif decision is Decision.REJECTED:
            reject_at_once(change, Operation.MERGE, agent, kind, draft, writer, ids)
        else:
            approved_by = None if decision is None else core.approval.name
            take_up(change, Action.MERGE, agent, kind, draft, now_rows, deadline, writer=writer, by=approved_by)
    return answer(core, Operation.MERGE, decision, draft.id)


_RETIRE: Final = (
    update(memories)
    .where(memories.c.document == bindparam("retired"))
    .values(merged_into=bindparam("into"), audited=bindparam("number_of_merge"))
)


def take_up(
    change: Change,
    action: Action,
    agent: str,
    kind: MemoryType,
    draft: Draft,
    rows: Sequence[AnyRow],
    deadline: int | None,
    **values: Any,
) -> None:
    """Write the memory that a merge makes, and retire its sources. It ends no later than any of them."""
    ends = [end for end in (deadline, *(row.expires_at for row in rows)) if end is not None]
    entry = change.record(
        action,
        agent,
        kind,
        [draft.id],
        digest=draft.digest,
        sources=tuple(row.id for row in rows),
        expires=min(ends, default=None),
        **values,
    )
    memory = change.add_memory(rows[0].scope, entry, draft)
    change.withdraw(rows)
    into = compute_document(entry, draft)
    change.connection.execute(
        _RETIRE, [{"retired": row.document, "into": into, "number_of_merge": entry.number} for row in rows]
    )
    change.tell(entry, memory, draft.salt)


# Forget


def forget(core: Core, envelope: Envelope) -> Result:
    """Erase memories, what was merged into them, and writes that wait for approval: all of them, or none."""
    agent, kind, ids = agent_of(envelope), envelope.memory_type, envelope.memory_ids
    with core.change() as change:
        waiting = find_waiting(change.connection, ids)
        found = load_rows(change.connection, [each for each in ids if each not in waiting])
        rows = []
        for memory_id in ids:
            row = require_row(waiting.get(memory_id) or found.get(memory_id), memory_id, agent, kind)
            if memory_id in found:
                rows.append(row)
        _require_final(change.connection, rows, ids)
        erased = with_merged(change.connection, rows)
        # The ids that were asked for come first, in their order; then those that they had taken up.
        gone = tuple(dict.fromkeys([*ids, *(row.id for row in erased)]))
        entry = change.record(Action.FORGET, agent, kind, gone)
        change.erase(erased)
        settle(change, [row.number for row in waiting.values()], FORGOTTEN, agent, entry.number)
        change.tell(entry, erased=gone)
    return Result(Operation.FORGET, ok=True, ids=gone, detail=scrubbed_detail(core))


def _require_final(connection: Connection, rows: Sequence[AnyRow], ids: Sequence[str]) -> None:
    """Raise `MemoryMerged` for what was merged into a memory that stays: its content would stay with it."""
    for row in rows:
        if row.merged_into is not None:
            final = find_final_id(connection, row.merged_into)
            if final not in ids:
                raise MemoryMerged(row.id, final)


def scrubbed_detail(core: Core) -> str:
    """Return what a result says about old bytes: nothing, when they are gone or go with the outer transaction."""
    if not core.scrub_at_once or core.database.is_writing or core.database.is_scrubbed:
        return ""
    return NOT_SCRUBBED


# Expire


def expire(core: Core, envelope: Envelope) -> Result:
    """Set when memories end, at once without a time to live: all of them, or none."""
    agent, kind, ids = agent_of(envelope), envelope.memory_type, envelope.memory_ids
    with core.change() as change:
        rows = require_memories(change.connection, ids, agent, kind, change.now)
        deadline = compute_deadline(change.now, envelope.ttl_seconds or 0)
        entry = change.record(Action.EXPIRE, agent, kind, ids, expires=deadline)
        for some in in_portions([row.document for row in rows]):
            change.connection.execute(
                update(memories).where(memories.c.document.in_(some)).values(expires_at=deadline, audited=entry.number)
            )
        change.tell(entry)
    return Result(Operation.EXPIRE, ok=True, ids=ids)


# Sweep


def sweep(core: Core, until: int | None) -> int:
    """Erase what has expired, in steps of bounded size, and return how many memories and waiting writes that were."""
    swept = 0
    while True:
        with core.change() as change:
            time = change.now if until is None else until
            count = _sweep_some(change, time)
        if not count:
            break
        swept += count
    return swept


def _sweep_some(change: Change, time: int) -> int:
    ended = (
        select(memories.c.id)
        .where(memories.c.expires_at <= time, memories.c.merged_into.is_(None))
        .order_by(memories.c.document)
        .limit(_SWEPT_AT_A_TIME)
    )
    ids = [read_id(memory_id, 0) for memory_id in change.connection.execute(ended).scalars()]
    rows = list(load_rows(change.connection, ids).values())
    timed_out = FIND_PENDING.where(pending.c.decision.is_(None), pending.c.expires_at <= time)
    waiting = [checked_pending(row) for row in change.connection.execute(timed_out.limit(_SWEPT_AT_A_TIME))]
    for agent, kind in dict.fromkeys([(row.agent, row.type) for row in [*rows, *waiting]]):
        own = [row for row in rows if (row.agent, row.type) == (agent, kind)]
        erased = with_merged(change.connection, own)
        writes = [row for row in waiting if (row.agent, row.type) == (agent, kind)]
        gone = tuple(row.id for row in [*erased, *writes])
        entry = change.record(Action.SWEEP, agent, kind, gone)
        change.erase(erased)
        settle(change, [row.number for row in writes], EXPIRED, agent, entry.number)
        change.tell(entry, erased=gone)
    return len(rows) + len(waiting)
