"""The registry client, with our registry and with one that has the normative interface alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from melete import (
    GENESIS,
    Address,
    Bytes32,
    CallableSigner,
    ExperienceDelta,
    Head,
    LocalSigner,
    MemoryRegistry,
    SpaceAuthorization,
    Witness,
    compute_profile_id,
    compute_space_id,
    compute_transition_id,
    keccak256,
    memory_state_domain,
    verify_history,
)
from melete.chain.anvil import Anvil
from melete.chain.connection import call, connect
from melete.chain.transactions import LocalSender
from melete.errors import (
    BadPreviousState,
    BadSequence,
    ConfigurationError,
    ContractError,
    CrossCheckFailed,
    InvalidAuthorization,
    InvalidSpaceId,
    MeleteError,
    NoContract,
    NotARegistry,
    SpaceAlreadyRegistered,
    UnknownSpace,
    WrongChain,
    ZeroAddress,
    ZeroDeltaCommitment,
    ZeroProfileId,
    ZeroSpaceId,
)
from melete.memory.events import SpaceAuthorizationUpdated, SpaceRegistered, TransitionCommitted
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32

NOWHERE = keccak256(b"a space that nobody registered")


def make_delta(space_id: Bytes32, head: Head = GENESIS, payload: bytes = b"payload") -> ExperienceDelta:
    return Witness(compute_profile_id("test/1"), payload, keccak256(b"salt")).build_delta(space_id, head)


def refusal(question, *arguments: object) -> MeleteError:
    """Return the error that a question ends in."""
    with pytest.raises(MeleteError) as caught:
        question(*arguments)
    return caught.value


# Register, rotate, commit


def test_register_relays_what_the_controller_signed(registry, controller, authorizer, salt):
    event = registry.register(authorizer.address, salt, controller=controller)
    assert event.space_id == compute_space_id(controller.address, salt)
    assert (event.controller, event.authorizer) == (controller.address, authorizer.address)
    assert registry.authorization(event.space_id) == SpaceAuthorization(controller.address, authorizer.address, 0)
    assert registry.head(event.space_id) == GENESIS


def test_register_without_a_controller_makes_the_sender_controller(registry, relayer, authorizer, salt):
    event = registry.register(authorizer.address, salt)
    assert event.controller == relayer.address


def test_rotate_counts_every_update(registry, space_id, controller, outsider, authorizer):
    first = registry.rotate(space_id, outsider.address, authorizer.address, controller=controller)
    second = registry.rotate(space_id, controller.address, outsider.address, controller=outsider)
    assert (first.config_nonce, second.config_nonce) == (1, 2)
    assert registry.authorization(space_id) == SpaceAuthorization(controller.address, outsider.address, 2)


def test_rotate_directly_needs_no_signature(registry, relayer, authorizer, outsider, salt):
    space_id = registry.register(authorizer.address, salt).space_id
    event = registry.rotate(space_id, relayer.address, outsider.address)
    assert event.authorizer == outsider.address


def test_commit_relays_what_the_authorizer_signed(registry, space_id, authorizer):
    delta = make_delta(space_id)
    event = registry.commit(delta, authorizer=authorizer)
    assert event.delta == delta
    assert event.transition_id == compute_transition_id(delta)
    assert event.authorizer == authorizer.address
    assert registry.head(space_id) == Head(event.transition_id, event.next_state_root, 1)


def test_commit_directly_needs_no_signature(registry, controller, relayer, salt):
    space_id = registry.register(relayer.address, salt, controller=controller).space_id
    assert registry.commit(make_delta(space_id)).authorizer == relayer.address


def test_commit_takes_a_contract_wallets_approval(registry, controller, wallet, salt):
    space_id = registry.register(wallet.address, salt, controller=controller).space_id
    assert registry.commit(make_delta(space_id), authorizer=wallet).authorizer == wallet.address


def test_ten_commits_read_back_as_one_verified_history(registry, space_id, authorizer):
    head = GENESIS
    for number in range(10):
        event = registry.commit(make_delta(space_id, head, b"%d" % number), authorizer=authorizer)
        head = Head(event.transition_id, event.next_state_root, event.delta.sequence)
    transitions = [event.transition for event in registry.transitions(space_id)]
    assert verify_history(space_id, transitions) == head == registry.head(space_id)


def test_events_tell_a_spaces_whole_life_in_order(registry, space_id, controller, authorizer, outsider):
    registry.commit(make_delta(space_id), authorizer=authorizer)
    registry.rotate(space_id, controller.address, outsider.address, controller=controller)
    events = list(registry.events(space_id))
    assert [type(event) for event in events] == [SpaceRegistered, TransitionCommitted, SpaceAuthorizationUpdated]
    assert all(event.space_id == space_id for event in events if not isinstance(event, TransitionCommitted))
    blocks = [event.reference.block_number for event in events]
    assert blocks == sorted(blocks)
    assert len({event.reference.transaction_hash for event in events}) == 3


def test_state_at_an_earlier_block_is_what_it_was(registry, space_id, authorizer, w3):
    before = w3.eth.block_number
    registry.commit(make_delta(space_id), authorizer=authorizer)
    assert registry.head(space_id, before) == GENESIS
    assert registry.head(space_id).sequence == 1


def test_state_root_at_answers_for_every_number_of_ours(our_registry, controller, authorizer, salt):
    space_id = our_registry.register(authorizer.address, salt, controller=controller).space_id
    event = our_registry.commit(make_delta(space_id), authorizer=authorizer)
    roots = [our_registry.state_root_at(space_id, number) for number in (0, 1, 2, 2**64 - 1)]
    assert roots == [ZERO_BYTES32, event.next_state_root, ZERO_BYTES32, ZERO_BYTES32]


# The same first error by local checks and by the contract, and nothing sent


def contract_refusal(registry: MemoryRegistry, data: bytes) -> ContractError:
    """What the contract itself says to a call from the sender."""
    error = refusal(call, registry.w3, registry.address, data, registry.sender.address)
    assert isinstance(error, ContractError)
    return error


def wrong_deltas(space_id: Bytes32) -> list[tuple[ExperienceDelta, ContractError]]:
    good = make_delta(space_id)
    other = keccak256(b"another state")
    return [
        (replace(good, space_id=NOWHERE, delta_commitment=ZERO_BYTES32), UnknownSpace()),
        (replace(good, delta_commitment=ZERO_BYTES32, profile_id=ZERO_BYTES32), ZeroDeltaCommitment()),
        (replace(good, profile_id=ZERO_BYTES32, sequence=9), ZeroProfileId()),
        (replace(good, sequence=2, prev_state_root=other), BadSequence(1, 2)),
        (replace(good, sequence=0), BadSequence(1, 0)),
        (replace(good, prev_state_root=other), BadPreviousState(ZERO_BYTES32, other)),
        (good, InvalidAuthorization()),
    ]


@pytest.mark.parametrize("case", range(7))
def test_commit_is_refused_before_it_is_sent_by_the_contracts_own_error(registry, space_id, relayer, w3, case):
    delta, expected = wrong_deltas(space_id)[case]
    nonce = w3.eth.get_transaction_count(str(relayer.address))
    predicted = refusal(registry.commit, delta)
    assert type(predicted) is type(expected)
    assert vars(predicted) == vars(expected)
    stated = contract_refusal(registry, registry.commit_call(delta, b""))
    assert (type(stated), vars(stated)) == (type(predicted), vars(predicted))
    assert w3.eth.get_transaction_count(str(relayer.address)) == nonce


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"space_id": ZERO_BYTES32, "controller": ZERO_ADDRESS}, ZeroSpaceId),
        ({"controller": ZERO_ADDRESS, "space_id": NOWHERE}, ZeroAddress),
        ({"authorizer": ZERO_ADDRESS}, ZeroAddress),
        ({"space_id": NOWHERE}, InvalidSpaceId),
        ({}, SpaceAlreadyRegistered),
    ],
)
def test_register_is_refused_by_the_contracts_own_error(
    registry, space_id, controller, authorizer, salt, changes, kind
):
    good = {"space_id": space_id, "controller": controller.address, "authorizer": authorizer.address, "salt": salt}
    arguments = {**good, **changes}
    predicted = refusal(lambda: registry.check_register(**arguments))
    assert type(predicted) is kind
    stated = contract_refusal(registry, registry._register_call(*arguments.values(), b""))
    assert (type(stated), vars(stated)) == (kind, vars(predicted))


def test_register_for_somebody_else_needs_their_approval(registry, controller, authorizer, salt):
    space_id = compute_space_id(controller.address, salt)
    assert isinstance(
        refusal(registry.check_register, space_id, controller.address, authorizer.address, salt), InvalidAuthorization
    )


@pytest.mark.parametrize("case", range(3))
def test_rotate_is_refused_by_the_contracts_own_error(registry, space_id, controller, outsider, case):
    zero, known = ZERO_ADDRESS, controller.address
    arguments, kind = [
        ((NOWHERE, zero, known), ZeroAddress),
        ((NOWHERE, known, known), UnknownSpace),
        ((space_id, known, known), InvalidAuthorization),
    ][case]
    predicted = refusal(registry.check_rotate, *arguments)
    stated = contract_refusal(registry, registry._rotate_call(*arguments, b""))
    assert type(predicted) is type(stated) is kind


def test_an_outsiders_signature_is_refused_before_it_is_sent(registry, space_id, outsider):
    assert isinstance(refusal(lambda: registry.commit(make_delta(space_id), authorizer=outsider)), InvalidAuthorization)


def test_a_signature_for_another_registry_is_refused(registry, space_id, authorizer):
    foreign = memory_state_domain(registry.chain_id, Address(b"\x44" * 20))
    signature = authorizer.sign_digest(foreign.digest(compute_transition_id(make_delta(space_id))))
    signer = CallableSigner(authorizer.address, lambda _: signature)
    assert isinstance(refusal(lambda: registry.commit(make_delta(space_id), authorizer=signer)), InvalidAuthorization)


def test_a_wallet_that_only_answers_off_chain_is_caught_by_simulation(registry, controller, deploy, salt):
    """Asked by itself such a wallet says yes; asked by the registry, which lets it change nothing, it cannot."""
    writes_first = 20
    wallet = deploy("ConfigurableWallet", writes_first, str(controller.address))
    space_id = registry.register(wallet, salt, controller=controller).space_id
    delta, signer = make_delta(space_id), CallableSigner(wallet, lambda _: b"please")
    assert registry.is_approved(wallet, registry.domain.digest(compute_transition_id(delta)), b"please")
    assert isinstance(refusal(lambda: registry.commit(delta, authorizer=signer)), InvalidAuthorization)


def test_a_delta_already_committed_is_told_from_the_moved_head(registry, space_id, authorizer):
    delta = make_delta(space_id)
    registry.commit(delta, authorizer=authorizer)
    error = refusal(lambda: registry.commit(delta, authorizer=authorizer))
    assert (type(error), vars(error)) == (BadSequence, {"expected": 2, "received": 1})


# Reading what is not there


def test_unknown_spaces_are_unknown_to_every_view(registry):
    for view in (registry.head, registry.authorization, registry.load_state):
        assert isinstance(refusal(view, NOWHERE), UnknownSpace)
    assert list(registry.events(NOWHERE)) == []


def test_views_of_ours_that_a_registry_lacks_are_contract_errors(w3, deploy):
    normative = MemoryRegistry(w3, deploy("NormativeMemoryRegistry"))
    assert isinstance(refusal(normative.state_root_at, NOWHERE, 1), ContractError)


# The registry itself


def test_cross_check_agrees_in_every_view_with_ours(our_registry):
    checked = our_registry.cross_check()
    assert set(checked.agreed) >= {"deriveSpaceId", "hashExperienceDelta", "domainSeparator", "eip712Domain"}
    assert checked.unanswered == ()


def test_cross_check_lists_what_a_normative_registry_does_not_answer(w3, deploy):
    checked = MemoryRegistry(w3, deploy("NormativeMemoryRegistry")).cross_check()
    assert checked.agreed == ("deriveSpaceId",)
    assert "domainSeparator" in checked.unanswered


def test_cross_check_catches_another_domain(our_registry):
    our_registry.domain = memory_state_domain(our_registry.chain_id + 1, our_registry.address)
    error = refusal(our_registry.cross_check)
    assert isinstance(error, CrossCheckFailed)
    assert error.view == "domainSeparator"


def test_an_address_without_code_is_named(w3, outsider):
    error = refusal(MemoryRegistry, w3, outsider.address)
    assert isinstance(error, NoContract)
    assert str(outsider.address) in str(error)


@pytest.mark.parametrize("behaviour", [4, 5])
def test_an_address_with_other_code_is_named(w3, deploy, outsider, behaviour):
    other = deploy("ConfigurableWallet", behaviour, str(outsider.address))
    error = refusal(MemoryRegistry, w3, other)
    assert isinstance(error, NotARegistry)
    assert str(other) in str(error)


def test_a_node_of_another_chain_is_named(w3, our_address):
    error = refusal(lambda: MemoryRegistry(w3, our_address, expected_chain_id=1))
    assert isinstance(error, WrongChain)
    assert vars(error) == {"expected": 1, "received": w3.eth.chain_id}


def test_sending_without_a_sender_says_what_is_missing(w3, our_address, space_id):
    error = refusal(MemoryRegistry(w3, our_address).commit, make_delta(space_id))
    assert isinstance(error, ConfigurationError | UnknownSpace)
    assert isinstance(
        refusal(lambda: MemoryRegistry(w3, our_address).register(ZERO_ADDRESS, ZERO_BYTES32)), ConfigurationError
    )


def test_a_checksum_that_is_wrong_never_reaches_the_node(w3, our_address):
    flipped = str(our_address).swapcase().replace("0X", "0x")
    error = refusal(MemoryRegistry, w3, flipped)
    assert "registry" in str(error)


def test_deploy_over_a_plain_connection_gives_a_working_registry(authorizer, controller):
    with Anvil() as node:
        w3 = connect(node.url, 31337)
        registry, receipt = MemoryRegistry.deploy(w3, LocalSender(LocalSigner(controller.account)))
        assert receipt.contract_address == registry.address
        space_id = registry.register(authorizer.address, keccak256(b"salt")).space_id
        event = registry.commit(make_delta(space_id), authorizer=authorizer)
        assert registry.head(space_id).state_root == event.next_state_root
