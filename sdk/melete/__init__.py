"""Verifiable memory and self-maintenance for AI agents.

    operation -> commitment -> delta -> signature -> registry -> event -> verified history

A private memory change becomes a salted commitment; the delta that carries it is signed and appended to a space on
an Agent Memory State registry (ERC-8350); from the registry's events anyone can verify that nothing was lost,
reordered or rewritten, and whoever holds the witness can show what was committed.

    from melete import GENESIS, Transition, Witness, compute_profile_id, verify_history

    witness = Witness(compute_profile_id("notes/1"), b"likes tea", salt)
    delta = witness.build_delta(space_id, GENESIS)
    head = verify_history(space_id, [Transition.of(delta)])

Names are imported when they are first used: `import melete` alone loads nothing else.
"""

from __future__ import annotations

from importlib import import_module

# As `typing` has it, for type checkers; importing `typing` would cost more than all the rest here.
TYPE_CHECKING = False

__version__ = "0.1.0"

#: Every public name and the module that holds it.
_EXPORTS = {
    "Address": "melete.primitives",
    "ApeSigner": "melete.signing",
    "AuditBundle": "melete.memory.disclosure",
    "Batch": "melete.memory.batch",
    "BrokenBundle": "melete.errors",
    "BrokenHistory": "melete.errors",
    "Bytes32": "melete.primitives",
    "CallableSigner": "melete.signing",
    "ContractError": "melete.errors",
    "CouldNotTell": "melete.errors",
    "DELTA": "melete.memory.witness_kinds",
    "Domain": "melete.typed_data",
    "ExperienceDelta": "melete.memory.delta",
    "GENESIS": "melete.memory.space",
    "Head": "melete.memory.space",
    "InvalidInput": "melete.errors",
    "LocalSender": "melete.chain.transactions",
    "LocalSigner": "melete.signing",
    "MeleteError": "melete.errors",
    "MemoryOutbox": "melete.memory.outbox",
    "MemoryRegistry": "melete.memory.registry",
    "MemoryRules": "melete.memory.outbox",
    "Operation": "melete.memory.batch",
    "Outbox": "melete.chain.outbox",
    "Passphrase": "melete.memory.witness_keys",
    "ProfileRegistry": "melete.memory.profiles",
    "Scanner": "melete.chain.logs",
    "Signer": "melete.signing",
    "SpaceAuthorization": "melete.memory.space",
    "SpaceState": "melete.memory.space",
    "StorageProof": "melete.chain.proofs",
    "StoreKey": "melete.memory.witness_keys",
    "Submitter": "melete.chain.submitter",
    "Transition": "melete.memory.history",
    "TransitionCommitted": "melete.memory.events",
    "VerificationError": "melete.errors",
    "Witness": "melete.memory.witness",
    "WitnessMismatch": "melete.errors",
    "WitnessStore": "melete.memory.witness_store",
    "canonicalize": "melete.canonical",
    "canonicalize_json": "melete.canonical",
    "compute_authorization_hash": "melete.memory.space",
    "compute_content_hash": "melete.canonical",
    "compute_delta_commitment": "melete.memory.commitment",
    "compute_locator_commitment": "melete.memory.commitment",
    "compute_next_state_root": "melete.memory.delta",
    "compute_profile_id": "melete.memory.commitment",
    "compute_provenance_commitment": "melete.memory.commitment",
    "compute_registration_hash": "melete.memory.space",
    "compute_space_id": "melete.memory.space",
    "compute_transition_id": "melete.memory.delta",
    "connect": "melete.chain.connection",
    "create_store_key": "melete.memory.witness_keys",
    "decode_event": "melete.memory.events",
    "drill": "melete.memory.witness_drill",
    "keccak256": "melete.primitives",
    "load_json": "melete.canonical",
    "load_key_file": "melete.signing",
    "load_keystore": "melete.signing",
    "load_store_key": "melete.memory.witness_keys",
    "memory_state_domain": "melete.memory.space",
    "recover_signer": "melete.signing",
    "verify_anchor_at": "melete.memory.proofs",
    "verify_disclosure": "melete.memory.disclosure",
    "verify_history": "melete.memory.history",
    "verify_inclusion": "melete.memory.batch",
    "verify_signature": "melete.signing",
    "verify_space_history": "melete.memory.forensics",
    "verify_space_logs": "melete.memory.raw_history",
    "verify_storage_proof": "melete.chain.proofs",
    "verify_witness": "melete.memory.witness",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'melete' has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


if TYPE_CHECKING:
    from melete.canonical import canonicalize as canonicalize
    from melete.canonical import canonicalize_json as canonicalize_json
    from melete.canonical import compute_content_hash as compute_content_hash
    from melete.canonical import load_json as load_json
    from melete.chain.connection import connect as connect
    from melete.chain.logs import Scanner as Scanner
    from melete.chain.outbox import Outbox as Outbox
    from melete.chain.proofs import StorageProof as StorageProof
    from melete.chain.proofs import verify_storage_proof as verify_storage_proof
    from melete.chain.submitter import Submitter as Submitter
    from melete.chain.transactions import LocalSender as LocalSender
    from melete.errors import BrokenBundle as BrokenBundle
    from melete.errors import BrokenHistory as BrokenHistory
    from melete.errors import ContractError as ContractError
    from melete.errors import CouldNotTell as CouldNotTell
    from melete.errors import InvalidInput as InvalidInput
    from melete.errors import MeleteError as MeleteError
    from melete.errors import VerificationError as VerificationError
    from melete.errors import WitnessMismatch as WitnessMismatch
    from melete.memory.batch import Batch as Batch
    from melete.memory.batch import Operation as Operation
    from melete.memory.batch import verify_inclusion as verify_inclusion
    from melete.memory.commitment import compute_delta_commitment as compute_delta_commitment
    from melete.memory.commitment import compute_locator_commitment as compute_locator_commitment
    from melete.memory.commitment import compute_profile_id as compute_profile_id
    from melete.memory.commitment import compute_provenance_commitment as compute_provenance_commitment
    from melete.memory.delta import ExperienceDelta as ExperienceDelta
    from melete.memory.delta import compute_next_state_root as compute_next_state_root
    from melete.memory.delta import compute_transition_id as compute_transition_id
    from melete.memory.disclosure import AuditBundle as AuditBundle
    from melete.memory.disclosure import verify_disclosure as verify_disclosure
    from melete.memory.events import TransitionCommitted as TransitionCommitted
    from melete.memory.events import decode_event as decode_event
    from melete.memory.forensics import verify_space_history as verify_space_history
    from melete.memory.history import Transition as Transition
    from melete.memory.history import verify_history as verify_history
    from melete.memory.outbox import MemoryOutbox as MemoryOutbox
    from melete.memory.outbox import MemoryRules as MemoryRules
    from melete.memory.profiles import ProfileRegistry as ProfileRegistry
    from melete.memory.proofs import verify_anchor_at as verify_anchor_at
    from melete.memory.raw_history import verify_space_logs as verify_space_logs
    from melete.memory.registry import MemoryRegistry as MemoryRegistry
    from melete.memory.space import GENESIS as GENESIS
    from melete.memory.space import Head as Head
    from melete.memory.space import SpaceAuthorization as SpaceAuthorization
    from melete.memory.space import SpaceState as SpaceState
    from melete.memory.space import compute_authorization_hash as compute_authorization_hash
    from melete.memory.space import compute_registration_hash as compute_registration_hash
    from melete.memory.space import compute_space_id as compute_space_id
    from melete.memory.space import memory_state_domain as memory_state_domain
    from melete.memory.witness import Witness as Witness
    from melete.memory.witness import verify_witness as verify_witness
    from melete.memory.witness_drill import drill as drill
    from melete.memory.witness_keys import Passphrase as Passphrase
    from melete.memory.witness_keys import StoreKey as StoreKey
    from melete.memory.witness_keys import create_store_key as create_store_key
    from melete.memory.witness_keys import load_store_key as load_store_key
    from melete.memory.witness_kinds import DELTA as DELTA
    from melete.memory.witness_store import WitnessStore as WitnessStore
    from melete.primitives import Address as Address
    from melete.primitives import Bytes32 as Bytes32
    from melete.primitives import keccak256 as keccak256
    from melete.signing import ApeSigner as ApeSigner
    from melete.signing import CallableSigner as CallableSigner
    from melete.signing import LocalSigner as LocalSigner
    from melete.signing import Signer as Signer
    from melete.signing import load_key_file as load_key_file
    from melete.signing import load_keystore as load_keystore
    from melete.signing import recover_signer as recover_signer
    from melete.signing import verify_signature as verify_signature
    from melete.typed_data import Domain as Domain
