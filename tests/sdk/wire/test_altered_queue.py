# ruff: noqa: S608 - a forger writes statements by hand
"""Writes that wait for approval, and somebody who writes to the database: what is approved is what was proposed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from melete.canonical import canonicalize
from melete.errors import InvalidInput, VerificationError
from melete.primitives import keccak256
from melete.wire.approval import Queue, fold_name, is_same_name, verify_name
from melete.wire.errors import BrokenAudit, OwnDecision
from melete.wire.store import MemoryStore

from .samples import SEMANTIC, Clock, database_of, fetch, open_store, recalled, remember, run, tables_of


@pytest.fixture
def queue(store_url: str, clock: Clock) -> Iterator[MemoryStore]:
    """A store whose long-term writes wait."""
    with open_store(store_url, clock, approval=Queue()) as store:
        yield store


@pytest.fixture
def merge(queue: MemoryStore, store_url: str, clock: Clock) -> str:
    """A merge of two memories that waits: the third audit row."""
    with open_store(store_url, clock) as store:
        ids = [remember(store, "one", SEMANTIC, ttl_seconds=1_000), remember(store, "two", SEMANTIC)]
    (merged,) = queue.merge(SEMANTIC, ids, writer="bob", metadata={"k": 1}).ids
    return merged


def broken(store: MemoryStore) -> tuple[int, str]:
    with pytest.raises(BrokenAudit) as caught:
        store.verify_audit()
    return caught.value.number, caught.value.rule


ALTERED_HELD = [
    "content = 'pay mallory 9999'",
    "tags = '[\"admin\"]'",
    "tags = '{}'",
    "metadata = NULL",
    "metadata = '{\"evil\":1}'",
    "salt = NULL",
]


@pytest.mark.parametrize("change", ALTERED_HELD)
def test_altered_waiting_write_is_not_approved(queue: MemoryStore, change: str) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "pay alice 10", writer="bob", metadata={"k": 1}).ids
    queue.verify_audit()
    run(queue, f"UPDATE pending SET {change}")
    before = tables_of(queue)
    with pytest.raises(BrokenAudit) as caught:
        queue.approve(memory_id, "zoe")
    assert caught.value.number == 1
    assert tables_of(queue) == before
    assert recalled(queue, "pay", SEMANTIC) == []
    assert broken(queue)[0] == 1
    assert queue.reject(memory_id, "zoe").approved is False  # so it can still be got rid of
    queue.verify_audit()


@pytest.mark.parametrize("change", [*ALTERED_HELD[1:], "content = 'one and two'", "sources = NULL"])
def test_altered_waiting_merge_is_not_approved(queue: MemoryStore, merge: str, change: str) -> None:
    queue.verify_audit()
    run(queue, f"UPDATE pending SET {change}")
    with pytest.raises(BrokenAudit) as caught:
        queue.approve(merge, "zoe")
    assert caught.value.number == 3
    assert broken(queue)[0] == 3
    assert sorted(recalled(queue, "one two", SEMANTIC)) == ["one", "two"]


@pytest.mark.parametrize("change", ["replace(sources, ',1]', ',3]')", "replace(sources, ',2]', ',1]')", "'[]'", "'7'"])
def test_waiting_merge_of_other_sources_is_not_approved(queue: MemoryStore, merge: str, change: str) -> None:
    run(queue, f"UPDATE pending SET sources = {change}")
    with pytest.raises(VerificationError):
        queue.approve(merge, "zoe")
    assert broken(queue)[0] == 3


def test_waiting_merge_of_a_source_that_was_altered_is_not_approved(queue: MemoryStore, merge: str) -> None:
    run(queue, "UPDATE memories SET content = 'three' WHERE number = 2")
    with pytest.raises(BrokenAudit) as caught:
        queue.approve(merge, "zoe")
    assert (caught.value.number, caught.value.rule) == (3, "the digest of a memory")
    assert broken(queue) == (2, "the digest of a memory")


@pytest.mark.parametrize(
    "change",
    [
        "writer = 'eve'",
        "expires_at = 5000000000",
        "created_at = created_at - 1",
        "operation = 'merge'",
        "id = '00000000-0000-4000-8000-000000000000'",
        "number = 7",
    ],
)
def test_write_that_says_another_thing_of_itself_is_not_decided(queue: MemoryStore, change: str) -> None:
    queue.remember(SEMANTIC, "tea", writer="bob", ttl_seconds=100)
    run(queue, f"UPDATE pending SET {change}")
    ((memory_id,),) = fetch(queue, "SELECT id FROM pending")
    for decide in (queue.approve, queue.reject):
        with pytest.raises(BrokenAudit):
            decide(memory_id, "bob")  # also not by the writer, who is another now
    broken(queue)


def test_waiting_write_that_nobody_proposed_is_found_and_not_decided(queue: MemoryStore) -> None:
    queue.remember(SEMANTIC, "tea", writer="bob")
    memory_id = "0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10"
    run(
        queue,
        "INSERT INTO pending (number, id, operation, scope, writer, created_at, salt, tags, content)"
        f" SELECT -5, '{memory_id}', operation, scope, writer, created_at, salt, tags, 'evil' FROM pending",
    )
    assert broken(queue) == (-5, "a pending write")
    with pytest.raises(BrokenAudit):
        queue.approve(memory_id, "zoe")


def test_decided_write_that_holds_something_again_is_found(queue: MemoryStore) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "tea").ids
    queue.approve(memory_id, "zoe")
    for change in ("content = 'left over'", "tags = '[]'", "sources = '[]'", "metadata = '{}'"):
        column = change.split(" ", maxsplit=1)[0]
        run(queue, f"UPDATE pending SET {change}")
        assert broken(queue) == (1, "a pending write")
        run(queue, f"UPDATE pending SET {column} = NULL")
    queue.verify_audit()


def test_waiting_write_of_a_scope_that_there_is_not_is_found(sqlite_path: Path, clock: Clock) -> None:
    with open_store(str(sqlite_path), clock, approval=Queue()) as store:
        store.remember(SEMANTIC, "tea")
        with closing(sqlite3.connect(sqlite_path)) as forger, forger:
            forger.execute("UPDATE pending SET scope = 77")
        assert broken(store) == (1, "a pending write")


def test_approval_of_something_else_than_was_proposed_is_refused_by_the_log(queue: MemoryStore) -> None:
    """As a program before this one wrote it, which approved whatever stood in the queue."""
    (memory_id,) = queue.remember(SEMANTIC, "pay alice 10", writer="bob").ids
    queue.approve(memory_id, "zoe")
    other = queue.remember(SEMANTIC, "other", writer="bob")
    ((proposed,), (approved,)) = fetch(queue, "SELECT entry FROM audit WHERE number IN (1, 3) ORDER BY number")
    assert other.approved is False
    ((entry, previous),) = fetch(queue, "SELECT entry, hash FROM audit WHERE number = 2")
    assert previous
    members = json.loads(entry)
    for changed in (
        {"digest": json.loads(approved)["digest"]},
        {"writer": "eve"},
        {"expires": "99"},
        {"sources": [json.loads(approved)["memories"][0]]},
    ):
        forged = canonicalize({**members, **changed})
        _replace_tail(queue, forged.decode(), keccak256(forged))
        with pytest.raises(BrokenAudit) as caught:
            queue.verify_audit()
        assert (caught.value.number, caught.value.rule) == (2, "the decision about a pending write")
    assert proposed


def _replace_tail(store: MemoryStore, entry: str, digest: bytes) -> None:
    """Let the log end with another second row."""
    value = f"x'{digest.hex()}'" if database_of(store).engine.dialect.name == "sqlite" else f"'\\x{digest.hex()}'"
    run(store, "DELETE FROM audit WHERE number > 2")
    run(store, f"UPDATE audit SET entry = '{entry}', hash = {value} WHERE number = 2")
    run(store, f"UPDATE meta SET number = 2, hash = {value}")


def test_merge_is_approved_with_its_sources_in_the_order_they_were_proposed_in(
    queue: MemoryStore, store_url: str, clock: Clock
) -> None:
    with open_store(store_url, clock) as store:
        ids = [remember(store, f"tea {number}", SEMANTIC) for number in range(5)]
    (merged,) = queue.merge(SEMANTIC, ids[::-1]).ids
    queue.approve(merged, "zoe")
    ((entry,),) = fetch(queue, "SELECT entry FROM audit WHERE number = 7")
    assert json.loads(entry)["sources"] == ids[::-1]
    queue.verify_audit()


# Names

INVISIBLE = ["\ufe0f", "\u034f", "\u115f", "\u3164", "\u2800", "\u180b", "\u17b4", "\U000e0100", "\u200b", "\u00ad"]


@pytest.mark.parametrize("character", [*INVISIBLE, "\uffa0", "\u2065", "\U000e0fff", "\U00016fe4"], ids=ascii)
def test_name_with_an_invisible_character_is_refused_and_is_the_same_name(queue: MemoryStore, character: str) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "tea", writer="bob").ids
    for name in (f"bob{character}", f"b{character}ob"):
        with pytest.raises(InvalidInput):
            queue.approve(memory_id, name)
        with pytest.raises(InvalidInput):
            verify_name(name)
        assert is_same_name(name, "bob")


def test_writer_with_an_invisible_character_in_the_name_does_not_decide(queue: MemoryStore) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "tea", writer="bob\ufe0f").ids
    with pytest.raises(OwnDecision):
        queue.approve(memory_id, "bob")


def test_folding_a_folded_name_changes_nothing() -> None:
    for name in ("Ada L", "a\u034f\u0301", "Stra\u00dfe", "\u1e9e", "\ufdfa", "\u0130x"):
        assert fold_name(fold_name(name)) == fold_name(name)


def test_name_that_stands_for_somebody_else_is_not_used_and_is_found(queue: MemoryStore) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "tea", writer="bob").ids
    queue.verify_audit()
    run(queue, "INSERT INTO names (folded, name, since) VALUES ('mallory', 'alice', 1)")
    for attempt in (lambda: queue.approve(memory_id, "mallory"), lambda: queue.register_name("Mallory")):
        with pytest.raises(BrokenAudit) as caught:
            attempt()
        assert caught.value.rule == "the name of who decided"
    assert broken(queue) == (1, "the name of who decided")
    queue.reject(memory_id, "zoe")


def test_name_of_who_decided_that_is_gone_is_found(queue: MemoryStore) -> None:
    for content in ("tea", "milk"):
        (memory_id,) = queue.remember(SEMANTIC, content, writer="bob").ids
        queue.approve(memory_id, "zoe")
    queue.verify_audit()
    run(queue, "DELETE FROM names")
    assert broken(queue) == (2, "the name of who decided")


def test_name_that_an_older_store_kept_with_an_invisible_character_still_holds(queue: MemoryStore) -> None:
    queue.remember(SEMANTIC, "tea", writer="bob")
    run(queue, "INSERT INTO names (folded, name, since) VALUES ('zo\ufe0fe', 'Zo\ufe0fe', 1)")
    queue.verify_audit()
    assert queue.register_name("zoe") == "zoe"
    queue.verify_audit()
