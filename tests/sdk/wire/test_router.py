from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import CouldNotTell, InvalidInput, MeleteError, StoreBusy, StoreUnreadable
from melete.wire.approval import CallableApproval, Decision, Queue
from melete.wire.envelope import Envelope, Hit, MemoryType, Operation, Result
from melete.wire.errors import EnvelopeError, MemoryMerged, OtherMemoryType, UnknownMemory
from melete.wire.fusion import RRF_K, Fusion, compute_rank_scores, fuse, parse_fusion
from melete.wire.router import Router
from melete.wire.routing.debts import Debts, Order
from melete.wire.routing.errors import NoStoreAnswered
from melete.wire.routing.lanes import Lane
from melete.wire.search import fuse_ranks, to_float32
from melete.wire.store import MemoryStore
from melete.wire.values import MemoryState
from postgres import Server

from .samples import EPISODIC, SEMANTIC, WORKING, Clock, open_store, recalled, remember

UNKNOWN = "00000000-0000-4000-8000-000000000000"
PATIENCE = 5.0


# Fusing, without stores


def hit(number: int, score: float = 1.0, content: str = "") -> Hit:
    return Hit(f"00000000-0000-4000-8000-{number:012d}", content or f"memory {number}", EPISODIC, score, ())


def numbers(hits: tuple[Hit, ...]) -> list[int]:
    return [int(one.id[-12:]) for one in hits]


def test_ranks_count_from_zero_and_are_summed_over_lists() -> None:
    (first, second) = fuse([[hit(1), hit(2)], [hit(2), hit(3)]], 2)
    assert numbers((first, second)) == [2, 1]
    assert first.score == to_float32(1 / 60 + 1 / 61)
    assert second.score == to_float32(1 / 60)


def test_what_stands_in_a_list_twice_counts_once_at_its_first_place() -> None:
    fused = fuse([[hit(1, 9), hit(2, 8), hit(1, 7), hit(1, 6)]], 5)
    assert numbers(fused) == [1, 2]
    assert [one.score for one in fused] == [to_float32(1 / 60), to_float32(1 / 61)]


def test_equal_scores_are_in_order_of_id_and_the_same_on_every_run() -> None:
    lists = [[hit(3), hit(1)], [hit(1), hit(3)], [hit(2)]]
    for seed in range(5):
        random.Random(seed).shuffle(lists)
        assert numbers(fuse(lists, 5)) == [1, 3, 2]


def test_the_best_score_counts_when_asked() -> None:
    lists = [[hit(1, 2.0), hit(2, 1.5)], [hit(2, 4.0), hit(3, 2.0), hit(3, 1.0)]]
    fused = fuse(lists, 5, Fusion.MAX)
    assert [(number, one.score) for number, one in zip(numbers(fused), fused, strict=True)] == [
        (2, 4.0),
        (1, 2.0),
        (3, 2.0),
    ]


def test_content_is_that_of_the_first_list() -> None:
    here, there = hit(1, 1.0, "here"), hit(1, 9.0, "there")
    assert fuse([[here], [there]], 1)[0].content == "here"
    assert fuse([[there], [here]], 1, Fusion.MAX)[0].content == "there"


@pytest.mark.parametrize("top_k", [0, -1, 1001, 2.0, True])
def test_other_counts_are_refused(top_k: Any) -> None:
    with pytest.raises(InvalidInput):
        fuse([[hit(1)]], top_k)


@pytest.mark.parametrize("method", ["", "RRF", "weighted"])
def test_other_methods_are_refused(method: str) -> None:
    with pytest.raises(InvalidInput, match="rrf, max"):
        parse_fusion(method)


ranked = st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=4)


@given(ranked, st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_of_the_lists(lists: list[list[int]], draw: random.Random) -> None:
    scores = compute_rank_scores(lists)
    shuffled = list(lists)
    draw.shuffle(shuffled)
    assert compute_rank_scores(shuffled) == scores
    plain = fuse_ranks(lists)
    assert scores.keys() == plain.keys()
    assert scores == pytest.approx(plain, rel=1e-6)


@given(ranked, st.integers(1, 8), st.sampled_from(list(Fusion)))
def test_fused_hits_are_different_few_and_in_order(lists: list[list[int]], top_k: int, method: Fusion) -> None:
    fused = fuse([[hit(number, 30 - number) for number in sorted(each)] for each in lists], top_k, method)
    assert (
        len({one.id for one in fused}) == len(fused) == min(top_k, len({number for each in lists for number in each}))
    )
    assert list(fused) == sorted(fused, key=lambda one: (-one.score, one.id))


def test_rank_constant_is_that_of_the_store() -> None:
    assert RRF_K == 60


# Routing: stores that fail when they are told to


@dataclass
class Fault(Clock):
    """A clock that tests move, of a store that is down, or hangs, as long as a test says so."""

    now: int = 1_800_000_000
    is_down: bool = False
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def __call__(self) -> int:
        if not self.gate.wait(20):
            raise StoreBusy("test", "nobody opened the gate")
        if self.is_down:
            raise StoreUnreadable("there", "it is down")
        return self.now


@dataclass
class Pair:
    """A router over two stores, each of which can be looked at by itself."""

    router: Router
    here: MemoryStore
    there: MemoryStore
    fault: Fault
    clock: Clock

    def stop(self) -> None:
        self.fault.is_down = True

    def start(self) -> None:
        self.fault.is_down = False

    def move(self, seconds: int) -> None:
        self.clock.now += seconds
        self.fault.now += seconds

    @property
    def owed(self) -> list[tuple[str, Operation, tuple[str, ...]]]:
        return [(debt.store, debt.operation, debt.memory_ids) for debt in self.router.owed()]

    def contents(self, query: str, kind: MemoryType = EPISODIC) -> list[list[str]]:
        return [sorted(recalled(store, query, kind)) for store in (self.here, self.there)]


@pytest.fixture
def make_pair(tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(there: str | None = None, *, patience: float = PATIENCE, **options: Any) -> Pair:
        clock, fault = Clock(), Fault()
        folder = tmp_path / str(len(made))
        first = open_store(f"sqlite:///{folder}/here.db", clock, **options)
        second = open_store(there or f"sqlite:///{folder}/there.db", fault, **options)
        router = Router(
            {"here": first, "there": second}, debts=folder / "owed.db", clock=clock, patience_seconds=patience
        )
        made.append(Pair(router, first, second, fault, clock))
        return made[-1]

    yield make
    for pair in made:
        pair.fault.gate.set()
        pair.router.close()
        for store in (pair.here, pair.there):
            store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, make_pair: Callable[..., Pair]) -> Iterator[Pair]:
    """Two stores: both SQLite, or the second one on PostgreSQL."""
    if request.param == "sqlite":
        yield make_pair()
        return
    server: Server = request.getfixturevalue("postgres")
    with server.new_database() as name:
        made = make_pair(server.url(name))
        yield made
        made.router.close()
        made.there.close()


def test_one_id_stands_for_a_memory_in_every_store(pair: Pair) -> None:
    result = pair.router.remember(SEMANTIC, "prefers green tea", tags=["drink"], metadata={"a": 1}, ttl_seconds=60)
    assert (result.ok, result.approved, result.detail, result.failures) == (True, True, "", ())
    assert result.answered == ("here", "there")
    (memory_id,) = result.ids
    for store in (pair.here, pair.there):
        kept = store.show(memory_id)
        assert (kept.content, kept.tags, kept.metadata) == ("prefers green tea", ("drink",), {"a": 1})
        assert kept.expires_at == pair.clock.now + 60
        store.verify_audit()
    assert pair.router.show(memory_id).content == "prefers green tea"
    assert pair.owed == []


def test_recall_gives_each_memory_once(pair: Pair) -> None:
    ids = [pair.router.remember(EPISODIC, f"green tea number {number}").ids[0] for number in range(8)]
    result = pair.router.recall(EPISODIC, "green tea", top_k=6)
    assert len({one.id for one in result.hits}) == 6
    assert {one.id for one in result.hits} <= set(ids)
    assert list(result.hits) == sorted(result.hits, key=lambda one: (-one.score, one.id))
    assert result.hits == pair.router.recall(EPISODIC, "green tea", top_k=6).hits
    assert len(pair.router.recall(EPISODIC, "green tea").hits) == 5


def test_what_only_one_store_has_is_found_too(pair: Pair) -> None:
    both = pair.router.remember(EPISODIC, "tea for both").ids[0]
    alone = remember(pair.there, "tea over there")
    hits = {one.id: one.score for one in pair.router.recall(EPISODIC, "tea").hits}
    assert hits.keys() == {both, alone}
    assert hits[both] > hits[alone]


def test_best_score_is_that_of_a_store(pair: Pair) -> None:
    for number in range(4):
        remember(pair.here, f"noise {number}")
    memory_id = pair.router.remember(EPISODIC, "green tea").ids[0]
    scores = [store.recall(EPISODIC, "tea").hits[0].score for store in (pair.here, pair.there)]
    (found,) = pair.router.recall(EPISODIC, "tea", fusion=Fusion.MAX).hits
    assert (found.id, found.score) == (memory_id, max(scores))


def test_agents_types_and_tags_scope_what_is_recalled(pair: Pair) -> None:
    wanted = pair.router.remember(EPISODIC, "tea", agent_id="ada", tags=["a", "b"]).ids[0]
    pair.router.remember(EPISODIC, "tea", agent_id="ada", tags=["a"])
    pair.router.remember(EPISODIC, "tea", tags=["a", "b"])
    pair.router.remember(WORKING, "tea", agent_id="ada", tags=["a", "b"])
    result = pair.router.recall(EPISODIC, "tea", agent_id="ada", tags=["b", "a"])
    assert [one.id for one in result.hits] == [wanted]


def test_envelopes_are_answered_as_a_store_answers_them(pair: Pair) -> None:
    envelope = Envelope(Operation.REMEMBER, EPISODIC, content="green tea")
    (memory_id,) = pair.router.execute(envelope).ids
    answer = pair.router.execute(Envelope(Operation.RECALL, EPISODIC, query="tea")).to_json()
    assert Result.from_json(answer).hits[0].id == memory_id
    for operation in (Operation.EXPIRE, Operation.FORGET):
        asked = Envelope(operation, EPISODIC, memory_ids=(memory_id,))
        assert pair.router.execute(asked).to_json() == {"op": operation.value, "ok": True, "ids": [memory_id]}


# One store of two is down


def test_a_memory_that_a_store_missed_is_copied_there_later(pair: Pair) -> None:
    pair.stop()
    result = pair.router.remember(EPISODIC, "green tea", tags=["drink"], metadata={"a": [1]}, ttl_seconds=100)
    assert (result.ok, result.answered) == (True, ("here",))
    (failure,) = result.failures
    assert (failure.store, failure.is_owed, type(failure.error)) == ("there", True, StoreUnreadable)
    assert "there: " in result.detail
    assert "it is down" in result.detail
    assert [one.content for one in pair.router.recall(EPISODIC, "tea").hits] == ["green tea"]
    pair.move(40)
    retried = pair.router.retry()
    assert (retried.settled, len(retried.owed), len(retried.failures)) == ((), 1, 1)
    pair.start()
    assert len(pair.router.retry().settled) == 1
    copied, kept = pair.there.show(result.ids[0]), pair.here.show(result.ids[0])
    assert (copied.content, copied.tags, copied.metadata) == (kept.content, kept.tags, kept.metadata)
    assert copied.expires_at == kept.expires_at == pair.clock.now + 60
    assert pair.owed == []
    assert pair.router.retry().settled == ()


def test_recall_tells_which_store_failed(pair: Pair) -> None:
    pair.router.remember(EPISODIC, "green tea")
    pair.stop()
    result = pair.router.recall(EPISODIC, "tea")
    assert [one.content for one in result.hits] == ["green tea"]
    assert [(failure.store, failure.is_owed) for failure in result.failures] == [("there", False)]
    assert result.detail.startswith("there: ")
    assert "owed" not in result.detail
    pair.start()
    assert pair.router.recall(EPISODIC, "tea").failures == ()


def test_what_was_forgotten_does_not_come_back_from_a_store_that_was_down(pair: Pair) -> None:
    ids = [pair.router.remember(EPISODIC, f"green tea {number}").ids[0] for number in range(2)]
    kept = pair.router.remember(EPISODIC, "black tea").ids[0]
    pair.stop()
    result = pair.router.forget(EPISODIC, ids)
    assert (result.ok, list(result.ids), result.answered) == (True, ids, ("here",))
    assert [(failure.store, failure.is_owed) for failure in result.failures] == [("there", True)]
    assert "retry" in result.detail
    assert pair.owed == [("there", Operation.FORGET, tuple(ids))]
    pair.start()
    assert pair.contents("tea") == [["black tea"], ["black tea", "green tea 0", "green tea 1"]]
    assert [one.id for one in pair.router.recall(EPISODIC, "tea").hits] == [kept]
    with pytest.raises(UnknownMemory):
        pair.router.show(ids[0])
    assert [debt.memory_ids for debt in pair.router.retry().settled] == [tuple(ids)]
    assert pair.contents("tea") == [["black tea"], ["black tea"]]
    for memory_id in ids:
        with pytest.raises(UnknownMemory):
            pair.there.show(memory_id)


def test_a_copy_that_is_owed_is_not_made_of_what_was_forgotten_since(pair: Pair) -> None:
    pair.stop()
    memory_id = pair.router.remember(EPISODIC, "green tea").ids[0]
    pair.router.forget(EPISODIC, [memory_id])
    pair.start()
    pair.router.retry()
    assert pair.contents("tea") == [[], []]
    assert pair.owed == []


def test_forgetting_again_is_no_error_while_it_is_owed(pair: Pair) -> None:
    memory_id = pair.router.remember(EPISODIC, "green tea").ids[0]
    pair.stop()
    pair.router.forget(EPISODIC, [memory_id])
    again = pair.router.forget(EPISODIC, [memory_id])
    assert (again.ok, again.ids, len(again.failures)) == (False, (), 1)
    assert len(pair.owed) == 2
    pair.start()
    assert pair.router.forget(EPISODIC, [memory_id]).ids == (memory_id,)
    pair.router.retry()
    assert pair.owed == []
    with pytest.raises(UnknownMemory):
        pair.router.forget(EPISODIC, [memory_id])


def test_what_has_ended_is_not_recalled_from_a_store_that_missed_it(pair: Pair) -> None:
    memory_id, later = (pair.router.remember(EPISODIC, f"tea {number}").ids[0] for number in range(2))
    pair.stop()
    result = pair.router.expire(EPISODIC, [memory_id])
    assert (result.ok, result.ids) == (True, (memory_id,))
    assert [(failure.store, failure.is_owed) for failure in result.failures] == [("there", True)]
    pair.router.expire(EPISODIC, [later], ttl_seconds=60)
    pair.start()
    assert [one.id for one in pair.router.recall(EPISODIC, "tea").hits] == [later]
    pair.move(30)
    assert len(pair.router.retry().settled) == 2
    assert pair.there.show(memory_id).state is MemoryState.EXPIRED
    assert pair.there.show(later).expires_at == pair.here.show(later).expires_at
    assert pair.contents("tea") == [["tea 1"], ["tea 1"]]


def test_a_later_end_replaces_an_earlier_one_that_is_owed(pair: Pair) -> None:
    memory_id = pair.router.remember(EPISODIC, "tea").ids[0]
    pair.stop()
    pair.router.expire(EPISODIC, [memory_id], ttl_seconds=10)
    pair.router.expire(EPISODIC, [memory_id], ttl_seconds=1000)
    assert len(pair.owed) == 1
    pair.start()
    pair.router.retry()
    assert pair.there.show(memory_id).expires_at == pair.clock.now + 1000


def test_a_merge_has_one_id_over_all_stores(pair: Pair) -> None:
    sources = [pair.router.remember(EPISODIC, content, tags=[content]).ids[0] for content in ("tea", "no sugar")]
    result = pair.router.merge(EPISODIC, sources, tags=["m"], metadata={"b": 2})
    (merged,) = result.ids
    for store in (pair.here, pair.there):
        kept = store.show(merged)
        assert (kept.content, kept.tags, kept.metadata) == ("tea\nno sugar", ("tea", "no sugar", "m"), {"b": 2})
        assert store.show(sources[0]).merged_into == merged
        store.verify_audit()


def test_a_merge_that_a_store_missed_is_done_later_with_its_copies(pair: Pair) -> None:
    first = pair.router.remember(EPISODIC, "tea").ids[0]
    pair.stop()
    second = pair.router.remember(EPISODIC, "no sugar").ids[0]
    result = pair.router.merge(EPISODIC, [first, second], tags=["m"], metadata={"b": 2}, writer="ada")
    (merged,) = result.ids
    assert [(failure.store, failure.is_owed) for failure in result.failures] == [("there", True)]
    pair.start()
    assert [one.id for one in pair.router.recall(EPISODIC, "tea").hits] == [merged]
    assert pair.router.retry().failures == ()
    assert pair.owed == []
    kept = pair.there.show(merged)
    assert (kept.content, kept.tags, kept.metadata) == ("tea\nno sugar", ("m",), {"b": 2})
    assert pair.contents("tea sugar") == [["tea\nno sugar"], ["tea\nno sugar"]]
    pair.there.verify_audit()


def test_a_merge_copies_first_what_a_store_lacks(pair: Pair) -> None:
    here, there = remember(pair.here, "tea"), remember(pair.there, "no sugar")
    result = pair.router.merge(EPISODIC, [here, there])
    assert result.failures == ()
    for store in (pair.here, pair.there):
        assert store.show(result.ids[0]).content == "tea\nno sugar"


def test_forgetting_what_a_merge_made_takes_its_sources_out_of_a_store_that_missed_the_merge(pair: Pair) -> None:
    sources = [pair.router.remember(EPISODIC, f"tea {number}").ids[0] for number in range(2)]
    pair.stop()
    (merged,) = pair.router.merge(EPISODIC, sources).ids
    pair.start()
    result = pair.router.forget(EPISODIC, [merged])
    assert result.failures == ()
    assert set(result.ids) == {merged, *sources}
    assert pair.contents("tea") == [[], []]
    assert pair.owed == []


def test_forgetting_what_a_merge_made_reaches_its_sources_later_too(pair: Pair) -> None:
    sources = [pair.router.remember(EPISODIC, f"tea {number}").ids[0] for number in range(2)]
    pair.stop()
    (merged,) = pair.router.merge(EPISODIC, sources).ids
    pair.router.forget(EPISODIC, [merged])
    pair.start()
    assert pair.router.recall(EPISODIC, "tea").hits == ()
    pair.router.retry()
    assert pair.contents("tea") == [[], []]
    assert pair.owed == []


def test_forgetting_what_a_merge_made_takes_its_sources_out_while_the_store_that_made_it_is_down(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair()
    sources = [pair.router.remember(EPISODIC, f"tea {number}").ids[0] for number in range(2)]
    pair.stop()
    (merged,) = pair.router.merge(EPISODIC, sources).ids
    pair.start()
    working, pair.here._core.clock = pair.here._core.clock, Fault(is_down=True)
    result = pair.router.forget(EPISODIC, [merged])
    assert (result.answered, set(result.ids)) == (("there",), set(sources))
    assert recalled(pair.there, "tea") == []
    pair.here._core.clock = working
    assert pair.router.recall(EPISODIC, "tea").hits == ()
    assert pair.router.retry().owed == ()
    assert pair.contents("tea") == [[], []]


# Refusals


def test_unknown_ids_of_other_agents_and_types_change_nothing_anywhere(pair: Pair) -> None:
    memory_id = pair.router.remember(EPISODIC, "tea").ids[0]
    other = pair.router.remember(EPISODIC, "tea", agent_id="ada").ids[0]
    heads = [store.audit_head() for store in (pair.here, pair.there)]
    for act in (pair.router.forget, pair.router.expire):
        for ids, kind, error in (
            ([memory_id, UNKNOWN], EPISODIC, UnknownMemory),
            ([memory_id, other], EPISODIC, UnknownMemory),
            ([memory_id], WORKING, OtherMemoryType),
        ):
            with pytest.raises(error):
                act(kind, ids)
    with pytest.raises(UnknownMemory):
        pair.router.merge(EPISODIC, [memory_id, UNKNOWN])
    with pytest.raises(EnvelopeError):
        pair.router.merge(EPISODIC, [memory_id, memory_id])
    with pytest.raises(EnvelopeError):
        pair.router.remember(EPISODIC, "")
    with pytest.raises(InvalidInput):
        pair.router.remember(EPISODIC, "tea", ttl_seconds=0)
    assert [store.audit_head() for store in (pair.here, pair.there)] == heads
    assert pair.owed == []


def test_what_was_merged_is_refused_alone(pair: Pair) -> None:
    sources = [pair.router.remember(EPISODIC, f"tea {number}").ids[0] for number in range(2)]
    (merged,) = pair.router.merge(EPISODIC, sources).ids
    for act in (pair.router.forget, pair.router.expire):
        with pytest.raises(MemoryMerged) as caught:
            act(EPISODIC, [sources[0]])
        assert caught.value.merged_into == merged
    assert set(pair.router.forget(EPISODIC, [sources[0], merged]).ids) == {*sources, merged}


def test_an_id_that_may_be_in_a_store_that_is_down_is_owed_there(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    memory_id = remember(pair.there, "tea")
    pair.stop()
    result = pair.router.forget(EPISODIC, [memory_id])
    assert (result.ok, result.ids) == (False, ())
    assert "there: " in result.detail
    with pytest.raises(NoStoreAnswered):
        pair.router.expire(EPISODIC, [memory_id])
    pair.start()
    pair.router.retry()
    assert pair.contents("tea") == [[], []]


def test_all_stores_failing_is_an_error_that_names_them(tmp_path: Path) -> None:
    faults = [Fault(), Fault()]
    stores = {f"store {n}": open_store(f"sqlite:///{tmp_path}/{n}.db", faults[n]) for n in range(2)}
    with Router(stores, debts=tmp_path / "owed") as router:
        memory_id = router.remember(EPISODIC, "tea").ids[0]
        for fault in faults:
            fault.is_down = True
        calls: list[Callable[[], Any]] = [
            lambda: router.remember(EPISODIC, "tea"),
            lambda: router.recall(EPISODIC, "tea"),
            lambda: router.forget(EPISODIC, [memory_id]),
            lambda: router.expire(EPISODIC, [memory_id]),
            lambda: router.merge(EPISODIC, [memory_id, UNKNOWN]),
            lambda: router.show(memory_id),
            lambda: router.approve(memory_id, "ada"),
        ]
        for call in calls:
            with pytest.raises(NoStoreAnswered) as caught:
                call()
            assert [failure.store for failure in caught.value.failures] == ["store 0", "store 1"]
            message = str(caught.value)
            assert message.isprintable()
            assert message.endswith(".")
            assert "store 1: " in message
        assert router.owed() == ()
        for fault in faults:
            fault.is_down = False
        assert [one.id for one in router.recall(EPISODIC, "tea").hits] == [memory_id]
    for store in stores.values():
        store.close()


# Approval


def test_a_write_waits_in_every_store_and_is_approved_in_all(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(approval=Queue())
    result = pair.router.remember(SEMANTIC, "prefers tea")
    assert (result.ok, result.approved, result.detail) == (True, False, "pending approval")
    assert pair.router.recall(SEMANTIC, "tea").hits == ()
    approved = pair.router.approve(result.ids[0], "ada")
    assert (approved.ok, approved.approved, approved.answered) == (True, True, ("here", "there"))
    assert pair.contents("tea", SEMANTIC) == [["prefers tea"], ["prefers tea"]]
    other = pair.router.remember(SEMANTIC, "prefers coffee")
    rejected = pair.router.reject(other.ids[0], "ada")
    assert (rejected.ok, rejected.approved) == (False, False)
    assert pair.contents("coffee", SEMANTIC) == [[], []]


def test_what_a_hook_rejects_is_told_and_not_owed(tmp_path: Path) -> None:
    strict = CallableApproval(lambda diff: "secret" not in diff.after, "guard")
    here = open_store(f"sqlite:///{tmp_path}/a.db")
    there = open_store(f"sqlite:///{tmp_path}/b.db", approval=strict)
    with here, there, Router({"here": here, "there": there}, debts=tmp_path / "owed") as router:
        result = router.remember(SEMANTIC, "a secret")
        assert (result.ok, result.answered) == (True, ("here",))
        assert [(failure.store, failure.error, failure.is_owed) for failure in result.failures] == [
            ("there", None, False)
        ]
        assert result.detail == "there: rejected by guard"
        assert router.owed() == ()
        assert router.remember(SEMANTIC, "no such thing").failures == ()


def test_stores_that_decide_differently_are_told_apart(tmp_path: Path) -> None:
    here = open_store(f"sqlite:///{tmp_path}/a.db")
    there = open_store(f"sqlite:///{tmp_path}/b.db", approval=CallableApproval(lambda _: Decision.PENDING))
    with here, there, Router({"here": here, "there": there}) as router:
        result = router.remember(SEMANTIC, "tea")
        assert (result.ok, result.approved, result.detail) == (True, False, "there: pending approval")


def test_a_fault_of_a_hook_is_raised_as_it_is_and_what_others_wrote_is_taken_back(tmp_path: Path) -> None:
    def broken(_: object) -> bool:
        raise RuntimeError("not ours")

    here = open_store(f"sqlite:///{tmp_path}/a.db")
    there = open_store(f"sqlite:///{tmp_path}/b.db", approval=CallableApproval(broken))
    with here, there, Router({"here": here, "there": there}) as router:
        with pytest.raises(RuntimeError, match="not ours"):
            router.remember(SEMANTIC, "tea")
        assert router.recall(SEMANTIC, "tea").hits == ()
        assert router.retry().owed == ()
        assert recalled(here, "tea", SEMANTIC) == []


# A store that hangs


def test_a_store_that_hangs_holds_up_the_others_no_longer_than_patience(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(patience=0.2)
    memory_id = pair.router.remember(EPISODIC, "green tea").ids[0]
    pair.fault.gate.clear()
    result = pair.router.recall(EPISODIC, "tea")
    assert [one.id for one in result.hits] == [memory_id]
    (failure,) = result.failures
    assert isinstance(failure.error, StoreBusy)
    assert "0.2 seconds" in result.detail
    result = pair.router.forget(EPISODIC, [memory_id])
    assert (result.ok, [failure.store for failure in result.failures]) == (True, ["there"])
    pair.fault.gate.set()
    pair.router.retry()
    assert pair.contents("tea") == [[], []]


def test_a_store_that_still_hangs_is_not_waited_for_again(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(patience=0.3)
    pair.fault.gate.clear()
    pair.router.remember(EPISODIC, "first tea")
    results = [pair.router.remember(EPISODIC, f"tea {number}") for number in range(20)]
    assert all("still" in result.detail for result in results)
    pair.fault.gate.set()
    while pair.router.remember(EPISODIC, "last tea").failures:
        time.sleep(0.01)
    pair.router.retry()
    assert pair.owed == []
    contents = pair.contents("tea")
    assert contents[0] == contents[1]


def test_a_write_that_comes_too_late_everywhere_is_taken_back(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(patience=0.2)
    with closing(sqlite3.connect(pair.here.label)) as other:
        other.execute("BEGIN IMMEDIATE")
        pair.fault.is_down = True
        with pytest.raises(NoStoreAnswered):
            pair.router.remember(EPISODIC, "green tea")
        other.execute("ROLLBACK")
    pair.fault.is_down = False
    while not recalled(pair.here, "tea"):
        time.sleep(0.01)
    assert pair.router.recall(EPISODIC, "tea").hits == ()
    while pair.router.retry().owed:
        time.sleep(0.01)
    assert pair.contents("tea") == [[], []]


def test_a_locked_file_is_reported_and_the_forget_finished_later(tmp_path: Path) -> None:
    paths = {"here": tmp_path / "a.db", "there": tmp_path / "b.db"}
    with Router.open(paths, create=True, debts=tmp_path / "owed", patience_seconds=0.3, busy_seconds=5) as router:
        while router.remember(EPISODIC, "opens both").failures:
            router.retry()
        memory_id = router.remember(EPISODIC, "green tea").ids[0]
        router.retry()
        with closing(sqlite3.connect(paths["there"])) as other:
            other.execute("BEGIN IMMEDIATE")
            result = router.forget(EPISODIC, [memory_id])
            assert [(failure.store, failure.is_owed) for failure in result.failures] == [("there", True)]
            other.execute("ROLLBACK")
        while router.retry().owed:
            time.sleep(0.01)
        assert router.recall(EPISODIC, "green").hits == ()
    with MemoryStore.open(paths["there"], create=False) as there:
        assert recalled(there, "green") == []


def test_calls_of_a_lane_are_made_in_order_and_only_if_somebody_waits() -> None:
    lane, gate, made = Lane("test"), threading.Event(), []
    first = lane.submit(lambda: gate.wait(5))
    second, third = lane.submit(lambda: made.append(2)), lane.submit(lambda: made.append(3))
    lane.abandon(second)
    lane.abandon(first)
    while not first.running():
        time.sleep(0.001)
    assert lane.is_stuck
    gate.set()
    third.result(5)
    assert made == [3]
    assert not lane.is_stuck
    assert lane.close(5)


# Stores that cannot be opened


def test_a_store_that_cannot_be_opened_is_tried_again_each_time(tmp_path: Path) -> None:
    wrong = tmp_path / "b.db"
    wrong.write_text("this is no store of ours, and stays as it is")
    with Router.open({"here": tmp_path / "a.db", "there": wrong}, create=True, debts=tmp_path / "owed") as router:
        result = router.remember(EPISODIC, "green tea")
        assert (result.answered, [failure.store for failure in result.failures]) == (("here",), ["there"])
        assert wrong.read_text().startswith("this is no store")
        wrong.unlink()
        MemoryStore.open(wrong).close()
        assert len(router.retry().settled) == 1
    with MemoryStore.open(wrong, create=False) as there:
        assert recalled(there, "tea") == ["green tea"]


def test_what_is_owed_in_memory_only_is_told_as_that(tmp_path: Path) -> None:
    """Another router would recall from the store that was down what this one has forgotten."""
    paths = {"here": tmp_path / "a.db", "there": tmp_path / "b.db"}
    with Router.open(paths, create=True) as router:
        first, second = (router.remember(EPISODIC, f"{number} tea").ids[0] for number in ("one", "two"))
    (tmp_path / "b.db").rename(tmp_path / "hidden.db")
    with Router.open(paths) as router:
        for result in (
            router.remember(EPISODIC, "three teas"),
            router.expire(EPISODIC, [second], ttl_seconds=100),
            router.forget(EPISODIC, [first]),
        ):
            assert [(failure.is_owed, failure.outlasts) for failure in result.failures] == [(True, False)]
            assert "in memory only" in result.detail
        assert "in memory only" in router.retry().failures[0].text
    with Router.open(paths, debts=tmp_path / "owed") as router:
        result = router.forget(EPISODIC, [second])
        assert [(failure.is_owed, failure.outlasts) for failure in result.failures] == [(True, True)]
        assert "memory only" not in result.detail


def test_debts_that_were_emptied_are_not_taken_for_none(tmp_path: Path) -> None:
    paths, debts = {"here": tmp_path / "a.db", "there": tmp_path / "b.db"}, tmp_path / "owed"
    with Router.open(paths, create=True, debts=debts) as router:
        (memory_id,) = router.remember(EPISODIC, "likes tea").ids
    (tmp_path / "b.db").rename(tmp_path / "hidden.db")
    with Router.open(paths, debts=debts) as router:
        assert router.forget(EPISODIC, [memory_id]).failures[0].is_owed
    (tmp_path / "hidden.db").rename(tmp_path / "b.db")
    debts.write_bytes(b"")
    with pytest.raises(StoreUnreadable, match="empty"):
        Router.open(paths, debts=debts)
    assert debts.read_bytes() == b""


def test_new_file_of_debts_appears_whole_and_is_the_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from melete.wire.routing import debts

    monkeypatch.setattr(debts, "_SCHEMA", "this is no SQL")
    with pytest.raises(CouldNotTell, match="owed"):
        Debts(tmp_path / "owed")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    Debts(tmp_path / "owed")
    assert [(each.name, each.stat().st_mode & 0o777) for each in tmp_path.iterdir()] == [("owed", 0o600)]


def test_a_store_that_is_missing_is_owed_what_was_forgotten(tmp_path: Path) -> None:
    paths, debts = {"here": tmp_path / "a.db", "there": tmp_path / "b.db"}, tmp_path / "owed"
    with Router.open(paths, create=True, debts=debts) as router:
        memory_id = router.remember(EPISODIC, "green tea").ids[0]
    away = tmp_path / "away.db"
    paths["there"].rename(away)
    with Router.open(paths, debts=debts) as router:
        result = router.forget(EPISODIC, [memory_id])
        assert [(failure.store, failure.is_owed) for failure in result.failures] == [("there", True)]
        assert [debt.store for debt in router.retry().owed] == ["there"]
        assert not paths["there"].exists()
        away.rename(paths["there"])
        assert router.recall(EPISODIC, "tea").hits == ()
        assert router.retry().owed == ()
    with MemoryStore.open(paths["there"], create=False) as there:
        assert recalled(there, "tea") == []
        assert there.count() == 0


def test_a_server_that_refuses_connections_is_reported_and_served_later(postgres: Server, tmp_path: Path) -> None:
    with postgres.new_database() as name:
        places = {"here": str(tmp_path / "a.db"), "server": postgres.url(name)}
        with Router.open(places, create=True, debts=tmp_path / "owed") as router:
            memory_id = router.remember(EPISODIC, "green tea").ids[0]
            with postgres.connect() as admin:
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")  # type: ignore[arg-type]
                admin.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,)
                )
                results = [router.recall(EPISODIC, "tea"), router.forget(EPISODIC, [memory_id])]
                for result in results:
                    assert result.ok
                    assert [failure.store for failure in result.failures] == ["server"]
                    assert postgres.password not in result.detail
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")  # type: ignore[arg-type]
            assert router.recall(EPISODIC, "tea").hits == ()
            assert router.retry().owed == ()
        with MemoryStore.open(postgres.url(name), create=False) as server:
            assert recalled(server, "tea") == []


@pytest.mark.parametrize("names", [[], [""], [" a"], ["a\n"], ["a" * 65], ["\ud800"], [1]])
def test_other_names_are_refused(names: list[Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        Router.open(dict.fromkeys(names, tmp_path / "a.db"))
    assert caught.value.field == "stores"


@pytest.mark.parametrize("patience", [0, -1, 3601, True, "1", float("nan")])
def test_other_patience_is_refused(patience: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        Router.open({"a": tmp_path / "a.db"}, patience_seconds=patience)


# What is owed, on disk


def test_debts_outlive_the_router_and_hold_no_content(tmp_path: Path) -> None:
    clock, fault = Clock(), Fault()
    here, there = (open_store(f"sqlite:///{tmp_path}/{n}.db", c) for n, c in (("a", clock), ("b", fault)))
    stores = {"here": here, "there": there}
    path = tmp_path / "owed"
    with Router(stores, debts=path, clock=clock) as router:
        ids = [router.remember(EPISODIC, f"marigold {n}").ids[0] for n in range(3)]
        fault.is_down = True
        router.remember(EPISODIC, "marigold 4", tags=["cornflower"], metadata={"a": "dandelion"})
        router.forget(EPISODIC, ids[:1])
        router.merge(EPISODIC, ids[1:], tags=["cornflower"], metadata={"a": "dandelion"})
        owed = router.owed()
    assert len(owed) == 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for word in (b"marigold", b"cornflower", b"dandelion"):
        assert word not in path.read_bytes()
    fault.is_down = False
    with Router(stores, debts=path, clock=clock) as router:
        assert router.owed() == owed
        assert router.retry().owed == ()
        assert sorted(recalled(there, "marigold")) == ["marigold 1\nmarigold 2", "marigold 4"]
    here.close()
    there.close()


def test_debts_to_a_store_that_is_not_here_stay(tmp_path: Path) -> None:
    debts = Debts(tmp_path / "owed")
    debts.note(Order(Operation.FORGET, "default", EPISODIC, (UNKNOWN,), 1), ["elsewhere"], intended=False)
    with Router.open({"here": tmp_path / "a.db"}, debts=tmp_path / "owed") as router:
        assert [debt.store for debt in router.retry().owed] == ["elsewhere"]


def test_a_merge_that_never_happened_is_dropped_and_hides_nothing(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    ids = tuple(pair.router.remember(EPISODIC, f"tea {number}").ids[0] for number in range(2))
    order = Order(Operation.MERGE, "default", EPISODIC, ids, 1, into=UNKNOWN)
    pair.router._debts.note(order, ["here", "there"], intended=True)
    assert len(pair.router.recall(EPISODIC, "tea").hits) == 2
    assert pair.router.retry().owed == ()
    assert len(pair.router.recall(EPISODIC, "tea").hits) == 2


@pytest.mark.parametrize("swept", [True, False])
def test_sources_end_where_a_merge_was_missed_until_its_result_had_ended(
    make_pair: Callable[..., Pair], swept: bool
) -> None:
    pair = make_pair()
    ids = [pair.router.remember(EPISODIC, f"tea {number}").ids[0] for number in range(2)]
    pair.stop()
    (merged,) = pair.router.merge(EPISODIC, ids, ttl_seconds=10).ids
    pair.move(10)
    if swept:
        pair.here.sweep()
    pair.start()
    assert pair.router.recall(EPISODIC, "tea").hits == ()
    assert pair.router.retry().owed == ()
    assert pair.contents("tea") == [[], []]
    with pytest.raises(UnknownMemory):
        pair.there.show(merged)


def test_a_merge_that_waits_for_approval_is_finished_or_dropped(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    ids = [pair.router.remember(SEMANTIC, f"tea {number}").ids[0] for number in range(4)]
    pair.here._core.approval = Queue()
    pair.stop()
    approved, rejected = (pair.router.merge(SEMANTIC, some).ids[0] for some in (ids[:2], ids[2:]))
    assert len(pair.router.recall(SEMANTIC, "tea").hits) == 4
    pair.here.approve(approved, "ada")
    pair.here.reject(rejected, "ada")
    pair.start()
    assert pair.router.retry().owed == ()
    assert pair.contents("tea", SEMANTIC) == [["tea 0\ntea 1", "tea 2", "tea 3"]] * 2
    assert pair.there.show(approved).state is MemoryState.ACTIVE


def test_nothing_new_about_a_memory_is_done_before_what_is_owed_about_it(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    ids = [pair.router.remember(EPISODIC, f"tea {number}").ids[0] for number in range(3)]
    pair.stop()
    pair.router.expire(EPISODIC, ids[:1], ttl_seconds=50)
    pair.start()
    (merged,) = pair.router.merge(EPISODIC, ids[:2]).ids
    assert pair.owed == []
    assert [store.show(merged).expires_at for store in (pair.here, pair.there)] == [pair.clock.now + 50] * 2
    pair.stop()
    (again,) = pair.router.merge(EPISODIC, [merged, ids[2]]).ids
    pair.start()
    pair.here._core.clock = Fault(is_down=True)
    for ids_of_sources in ([merged], [ids[2]]):
        with pytest.raises(MemoryMerged) as caught:
            pair.router.forget(EPISODIC, ids_of_sources)
        assert caught.value.merged_into == again
    with pytest.raises(NoStoreAnswered, match="owed"):
        pair.router.expire(EPISODIC, [merged])


@pytest.mark.parametrize(
    "content", [b"not a database at all", b"SQLite format 3\0" + bytes(100)], ids=["text", "database"]
)
def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "owed"
    path.write_bytes(content)
    with pytest.raises(StoreUnreadable):
        Debts(path)
    assert path.read_bytes() == content


def test_a_link_a_folder_and_a_newer_file_are_refused(tmp_path: Path) -> None:
    Debts(tmp_path / "owed")
    (tmp_path / "link").symlink_to(tmp_path / "owed")
    (tmp_path / "folder").mkdir()
    with closing(sqlite3.connect(tmp_path / "owed")) as db:
        db.execute("PRAGMA user_version = 99")
    for name in ("link", "folder", "owed"):
        with pytest.raises(MeleteError):
            Debts(tmp_path / name)


def test_debts_without_a_file_are_kept_as_long_as_the_router(make_pair: Callable[..., Pair], tmp_path: Path) -> None:
    fault = Fault()
    here, there = open_store(f"sqlite:///{tmp_path}/a.db"), open_store(f"sqlite:///{tmp_path}/b.db", fault)
    with here, there, Router({"here": here, "there": there}) as router:
        memory_id = router.remember(EPISODIC, "tea").ids[0]
        fault.is_down = True
        assert router.forget(EPISODIC, [memory_id]).failures[0].is_owed
        fault.is_down = False
        assert len(router.retry().settled) == 1
        assert recalled(there, "tea") == []


KILLED = """
import os, signal, sys
from melete.wire.envelope import MemoryType
from melete.wire.router import Router
from melete.wire.store import MemoryStore

def killing(record, connection):
    if record.entry.action.value == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

here = MemoryStore.open(sys.argv[1] + "/a.db")
there = MemoryStore.open(sys.argv[1] + "/b.db", on_write=killing)
router = Router({"here": here, "there": there}, debts=sys.argv[1] + "/owed")
ids = sys.argv[4:]
getattr(router, sys.argv[3])(MemoryType.EPISODIC, ids)
"""


@pytest.mark.parametrize("action", ["forget", "expire", "merge"])
def test_a_router_that_is_killed_half_way_leaves_nothing_half_done(tmp_path: Path, action: str) -> None:
    paths = {"here": tmp_path / "a.db", "there": tmp_path / "b.db"}
    with Router.open(paths, create=True, debts=tmp_path / "owed") as router:
        ids = [router.remember(EPISODIC, f"tea {number}").ids[0] for number in range(2)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), "", action, *ids],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == -signal.SIGKILL
    with Router.open(paths, debts=tmp_path / "owed") as router:
        assert {debt.store for debt in router.owed()} >= {"there"}
        assert router.retry().owed == ()
    with MemoryStore.open(paths["here"]) as here, MemoryStore.open(paths["there"]) as there:
        for store in (here, there):
            store.verify_audit()
        contents = [sorted(recalled(store, "tea")) for store in (here, there)]
    assert contents[0] == contents[1]
    if action != "merge":
        assert contents[0] == []


# All of it at random


def test_whatever_fails_stores_agree_once_everything_owed_is_done(make_pair: Callable[..., Pair]) -> None:
    draw = random.Random(7)
    pair = make_pair()
    known: list[str] = []
    forgotten: set[str] = set()
    for step in range(60):
        pair.fault.is_down = draw.random() < 0.4
        act = draw.choice(["remember", "remember", "forget", "merge", "expire", "retry"])
        if act == "remember":
            known += pair.router.remember(EPISODIC, f"tea {step}").ids
        elif act == "retry":
            pair.router.retry()
        elif len(known) >= 2:
            chosen = draw.sample(known, 2)
            try:
                if act == "forget":
                    forgotten |= set(pair.router.forget(EPISODIC, chosen).ids)
                elif act == "expire":
                    pair.router.expire(EPISODIC, chosen, ttl_seconds=draw.choice([0, 1000]))
                else:
                    known += pair.router.merge(EPISODIC, chosen).ids
            except MeleteError as error:
                assert isinstance(error, UnknownMemory | MemoryMerged | NoStoreAnswered)  # noqa: PT017
        shown = {one.id for one in pair.router.recall(EPISODIC, "tea", top_k=100).hits}
        assert not shown & forgotten
    pair.fault.is_down = False
    assert pair.router.retry().owed == ()
    states = []
    for store in (pair.here, pair.there):
        store.verify_audit()
        found = {one.id: one.content for one in store.recall(EPISODIC, "tea", top_k=1000).hits}
        states.append(found)
    assert states[0] == states[1]
    assert not states[0].keys() & forgotten
