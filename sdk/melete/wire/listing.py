"""The ids of what can be recalled, in the order in which it was made."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from melete.wire.envelope import MemoryType
from melete.wire.store import MemoryStore
from melete.wire.tables import memories, scopes


def list_ids(store: MemoryStore, agent_id: str, memory_types: Sequence[MemoryType], limit: int) -> list[str]:
    """Return the ids of an agent's memories of some types that can be recalled, oldest first, at most `limit`."""
    query = (
        select(memories.c.id)
        .join(scopes, scopes.c.id == memories.c.scope)
        .where(scopes.c.agent == agent_id, scopes.c.type.in_([kind.value for kind in memory_types]))
        .where(memories.c.merged_into.is_(None))
        .where(memories.c.expires_at.is_(None) | (memories.c.expires_at > store._core.now()))
        .order_by(memories.c.number)
        .limit(limit)
    )
    with store._core.database.reading() as connection:
        return [str(memory_id) for memory_id in connection.execute(query).scalars()]
