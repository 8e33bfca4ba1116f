"""What an Agent Memory State registry of ours knew of a space at a block, proven from the block's hash.

Storage layout of `AgentMemoryStateRegistry` (the compiler's own statement of it is in the artifact, and a test holds
the two together):

    slot 2              _spaces: mapping(bytes32 spaceId => Space), a space at s = keccak256(spaceId . 2)
    s + 0               tip: authorizer (low 160 bits), sequence (next 64), 32 zero bits; zero for an unknown space
    s + 1               controller (low 160 bits), configNonce (next 64), 32 zero bits
    s + 2               transitionId of the head
    s + 3               stateRoots: mapping(uint256 sequence => bytes32), a root at keccak256(sequence . (s + 3))

Other registries keep their state otherwise. `code_hash` holds an answer to our code: take it from the deployment's
record, which `verify_deployment` compares with the artifact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from melete.chain.deployments import verify_code
from melete.chain.proofs import (
    ProvenStorage,
    StorageProof,
    compute_mapping_slot,
    load_dependent_proof,
    verify_contract_storage,
)
from melete.chain.scan.blocks import BlockReference
from melete.errors import BrokenHistory, CodeMismatch, MissingExtra, NodeRefused, UnknownSpace, UnusableProof
from melete.memory.space import GENESIS, Head, SpaceAuthorization, SpaceState
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32, Address, Bytes32, uint64, uint_word

if TYPE_CHECKING:
    from web3 import Web3

    from melete.memory.registry import MemoryRegistry

SPACES_SLOT: Final = 2
TIP, CONTROL, TRANSITION_ID, STATE_ROOTS = range(4)

#: What a verified history can break against the registry's own state.
ANCHOR_RULES: Final = ("space_unregistered", "head", "authorization")


def compute_space_slot(space_id: Bytes32, member: int = TIP) -> int:
    """Return the slot of a member of a space: `TIP`, `CONTROL`, `TRANSITION_ID` or `STATE_ROOTS`."""
    return compute_mapping_slot(Bytes32(space_id, "spaceId"), SPACES_SLOT) + member


def compute_state_root_slot(space_id: Bytes32, sequence: int) -> int:
    """Return the slot of the state root after transition `sequence`."""
    words = uint_word(uint64(sequence, "sequence"))
    return compute_mapping_slot(words, compute_space_slot(space_id, STATE_ROOTS))


def load_space_proof(
    w3: Web3,
    registry: Address,
    space_id: Bytes32,
    block: BlockReference | str | int = "latest",
    sequences: Iterable[int] = (),
) -> StorageProof:
    """Return one proof of a space's head and authorization, and of its state root after each of `sequences`.

    Pin it to the block up to which events were read, a page's `through`. Errors: as `load_storage_proof`.
    """

    def slots(proven: ProvenStorage) -> Iterator[int]:
        _, sequence = _read_tip(proven, space_id)
        yield from (compute_space_slot(space_id, member) for member in (TIP, CONTROL, TRANSITION_ID))
        if sequence:
            yield compute_state_root_slot(space_id, sequence)
        yield from (compute_state_root_slot(space_id, number) for number in sequences)

    return load_dependent_proof(w3, registry, compute_space_slot(space_id), slots, block)


def verify_head(
    proof: StorageProof, registry: Address, space_id: Bytes32, block_hash: Bytes32, code_hash: Bytes32 | None = None
) -> Head | None:
    """Return what `head` answered at a block; None for a space that was not registered.

    Errors: `UnusableProof`, `CodeMismatch`; `MissingExtra`.
    """
    proven = verify_contract_storage(proof, registry, block_hash, code_hash)
    authorizer, sequence = _read_tip(proven, space_id)
    return None if authorizer is None else _read_head(proven, space_id, sequence)


def verify_authorization(
    proof: StorageProof, registry: Address, space_id: Bytes32, block_hash: Bytes32, code_hash: Bytes32 | None = None
) -> SpaceAuthorization | None:
    """Return what `spaceAuthorization` answered at a block; None for a space that was not registered.

    Errors: as `verify_head`.
    """
    proven = verify_contract_storage(proof, registry, block_hash, code_hash)
    authorizer, _ = _read_tip(proven, space_id)
    return None if authorizer is None else _read_authorization(proven, space_id, authorizer)


def verify_space_state(
    proof: StorageProof, registry: Address, space_id: Bytes32, block_hash: Bytes32, code_hash: Bytes32 | None = None
) -> SpaceState | None:
    """Return all that the registry knew of a space at a block; None for one that was not registered.

    Errors: as `verify_head`.
    """
    proven = verify_contract_storage(proof, registry, block_hash, code_hash)
    authorizer, sequence = _read_tip(proven, space_id)
    if authorizer is None:
        return None
    return SpaceState(_read_authorization(proven, space_id, authorizer), _read_head(proven, space_id, sequence))


def verify_state_root_at(
    proof: StorageProof,
    registry: Address,
    space_id: Bytes32,
    sequence: int,
    block_hash: Bytes32,
    code_hash: Bytes32 | None = None,
) -> Bytes32:
    """Return what `stateRootAt` answered at a block: zero for an unknown space, sequence 0 and beyond the head.

    Errors: as `verify_head`.
    """
    return verify_contract_storage(proof, registry, block_hash, code_hash).word(
        compute_state_root_slot(space_id, sequence)
    )


def verify_anchor(
    state: SpaceState | None,
    proof: StorageProof,
    registry: Address,
    space_id: Bytes32,
    block_hash: Bytes32,
    code_hash: Bytes32 | None = None,
) -> SpaceState | None:
    """Return `state`, which follows from events up to a block, if the registry knew the same at that block.

    This shows that no event was left out, at the end either. Errors: `BrokenHistory` with one of `ANCHOR_RULES`;
    else as `verify_head`.
    """
    return verify_same_state(state, verify_space_state(proof, registry, space_id, block_hash, code_hash))


def verify_same_state(state: SpaceState | None, known: SpaceState | None) -> SpaceState | None:
    """Return `state`, which follows from events, if the registry knew the same. Errors: `BrokenHistory`, as above."""
    if state is None or known is None:
        if state is not known:
            due, found = (1, "no space") if known is None else (known.head.sequence, "a space")
            raise BrokenHistory(due, "space_unregistered", found, "no space" if state is None else "a space")
        return None
    due = min(state.head.sequence, known.head.sequence) + 1
    for rule, members, ours, theirs in (
        ("head", ("sequence", "state_root", "transition_id"), state.head, known.head),
        ("authorization", ("config_nonce", "controller", "authorizer"), state.authorization, known.authorization),
    ):
        for member in members:
            if getattr(ours, member) != getattr(theirs, member):
                raise BrokenHistory(due, rule, getattr(theirs, member), getattr(ours, member))
    return state


# With a node


class AnchoredBy(StrEnum):
    """How a history was compared with the registry's own state at a block, the stronger first."""

    #: Proven from the block's hash, for the code of ours.
    PROOF = "storage proof"
    #: What the node says that the registry answers at that very block: of another registry, or without proofs.
    ANSWER = "answer at the block's hash"


def verify_anchor_at(
    registry: MemoryRegistry, space_id: Bytes32, state: SpaceState | None, block: BlockReference
) -> AnchoredBy:
    """Return how `state`, which follows from events up to a block, was found to be the registry's at that very block.

    By a storage proof if the registry runs our code and the node gives one that can be used; else by the registry's
    answers, asked for by the block's hash. Errors: `BrokenHistory` with one of `ANCHOR_RULES`; `CodeMismatch` when the
    code at that block was another than now; `NodeRefused` when the node has no such block any more; `NodeUnreachable`.
    """
    code_hash: Bytes32 | None = None
    with suppress(CodeMismatch):
        code_hash = verify_code(registry.w3, "AgentMemoryStateRegistry", registry.address)
    with suppress(NodeRefused, UnusableProof, MissingExtra):
        if code_hash is not None:
            proof = load_space_proof(registry.w3, registry.address, space_id, block)
            verify_anchor(state, proof, registry.address, space_id, block.hash, code_hash)
            return AnchoredBy.PROOF
    known: SpaceState | None = None
    with suppress(UnknownSpace):
        known = registry.load_state(space_id, block)
    verify_same_state(state, known)
    return AnchoredBy.ANSWER


# Private


def _read_tip(proven: ProvenStorage, space_id: Bytes32) -> tuple[Address | None, int]:
    tip = int.from_bytes(proven.word(compute_space_slot(space_id, TIP)), "big")
    authorizer, sequence = _unpack(tip)
    if (authorizer == ZERO_ADDRESS) != (tip == 0):
        raise UnusableProof("a space without an authorizer is none of this registry")
    return None if tip == 0 else authorizer, sequence


def _read_head(proven: ProvenStorage, space_id: Bytes32, sequence: int) -> Head:
    transition_id = proven.word(compute_space_slot(space_id, TRANSITION_ID))
    if sequence == 0:
        if transition_id != ZERO_BYTES32:
            raise UnusableProof("a transition without a sequence is none of this registry")
        return GENESIS
    return Head(transition_id, proven.word(compute_state_root_slot(space_id, sequence)), sequence)


def _read_authorization(proven: ProvenStorage, space_id: Bytes32, authorizer: Address) -> SpaceAuthorization:
    controller, config_nonce = _unpack(int.from_bytes(proven.word(compute_space_slot(space_id, CONTROL)), "big"))
    return SpaceAuthorization(controller, authorizer, config_nonce)


def _unpack(word: int) -> tuple[Address, int]:
    """Return an address and the uint64 above it. Bits above both are zero in this registry."""
    if word >> 224:
        raise UnusableProof("a word with bits beyond address and number is none of this registry")
    return Address((word & (2**160 - 1)).to_bytes(20, "big")), word >> 160
