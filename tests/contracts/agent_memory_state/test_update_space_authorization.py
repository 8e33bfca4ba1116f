"""updateSpaceAuthorization: controller and authorizer change at once, with the current controller's approval."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import pytest
from eth_utils import keccak
from hypothesis import assume, given

from anvil import Reverted
from memory_state import Actor, Registry, encode_request
from models.memory import (
    ZERO_ADDRESS,
    Accepted,
    Event,
    Rejection,
    UpdateSpaceAuthorization,
    hash_space_authorization,
    hash_space_registration,
)
from strategies import nonzero_addresses, uint64s, words

UNAPPROVED = Rejection("InvalidAuthorization")


def test_update_space_authorization_accepts_a_relayed_signature(
    registry, space, controller, new_controller, new_authorizer, relayer
):
    request = registry.update(space, new_controller.address, new_authorizer.address, controller)
    event = Event("SpaceAuthorizationUpdated", (space, new_controller.address, new_authorizer.address, 1))
    assert registry.perform(request, relayer.address) == Accepted(event)
    assert registry.space_authorization(space) == (new_controller.address, new_authorizer.address, 1)


def test_update_space_authorization_accepts_a_direct_call_without_signature(
    registry, space, controller, new_controller, new_authorizer
):
    request = UpdateSpaceAuthorization(space, new_controller.address, new_authorizer.address)
    event = Event("SpaceAuthorizationUpdated", (space, new_controller.address, new_authorizer.address, 1))
    assert registry.perform(request, controller.address) == Accepted(event)
    assert registry.space_authorization(space) == (new_controller.address, new_authorizer.address, 1)


def test_update_space_authorization_counts_every_update(registry, space, controller, authorizer, relayer):
    for nonce in (1, 2, 3):
        request = registry.update(space, controller.address, authorizer.address, controller, nonce=nonce)
        event = Event("SpaceAuthorizationUpdated", (space, controller.address, authorizer.address, nonce))
        assert registry.perform(request, relayer.address) == Accepted(event)
        assert registry.space_authorization(space) == (controller.address, authorizer.address, nonce)


def test_update_space_authorization_may_change_the_authorizer_alone(
    registry, space, controller, new_authorizer, relayer
):
    request = registry.update(space, controller.address, new_authorizer.address, controller)
    registry.must_perform(request, relayer.address)
    assert registry.space_authorization(space) == (controller.address, new_authorizer.address, 1)


def test_update_space_authorization_may_change_the_controller_alone(
    registry, space, controller, authorizer, new_controller, relayer
):
    request = registry.update(space, new_controller.address, authorizer.address, controller)
    registry.must_perform(request, relayer.address)
    assert registry.space_authorization(space) == (new_controller.address, authorizer.address, 1)


def test_update_space_authorization_leaves_the_head_where_it_is(
    registry, space, controller, authorizer, new_controller, new_authorizer, relayer
):
    registry.commit_next(space, authorizer, relayer.address)
    registry.commit_next(space, authorizer, relayer.address)
    before = registry.head(space)
    request = registry.update(space, new_controller.address, new_authorizer.address, controller)
    registry.must_perform(request, relayer.address)
    assert registry.head(space) == before
    assert before[2] == 2


def test_update_space_authorization_leaves_other_spaces_alone(
    registry, space, other_space, controller, authorizer, new_controller, new_authorizer, relayer
):
    request = registry.update(space, new_controller.address, new_authorizer.address, controller)
    registry.must_perform(request, relayer.address)
    assert registry.space_authorization(other_space) == (controller.address, authorizer.address, 0)


def test_update_space_authorization_is_in_force_at_once(
    registry, space, controller, authorizer, new_controller, new_authorizer, relayer
):
    request = registry.update(space, new_controller.address, new_authorizer.address, controller)
    registry.must_perform(request, relayer.address)
    delta = registry.next_delta(space)
    assert registry.rejection(registry.signed(delta, authorizer), relayer.address) == UNAPPROVED
    assert registry.rejection(registry.signed(delta, new_authorizer), relayer.address) is None
    back = registry.update(space, controller.address, authorizer.address, controller)
    assert registry.rejection(back, relayer.address) == UNAPPROVED
    assert registry.rejection(back, controller.address) == UNAPPROVED
    back = registry.update(space, controller.address, authorizer.address, new_controller)
    assert registry.rejection(back, relayer.address) is None


# What is refused, one thing at a time.


def test_update_space_authorization_rejects_zero_new_controller(registry, space, controller, new_authorizer, relayer):
    request = registry.update(space, ZERO_ADDRESS, new_authorizer.address, controller)
    assert registry.rejection(request, relayer.address) == Rejection("ZeroAddress")


def test_update_space_authorization_rejects_zero_new_authorizer(registry, space, controller, new_controller, relayer):
    request = registry.update(space, new_controller.address, ZERO_ADDRESS, controller)
    assert registry.rejection(request, relayer.address) == Rejection("ZeroAddress")


@given(space_id=words)
def test_update_space_authorization_rejects_unknown_space(registry, space, controller, space_id):
    assume(space_id != space)
    request = UpdateSpaceAuthorization(space_id, controller.address, controller.address)
    for caller in (controller.address, ZERO_ADDRESS):
        assert registry.rejection(request, caller) == Rejection("UnknownSpace")


def test_update_space_authorization_rejects_an_empty_signature_from_another_caller(
    registry, space, authorizer, new_controller, new_authorizer, relayer
):
    """The authorizer and the next controller are other callers too."""
    request = UpdateSpaceAuthorization(space, new_controller.address, new_authorizer.address)
    for caller in (relayer, authorizer, new_controller, new_authorizer):
        assert registry.rejection(request, caller.address) == UNAPPROVED


def test_update_space_authorization_rejects_the_signature_of_anyone_else(
    registry, space, authorizer, new_controller, new_authorizer, outsider, relayer
):
    for signer in (authorizer, new_controller, new_authorizer, outsider, relayer):
        request = registry.update(space, new_controller.address, new_authorizer.address, signer)
        assert registry.rejection(request, relayer.address) == UNAPPROVED


@given(nonce=uint64s)
def test_update_space_authorization_rejects_every_nonce_but_the_next(
    registry, space, controller, new_controller, new_authorizer, relayer, nonce
):
    request = registry.update(space, new_controller.address, new_authorizer.address, controller, nonce=nonce)
    assert registry.rejection(request, relayer.address) == (None if nonce == 1 else UNAPPROVED)


def test_update_space_authorization_rejects_a_repeated_signature(registry, space, controller, authorizer, relayer):
    """Even one that would change nothing."""
    request = registry.update(space, controller.address, authorizer.address, controller)
    registry.must_perform(request, relayer.address)
    assert registry.rejection(request, relayer.address) == UNAPPROVED
    assert registry.rejection(request, controller.address) == UNAPPROVED


def test_update_space_authorization_rejects_an_old_signature_when_its_controller_returns(
    registry, space, controller, authorizer, new_controller, relayer
):
    """An update binds its nonce, and no nonce ever comes again."""
    old = registry.update(space, new_controller.address, authorizer.address, controller)
    registry.must_perform(old, relayer.address)
    back = registry.update(space, controller.address, authorizer.address, new_controller)
    registry.must_perform(back, relayer.address)
    assert registry.rejection(old, relayer.address) == UNAPPROVED


def test_update_space_authorization_rejects_a_signature_for_another_space(
    registry, space, other_space, controller, new_controller, new_authorizer, relayer
):
    request = registry.update(other_space, new_controller.address, new_authorizer.address, controller)
    assert registry.rejection(replace(request, space_id=space), relayer.address) == UNAPPROVED
    assert registry.rejection(request, relayer.address) is None


def test_update_space_authorization_rejects_exchanged_accounts(
    registry, space, controller, new_controller, new_authorizer, relayer
):
    request = registry.update(space, new_controller.address, new_authorizer.address, controller)
    exchanged = replace(request, new_controller=request.new_authorizer, new_authorizer=request.new_controller)
    assert registry.rejection(exchanged, relayer.address) == UNAPPROVED


@given(new_controller=nonzero_addresses, new_authorizer=nonzero_addresses)
def test_update_space_authorization_accepts_no_other_accounts_than_signed(
    registry, space, controller, relayer, new_controller, new_authorizer
):
    signed = (relayer.address, relayer.address)
    assume((new_controller, new_authorizer) != signed)
    request = registry.update(space, *signed, controller)
    changed = replace(request, new_controller=new_controller, new_authorizer=new_authorizer)
    assert registry.rejection(changed, relayer.address) == UNAPPROVED
    right = registry.update(space, new_controller, new_authorizer, controller)
    assert registry.rejection(right, relayer.address) is None


def test_update_space_authorization_rejects_a_signature_for_another_registry(
    registry, other_registry, space, controller, authorizer, new_controller, relayer
):
    """The same space of the same controller, once in each."""
    there = other_registry.registration(controller, authorizer.address, keccak(text="space"))
    other_registry.must_perform(there, relayer.address)
    assert there.space_id == space
    request = other_registry.update(space, new_controller.address, authorizer.address, controller)
    assert other_registry.rejection(request, relayer.address) is None
    assert registry.rejection(request, relayer.address) == UNAPPROVED


def test_update_space_authorization_rejects_a_signature_for_another_chain(
    registry, space, controller, authorizer, new_controller, relayer, node
):
    request = registry.update(space, new_controller.address, authorizer.address, controller)
    there = replace(registry, chain_id=1)
    signed_there = there.update(space, new_controller.address, authorizer.address, controller)
    assert registry.rejection(signed_there, relayer.address) == UNAPPROVED
    with node.on_chain(1):
        assert registry.rejection(signed_there, relayer.address) is None
        assert registry.rejection(request, relayer.address) == UNAPPROVED


def test_update_space_authorization_rejects_the_signature_of_a_registration(
    registry, space, controller, new_controller, new_authorizer, relayer
):
    request = UpdateSpaceAuthorization(space, new_controller.address, new_authorizer.address)
    message = hash_space_registration(space, new_controller.address, new_authorizer.address)
    signed = replace(request, signature=controller.sign(registry.digest(message)))
    assert registry.rejection(signed, relayer.address) == UNAPPROVED


def test_update_space_authorization_rejects_a_nonce_of_another_type(
    registry, space, controller, new_controller, new_authorizer, relayer
):
    """`uint256 nonce` in the type string changes every digest: the type is part of the message."""
    type_string = "SpaceAuthorization(bytes32 spaceId,address newController,address newAuthorizer,uint256 nonce)"
    words_of_message = (space, bytes(12) + new_controller.address, bytes(12) + new_authorizer.address)
    message = keccak(keccak(text=type_string) + b"".join(words_of_message) + (1).to_bytes(32, "big"))
    request = UpdateSpaceAuthorization(
        space,
        new_controller.address,
        new_authorizer.address,
        controller.sign(registry.digest(message)),
    )
    assert registry.rejection(request, relayer.address) == UNAPPROVED


@pytest.mark.parametrize("argument", [1, 2], ids=["new_controller", "new_authorizer"])
def test_update_space_authorization_reverts_on_dirty_bits_above_an_address(
    registry, space, controller, new_controller, new_authorizer, node, argument
):
    request = UpdateSpaceAuthorization(space, new_controller.address, new_authorizer.address)
    data = bytearray(encode_request(request))
    data[4 + 32 * argument + 11] = 1
    answer = node.call(registry.address, bytes(data), sender=controller.address)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


# What is refused, many things at once: the first in the decided order names the error.

DEFECTS = {
    "zero_new_controller": "ZeroAddress",
    "zero_new_authorizer": "ZeroAddress",
    "unknown_space": "UnknownSpace",
    "unapproved": "InvalidAuthorization",
}
COMBINATIONS = list(chain.from_iterable(combinations(DEFECTS, size) for size in range(1, len(DEFECTS) + 1)))


def spoilt(registry: Registry, space: bytes, controller: Actor, outsider: Actor, defects) -> UpdateSpaceAuthorization:
    """An update with these defects and no other: signed as it stands, unless unapproved."""
    space_id = keccak(text="unknown") if "unknown_space" in defects else space
    new_controller = ZERO_ADDRESS if "zero_new_controller" in defects else outsider.address
    new_authorizer = ZERO_ADDRESS if "zero_new_authorizer" in defects else outsider.address
    message = hash_space_authorization(space_id, new_controller, new_authorizer, 1)
    signer = outsider if "unapproved" in defects else controller
    signature = signer.sign(registry.digest(message))
    return UpdateSpaceAuthorization(space_id, new_controller, new_authorizer, signature)


@pytest.mark.parametrize("defects", COMBINATIONS, ids="+".join)
def test_update_space_authorization_names_the_first_of_several_defects(
    registry, space, controller, outsider, relayer, defects
):
    request = spoilt(registry, space, controller, outsider, defects)
    assert registry.rejection(request, relayer.address) == Rejection(DEFECTS[defects[0]])


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_rejected_update_changes_nothing(registry, space, controller, outsider, relayer, defect):
    request = spoilt(registry, space, controller, outsider, (defect,))
    with registry.unchanged():
        outcome = registry.perform(request, relayer.address)
    assert outcome == Rejection(DEFECTS[defect])
