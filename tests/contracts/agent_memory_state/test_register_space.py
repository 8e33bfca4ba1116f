"""registerSpace: once, by anyone, with the controller's approval."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import pytest
from eth_utils import keccak
from hypothesis import assume, given
from hypothesis import strategies as st

from anvil import Reverted
from memory_state import Actor, Registry, encode_request
from models.memory import (
    ZERO_ADDRESS,
    ZERO_WORD,
    Accepted,
    Event,
    RegisterSpace,
    Rejection,
    derive_space_id,
    hash_space_authorization,
    hash_space_registration,
)
from strategies import nonzero_addresses, words

SALT = keccak(text="salt")


def test_register_space_accepts_a_relayed_signature(registry, controller, authorizer, relayer):
    request = registry.registration(controller, authorizer.address, SALT)
    event = Event("SpaceRegistered", (request.space_id, controller.address, authorizer.address))
    assert registry.perform(request, relayer.address) == Accepted(event)
    assert registry.head(request.space_id) == (ZERO_WORD, ZERO_WORD, 0)
    assert registry.space_authorization(request.space_id) == (controller.address, authorizer.address, 0)


def test_register_space_accepts_a_direct_call_without_signature(registry, controller, authorizer):
    request = registry.registration(controller, authorizer.address, SALT, signed=False)
    event = Event("SpaceRegistered", (request.space_id, controller.address, authorizer.address))
    assert registry.perform(request, controller.address) == Accepted(event)
    assert registry.space_authorization(request.space_id) == (controller.address, authorizer.address, 0)


def test_register_space_accepts_a_direct_call_with_a_signature(registry, controller, authorizer):
    request = registry.registration(controller, authorizer.address, SALT)
    assert isinstance(registry.perform(request, controller.address), Accepted)


def test_register_space_accepts_a_controller_that_is_its_own_authorizer(registry, controller, relayer):
    request = registry.registration(controller, controller.address, SALT)
    registry.must_perform(request, relayer.address)
    assert registry.space_authorization(request.space_id) == (controller.address, controller.address, 0)


@pytest.mark.parametrize("salt", [ZERO_WORD, SALT, b"\xff" * 32], ids=["zero", "any", "all_ones"])
def test_register_space_accepts_every_salt(registry, controller, authorizer, relayer, salt):
    request = registry.registration(controller, authorizer.address, salt)
    assert isinstance(registry.perform(request, relayer.address), Accepted)


def test_register_space_asks_nothing_of_the_authorizer(registry, controller, relayer):
    nobody = keccak(text="nobody")[:20]
    request = registry.registration(controller, nobody, SALT)
    registry.must_perform(request, relayer.address)
    assert registry.space_authorization(request.space_id) == (controller.address, nobody, 0)


def test_register_space_gives_one_controller_many_spaces(registry, controller, authorizer, relayer):
    requests = [registry.registration(controller, authorizer.address, keccak(text=f"salt {n}")) for n in range(3)]
    for request in requests:
        registry.must_perform(request, relayer.address)
    assert len({request.space_id for request in requests}) == 3
    for request in requests:
        assert registry.space_authorization(request.space_id)[0] == controller.address


def test_register_space_gives_two_controllers_two_spaces_for_one_salt(
    registry, controller, outsider, authorizer, relayer
):
    ours = registry.registration(controller, authorizer.address, SALT)
    theirs = registry.registration(outsider, outsider.address, SALT)
    registry.must_perform(theirs, outsider.address)
    registry.must_perform(ours, relayer.address)
    assert registry.space_authorization(ours.space_id) == (controller.address, authorizer.address, 0)
    assert registry.space_authorization(theirs.space_id) == (outsider.address, outsider.address, 0)


# What is refused, one thing at a time.


def test_register_space_rejects_zero_space_id(registry, controller, authorizer):
    request = registry.registration(controller, authorizer.address, SALT, signed=False)
    rejection = registry.rejection(replace(request, space_id=ZERO_WORD), controller.address)
    assert rejection == Rejection("ZeroSpaceId")


def test_register_space_rejects_zero_controller(registry, authorizer, relayer):
    space_id = derive_space_id(ZERO_ADDRESS, SALT)
    request = RegisterSpace(space_id, ZERO_ADDRESS, authorizer.address, SALT)
    assert registry.rejection(request, relayer.address) == Rejection("ZeroAddress")


def test_register_space_rejects_zero_controller_called_by_the_zero_address(registry, authorizer):
    space_id = derive_space_id(ZERO_ADDRESS, SALT)
    request = RegisterSpace(space_id, ZERO_ADDRESS, authorizer.address, SALT)
    assert registry.rejection(request, ZERO_ADDRESS) == Rejection("ZeroAddress")


def test_register_space_rejects_zero_authorizer(registry, controller, relayer):
    request = registry.registration(controller, ZERO_ADDRESS, SALT)
    assert registry.rejection(request, relayer.address) == Rejection("ZeroAddress")


@given(space_id=words, salt=words)
def test_register_space_rejects_every_id_but_the_derived_one(registry, controller, authorizer, space_id, salt):
    derived = derive_space_id(controller.address, salt)
    assume(space_id not in (derived, ZERO_WORD))
    request = RegisterSpace(space_id, controller.address, authorizer.address, salt)
    rejection = registry.rejection(request, controller.address)
    assert rejection == Rejection("InvalidSpaceId", (derived, space_id))


def test_register_space_rejects_the_space_of_another_controller(registry, controller, outsider, authorizer):
    """Nobody can claim a space in front of its controller: the id is the controller's."""
    space_id = derive_space_id(controller.address, SALT)
    request = RegisterSpace(space_id, outsider.address, outsider.address, SALT)
    expected = derive_space_id(outsider.address, SALT)
    assert registry.rejection(request, outsider.address) == Rejection("InvalidSpaceId", (expected, space_id))


def test_register_space_rejects_a_registered_space(registry, controller, authorizer, outsider, relayer):
    request = registry.registration(controller, authorizer.address, SALT)
    registry.must_perform(request, relayer.address)
    assert registry.rejection(request, relayer.address) == Rejection("SpaceAlreadyRegistered")
    with_other_authorizer = registry.registration(controller, outsider.address, SALT)
    assert registry.rejection(with_other_authorizer, controller.address) == Rejection("SpaceAlreadyRegistered")


def test_register_space_rejects_a_space_that_its_controller_gave_away(
    registry, controller, authorizer, new_controller, relayer
):
    request = registry.registration(controller, authorizer.address, SALT)
    registry.must_perform(request, relayer.address)
    update = registry.update(request.space_id, new_controller.address, authorizer.address, controller)
    registry.must_perform(update, relayer.address)
    assert registry.rejection(request, controller.address) == Rejection("SpaceAlreadyRegistered")


def test_register_space_rejects_an_empty_signature_from_another_caller(registry, controller, authorizer, relayer):
    request = registry.registration(controller, authorizer.address, SALT, signed=False)
    for caller in (relayer, authorizer):
        assert registry.rejection(request, caller.address) == Rejection("InvalidAuthorization")


def test_register_space_rejects_the_signature_of_anyone_else(registry, controller, authorizer, outsider, relayer):
    request = registry.registration(controller, authorizer.address, SALT, signed=False)
    digest = registry.digest(hash_space_registration(request.space_id, controller.address, authorizer.address))
    for signer in (authorizer, outsider, relayer):
        signed = replace(request, signature=signer.sign(digest))
        assert registry.rejection(signed, relayer.address) == Rejection("InvalidAuthorization")


def test_register_space_rejects_a_signature_for_another_authorizer(registry, controller, authorizer, outsider, relayer):
    """A relayer cannot put itself in the authorizer's place."""
    request = registry.registration(controller, authorizer.address, SALT)
    for authorizer_of_the_thief in (outsider.address, relayer.address, controller.address):
        stolen = replace(request, authorizer=authorizer_of_the_thief)
        assert registry.rejection(stolen, relayer.address) == Rejection("InvalidAuthorization")


def test_register_space_rejects_a_signature_for_another_space(registry, controller, authorizer, relayer):
    request = registry.registration(controller, authorizer.address, SALT)
    another = registry.registration(controller, authorizer.address, keccak(text="another salt"))
    mixed = replace(request, signature=another.signature)
    assert registry.rejection(mixed, relayer.address) == Rejection("InvalidAuthorization")


def test_register_space_rejects_a_signature_for_another_registry(
    registry, other_registry, controller, authorizer, relayer
):
    request = other_registry.registration(controller, authorizer.address, SALT)
    assert registry.rejection(request, relayer.address) == Rejection("InvalidAuthorization")


def test_register_space_rejects_a_signature_for_another_chain(registry, controller, authorizer, relayer, node):
    request = registry.registration(controller, authorizer.address, SALT)
    with node.on_chain(registry.chain_id + 1):
        assert registry.rejection(request, relayer.address) == Rejection("InvalidAuthorization")
        there = replace(registry, chain_id=registry.chain_id + 1)
        signed_there = there.registration(controller, authorizer.address, SALT)
        assert registry.rejection(signed_there, relayer.address) is None
    assert registry.rejection(signed_there, relayer.address) == Rejection("InvalidAuthorization")
    assert registry.rejection(request, relayer.address) is None


def test_register_space_rejects_the_signature_of_an_update(registry, controller, authorizer, relayer):
    """Same members, other type: the type hash keeps them apart."""
    request = registry.registration(controller, authorizer.address, SALT, signed=False)
    update = hash_space_authorization(request.space_id, controller.address, authorizer.address, 1)
    signed = replace(request, signature=controller.sign(registry.digest(update)))
    assert registry.rejection(signed, relayer.address) == Rejection("InvalidAuthorization")


@given(controller_signed_for=nonzero_addresses, salt=words)
def test_register_space_rejects_a_signature_for_any_other_controller(
    registry, controller, authorizer, relayer, controller_signed_for, salt
):
    assume(controller_signed_for != controller.address)
    request = registry.registration(controller, authorizer.address, salt, signed=False)
    message = hash_space_registration(request.space_id, controller_signed_for, authorizer.address)
    signed = replace(request, signature=controller.sign(registry.digest(message)))
    assert registry.rejection(signed, relayer.address) == Rejection("InvalidAuthorization")


@pytest.mark.parametrize("argument", [1, 2], ids=["controller", "authorizer"])
@pytest.mark.parametrize("bit", [0, 95], ids=["highest_bit", "lowest_bit_above_the_address"])
def test_register_space_reverts_on_dirty_bits_above_an_address(registry, controller, authorizer, node, argument, bit):
    request = registry.registration(controller, authorizer.address, SALT, signed=False)
    data = bytearray(encode_request(request))
    data[4 + 32 * argument + bit // 8] |= 0x80 >> bit % 8
    answer = node.call(registry.address, bytes(data), sender=controller.address)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


# What is refused, many things at once: the first in the decided order names the error.

DEFECTS = {
    "zero_space_id": "ZeroSpaceId",
    "zero_controller": "ZeroAddress",
    "zero_authorizer": "ZeroAddress",
    "foreign_space_id": "InvalidSpaceId",
    "registered_already": "SpaceAlreadyRegistered",
    "unapproved": "InvalidAuthorization",
}
COMBINATIONS = list(chain.from_iterable(combinations(DEFECTS, size) for size in range(1, len(DEFECTS) + 1)))


def spoilt(registry: Registry, controller: Actor, authorizer: Actor, relayer: Actor, defects) -> RegisterSpace:
    """A registration with these defects and no other: signed as it stands, unless unapproved."""
    request = registry.registration(controller, authorizer.address, SALT)
    if "registered_already" in defects:
        registry.must_perform(request, relayer.address)
    if "foreign_space_id" in defects:
        foreign = registry.registration(controller, authorizer.address, keccak(text="foreign"))
        if "registered_already" in defects:
            registry.must_perform(foreign, relayer.address)
        request = replace(request, space_id=foreign.space_id)
    if "zero_space_id" in defects:
        request = replace(request, space_id=ZERO_WORD)
    if "zero_controller" in defects:
        request = replace(request, controller=ZERO_ADDRESS)
    if "zero_authorizer" in defects:
        request = replace(request, authorizer=ZERO_ADDRESS)
    signer = relayer if "unapproved" in defects else controller
    message = hash_space_registration(request.space_id, request.controller, request.authorizer)
    return replace(request, signature=signer.sign(registry.digest(message)))


@pytest.mark.parametrize("defects", COMBINATIONS, ids="+".join)
def test_register_space_names_the_first_of_several_defects(registry, controller, authorizer, relayer, defects):
    request = spoilt(registry, controller, authorizer, relayer, defects)
    error = DEFECTS[defects[0]]
    arguments = ()
    if error == "InvalidSpaceId":
        arguments = (derive_space_id(controller.address, SALT), request.space_id)
    assert registry.rejection(request, relayer.address) == Rejection(error, arguments)


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_rejected_registration_changes_nothing(registry, controller, authorizer, relayer, defect):
    request = spoilt(registry, controller, authorizer, relayer, (defect,))
    with registry.unchanged():
        outcome = registry.perform(request, relayer.address)
    assert isinstance(outcome, Rejection), outcome
    assert outcome.error == DEFECTS[defect]


@given(defects=st.sets(st.sampled_from(sorted(DEFECTS)), min_size=1), salt=words)
def test_a_registration_that_the_controller_sends_itself_is_judged_in_the_same_order(
    registry, controller, authorizer, defects, salt
):
    """No signature, the direct caller; so only the defects of content count, in any mixture."""
    defects -= {"unapproved", "registered_already"}
    request = registry.registration(controller, authorizer.address, salt, signed=False)
    changes = {
        "zero_space_id": {"space_id": ZERO_WORD},
        "zero_controller": {"controller": ZERO_ADDRESS},
        "zero_authorizer": {"authorizer": ZERO_ADDRESS},
        "foreign_space_id": {"space_id": keccak(request.space_id)},
    }
    for defect in sorted(defects, key=list(DEFECTS).index, reverse=True):
        request = replace(request, **changes[defect])
    rejection = registry.rejection(request, controller.address)
    first = min(defects, key=list(DEFECTS).index, default=None)
    assert (rejection and rejection.error) == (first and DEFECTS[first])
