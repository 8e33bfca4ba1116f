"""A clock that goes back: what has expired stays gone, because the store's time is that of its log at least."""

from __future__ import annotations

import json

import pytest

from melete.wire.approval import Queue
from melete.wire.errors import AlreadyDecided, UnknownMemory
from melete.wire.listing import list_ids
from melete.wire.store import MemoryStore
from melete.wire.values import MemoryState

from .samples import EPISODIC, SEMANTIC, Clock, fetch, open_store, recalled, remember


@pytest.mark.parametrize("is_fresh", [False, True], ids=["same process", "another process"])
def test_what_has_expired_stays_gone_when_the_clock_goes_back(store_url: str, clock: Clock, is_fresh: bool) -> None:
    with open_store(store_url, clock) as store:
        memory_id, other = remember(store, "brief tea"), remember(store, "milk")
        store.expire(EPISODIC, [memory_id])
        if not is_fresh:
            _assert_gone(store, clock, memory_id, other)
    if is_fresh:
        with open_store(store_url, clock) as store:
            _assert_gone(store, clock, memory_id, other)


def _assert_gone(store: MemoryStore, clock: Clock, memory_id: str, other: str) -> None:
    clock.now -= 100
    for _ in range(2):
        assert recalled(store, "brief tea") == []
        assert store.show(memory_id).state is MemoryState.EXPIRED
        assert store.count(memory_type=EPISODIC) == 1
        assert list_ids(store, "default", [EPISODIC], 10) == [other]
        for attempt in (
            lambda: store.expire(EPISODIC, [memory_id], ttl_seconds=10**6),
            lambda: store.merge(EPISODIC, [memory_id, other]),
        ):
            with pytest.raises(UnknownMemory):
                attempt()
        store.remember(SEMANTIC, "something else")  # the newest audit row is of the time that the clock gives now
    store.verify_audit()


def test_time_of_the_log_never_goes_back(store: MemoryStore, clock: Clock) -> None:
    start = clock.now
    remember(store, "tea")
    for step in (-50, 20, 60):
        clock.now += step
        remember(store, "milk")
    times = [json.loads(entry)["at"] for (entry,) in fetch(store, "SELECT entry FROM audit ORDER BY number")]
    assert times == [start, start, start, start + 30]


def test_write_whose_time_came_is_not_approved_when_the_clock_goes_back(store_url: str, clock: Clock) -> None:
    with open_store(store_url, clock, approval=Queue()) as store:
        (memory_id,) = store.remember(SEMANTIC, "tea", writer="bob", ttl_seconds=10).ids
        clock.now += 50
        remember(store, "milk")
        clock.now -= 50
        assert store.pending() == ()
        with pytest.raises(UnknownMemory):
            store.show(memory_id)
        with pytest.raises(AlreadyDecided):
            store.approve(memory_id, "zoe")


def test_write_that_was_undone_leaves_no_time_behind(store: MemoryStore, clock: Clock) -> None:
    memory_id = remember(store, "tea", ttl_seconds=10)
    clock.now += 50
    with pytest.raises(UnknownMemory), store.transaction():
        store.forget(EPISODIC, [remember(store, "milk"), "0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10"])
    clock.now -= 50
    assert store.show(memory_id).state is MemoryState.ACTIVE
    assert recalled(store, "tea") == ["tea"]


@pytest.mark.parametrize("agent", ["default", 'a"b\\', "\u2028\n\t", '","at":7,"', "x" * 256, "\U0001f600"])
def test_time_is_read_whatever_the_agent_is_called(store_url: str, clock: Clock, agent: str) -> None:
    with open_store(store_url, clock) as store:
        memory_id = remember(store, "tea", agent_id=agent)
        store.expire(EPISODIC, [memory_id], agent_id=agent)
    clock.now -= 100
    with open_store(store_url, clock) as store:
        assert store.show(memory_id).state is MemoryState.EXPIRED
