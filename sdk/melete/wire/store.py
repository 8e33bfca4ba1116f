"""A memory store: five operations over four types, in one SQLite file or on a PostgreSQL server.

    with MemoryStore.open("memories.db") as store:
        store.remember(MemoryType.SEMANTIC, "prefers green tea", tags=("drinks",))
        store.recall(MemoryType.SEMANTIC, "which tea?").hits

Every write is one transaction with its audit row. What was forgotten is gone from every index and from the file.
Several processes may use one store; threads share a `MemoryStore`, and each gets a connection of its own.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from sqlalchemy import func, select

from melete.canonical import Json
from melete.wire import deciding, operations, queue
from melete.wire.approval import ApprovalHook, AutoApprove, PendingWrite
from melete.wire.audit import AuditHead
from melete.wire.audit_check import verify
from melete.wire.embedding import Embedder, Vectors
from melete.wire.engines import BUSY_SECONDS, open_database
from melete.wire.envelope import Envelope, MemoryType, Operation, Result, verify_agent_id, verify_memory_id
from melete.wire.errors import UnknownId
from melete.wire.lookup import load_memory
from melete.wire.recalling import recall
from melete.wire.tables import memories, scopes
from melete.wire.values import Memory
from melete.wire.writing import Core, Observer, load_head


def system_clock() -> int:
    """Return the seconds since 1970, UTC, by the system's clock."""
    return int(time.time())


def fresh_id() -> str:
    """Return a random UUID (version 4), from the operating system."""
    return str(uuid.UUID(bytes=os.urandom(16), version=4))


def fresh_salt() -> bytes:
    """Return 32 bytes from the operating system."""
    return os.urandom(32)


class MemoryStore:
    """An open store; made by `open`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @classmethod
    def open(
        cls,
        store: str | Path,
        *,
        create: bool = True,
        approval: ApprovalHook | None = None,
        embedder: Embedder | None = None,
        on_write: Observer | None = None,
        clock: Callable[[], int] = system_clock,
        new_id: Callable[[], str] = fresh_id,
        new_salt: Callable[[], bytes] = fresh_salt,
        scrub_at_once: bool = True,
        busy_seconds: float = BUSY_SECONDS,
    ) -> MemoryStore:
        """Open a store by path or URL, after making it if there is none (unless `create` is false).

        `approval` decides about long-term writes (default: approves them); `on_write` is told of every write inside
        its transaction. With `scrub_at_once` false, what is forgotten stays in the file, unreachable, until `scrub`
        or the next opening. Errors: see `melete.wire.engines.open_database`.
        """
        database = open_database(store, create=create, busy_seconds=busy_seconds)
        hook = AutoApprove() if approval is None else approval
        return cls(
            Core(database, clock, new_id, new_salt, hook, embedder, Vectors(), on_write, scrub_at_once=scrub_at_once)
        )

    def close(self) -> None:
        """Close the connections of all threads."""
        self._core.database.close()

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def label(self) -> str:
        """What messages call the store: its path, or its URL without user and password."""
        return self._core.database.label

    def __repr__(self) -> str:
        return f"MemoryStore({self.label!a})"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all operations inside happen, or none: many writes at the price of one.

        Errors: `StoreBusy`, `StoreNotWritten`, `StoreUnreadable`.
        """
        with self._core.database.writing():
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one unchanging state of the store inside, whatever others write."""
        with self._core.database.reading():
            yield

    # The five operations

    def execute(self, envelope: Envelope, writer: str | None = None) -> Result:
        """Do what an envelope asks. `writer` is who asks, if not the agent itself; who wrote does not approve.

        Errors: `InvalidInput`, `EnvelopeError`; `UnknownMemory`, `OtherMemoryType`, `MemoryMerged` for ids, and
        nothing is changed; `StoreBusy`, `StoreNotWritten`, `StoreUnreadable`.
        """
        if writer is not None:
            verify_agent_id(writer, "writer")
        if envelope.op is Operation.REMEMBER:
            return operations.remember(self._core, envelope, writer)
        if envelope.op is Operation.RECALL:
            return recall(self._core, envelope)
        if envelope.op is Operation.FORGET:
            return operations.forget(self._core, envelope)
        if envelope.op is Operation.MERGE:
            return operations.merge(self._core, envelope, writer)
        return operations.expire(self._core, envelope)

    def remember(
        self,
        memory_type: MemoryType,
        content: str,
        *,
        agent_id: str | None = None,
        tags: Sequence[str] = (),
        metadata: dict[str, Json] | None = None,
        ttl_seconds: int | None = None,
        writer: str | None = None,
    ) -> Result:
        """Write one memory. Its id is in the result, also while it waits for approval. Errors: see `execute`."""
        envelope = Envelope(
            Operation.REMEMBER,
            memory_type,
            agent_id=agent_id,
            content=content,
            tags=tuple(tags),
            ttl_seconds=ttl_seconds,
            metadata=metadata,
        )
        return self.execute(envelope, writer)

    def recall(
        self,
        memory_type: MemoryType,
        query: str,
        *,
        agent_id: str | None = None,
        top_k: int | None = None,
        tags: Sequence[str] = (),
    ) -> Result:
        """Return the best `top_k` (5, at most 1000) memories of an agent and type, with all of some tags.

        Whatever a person types is a query; one without words finds nothing. Errors: see `execute`.
        """
        envelope = Envelope(
            Operation.RECALL, memory_type, agent_id=agent_id, query=query, top_k=top_k, tags=tuple(tags)
        )
        return recall(self._core, envelope)

    def forget(self, memory_type: MemoryType, memory_ids: Sequence[str], *, agent_id: str | None = None) -> Result:
        """Erase memories for good: all of them, or none. The result names also those that were merged into them.

        A memory that was merged is forgotten with the one that holds its content, not alone. Copies and backups of
        the database, and what a server keeps in its log, are out of reach.
        """
        envelope = Envelope(Operation.FORGET, memory_type, agent_id=agent_id, memory_ids=tuple(memory_ids))
        return operations.forget(self._core, envelope)

    def merge(
        self,
        memory_type: MemoryType,
        memory_ids: Sequence[str],
        *,
        agent_id: str | None = None,
        tags: Sequence[str] = (),
        metadata: dict[str, Json] | None = None,
        ttl_seconds: int | None = None,
        writer: str | None = None,
    ) -> Result:
        """Write one memory of several: contents joined by a newline in the order of the ids, tags united.

        Its sources are recalled no more. It ends when the first of them would have ended. `metadata` is its own.
        """
        envelope = Envelope(
            Operation.MERGE,
            memory_type,
            agent_id=agent_id,
            memory_ids=tuple(memory_ids),
            tags=tuple(tags),
            ttl_seconds=ttl_seconds,
            metadata=metadata,
        )
        return self.execute(envelope, writer)

    def expire(
        self,
        memory_type: MemoryType,
        memory_ids: Sequence[str],
        *,
        agent_id: str | None = None,
        ttl_seconds: int | None = None,
    ) -> Result:
        """Let memories end in some seconds, or at once: all of them, or none.

        What has expired does not come back, also when the clock goes back: the store's time is never before that of
        its newest audit row.
        """
        envelope = Envelope(
            Operation.EXPIRE, memory_type, agent_id=agent_id, memory_ids=tuple(memory_ids), ttl_seconds=ttl_seconds
        )
        return operations.expire(self._core, envelope)

    # Approval

    def pending(self, *, agent_id: str | None = None, after: int = 0, limit: int = 100) -> tuple[PendingWrite, ...]:
        """Return writes that wait for approval, oldest first; `after` is the number of the last one seen."""
        with self._core.reading() as connection:
            return queue.list_waiting(connection, self._core.time(connection), agent_id, after, limit)

    def approve(self, memory_id: str, by: str) -> Result:
        """Carry out a write that waits. `by` is somebody else than its writer and its agent.

        Errors: `NotPending`, `AlreadyDecided`, `OwnDecision`; `SourceChanged` for a merge; `InvalidInput` for a name;
        `BrokenAudit` for a write that is no longer what the audit log says was proposed.
        """
        return deciding.approve(self._core, verify_memory_id(memory_id), by)

    def reject(self, memory_id: str, by: str) -> Result:
        """Refuse a write that waits, and erase its content. Errors: as `approve`."""
        return deciding.reject(self._core, verify_memory_id(memory_id), by)

    def names(self) -> tuple[str, ...]:
        """Return the names of all who were registered or decided, as first written."""
        with self._core.reading() as connection:
            return queue.list_names(connection)

    def register_name(self, name: str) -> str:
        """Keep a name, and return it as it was first written: "ada" and " Ada" are one. Errors: `InvalidInput`."""
        with self._core.change() as change:
            return queue.register_name(change, name)

    # Looking

    def show(self, memory_id: str) -> Memory:
        """Return one memory, whatever its state. Errors: `UnknownMemory`."""
        verify_memory_id(memory_id)
        with self._core.reading() as connection:
            memory = load_memory(connection, memory_id, self._core.time(connection))
        if memory is None:
            raise UnknownId(memory_id, "any")
        return memory

    def count(self, *, agent_id: str | None = None, memory_type: MemoryType | None = None) -> int:
        """Return how many memories can be recalled: all, or those of an agent, of a type, or both."""
        query = (
            select(func.count())
            .select_from(memories.join(scopes, scopes.c.id == memories.c.scope))
            .where(memories.c.merged_into.is_(None))
        )
        if agent_id is not None:
            query = query.where(scopes.c.agent == agent_id)
        if memory_type is not None:
            query = query.where(scopes.c.type == str(memory_type))
        with self._core.reading() as connection:
            lasting = memories.c.expires_at.is_(None) | (memories.c.expires_at > self._core.time(connection))
            return connection.execute(query.where(lasting)).scalar_one()

    # Keeping

    def sweep(self, now: int | None = None) -> int:
        """Erase what has expired by `now` (default: by the clock), and return how much that was."""
        return operations.sweep(self._core, now)

    def scrub(self) -> bool:
        """Make the bytes of what was erased leave the file; False if others read an older state, or there is no room.

        Errors: `ConfigurationError` inside a transaction.
        """
        return self._core.database.scrub()

    def audit_head(self) -> AuditHead:
        """Return number and hash of the newest audit row. Errors: `BrokenAudit` for what was never written there."""
        with self._core.reading() as connection:
            return load_head(self._core.database, connection)

    def verify_audit(self, recorded: AuditHead | None = None) -> AuditHead:
        """Return the head of the audit chain, once the chain, the rows and the index agree in everything.

        `recorded` is a head that was noted elsewhere, earlier. Memory for it grows with the number of memories.
        Errors: `BrokenAudit`, at the first row that was altered, is missing, or was put in.
        """
        with self._core.reading() as connection:
            return verify(self._core.database, connection, recorded)
