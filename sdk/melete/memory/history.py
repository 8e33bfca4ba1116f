"""Verified history: feed a space's transitions in order, get its head, or the first broken link.

Nothing is asked of a node here, and nothing is kept but the head, so a history of any length takes constant memory.
What this proves: the transitions form one unbroken chain from the start given to the head returned. That the chain
is the registry's, its head there says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from melete.errors import BrokenHistory, InvalidInput
from melete.memory.delta import (
    EXPERIENCE_DELTA_TYPEHASH,
    MEMORY_STATE_TYPEHASH,
    ExperienceDelta,
    compute_next_state_root,
    compute_transition_id,
)
from melete.memory.space import GENESIS, Head
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32, Address, Bytes32, keccak_256, trusted_bytes32

#: What a link can break, in the order of the checks, by the names of the test vectors.
RULES: Final = (
    "space_id",
    "zero_delta_commitment",
    "zero_profile_id",
    "sequence_skipped",
    "sequence_repeated",
    "prev_state_root",
    "transition_id",
    "next_state_root",
)


_TRANSITIONS: Final = "an iterable of Transition values, such as `[Transition.of(delta)]`"


@dataclass(frozen=True, slots=True)
class Transition:
    """A delta as a registry says it was committed: with the id, the next root and the authorizer that it claims."""

    delta: ExperienceDelta
    transition_id: Bytes32
    next_state_root: Bytes32
    authorizer: Address = ZERO_ADDRESS

    def __post_init__(self) -> None:
        if not isinstance(self.delta, ExperienceDelta):
            raise InvalidInput("delta", self.delta, "an ExperienceDelta")
        for name, member in (("transition_id", "transitionId"), ("next_state_root", "nextStateRoot")):
            if type(getattr(self, name)) is not Bytes32:
                object.__setattr__(self, name, Bytes32(getattr(self, name), member))
        if type(self.authorizer) is not Address:
            object.__setattr__(self, "authorizer", Address(self.authorizer, "authorizer"))

    @classmethod
    def of(cls, delta: ExperienceDelta, authorizer: Address = ZERO_ADDRESS) -> Transition:
        """Return the transition that a delta becomes."""
        transition_id = compute_transition_id(delta)
        return cls(delta, transition_id, compute_next_state_root(delta.prev_state_root, transition_id), authorizer)


def verify_history(space_id: Bytes32, transitions: Iterable[Transition], start: Head = GENESIS) -> Head:
    """Return the head after all transitions of a space, which must follow from `start` one by one.

    Errors: `BrokenHistory` for the first that does not, with the rule it breaks (`RULES`); `InvalidInput` for what is
    no transition. Source: ERC-8350, Transition.
    """
    if not isinstance(start, Head):
        raise InvalidInput("start", start, "a Head, such as GENESIS")
    if not isinstance(transitions, Iterable):
        raise InvalidInput("transitions", transitions, _TRANSITIONS)
    space_id = Bytes32(space_id, "spaceId")
    transition_id, state_root, sequence = start.transition_id, start.state_root, start.sequence
    # This loop is the hot path of every audit: hashes are inlined, and the words are joined once.
    keccak, join = keccak_256, b"".join
    for transition in transitions:
        try:
            delta = transition.delta
        except AttributeError:
            raise InvalidInput("transitions", transition, _TRANSITIONS) from None
        due = sequence + 1
        if (
            delta.space_id != space_id
            or delta.sequence != due
            or delta.prev_state_root != state_root
            or delta.delta_commitment == ZERO_BYTES32
            or delta.profile_id == ZERO_BYTES32
        ):
            raise _broken_link(space_id, due, state_root, delta)
        transition_id = keccak(
            join(
                (
                    EXPERIENCE_DELTA_TYPEHASH,
                    space_id,
                    due.to_bytes(32, "big"),
                    state_root,
                    delta.delta_commitment,
                    delta.provenance_commitment,
                    delta.profile_id,
                    delta.locator_commitment,
                )
            )
        ).digest()
        if transition_id != transition.transition_id:
            raise BrokenHistory(due, "transition_id", Bytes32(transition_id), transition.transition_id)
        state_root = keccak(MEMORY_STATE_TYPEHASH + state_root + transition_id).digest()
        if state_root != transition.next_state_root:
            raise BrokenHistory(due, "next_state_root", Bytes32(state_root), transition.next_state_root)
        sequence = due
    return Head(trusted_bytes32(transition_id), trusted_bytes32(state_root), sequence)


def _broken_link(space_id: Bytes32, due: int, state_root: bytes, delta: ExperienceDelta) -> BrokenHistory:
    """Name the first rule that a delta breaks against what was due."""
    if delta.space_id != space_id:
        return BrokenHistory(due, "space_id", space_id, delta.space_id)
    if delta.delta_commitment == ZERO_BYTES32:
        return BrokenHistory(due, "zero_delta_commitment", "a commitment", delta.delta_commitment)
    if delta.profile_id == ZERO_BYTES32:
        return BrokenHistory(due, "zero_profile_id", "a profile", delta.profile_id)
    if delta.sequence != due:
        rule = "sequence_skipped" if delta.sequence > due else "sequence_repeated"
        return BrokenHistory(due, rule, due, delta.sequence)
    return BrokenHistory(due, "prev_state_root", Bytes32(state_root), delta.prev_state_root)
