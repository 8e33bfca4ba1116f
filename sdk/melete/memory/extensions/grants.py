"""What an audit grant commits to: its id, and the root of the witnesses that it discloses.

    root_0 = 32 zero bytes
    root_i = keccak256(type hash || root_{i-1} || transition id || witness hash)

over every transition of the range, ascending and without a gap. So a witness that is left out, moved or exchanged
gives another root than the one that was granted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from melete.canonical import Json, compute_content_hash
from melete.errors import EmptyRange, InvalidInput, ZeroFromSequence
from melete.primitives import (
    NOT_SHOWN,
    ZERO_BYTES32,
    Address,
    Bytes32,
    keccak256,
    keccak_256,
    trusted_bytes32,
    uint64,
    uint_word,
)

AUDIT_WITNESS_TYPE: Final = "AuditWitness(bytes32 prevRoot,bytes32 transitionId,bytes32 witnessHash)"
AUDIT_WITNESS_TYPEHASH: Final = keccak256(AUDIT_WITNESS_TYPE.encode())


@dataclass(frozen=True, slots=True)
class WitnessEntry:
    """One transition of a granted range, and the hash of the witness that is disclosed for it."""

    sequence: int
    transition_id: Bytes32
    witness_hash: Bytes32

    def __post_init__(self) -> None:
        uint64(self.sequence, "sequence")
        for name, member in (("transition_id", "transitionId"), ("witness_hash", "witnessHash")):
            if type(getattr(self, name)) is not Bytes32:
                object.__setattr__(self, name, Bytes32(getattr(self, name), member))


def check_range(from_sequence: int, to_sequence: int) -> None:
    """Refuse what is no range of transitions; both ends belong to it.

    Errors: `ZeroFromSequence`, `EmptyRange`; `InvalidInput` for what is no uint64.
    """
    uint64(from_sequence, "fromSequence")
    uint64(to_sequence, "toSequence")
    if from_sequence == 0:
        raise ZeroFromSequence
    if to_sequence < from_sequence:
        raise EmptyRange(from_sequence, to_sequence)


def compute_grant_id(space_id: Bytes32, auditor: Address, from_sequence: int, to_sequence: int) -> Bytes32:
    """Return the id of a grant: keccak256 over space, auditor and both ends of the range, a word each.

    It names neither chain nor registry, so a reference to a grant carries both beside it.
    """
    return keccak256(
        Bytes32(space_id, "spaceId")
        + Address(auditor, "auditor").word
        + uint_word(uint64(from_sequence, "fromSequence"))
        + uint_word(uint64(to_sequence, "toSequence"))
    )


def compute_witness_hash(witness: Json) -> Bytes32:
    """Return the keccak256 of a witness object's RFC 8785 bytes.

    Errors: `InvalidInput` for JSON that is no object, `InvalidJson` for what has no canonical form.
    """
    if not isinstance(witness, dict):
        raise InvalidInput("witness", NOT_SHOWN, "a JSON object")
    return compute_content_hash(witness)


def compute_next_witness_root(prev_root: Bytes32, transition_id: Bytes32, witness_hash: Bytes32) -> Bytes32:
    """Return the root that follows `prev_root` by one witness; the first of a range follows 32 zero bytes."""
    words = (
        Bytes32(prev_root, "prevRoot") + Bytes32(transition_id, "transitionId") + Bytes32(witness_hash, "witnessHash")
    )
    return trusted_bytes32(keccak_256(AUDIT_WITNESS_TYPEHASH + words).digest())


def fold_witness_root(entries: Iterable[WitnessEntry], from_sequence: int, to_sequence: int) -> Bytes32:
    """Return the root of the witnesses of a whole range, read once and one at a time.

    Errors: `InvalidInput`, naming the number that is due, for an entry that is not the next one, for one beyond the
    range, and for a range that is not complete; `ZeroFromSequence`, `EmptyRange`.
    """
    check_range(from_sequence, to_sequence)
    due, root = from_sequence, ZERO_BYTES32
    for entry in entries:
        if due > to_sequence:
            raise InvalidInput("sequence", entry.sequence, f"none after {to_sequence}, where the range ends")
        if entry.sequence != due:
            raise InvalidInput("sequence", entry.sequence, f"{due}, the next one: ascending, without a gap")
        root = compute_next_witness_root(root, entry.transition_id, entry.witness_hash)
        due += 1
    if due <= to_sequence:
        raise InvalidInput("entries", due - from_sequence, f"{to_sequence - from_sequence + 1}; sequence {due} is next")
    return root
