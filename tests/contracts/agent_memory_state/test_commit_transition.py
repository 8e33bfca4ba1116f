"""commitTransition: the next delta, on the current state, with the authorizer's approval of all seven fields."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import chain, combinations

import pytest
from eth_abi import decode, encode
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_utils import keccak, to_checksum_address
from hypothesis import assume, given
from hypothesis import strategies as st

from anvil import Reverted
from memory_state import Actor, Behaviour, Registry, encode_execute, encode_request
from models.memory import (
    ZERO_WORD,
    Accepted,
    CommitTransition,
    Delta,
    Event,
    Rejection,
    compute_next_state_root,
    compute_signing_digest,
    hash_experience_delta,
    hash_space_registration,
    hash_words,
)
from strategies import UINT64_MAX, delta_contents, deltas, nonzero_words, uint64s, words

UNAPPROVED = Rejection("InvalidAuthorization")


def committed(delta: Delta, authorizer: bytes) -> Accepted:
    """What an accepted delta has to emit and return."""
    transition_id = hash_experience_delta(delta)
    next_state_root = compute_next_state_root(delta.prev_state_root, transition_id)
    arguments = (
        delta.space_id,
        transition_id,
        delta.sequence,
        delta.prev_state_root,
        next_state_root,
        delta.delta_commitment,
        delta.provenance_commitment,
        delta.profile_id,
        delta.locator_commitment,
        authorizer,
    )
    return Accepted(Event("TransitionCommitted", arguments), (transition_id, next_state_root))


def test_commit_transition_appends_one_after_another(registry, space, authorizer, relayer):
    state_root = ZERO_WORD
    for sequence in range(1, 6):
        delta = Delta(
            space_id=space,
            sequence=sequence,
            prev_state_root=state_root,
            delta_commitment=keccak(text=f"delta {sequence}"),
            provenance_commitment=keccak(text=f"provenance {sequence}"),
            profile_id=keccak(text=f"profile {sequence}"),
            locator_commitment=keccak(text=f"locator {sequence}"),
        )
        expected = committed(delta, authorizer.address)
        assert registry.perform(registry.signed(delta, authorizer), relayer.address) == expected
        transition_id, state_root = expected.returned
        assert registry.head(space) == (transition_id, state_root, sequence)


def test_commit_transition_accepts_a_direct_call_without_signature(registry, space, authorizer):
    delta = registry.next_delta(space)
    expected = committed(delta, authorizer.address)
    assert registry.perform(CommitTransition(delta), authorizer.address) == expected


def test_commit_transition_accepts_any_relayer(registry, space, authorizer, controller, relayer, outsider):
    """The transaction's sender has no authority, and is not needed to have any."""
    for sender in (relayer, outsider, controller, authorizer):
        delta = registry.next_delta(space)
        request = registry.signed(delta, authorizer)
        assert registry.perform(request, sender.address) == committed(delta, authorizer.address)


def test_commit_transition_names_the_authorizer_in_its_event_and_not_the_relayer(registry, space, authorizer, relayer):
    accepted = registry.commit_next(space, authorizer, relayer.address)
    assert accepted.event.arguments[-1] == authorizer.address


def test_commit_transition_accepts_absent_optional_commitments(registry, space, authorizer, relayer):
    delta = registry.next_delta(space, provenance_commitment=ZERO_WORD, locator_commitment=ZERO_WORD)
    expected = committed(delta, authorizer.address)
    assert registry.perform(registry.signed(delta, authorizer), relayer.address) == expected


def test_commit_transition_accepts_the_same_content_again(registry, space, authorizer, relayer):
    """What repeats is told apart by sequence and root, so both have ids of their own."""
    content = {"delta_commitment": keccak(text="same"), "profile_id": keccak(text="same")}
    first = registry.commit_next(space, authorizer, relayer.address, **content)
    second = registry.commit_next(space, authorizer, relayer.address, **content)
    assert first.returned[0] != second.returned[0]
    assert registry.head(space)[2] == 2


def test_commit_transition_keeps_spaces_apart(registry, space, other_space, authorizer, relayer):
    for turn in (space, other_space, other_space, space, other_space):
        registry.commit_next(turn, authorizer, relayer.address)
    assert registry.head(space)[2] == 2
    assert registry.head(other_space)[2] == 3


@given(content=delta_contents)
def test_commit_transition_accepts_any_content(registry, space, authorizer, relayer, content):
    delta = registry.next_delta(space, **content)
    answer = registry.ask(registry.signed(delta, authorizer), relayer.address)
    assert answer == committed(delta, authorizer.address).returned


# What is refused, one thing at a time.


@given(delta=deltas)
def test_commit_transition_rejects_unknown_space(registry, space, authorizer, delta):
    assume(delta.space_id != space)
    assert registry.rejection(CommitTransition(delta), authorizer.address) == Rejection("UnknownSpace")


def test_commit_transition_rejects_zero_delta_commitment(registry, space, authorizer, relayer):
    delta = registry.next_delta(space, delta_commitment=ZERO_WORD)
    rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
    assert rejection == Rejection("ZeroDeltaCommitment")


def test_commit_transition_rejects_zero_profile_id(registry, space, authorizer, relayer):
    delta = registry.next_delta(space, profile_id=ZERO_WORD)
    rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
    assert rejection == Rejection("ZeroProfileId")


def test_commit_transition_rejects_skipped_sequence(registry, space, authorizer, relayer):
    registry.commit_next(space, authorizer, relayer.address)
    delta = registry.next_delta(space, sequence=3)
    rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
    assert rejection == Rejection("BadSequence", (2, 3))


def test_commit_transition_rejects_repeated_sequence(registry, space, authorizer, relayer):
    registry.commit_next(space, authorizer, relayer.address)
    delta = registry.next_delta(space, sequence=1)
    rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
    assert rejection == Rejection("BadSequence", (2, 1))


def test_commit_transition_rejects_sequence_zero_at_the_start(registry, space, authorizer, relayer):
    delta = registry.next_delta(space, sequence=0)
    rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
    assert rejection == Rejection("BadSequence", (1, 0))


@given(sequence=uint64s)
def test_commit_transition_rejects_every_sequence_but_the_next(registry, space, authorizer, relayer, sequence):
    delta = registry.next_delta(space, sequence=sequence)
    rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
    assert rejection == (None if sequence == 1 else Rejection("BadSequence", (1, sequence)))


@given(prev_state_root=nonzero_words)
def test_commit_transition_rejects_a_first_transition_on_another_state_than_zero(
    registry, space, authorizer, relayer, prev_state_root
):
    delta = registry.next_delta(space, prev_state_root=prev_state_root)
    rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
    assert rejection == Rejection("BadPreviousState", (ZERO_WORD, prev_state_root))


def test_commit_transition_rejects_an_older_state(registry, space, authorizer, relayer):
    roots = [ZERO_WORD]
    for _ in range(3):
        roots.append(registry.commit_next(space, authorizer, relayer.address).returned[1])
    for older in roots[:-1]:
        delta = registry.next_delta(space, prev_state_root=older)
        rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
        assert rejection == Rejection("BadPreviousState", (roots[-1], older))


def test_commit_transition_rejects_the_transition_id_in_place_of_the_state(registry, space, authorizer, relayer):
    transition_id, state_root = registry.commit_next(space, authorizer, relayer.address).returned
    delta = registry.next_delta(space, prev_state_root=transition_id)
    rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
    assert rejection == Rejection("BadPreviousState", (state_root, transition_id))


def test_commit_transition_rejects_the_state_of_another_space(registry, space, other_space, authorizer, relayer):
    ours = registry.commit_next(space, authorizer, relayer.address).returned[1]
    theirs = registry.commit_next(other_space, authorizer, relayer.address).returned[1]
    delta = registry.next_delta(space, prev_state_root=theirs)
    rejection = registry.rejection(registry.signed(delta, authorizer), relayer.address)
    assert rejection == Rejection("BadPreviousState", (ours, theirs))


def test_commit_transition_rejects_an_empty_signature_from_another_caller(
    registry, space, controller, relayer, outsider
):
    request = CommitTransition(registry.next_delta(space))
    for caller in (relayer, outsider, controller):
        assert registry.rejection(request, caller.address) == UNAPPROVED


def test_commit_transition_rejects_the_signature_of_anyone_else(registry, space, controller, relayer, outsider):
    """The controller appoints the authorizer; it does not stand in for it."""
    delta = registry.next_delta(space)
    for signer in (controller, relayer, outsider):
        assert registry.rejection(registry.signed(delta, signer), relayer.address) == UNAPPROVED
        assert registry.rejection(registry.signed(delta, signer), signer.address) == UNAPPROVED


def test_commit_transition_rejects_a_contract_that_calls_for_its_sender(registry, space, authorizer, wallets, node):
    """The direct caller counts, never the origin of the transaction."""
    stranger = wallets[Behaviour.SAYS_YES]
    data = encode_execute(registry.address, encode_request(CommitTransition(registry.next_delta(space))))
    answer = node.call(stranger.address, data, sender=authorizer.address)
    assert isinstance(answer, Reverted)
    assert answer.data == keccak(text="InvalidAuthorization()")[:4]
    with registry.unchanged():
        assert not node.send(stranger.address, data, sender=authorizer.address).succeeded


# All seven fields are signed.

FIELDS = [field.name for field in fields(Delta)]


@pytest.mark.parametrize("bit", [0, 255], ids=["highest_bit", "lowest_bit"])
@pytest.mark.parametrize("field", FIELDS)
def test_commit_transition_rejects_a_signature_over_one_flipped_bit(registry, space, authorizer, relayer, field, bit):
    delta = registry.next_delta(space)
    value = getattr(delta, field)
    if isinstance(value, int):
        flipped = replace(delta, **{field: value ^ (1 << 63 if bit == 0 else 1)})
    else:
        flipped = replace(delta, **{field: (int.from_bytes(value) ^ 1 << 255 - bit).to_bytes(32)})
    signature = registry.signed(flipped, authorizer).signature
    assert registry.rejection(CommitTransition(delta, signature), relayer.address) == UNAPPROVED
    assert registry.rejection(registry.signed(delta, authorizer), relayer.address) is None


@pytest.mark.parametrize("field", ["delta_commitment", "provenance_commitment", "profile_id", "locator_commitment"])
def test_commit_transition_rejects_content_changed_after_signing(registry, space, authorizer, relayer, field):
    request = registry.signed(registry.next_delta(space), authorizer)
    changed = replace(request, delta=replace(request.delta, **{field: keccak(text="changed")}))
    assert registry.rejection(changed, relayer.address) == UNAPPROVED


@given(signed=deltas)
def test_commit_transition_rejects_the_signature_of_any_other_delta(registry, space, authorizer, relayer, signed):
    delta = registry.next_delta(space)
    assume(signed != delta)
    signature = registry.signed(signed, authorizer).signature
    assert registry.rejection(CommitTransition(delta, signature), relayer.address) == UNAPPROVED


@given(field=st.sampled_from(FIELDS), position=st.integers(0, 255), content=delta_contents)
def test_commit_transition_rejects_a_signature_over_any_flipped_bit(
    registry, space, authorizer, relayer, field, position, content
):
    delta = registry.next_delta(space, **content)
    value = getattr(delta, field)
    if isinstance(value, int):
        flipped = replace(delta, **{field: value ^ 1 << position % 64})
    else:
        flipped = replace(delta, **{field: (int.from_bytes(value) ^ 1 << position).to_bytes(32)})
    signature = registry.signed(flipped, authorizer).signature
    assert registry.rejection(CommitTransition(delta, signature), relayer.address) == UNAPPROVED


@given(position=st.integers(0, 8 * 65 - 1))
def test_commit_transition_rejects_a_signature_with_any_bit_flipped(registry, space, authorizer, relayer, position):
    request = registry.signed(registry.next_delta(space), authorizer)
    flipped = (int.from_bytes(request.signature) ^ 1 << position).to_bytes(65)
    assert registry.rejection(replace(request, signature=flipped), relayer.address) == UNAPPROVED


def test_commit_transition_rejects_signatures_over_anything_but_the_digest(registry, space, authorizer, relayer):
    """The bare struct hash, the digest prefixed once more as a message, other domains."""
    delta = registry.next_delta(space)
    struct_hash = hash_experience_delta(delta)
    domain_type = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"

    def under(name: str, version: str, chain_id: int = registry.chain_id, contract=registry.address):
        domain = hash_words(domain_type, keccak(text=name), keccak(text=version), chain_id, contract)
        return compute_signing_digest(domain, struct_hash)

    assert under("AgentMemoryState", "1") == registry.digest(struct_hash)
    message = encode_defunct(registry.digest(struct_hash))
    signatures = {
        "bare struct hash": authorizer.sign(struct_hash),
        "personal message": bytes(Account.sign_message(message, authorizer.key).signature),
        "other name": authorizer.sign(under("AgentMemory", "1")),
        "other version": authorizer.sign(under("AgentMemoryState", "2")),
        "other chain": authorizer.sign(under("AgentMemoryState", "1", chain_id=1)),
        "other contract": authorizer.sign(under("AgentMemoryState", "1", contract=relayer.address)),
        "a registration": authorizer.sign(
            registry.digest(hash_space_registration(space, authorizer.address, authorizer.address))
        ),
    }
    for name, signature in signatures.items():
        request = CommitTransition(delta, signature)
        assert registry.rejection(request, relayer.address) == UNAPPROVED, name


def test_commit_transition_accepts_what_a_wallet_signs_as_typed_data(registry, space, authorizer, relayer):
    """An outside witness: the signature comes from the typed data, not from a digest of ours."""
    delta = registry.next_delta(space)
    names = ("spaceId", "sequence", "prevStateRoot", "deltaCommitment")
    names += ("provenanceCommitment", "profileId", "locatorCommitment")
    types = [{"name": name, "type": "uint64" if name == "sequence" else "bytes32"} for name in names]
    signed = Account.sign_typed_data(
        authorizer.key,
        domain_data={
            "name": "AgentMemoryState",
            "version": "1",
            "chainId": registry.chain_id,
            "verifyingContract": to_checksum_address(registry.address),
        },
        message_types={"ExperienceDelta": types},
        message_data=dict(zip(names, delta.members(), strict=True)),
    )
    request = CommitTransition(delta, bytes(signed.signature))
    assert registry.rejection(request, relayer.address) is None


# Replay.


def test_commit_transition_rejects_its_own_repetition(registry, space, authorizer, relayer):
    request = registry.signed(registry.next_delta(space), authorizer)
    registry.must_perform(request, relayer.address)
    assert registry.rejection(request, relayer.address) == Rejection("BadSequence", (2, 1))


def test_commit_transition_rejects_a_replay_in_another_space(registry, space, other_space, authorizer, relayer):
    request = registry.signed(registry.next_delta(space), authorizer)
    replayed = replace(request, delta=replace(request.delta, space_id=other_space))
    assert registry.rejection(replayed, relayer.address) == UNAPPROVED


def test_commit_transition_rejects_a_replay_in_another_registry(
    registry, other_registry, space, controller, authorizer, relayer
):
    """The same space, accounts and head: only the verifying contract differs."""
    there = other_registry.registration(controller, authorizer.address, keccak(text="space"))
    other_registry.must_perform(there, relayer.address)
    assert there.space_id == space
    request = other_registry.signed(registry.next_delta(space), authorizer)
    assert other_registry.rejection(request, relayer.address) is None
    assert registry.rejection(request, relayer.address) == UNAPPROVED


def test_commit_transition_rejects_a_replay_on_another_chain(registry, space, authorizer, relayer, node):
    """A chain that splits off takes the space with it, but no signature."""
    request = registry.signed(registry.next_delta(space), authorizer)
    with node.on_chain(10):
        assert registry.rejection(request, relayer.address) == UNAPPROVED
        signed_there = replace(registry, chain_id=10).signed(request.delta, authorizer)
        assert registry.rejection(signed_there, relayer.address) is None
    assert registry.rejection(signed_there, relayer.address) == UNAPPROVED
    assert registry.rejection(request, relayer.address) is None


def test_commit_transition_rejects_a_signature_made_before_a_rotation(
    registry, space, controller, authorizer, new_authorizer, relayer
):
    early = registry.signed(registry.next_delta(space), authorizer)
    update = registry.update(space, controller.address, new_authorizer.address, controller)
    registry.must_perform(update, relayer.address)
    assert registry.rejection(early, relayer.address) == UNAPPROVED
    assert registry.rejection(replace(early, signature=b""), authorizer.address) == UNAPPROVED


def test_commit_transition_accepts_an_early_signature_when_its_authorizer_returns(
    registry, space, controller, authorizer, new_authorizer, relayer
):
    """As documented: a delta binds sequence and root, and not the number of rotations."""
    early = registry.signed(registry.next_delta(space), authorizer)
    for appointed in (new_authorizer, authorizer):
        update = registry.update(space, controller.address, appointed.address, controller)
        registry.must_perform(update, relayer.address)
    expected = committed(early.delta, authorizer.address)
    assert registry.perform(early, relayer.address) == expected


def test_commit_transition_rejects_an_early_signature_when_the_head_has_moved(
    registry, space, controller, authorizer, new_authorizer, relayer
):
    early = registry.signed(registry.next_delta(space), authorizer)
    update = registry.update(space, controller.address, new_authorizer.address, controller)
    registry.must_perform(update, relayer.address)
    registry.commit_next(space, new_authorizer, relayer.address)
    update = registry.update(space, controller.address, authorizer.address, controller)
    registry.must_perform(update, relayer.address)
    assert registry.rejection(early, relayer.address) == Rejection("BadSequence", (2, 1))


def test_commit_transition_accepts_no_competing_delta_after_the_first(registry, space, authorizer, relayer):
    """Two signed deltas for one place: whichever comes first, the other is refused."""
    one = registry.signed(registry.next_delta(space, delta_commitment=keccak(text="one")), authorizer)
    other = registry.signed(registry.next_delta(space, delta_commitment=keccak(text="other")), authorizer)
    registry.must_perform(other, relayer.address)
    assert registry.rejection(one, relayer.address) == Rejection("BadSequence", (2, 1))


# Calldata.


@pytest.mark.parametrize("byte", range(24))
def test_commit_transition_reverts_on_dirty_bits_above_the_sequence(registry, space, authorizer, node, byte):
    data = bytearray(encode_request(CommitTransition(registry.next_delta(space))))
    assert isinstance(node.call(registry.address, bytes(data), sender=authorizer.address), bytes)
    data[4 + 32 + byte] = 1
    answer = node.call(registry.address, bytes(data), sender=authorizer.address)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


def test_commit_transition_reverts_on_calldata_cut_short(registry, space, authorizer, node):
    """Of the direct call, the last word (the empty signature's length) and all before it are needed."""
    data = encode_request(CommitTransition(registry.next_delta(space)))
    assert isinstance(node.call(registry.address, data, sender=authorizer.address), bytes)
    for size in (len(data) - 1, len(data) - 32, 4 + 7 * 32, 4 + 32, 4):
        answer = node.call(registry.address, data[:size], sender=authorizer.address)
        assert isinstance(answer, Reverted)
        assert answer.data == b""


# The far end of the sequence: reached by writing storage, since nobody can commit 2^63 times.


def storage_slot_of_tip(registry: Registry, space: bytes, authorizer: Actor) -> int:
    """Where the word of this space lies that holds its authorizer and sequence."""
    for position in range(8):
        slot = int.from_bytes(keccak(space + position.to_bytes(32, "big")))
        if registry.node.storage(registry.address, slot)[-20:] == authorizer.address:
            return slot
    raise AssertionError("no storage word of the space ends in its authorizer")


def move_head(registry: Registry, space: bytes, authorizer: Actor, sequence: int, state_root: bytes) -> None:
    slot = storage_slot_of_tip(registry, space, authorizer)
    tip = sequence.to_bytes(12, "big") + authorizer.address
    registry.node.set_storage(registry.address, slot, tip)
    root_slot = int.from_bytes(keccak(sequence.to_bytes(32, "big") + (slot + 3).to_bytes(32, "big")))
    registry.node.set_storage(registry.address, root_slot, state_root)
    assert registry.head(space)[1:] == (state_root, sequence)
    assert registry.space_authorization(space)[1] == authorizer.address


@pytest.mark.parametrize(
    "sequence",
    [2**8 - 1, 2**16, 2**32 - 1, 2**32, 2**53, 2**63 - 2, 2**63 - 1, 2**63, UINT64_MAX - 1],
)
def test_commit_transition_counts_through_the_whole_range(memory_registry, memory_space, authorizer, relayer, sequence):
    state_root = keccak(text="far")
    move_head(memory_registry, memory_space, authorizer, sequence, state_root)
    delta = memory_registry.next_delta(memory_space)
    assert delta.sequence == sequence + 1
    expected = committed(delta, authorizer.address)
    request = memory_registry.signed(delta, authorizer)
    assert memory_registry.perform(request, relayer.address) == expected
    assert memory_registry.head(memory_space) == (*expected.returned, sequence + 1)
    assert memory_registry.state_root_at(memory_space, sequence + 1) == expected.returned[1]
    assert memory_registry.space_authorization(memory_space)[1] == authorizer.address


@pytest.mark.parametrize("sequence", [2**32, 2**63, UINT64_MAX])
def test_commit_transition_names_large_sequences_in_full(memory_registry, memory_space, authorizer, relayer, sequence):
    move_head(memory_registry, memory_space, authorizer, sequence - 1, keccak(text="far"))
    for wrong in (0, 1, sequence - 1, sequence ^ 1 << 62):
        delta = memory_registry.next_delta(memory_space, sequence=wrong)
        rejection = memory_registry.rejection(CommitTransition(delta), authorizer.address)
        assert rejection == Rejection("BadSequence", (sequence, wrong))


@pytest.mark.parametrize("sequence", [0, 1, UINT64_MAX - 1, UINT64_MAX])
def test_commit_transition_never_wraps_around(memory_registry, memory_space, authorizer, sequence):
    """A full space is full for good. No uint64 names the next number, so the error says zero."""
    move_head(memory_registry, memory_space, authorizer, UINT64_MAX, keccak(text="full"))
    delta = replace(memory_registry.next_delta(memory_space, prev_state_root=keccak(text="full")), sequence=sequence)
    rejection = memory_registry.rejection(CommitTransition(delta), authorizer.address)
    assert rejection == Rejection("BadSequence", (0, sequence))


def test_update_space_authorization_keeps_a_large_sequence(
    memory_registry, memory_space, controller, authorizer, new_authorizer, relayer
):
    """Authorizer and sequence share a word: changing the one must not touch the other."""
    move_head(memory_registry, memory_space, authorizer, UINT64_MAX, keccak(text="full"))
    update = memory_registry.update(memory_space, controller.address, new_authorizer.address, controller)
    memory_registry.must_perform(update, relayer.address)
    assert memory_registry.head(memory_space)[1:] == (keccak(text="full"), UINT64_MAX)
    assert memory_registry.space_authorization(memory_space) == (
        controller.address,
        new_authorizer.address,
        1,
    )


# What is refused, many things at once: the first in the decided order names the error.

DEFECTS = {
    "unknown_space": "UnknownSpace",
    "zero_delta_commitment": "ZeroDeltaCommitment",
    "zero_profile_id": "ZeroProfileId",
    "skipped_sequence": "BadSequence",
    "other_previous_state": "BadPreviousState",
    "unapproved": "InvalidAuthorization",
}
COMBINATIONS = list(chain.from_iterable(combinations(DEFECTS, size) for size in range(1, len(DEFECTS) + 1)))
CHANGES = {
    "unknown_space": {"space_id": keccak(text="unknown")},
    "zero_delta_commitment": {"delta_commitment": ZERO_WORD},
    "zero_profile_id": {"profile_id": ZERO_WORD},
    "skipped_sequence": {"sequence": 7},
    "other_previous_state": {"prev_state_root": keccak(text="other state")},
    "unapproved": {},
}


def spoilt(registry: Registry, space: bytes, authorizer: Actor, outsider: Actor, defects) -> CommitTransition:
    """A delta with these defects and no other: signed as it stands, unless unapproved."""
    delta = registry.next_delta(space)
    for defect in defects:
        delta = replace(delta, **CHANGES[defect])
    return registry.signed(delta, outsider if "unapproved" in defects else authorizer)


def arguments_of(error: str, expected: Delta, asked: Delta) -> tuple:
    if error == "BadSequence":
        return expected.sequence, asked.sequence
    if error == "BadPreviousState":
        return expected.prev_state_root, asked.prev_state_root
    return ()


@pytest.mark.parametrize("defects", COMBINATIONS, ids="+".join)
def test_commit_transition_names_the_first_of_several_defects(registry, space, authorizer, outsider, relayer, defects):
    registry.commit_next(space, authorizer, relayer.address)
    right = registry.next_delta(space)
    request = spoilt(registry, space, authorizer, outsider, defects)
    error = DEFECTS[defects[0]]
    expected = Rejection(error, arguments_of(error, right, request.delta))
    assert registry.rejection(request, relayer.address) == expected


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_rejected_transition_changes_nothing(registry, space, authorizer, outsider, relayer, defect):
    registry.commit_next(space, authorizer, relayer.address)
    right = registry.next_delta(space)
    request = spoilt(registry, space, authorizer, outsider, (defect,))
    with registry.unchanged():
        outcome = registry.perform(request, relayer.address)
    error = DEFECTS[defect]
    assert outcome == Rejection(error, arguments_of(error, right, request.delta))


@given(delta=deltas, content=words)
def test_commit_transition_judges_any_delta_as_the_model_does(
    registry, space, controller, authorizer, relayer, delta, content
):
    """Any words in any place, and each member right or wrong on its own."""
    model = registry.model()
    registration = registry.registration(controller, authorizer.address, keccak(text="space"))
    assert isinstance(model.apply(registration, relayer.address), Accepted)
    known = replace(delta, space_id=space)
    close = replace(known, sequence=1)
    closest = replace(close, prev_state_root=ZERO_WORD, delta_commitment=content)
    for asked in (delta, known, close, closest):
        for request in (registry.signed(asked, authorizer), CommitTransition(asked, content)):
            answer = registry.ask(request, relayer.address)
            fresh = replace(model, spaces=dict(model.spaces))
            outcome = fresh.apply(request, relayer.address)
            expected = outcome.returned if isinstance(outcome, Accepted) else outcome
            assert answer == expected


def test_the_error_arguments_are_the_plain_abi_encoding(registry, space, authorizer, node):
    """Decoded once without the help of the other tests."""
    delta = registry.next_delta(space, sequence=2**64 - 1)
    answer = node.call(registry.address, encode_request(CommitTransition(delta)), sender=authorizer.address)
    assert isinstance(answer, Reverted)
    assert answer.data[:4] == keccak(text="BadSequence(uint64,uint64)")[:4]
    assert answer.data[4:] == encode(["uint64", "uint64"], [1, 2**64 - 1])
    assert decode(["uint64", "uint64"], answer.data[4:]) == (1, 2**64 - 1)
