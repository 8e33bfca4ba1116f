"""Maintenance reports through the outbox: registered exactly once, their documents kept, conflicts told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from melete import Address, Bytes32, LocalSigner, keccak256
from melete.chain.outbox import Outbox, State
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender
from melete.errors import BadBaseVersion, InvalidInput, WitnessMissing
from melete.meditation.cycle import CycleReport, Outcome
from melete.meditation.documents import derive_policy
from melete.meditation.events import CycleRecorded
from melete.meditation.layers import Commitments, commit_to_document, to_commitments
from melete.meditation.outbox import MeditationOutbox, MeditationRules
from melete.meditation.records import derive_report
from melete.meditation.registry import MeditationRegistry
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_kinds import LAYERS, REPORT, LayerDocument
from melete.memory.witness_store import WitnessStore

EXAMPLE = Path(__file__).resolve().parents[2] / "schemas" / "examples" / "timeout-cycle"
NAMES = ("runtime", "memory-skills", "tasks-roles", "cognition")
KEY = StoreKey(keccak256(b"a key for tests"))


def example(name: str) -> Any:
    return json.loads((EXAMPLE / name).read_text("utf-8"))


def documents(side: str) -> list[LayerDocument]:
    salts = example("salts.json")[side]
    return [
        LayerDocument(example(f"{side}/{name}.json"), Bytes32(salt)) for name, salt in zip(NAMES, salts, strict=True)
    ]


def committed(side: str) -> Commitments:
    return to_commitments(commit_to_document(kept.document, kept.salt) for kept in documents(side))


POLICY = derive_policy(example("policy.json"))
BEFORE, AFTER = committed("baseline"), committed("post")


@pytest.fixture(scope="module")
def meditation_address(deploy) -> Address:
    return deploy("AgentMeditationRegistry")


@pytest.fixture
def signer(w3, request) -> LocalSigner:
    made = LocalSigner(keccak256(request.node.nodeid.encode()))
    w3.provider.make_request("anvil_setBalance", [str(made.address), hex(10**20)])
    return made


@pytest.fixture
def registry(w3, meditation_address, signer) -> MeditationRegistry:
    return MeditationRegistry(w3, meditation_address, sender=LocalSender(signer))


@pytest.fixture
def subject(registry, signer) -> Address:
    registry.enroll(BEFORE, POLICY)
    return signer.address


@pytest.fixture
def waiting(tmp_path, registry) -> Iterator[MeditationOutbox]:
    store = WitnessStore.create(tmp_path / "witnesses.db", KEY)
    with Outbox(tmp_path / "outbox.db") as outbox, store:
        yield MeditationOutbox(outbox, registry, store)


@pytest.fixture
def submit(w3, waiting, signer) -> Callable[[], Any]:
    submitter = Submitter(
        w3, waiting.outbox, LocalSender(signer), MeditationRules(), confirmations=0, poll_seconds=0.01
    )
    return submitter.run


def record_of(registry: MeditationRegistry, subject: Address, **changes: Any) -> dict[str, Any]:
    """The example's record, of a cycle that ran just now."""
    now, head = registry.clock(), registry.head(subject)
    record = {
        **example("cycle-record.json"), "subject": str(subject), "preRoot": str(head.root),
        "baseVersion": str(head.state_version), "startedAt": now, "endedAt": now, "nextPlannedAt": now + 60, **changes,
    }  # fmt: skip
    for entry in record["layers"]:
        for observation in entry["observations"]:
            observation["observedAt"] = now
    return record


def add_example(waiting: MeditationOutbox, subject: Address) -> CycleReport:
    record = record_of(waiting.registry, subject)
    report = derive_report(record, BEFORE, AFTER)
    waiting.add(subject, report, record, dict(enumerate(documents("post"))))
    return report


def recorded(registry: MeditationRegistry, subject: Address) -> list[CycleReport]:
    return [event.report for event in registry.events(subject, kinds=[CycleRecorded])]


def test_report_is_registered_once_and_its_documents_are_kept(registry, subject, waiting, submit):
    report = add_example(waiting, subject)
    assert submit().done == 1
    assert recorded(registry, subject) == [report]
    assert submit().done == 1
    assert recorded(registry, subject) == [report]
    kept = waiting.kept(subject)
    assert [kept.get(LAYERS[layer], 2) for layer in (0, 1, 2)] == documents("post")[:3]
    with pytest.raises(WitnessMissing):
        kept.get(LAYERS[3], 2)  # it did not change
    assert REPORT.commit(kept.get(REPORT, 1)) == report.record_hash


@pytest.mark.parametrize("changes", [{}, {"completed_layers": 0, "outcome": Outcome.FAILED}])
def test_report_whose_answer_was_lost_is_not_registered_again(registry, subject, waiting, submit, changes):
    now, head = registry.clock(), registry.head(subject)
    report = replace(
        CycleReport(1, head.root, BEFORE, 15, 15, 0, Outcome.COMPLETED, 0, 1, now, now, record_hash=keccak256(b"r")),
        **changes,
    )
    waiting.add(subject, report)
    registry.report(subject, report)  # the same, out of another process's hands
    registry.pulse(subject)
    assert submit().done == 1
    assert recorded(registry, subject) == [report]


def test_report_on_a_state_that_is_gone_is_a_conflict_and_is_never_sent(registry, subject, waiting, submit):
    report = add_example(waiting, subject)
    other = replace(report, post_commitments=(*AFTER[:2], *BEFORE[2:]), layer_mask=3, completed_layers=3, ops_mask=0)
    registry.report(subject, other)
    assert submit().stopped == 1
    assert recorded(registry, subject) == [other]
    with pytest.raises(InvalidInput, match="settle"):
        add_example(waiting, subject)
    assert waiting.withdraw(subject) == [report]
    assert waiting.waiting(subject) == []
    for kind, number in ((LAYERS[0], 2), (REPORT, 1)):
        with pytest.raises(WitnessMissing):
            waiting.kept(subject).get(kind, number)


def test_report_that_the_registry_would_refuse_is_not_written_down(registry, subject, waiting):
    now = registry.clock()
    report = CycleReport(2, registry.head(subject).root, BEFORE, 15, 15, 0, Outcome.COMPLETED, 0, 1, now, now)
    with pytest.raises(BadBaseVersion):
        waiting.add(subject, report)
    assert waiting.waiting(subject) == []


def test_document_that_is_not_the_one_committed_to_is_refused(registry, subject, waiting):
    record = record_of(registry, subject)
    report = derive_report(record, BEFORE, AFTER)
    with pytest.raises(InvalidInput, match=r"documents\[0\]"):
        waiting.add(subject, report, record, {0: documents("baseline")[0]})
    with pytest.raises(InvalidInput, match="record"):
        waiting.add(subject, report, {**record, "summary": "another"})
    assert waiting.waiting(subject) == []


@pytest.mark.parametrize("kept", [True, False])
def test_add_that_was_killed_goes_on_or_is_forgotten(registry, subject, waiting, submit, monkeypatch, kept):
    killed = RuntimeError("killed")

    def die(_: Any, concerned: Any, *more: Any) -> None:
        if concerned:
            raise killed

    target = (waiting.outbox, "record_state") if kept else (waiting.witnesses, "put")
    with monkeypatch.context() as patched:
        patched.setattr(type(target[0]), target[1], die)
        with pytest.raises(RuntimeError):
            add_example(waiting, subject)
    assert [item.state for item in waiting.outbox.items()] == [State.DRAFT]
    waiting.recover()
    assert len(waiting.waiting(subject)) == int(kept)
    assert submit().done == int(kept)
    assert len(recorded(registry, subject)) == int(kept)
