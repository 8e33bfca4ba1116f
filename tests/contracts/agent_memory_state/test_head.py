"""head: the last transition of a space."""

from __future__ import annotations

from eth_utils import keccak
from hypothesis import assume, given

from models.memory import ZERO_ADDRESS, ZERO_WORD, Rejection, compute_next_state_root, derive_space_id
from strategies import words


@given(space_id=words)
def test_head_rejects_unknown_space(registry, space, space_id):
    assume(space_id != space)
    assert registry.head(space_id) == Rejection("UnknownSpace")


def test_head_rejects_the_space_of_the_zero_address(registry):
    """Nobody can register it, and its zero controller must not make it look registered."""
    for salt in (ZERO_WORD, keccak(text="salt")):
        assert registry.head(derive_space_id(ZERO_ADDRESS, salt)) == Rejection("UnknownSpace")


def test_head_rejects_a_space_that_is_derived_but_not_registered(registry, controller):
    space_id = derive_space_id(controller.address, keccak(text="not registered"))
    assert registry.head(space_id) == Rejection("UnknownSpace")


def test_head_of_a_new_space_is_zero(registry, space):
    assert registry.head(space) == (ZERO_WORD, ZERO_WORD, 0)


def test_head_follows_every_transition(registry, space, authorizer, relayer):
    state_root = ZERO_WORD
    for sequence in range(1, 5):
        accepted = registry.commit_next(space, authorizer, relayer.address)
        transition_id, state_root_after = accepted.returned
        assert registry.head(space) == (transition_id, state_root_after, sequence)
        assert state_root_after == compute_next_state_root(state_root, transition_id)
        state_root = state_root_after


def test_head_is_not_moved_by_other_spaces(registry, space, other_space, authorizer, relayer):
    registry.commit_next(space, authorizer, relayer.address)
    before = registry.head(space)
    registry.commit_next(other_space, authorizer, relayer.address)
    registry.commit_next(other_space, authorizer, relayer.address)
    assert registry.head(space) == before
    assert registry.head(other_space)[2] == 2


def test_head_is_not_moved_by_rotations(registry, space, controller, authorizer, outsider, relayer):
    registry.commit_next(space, authorizer, relayer.address)
    before = registry.head(space)
    update = registry.update(space, outsider.address, outsider.address, controller)
    registry.must_perform(update, relayer.address)
    assert registry.head(space) == before


def test_head_is_not_moved_by_calls_that_are_only_asked(registry, space, authorizer, relayer):
    request = registry.signed(registry.next_delta(space), authorizer)
    assert registry.rejection(request, relayer.address) is None
    assert registry.head(space) == (ZERO_WORD, ZERO_WORD, 0)
