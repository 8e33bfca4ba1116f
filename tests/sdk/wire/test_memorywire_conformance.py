"""The sixteen scenarios that the `memorywire` package's source distribution asks of every store, in our own words.

Each names what is remembered, what is asked, and what has to hold. A seed may be written some days ago: the store's
clock is turned back for it. One scenario asks for something near in meaning that shares no word with the query; it runs
where the store has an embedder, as the package's own runs do, and the others run with words alone too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from memorywire import models
from memorywire.store import Capability, MemoryStore

from melete.wire.adapters.memorywire import MemorywireStore

from .samples import Clock, open_store

AGENT, ALICE, BOB = "agent-a", "alice", "bob"
DAY: Final = 86_400
Theirs = MemorywireStore


class Letters:
    """An embedder for tests: texts that share parts of words are near."""

    dimensions = 64

    def embed(self, texts: Any) -> list[list[float]]:
        return [self._row(text.lower()) for text in texts]

    def _row(self, text: str) -> list[float]:
        row = [0.0] * self.dimensions
        for start in range(len(text) - 2):
            row[sum(map(ord, text[start : start + 3])) % self.dimensions] += 1.0
        return row


@dataclass(frozen=True)
class Seed:
    content: str
    kind: str = "semantic"
    user: str = ALICE
    days_ago: int = 0


@dataclass(frozen=True)
class Scenario:
    """`ask` gets the store and the ids of the seeds; `holds` judges what came of it."""

    name: str
    says: str
    seeds: tuple[Seed, ...]
    ask: Callable[[Theirs, list[str]], Awaitable[Any]]
    holds: Callable[[Any], bool]
    raises: type[Exception] | None = None
    needs_meaning: bool = False


def texts(found: models.RecallResponse) -> list[str]:
    return [str(hit.content) for hit in found.results]


def recall(query: str, k: int = 5, **members: Any) -> Callable[[Theirs, list[str]], Awaitable[models.RecallResponse]]:
    request = models.RecallRequest(agent_id=AGENT, user_id=ALICE, query=query, k=k, **members)
    return lambda store, _: store.recall(request)


async def forget_all_then_recall(store: Theirs, ids: list[str]) -> Any:
    await store.forget(models.ForgetRequest(agent_id=AGENT, ids=ids))
    return await recall("sky water tree")(store, ids)


async def expire_old_then_recall(store: Theirs, ids: list[str]) -> Any:
    policy = models.ExpirePolicy(older_than_days=180)
    await store.expire(models.ExpireRequest(agent_id=AGENT, policy=policy))
    return await recall("ancient fresh fact")(store, ids)


async def merge_then_recall(store: Theirs, ids: list[str]) -> Any:
    strategy = models.MergeStrategy.KEEP_CANONICAL
    request = models.MergeRequest(agent_id=AGENT, canonical=ids[0], duplicates=ids[1:], strategy=strategy)
    await store.merge(request)
    return await recall("duplicate fact", 10)(store, ids)


async def remember_for_approval(store: Theirs, ids: list[str]) -> Any:
    content = "High-risk fact pending review"
    request = models.RememberRequest(
        agent_id=AGENT, user_id=ALICE, type="semantic", content=content, approval_required=True
    )
    return await store.remember(request), await recall(content)(store, ids)


async def ready(value: Any) -> Any:
    return value


SCENARIOS: Final = (
    Scenario(
        "a fact is recalled by other words around its own",
        "basic_remember_recall",
        (Seed("The capital of France is Paris."),),
        recall("capital France", 3),
        lambda found: any("Paris" in text for text in texts(found)),
    ),
    Scenario(
        "a user's recall finds that user's memories alone",
        "remember_recall_by_user_filter",
        (Seed("Alice's favorite color is blue."), Seed("Bob's favorite color is purple.", user=BOB)),
        recall("favorite color"),
        lambda found: [("blue" in text, "purple" in text) for text in texts(found)] == [(True, False)],
    ),
    Scenario(
        "a recall of one type finds that type alone",
        "type_filter",
        (Seed("Tax season is in April."), Seed("Had a meeting about taxes last Tuesday.", "episodic")),
        recall("meeting taxes", types=["semantic"]),
        lambda found: bool(found.results) and {hit.type.value for hit in found.results} == {"semantic"},
        needs_meaning=True,
    ),
    Scenario(
        "what was forgotten by its id is recalled no more",
        "forget_by_ids",
        (Seed("The sky is blue."), Seed("Water is wet."), Seed("Trees are green.")),
        forget_all_then_recall,
        lambda found: texts(found) == [],
    ),
    Scenario(
        "forgetting without ids and without a filter is refused",
        "forget_no_scope_raises",
        (),
        lambda store, _: store.forget(models.ForgetRequest(agent_id=AGENT)),
        lambda error: "filter" in str(error),
        raises=ValueError,
    ),
    Scenario(
        "expiring without a policy is refused",
        "expire_empty_policy_raises",
        (),
        lambda store, _: store.expire(models.ExpireRequest(agent_id=AGENT)),
        lambda error: "policy" in str(error),
        raises=ValueError,
    ),
    Scenario(
        "expiring by a policy that says nothing is refused",
        "expire_empty_policy_object_raises",
        (),
        lambda store, _: store.expire(models.ExpireRequest(agent_id=AGENT, policy=models.ExpirePolicy())),
        lambda error: "policy" in str(error),
        raises=ValueError,
    ),
    Scenario(
        "expiring by age takes what is older and nothing else",
        "expire_by_age",
        (Seed("An ancient fact from a year ago.", days_ago=365), Seed("A fresh fact from today.")),
        expire_old_then_recall,
        lambda found: texts(found) == ["A fresh fact from today."],
    ),
    Scenario(
        "after a merge that keeps one, one is left",
        "merge_keep_canonical",
        tuple(Seed(f"Paris is the duplicate fact {number}.") for number in ("one", "two", "three")),
        merge_then_recall,
        lambda found: texts(found) == ["Paris is the duplicate fact one."],
    ),
    Scenario(
        "what needs approval waits, and is not recalled",
        "approval_required_pending",
        (),
        remember_for_approval,
        lambda told: told[0].pending_approval is True and texts(told[1]) == [],
    ),
    Scenario(
        "a store says what it can do in known words",
        "capabilities_declared",
        (),
        lambda store, _: ready(store.capabilities),
        lambda found: isinstance(found, set) and bool(found) and found <= KNOWN,
    ),
    Scenario(
        "a store says how it is",
        "health_returns_status",
        (),
        lambda store, _: store.health(),
        lambda told: isinstance(told, dict) and told["status"] == "ok",
    ),
    Scenario(
        "a store is one by the package's own protocol",
        "isinstance_protocol",
        (),
        lambda store, _: ready(store),
        lambda store: isinstance(store, MemoryStore),
    ),
    Scenario(
        "a hit has a score, a type, content and where it is from",
        "recall_returns_score_metadata",
        (Seed("The sun shines bright over the field."),),
        recall("sun bright shines", 3),
        lambda found: (
            [(type(hit.score), hit.type, type(hit.content), bool(hit.source_store)) for hit in found.results[:1]]
            == [(float, models.MemoryType.SEMANTIC, str, True)]
        ),
    ),
    Scenario(
        "a recall of what is fresh leaves out what is older",
        "fresher_than_days_filter",
        (Seed("ancient news from a year ago.", days_ago=365), Seed("fresh news from today.")),
        recall("ancient news fresh news", fresher_than_days=30),
        lambda found: texts(found) == ["fresh news from today."],
    ),
    Scenario(
        "of many that were remembered, some are recalled",
        "multi_remember_then_recall",
        tuple(Seed(f"city fact number {number:02d} about somewhere.") for number in range(10)),
        recall("city fact", 10),
        lambda found: len(found.results) == 10,
    ),
)
KNOWN: Final = {value for name, value in vars(Capability).items() if name.isupper()}


@pytest.fixture(params=["words", "meaning"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Theirs, Clock, bool]]:
    clock, has_meaning = Clock(), request.param == "meaning"
    with open_store(f"sqlite:///{tmp_path}/memories.db", clock, embedder=Letters() if has_meaning else None) as store:
        yield MemorywireStore(store), clock, has_meaning
        store.verify_audit()


def test_there_are_sixteen() -> None:
    assert len({scenario.says for scenario in SCENARIOS}) == len({one.name for one in SCENARIOS}) == 16


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.says)
def test_scenario_holds(opened: tuple[Theirs, Clock, bool], scenario: Scenario) -> None:
    store, clock, has_meaning = opened

    async def play() -> Any:
        ids = []
        today = clock.now
        for seed in scenario.seeds:
            clock.now = today - seed.days_ago * DAY
            request = models.RememberRequest(agent_id=AGENT, user_id=seed.user, type=seed.kind, content=seed.content)
            ids.append((await store.remember(request)).id)
            clock.now = today
        return await scenario.ask(store, ids)

    if scenario.raises is not None:
        with pytest.raises(scenario.raises) as caught:
            asyncio.run(play())
        assert scenario.holds(caught.value)
        return
    found = asyncio.run(play())
    if scenario.needs_meaning and not has_meaning:
        assert found.results == []  # nothing shares a word with the query
        return
    assert scenario.holds(found)
