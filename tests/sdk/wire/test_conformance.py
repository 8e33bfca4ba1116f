"""The twenty cells of the wire: each of five operations on each of four types, as envelopes, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from melete.wire.envelope import Envelope, MemoryType, Operation
from melete.wire.errors import UnknownMemory
from melete.wire.store import MemoryStore

kinds = pytest.mark.parametrize("kind", list(MemoryType))


def execute(store: MemoryStore, op: Operation, kind: MemoryType, **members: Any) -> dict[str, Any]:
    """What the store answers to an envelope, both as JSON."""
    document = {"op": op.value, "memory_type": kind.value, **members}
    return store.execute(Envelope.from_json(document)).to_json()


def written(store: MemoryStore, kind: MemoryType, content: str, **members: Any) -> str:
    answer = execute(store, Operation.REMEMBER, kind, content=content, **members)
    (memory_id,) = answer["ids"]
    expected: dict[str, Any] = {"op": "remember", "ok": True, "ids": [memory_id]}
    if kind.is_long_term:
        expected["approved"] = True
    assert answer == expected
    return memory_id


def hits(store: MemoryStore, kind: MemoryType, query: str) -> list[str]:
    return [hit["id"] for hit in execute(store, Operation.RECALL, kind, query=query).get("hits", [])]


@kinds
def test_remember(store: MemoryStore, kind: MemoryType) -> None:
    memory_id = written(store, kind, "prefers green tea", tags=["drinks"], metadata={"source": "ada"})
    kept = store.show(memory_id)
    assert (kept.content, kept.memory_type, kept.agent_id) == ("prefers green tea", kind, "default")
    assert (kept.tags, kept.metadata) == (("drinks",), {"source": "ada"})
    for other in MemoryType:
        assert hits(store, other, "tea") == ([memory_id] if other is kind else [])


@kinds
def test_recall(store: MemoryStore, kind: MemoryType) -> None:
    memory_id = written(store, kind, "prefers green tea", tags=["drinks"])
    written(store, kind, "prefers quiet rooms")
    answer = execute(store, Operation.RECALL, kind, query="Which tea?", top_k=3)
    score = answer["hits"][0]["score"]
    assert score > 0
    hit = {
        "id": memory_id,
        "content": "prefers green tea",
        "memory_type": kind.value,
        "score": score,
        "tags": ["drinks"],
    }
    assert answer == {"op": "recall", "ok": True, "hits": [hit]}
    assert execute(store, Operation.RECALL, kind, query="nothing like it") == {"op": "recall", "ok": True}


@kinds
def test_forget(store: MemoryStore, kind: MemoryType) -> None:
    memory_id, other = written(store, kind, "prefers green tea"), written(store, kind, "prefers black tea")
    answer = execute(store, Operation.FORGET, kind, memory_ids=[memory_id])
    assert answer == {"op": "forget", "ok": True, "ids": [memory_id]}
    assert hits(store, kind, "tea") == [other]
    with pytest.raises(UnknownMemory):
        store.show(memory_id)


@kinds
def test_merge(store: MemoryStore, kind: MemoryType) -> None:
    first, second = written(store, kind, "prefers green tea", tags=["a"]), written(store, kind, "no sugar", tags=["b"])
    answer = execute(store, Operation.MERGE, kind, memory_ids=[second, first])
    (merged,) = answer["ids"]
    expected: dict[str, Any] = {"op": "merge", "ok": True, "ids": [merged]}
    assert answer == (expected | {"approved": True} if kind.is_long_term else expected)
    kept = store.show(merged)
    assert (kept.content, kept.tags) == ("no sugar\nprefers green tea", ("b", "a"))
    assert hits(store, kind, "tea") == hits(store, kind, "sugar") == [merged]


@kinds
def test_expire(store: MemoryStore, kind: MemoryType) -> None:
    now, later = written(store, kind, "green tea"), written(store, kind, "black tea")
    assert execute(store, Operation.EXPIRE, kind, memory_ids=[now]) == {"op": "expire", "ok": True, "ids": [now]}
    assert hits(store, kind, "tea") == [later]
    answer = execute(store, Operation.EXPIRE, kind, memory_ids=[later], ttl_seconds=60)
    assert answer == {"op": "expire", "ok": True, "ids": [later]}
    assert hits(store, kind, "tea") == [later]
    store._core.clock.now += 60  # type: ignore[attr-defined]
    assert hits(store, kind, "tea") == []
