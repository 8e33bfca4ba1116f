"""What the tests of the memory store share: a clock that tests move, stores, and looks behind the scenes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from melete.wire.engines import Database
from melete.wire.envelope import MemoryType
from melete.wire.store import MemoryStore

EPISODIC, SEMANTIC, PROCEDURAL, WORKING = MemoryType


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: int = 1_800_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def open_store(url: str, clock: Clock | None = None, **options: Any) -> MemoryStore:
    return MemoryStore.open(url, clock=clock or Clock(), **options)


def remember(store: MemoryStore, content: str, kind: MemoryType = EPISODIC, **options: Any) -> str:
    """The id of a new memory."""
    (memory_id,) = store.remember(kind, content, **options).ids
    return memory_id


def recalled(store: MemoryStore, query: str, kind: MemoryType = EPISODIC, **options: Any) -> list[str]:
    """The contents of the hits for a query."""
    return [hit.content for hit in store.recall(kind, query, **options).hits]


def database_of(store: MemoryStore) -> Database:
    return store._core.database


def run(store: MemoryStore, statement: str) -> None:
    """Run a statement behind the store's back."""
    with database_of(store).writing() as connection:
        connection.exec_driver_sql(statement)


def fetch(store: MemoryStore, query: str) -> Sequence[tuple[Any, ...]]:
    """Look at rows behind the store's back."""
    with database_of(store).reading() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(query)]


def tables_of(store: MemoryStore) -> dict[str, Sequence[tuple[Any, ...]]]:
    """Everything that is in the tables."""
    names = ("meta", "scopes", "memories", "memory_text", "memory_vectors", "audit", "pending", "names")
    return {
        name: sorted(fetch(store, f"SELECT * FROM {name}"), key=repr)  # noqa: S608
        for name in names
    }
