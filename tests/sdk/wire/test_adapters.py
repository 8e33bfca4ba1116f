from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from memorywire import Memory as MemorywireFacade
from memorywire import models
from memorywire.router import MemoryRouter

from melete.errors import ConfigurationError, InvalidInput, UnknownProfile
from melete.memory.profiles import ProfileRegistry
from melete.memory.space import GENESIS
from melete.memory.witness import Witness, verify_witness
from melete.primitives import Bytes32
from melete.wire.adapters import memorywire
from melete.wire.adapters.cards import (
    CARD_PROFILES,
    EPISODIC,
    POLICY,
    PROFILE_OF,
    TEXT,
    Card,
    CardKind,
    ObservedCard,
    build_witness,
    read_witness,
)
from melete.wire.adapters.memorywire import Kept, MemorywireStore, to_hit, to_memory_type, to_record, to_remember
from melete.wire.approval import CallableApproval, Queue
from melete.wire.envelope import MemoryType
from melete.wire.errors import OtherMemoryType
from melete.wire.store import MemoryStore
from melete.wire.values import MemoryState

from . import samples
from .samples import Clock, open_store, remember

DELTA_SALT, LOCATOR_SALT, THIRD_SALT = (Bytes32(bytes([byte]) * 32) for byte in (0xAA, 0xBB, 0xCC))
AGENT = "agent-a"
NOBODY = "0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10"
DAY = 86_400


# Cards: the fixed vector, whose figures are worked out here from the text of the formats alone

CARD = Card("d1", CardKind.DECISION, "no PII off-device")
PAYLOAD = (
    b'{"content":{"cardKind":"decision","rule":"no PII off-device","scope":"agent"},'
    b'"observedAt":100,"op":"upsert","resourceId":"d1"}'
)
PROFILE_IDS = {
    "policy": "5065b4861b18fa565e9582dcb91dbc9d0de545162a63e59da710aba373decbf9",
    "text": "d9670376cf3ba57abb92989eeb0ff8a76d48666287a9091171d3c9bc9d5af434",
    "episodic": "ac4a313d81b72c5de24109f69fd82139cf5b3df04391fb8e40ad8fde817ed1be",
}
DELTA_COMMITMENT = "e74463606d3a83730485425a4e40068a5a7b4f15ad329a615dbe1c0841500d7d"
LOCATOR_COMMITMENT = "155461060137fa1052a8aa0899e9b227b73a7b78ccd9a07ad51a61b87a2f22aa"


def make(card: Card, observed_at: int = 100, **options: Any) -> Witness:
    return build_witness(card, observed_at, delta_salt=DELTA_SALT, locator_salt=LOCATOR_SALT, **options)


def test_card_is_committed_to_as_the_fixed_vector_says() -> None:
    witness = make(CARD)
    assert (witness.payload, witness.locator) == (PAYLOAD, "awareness://card/d1")
    assert witness.profile_id.hex() == PROFILE_IDS["policy"]
    delta, provenance, locator = witness.compute_commitments()
    assert (delta.hex(), provenance.hex(), locator.hex()) == (DELTA_COMMITMENT, "00" * 32, LOCATOR_COMMITMENT)


def test_fixed_vector_follows_from_the_formats() -> None:
    profile = keccak(b"https://awareness.market/profiles/memory/policy/v1")
    words = [keccak(b"AgentMemoryState.deltaCommitment.v1"), profile, b"\xaa" * 32, keccak(PAYLOAD)]
    assert keccak(b"".join(words)).hex() == DELTA_COMMITMENT
    words = [keccak(b"AgentMemoryState.locatorCommitment.v1"), b"\xbb" * 32, keccak(b"awareness://card/d1")]
    assert keccak(b"".join(words)).hex() == LOCATOR_COMMITMENT
    assert {profile.name.split("/")[-2]: profile.id.hex() for profile in CARD_PROFILES} == PROFILE_IDS


CARDS = [
    (CARD, POLICY, {"rule": "no PII off-device", "scope": "agent", "cardKind": "decision"}),
    (
        Card("i:1", CardKind.INSIGHT, "RRF", title="Retrieval", tags=("a", "b")),
        TEXT,
        {"text": "RRF", "title": "Retrieval", "cardKind": "insight", "tags": ["a", "b"]},
    ),
    (
        Card("s1", CardKind.SOLUTION, "Turn it off.", tags=()),
        TEXT,
        {"text": "Turn it off.", "cardKind": "solution", "tags": []},
    ),
    (Card("w1", CardKind.WORKFLOW, "1\n2"), TEXT, {"text": "1\n2", "cardKind": "workflow"}),
    (
        Card("m1", CardKind.MEMORY, "dark mode", created_at=1700, subject="ada"),
        EPISODIC,
        {"event": "dark mode", "occurredAt": 1700, "cardKind": "memory", "subject": "ada"},
    ),
    (Card("t1", CardKind.TASK, "ship", created_at=0), EPISODIC, {"event": "ship", "occurredAt": 0, "cardKind": "task"}),
]


@pytest.mark.parametrize(("card", "profile", "content"), CARDS, ids=[card.kind for card, _, _ in CARDS])
def test_each_kind_has_its_profile_and_content_and_comes_back(
    card: Card, profile: Any, content: dict[str, Any]
) -> None:
    witness = make(card, 999)
    assert PROFILE_OF[card.kind] is profile
    assert json.loads(witness.payload) == {
        "op": "upsert",
        "resourceId": card.id,
        "observedAt": 999,
        "content": content,
    }
    assert read_witness(witness) == ObservedCard(card, 999)
    assert verify_witness(witness.build_delta(Bytes32(b"\x11" * 32), GENESIS), witness)
    decoded = ProfileRegistry(CARD_PROFILES).decode(witness.profile_id, witness.payload)
    assert decoded == ObservedCard(card, 999)
    Draft202012Validator(profile.schema).validate(profile.to_json(decoded))


def test_profiles_of_cards_are_not_there_unless_registered() -> None:
    with pytest.raises(UnknownProfile):
        ProfileRegistry().decode(TEXT.id, make(CARDS[3][0]).payload)


@pytest.mark.parametrize(
    ("times", "expected"), [({}, 100), ({"updated_at": 7}, 7), ({"created_at": 5, "updated_at": 7}, 5)]
)
def test_an_episode_occurred_when_it_was_first_known(times: dict[str, int], expected: int) -> None:
    card = Card("m1", CardKind.MEMORY, "dark mode", **times)
    assert json.loads(make(card).payload)["content"]["occurredAt"] == expected
    assert read_witness(make(card)).card == replace(card, created_at=expected, updated_at=None)


@pytest.mark.parametrize(
    ("card", "member"),
    [
        (replace(CARD, title="x"), "title"),
        (replace(CARD, tags=()), "tags"),
        (replace(CARD, subject="x"), "subject"),
        (Card("i", CardKind.INSIGHT, "x", subject="ada"), "subject"),
        (Card("m", CardKind.MEMORY, "x", tags=("a",)), "tags"),
    ],
)
def test_what_a_profile_has_no_place_for_is_lost_only_when_told(card: Card, member: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make(card)
    assert caught.value.field == member
    found = read_witness(make(card, allow_loss=True)).card
    assert getattr(found, member) is None


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(
    st.sampled_from(list(CardKind)),
    texts,
    st.none() | texts,
    st.none() | st.lists(texts, max_size=3).map(tuple),
    st.none() | texts,
    st.integers(0, 2**53 - 1),
)
def test_any_card_comes_back_as_its_payload_states_it(
    kind: CardKind, content: str, title: str | None, tags: Any, subject: str | None, at: int
) -> None:
    card = Card("x", kind, content, title=title, tags=tags, subject=subject)
    witness = make(card, at, allow_loss=True)
    observed = read_witness(witness)
    assert (observed.observed_at, observed.card.kind, observed.card.content) == (at, kind, content)
    assert make(observed.card, at).payload == witness.payload


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("id", ""),
        ("id", "a b"),
        ("id", "a\n"),
        ("id", "\ud800"),
        ("id", "x" * 1025),
        ("id", 1),
        ("kind", "law"),
        ("kind", None),
        ("content", ""),
        ("content", {"a": 1}),
        ("content", "\udfff"),
        ("title", 1),
        ("tags", "ab"),
        ("tags", [1]),
        ("subject", b"x"),
        ("created_at", -1),
        ("created_at", 1.0),
        ("created_at", True),
        ("updated_at", 2**53),
    ],
)
def test_other_members_of_a_card_are_refused_by_name(member: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Card(**{"id": "x", "kind": CardKind.TASK, "content": "secret plan", member: value})
    assert caught.value.field == member
    assert "secret" not in str(caught.value)


def test_cards_show_no_content() -> None:
    assert "PII" not in repr(CARD) + repr(make(CARD)) + repr(ObservedCard(CARD, 1))


def changed(**members: Any) -> bytes:
    document = {**json.loads(PAYLOAD), **members}
    kept = {name: value for name, value in document.items() if value is not ...}
    return json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"1",
        b'"x"',
        b"\xff",
        PAYLOAD + b" ",
        PAYLOAD.replace(b'"op":"upsert"', b'"op":"delete"'),
        changed(extra=1),
        changed(observedAt=...),
        changed(observedAt=1.5),
        changed(observedAt="1"),
        changed(resourceId="a b"),
        changed(content=...),
        changed(content=[]),
        changed(content="x"),
        changed(content={}),
        changed(content={"rule": "x", "scope": "agent", "cardKind": "insight"}),
        changed(content={"rule": "x", "scope": "tool", "cardKind": "decision"}),
        changed(content={"rule": "x", "scope": "agent", "cardKind": ["decision"]}),
        changed(content={"rule": "x", "scope": "agent", "cardKind": "decision", "title": "x"}),
        changed(content={"rule": "", "scope": "agent", "cardKind": "decision"}),
    ],
)
def test_payloads_that_no_card_has_are_refused(payload: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_witness(replace(make(CARD), payload=payload))
    assert caught.value.field == "payload"
    assert "PII" not in str(caught.value)


def test_other_profiles_and_locators_are_refused() -> None:
    for change, field in (
        ({"profile_id": TEXT.id}, "payload"),
        ({"profile_id": THIRD_SALT}, "profileId"),
        ({"locator": "awareness://card/d2"}, "locator"),
        ({"locator": "ipfs://x"}, "locator"),
    ):
        with pytest.raises(InvalidInput) as caught:
            read_witness(replace(make(CARD), **change))
        assert caught.value.field == field
    assert read_witness(replace(make(CARD), locator=None, locator_salt=None)).card == CARD


@pytest.mark.parametrize("observed_at", [-1, 1.0, True, 2**53, None])
def test_other_times_are_refused(observed_at: Any) -> None:
    with pytest.raises(InvalidInput):
        make(CARD, observed_at)


def test_provenance_goes_with_a_card() -> None:
    witness = make(CARD, provenance=b"because", provenance_salt=THIRD_SALT)
    assert witness.compute_commitments()[1] != Bytes32(bytes(32))
    assert read_witness(witness).card == CARD


# memorywire: models


def request(**members: Any) -> models.RememberRequest:
    return models.RememberRequest(**{"agent_id": AGENT, "type": "semantic", "content": "tea is green", **members})


@pytest.fixture
def ours(tmp_path: Path, clock: Clock) -> Iterator[MemoryStore]:
    with open_store(f"sqlite:///{tmp_path}/memories.db", clock) as store:
        yield store
        store.verify_audit()


@pytest.fixture
def theirs(ours: MemoryStore) -> MemorywireStore:
    return MemorywireStore(ours)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def kept(theirs: MemorywireStore, **members: Any) -> str:
    return str(run(theirs.remember(request(**members))).id)


def recalled(theirs: MemorywireStore, query: str = "tea", **members: Any) -> list[models.RecallHit]:
    found = run(theirs.recall(models.RecallRequest(agent_id=AGENT, query=query, **members)))
    return list(found.results)


def test_every_member_of_a_request_comes_back(theirs: MemorywireStore, ours: MemoryStore, clock: Clock) -> None:
    metadata: dict[str, Any] = {"entity_name": "tea", "memorywire": {"user_id": "mallory"}, "n": [1, None]}
    members = {"user_id": "alice", "confidence": 0.5, "source": "user", "metadata": metadata}
    memory_id = kept(theirs, **members, expires_at=(clock.now + 9) * 1000 + 1)
    memory = ours.show(memory_id)
    assert (memory.agent_id, memory.memory_type, memory.tags) == (AGENT, samples.SEMANTIC, ("user:alice",))
    assert memory.expires_at == clock.now + 10
    record = to_record(memory)
    assert isinstance(record, models.SemanticMemory)
    assert {name: getattr(record, name) for name in members} == members
    assert (record.id, record.created_at, record.expires_at) == (memory_id, clock.now * 1000, (clock.now + 10) * 1000)
    (hit,) = recalled(theirs)
    assert (hit.id, hit.content, hit.metadata, hit.created_at) == (
        memory_id,
        "tea is green",
        metadata,
        clock.now * 1000,
    )
    assert (hit.type, hit.source_store, hit.supporting) == (models.MemoryType.SEMANTIC, "melete", [])


def test_memories_of_ours_are_theirs_with_their_own_metadata(theirs: MemorywireStore, ours: MemoryStore) -> None:
    for kind in (samples.SEMANTIC, samples.EPISODIC, samples.PROCEDURAL):
        remember(ours, f"tea {kind}", kind, agent_id=AGENT, metadata={"a": 1})
    remember(ours, "tea at work", samples.WORKING, agent_id=AGENT)
    assert {(hit.content, hit.type.value, str(hit.metadata)) for hit in recalled(theirs)} == {
        (f"tea {kind}", kind, "{'a': 1}") for kind in ("semantic", "episodic", "procedural")
    }
    working = ours.show(ours.recall(samples.WORKING, "tea", agent_id=AGENT).hits[0].id)
    for convert in (to_record, lambda memory: to_hit(memory, 1.0), Kept.of):
        with pytest.raises(InvalidInput, match="working"):
            convert(working)


@pytest.mark.parametrize("kept_member", [1, [], {"user_id": 1, "confidence": True, "metadata": "x", "type": "odd"}])
def test_metadata_that_only_looks_like_theirs_does_no_harm(
    theirs: MemorywireStore, ours: MemoryStore, kept_member: Any
) -> None:
    memory_id = remember(ours, "tea", samples.SEMANTIC, agent_id=AGENT, metadata={"memorywire": kept_member})
    assert [hit.id for hit in recalled(theirs)] == [memory_id]
    assert to_record(ours.show(memory_id)).type is models.MemoryType.SEMANTIC


def test_emotional_memories_are_refused_unless_told_what_they_are(theirs: MemorywireStore, ours: MemoryStore) -> None:
    for call in (
        lambda: run(theirs.remember(request(type="emotional"))),
        lambda: recalled(theirs, types=["emotional"]),
        lambda: to_memory_type("emotional"),
        lambda: to_remember(request(type="emotional"), 1),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert (caught.value.field, caught.value.value) == ("type", "emotional")
    assert ours.audit_head().number == 0
    assert "emotional" not in theirs.capabilities


@pytest.mark.parametrize("kind", [samples.SEMANTIC, samples.EPISODIC, samples.PROCEDURAL])
def test_emotional_memories_are_mapped_as_told_and_come_back(ours: MemoryStore, kind: MemoryType) -> None:
    theirs = MemorywireStore(ours, emotional=kind)
    assert "emotional" in theirs.capabilities
    felt = kept(theirs, type="emotional", content="tea is lovely", user_id="ada")
    plain = kept(theirs, type=kind.value, content="tea is green", user_id="ada")
    assert ours.show(felt).memory_type is kind
    assert isinstance(to_record(ours.show(felt)), models.EmotionalMemory)
    assert [hit.id for hit in recalled(theirs, types=["emotional"])] == [felt]
    assert [hit.id for hit in recalled(theirs, types=[kind.value], user_id="ada")] == [plain]
    assert {hit.id: hit.type.value for hit in recalled(theirs)} == {felt: "emotional", plain: kind.value}
    found = run(theirs.expire(models.ExpireRequest(agent_id=AGENT, policy=models.ExpirePolicy(type="emotional"))))
    assert (found.matched_count, [hit.id for hit in recalled(theirs)]) == (1, [plain])


@pytest.mark.parametrize("kind", ["working", "emotional", "x", 1])
def test_emotional_memories_are_mapped_on_known_types_only(ours: MemoryStore, kind: Any) -> None:
    with pytest.raises(InvalidInput):
        MemorywireStore(ours, emotional=kind)
    with pytest.raises(InvalidInput):
        to_memory_type(kind)


def test_without_the_package_the_adapter_says_what_to_install(
    ours: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "memorywire", None)
    with pytest.raises(ConfigurationError, match="pip install memorywire"):
        MemorywireStore(ours)
    assert memorywire.to_memory_type("semantic") is MemoryType.SEMANTIC


def test_importing_the_adapters_imports_no_package_of_others() -> None:
    script = (
        "import sys, melete.wire.adapters.memorywire, melete.wire.adapters.cards\n"
        "print({'memorywire', 'pydantic', 'sqlalchemy', 'cryptography'} & set(sys.modules))"
    )
    path = next(each for each in sys.path if each.endswith("/sdk"))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    assert done.stdout.strip() == "set()"


# memorywire: the store


@pytest.mark.parametrize("expires_at", [0, 1_800_000_000_000, -5])
def test_an_expiry_that_is_over_is_refused(theirs: MemorywireStore, expires_at: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        kept(theirs, expires_at=expires_at)
    assert caught.value.field == "expires_at"


def test_users_are_told_apart_whatever_they_are_called(theirs: MemorywireStore) -> None:
    users = ["ada", "Ada", "", " ", "x" * 256, "x" * 255 + "y", "user:ada"]
    ids = {user: kept(theirs, user_id=user) for user in users}
    for user in users:
        assert [hit.id for hit in recalled(theirs, user_id=user)] == [ids[user]]
    assert len(recalled(theirs, k=20)) == len(users)


def test_filters_compare_members_and_metadata(theirs: MemorywireStore) -> None:
    first = kept(theirs, source="user", confidence=0.25, metadata={"a": {"b": "x"}, "n": 1})
    second = kept(theirs, type="episodic", user_id="ada", metadata={"n": 2})
    for wanted, expected in (
        ({"source": "user"}, [first]),
        ({"confidence": 0.25}, [first]),
        ({"confidence": 1.0}, [second]),
        ({"type": "episodic"}, [second]),
        ({"user_id": "ada"}, [second]),
        ({"agent_id": AGENT, "a.b": "x"}, [first]),
        ({"n": 2}, [second]),
        ({"n": 3}, []),
        ({"missing": None}, []),
        ({"a.b.c": "x"}, []),
    ):
        assert [hit.id for hit in recalled(theirs, filter=wanted)] == expected


def test_a_filter_looks_further_than_the_first_hits(theirs: MemorywireStore, ours: MemoryStore) -> None:
    wanted = kept(theirs, content="tea " * 3 + "and a lot of other words", metadata={"n": 1})
    with ours.transaction():
        for _ in range(30):
            remember(ours, "tea", samples.SEMANTIC, agent_id=AGENT)
    assert [hit.id for hit in recalled(theirs, k=1, filter={"n": 1})] == [wanted]


def test_fusion_is_by_rank_or_by_the_best_score(theirs: MemorywireStore) -> None:
    kept(theirs)
    kept(theirs, type="episodic")
    by_rank = run(theirs.recall(models.RecallRequest(agent_id=AGENT, query="tea")))
    assert by_rank.fusion_used is models.FusionAlgorithm.RRF
    assert {round(hit.score, 6) for hit in by_rank.results} == {round(1 / 60, 6)}
    for fusion in ("max", "weighted"):
        found = run(theirs.recall(models.RecallRequest(agent_id=AGENT, query="tea", fusion=fusion)))
        assert found.fusion_used.value == fusion
        assert all(hit.score > 0.1 for hit in found.results)
    assert len(recalled(theirs, k=1)) == 1
    assert (by_rank.stores_queried, by_rank.latency_ms >= 0) == (["melete"], True)


def test_forgetting_erases_what_is_there_and_passes_over_what_is_not(
    theirs: MemorywireStore, ours: MemoryStore
) -> None:
    first, second = kept(theirs), kept(theirs, type="episodic")
    other = remember(ours, "tea", agent_id="somebody")
    ids = [first, second, other, NOBODY, "no id", first.upper()]
    found = run(theirs.forget(models.ForgetRequest(agent_id=AGENT, ids=ids)))
    assert (found.forgotten_ids, found.hard_delete, found.stores[0].count) == ([first, second], True, 2)
    assert ours.show(other).content == "tea"
    again = run(theirs.forget(models.ForgetRequest(agent_id=AGENT, ids=ids)))
    assert again.forgotten_ids == []


def test_forgetting_by_filter_and_user(theirs: MemorywireStore) -> None:
    ids = [kept(theirs, user_id=user, metadata={"n": n}) for user in ("ada", "bob") for n in (1, 2)]
    found = run(theirs.forget(models.ForgetRequest(agent_id=AGENT, user_id="ada", filter={"n": 1})))
    assert found.forgotten_ids == ids[:1]
    found = run(theirs.forget(models.ForgetRequest(agent_id=AGENT, ids=[ids[1]], filter={"n": 2})))
    assert set(found.forgotten_ids) == {ids[1], ids[3]}
    assert [hit.id for hit in recalled(theirs)] == [ids[2]]


def merge(theirs: MemorywireStore, canonical: str, duplicates: list[str], strategy: str | None = None) -> Any:
    return run(
        theirs.merge(models.MergeRequest(agent_id=AGENT, canonical=canonical, duplicates=duplicates, strategy=strategy))
    )


def test_contents_are_merged_under_a_new_id(theirs: MemorywireStore, ours: MemoryStore) -> None:
    first = kept(theirs, content="tea", confidence=0.2, metadata={"a": 1, "b": 1}, user_id="ada")
    second = kept(theirs, content="no sugar", confidence=0.9, metadata={"b": 2}, user_id="ada")
    found = merge(theirs, first, [second, first, NOBODY], "merge_content")
    assert (found.merged_count, found.strategy_used.value, found.stores) == (1, "merge_content", ["melete"])
    record = to_record(ours.show(found.canonical))
    assert (record.content, record.metadata, record.confidence) == ("tea\nno sugar", {"a": 1, "b": 2}, 0.9)
    assert [hit.id for hit in recalled(theirs, user_id="ada")] == [found.canonical]


def test_the_highest_confidence_is_kept(theirs: MemorywireStore) -> None:
    ids = [kept(theirs, confidence=confidence) for confidence in (0.1, None, 0.5)]
    found = merge(theirs, ids[0], ids[1:], "keep_highest_confidence")
    assert (found.canonical, found.merged_count) == (ids[1], 2)
    assert [hit.id for hit in recalled(theirs)] == [ids[1]]


def test_memories_are_merged_by_the_name_of_their_entity(theirs: MemorywireStore) -> None:
    first = kept(theirs, metadata={"entity_name": "tea"})
    kept(theirs, metadata={"entity_name": "green tea"})
    assert merge(theirs, "tea", ["green tea", "no such"]).merged_count == 1
    assert [hit.id for hit in recalled(theirs)] == [first]


def test_a_merge_into_nothing_erases_nothing(theirs: MemorywireStore) -> None:
    memory_id = kept(theirs)
    for strategy in (None, "merge_content", "keep_highest_confidence"):
        with pytest.raises(InvalidInput) as caught:
            merge(theirs, NOBODY, [memory_id], strategy)
        assert caught.value.field == "canonical"
        assert merge(theirs, NOBODY, ["nobody"], strategy).merged_count == 0
        assert merge(theirs, memory_id, [memory_id], strategy).merged_count == 0
    assert [hit.id for hit in recalled(theirs)] == [memory_id]


def test_contents_of_different_types_are_not_merged(theirs: MemorywireStore) -> None:
    first, second = kept(theirs), kept(theirs, type="episodic")
    with pytest.raises(OtherMemoryType):
        merge(theirs, first, [second], "merge_content")
    assert len(recalled(theirs)) == 2


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"policy": {"no_recall_in_days": 3}}, "no_recall_in_days"),
        ({"policy": {"no_recall_in_days": 3, "type": "semantic"}}, "no_recall_in_days"),
        ({"policy": {"older_than_days": 3}, "action": "archive"}, "action"),
        ({"policy": {"older_than_days": 3}, "action": "demote"}, "action"),
        ({"policy": {}}, "policy"),
        ({"policy": {"unknown": 1}}, "policy"),
        ({}, "policy"),
    ],
)
def test_policies_that_this_store_cannot_follow_are_refused(
    theirs: MemorywireStore, members: dict[str, Any], field: str, clock: Clock
) -> None:
    kept(theirs)
    clock.now += 9 * DAY
    with pytest.raises(InvalidInput) as caught:
        run(theirs.expire(models.ExpireRequest(agent_id=AGENT, **members)))
    assert caught.value.field == field
    assert len(recalled(theirs)) == 1


def test_a_policy_matches_age_type_and_confidence_together(theirs: MemorywireStore, clock: Clock) -> None:
    old = kept(theirs, confidence=0.1)
    others = [kept(theirs), kept(theirs, type="episodic", confidence=0.1)]
    clock.now += 2 * DAY
    others.append(kept(theirs, confidence=0.1))
    policy = models.ExpirePolicy(older_than_days=2, type="semantic", confidence_below=0.5)
    found = run(theirs.expire(models.ExpireRequest(agent_id=AGENT, policy=policy, action="forget")))
    assert (found.matched_count, found.action_taken.value) == (1, "forget")
    assert {hit.id for hit in recalled(theirs)} == set(others)
    assert old not in others


def test_approval_is_as_the_store_or_the_request_says(ours: MemoryStore, tmp_path: Path) -> None:
    theirs = MemorywireStore(ours)
    waiting = run(theirs.remember(request(approval_required=True)))
    assert (waiting.pending_approval, waiting.stores) == (True, [])
    assert ours.show(waiting.id).state is MemoryState.PENDING
    ours.approve(waiting.id, "bob")
    assert [hit.id for hit in recalled(theirs)] == [waiting.id]
    with pytest.raises(InvalidInput) as caught:
        kept(theirs, type="episodic", approval_required=True)
    assert caught.value.field == "approval_required"
    with open_store(f"sqlite:///{tmp_path}/strict.db", approval=CallableApproval(lambda _: False)) as strict:
        with pytest.raises(InvalidInput, match="rejected"):
            kept(MemorywireStore(strict))
        strict._core.approval = Queue()
        queued = run(MemorywireStore(strict).remember(request()))
        assert queued.pending_approval
        found = run(MemorywireStore(strict).forget(models.ForgetRequest(agent_id=AGENT, ids=[queued.id])))
        assert found.forgotten_ids == [queued.id]


def test_a_merge_that_waits_says_so(ours: MemoryStore) -> None:
    theirs = MemorywireStore(ours)
    ids = [kept(theirs, content=f"tea {number}") for number in range(2)]
    ours._core.approval = Queue()
    found = merge(theirs, ids[0], ids[1:], "merge_content")
    assert (found.merged_count, found.pending_approval) == (0, True)
    assert {hit.id for hit in recalled(theirs)} == set(ids)


def test_health_tells_what_keeps_a_store_from_answering(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/memories.db")
    theirs = MemorywireStore(store)
    assert run(theirs.health())["memory_count"] == 0
    store.close()
    told = run(theirs.health())
    assert (told["status"], "closed" in told["error"]) == ("error", True)


def test_it_works_behind_the_package_s_own_router_and_facade(ours: MemoryStore, tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/other.db") as other:
        stores = [MemorywireStore(ours), MemorywireStore(other)]
        facade = MemorywireFacade(AGENT, stores)

        async def play() -> Any:
            await facade.remember("tea is green", type="semantic")
            return await facade.recall("tea"), await MemoryRouter(stores).health()

        hits, health = run(play())
    assert [hit.content for hit in hits] == ["tea is green"] * 2  # its router gives each copy an id of its own
    assert health["status"] == "ok"
