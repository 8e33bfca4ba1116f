from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from melete.errors import InvalidInput
from melete.wire.approval import (
    CallableApproval,
    Decision,
    Diff,
    Queue,
    fold_name,
    is_same_name,
    verify_name,
)
from melete.wire.envelope import Envelope, MemoryType, Operation
from melete.wire.errors import (
    AlreadyDecided,
    EnvelopeError,
    MemoryTaken,
    NotPending,
    OtherMemoryType,
    OwnDecision,
    SourceChanged,
    UnknownMemory,
)
from melete.wire.store import MemoryStore
from melete.wire.values import MemoryState

from .samples import EPISODIC, PROCEDURAL, SEMANTIC, WORKING, Clock, fetch, open_store, recalled, remember, tables_of

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def queue(store_url: str, clock: Clock) -> Iterator[MemoryStore]:
    """A store whose long-term writes wait."""
    with open_store(store_url, clock, approval=Queue()) as store:
        yield store


def actions(store: MemoryStore) -> list[str]:
    """What the audit log says was done, in order, as JSON."""
    return [entry for (entry,) in fetch(store, "SELECT entry FROM audit ORDER BY number")]


# Hooks


@pytest.mark.parametrize("kind", list(MemoryType))
def test_hook_is_asked_about_long_term_writes_alone(store_url: str, kind: MemoryType) -> None:
    asked: list[Diff] = []

    def decide(diff: Diff) -> bool:
        asked.append(diff)
        return True

    with open_store(store_url, approval=CallableApproval(decide, "ada")) as store:
        first, second = (
            remember(store, "tea", kind, tags=["x"], agent_id="a"),
            remember(store, "milk", kind, agent_id="a"),
        )
        result = store.merge(kind, [second, first], agent_id="a")
        store.expire(kind, result.ids, agent_id="a", ttl_seconds=5)
        store.forget(kind, result.ids, agent_id="a")
        assert result.approved is (True if kind.is_long_term else None)
        diffs = [
            Diff((), "tea", ("x",), "a", kind),
            Diff((), "milk", (), "a", kind),
            Diff(("milk", "tea"), "milk\ntea", ("x",), "a", kind),
        ]
        assert asked == (diffs if kind.is_long_term else [])
        assert all(('"by":"ada"' in entry) is kind.is_long_term for entry in actions(store)[:3])
        assert "tea" not in repr(asked)


@pytest.mark.parametrize("answer", [False, Decision.REJECTED])
def test_rejected_write_leaves_a_digest_and_nothing_else(store_url: str, answer: Any) -> None:
    with open_store(store_url) as store:
        ids = [remember(store, "tea", SEMANTIC), remember(store, "milk", SEMANTIC)]
    with open_store(store_url, approval=CallableApproval(lambda _: answer, "ada")) as store:
        before = tables_of(store)
        for result in (store.remember(SEMANTIC, "secret coffee"), store.merge(SEMANTIC, ids)):
            assert (result.ok, result.approved, result.ids) == (False, False, ())
            assert result.detail == "rejected by ada"
            assert result.to_json()["approved"] is False
        after = tables_of(store)
        assert len(after["audit"]) == len(before["audit"]) + 2
        for table in before.keys() - {"audit", "meta"}:
            assert after[table] == before[table], table
        assert '"action":"reject"' in actions(store)[-1]
        assert "secret" not in repr(after)
        store.verify_audit()


@pytest.mark.parametrize("answer", [1, "yes", None, [], object()])
def test_answer_that_is_merely_truthy_or_falsy_decides_nothing(store_url: str, answer: Any) -> None:
    with open_store(store_url, approval=CallableApproval(lambda _: answer)) as store:
        before = tables_of(store)
        with pytest.raises(InvalidInput):
            store.remember(SEMANTIC, "tea")
        assert tables_of(store) == before


def test_hook_that_fails_leaves_the_store_as_it_was(store_url: str) -> None:
    def fail(diff: Diff) -> bool:
        raise ZeroDivisionError

    with open_store(store_url, approval=CallableApproval(fail)) as store:
        before = tables_of(store)
        with pytest.raises(ZeroDivisionError):
            store.remember(PROCEDURAL, "tea")
        assert tables_of(store) == before
        remember(store, "tea", WORKING)


def test_hook_may_take_its_time_while_others_write(store_url: str) -> None:
    with open_store(store_url) as other:

        def decide(diff: Diff) -> bool:
            remember(other, "written meanwhile")
            return True

        with open_store(store_url, approval=CallableApproval(decide), busy_seconds=1) as store:
            remember(store, "tea", SEMANTIC)
            assert store.count() == 2


def test_merge_is_refused_when_a_source_went_while_the_hook_was_asked(store_url: str) -> None:
    with open_store(store_url) as other:
        ids = [remember(other, "tea", SEMANTIC), remember(other, "milk", SEMANTIC)]

        def decide(diff: Diff) -> bool:
            other.forget(SEMANTIC, ids[:1])
            return True

        with open_store(store_url, approval=CallableApproval(decide)) as store:
            with pytest.raises(UnknownMemory):
                store.merge(SEMANTIC, ids)
            assert recalled(store, "tea milk", SEMANTIC) == ["milk"]


def test_hook_may_put_single_writes_into_the_queue(store_url: str) -> None:
    hook = CallableApproval(lambda diff: Decision.PENDING if "coffee" in diff.after else True)
    with open_store(store_url, approval=hook) as store:
        remember(store, "tea", SEMANTIC)
        assert store.remember(SEMANTIC, "coffee").detail == "pending approval"
        assert (store.count(), len(store.pending())) == (1, 1)


# The queue


def test_queued_write_waits_and_is_recalled_once_it_is_approved(queue: MemoryStore) -> None:
    envelope = Envelope(
        Operation.REMEMBER,
        SEMANTIC,
        agent_id="a",
        content="likes tea",
        tags=("x",),
        metadata={"k": 1},
        ttl_seconds=100,
    )
    answer = queue.execute(envelope, "ben").to_json()
    (memory_id,) = answer.pop("ids")  # type: ignore[misc]
    assert answer == {"op": "remember", "ok": True, "approved": False, "detail": "pending approval"}
    assert recalled(queue, "tea", SEMANTIC, agent_id="a") == []
    assert queue.count() == 0
    assert queue.show(memory_id).state is MemoryState.PENDING
    (write,) = queue.pending()
    assert (write.id, write.operation, write.writer, write.agent) == (memory_id, Operation.REMEMBER, "ben", "a")
    assert write.diff == Diff((), "likes tea", ("x",), "a", SEMANTIC, {"k": 1})
    assert "tea" not in repr(write)
    result = queue.approve(memory_id, "Ada")
    assert (result.op, result.ok, result.approved, result.ids) == (Operation.REMEMBER, True, True, (memory_id,))
    kept = queue.show(memory_id)
    assert (kept.content, kept.tags, kept.metadata, kept.state) == ("likes tea", ("x",), {"k": 1}, MemoryState.ACTIVE)
    assert recalled(queue, "tea", SEMANTIC, agent_id="a") == ["likes tea"]
    assert queue.pending() == ()
    assert fetch(queue, "SELECT content, salt, tags, metadata FROM pending") == [(None, None, None, None)]
    assert '"by":"Ada"' in actions(queue)[-1]
    queue.verify_audit()


def test_short_term_writes_do_not_wait(queue: MemoryStore) -> None:
    for kind in (EPISODIC, WORKING):
        assert queue.remember(kind, "tea").approved is None
    assert queue.pending() == ()


def test_rejected_write_is_gone_from_the_queue_and_from_the_file(store_url: str, tmp_path: Path) -> None:
    with open_store(store_url, approval=Queue()) as queue:
        (memory_id,) = queue.remember(SEMANTIC, "secretword tea").ids
        result = queue.reject(memory_id, "ada")
        assert (result.ok, result.approved, result.detail) == (False, False, "rejected by ada")
        assert "secretword" not in repr(tables_of(queue))
        for file in tmp_path.iterdir():
            assert b"secretword" not in file.read_bytes()
        with pytest.raises(UnknownMemory):
            queue.show(memory_id)
        queue.verify_audit()


@pytest.mark.parametrize("first", ["approve", "reject"])
@pytest.mark.parametrize("second", ["approve", "reject"])
def test_write_is_decided_once(queue: MemoryStore, first: str, second: str) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "tea").ids
    getattr(queue, first)(memory_id, "ada")
    before = tables_of(queue)
    with pytest.raises(AlreadyDecided) as caught:
        getattr(queue, second)(memory_id, "ben")
    assert (caught.value.decision, caught.value.by) == ("approved" if first == "approve" else "rejected", "ada")
    assert tables_of(queue) == before


@pytest.mark.parametrize("by", ["ben", "Ben", " BEN ", "b\u200ben", "\uff42\uff45\uff4e", "a", "A"])
def test_who_wrote_does_not_decide(queue: MemoryStore, by: str) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "tea", agent_id="a", writer="ben").ids
    before = tables_of(queue)
    for decide in (queue.approve, queue.reject):
        with pytest.raises((OwnDecision, InvalidInput)):
            decide(memory_id, by)
    assert tables_of(queue) == before


def test_agent_that_wrote_without_a_name_does_not_decide(queue: MemoryStore) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "tea").ids
    with pytest.raises(OwnDecision):
        queue.approve(memory_id, "default")


@pytest.mark.parametrize("by", ["", " ", "\u200b", "a\nb\x00", "x" * 129, "\ud800", None, 7])
def test_name_that_is_none_is_refused(queue: MemoryStore, by: Any) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "tea").ids
    for decide in (queue.approve, queue.reject):
        with pytest.raises(InvalidInput) as caught:
            decide(memory_id, by)
        assert caught.value.field == "by"


def test_unknown_ids_are_not_pending(queue: MemoryStore) -> None:
    episodic = remember(queue, "tea")
    for memory_id in (UNKNOWN, episodic):
        with pytest.raises(NotPending):
            queue.approve(memory_id, "ada")
    for bad in ("", "x", UNKNOWN.upper().replace("0", "A")):
        with pytest.raises(EnvelopeError):
            queue.reject(bad, "ada")


def test_names_are_kept_as_first_written(queue: MemoryStore) -> None:
    for number, name in enumerate(["Ada Lovelace", "ada lovelace", " ADA  Lovelace ", "Ben"]):
        (memory_id,) = queue.remember(SEMANTIC, f"tea {number}").ids
        queue.approve(memory_id, name)
    assert queue.names() == ("Ada Lovelace", "Ben")
    assert queue.register_name("adaLovelace") == "Ada Lovelace"
    assert queue.register_name("Cem") == "Cem"
    assert queue.names() == ("Ada Lovelace", "Ben", "Cem")
    assert [entry.count('"by":"Ada Lovelace"') for entry in actions(queue)[1::2]] == [1, 1, 1, 0]


def test_two_approvals_at_once_write_one_memory(store_url: str) -> None:
    for turn in range(3):
        with open_store(store_url, approval=Queue()) as store:
            (memory_id,) = store.remember(SEMANTIC, f"tea {turn}").ids
        gate, outcomes = threading.Barrier(2), list[object]()

        def decide(name: str) -> None:
            with open_store(store_url) as own:
                gate.wait()  # noqa: B023
                try:
                    outcomes.append(own.approve(memory_id, name).approved)  # noqa: B023
                except AlreadyDecided as error:
                    outcomes.append((error.decision, error.by))  # noqa: B023

        threads = [threading.Thread(target=decide, args=(name,)) for name in ("ada", "ben")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert True in outcomes
        outcomes.remove(True)
        assert outcomes in ([("approved", "ada")], [("approved", "ben")])
        with open_store(store_url) as store:
            assert store.count() == turn + 1
            store.verify_audit()


def test_pending_writes_are_listed_oldest_first_and_in_pages(queue: MemoryStore) -> None:
    ids = [queue.remember(SEMANTIC, f"tea {number}", agent_id=f"a{number % 2}").ids[0] for number in range(7)]
    assert [write.id for write in queue.pending()] == ids
    assert [write.id for write in queue.pending(agent_id="a1")] == ids[1::2]
    first = queue.pending(limit=3)
    assert [write.id for write in first] == ids[:3]
    assert [write.id for write in queue.pending(after=first[-1].number, limit=3)] == ids[3:6]


def test_waiting_write_can_be_forgotten_and_is_not_decided_then(queue: MemoryStore) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "secretword").ids
    with pytest.raises(OtherMemoryType):
        queue.forget(PROCEDURAL, [memory_id])
    with pytest.raises(UnknownMemory):
        queue.forget(SEMANTIC, [memory_id], agent_id="other")
    assert queue.forget(SEMANTIC, [memory_id]).ids == (memory_id,)
    assert "secretword" not in repr(tables_of(queue))
    with pytest.raises(AlreadyDecided) as caught:
        queue.approve(memory_id, "ada")
    assert caught.value.decision == "forgotten"
    queue.verify_audit()


def test_waiting_write_is_no_memory_yet(queue: MemoryStore) -> None:
    (waiting,) = queue.remember(SEMANTIC, "tea").ids
    (other,) = queue.remember(SEMANTIC, "milk").ids
    queue.approve(other, "ada")
    for attempt in (
        lambda: queue.expire(SEMANTIC, [waiting]),
        lambda: queue.merge(SEMANTIC, [other, waiting]),
    ):
        with pytest.raises(UnknownMemory):
            attempt()


def test_waiting_write_whose_time_has_come_is_not_approved_and_is_swept(queue: MemoryStore, clock: Clock) -> None:
    (memory_id,) = queue.remember(SEMANTIC, "secretword", ttl_seconds=10).ids
    clock.now += 10
    assert queue.pending() == ()
    with pytest.raises(AlreadyDecided) as caught:
        queue.approve(memory_id, "ada")
    assert caught.value.decision == "expired"
    assert queue.sweep() == 1
    assert "secretword" not in repr(tables_of(queue))
    with pytest.raises(AlreadyDecided):
        queue.approve(memory_id, "ada")
    queue.verify_audit()


def test_id_of_a_memory_is_not_queued_again(store_url: str) -> None:
    with open_store(store_url, new_id=lambda: UNKNOWN) as store:
        remember(store, "tea")
    with open_store(store_url, new_id=lambda: UNKNOWN, approval=Queue()) as store, pytest.raises(MemoryTaken):
        store.remember(SEMANTIC, "tea")


# Merges in the queue


@pytest.fixture
def sources(store_url: str, clock: Clock) -> list[str]:
    with open_store(store_url, clock) as store:
        return [remember(store, word, SEMANTIC, tags=[word]) for word in ("tea", "milk", "sugar")]


def test_queued_merge_waits_and_retires_its_sources_once_it_is_approved(queue: MemoryStore, sources: list[str]) -> None:
    result = queue.merge(SEMANTIC, sources[:2], tags=["more"], metadata={"k": 1}, writer="ben")
    (merged,) = result.ids
    assert (result.approved, result.detail) == (False, "pending approval")
    assert recalled(queue, "tea", SEMANTIC) == ["tea"]
    (write,) = queue.pending()
    assert (write.operation, write.sources, write.before) == (Operation.MERGE, tuple(sources[:2]), ("tea", "milk"))
    assert (write.content, write.tags) == ("tea\nmilk", ("tea", "milk", "more"))
    queue.approve(merged, "ada")
    kept = queue.show(merged)
    assert (kept.content, kept.tags, kept.metadata) == ("tea\nmilk", ("tea", "milk", "more"), {"k": 1})
    assert sorted(recalled(queue, "tea milk sugar", SEMANTIC)) == ["sugar", "tea\nmilk"]
    queue.verify_audit()


def test_queued_merge_that_is_rejected_leaves_its_sources(queue: MemoryStore, sources: list[str]) -> None:
    (merged,) = queue.merge(SEMANTIC, sources).ids
    queue.reject(merged, "ada")
    assert sorted(recalled(queue, "tea milk sugar", SEMANTIC)) == ["milk", "sugar", "tea"]
    queue.verify_audit()


def forget(store: MemoryStore, source: str, clock: Clock) -> None:
    store.forget(SEMANTIC, [source])


def merge_away(store: MemoryStore, source: str, clock: Clock) -> None:
    (other,) = store.remember(SEMANTIC, "other").ids
    store.approve(other, "cem")
    (merged,) = store.merge(SEMANTIC, [source, other]).ids
    store.approve(merged, "cem")


def expire_now(store: MemoryStore, source: str, clock: Clock) -> None:
    store.expire(SEMANTIC, [source])


def expire_later(store: MemoryStore, source: str, clock: Clock) -> None:
    store.expire(SEMANTIC, [source], ttl_seconds=1000)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (forget, "forgotten"),
        (merge_away, "merged into another"),
        (expire_now, "has expired"),
        (expire_later, "another time to live"),
    ],
)
def test_queued_merge_is_refused_once_a_source_has_changed(
    queue: MemoryStore, sources: list[str], clock: Clock, change: Any, reason: str
) -> None:
    (merged,) = queue.merge(SEMANTIC, sources).ids
    change(queue, sources[1], clock)
    before = tables_of(queue)
    with pytest.raises(SourceChanged) as caught:
        queue.approve(merged, "ada")
    assert (caught.value.id, caught.value.source) == (merged, sources[1])
    assert reason in caught.value.reason
    assert tables_of(queue) == before
    (write,) = queue.pending()
    assert (write.content, write.before) == (None, ())
    queue.reject(merged, "ada")
    queue.verify_audit()


def test_queue_keeps_no_copy_of_what_a_merge_would_take_up(queue: MemoryStore, sources: list[str]) -> None:
    queue.merge(SEMANTIC, sources)
    queue.forget(SEMANTIC, sources)
    assert all(row[-4] is None for row in tables_of(queue)["pending"])
    assert fetch(queue, "SELECT content FROM pending") == [(None,)]


# Names


@pytest.mark.parametrize(
    ("one", "other"), [("Ada", "ada"), ("Ada  L", "adal"), ("Stra\u00dfe", "STRASSE"), ("e\u0301", "\u00e9")]
)
def test_spellings_of_one_name_are_one_name(one: str, other: str) -> None:
    assert is_same_name(one, other)


def test_different_names_are_different() -> None:
    assert len({fold_name(name) for name in ("ada", "adá", "ben", "\u0430da")}) == 4


def test_name_is_given_back_without_space_around_it() -> None:
    assert verify_name("  Ada \t Lovelace ") == "Ada Lovelace"
