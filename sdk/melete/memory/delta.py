"""The ExperienceDelta, its transition id, and the state root that follows.

Source: ERC-8350, Normative Delta and Canonical hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from melete.errors import InvalidInput
from melete.primitives import (
    ZERO_BYTES32,
    Bytes32,
    keccak256,
    keccak_256,
    parse_sequence,
    trusted_bytes32,
    uint64,
    uint_word,
)

EXPERIENCE_DELTA_TYPE: Final = (
    "ExperienceDelta(bytes32 spaceId,uint64 sequence,bytes32 prevStateRoot,bytes32 deltaCommitment,"
    "bytes32 provenanceCommitment,bytes32 profileId,bytes32 locatorCommitment)"
)
EXPERIENCE_DELTA_TYPEHASH: Final = keccak256(EXPERIENCE_DELTA_TYPE.encode())
MEMORY_STATE_TYPE: Final = "MemoryState(bytes32 prevStateRoot,bytes32 transitionId)"
MEMORY_STATE_TYPEHASH: Final = keccak256(MEMORY_STATE_TYPE.encode())

#: The JSON members in the order of the struct, and the attributes that hold them.
MEMBERS: Final = {
    "spaceId": "space_id",
    "sequence": "sequence",
    "prevStateRoot": "prev_state_root",
    "deltaCommitment": "delta_commitment",
    "provenanceCommitment": "provenance_commitment",
    "profileId": "profile_id",
    "locatorCommitment": "locator_commitment",
}


@dataclass(frozen=True, slots=True)
class ExperienceDelta:
    """One private memory change, as commitments. All seven members are hashed and signed.

    `sequence` is a uint64, 1 for a space's first; the others are 32-byte words. Absent provenance and locator are
    zero words. Errors: `InvalidInput`, naming the member as the standard does.
    """

    space_id: Bytes32
    sequence: int
    prev_state_root: Bytes32
    delta_commitment: Bytes32
    provenance_commitment: Bytes32 = ZERO_BYTES32
    profile_id: Bytes32 = ZERO_BYTES32
    locator_commitment: Bytes32 = ZERO_BYTES32

    def __post_init__(self) -> None:
        uint64(self.sequence, "sequence")
        for member, name in MEMBERS.items():
            value = getattr(self, name)
            if type(value) is not Bytes32 and name != "sequence":
                object.__setattr__(self, name, Bytes32(value, member))

    def words(self) -> bytes:
        """Return the seven members as ABI words, 224 bytes: what is hashed, and what calldata carries."""
        return b"".join(
            (
                self.space_id,
                uint_word(self.sequence),
                self.prev_state_root,
                self.delta_commitment,
                self.provenance_commitment,
                self.profile_id,
                self.locator_commitment,
            )
        )

    def to_json(self) -> dict[str, str]:
        """Return the JSON members: words as 0x hex, the sequence as a decimal string."""
        return {member: str(getattr(self, name)) for member, name in MEMBERS.items()}

    @classmethod
    def from_json(cls, document: object) -> ExperienceDelta:
        """Return the delta that a JSON object states: exactly the seven members, all strings.

        Errors: `InvalidInput`, naming the member that is missing, unknown or ill-formed.
        """
        if not isinstance(document, Mapping):
            raise InvalidInput("delta", document, "a JSON object with the seven members of an ExperienceDelta")
        for member in document:
            if member not in MEMBERS:
                raise InvalidInput("delta", member, f"one of the members {', '.join(MEMBERS)}; it is unknown")
        for member in MEMBERS:
            if member not in document:
                raise InvalidInput(member, None, "in the delta; the member is missing")
            if not isinstance(document[member], str):
                raise InvalidInput(member, document[member], "a JSON string")
        values = {name: document[member] for member, name in MEMBERS.items() if name != "sequence"}
        words = {name: Bytes32(value, member) for (member, name), value in _named(values)}
        return cls(sequence=parse_sequence(document["sequence"]), **words)


def compute_transition_id(delta: ExperienceDelta) -> Bytes32:
    """Return the id of the transition that a delta becomes: its EIP-712 struct hash.

    keccak256 over eight 32-byte words: type hash and the seven members. The sequence fills a whole word.
    """
    if not isinstance(delta, ExperienceDelta):
        raise InvalidInput("delta", delta, "an ExperienceDelta")
    return trusted_bytes32(keccak_256(EXPERIENCE_DELTA_TYPEHASH + delta.words()).digest())


def compute_next_state_root(prev_state_root: Bytes32, transition_id: Bytes32) -> Bytes32:
    """Return the state root that follows `prev_state_root`.

    keccak256 over three 32-byte words: type hash, previous root, transition id. The previous root
    of the first transition is 32 zero bytes.
    """
    if type(prev_state_root) is not Bytes32:
        prev_state_root = Bytes32(prev_state_root, "prevStateRoot")
    if type(transition_id) is not Bytes32:
        transition_id = Bytes32(transition_id, "transitionId")
    return trusted_bytes32(keccak_256(MEMORY_STATE_TYPEHASH + prev_state_root + transition_id).digest())


def _named(values: Mapping[str, str]) -> list[tuple[tuple[str, str], str]]:
    return [((member, name), values[name]) for member, name in MEMBERS.items() if name in values]
