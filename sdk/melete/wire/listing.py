"""The ids of what can be recalled, in the order in which it was made."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from melete.wire.cells import number_of, read_id
from melete.wire.envelope import MemoryType
from melete.wire.store import MemoryStore
from melete.wire.tables import memories, scopes


def list_ids(store: MemoryStore, agent_id: str, memory_types: Sequence[MemoryType], limit: int) -> list[str]:
    """Return the ids of an agent's memories of some types that can be recalled, oldest first, at most `limit`."""
    query = (
        select(memories.c.document, memories.c.id)
        .join(scopes, scopes.c.id == memories.c.scope)
        .where(scopes.c.agent == agent_id, scopes.c.type.in_([kind.value for kind in memory_types]))
        .where(memories.c.merged_into.is_(None))
        .order_by(memories.c.number)
        .limit(limit)
    )
    core = store._core
    with core.reading() as connection:
        lasting = memories.c.expires_at.is_(None) | (memories.c.expires_at > core.time(connection))
        return [read_id(row.id, number_of(row.document)) for row in connection.execute(query.where(lasting))]
