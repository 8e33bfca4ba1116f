"""Whether the chain holds what an audit bundle discloses: by storage proofs within the bundle, or by a node.

The last state root binds every transition before it, so one word of the registry's is enough: `stateRootAt` at the end
of the range. The grant is four words of its contract's (the compiler's own statement of the layout is in the artifact,
and a test holds the two together):

    slot 0    _grants: mapping(bytes32 grantId => Grant), a grant at g = keccak256(grantId . 0)
    g + 0     spaceId
    g + 1     witnessSetRoot
    g + 2     auditor (low 160 bits), acknowledgedAt (next 48), revokedAt (next 48); auditor zero for no grant
    g + 3     fromSequence (low 64 bits), toSequence (next 64), grantedAt (next 48), 80 zero bits

A proof leads to the hash of its block and no further: that the chain has the block, whoever reads it has to know, by a
hash that they trust. The addresses are the bundle's own words too, and anyone can deploy a contract that answers what
they like. So the code is looked at: this package's registry or AuditGrant counts, and so does an address that the
reader names. The bundle carries the code for that, and a proof of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from melete.canonical import Json
from melete.chain.connection import call, check_chain, require_code
from melete.chain.logs import BlockReference, Scanner, load_block
from melete.chain.proofs import (
    Header,
    ProvenStorage,
    StorageProof,
    compute_mapping_slot,
    load_storage_proof,
    verify_contract_storage,
)
from melete.chain.reverts import compute_selector
from melete.chain.rpc import one
from melete.errors import (
    BrokenBundle,
    ContractError,
    InvalidInput,
    InvalidJson,
    NodeRefused,
    NotARegistry,
    UnknownGrant,
    UnusableLogs,
    UnusableProof,
)
from melete.memory.disclosure import (
    AuditBundle,
    read_bytes,
    read_members,
    read_word,
    verify_disclosure,
)
from melete.memory.events import TRANSITION_COMMITTED, MemoryEvent, TransitionCommitted
from melete.memory.extensions.audit import AuditGrant, Grant
from melete.memory.proofs import compute_state_root_slot, load_space_proof
from melete.memory.raw_history import decode_quickly
from melete.memory.registry import FUNCTIONS, MemoryRegistry
from melete.memory.space import Head
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32, Address, Bytes32, keccak256, uint_word
from melete.resources import load_artifact

if TYPE_CHECKING:
    from web3 import Web3

T = TypeVar("T")

REGISTRY_CONTRACT: Final = "AgentMemoryStateRegistry"
GRANT_CONTRACT: Final = "AuditGrant"
GRANTS_SLOT: Final = 0
GRANT_SPACE, GRANT_ROOT, GRANT_AUDITOR, GRANT_RANGE = range(4)

#: What a bundle can break against a chain, or against its own proofs, beside `melete.memory.disclosure.RULES`.
ANCHORING_RULES: Final = (
    "block_hash",
    "proof_account",
    "proof",
    "proof_slot",
    "code",
    "start_state_root",
    "state_root",
    "contract",
    "grant_registry",
    "grant_unknown",
    "grant_space",
    "grant_auditor",
    "grant_range",
    "grant_witness_set_root",
    "grant_revoked",
    "authorizer",
)


# Proofs within a bundle


@dataclass(frozen=True, slots=True)
class ProvenContract:
    """A storage proof of a contract, and the code whose hash the proof holds."""

    proof: StorageProof
    code: bytes

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object that stands in a bundle's member `anchoring` for a contract."""
        return {"proof": self.proof.to_json(), "code": "0x" + self.code.hex()}


@dataclass(frozen=True, slots=True)
class Anchoring:
    """Proofs of the registry and, where the bundle names its contract, of the grant: both of one block."""

    block_hash: Bytes32
    registry: ProvenContract
    grant: ProvenContract | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object that is a bundle's member `anchoring`."""
        return {
            "blockHash": str(self.block_hash),
            "registry": self.registry.to_json(),
            "grant": None if self.grant is None else self.grant.to_json(),
        }

    @classmethod
    def from_json(cls, document: Json) -> Anchoring:
        """Return what the member `anchoring` of a bundle states. Errors: `InvalidJson`, pointing into the bundle."""
        block_hash, registry, grant = read_members(document, "/anchoring", ("blockHash", "registry", "grant"))
        return cls(
            read_word(block_hash, "/anchoring/blockHash"),
            _read_contract(registry, "/anchoring/registry"),
            None if grant is None else _read_contract(grant, "/anchoring/grant"),
        )


class Anchored(NamedTuple):
    """The block at which the state roots held, and whether the registry runs this package's code."""

    block: BlockReference
    is_ours: bool


class Granted(NamedTuple):
    """The grant as its contract holds it, and whether that runs this package's code."""

    grant: Grant
    is_ours: bool


def compute_grant_slot(grant_id: Bytes32, member: int = GRANT_SPACE) -> int:
    """Return the slot of a word of a grant: `GRANT_SPACE`, `GRANT_ROOT`, `GRANT_AUDITOR` or `GRANT_RANGE`."""
    return compute_mapping_slot(Bytes32(grant_id, "grantId"), GRANTS_SLOT) + member


def verify_roots_by_proof(
    bundle: AuditBundle, end: Head, anchoring: Anchoring, block_hash: Bytes32 | None = None
) -> Anchored:
    """Return the block at which the registry's state roots were those of a bundle, by the bundle's own proofs.

    `end` is what `verify_disclosure` returned, `block_hash` that of a block of the chain, as you know. Without one, the
    proofs are held against the hash beside them, which shows nothing but that they fit together. Errors:
    `BrokenBundle` with one of `ANCHORING_RULES`; `UnusableProof` when all fits together and is of another block than
    yours; `MissingExtra`.
    """
    own, pointer = anchoring.block_hash, "/anchoring/registry"
    header, proven = _verify_contract(anchoring.registry, bundle.reference.registry, own, pointer)
    space_id, grant = bundle.reference.space_id, bundle.grant
    last = _word(proven, compute_state_root_slot(space_id, grant.to_sequence), pointer)
    # The root before the range follows from the last one; a proof need not have it.
    first = proven.words.get(_key(compute_state_root_slot(space_id, grant.from_sequence - 1)))
    _check_roots(bundle, end, first, last)
    if block_hash not in (None, own):
        raise UnusableProof(f"it is of block {own}, not of {block_hash}")
    return Anchored(header.block, _is_ours(REGISTRY_CONTRACT, anchoring.registry.code))


def verify_grant_by_proof(bundle: AuditBundle, anchoring: Anchoring, contract: Address | None = None) -> Granted | None:
    """Return the grant as its contract held it at the block of a bundle's proofs; None where nothing is proven of it.

    `contract` is where it has to stand; where the bundle says, unless given. Whether the chain has the block,
    `verify_roots_by_proof` says. Errors: `BrokenBundle` with one of `ANCHORING_RULES`; `MissingExtra`.
    """
    stated, pointer = _require_contract(bundle, contract), "/anchoring/grant"
    if anchoring.grant is None:
        return None
    if stated is None:
        raise BrokenBundle(None, "/grant/contract", "contract", anchoring.grant.proof.address, None)
    _, proven = _verify_contract(anchoring.grant, stated, anchoring.block_hash, pointer)
    _check_grant_registry(bundle, anchoring.grant.code)
    words = [_word(proven, compute_grant_slot(bundle.grant.grant_id, member), pointer) for member in range(4)]
    return _check_grant(bundle, _read_grant(*words), anchoring.grant.code)


def load_anchoring(w3: Web3, bundle: AuditBundle, block: BlockReference | str = "latest") -> Anchoring:
    """Return proofs of all that a bundle claims of the chain, of one block, checked.

    Errors: `BrokenBundle` when the bundle does not hold, or the chain knows otherwise; `UnusableProof`, `NodeRefused`,
    `NodeUnreachable`; `MissingExtra`.
    """
    end = verify_disclosure(bundle)
    reference, grant = bundle.reference, bundle.grant
    if isinstance(block, str):
        block = load_block(w3, block)
    sequences = [number for number in (grant.from_sequence - 1, grant.to_sequence) if number]
    proof = load_space_proof(w3, reference.registry, reference.space_id, block, sequences)
    proven_grant = None
    if grant.contract is not None:
        slots = [compute_grant_slot(grant.grant_id, member) for member in range(4)]
        proven_grant = ProvenContract(
            load_storage_proof(w3, grant.contract, slots, block), _load_code(w3, grant.contract, block)
        )
    anchoring = Anchoring(block.hash, ProvenContract(proof, _load_code(w3, reference.registry, block)), proven_grant)
    verify_roots_by_proof(bundle, end, anchoring, block.hash)
    verify_grant_by_proof(bundle, anchoring)
    return anchoring


def with_anchoring(bundle: AuditBundle, anchoring: Anchoring) -> AuditBundle:
    """Return a bundle with its proofs."""
    return replace(bundle, anchoring=anchoring.to_json())


# Asking a node


def verify_roots_by_node(bundle: AuditBundle, end: Head, w3: Web3, block: BlockReference | str = "latest") -> Anchored:
    """Return the block at which, by a node's word, the registry's state roots were those of a bundle, at both ends.

    `end` is what `verify_disclosure` returned. Errors: `BrokenBundle` with one of `ANCHORING_RULES`; `WrongChain`,
    `NoContract`, `NotARegistry`, `NodeRefused`, `NodeUnreachable`.
    """
    reference, grant = bundle.reference, bundle.grant
    check_chain(w3, reference.chain_id)
    if isinstance(block, str):
        block = load_block(w3, block)
    code = require_code(w3, reference.registry)
    first, last = (
        _ask_state_root(w3, bundle, sequence, block) for sequence in (grant.from_sequence - 1, grant.to_sequence)
    )
    _check_roots(bundle, end, first, last)
    return Anchored(block, _is_ours(REGISTRY_CONTRACT, code))


def verify_grant_by_node(
    bundle: AuditBundle, w3: Web3, block: BlockReference, contract: Address | None = None
) -> Granted | None:
    """Return the grant as, by a node's word, its contract held it at a block; None where no contract is named.

    `contract` is where it has to stand; where the bundle says, unless given. Errors: `BrokenBundle` with one of
    `ANCHORING_RULES`; `WrongChain`, `NoContract`, `NotARegistry`, `NotARecord`, `NodeRefused`, `NodeUnreachable`.
    """
    stated = _require_contract(bundle, contract)
    if stated is None:
        return None
    registry = MemoryRegistry(w3, bundle.reference.registry, expected_chain_id=bundle.reference.chain_id)
    code = require_code(w3, stated)
    _check_grant_registry(bundle, code)
    try:
        found = _GrantsAt(registry, stated, block).grant_of(bundle.grant.grant_id)
    except UnknownGrant:
        found = None
    return _check_grant(bundle, found, code)


def verify_authorizers(bundle: AuditBundle, w3: Web3, from_block: int, block: BlockReference) -> None:
    """Return if the registry's events up to a block name the same transitions and authorizers as the bundle.

    `from_block` is at or before the block of the first transition of the range. Errors: `BrokenBundle` with the rule
    `authorizer` or `transition_id`; `UnusableLogs` when an event is missing; the scanner's own.
    """
    remaining = {entry.transition.delta.sequence: index for index, entry in enumerate(bundle.entries)}
    scanner: Scanner[MemoryEvent] = Scanner(
        w3,
        bundle.reference.registry,
        decode_quickly,
        start_block=from_block,
        until=block.number,
        topics=(keccak256(TRANSITION_COMMITTED.encode()), bundle.reference.space_id),
    )
    for event in scanner.events():
        if not isinstance(event, TransitionCommitted):
            continue
        sequence = event.delta.sequence
        index = remaining.pop(sequence, None)
        if index is None:
            continue
        stated = bundle.entries[index].transition
        for member, rule, expected, received in (
            ("transitionId", "transition_id", event.transition_id, stated.transition_id),
            ("authorizer", "authorizer", event.authorizer, stated.authorizer),
        ):
            if expected != received:
                raise BrokenBundle(sequence, f"/entries/{index}/{member}", rule, expected, received)
        if not remaining:
            return
    if remaining:
        raise UnusableLogs(f"there is no event of transition {min(remaining)} from block {from_block} on")


def load_block_by_hash(w3: Web3, block_hash: Bytes32) -> BlockReference:
    """Return a block of the node's chain. Errors: `NodeRefused` when it is unknown there, or orphaned."""
    method = "eth_getBlockByHash"
    found = one(w3, method, [str(block_hash), False])
    if found is None:
        raise NodeRefused(method, f"it has no block {block_hash}")
    try:
        block = BlockReference(int(found["number"], 16), Bytes32(found["hash"], "hash"))
    except (KeyError, TypeError, ValueError) as error:
        raise NodeRefused(method, f"block {block_hash} has no number and hash") from error
    if load_block(w3, block.number) != block or block.hash != block_hash:
        raise NodeRefused(method, f"block {block_hash} is not on its chain")
    return block


# Private


class _GrantsAt(AuditGrant):
    """The grants as they were at a block, and no later."""

    def __init__(self, registry: MemoryRegistry, address: Address, block: BlockReference) -> None:
        self._block = {"blockHash": str(block.hash), "requireCanonical": True}
        super().__init__(registry, address)

    def _ask(self, view: str, arguments: bytes) -> bytes:
        return call(self.w3, self.address, self._data(view, arguments), block=self._block)


def _ask_state_root(w3: Web3, bundle: AuditBundle, sequence: int, block: BlockReference) -> Bytes32:
    registry, view = bundle.reference.registry, "stateRootAt"
    data = compute_selector(FUNCTIONS[view]) + bundle.reference.space_id + uint_word(sequence)
    try:
        answer = call(w3, registry, data, block={"blockHash": str(block.hash), "requireCanonical": True})
    except ContractError as error:
        raise NotARegistry(registry, view, str(error)) from error
    if len(answer) != 32:
        raise NotARegistry(registry, view, answer)
    return Bytes32(answer)


def _load_code(w3: Web3, address: Address, block: BlockReference) -> bytes:
    found = one(w3, "eth_getCode", [str(address), hex(block.number)])
    return read_bytes(found.lower() if isinstance(found, str) else found, "/code")


def _check_roots(bundle: AuditBundle, end: Head, first: Bytes32 | None, last: Bytes32) -> None:
    """Hold both ends of the range against the registry's state roots."""
    if first is not None and first != bundle.start_state_root:
        raise BrokenBundle(None, "/startStateRoot", "start_state_root", first, bundle.start_state_root)
    if last != end.state_root:
        pointer = f"/entries/{len(bundle.entries) - 1}/nextStateRoot"
        expected: object = last if last != ZERO_BYTES32 else "none, for the registry has no such transition"
        raise BrokenBundle(end.sequence, pointer, "state_root", expected, end.state_root)


def _require_contract(bundle: AuditBundle, contract: Address | None) -> Address | None:
    """Return where the grant has to stand."""
    stated = bundle.grant.contract
    if None not in (stated, contract) and stated != contract:
        raise BrokenBundle(None, "/grant/contract", "contract", contract, stated)
    return stated if contract is None else contract


def _check_grant(bundle: AuditBundle, found: Grant | None, code: bytes) -> Granted:
    """Hold the granted terms against the contract's."""
    stated = bundle.grant
    if found is None:
        raise BrokenBundle(None, "/grant/grantId", "grant_unknown", "a grant that was made", stated.grant_id)
    for member, rule, expected, received in (
        ("grantId", "grant_space", found.space_id, bundle.reference.space_id),
        ("auditor", "grant_auditor", found.auditor, stated.auditor),
        ("fromSequence", "grant_range", found.from_sequence, stated.from_sequence),
        ("toSequence", "grant_range", found.to_sequence, stated.to_sequence),
        ("witnessSetRoot", "grant_witness_set_root", found.witness_set_root, stated.witness_set_root),
    ):
        if expected != received:
            raise BrokenBundle(None, f"/grant/{member}", rule, expected, received)
    if found.revoked_at:
        revoked = f"revoked at Unix time {found.revoked_at}"
        raise BrokenBundle(None, "/grant/grantId", "grant_revoked", "a grant in force", revoked)
    return Granted(found, _is_ours(GRANT_CONTRACT, code))


def _is_ours(contract: str, code: bytes) -> bool:
    artifact = load_artifact(contract)
    return artifact.compute_template_hash(code) == artifact.template_hash


def _check_grant_registry(bundle: AuditBundle, code: bytes) -> None:
    """Hold the bundle's registry against the one that an AuditGrant of this package was built over: its immutable."""
    if not _is_ours(GRANT_CONTRACT, code):
        return
    registry = bundle.reference.registry
    for start, length in load_artifact(GRANT_CONTRACT).immutables:
        if code[start : start + length] != registry.word:
            other = Address(code[start : start + length][-20:])
            raise BrokenBundle(None, "/grant/contract", "grant_registry", registry, other)


def _verify_contract(
    given: ProvenContract, address: Address, block_hash: Bytes32, pointer: str
) -> tuple[Header, ProvenStorage]:
    """Return what a proof proves of a contract, if it is of it and of the block; every fault is the bundle's."""
    found = given.proof.block_hash
    if found != block_hash:
        raise BrokenBundle(None, f"{pointer}/proof/header", "block_hash", block_hash, found)
    if given.proof.address != address:
        raise BrokenBundle(None, f"{pointer}/proof/address", "proof_account", address, given.proof.address)
    proven = _usable(pointer, lambda: verify_contract_storage(given.proof, address, block_hash))
    code_hash = keccak256(given.code)
    if code_hash != proven.code_hash:
        raise BrokenBundle(None, f"{pointer}/code", "code", proven.code_hash, code_hash)
    return proven.header, proven


def _usable(pointer: str, question: Callable[[], T]) -> T:
    try:
        return question()
    except UnusableProof as error:
        raise BrokenBundle(None, f"{pointer}/proof", "proof", "whole, and the chain's encoding", error.reason) from None


def _key(slot: int) -> Bytes32:
    return Bytes32(uint_word(slot % 2**256))


def _word(proven: ProvenStorage, slot: int, pointer: str) -> Bytes32:
    if _key(slot) not in proven.words:
        slots = ", ".join(map(str, proven.words)) or "none"
        raise BrokenBundle(None, f"{pointer}/proof/storageProof", "proof_slot", _key(slot), slots)
    return proven.words[_key(slot)]


def _read_grant(space_id: Bytes32, root: Bytes32, auditor: Bytes32, ends: Bytes32) -> Grant | None:
    """Return the grant that a contract stores in four words, or None."""
    account = Address(auditor[12:])
    if account == ZERO_ADDRESS:
        return None
    # The lowest member stands at the right end of its word.
    revoked_at, acknowledged_at = (int.from_bytes(auditor[start : start + 6], "big") for start in (0, 6))
    granted_at, last, first = (int.from_bytes(ends[start:end], "big") for start, end in ((10, 16), (16, 24), (24, 32)))
    return Grant(space_id, root, account, acknowledged_at, revoked_at, first, last, granted_at)


def _read_contract(value: Json, pointer: str) -> ProvenContract:
    proof, code = read_members(value, pointer, ("proof", "code"))
    try:
        return ProvenContract(StorageProof.from_json(proof), read_bytes(code, f"{pointer}/code"))
    except InvalidInput as error:
        raise InvalidJson(f"{pointer}/proof", f"its {error.field} must be {error.rule}") from None
