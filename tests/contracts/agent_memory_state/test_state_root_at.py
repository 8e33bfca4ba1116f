"""stateRootAt: the root after every transition, by which any contract can check a delta."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from eth_utils import keccak
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_state import Registry
from models.memory import ZERO_WORD, Delta
from strategies import UINT64_MAX, deltas, uint64s, words


@given(space_id=words, sequence=uint64s)
def test_state_root_at_is_zero_for_an_unknown_space(memory_registry, memory_space, space_id, sequence):
    assume(space_id != memory_space)
    assert memory_registry.state_root_at(space_id, sequence) == ZERO_WORD


@given(sequence=uint64s)
def test_state_root_at_is_zero_in_a_new_space(memory_registry, memory_space, sequence):
    assert memory_registry.state_root_at(memory_space, sequence) == ZERO_WORD


def test_state_root_at_keeps_every_root(memory_registry, memory_space, controller, authorizer, relayer):
    roots = []
    for _ in range(6):
        accepted = memory_registry.commit_next(memory_space, authorizer, relayer.address)
        roots.append(accepted.returned[1])
        for sequence, root in enumerate(roots, 1):
            assert memory_registry.state_root_at(memory_space, sequence) == root
    assert len(set(roots)) == 6
    update = memory_registry.update(memory_space, relayer.address, relayer.address, controller)
    memory_registry.must_perform(update, relayer.address)
    assert [memory_registry.state_root_at(memory_space, n) for n in range(1, 7)] == roots


@pytest.mark.parametrize("sequence", [0, 3, 4, 2**32 + 1, 2**53 + 1, UINT64_MAX - 1, UINT64_MAX])
def test_state_root_at_is_zero_before_the_first_and_beyond_the_head(
    memory_registry, memory_space, authorizer, relayer, sequence
):
    for _ in range(2):
        memory_registry.commit_next(memory_space, authorizer, relayer.address)
    assert memory_registry.state_root_at(memory_space, sequence) == ZERO_WORD
    assert memory_registry.state_root_at(memory_space, 2) == memory_registry.head(memory_space)[1]


def test_state_root_at_keeps_spaces_apart(memory_registry, memory_space, controller, authorizer, relayer):
    other = memory_registry.registration(controller, authorizer.address, keccak(text="other"))
    memory_registry.must_perform(other, relayer.address)
    ours = memory_registry.commit_next(memory_space, authorizer, relayer.address).returned[1]
    assert memory_registry.state_root_at(other.space_id, 1) == ZERO_WORD
    theirs = memory_registry.commit_next(other.space_id, authorizer, relayer.address).returned[1]
    assert memory_registry.state_root_at(memory_space, 1) == ours != theirs
    assert memory_registry.state_root_at(other.space_id, 1) == theirs


def was_committed(registry: Registry, delta: Delta) -> bool:
    """The check that the interface describes, made of nothing but views."""
    root = registry.state_root_at(delta.space_id, delta.sequence)
    transition_id = registry.view("hashExperienceDelta", delta.members())
    expected = registry.view("computeNextStateRoot", delta.prev_state_root, transition_id)
    return root not in (ZERO_WORD, None) and root == expected


def test_state_root_at_proves_every_committed_delta(memory_registry, memory_space, authorizer, relayer):
    history = []
    for _ in range(4):
        history.append(memory_registry.next_delta(memory_space))
        assert not was_committed(memory_registry, history[-1])
        memory_registry.must_perform(memory_registry.signed(history[-1], authorizer), relayer.address)
    assert all(was_committed(memory_registry, delta) for delta in history)


@given(place=st.integers(1, 2), position=st.integers(0, 255), other=deltas)
def test_state_root_at_proves_no_other_delta(
    memory_registry, memory_space, authorizer, relayer, place, position, other
):
    """Neither one with a flipped bit anywhere, nor any that was made up."""
    committed = []
    for sequence in (1, 2):
        delta = Delta(memory_space, sequence, ZERO_WORD, *(keccak(text=f"{n}") for n in range(4)))
        if sequence > 1:
            delta = replace(delta, prev_state_root=memory_registry.state_root_at(memory_space, 1))
        committed.append(delta)
        if memory_registry.head(memory_space)[2] < sequence:
            memory_registry.must_perform(memory_registry.signed(delta, authorizer), relayer.address)
    chosen = committed[place - 1]
    assert was_committed(memory_registry, chosen)
    for field in fields(Delta):
        value = getattr(chosen, field.name)
        if isinstance(value, int):
            flipped = replace(chosen, **{field.name: value ^ 1 << position % 64})
        else:
            flipped_value = (int.from_bytes(value) ^ 1 << position).to_bytes(32)
            flipped = replace(chosen, **{field.name: flipped_value})
        assert not was_committed(memory_registry, flipped), field.name
    assume(other not in committed)
    assert not was_committed(memory_registry, other)
    assert not was_committed(memory_registry, replace(other, space_id=memory_space, sequence=place))
