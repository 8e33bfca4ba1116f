"""spaceAuthorization: who may act for a space, and how often that has changed."""

from __future__ import annotations

from eth_utils import keccak
from hypothesis import assume, given

from models.memory import Rejection, derive_space_id
from strategies import words


@given(space_id=words)
def test_space_authorization_rejects_unknown_space(registry, space, space_id):
    assume(space_id != space)
    assert registry.space_authorization(space_id) == Rejection("UnknownSpace")


def test_space_authorization_rejects_a_space_that_is_derived_but_not_registered(registry, controller):
    space_id = derive_space_id(controller.address, keccak(text="not registered"))
    assert registry.space_authorization(space_id) == Rejection("UnknownSpace")


def test_space_authorization_of_a_new_space_has_nonce_zero(registry, space, controller, authorizer):
    assert registry.space_authorization(space) == (controller.address, authorizer.address, 0)


def test_space_authorization_follows_every_rotation(registry, space, controller, actors, relayer):
    current = controller
    for nonce, (next_controller, next_authorizer) in enumerate(zip(actors[1:5], actors[4:8], strict=True), 1):
        update = registry.update(space, next_controller.address, next_authorizer.address, current)
        registry.must_perform(update, relayer.address)
        expected = (next_controller.address, next_authorizer.address, nonce)
        assert registry.space_authorization(space) == expected
        current = next_controller


def test_space_authorization_is_not_changed_by_transitions(registry, space, controller, authorizer, outsider, relayer):
    update = registry.update(space, outsider.address, authorizer.address, controller)
    registry.must_perform(update, relayer.address)
    for _ in range(3):
        registry.commit_next(space, authorizer, relayer.address)
    assert registry.space_authorization(space) == (outsider.address, authorizer.address, 1)


def test_space_authorization_returns_the_highest_addresses_whole(registry, controller, relayer):
    """Authorizer and sequence share a word: an address of all ones must not leak into it."""
    highest = b"\xff" * 20
    request = registry.registration(controller, highest, keccak(text="salt"))
    registry.must_perform(request, relayer.address)
    assert registry.space_authorization(request.space_id) == (controller.address, highest, 0)
    assert registry.head(request.space_id)[2] == 0
    update = registry.update(request.space_id, highest, highest, controller)
    registry.must_perform(update, relayer.address)
    assert registry.space_authorization(request.space_id) == (highest, highest, 1)
    assert registry.head(request.space_id)[2] == 0
