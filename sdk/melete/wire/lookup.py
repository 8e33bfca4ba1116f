"""Rows of memories by their ids, once they are found to be what an operation may act on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, select

from melete.wire.cells import read_content, read_metadata, read_tags
from melete.wire.envelope import MemoryType
from melete.wire.errors import MemoryMerged, OtherMemoryType, UnknownMemory
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
    """Return the rows of the memories that there are, by id."""
    query = _WITH_CONTENT if content else _LEAN
    found: dict[str, AnyRow] = {}
    for start in range(0, len(ids), ROWS_AT_A_TIME):
        some = query.where(memories.c.id.in_(ids[start : start + ROWS_AT_A_TIME]))
        found.update((row.id, row) for row in connection.execute(some))
    return found


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
    """Return the id of the memory that holds the content of one that was merged, perhaps over several merges."""
    query = select(memories.c.id, memories.c.merged_into)
    while True:
        memory_id, merged_into = connection.execute(query.where(memories.c.document == document)).one()
        if merged_into is None:
            return str(memory_id)
        document = merged_into


def with_merged(connection: Connection, rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Return rows, and those of everything that was merged into them, directly or over others."""
    found = {row.document: row for row in rows}
    new = list(found)
    while new:
        below: list[AnyRow] = []
        for start in range(0, len(new), ROWS_AT_A_TIME):
            some = new[start : start + ROWS_AT_A_TIME]
            below += connection.execute(_LEAN.where(memories.c.merged_into.in_(some)))
        new = [row.document for row in below if row.document not in found]
        found.update((row.document, row) for row in below)
    return list(found.values())


# Whole memories


def load_memory(connection: Connection, memory_id: str, now: int) -> Memory | None:
    """Return one memory, or a write that waits for approval, by its id; None where there is neither."""
    columns = [*memories.columns, scopes.c.agent, scopes.c.type]
    query = select(*columns).join(scopes, scopes.c.id == memories.c.scope).where(memories.c.id == memory_id)
    row = connection.execute(query).one_or_none()
    if row is None:
        return _load_pending(connection, memory_id, now)
    state, merged_into = MemoryState.ACTIVE, None
    if row.merged_into is not None:
        state, merged_into = MemoryState.MERGED, find_id(connection, row.merged_into)
    elif row.expires_at is not None and row.expires_at <= now:
        state = MemoryState.EXPIRED
    return Memory(
        row.id,
        row.agent,
        MemoryType(row.type),
        read_content(row.content, row.number),
        read_tags(row.tags, row.number),
        read_metadata(row.metadata, row.number),
        state,
        row.created_at,
        row.expires_at,
        merged_into,
        row.number,
        row.audited,
    )


def find_id(connection: Connection, document: int) -> str:
    """Return the id of a document."""
    return str(connection.execute(select(memories.c.id).where(memories.c.document == document)).scalar_one())


def _load_pending(connection: Connection, memory_id: str, now: int) -> Memory | None:
    query = (
        select(*pending.columns, scopes.c.agent, scopes.c.type)
        .join(scopes, scopes.c.id == pending.c.scope)
        .where(pending.c.id == memory_id, pending.c.decision.is_(None))
    )
    row = connection.execute(query).one_or_none()
    if row is None or (row.expires_at is not None and row.expires_at <= now):
        return None
    return Memory(
        row.id,
        row.agent,
        MemoryType(row.type),
        read_content(row.content or "", row.number),
        read_tags(row.tags, row.number),
        read_metadata(row.metadata, row.number),
        MemoryState.PENDING,
        row.created_at,
        row.expires_at,
        None,
        row.number,
        row.number,
    )
