"""Rows of memories by their ids, once they are found to be what an operation may act on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, select

from melete.wire.approval import DECISIONS
from melete.wire.cells import (
    ROW,
    WAITING,
    number_of,
    read_choice,
    read_content,
    read_id,
    read_int,
    read_int_or_none,
    read_metadata,
    read_number,
    read_one_of,
    read_tags,
    read_text,
)
from melete.wire.envelope import MemoryType, Operation
from melete.wire.errors import BrokenAudit, MemoryMerged, OtherMemoryType, UnknownMemory
from melete.wire.tables import AnyRow, memories, pending, scopes
from melete.wire.values import Memory, MemoryState
from melete.wire.writing import ROWS_AT_A_TIME

#: What an operation has to know of a memory that it does not read.
_LEAN: Final[Select[Any]] = select(
    memories.c.document,
    memories.c.id,
    memories.c.scope,
    memories.c.audited,
    memories.c.expires_at,
    memories.c.merged_into,
    memories.c.words,
    scopes.c.agent,
    scopes.c.type,
).join(scopes, scopes.c.id == memories.c.scope)
_WITH_CONTENT: Final[Select[Any]] = _LEAN.add_columns(memories.c.content, memories.c.tags)


def load_rows(connection: Connection, ids: Sequence[str], *, content: bool = False) -> dict[str, AnyRow]:
    """Return the rows of the memories that there are, by id. Errors: `BrokenAudit` for what no store has written."""
    query = _WITH_CONTENT if content else _LEAN
    found: dict[str, AnyRow] = {}
    for start in range(0, len(ids), ROWS_AT_A_TIME):
        some = query.where(memories.c.id.in_(ids[start : start + ROWS_AT_A_TIME]))
        found.update((row.id, _checked(row)) for row in connection.execute(some))
    return found


def _checked(row: AnyRow) -> AnyRow:
    """Return a row of `_LEAN` once its cells are of the types that operations take them for. Errors: `BrokenAudit`."""
    number = number_of(row.document)
    for value in (row.document, row.scope):
        read_int(value, number)
    for value in (row.audited, row.words):
        read_number(value, number, ROW)
    for value in (row.expires_at, row.merged_into):
        read_int_or_none(value, number)
    read_id(row.id, number)
    read_text(row.agent, number)
    read_choice(MemoryType, row.type, number)
    return row


def require_memories(
    connection: Connection, ids: Sequence[str], agent: str, memory_type: MemoryType, now: int, *, content: bool = False
) -> list[AnyRow]:
    """Return the rows of memories that an agent can recall, in the order of the ids.

    Errors: `UnknownMemory`, `OtherMemoryType`, `MemoryMerged`, for the first id that is not one.
    """
    found = load_rows(connection, ids, content=content)
    rows = []
    for memory_id in ids:
        row = require_row(found.get(memory_id), memory_id, agent, memory_type)
        if row.merged_into is not None:
            raise MemoryMerged(memory_id, find_final_id(connection, row.merged_into))
        if row.expires_at is not None and row.expires_at <= now:
            raise UnknownMemory(memory_id, agent)
        rows.append(row)
    return rows


def require_row(row: AnyRow | None, memory_id: str, agent: str, memory_type: MemoryType) -> AnyRow:
    """Return a row of this agent and type. Errors: `UnknownMemory`, `OtherMemoryType`."""
    if row is None or row.agent != agent:
        raise UnknownMemory(memory_id, agent)
    if row.type != memory_type:
        raise OtherMemoryType(memory_id, memory_type.value, row.type)
    return row


def find_final_id(connection: Connection, document: int) -> str:
    """Return the id of the memory that holds the content of one that was merged, perhaps over several merges.

    Errors: `BrokenAudit` where that leads nowhere, or round in a circle.
    """
    query = select(memories.c.id, memories.c.merged_into)
    while True:
        row = connection.execute(query.where(memories.c.document == document)).first()
        number = number_of(document)
        if row is None:
            raise BrokenAudit(number, "the merge of a memory", "into one that there is", "into another")
        into = read_int_or_none(row.merged_into, number)
        if into is None:
            return read_id(row.id, number)
        if into <= document:  # what a merge makes is newer than what it takes up
            raise BrokenAudit(number, "the merge of a memory", "into a newer one", "into another")
        document = into


def with_merged(connection: Connection, rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Return rows, and those of everything that was merged into them, directly or over others."""
    found = {row.document: row for row in rows}
    new = list(found)
    while new:
        below: list[AnyRow] = []
        for start in range(0, len(new), ROWS_AT_A_TIME):
            some = new[start : start + ROWS_AT_A_TIME]
            below += map(_checked, connection.execute(_LEAN.where(memories.c.merged_into.in_(some))))
        new = [row.document for row in below if row.document not in found]
        found.update((row.document, row) for row in below)
    return list(found.values())


# Writes that wait for approval, and those that did

FIND_PENDING: Final = select(*pending.columns, scopes.c.agent, scopes.c.type).join(
    scopes, scopes.c.id == pending.c.scope
)


def checked_pending(row: AnyRow) -> AnyRow:
    """Return a row of `FIND_PENDING` once the cells that say what it is, not what it holds, are of their types.

    Errors: `BrokenAudit`.
    """
    number = row.number if type(row.number) is int else 0
    for value in (row.number, row.scope, row.created_at):
        read_int(value, number, WAITING)
    for value in (row.expires_at, row.decided):
        read_int_or_none(value, number, WAITING)
    read_id(row.id, number, WAITING)
    for value in (row.agent, row.writer):
        read_text(value, number, WAITING)
    read_choice(MemoryType, row.type, number, WAITING)
    read_choice(Operation, row.operation, number, WAITING)
    if row.decision is not None:
        read_one_of(DECISIONS, row.decision, number, WAITING)
        read_text(row.decided_by, number, WAITING)
    return row


# Whole memories


def load_memory(connection: Connection, memory_id: str, now: int) -> Memory | None:
    """Return one memory, or a write that waits for approval, by its id; None where there is neither."""
    columns = [*memories.columns, scopes.c.agent, scopes.c.type]
    query = select(*columns).join(scopes, scopes.c.id == memories.c.scope).where(memories.c.id == memory_id)
    row = connection.execute(query).first()
    if row is None:
        return _load_pending(connection, memory_id, now)
    number = number_of(_checked(row).document)
    state, merged_into = MemoryState.ACTIVE, None
    if row.merged_into is not None:
        state, merged_into = MemoryState.MERGED, _find_id(connection, row.merged_into, number)
    elif row.expires_at is not None and row.expires_at <= now:
        state = MemoryState.EXPIRED
    return Memory(
        row.id,
        row.agent,
        MemoryType(row.type),
        read_content(row.content, number),
        read_tags(row.tags, number),
        read_metadata(row.metadata, number),
        state,
        read_int(row.created_at, number),
        row.expires_at,
        merged_into,
        read_int(row.number, number),
        row.audited,
    )


def _find_id(connection: Connection, document: int, number: int) -> str:
    """Return the id of the document that audit row `number`'s memory was merged into. Errors: `BrokenAudit`."""
    row = connection.execute(select(memories.c.id).where(memories.c.document == document)).first()
    if row is None:
        raise BrokenAudit(number, "the merge of a memory", "into one that there is", "into another")
    return read_id(row.id, number)


def _load_pending(connection: Connection, memory_id: str, now: int) -> Memory | None:
    row = connection.execute(FIND_PENDING.where(pending.c.id == memory_id, pending.c.decision.is_(None))).first()
    if row is None:
        return None
    number = checked_pending(row).number
    if row.expires_at is not None and row.expires_at <= now:
        return None
    return Memory(
        row.id,
        row.agent,
        MemoryType(row.type),
        "" if row.content is None else read_text(row.content, number, WAITING),
        read_tags(row.tags, number, WAITING),
        read_metadata(row.metadata, number, WAITING),
        MemoryState.PENDING,
        row.created_at,
        row.expires_at,
        None,
        row.number,
        row.number,
    )
