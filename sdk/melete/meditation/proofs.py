"""What an Agent Meditation registry of ours knew of a subject at a block, proven from the block's hash.

Storage layout of `AgentMeditationRegistry` (the compiler's own statement of it is in the artifact, and a test holds
the two together). Fields of a word from the low bits up, with their width in bits:

    slot 0              _subjects: mapping(address => Subject), a subject at s = keccak256(subject . 0)
    s + 0               head: policyVersion 32, stateVersion 64, recordCount 64, lastSignalAt 48, nextPlannedAt 48;
                        zero for an address that is not enrolled
    s + 1               control: controller 160, rights 8, floorVersion 32
    s + 2               floor, which is not read here
    s + 3               changes: lastChangedVersion 4 x 64, by layer; 0 stands for version 1
    s + 4, s + 6        completions of layers 0 and 1, 2 and 3, half a word each, the even layer in the low half:
                        lastCompletedAt 48, lastCompletedRecordedAt 48, completedUnderPolicy 32
    s + 5, s + 7        demands, which are not read here
    s + 8 ... s + 11    the commitments of the four layers
    s + 12              roots: mapping(uint256 stateVersion => bytes32), a root at keccak256(version . (s + 12))
    s + 13              policies: mapping(uint256 version => PolicyRecord), whose first word holds effectiveFrom, 48
                        bits from bit 16 on; policy 1 took effect at the enrollment

Other registries keep their state otherwise. `code_hash` holds an answer to our code: take it from the deployment's
record, which `verify_deployment` compares with the artifact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from melete.chain.proofs import (
    ProvenStorage,
    StorageProof,
    compute_mapping_slot,
    load_dependent_proof,
    verify_contract_storage,
)
from melete.chain.scan.blocks import BlockReference
from melete.errors import UnusableProof
from melete.meditation.layers import Layer, to_layer
from melete.meditation.status import LayerCheckpoint
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32, Address, Bytes32, uint64, uint_word

if TYPE_CHECKING:
    from web3 import Web3

SUBJECTS_SLOT: Final = 0
HEAD, CONTROL, FLOOR, CHANGES, PAIRS = range(5)
LAYERS, ROOTS, POLICIES = 8, 12, 13


@dataclass(frozen=True, slots=True)
class SubjectHead:
    """What is registered of a subject as a whole, with the contract's members. Times are seconds; 0 is never.

    All zero for an address that is not enrolled.
    """

    enrolled: bool = False
    controller: Address = ZERO_ADDRESS
    controller_rights: int = 0
    policy_version: int = 0
    floor_version: int = 0
    state_version: int = 0
    record_count: int = 0
    root: Bytes32 = ZERO_BYTES32
    enrolled_at: int = 0
    last_signal_at: int = 0
    next_planned_at: int = 0


NOT_ENROLLED: Final = SubjectHead()


def compute_subject_slot(subject: Address, member: int = HEAD) -> int:
    """Return the slot of a member of a subject, which is `member` slots after the first."""
    return compute_mapping_slot(Address(subject, "subject").word, SUBJECTS_SLOT) + member


def compute_root_slot(subject: Address, state_version: int) -> int:
    """Return the slot of the root of a state version."""
    version = uint_word(uint64(state_version, "stateVersion"))
    return compute_mapping_slot(version, compute_subject_slot(subject, ROOTS))


def compute_policy_slot(subject: Address, policy_version: int) -> int:
    """Return the slot of the first word of a policy version."""
    return compute_mapping_slot(uint_word(policy_version), compute_subject_slot(subject, POLICIES))


def load_subject_proof(
    w3: Web3,
    registry: Address,
    subject: Address,
    block: BlockReference | str | int = "latest",
    state_versions: Iterable[int] = (),
) -> StorageProof:
    """Return one proof of a subject's head and of all its checkpoints, and of the root of each of `state_versions`.

    Pin it to the block up to which events were read, a page's `through`. Errors: as `load_storage_proof`.
    """

    def slots(proven: ProvenStorage) -> Iterator[int]:
        state_version = _field(proven.word(compute_subject_slot(subject)), 32, 64)
        members = (HEAD, CONTROL, CHANGES, PAIRS, PAIRS + 2, *(LAYERS + layer.value for layer in Layer))
        yield from (compute_subject_slot(subject, member) for member in members)
        yield from (compute_policy_slot(subject, 1), compute_root_slot(subject, state_version))
        yield from (compute_root_slot(subject, version) for version in state_versions)

    return load_dependent_proof(w3, registry, compute_subject_slot(subject), slots, block)


def verify_head_of(
    proof: StorageProof, registry: Address, subject: Address, block_hash: Bytes32, code_hash: Bytes32 | None = None
) -> SubjectHead:
    """Return what `headOf` answered at a block: all zero for an address that was not enrolled.

    Errors: `UnusableProof`, `CodeMismatch`; `MissingExtra`.
    """
    proven = verify_contract_storage(proof, registry, block_hash, code_hash)
    head = proven.word(compute_subject_slot(subject, HEAD))
    if not any(head):
        return NOT_ENROLLED
    control = proven.word(compute_subject_slot(subject, CONTROL))
    policy = proven.word(compute_policy_slot(subject, 1))
    state_version = _field(head, 32, 64)
    if state_version == 0 or _field(control, 200, 56):
        raise UnusableProof("a subject with such words is none of this registry")
    return SubjectHead(
        enrolled=True,
        controller=Address(control[12:]),
        controller_rights=_field(control, 160, 8),
        policy_version=_field(head, 0, 32),
        floor_version=_field(control, 168, 32),
        state_version=state_version,
        record_count=_field(head, 96, 64),
        root=proven.word(compute_root_slot(subject, state_version)),
        enrolled_at=_field(policy, 16, 48),
        last_signal_at=_field(head, 160, 48),
        next_planned_at=_field(head, 208, 48),
    )


def verify_checkpoint_of(
    proof: StorageProof,
    registry: Address,
    subject: Address,
    layer: int,
    block_hash: Bytes32,
    code_hash: Bytes32 | None = None,
) -> LayerCheckpoint:
    """Return what `checkpointOf` answered at a block: all zero for an address that was not enrolled.

    Errors: `InvalidLayer`; else as `verify_head_of`.
    """
    number = to_layer(layer).value
    proven = verify_contract_storage(proof, registry, block_hash, code_hash)
    if not any(proven.word(compute_subject_slot(subject, HEAD))):
        return LayerCheckpoint()
    completions = proven.word(compute_subject_slot(subject, PAIRS + number // 2 * 2))
    changes = proven.word(compute_subject_slot(subject, CHANGES))
    half = 128 * (number % 2)
    return LayerCheckpoint(
        commitment=proven.word(compute_subject_slot(subject, LAYERS + number)),
        last_completed_at=_field(completions, half, 48),
        last_completed_recorded_at=_field(completions, half + 48, 48),
        completed_under_policy=_field(completions, half + 96, 32),
        last_changed_version=_field(changes, 64 * number, 64) or 1,
    )


def verify_root_at(
    proof: StorageProof,
    registry: Address,
    subject: Address,
    state_version: int,
    block_hash: Bytes32,
    code_hash: Bytes32 | None = None,
) -> Bytes32:
    """Return what `rootAt` answered at a block: zero for an unknown subject, version 0 and beyond the current one.

    Errors: as `verify_head_of`.
    """
    return verify_contract_storage(proof, registry, block_hash, code_hash).word(
        compute_root_slot(subject, state_version)
    )


# Private


def _field(word: bytes, shift: int, bits: int) -> int:
    """Return the number in a word that starts `shift` bits from its low end."""
    return int.from_bytes(word, "big") >> shift & ((1 << bits) - 1)
