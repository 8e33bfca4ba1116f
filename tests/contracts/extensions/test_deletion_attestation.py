"""DeletionAttestation: what a controller says about a transition, once, with a commitment to its evidence."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import pytest
from eth_utils import keccak
from hypothesis import given

from anvil import Reverted
from memory_state import Behaviour, encode_execute
from models.memory import (
    ZERO_WORD,
    Event,
    Rejection,
    compute_next_state_root,
    hash_experience_delta,
    word,
)
from space_records import SILENT
from strategies import deltas, nonzero_words, words

EVIDENCE = keccak(text="evidence")
UNKNOWN = Rejection("UnknownTransition")
NOT_CONTROLLER = Rejection("NotSpaceController")


def attested(delta, evidence: bytes, controller) -> Event:
    return Event("DeletionAttested", (delta.space_id, hash_experience_delta(delta), evidence, controller.address))


def test_attest_records_the_evidence_commitment_and_says_so(attestation, history, controller):
    delta = history[-1]
    outcome = attestation.perform(controller.address, "attest", delta.members(), EVIDENCE)
    assert outcome == attested(delta, EVIDENCE, controller)
    assert attestation.answer("evidenceOf", hash_experience_delta(delta)) == EVIDENCE


def test_attest_accepts_every_transition_of_a_history_in_any_order(attestation, history, controller):
    for delta in (history[1], history[2], history[0]):
        evidence = keccak(text=f"evidence {delta.sequence}")
        outcome = attestation.perform(controller.address, "attest", delta.members(), evidence)
        assert outcome == attested(delta, evidence, controller)
    for delta in history:
        kept = attestation.answer("evidenceOf", hash_experience_delta(delta))
        assert kept == keccak(text=f"evidence {delta.sequence}")


@given(evidence=nonzero_words)
def test_attest_accepts_any_commitment_but_zero(attestation, history, controller, evidence):
    assert attestation.rejection(controller.address, "attest", history[0].members(), evidence) is None


def test_two_transitions_may_have_the_same_evidence(attestation, history, controller):
    for delta in history[:2]:
        attestation.must_perform(controller.address, "attest", delta.members(), EVIDENCE)


@given(transition_id=words)
def test_evidence_of_anything_else_is_zero(attestation, history, controller, transition_id):
    assert attestation.answer("evidenceOf", transition_id) == ZERO_WORD


def test_attest_leaves_the_registry_as_it_was(attestation, registry, history, controller):
    with registry.unchanged():
        attestation.must_perform(controller.address, "attest", history[0].members(), EVIDENCE)


# Which transitions


@pytest.mark.parametrize(
    "member",
    ["prev_state_root", "delta_commitment", "provenance_commitment", "profile_id", "locator_commitment"],
)
def test_attest_rejects_a_delta_with_another_word(attestation, history, controller, member):
    changed = replace(history[1], **{member: keccak(text="another")})
    assert attestation.rejection(controller.address, "attest", changed.members(), EVIDENCE) == UNKNOWN


@pytest.mark.parametrize("sequence", [0, 1, 3, 4, 2**64 - 1])
def test_attest_rejects_a_delta_with_another_sequence(attestation, history, controller, sequence):
    changed = replace(history[1], sequence=sequence)
    assert attestation.rejection(controller.address, "attest", changed.members(), EVIDENCE) == UNKNOWN


def test_attest_tells_spaces_apart_that_hold_the_same_content(
    attestation, commit, space, foreign_space, controller, outsider
):
    ours, theirs = commit(space), commit(foreign_space)
    assert replace(ours, space_id=foreign_space) == theirs
    attestation.must_perform(controller.address, "attest", ours.members(), EVIDENCE)
    assert attestation.rejection(controller.address, "attest", theirs.members(), EVIDENCE) == NOT_CONTROLLER
    assert attestation.rejection(outsider.address, "attest", theirs.members(), EVIDENCE) is None
    second = replace(commit(foreign_space), space_id=space)
    assert attestation.rejection(controller.address, "attest", second.members(), EVIDENCE) == UNKNOWN


@given(delta=deltas)
def test_attest_rejects_any_delta_that_was_never_committed(attestation, history, controller, delta):
    assert attestation.rejection(controller.address, "attest", delta.members(), EVIDENCE) == UNKNOWN


def test_attest_rejects_the_next_delta_until_it_is_committed(
    attestation, registry, history, space, authorizer, relayer, controller
):
    delta = registry.next_delta(space)
    assert attestation.rejection(controller.address, "attest", delta.members(), EVIDENCE) == UNKNOWN
    registry.must_perform(registry.signed(delta, authorizer), relayer.address)
    assert attestation.rejection(controller.address, "attest", delta.members(), EVIDENCE) is None


def test_attest_rejects_a_transition_of_another_registry(
    attestation, registries, space, controller, authorizer, relayer
):
    """The same space of the same controller, once in each; only the other one holds the transition."""
    other = registries["NormativeMemoryRegistry"]
    there = other.registration(controller, authorizer.address, keccak(text="space"))
    other.must_perform(there, relayer.address)
    delta = other.next_delta(there.space_id)
    other.must_perform(other.signed(delta, authorizer), relayer.address)
    assert delta.space_id == space
    assert attestation.rejection(controller.address, "attest", delta.members(), EVIDENCE) == UNKNOWN


@pytest.mark.parametrize("at", range(24))
def test_attest_reverts_on_dirty_bits_above_the_sequence(attestation, history, controller, node, at):
    data = bytearray(attestation.encode_call("attest", history[0].members(), EVIDENCE))
    data[4 + 32 + at] = 1
    answer = node.call(attestation.address, bytes(data), sender=controller.address)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


# Who


def test_attest_rejects_everyone_but_the_controller(
    attestation, registry, history, authorizer, relayer, outsider, auditor
):
    others = [authorizer, relayer, outsider, auditor]
    callers = [*(actor.address for actor in others), registry.address, attestation.address, bytes(20)]
    for caller in callers:
        assert attestation.rejection(caller, "attest", history[0].members(), EVIDENCE) == NOT_CONTROLLER


def test_a_replaced_controller_no_longer_attests_and_the_new_one_does(
    attestation, history, controller, new_controller, rotate
):
    attestation.must_perform(controller.address, "attest", history[0].members(), EVIDENCE)
    rotate()
    for delta in history:
        rejection = attestation.rejection(controller.address, "attest", delta.members(), EVIDENCE)
        assert rejection == NOT_CONTROLLER
    outcome = attestation.perform(new_controller.address, "attest", history[1].members(), EVIDENCE)
    assert outcome == attested(history[1], EVIDENCE, new_controller)


def test_a_new_controller_cannot_change_what_the_old_one_attested(
    attestation, history, controller, new_controller, rotate
):
    attestation.must_perform(controller.address, "attest", history[0].members(), EVIDENCE)
    rotate()
    rejection = attestation.rejection(
        new_controller.address, "attest", history[0].members(), keccak(text="other evidence")
    )
    assert rejection == Rejection("AlreadyAttested")
    assert attestation.answer("evidenceOf", hash_experience_delta(history[0])) == EVIDENCE


def test_a_contract_wallet_attests_by_a_call_of_its_own(
    attestation, registry, history, space, controller, authorizer, relayer, outsider, wallets
):
    wallet = wallets[Behaviour.SAYS_YES]
    request = registry.update(space, wallet.address, authorizer.address, controller)
    registry.must_perform(request, relayer.address)
    assert attestation.rejection(outsider.address, "attest", history[0].members(), EVIDENCE) == NOT_CONTROLLER
    outcome = attestation.perform_through(wallet.address, relayer.address, "attest", history[0].members(), EVIDENCE)
    transition_id = hash_experience_delta(history[0])
    assert outcome == Event("DeletionAttested", (space, transition_id, EVIDENCE, wallet.address))


def test_another_wallet_of_the_same_code_cannot_attest(attestation, history, relayer, wallets, node):
    data = attestation.encode_call("attest", history[0].members(), EVIDENCE)
    wallet = wallets[Behaviour.OWNER_SIGNED]
    answer = node.call(wallet.address, encode_execute(attestation.address, data), sender=relayer.address)
    assert isinstance(answer, Reverted)
    assert attestation.decode_rejection(answer) == NOT_CONTROLLER


def test_a_controller_with_delegated_code_attests_with_its_key(attestation, history, controller, wallets, node):
    node.delegate(controller.address, wallets[Behaviour.SAYS_NO].address)
    outcome = attestation.perform(controller.address, "attest", history[0].members(), EVIDENCE)
    assert outcome == attested(history[0], EVIDENCE, controller)


# Once, and never empty


def test_attest_rejects_a_second_attestation_even_of_the_same_evidence(attestation, history, controller):
    attestation.must_perform(controller.address, "attest", history[0].members(), EVIDENCE)
    for evidence in (EVIDENCE, keccak(text="other evidence"), ZERO_WORD):
        rejection = attestation.rejection(controller.address, "attest", history[0].members(), evidence)
        assert rejection == Rejection("AlreadyAttested")


def test_attest_rejects_a_commitment_of_zero(attestation, history, controller):
    rejection = attestation.rejection(controller.address, "attest", history[0].members(), ZERO_WORD)
    assert rejection == Rejection("EmptyEvidenceCommitment")


# Many things wrong at once: the first in the documented order names the error.

DEFECTS = {
    "unknown_transition": "UnknownTransition",
    "not_controller": "NotSpaceController",
    "already_attested": "AlreadyAttested",
    "empty_evidence": "EmptyEvidenceCommitment",
}
COMBINATIONS = list(chain.from_iterable(combinations(DEFECTS, size) for size in range(1, len(DEFECTS) + 1)))


@pytest.mark.parametrize("defects", COMBINATIONS, ids="+".join)
def test_attest_names_the_first_of_several_defects_and_changes_nothing(
    attestation, history, controller, outsider, node, defects
):
    delta = history[0]
    if "already_attested" in defects:
        attestation.must_perform(controller.address, "attest", delta.members(), EVIDENCE)
    if "unknown_transition" in defects:
        delta = replace(delta, profile_id=keccak(text="another"))
    caller = outsider if "not_controller" in defects else controller
    evidence = ZERO_WORD if "empty_evidence" in defects else EVIDENCE
    before = node.storage_root(attestation.address)
    outcome = attestation.perform(caller.address, "attest", delta.members(), evidence)
    assert outcome == Rejection(DEFECTS[defects[0]])
    assert node.storage_root(attestation.address) == before


def test_attest_calls_a_delta_of_an_unknown_space_an_unknown_transition(attestation, history, controller):
    delta = replace(history[0], space_id=keccak(text="nowhere"))
    assert attestation.rejection(controller.address, "attest", delta.members(), EVIDENCE) == UNKNOWN


# Registries that lie


def authorization(controller: bytes) -> bytes:
    return word(controller) + word(b"\x22" * 20) + word(0)


def root_after(delta) -> bytes:
    return compute_next_state_root(delta.prev_state_root, hash_experience_delta(delta))


def test_a_registry_that_knows_only_zero_roots_proves_no_transition(over_liar, history, controller):
    record = over_liar(
        "DeletionAttestation",
        {"stateRootAt": ZERO_WORD, "spaceAuthorization": authorization(controller.address)},
    )
    assert record.rejection(controller.address, "attest", history[0].members(), EVIDENCE) == UNKNOWN


OTHER_ROOTS = {
    "transition_id": hash_experience_delta,
    "previous_root": lambda delta: delta.prev_state_root,
    "delta_commitment": lambda delta: delta.delta_commitment,
    "root_with_a_bit_flipped": lambda delta: root_after(delta)[:31] + bytes([root_after(delta)[31] ^ 1]),
}


@pytest.mark.parametrize("root", OTHER_ROOTS)
def test_a_registry_with_another_root_proves_no_transition(over_liar, history, controller, root):
    record = over_liar(
        "DeletionAttestation",
        {"stateRootAt": OTHER_ROOTS[root](history[1]), "spaceAuthorization": authorization(controller.address)},
    )
    assert record.rejection(controller.address, "attest", history[1].members(), EVIDENCE) == UNKNOWN


def test_a_space_without_a_controller_is_unknown_whoever_calls(over_liar, history, controller):
    record = over_liar(
        "DeletionAttestation",
        {"stateRootAt": root_after(history[0]), "spaceAuthorization": authorization(bytes(20))},
    )
    for caller in (controller.address, bytes(20)):
        rejection = record.rejection(caller, "attest", history[0].members(), EVIDENCE)
        assert rejection == Rejection("UnknownSpace")


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"stateRootAt": b""},
        {"stateRootAt": bytes(31)},
        {"spaceAuthorization": b""},
        {"spaceAuthorization": bytes(95)},
        {"spaceAuthorization": b"\x01" + bytes(95)},
        {"spaceAuthorization": bytes(64) + b"\x01" + bytes(31)},
    ],
    ids=[
        "nothing_known",
        "no_root",
        "short_root",
        "no_authorization",
        "short_authorization",
        "dirty_controller",
        "dirty_nonce",
    ],
)
def test_a_registry_that_answers_no_words_ends_every_call(over_liar, history, controller, answers):
    told = {"stateRootAt": root_after(history[0]), "spaceAuthorization": authorization(controller.address)} | answers
    record = over_liar("DeletionAttestation", told if answers else {})
    outcome = record.perform(controller.address, "attest", history[0].members(), EVIDENCE)
    assert outcome == SILENT
    assert record.answer("evidenceOf", hash_experience_delta(history[0])) == ZERO_WORD


def test_a_registry_whose_code_is_gone_ends_every_call(over_liar, history, controller):
    record = over_liar("DeletionAttestation", None)
    assert record.perform(controller.address, "attest", history[0].members(), EVIDENCE) == SILENT


def test_the_registrys_own_error_is_handed_on(over_liar, history, controller):
    refusal = keccak(text="ClosedForToday(uint256)")[:4] + word(7)
    record = over_liar("DeletionAttestation", {"stateRootAt": root_after(history[0])}, refusal)
    outcome = record.perform(controller.address, "attest", history[0].members(), EVIDENCE)
    assert outcome == Rejection(f"0x{refusal.hex()}")
