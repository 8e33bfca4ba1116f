"""Approving and rejecting writes that wait, exactly once, in one transaction with their audit row."""

from __future__ import annotations

from sqlalchemy import Connection

from melete.wire.approval import Decision, verify_name
from melete.wire.audit import Action
from melete.wire.cells import read_content, read_metadata, read_sources, read_tags
from melete.wire.envelope import MemoryType, Operation, Result
from melete.wire.lookup import load_rows
from melete.wire.merging import join_sources
from melete.wire.operations import scrubbed_detail, take_up
from melete.wire.queue import load_sources, register_name, require_waiting, settle
from melete.wire.tables import AnyRow
from melete.wire.writing import Core, Draft


def approve(core: Core, memory_id: str, by: object) -> Result:
    """Carry out a write that waits. Errors: those of `require_waiting`; `SourceChanged` for a merge; `InvalidInput`."""
    name = verify_name(by, "by")
    with core.database.reading() as connection:
        # Words and vector are made before anybody is kept waiting; who is too late by then is told below.
        draft = _draft(core, connection, require_waiting(connection, memory_id, name, core.now()), core.now())
    with core.change() as change:
        row = require_waiting(change.connection, memory_id, name, change.now)
        known_name = register_name(change, name)
        agent, kind = row.agent, MemoryType(row.type)
        values = {"writer": row.writer, "by": known_name, "operation": row.operation}
        number = change.head.number + 1
        if row.sources:
            load_sources(change.connection, row, change.now)
            found = load_rows(change.connection, list(read_sources(row.sources, row.number)))
            take_up(change, Action.APPROVE, agent, kind, draft, list(found.values()), row.expires_at, **values)
        else:
            entry = change.record(
                Action.APPROVE, agent, kind, [memory_id], digest=draft.digest, expires=row.expires_at, **values
            )
            change.tell(entry, change.add_memory(row.scope, entry, draft), draft.salt)
        settle(change, [row.number], Decision.APPROVED, known_name, number)
    return Result(Operation(row.operation), ok=True, ids=(memory_id,), approved=True)


def _draft(core: Core, connection: Connection, row: AnyRow, now: int) -> Draft:
    content, tags = row.content, read_tags(row.tags, row.number)
    if row.sources:
        content, _ = join_sources(load_sources(connection, row, now), ())
    metadata = read_metadata(row.metadata, row.number)
    return Draft.make(core, read_content(content, row.number), tags, metadata, memory_id=row.id, salt=row.salt)


def reject(core: Core, memory_id: str, by: object) -> Result:
    """Refuse a write that waits, and erase what it held. Errors: those of `require_waiting`; `InvalidInput`."""
    name = verify_name(by, "by")
    with core.change() as change:
        row = require_waiting(change.connection, memory_id, name, change.now)
        known_name = register_name(change, name)
        entry = change.record(
            Action.REJECT,
            row.agent,
            row.type,
            [memory_id],
            writer=row.writer,
            by=known_name,
            operation=row.operation,
        )
        settle(change, [row.number], Decision.REJECTED, known_name, entry.number)
        change.tell(entry, erased=(memory_id,))
    detail = f"rejected by {known_name}"
    late = scrubbed_detail(core)
    return Result(
        Operation(row.operation),
        ok=False,
        ids=(memory_id,),
        approved=False,
        detail=f"{detail}; {late}" if late else detail,
    )
