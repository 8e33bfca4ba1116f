"""The clients of the optional records, over our registry and, where that is enough, over one of the standard alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_abi import encode

from melete import GENESIS, Address, Bytes32, ExperienceDelta, Head, MemoryRegistry, compute_transition_id, keccak256
from melete.chain.connection import call
from melete.chain.deployments import verify_code
from melete.chain.transactions import LocalSender
from melete.errors import (
    AlreadyAttested,
    ConfigurationError,
    ContractError,
    CrossCheckFailed,
    EmptyEvidenceCommitment,
    EmptyRange,
    EmptyUri,
    GrantAlreadyAcknowledged,
    GrantAlreadyExists,
    GrantAlreadyRevoked,
    GrantOfAnotherSpace,
    InvalidRegistry,
    InvalidUriCharacter,
    MeleteError,
    NoContract,
    NoDescriptor,
    NotARecord,
    NotAuditor,
    NotSpaceController,
    RangeBeyondHead,
    UnknownGrant,
    UnknownSpace,
    UnknownTransition,
    UriTooLong,
    WitnessRootMismatch,
    ZeroAuditor,
    ZeroContentHash,
    ZeroFromSequence,
    ZeroWitnessSetRoot,
)
from melete.memory.extensions.audit import AuditGrant, Grant
from melete.memory.extensions.deletion import DeletionAttestation
from melete.memory.extensions.descriptor import Descriptor, SpaceDescriptor
from melete.memory.extensions.events import (
    AuditAcknowledged,
    AuditGranted,
    AuditRevoked,
    DeletionAttested,
    DescriptorCleared,
    DescriptorPublished,
)
from melete.memory.extensions.grants import WitnessEntry, compute_grant_id, compute_witness_hash, fold_witness_root
from melete.memory.extensions.record import Record
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32

KINDS = (DeletionAttestation, AuditGrant, SpaceDescriptor)
EVIDENCE, ROOT, CONTENT = (keccak256(text) for text in (b"evidence", b"root", b"content"))
NOWHERE = keccak256(b"a space that nobody registered")
URI = "https://example.org/agents/7.json"


def refusal(question, *arguments: object) -> MeleteError:
    """Return the error that a question ends in."""
    with pytest.raises(MeleteError) as caught:
        question(*arguments)
    return caught.value


def same(error: MeleteError, expected: MeleteError) -> bool:
    return (type(error), vars(error)) == (type(expected), vars(expected))


def contract_refusal(record: Record, data: bytes) -> ContractError:
    """What the contract itself says to a call from the sender."""
    error = refusal(call, record.w3, record.address, data, record.sender.address)
    assert isinstance(error, ContractError)
    return error


@pytest.fixture(scope="session")
def pay(keys) -> LocalSender:
    """Deploys, and has no part in anything."""
    return LocalSender(keys[9])


@pytest.fixture(scope="session")
def records(w3, our_address, pay) -> dict[type[Record], Address]:
    registry = MemoryRegistry(w3, our_address)
    return {kind: kind.deploy(registry, pay)[0].address for kind in KINDS}


@pytest.fixture
def as_controller(records, our_registry, controller):
    """A client of a kind of record, sending as the space's controller."""
    return lambda kind: kind(our_registry, records[kind], sender=LocalSender(controller))


@pytest.fixture
def attestation(as_controller) -> DeletionAttestation:
    return as_controller(DeletionAttestation)


@pytest.fixture
def audit(as_controller) -> AuditGrant:
    return as_controller(AuditGrant)


@pytest.fixture
def descriptor(as_controller) -> SpaceDescriptor:
    return as_controller(SpaceDescriptor)


@pytest.fixture
def auditor(keys):
    return keys[5]


@pytest.fixture
def as_auditor(records, our_registry, auditor) -> AuditGrant:
    return AuditGrant(our_registry, records[AuditGrant], sender=LocalSender(auditor))


@pytest.fixture
def our_space(our_registry, controller, authorizer, salt) -> Bytes32:
    return our_registry.register(authorizer.address, salt, controller=controller).space_id


@pytest.fixture
def foreign_space(our_registry, outsider, authorizer, salt) -> Bytes32:
    return our_registry.register(authorizer.address, salt, controller=outsider).space_id


@pytest.fixture
def history(our_registry, our_space, authorizer) -> list[ExperienceDelta]:
    """Three transitions of the space."""
    head, deltas = GENESIS, []
    for number in range(1, 4):
        words = (keccak256(b"%d" % number), ZERO_BYTES32, keccak256(b"profile"))
        delta = ExperienceDelta(our_space, number, head.state_root, *words)
        event = our_registry.commit(delta, authorizer=authorizer)
        head = Head(event.transition_id, event.next_state_root, number)
        deltas.append(delta)
    return deltas


def entries(history: list[ExperienceDelta]) -> list[WitnessEntry]:
    return [
        WitnessEntry(
            delta.sequence,
            compute_transition_id(delta),
            compute_witness_hash({"payload": str(delta.sequence)}),
        )
        for delta in history
    ]


# Deletion attestations


def test_attest_records_the_evidence_commitment(attestation, our_space, history, controller):
    event = attestation.attest(history[1], EVIDENCE)
    transition_id = compute_transition_id(history[1])
    expected = DeletionAttested(our_space, transition_id, EVIDENCE, controller.address, event.reference)
    assert event == expected
    assert attestation.evidence_of(transition_id) == EVIDENCE
    assert list(attestation.events(our_space)) == [event]


def test_evidence_of_what_nobody_attested_is_zero(attestation, history):
    assert attestation.evidence_of(compute_transition_id(history[0])) == ZERO_BYTES32


@pytest.mark.parametrize("case", range(4))
def test_attest_is_refused_before_it_is_sent_by_the_contracts_own_error(
    attestation, history, outsider, w3, our_registry, records, case
):
    record, delta, evidence = attestation, history[0], EVIDENCE
    if case == 0:
        delta, evidence = replace(delta, space_id=NOWHERE), ZERO_BYTES32
    if case == 1:
        record = DeletionAttestation(our_registry, record.address, sender=LocalSender(outsider))
        evidence = ZERO_BYTES32
    if case == 2:
        record.attest(delta, EVIDENCE)
        evidence = ZERO_BYTES32
    if case == 3:
        evidence = ZERO_BYTES32
    expected = [UnknownTransition(), NotSpaceController(), AlreadyAttested(), EmptyEvidenceCommitment()][case]
    nonce = w3.eth.get_transaction_count(str(record.sender.address))
    assert same(refusal(record.attest, delta, evidence), expected)
    assert same(contract_refusal(record, record._attest_call(delta, evidence)), expected)
    assert w3.eth.get_transaction_count(str(record.sender.address)) == nonce


# Audit grants


def test_an_audit_from_grant_to_acknowledgement(audit, as_auditor, our_space, history, auditor, w3):
    root = fold_witness_root(entries(history), 1, 3)
    granted = audit.grant(our_space, auditor.address, 1, 3, root)
    grant_id = compute_grant_id(our_space, auditor.address, 1, 3)
    assert granted == AuditGranted(our_space, auditor.address, grant_id, 1, 3, root, granted.reference)

    handed = fold_witness_root(iter(entries(history)), 1, 3)
    acknowledged = as_auditor.acknowledge(our_space, grant_id, handed)
    assert acknowledged == AuditAcknowledged(our_space, auditor.address, grant_id, acknowledged.reference)
    revoked = audit.revoke(our_space, grant_id)
    assert revoked == AuditRevoked(our_space, auditor.address, grant_id, revoked.reference)

    times = [w3.eth.get_block(event.reference.block_number)["timestamp"] for event in (granted, acknowledged, revoked)]
    assert audit.grant_of(grant_id) == Grant(our_space, root, auditor.address, times[1], times[2], 1, 3, times[0])
    assert audit.space_of(grant_id) == our_space
    assert list(audit.events(our_space)) == [granted, acknowledged, revoked]


def test_an_auditor_who_lacks_a_witness_is_told_that_the_root_is_another(
    audit, as_auditor, our_space, history, auditor
):
    root = fold_witness_root(entries(history), 1, 3)
    grant_id = audit.grant(our_space, auditor.address, 1, 3, root).grant_id
    swapped = entries([history[0], history[1], replace(history[2], profile_id=ROOT)])
    other = fold_witness_root(swapped, 1, 3)
    assert same(refusal(as_auditor.acknowledge, our_space, grant_id, other), WitnessRootMismatch(root, other))
    assert audit.grant_of(grant_id).acknowledged_at == 0


def test_unknown_grants_are_unknown_to_every_reader(audit, as_auditor, our_space):
    unknown = UnknownGrant(NOWHERE)
    assert same(refusal(audit.grant_of, NOWHERE), unknown)
    assert same(refusal(audit.space_of, NOWHERE), unknown)
    assert same(refusal(audit.revoke, our_space, NOWHERE), unknown)
    assert same(refusal(as_auditor.acknowledge, our_space, NOWHERE, ROOT), unknown)


@pytest.mark.parametrize("case", range(8))
def test_grant_is_refused_before_it_is_sent_by_the_contracts_own_error(
    audit, our_space, foreign_space, history, auditor, w3, case
):
    account, zero = auditor.address, ZERO_BYTES32
    if case == 7:
        audit.grant(our_space, account, 1, 3, ROOT)
    arguments, expected = [
        ((NOWHERE, ZERO_ADDRESS, 0, 9, zero), UnknownSpace()),
        ((foreign_space, ZERO_ADDRESS, 0, 9, zero), NotSpaceController()),
        ((our_space, ZERO_ADDRESS, 0, 9, zero), ZeroAuditor()),
        ((our_space, account, 0, 9, zero), ZeroFromSequence()),
        ((our_space, account, 9, 8, zero), EmptyRange(9, 8)),
        ((our_space, account, 1, 4, zero), RangeBeyondHead(3, 4)),
        ((our_space, account, 1, 3, zero), ZeroWitnessSetRoot()),
        ((our_space, account, 1, 3, CONTENT), GrantAlreadyExists(compute_grant_id(our_space, account, 1, 3))),
    ][case]
    nonce = w3.eth.get_transaction_count(str(audit.sender.address))
    assert same(refusal(audit.grant, *arguments), expected)
    assert same(contract_refusal(audit, audit._grant_call(*arguments)), expected)
    assert w3.eth.get_transaction_count(str(audit.sender.address)) == nonce


@pytest.mark.parametrize("case", range(5))
def test_acknowledge_is_refused_before_it_is_sent_by_the_contracts_own_error(
    audit, as_auditor, our_space, foreign_space, history, auditor, controller, case
):
    grant_id = audit.grant(our_space, auditor.address, 1, 3, ROOT).grant_id
    record, space_id, root = as_auditor, our_space, CONTENT
    if case == 0:
        space_id = foreign_space
    if case == 1:
        record = audit
    if case in (2, 3):
        as_auditor.acknowledge(our_space, grant_id, ROOT)
    if case == 2:
        audit.revoke(our_space, grant_id)
    expected = [
        GrantOfAnotherSpace(our_space, foreign_space),
        NotAuditor(auditor.address, controller.address),
        GrantAlreadyRevoked(grant_id),
        GrantAlreadyAcknowledged(grant_id),
        WitnessRootMismatch(ROOT, CONTENT),
    ][case]
    assert same(refusal(record.acknowledge, space_id, grant_id, root), expected)
    assert same(contract_refusal(record, record._acknowledge_call(space_id, grant_id, root)), expected)


@pytest.mark.parametrize("case", range(3))
def test_revoke_is_refused_before_it_is_sent_by_the_contracts_own_error(
    audit, as_auditor, our_space, foreign_space, history, auditor, case
):
    grant_id = audit.grant(our_space, auditor.address, 1, 3, ROOT).grant_id
    record = as_auditor if case == 1 else audit
    space_id = foreign_space if case == 0 else our_space
    if case == 2:
        audit.revoke(our_space, grant_id)
    expected = [
        GrantOfAnotherSpace(our_space, foreign_space),
        NotSpaceController(),
        GrantAlreadyRevoked(grant_id),
    ][case]
    assert same(refusal(record.revoke, space_id, grant_id), expected)
    assert same(contract_refusal(record, record._data("revoke", space_id + grant_id)), expected)


def test_a_new_controller_takes_over_what_the_old_one_granted(
    audit, as_auditor, records, our_registry, our_space, history, controller, outsider, authorizer, auditor
):
    grant_id = audit.grant(our_space, auditor.address, 1, 3, ROOT).grant_id
    our_registry.rotate(our_space, outsider.address, authorizer.address, controller=controller)
    assert isinstance(refusal(audit.revoke, our_space, grant_id), NotSpaceController)
    as_auditor.acknowledge(our_space, grant_id, ROOT)
    successor = AuditGrant(our_registry, records[AuditGrant], sender=LocalSender(outsider))
    assert successor.revoke(our_space, grant_id).auditor == auditor.address


# Descriptors


def test_publish_replace_and_clear(descriptor, our_space, controller):
    assert descriptor.descriptor_of(our_space) is None
    first = descriptor.publish(our_space, URI, CONTENT)
    assert first == DescriptorPublished(our_space, CONTENT, controller.address, URI, first.reference)
    assert descriptor.descriptor_of(our_space) == Descriptor(URI, CONTENT)
    second = descriptor.publish(our_space, "a" * 2048, ROOT)
    assert descriptor.descriptor_of(our_space) == Descriptor("a" * 2048, ROOT)
    cleared = descriptor.clear(our_space)
    assert cleared == DescriptorCleared(our_space, controller.address, cleared.reference)
    assert descriptor.descriptor_of(our_space) is None
    assert list(descriptor.events(our_space)) == [first, second, cleared]


@pytest.mark.parametrize("case", range(6))
def test_publish_is_refused_before_it_is_sent_by_the_contracts_own_error(descriptor, our_space, foreign_space, case):
    arguments, expected = [
        ((NOWHERE, "", ZERO_BYTES32), UnknownSpace()),
        ((foreign_space, "", ZERO_BYTES32), NotSpaceController()),
        ((our_space, "", ZERO_BYTES32), EmptyUri()),
        ((our_space, " " * 2049, ZERO_BYTES32), UriTooLong(2048, 2049)),
        ((our_space, "urn:é", ZERO_BYTES32), InvalidUriCharacter(4, 0xC3)),
        ((our_space, URI, ZERO_BYTES32), ZeroContentHash()),
    ][case]
    assert same(refusal(descriptor.publish, *arguments), expected)
    assert same(contract_refusal(descriptor, descriptor._publish_call(*arguments)), expected)


@pytest.mark.parametrize("case", range(3))
def test_clear_is_refused_before_it_is_sent_by_the_contracts_own_error(descriptor, our_space, foreign_space, case):
    space_id, expected = [
        (NOWHERE, UnknownSpace()),
        (foreign_space, NotSpaceController()),
        (our_space, NoDescriptor(our_space)),
    ][case]
    assert same(refusal(descriptor.clear, space_id), expected)
    assert same(contract_refusal(descriptor, descriptor._data("clear", space_id)), expected)


def test_a_descriptor_over_any_registry_of_the_standard(registry, space_id, controller, pay):
    record, _ = SpaceDescriptor.deploy(registry, pay)
    record.sender = LocalSender(controller)
    record.publish(space_id, URI, CONTENT)
    assert record.descriptor_of(space_id) == Descriptor(URI, CONTENT)
    assert isinstance(refusal(record.publish, NOWHERE, URI, CONTENT), UnknownSpace)


# The contracts themselves


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_deployed_is_what_the_package_ships(w3, records, kind):
    verify_code(w3, kind.contract_name, records[kind])


@pytest.mark.parametrize("kind", [DeletionAttestation, AuditGrant])
def test_a_record_that_proves_transitions_is_not_deployed_over_a_registry_without_roots(w3, deploy, pay, kind):
    registry = MemoryRegistry(w3, deploy("NormativeMemoryRegistry"))
    nonce = w3.eth.get_transaction_count(str(pay.address))
    assert same(refusal(kind.deploy, registry, pay), InvalidRegistry(registry.address))
    assert w3.eth.get_transaction_count(str(pay.address)) == nonce


def test_cross_check_agrees_with_ours(audit, attestation, descriptor):
    assert audit.cross_check().agreed == ("deriveGrantId", "foldWitnessRoot")
    assert attestation.cross_check().unanswered == descriptor.cross_check().unanswered == ()


def test_cross_check_catches_another_fold(audit, monkeypatch):
    monkeypatch.setattr("melete.memory.extensions.audit.compute_next_witness_root", lambda *words: words[0])
    error = refusal(audit.cross_check)
    assert isinstance(error, CrossCheckFailed)
    assert error.view == "foldWitnessRoot"


@pytest.mark.parametrize("kind", KINDS)
def test_every_other_contract_is_told_from_a_record(our_registry, deploy, records, outsider, kind):
    others = [address for other, address in records.items() if other is not kind]
    wallets = [deploy("ConfigurableWallet", behaviour, str(outsider.address)) for behaviour in (4, 5)]
    for address in (*others, *wallets, our_registry.address):
        error = refusal(kind, our_registry, address)
        assert isinstance(error, NotARecord)
        assert str(address) in str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_over_another_registry_is_refused(w3, deploy, records, kind):
    other = MemoryRegistry(w3, deploy("AgentMemoryStateRegistry"))
    error = refusal(kind, other, records[kind])
    assert isinstance(error, NotARecord)
    assert error.view == "registry"


@pytest.mark.parametrize("kind", KINDS)
def test_an_address_without_code_is_named(our_registry, outsider, kind):
    assert isinstance(refusal(kind, our_registry, outsider.address), NoContract)


def test_reading_needs_no_sender_and_sending_says_what_is_missing(w3, our_address, records, our_space, history):
    registry = MemoryRegistry(w3, our_address)
    record = DeletionAttestation(registry, records[DeletionAttestation])
    assert record.evidence_of(NOWHERE) == ZERO_BYTES32
    assert isinstance(refusal(record.attest, history[0], EVIDENCE), ConfigurationError)
    described = SpaceDescriptor(registry, records[SpaceDescriptor])
    assert isinstance(refusal(described.publish, our_space, URI, CONTENT), ConfigurationError)


def test_a_record_sends_with_the_registrys_sender_unless_it_has_its_own(our_registry, records, relayer, controller):
    assert SpaceDescriptor(our_registry, records[SpaceDescriptor]).sender is relayer
    own = LocalSender(controller)
    assert SpaceDescriptor(our_registry, records[SpaceDescriptor], sender=own).sender is own


DIRTY = b"\x01" + bytes(31)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        bytes(255),
        bytes(257),
        bytes(64) + DIRTY + bytes(160),
        bytes(96) + DIRTY + bytes(128),
        bytes(224) + DIRTY,
    ],
    ids=["nothing", "short", "long", "dirty_auditor", "dirty_time", "dirty_last_word"],
)
def test_a_contract_that_answers_no_grant_is_named_as_such(audit, monkeypatch, answer):
    monkeypatch.setattr(audit, "_ask", lambda *_: answer)
    error = refusal(audit.grant_of, NOWHERE)
    assert isinstance(error, NotARecord)
    assert error.view == "grantOf"


@pytest.mark.parametrize(
    ("uri", "content_hash"),
    [(b"", CONTENT), (b"urn:a", ZERO_BYTES32), (b"urn:\x1b[2J", CONTENT), (b"\xff\xfe", CONTENT)],
    ids=["hash_without_uri", "uri_without_hash", "control_sequence", "no_text"],
)
def test_a_contract_that_answers_no_descriptor_is_named_as_such(descriptor, monkeypatch, uri, content_hash):
    answer = encode(["bytes", "bytes32"], [uri, content_hash])
    monkeypatch.setattr(descriptor, "_ask", lambda *_: answer)
    error = refusal(descriptor.descriptor_of, NOWHERE)
    assert isinstance(error, NotARecord)
    assert str(error).isprintable()


def test_events_of_one_space_leave_out_those_of_others(
    descriptor, our_registry, records, our_space, foreign_space, outsider
):
    ours = descriptor.publish(our_space, URI, CONTENT)
    foreign = SpaceDescriptor(our_registry, records[SpaceDescriptor], sender=LocalSender(outsider))
    theirs = foreign.publish(foreign_space, "urn:theirs", ROOT)
    start, end = ours.reference.block_number, theirs.reference.block_number
    assert list(descriptor.events(our_space)) == [ours]
    assert list(descriptor.events(from_block=start, to_block=end)) == [ours, theirs]
