"""Hypothesis strategies of the package's own types, over the words that all tests share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from melete.memory.delta import ExperienceDelta
from melete.memory.history import Transition
from melete.primitives import Address, Bytes32
from models.memory import (
    Delta,
    compute_next_state_root,
    hash_experience_delta,
)
from strategies import addresses, delta_contents, nonzero_words, uint64s, words

bytes32s = words.map(Bytes32)
account_addresses = addresses.map(Address)

experience_deltas = st.builds(
    ExperienceDelta,
    space_id=bytes32s,
    sequence=uint64s,
    prev_state_root=bytes32s,
    delta_commitment=bytes32s,
    provenance_commitment=bytes32s,
    profile_id=bytes32s,
    locator_commitment=bytes32s,
)


def as_model(delta: ExperienceDelta) -> Delta:
    """The same delta as the model of the specification holds it."""
    return Delta(
        bytes(delta.space_id),
        delta.sequence,
        bytes(delta.prev_state_root),
        bytes(delta.delta_commitment),
        bytes(delta.provenance_commitment),
        bytes(delta.profile_id),
        bytes(delta.locator_commitment),
    )


@st.composite
def histories(draw: Callable[..., Any], min_size: int = 0, max_size: int = 6) -> tuple[Bytes32, list[Transition]]:
    """A space and its transitions from the start, linked by the model of the specification."""
    space_id = Bytes32(draw(nonzero_words))
    contents = draw(st.lists(delta_contents, min_size=min_size, max_size=max_size))
    return space_id, chain(space_id, contents)


def chain(space_id: Bytes32, contents: list[dict[str, bytes]]) -> list[Transition]:
    """Link the contents of deltas, as the model of the specification links them."""
    transitions = []
    state_root = bytes(32)
    for sequence, content in enumerate(contents, start=1):
        words = {name: Bytes32(value) for name, value in content.items()}
        delta = ExperienceDelta(space_id=space_id, sequence=sequence, prev_state_root=Bytes32(state_root), **words)
        transition_id = hash_experience_delta(as_model(delta))
        state_root = compute_next_state_root(state_root, transition_id)
        transitions.append(Transition(delta, Bytes32(transition_id), Bytes32(state_root)))
    return transitions


#: Text that UTF-8 can carry, with what sorts differently by code point and by UTF-16 code unit.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text(
    '\U0001f600\ufb33\ue000\U00010000\uffff\x00\x7f\u2028\u0301é~/"\\', max_size=4
)

#: Numbers that JSON can carry between readers.
numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)

#: Values that RFC 8785 can write.
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)

#: Anything that is no text, no bytes and no number.
no_values = st.sampled_from([None, True, 1.5, [], {}, (), object(), sys])
