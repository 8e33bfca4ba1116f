"""Making an audit bundle: transitions from a registry, witnesses from a store, and a file for the auditor alone.

    bundle = build_audit_bundle(registry, store, space_id, auditor, 2, 4, contract=grants.address)
    grant_bundle(grants, bundle)                       # registers the grant, unless it is there
    bundle = with_anchoring(bundle, load_anchoring(registry.w3, bundle))
    write_bundle(path, bundle)

A bundle shows payloads and salts of the whole range to whoever has the file; it is written for its owner alone, and it
is up to you how it travels. An encrypted payload is disclosed as what was committed to, without its key; of a batch,
count and root, without its operations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from melete.chain.logs import Scanner, load_block
from melete.errors import (
    GrantAlreadyRevoked,
    InvalidInput,
    RangeBeyondHead,
    UnknownGrant,
    UnusableLogs,
    WitnessRootMismatch,
    ZeroAuditor,
)
from melete.memory.disclosure import (
    LARGEST_BUNDLE,
    AuditBundle,
    DisclosedGrant,
    DisclosedTransition,
    Reference,
    fold_witness,
    verify_disclosure,
)
from melete.memory.events import TRANSITION_COMMITTED, MemoryEvent, TransitionCommitted
from melete.memory.extensions.audit import AuditGrant, Grant
from melete.memory.extensions.grants import check_range, compute_grant_id
from melete.memory.raw_history import decode_quickly
from melete.memory.registry import MemoryRegistry
from melete.memory.witness_file import new_file
from melete.memory.witness_kinds import DELTA
from melete.memory.witness_store import WitnessStore
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32, Address, Bytes32, keccak256


def build_audit_bundle(
    registry: MemoryRegistry,
    store: WitnessStore,
    space_id: Bytes32,
    auditor: Address,
    from_sequence: int,
    to_sequence: int,
    *,
    contract: Address | None = None,
    from_block: int = 0,
) -> AuditBundle:
    """Return the bundle that discloses a range of a space to an auditor, verified, without proofs.

    `from_block` is at or before the block of the first transition of the range. `contract` is the AuditGrant contract
    that holds the grant, or will. The registry has to answer `stateRootAt`. Errors: `ZeroAuditor`, `ZeroFromSequence`,
    `EmptyRange`, `RangeBeyondHead`, `UnknownSpace`; `WitnessMissing`, `WitnessErased`, `NotAuthentic`; `BrokenBundle`
    for a witness that does not open its transition; `UnusableLogs` and the scanner's own.
    """
    space_id, auditor = Bytes32(space_id, "spaceId"), Address(auditor, "auditor")
    check_range(from_sequence, to_sequence)
    if auditor == ZERO_ADDRESS:
        raise ZeroAuditor
    block = load_block(registry.w3, "latest")
    head = registry.head(space_id, block.number)
    if to_sequence > head.sequence:
        raise RangeBeyondHead(head.sequence, to_sequence)

    entries: list[DisclosedTransition] = []
    root = ZERO_BYTES32
    for event in _read_range(registry, space_id, from_sequence, to_sequence, from_block, block.number):
        witness = store.get(DELTA.place(space_id, event.delta.sequence))
        root = fold_witness(root, event.transition_id, witness)
        entries.append(DisclosedTransition(event.transition, witness, root))

    grant_id = compute_grant_id(space_id, auditor, from_sequence, to_sequence)
    bundle = AuditBundle(
        Reference(registry.chain_id, registry.address, space_id),
        DisclosedGrant(grant_id, auditor, from_sequence, to_sequence, root, contract),
        entries[0].transition.delta.prev_state_root,
        tuple(entries),
    )
    if verify_disclosure(bundle).state_root != registry.state_root_at(space_id, to_sequence):
        raise UnusableLogs("the events of the range do not end at the registry's own state root")
    return bundle


def grant_bundle(grants: AuditGrant, bundle: AuditBundle) -> Grant:
    """Return the grant that a bundle is made under, after registering it if it is not there.

    The sender has to be the space's controller. A grant can be revoked and never changed. Errors: as
    `verify_granted`, without `UnknownGrant`; those of the contract's `grant`, before anything is sent.
    """
    try:
        return verify_granted(grants, bundle)
    except UnknownGrant:
        stated = bundle.grant
        grants.grant(
            bundle.reference.space_id,
            stated.auditor,
            stated.from_sequence,
            stated.to_sequence,
            stated.witness_set_root,
        )
        return verify_granted(grants, bundle)


def verify_granted(grants: AuditGrant, bundle: AuditBundle) -> Grant:
    """Return the grant that a bundle is made under.

    Errors: `UnknownGrant`; `GrantAlreadyRevoked`; `WitnessRootMismatch` where another root was granted.
    """
    found = grants.grant_of(bundle.grant.grant_id)
    if found.witness_set_root != bundle.grant.witness_set_root:
        raise WitnessRootMismatch(found.witness_set_root, bundle.grant.witness_set_root)
    if found.revoked_at:
        raise GrantAlreadyRevoked(bundle.grant.grant_id)
    return found


def write_bundle(path: Path, bundle: AuditBundle) -> int:
    """Write a bundle to a new file of mode 0600, whole or not at all; return its size in bytes.

    Errors: as `bundle_file`.
    """
    with bundle_file(path) as write:
        return write(bundle)


@contextmanager
def bundle_file(path: Path) -> Iterator[Callable[[AuditBundle], int]]:
    """Make room for a new file of mode 0600, and give a function that writes a bundle and returns its size in bytes.

    The file appears at the end, with what was written last. So whoever registers a grant can know before that the file
    is there to be written. Errors: `InvalidInput` for a file that exists, and for a bundle of more than
    `LARGEST_BUNDLE`; `StoreNotWritten`.
    """
    with new_file(path) as draft:

        def write(bundle: AuditBundle) -> int:
            text = _text_of(bundle)
            draft.write_bytes(text)
            return len(text)

        yield write


def _text_of(bundle: AuditBundle) -> bytes:
    text = json.dumps(bundle.to_json(), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    if len(text) > LARGEST_BUNDLE:
        rule = f"smaller: its bundle has {len(text)} bytes, and at most {LARGEST_BUNDLE} are read; disclose it in parts"
        raise InvalidInput("range", f"{bundle.grant.from_sequence} to {bundle.grant.to_sequence}", rule)
    return text


def _read_range(
    registry: MemoryRegistry, space_id: Bytes32, first: int, last: int, from_block: int, to_block: int
) -> list[TransitionCommitted]:
    """Return the transitions of a range, in order."""
    scanner: Scanner[MemoryEvent] = Scanner(
        registry.w3,
        registry.address,
        decode_quickly,
        start_block=from_block,
        until=to_block,
        topics=(keccak256(TRANSITION_COMMITTED.encode()), space_id),
    )
    found: list[TransitionCommitted] = []
    for event in scanner.events():
        if isinstance(event, TransitionCommitted) and first <= event.delta.sequence <= last:
            due = first + len(found)
            if event.delta.sequence != due:
                break
            found.append(event)
            if due == last:
                return found
    due = first + len(found)
    raise UnusableLogs(f"transition {due} is not among them, from block {from_block} on; start at an earlier block")
