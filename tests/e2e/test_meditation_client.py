"""The client of Agent Meditation against the contract on a node, through every function it offers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from melete import Address, Bytes32, LocalSigner, keccak256
from melete.chain.rpc import MOST_AT_ONCE
from melete.chain.transactions import LocalSender, transact
from melete.errors import (
    AlreadyEnrolled,
    BadBaseVersion,
    CompletionNotLater,
    ConfigurationError,
    DueByNotInFuture,
    InvalidLayerMask,
    MissingInterval,
    MissingPermission,
    NoContract,
    NotARegistry,
    NotController,
    NotEnrolled,
    UnscopedLayerChanged,
)
from melete.meditation.cycle import CycleReport, Outcome
from melete.meditation.documents import derive_policy
from melete.meditation.events import CycleRecorded, Enrolled, LayerCommitmentChanged, PolicyUpdated, Pulsed
from melete.meditation.forecast import forecast
from melete.meditation.layers import Commitments, commit_to_document, compute_root, to_commitments
from melete.meditation.policy import Floor
from melete.meditation.records import prepare_report
from melete.meditation.registry import MeditationRegistry, encode_call, policy_words
from melete.meditation.status import MaintenanceStatus, SignalStatus

EXAMPLE = Path(__file__).resolve().parents[2] / "schemas" / "examples" / "timeout-cycle"
LAYERS = ("runtime", "memory-skills", "tasks-roles", "cognition")
HOUR, DAY = 3600, 86400
ALL = 0b111


def example(name: str) -> Any:
    return json.loads((EXAMPLE / name).read_text("utf-8"))


def commitments(side: str) -> Commitments:
    salts = example("salts.json")[side]
    return to_commitments(
        commit_to_document(example(f"{side}/{layer}.json"), Bytes32(salt))
        for layer, salt in zip(LAYERS, salts, strict=True)
    )


POLICY, RECORD = derive_policy(example("policy.json")), example("cycle-record.json")
BEFORE, AFTER = commitments("baseline"), commitments("post")


@pytest.fixture(scope="module")
def meditation_address(deploy) -> Address:
    return deploy("AgentMeditationRegistry")


@pytest.fixture
def actor(w3, request) -> Callable[[str], LocalSigner]:
    """An account of the test's own by its role, with money to send with."""

    def make(role: str) -> LocalSigner:
        signer = LocalSigner(keccak256(f"{request.node.nodeid} {role}".encode()))
        w3.provider.make_request("anvil_setBalance", [str(signer.address), hex(10**20)])
        return signer

    return make


@pytest.fixture
def acting(w3, meditation_address, actor) -> Callable[[str], MeditationRegistry]:
    """The registry's client as somebody in a role uses it."""
    return lambda role: MeditationRegistry(w3, meditation_address, sender=LocalSender(actor(role)))


@pytest.fixture
def registry(acting) -> MeditationRegistry:
    return acting("subject")


@pytest.fixture
def subject(actor, registry) -> Address:
    """A subject that is enrolled with the example's baseline and policy, and nobody above it."""
    registry.enroll(BEFORE, POLICY)
    return actor("subject").address


def cycle(registry: MeditationRegistry, **changes: Any) -> CycleReport:
    """A cycle over all layers that ended with the last block and changed nothing."""
    head = registry.head(registry.sender.address)
    now = registry.clock()
    whole = CycleReport(
        head.state_version, head.root, BEFORE, 0x0F, 0x0F, 0, Outcome.COMPLETED, 0, head.policy_version, now, now
    )  # fmt: skip
    return replace(whole, **changes)


# Who and what


def test_client_deploys_a_registry_that_agrees_with_it(w3, actor):
    registry, receipt = MeditationRegistry.deploy(w3, LocalSender(actor("deployer")))
    assert registry.address == receipt.contract_address
    registry.cross_check()


def test_client_refuses_what_is_no_meditation_registry(w3, our_address):
    with pytest.raises(NotARegistry):
        MeditationRegistry(w3, our_address)
    with pytest.raises(NoContract):
        MeditationRegistry(w3, Address(b"\x77" * 20))


def test_reading_needs_no_sender_and_sending_says_that_it_does(w3, meditation_address, subject):
    reader = MeditationRegistry(w3, meditation_address)
    assert reader.head(subject).enrolled
    with pytest.raises(ConfigurationError, match="sender"):
        reader.pulse(subject)


# Enrolling and reading


def test_enrollment_registers_baseline_policy_and_controller(acting, actor):
    registry, controller = acting("subject"), actor("controller").address
    event = registry.enroll(BEFORE, POLICY, controller, ALL)
    assert isinstance(event, Enrolled)
    assert (event.controller, event.controller_rights, event.root) == (controller, ALL, compute_root(BEFORE))
    loaded = registry.load_subject(event.subject)
    assert (loaded.commitments, loaded.policy, loaded.floor) == (BEFORE, POLICY, Floor())
    assert (loaded.head.state_version, loaded.head.policy_version, loaded.head.record_count) == (1, 1, 0)
    assert loaded.head.enrolled_at == event.enrolled_at
    assert loaded.requirements.max_interval == POLICY.max_interval
    assert registry.policies(event.subject) == [(POLICY, event.enrolled_at)]


def test_what_is_loaded_of_a_subject_agrees_with_the_forecast_of_its_own_block(registry, subject):
    loaded = registry.load_subject(subject)
    found = forecast(loaded.anchors, loaded.clock, loaded.policy, loaded.floor)
    assert found.layers == loaded.statuses.layers
    assert found.signal == loaded.statuses.signal
    assert found.requirements == loaded.requirements


def test_stranger_is_not_enrolled(registry):
    stranger = Address(b"\x99" * 20)
    for read in (registry.head, registry.load_subject, registry.load_state, registry.policies):
        with pytest.raises(NotEnrolled):
            read(stranger)
    assert registry.root_at(stranger, 1) == bytes(32)


def test_enrolling_twice_is_refused_by_name_before_anything_is_sent(registry, subject, w3):
    before = w3.eth.block_number
    with pytest.raises(AlreadyEnrolled):
        registry.enroll(BEFORE, POLICY)
    with pytest.raises(MissingInterval):
        registry.set_policy(subject, replace(POLICY, max_interval=(0, 1, 1, 1)))
    assert w3.eth.block_number == before


# A thousand subjects


def test_statuses_of_many_subjects_come_in_order_from_few_requests(registry, subject, monkeypatch):
    strangers = [Address(number.to_bytes(20, "big")) for number in range(1, 1001)]
    asked = []
    send = registry.w3.provider.make_batch_request
    monkeypatch.setattr(
        registry.w3.provider, "make_batch_request", lambda requests: asked.append(len(requests)) or send(requests)
    )
    found = list(registry.load_statuses([*strangers[:500], subject, *strangers[500:]]))
    assert len(found) == 1001
    assert len(asked) == math.ceil(5_005 / MOST_AT_ONCE)  # five calls each
    assert max(asked) <= MOST_AT_ONCE
    assert found[500].subject == subject
    assert {layer.status for layer in found[500].layers} == {MaintenanceStatus.FRESH}
    assert {statuses.signal.status for statuses in found if statuses.subject != subject} == {SignalStatus.NOT_ENROLLED}


# The example, from documents to the chain and back


def test_example_goes_from_its_documents_to_the_chain_and_back(registry, subject):
    now = registry.clock()
    record = {
        **deepcopy(RECORD), "subject": str(subject), "preRoot": str(compute_root(BEFORE)),
        "startedAt": now, "endedAt": now, "nextPlannedAt": now + DAY,
    }  # fmt: skip
    for entry in record["layers"]:
        for observation in entry["observations"]:
            observation["observedAt"] = now
    report = prepare_report(record, registry.load_state(subject), AFTER, registry.clock(), record_uri="ipfs://record")
    event = registry.report(subject, report)
    assert (event.report, event.changed_layers, event.new_version, event.seq) == (report, 0b0111, 2, 1)
    loaded = registry.load_subject(subject)
    assert loaded.commitments == AFTER
    assert [checkpoint.last_changed_version for checkpoint in loaded.checkpoints] == [2, 2, 2, 1]
    assert [checkpoint.last_completed_at for checkpoint in loaded.checkpoints] == [now] * 4
    assert (registry.root_at(subject, 1), registry.root_at(subject, 2)) == (compute_root(BEFORE), compute_root(AFTER))
    assert [type(event) for event in registry.events(subject)] == [
        Enrolled, PolicyUpdated, CycleRecorded, *[LayerCommitmentChanged] * 3,
    ]  # fmt: skip
    (recorded,) = registry.events(subject, kinds=[CycleRecorded])
    assert recorded == event


def test_report_on_an_outdated_state_is_refused_and_what_changed_since_is_told(registry, subject):
    outdated = cycle(registry)
    registry.report(subject, cycle(registry, post_commitments=AFTER, completed_layers=0, outcome=Outcome.ABORTED))
    with pytest.raises(BadBaseVersion):
        registry.report(subject, outdated)
    changed = registry.changes_since(subject, outdated.base_version)
    assert [(event.layer, event.previous_commitment, event.new_commitment) for event in changed] == [
        (layer, BEFORE[layer], AFTER[layer]) for layer in (0, 1, 2)
    ]
    assert registry.changes_since(subject, 2) == []


def test_report_that_breaks_a_rule_is_refused_by_name_before_anything_is_sent(registry, subject, w3):
    report = cycle(registry, post_commitments=AFTER, layer_mask=1, completed_layers=1)
    before = w3.eth.block_number
    with pytest.raises(UnscopedLayerChanged):
        registry.report(subject, report)
    with pytest.raises(InvalidLayerMask):
        registry.report(subject, cycle(registry, layer_mask=0, completed_layers=0))
    assert w3.eth.block_number == before
    completed = cycle(registry)
    registry.report(subject, completed)
    with pytest.raises(CompletionNotLater):
        registry.report(subject, completed)


def test_rollback_restores_an_earlier_version(registry, subject):
    registry.report(subject, cycle(registry, post_commitments=AFTER))
    event = registry.report(
        subject,
        cycle(registry, post_commitments=BEFORE, completed_layers=0, outcome=Outcome.FAILED, restores_version=1),
    )
    assert (event.new_version, registry.head(subject).root) == (3, compute_root(BEFORE))


def send_without_utf8(registry: MeditationRegistry, data: bytes) -> None:
    """Send a call whose locator of 33 x is made of bytes that are no text."""
    transact(registry.w3, registry.sender, registry.chain_id, registry.address, data.replace(b"x" * 33, b"\xff" * 33))


def test_locator_that_is_no_text_hides_neither_its_record_nor_its_policy(registry, subject):
    send_without_utf8(registry, registry.report_call(subject, cycle(registry, record_uri="x" * 33)))
    (recorded,) = registry.events(subject, kinds=[CycleRecorded])
    assert recorded.report.record_uri == "\ufffd" * 33
    policy = encode_call("setPolicy", subject, policy_words(replace(POLICY, policy_uri="x" * 33)))
    send_without_utf8(registry, policy)
    assert registry.load_subject(subject).policy.policy_uri == "\ufffd" * 33


# Others who act


def test_operator_acts_within_its_permissions(acting, actor, registry, subject):
    operator = acting("operator")
    with pytest.raises(MissingPermission):
        operator.pulse(subject)
    registry.set_operator(actor("operator").address, 2)
    assert registry.operator_permissions(subject, actor("operator").address) == 2
    event = operator.pulse(subject, 5)
    assert isinstance(event, Pulsed)
    assert (event.submitter, event.next_planned_at, event.seq) == (actor("operator").address, 5, 1)
    with pytest.raises(MissingPermission):
        operator.report(subject, cycle(registry))
    assert registry.revoke_operator(subject, actor("operator").address).permissions == 0


def test_controller_sets_a_floor_demands_and_withdraws(acting, actor, registry, subject):
    controller = acting("controller")
    with pytest.raises(NotController):
        controller.set_floor(subject, Floor(1, 0, (HOUR, 0, 0, 0)))
    registry.set_controller(subject, actor("controller").address, ALL)
    assert controller.set_floor(subject, Floor(1, 0, (HOUR, 0, 0, 0))).version == 1
    assert registry.load_subject(subject).requirements.max_interval[0] == HOUR
    due_by = registry.clock() + 100
    assert controller.demand(subject, 0b0110, due_by).due_by == due_by
    loaded = registry.load_subject(subject)
    assert [demand.due_by for demand in loaded.demands] == [0, due_by, due_by, 0]
    with pytest.raises(DueByNotInFuture):
        controller.demand(subject, 1, 1)
    assert controller.withdraw_demand(subject, 0b0010).layer_mask == 0b0010
    assert [demand.due_by for demand in registry.load_subject(subject).demands] == [0, 0, due_by, 0]
    assert controller.set_controller(subject, Address(bytes(20)), 0).new_controller == bytes(20)


def test_new_policy_is_a_version_more(registry, subject):
    other = replace(POLICY, disclosure=2, policy_uri="ipfs://policy")
    assert registry.set_policy(subject, other).version == 2
    assert [policy for policy, _ in registry.policies(subject)] == [POLICY, other]
