"""Copies of one memory in several stores: which there are, and how one more is made, let end, or erased."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from melete.wire.approval import ApprovalHook
from melete.wire.envelope import MAX_IDS, MemoryType, Operation, Result
from melete.wire.errors import MemoryMerged, OtherMemoryType, UnknownMemory
from melete.wire.lookup import find_final_id, load_rows
from melete.wire.queue import find_waiting
from melete.wire.store import MemoryStore
from melete.wire.values import Memory, MemoryState

#: How often a memory may go between being looked up and being acted on.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Copy:
    """What one store knows of a memory, without its content. `final` is what holds the content of a merged one."""

    agent_id: str
    memory_type: str
    state: MemoryState
    final: str | None = None

    def is_of(self, agent_id: str, memory_type: MemoryType) -> bool:
        return (self.agent_id, self.memory_type) == (agent_id, memory_type.value)


def find_copies(store: MemoryStore, memory_ids: Sequence[str]) -> dict[str, Copy]:
    """Return what a store knows of some memories, by id; those that it does not know are left out."""
    core = store._core
    found: dict[str, Copy] = {}
    with core.database.reading() as connection:
        now = core.time(connection)
        for memory_id, row in load_rows(connection, memory_ids).items():
            state, final = MemoryState.ACTIVE, None
            if row.merged_into is not None:
                state, final = MemoryState.MERGED, find_final_id(connection, row.merged_into)
            elif row.expires_at is not None and row.expires_at <= now:
                state = MemoryState.EXPIRED
            found[memory_id] = Copy(row.agent, row.type, state, final)
        waiting = find_waiting(connection, [memory_id for memory_id in memory_ids if memory_id not in found])
    for memory_id, row in waiting.items():
        found[memory_id] = Copy(row.agent, row.type, MemoryState.PENDING)
    return found


def verify_copy(copy: Copy, memory_id: str, agent_id: str, memory_type: MemoryType, also: Sequence[str] = ()) -> Copy:
    """Return a copy of this agent and type, which was not merged into a memory other than those in `also`.

    Errors: `UnknownMemory`, `OtherMemoryType`, `MemoryMerged`.
    """
    if copy.agent_id != agent_id:
        raise UnknownMemory(memory_id, agent_id)
    if copy.memory_type != memory_type:
        raise OtherMemoryType(memory_id, memory_type.value, copy.memory_type)
    if copy.final is not None and copy.final not in also:
        raise MemoryMerged(memory_id, copy.final)
    return copy


def view(store: MemoryStore, *, memory_id: str | None = None, approval: ApprovalHook | None = None) -> MemoryStore:
    """Return the same open store, which gives what it writes a certain id, or asks another hook.

    It must not be closed: its connections are those of the store.
    """
    core = store._core
    if memory_id is not None:
        core = replace(core, new_id=lambda: memory_id)
    if approval is not None:
        core = replace(core, approval=approval)
    return MemoryStore(core)


# What one store is asked


def show(memory_id: str, store: MemoryStore) -> Memory | None:
    """Return a memory, or None."""
    with suppress(UnknownMemory):
        return store.show(memory_id)
    return None


def forget_present(agent_id: str, memory_type: MemoryType, memory_ids: Sequence[str], store: MemoryStore) -> Result:
    """Forget what a store has of some memories; the result names what that was, perhaps nothing."""
    gone: dict[str, None] = {}
    details: dict[str, None] = {}
    attempts = 0
    while True:
        copies = find_copies(store, memory_ids)
        own = {memory_id: copy for memory_id, copy in copies.items() if copy.is_of(agent_id, memory_type)}
        if not own:
            detail = "; ".join(detail for detail in details if detail)
            return Result(Operation.FORGET, ok=True, ids=tuple(gone), detail=detail)
        # What was merged goes with what took it up; if that is not asked for, it has to have ended.
        finals = {copy.final for copy in own.values() if copy.final is not None} - own.keys()
        ended = [each for each, copy in find_copies(store, list(finals)).items() if copy.state is MemoryState.EXPIRED]
        whole = [memory_id for memory_id, copy in own.items() if copy.final is None] + ended
        try:
            result = store.forget(memory_type, (whole or list(own))[:MAX_IDS], agent_id=agent_id)
        except UnknownMemory:
            attempts += 1
            if attempts == _ATTEMPTS:
                raise
            continue
        gone.update(dict.fromkeys(result.ids))
        details[result.detail] = None


def expire_present(
    agent_id: str, memory_type: MemoryType, memory_ids: Sequence[str], ttl_seconds: int, store: MemoryStore
) -> tuple[str, ...]:
    """Let end what a store has of some memories, and return which that was.

    Errors: `UnknownMemory` for a write that still waits there, once the others are done.
    """
    copies = find_copies(store, memory_ids)
    own = {memory_id: copy for memory_id, copy in copies.items() if copy.is_of(agent_id, memory_type)}
    active = [memory_id for memory_id in memory_ids if memory_id in own and own[memory_id].state is MemoryState.ACTIVE]
    if active:
        store.expire(memory_type, active, agent_id=agent_id, ttl_seconds=ttl_seconds)
    for memory_id, copy in own.items():
        if copy.state is MemoryState.PENDING:
            raise UnknownMemory(memory_id, agent_id)
    return tuple(active)


def write_copies(memories: Sequence[Memory], writer: str | None, store: MemoryStore) -> None:
    """Write memories that another store has, under their ids, as far as this one lacks them.

    Their time of creation is that of the copy; what has ended, or ends this second, is not copied. Long-term memories
    pass the store's own hook.
    """
    known = find_copies(store, [memory.id for memory in memories])
    with store._core.database.reading() as connection:
        now = store._core.time(connection)
    for memory in memories:
        if memory.id in known:
            continue
        ttl = None
        if memory.expires_at is not None:
            ttl = memory.expires_at - now
            if ttl <= 0:
                continue
        view(store, memory_id=memory.id).remember(
            memory.memory_type,
            memory.content,
            agent_id=memory.agent_id,
            tags=memory.tags,
            metadata=memory.metadata,
            ttl_seconds=ttl,
            writer=writer,
        )
