from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import BrokenHistory, InvalidInput
from melete.memory.delta import ExperienceDelta
from melete.memory.history import RULES, Transition, verify_history
from melete.memory.space import GENESIS, Head
from melete.primitives import ZERO_BYTES32, Address, Bytes32
from strategies import words

from ..strategies import chain, histories

WORD, OTHER = Bytes32(b"\x11" * 32), Bytes32(b"\x22" * 32)

# What holds


def head_of(transitions: list[Transition]) -> Head:
    if not transitions:
        return GENESIS
    last = transitions[-1]
    return Head(last.transition_id, last.next_state_root, last.delta.sequence)


@given(histories())
def test_history_linked_by_the_model_verifies_to_its_head(history: tuple[Bytes32, list[Transition]]) -> None:
    space_id, transitions = history
    assert verify_history(space_id, iter(transitions)) == head_of(transitions)


@given(histories(), st.data())
def test_history_verifies_in_two_parts_from_any_head_in_the_middle(
    history: tuple[Bytes32, list[Transition]], data: st.DataObject
) -> None:
    space_id, transitions = history
    cut = data.draw(st.integers(0, len(transitions)))
    middle = verify_history(space_id, transitions[:cut])
    assert verify_history(space_id, transitions[cut:], middle) == head_of(transitions)


@given(histories(min_size=1))
def test_transition_of_a_delta_is_the_one_that_the_model_links(history: tuple[Bytes32, list[Transition]]) -> None:
    for transition in history[1]:
        assert Transition.of(transition.delta) == transition


def test_no_transitions_lead_back_to_the_start() -> None:
    head = Head(WORD, OTHER, 9)
    assert verify_history(WORD, [], head) == head
    assert verify_history(WORD, []) == GENESIS == Head(ZERO_BYTES32, ZERO_BYTES32, 0)


@given(histories(min_size=1), words)
def test_authorizer_is_kept_and_never_judged(history: tuple[Bytes32, list[Transition]], word: bytes) -> None:
    space_id, transitions = history
    authorizer = Address(word[:20])
    claimed = [replace(transition, authorizer=authorizer) for transition in transitions]
    assert verify_history(space_id, claimed) == head_of(transitions)
    assert Transition.of(transitions[0].delta, authorizer) == claimed[0]


# What does not


def broken(space_id: Bytes32, transitions: list[Transition], start: Head = GENESIS) -> BrokenHistory:
    with pytest.raises(BrokenHistory) as caught:
        verify_history(space_id, transitions, start)
    return caught.value


#: The member that is changed, and the rule that this breaks.
CHANGED = {
    "space_id": "space_id",
    "prev_state_root": "prev_state_root",
    "delta_commitment": "transition_id",
    "provenance_commitment": "transition_id",
    "profile_id": "transition_id",
    "locator_commitment": "transition_id",
    "transition_id": "transition_id",
    "next_state_root": "next_state_root",
}


def change(transition: Transition, name: str, value: Any) -> Transition:
    if hasattr(transition.delta, name):
        return replace(transition, delta=replace(transition.delta, **{name: value}))
    return replace(transition, **{name: value})


def value_of(transition: Transition, name: str) -> Any:
    return getattr(transition.delta if hasattr(transition.delta, name) else transition, name)


@given(histories(min_size=1), st.sampled_from(list(CHANGED)), words, st.data())
def test_any_other_word_in_any_member_of_any_transition_is_caught_where_it_stands(
    history: tuple[Bytes32, list[Transition]], name: str, word: bytes, data: st.DataObject
) -> None:
    space_id, transitions = history
    at = data.draw(st.integers(0, len(transitions) - 1))
    before = value_of(transitions[at], name)
    value = Bytes32(word if word != before else bytes(31) + b"\x02")
    rule = CHANGED[name]
    if not any(value):
        rule = {"delta_commitment": "zero_delta_commitment", "profile_id": "zero_profile_id"}.get(name, rule)
    altered = [*transitions[:at], change(transitions[at], name, value), *transitions[at + 1 :]]

    error = broken(space_id, altered)
    assert (error.sequence, error.rule) == (at + 1, rule)
    if name in ("space_id", "prev_state_root", "next_state_root"):
        assert (error.expected, error.received) == (before, value)
    if name == "transition_id":
        assert (error.expected, error.received) == (before, value)


@given(histories(min_size=1), st.integers(0, 2**64 - 1) | st.integers(0, 8), st.data())
def test_any_other_sequence_is_caught_and_named_by_its_direction(
    history: tuple[Bytes32, list[Transition]], sequence: int, data: st.DataObject
) -> None:
    space_id, transitions = history
    at = data.draw(st.integers(0, len(transitions) - 1))
    due = at + 1
    altered = list(transitions)
    altered[at] = change(transitions[at], "sequence", sequence)
    if sequence == due:
        assert verify_history(space_id, altered) == head_of(transitions)
        return
    error = broken(space_id, altered)
    rule = "sequence_skipped" if sequence > due else "sequence_repeated"
    assert (error.sequence, error.rule, error.expected, error.received) == (due, rule, due, sequence)


@given(histories(min_size=2), st.data())
def test_left_out_repeated_and_swapped_transitions_are_caught(
    history: tuple[Bytes32, list[Transition]], data: st.DataObject
) -> None:
    space_id, transitions = history
    at = data.draw(st.integers(0, len(transitions) - 2))
    left_out = transitions[:at] + transitions[at + 1 :]
    repeated = [*transitions[: at + 1], *transitions[at:]]
    swapped = [*transitions[:at], transitions[at + 1], transitions[at], *transitions[at + 2 :]]
    for altered, due, rule in (
        (left_out, at + 1, "sequence_skipped"),
        (repeated, at + 2, "sequence_repeated"),
        (swapped, at + 1, "sequence_skipped"),
    ):
        error = broken(space_id, altered)
        assert (error.sequence, error.rule) == (due, rule)


@given(histories(min_size=2), st.data())
def test_renumbered_history_is_caught_by_its_roots(
    history: tuple[Bytes32, list[Transition]], data: st.DataObject
) -> None:
    space_id, transitions = history
    at = data.draw(st.integers(0, len(transitions) - 2))
    kept = transitions[:at] + transitions[at + 1 :]
    renumbered = kept[:at] + [
        Transition.of(replace(claim.delta, sequence=claim.delta.sequence - 1)) for claim in kept[at:]
    ]
    error = broken(space_id, renumbered)
    assert (error.sequence, error.rule) == (at + 1, "prev_state_root")


@given(histories(min_size=1))
def test_history_of_another_space_is_caught_at_its_first_transition(history: tuple[Bytes32, list[Transition]]) -> None:
    space_id, transitions = history
    asked = Bytes32(bytes([space_id[0] ^ 1]) + space_id[1:])
    error = broken(asked, transitions)
    assert (error.sequence, error.rule, error.expected, error.received) == (1, "space_id", asked, space_id)


@given(histories(min_size=2), st.data())
def test_a_part_of_a_history_does_not_follow_from_another_head(
    history: tuple[Bytes32, list[Transition]], data: st.DataObject
) -> None:
    space_id, transitions = history
    cut = data.draw(st.integers(1, len(transitions) - 1))
    start = verify_history(space_id, transitions[:cut])
    wrong_root, wrong_place = replace(start, state_root=OTHER), replace(start, sequence=start.sequence + 1)
    assert broken(space_id, transitions[cut:], wrong_root).rule == "prev_state_root"
    assert broken(space_id, transitions[cut:], wrong_place).rule == "sequence_repeated"
    assert broken(space_id, transitions[cut:]).rule == "sequence_skipped"


def test_nothing_follows_the_last_sequence_that_64_bits_hold() -> None:
    start = Head(WORD, OTHER, 2**64 - 1)
    for sequence in (0, 2**64 - 1):
        following = Transition.of(ExperienceDelta(WORD, sequence, OTHER, WORD, profile_id=WORD))
        assert broken(WORD, [following], start).rule == "sequence_repeated"


# The order of the checks

#: How to break each rule, in the order in which the vectors list them.
BREAKS: dict[str, Callable[[Transition], Transition]] = {
    "space_id": lambda claim: change(claim, "space_id", OTHER),
    "zero_delta_commitment": lambda claim: change(claim, "delta_commitment", ZERO_BYTES32),
    "zero_profile_id": lambda claim: change(claim, "profile_id", ZERO_BYTES32),
    "sequence_skipped": lambda claim: change(claim, "sequence", claim.delta.sequence + 1),
    "sequence_repeated": lambda claim: change(claim, "sequence", claim.delta.sequence - 1),
    "prev_state_root": lambda claim: change(claim, "prev_state_root", OTHER),
    "transition_id": lambda claim: change(claim, "transition_id", OTHER),
    "next_state_root": lambda claim: change(claim, "next_state_root", OTHER),
}


def test_rules_are_those_of_the_vectors_in_their_order() -> None:
    assert list(RULES) == list(BREAKS)


@given(st.sets(st.sampled_from(list(BREAKS)), min_size=1).filter(lambda rules: len(
    rules & {"sequence_skipped", "sequence_repeated"}) < 2), st.integers(0, 2))  # fmt: skip
def test_of_several_broken_rules_the_first_is_named(rules: set[str], at: int) -> None:
    content = {
        "delta_commitment": b"\x01" * 32,
        "provenance_commitment": bytes(32),
        "profile_id": b"\x02" * 32,
        "locator_commitment": bytes(32),
    }
    transitions = chain(WORD, [content] * 3)
    for rule in rules:
        transitions[at] = BREAKS[rule](transitions[at])
    error = broken(WORD, transitions)
    assert (error.sequence, error.rule) == (at + 1, next(rule for rule in BREAKS if rule in rules))


# Shape and cost


@pytest.mark.parametrize("value", [b"", bytes(31), "hello", 5])
def test_claims_that_are_not_words_are_refused(value: Any) -> None:
    delta = ExperienceDelta(WORD, 1, ZERO_BYTES32, WORD, profile_id=WORD)
    with pytest.raises(InvalidInput, match="transitionId"):
        Transition(delta, value, WORD)
    with pytest.raises(InvalidInput, match="nextStateRoot"):
        Transition(delta, WORD, value)
    with pytest.raises(InvalidInput, match="authorizer"):
        Transition(delta, WORD, WORD, value)
    with pytest.raises(InvalidInput, match="spaceId"):
        verify_history(value, [])


def links(length: int) -> Iterator[Transition]:
    """Transitions made one by one, and none of them kept."""
    head = GENESIS
    for _ in range(length):
        delta = ExperienceDelta(WORD, head.sequence + 1, head.state_root, WORD, profile_id=WORD)
        transition = Transition.of(delta)
        head = Head(transition.transition_id, transition.next_state_root, delta.sequence)
        yield transition


def test_verification_stops_at_the_first_broken_link() -> None:
    asked = []

    def transitions() -> Iterator[Transition]:
        for transition in links(9):
            asked.append(transition.delta.sequence)
            yield transition if transition.delta.sequence != 3 else replace(transition, transition_id=OTHER)

    with pytest.raises(BrokenHistory):
        verify_history(WORD, transitions())
    assert asked == [1, 2, 3]


def peak_memory(length: int) -> int:
    tracemalloc.start()
    try:
        assert verify_history(WORD, links(length)).sequence == length
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_history_ten_times_as_long_takes_no_more_memory() -> None:
    peak_memory(10)
    # A kept transition would be some hundred bytes, three thousand of them megabytes.
    assert peak_memory(3_000) < peak_memory(300) + 50_000
