"""Approving and rejecting writes that wait, exactly once, in one transaction with their audit row."""

from __future__ import annotations

from sqlalchemy import Connection

from melete.wire.approval import Decision, verify_name
from melete.wire.audit import Action
from melete.wire.cells import WAITING, read_sources
from melete.wire.envelope import MemoryType, Operation, Result
from melete.wire.errors import BrokenAudit
from melete.wire.lookup import load_rows
from melete.wire.operations import scrubbed_detail, take_up
from melete.wire.queue import Held, load_proposal, load_sources, read_held, register_name, require_waiting, settle
from melete.wire.tables import AnyRow
from melete.wire.writing import Core, Draft


def approve(core: Core, memory_id: str, by: object) -> Result:
    """Carry out a write that waits, as it was proposed.

    Errors: those of `require_waiting`; `SourceChanged` for a merge; `InvalidInput`; `BrokenAudit`.
    """
    name = verify_name(by, "by")
    with core.reading() as connection:
        now = core.time(connection)
        held = _read_waiting(connection, require_waiting(connection, memory_id, name, now), now)
    # Words and vector are made before anybody is kept waiting; who is too late by then is told below.
    draft = Draft.make(core, held.content, held.tags, held.metadata, memory_id=memory_id, salt=held.salt)
    with core.change() as change:
        row = require_waiting(change.connection, memory_id, name, change.now)
        if _read_waiting(change.connection, row, change.now) != held:
            raise BrokenAudit(row.number, WAITING, "as it was proposed", "another")
        known_name = register_name(change, name)
        agent, kind = row.agent, MemoryType(row.type)
        values = {"writer": row.writer, "by": known_name, "operation": row.operation}
        number = change.head.number + 1
        if row.sources is not None:
            ids = list(read_sources(row.sources, row.number))
            found = load_rows(change.connection, ids)
            sources = [found[source] for source in ids]
            take_up(change, Action.APPROVE, agent, kind, draft, sources, row.expires_at, **values)
        else:
            entry = change.record(
                Action.APPROVE, agent, kind, [memory_id], digest=draft.digest, expires=row.expires_at, **values
            )
            change.tell(entry, change.add_memory(row.scope, entry, draft), draft.salt)
        settle(change, [row.number], Decision.APPROVED, known_name, number)
    return Result(Operation(row.operation), ok=True, ids=(memory_id,), approved=True)


def _read_waiting(connection: Connection, row: AnyRow, now: int) -> Held:
    """Return what a waiting write would write. Errors: `SourceChanged`, `BrokenAudit`."""
    proposed = load_proposal(connection, row)
    return read_held(row, proposed, load_sources(connection, row, now) if proposed.sources else ())


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
