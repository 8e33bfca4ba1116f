"""Where a delta can be found: in the registry's events, in an outbox, and of a kept witness as much as it says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from melete.errors import InvalidInput
from melete.memory.delta import ExperienceDelta, compute_transition_id
from melete.primitives import ZERO_BYTES32, Bytes32, uint_word

if TYPE_CHECKING:
    from melete.chain.logs import BlockReference
    from melete.chain.outbox import Item
    from melete.cli.settings import Settings
    from melete.memory.events import TransitionCommitted
    from melete.memory.registry import MemoryRegistry
    from melete.memory.witness_store import WitnessStore


@dataclass(frozen=True, slots=True)
class Wanted:
    """A transition by its id, or by space and sequence."""

    transition_id: Bytes32 | None = None
    space_id: Bytes32 | None = None
    sequence: int = 0

    def is_met_by(self, delta: ExperienceDelta) -> bool:
        """Return whether this is the delta."""
        if self.transition_id is not None:
            return compute_transition_id(delta) == self.transition_id
        return (delta.space_id, delta.sequence) == (self.space_id, self.sequence)


@dataclass(frozen=True, slots=True)
class Found:
    """A delta, where it was found, and what is known of it there. `is_whole` is False if its previous root is open."""

    delta: ExperienceDelta
    source: str
    known: dict[str, Any]
    is_whole: bool = True


def find_on_chain(registry: MemoryRegistry, wanted: Wanted, start_block: int) -> Found | None:
    """Return the delta of a committed transition, or None.

    Errors: `BrokenHistory` for an event that is none, or whose state root the registry does not know.
    """
    from melete.chain.logs import Scanner
    from melete.memory.events import TRANSITION_COMMITTED, TransitionCommitted, decode_event
    from melete.memory.history import verify_history
    from melete.memory.space import Head
    from melete.primitives import keccak256

    kind = keccak256(TRANSITION_COMMITTED.encode())
    sequence = None if wanted.transition_id is not None else Bytes32(uint_word(wanted.sequence))
    topics = (kind, wanted.space_id, wanted.transition_id, sequence)
    scanner = Scanner(registry.w3, registry.address, decode_event, start_block=start_block, topics=topics)
    event: TransitionCommitted | None = None
    for log in scanner.events():  # to the end, for the state is compared at the block where that is
        event = log if event is None and isinstance(log, TransitionCommitted) else event
    if event is None:
        return None
    delta = event.delta
    verify_history(delta.space_id, [event.transition], Head(ZERO_BYTES32, delta.prev_state_root, delta.sequence - 1))
    _verify_root(registry, event, scanner.position)
    known = {
        "authorizer": event.authorizer,
        "block": event.reference.block_number,
        "blockHash": event.reference.block_hash,
        "transaction": event.reference.transaction_hash,
    }
    return Found(delta, "chain", known)


def find_in_outbox(path: Path, wanted: Wanted, settings: Settings, registry: MemoryRegistry | None) -> Found | None:
    """Return the delta of an item, or None. Errors: `InvalidInput` where items of several registries meet."""
    from melete.chain.outbox import Outbox, State
    from melete.memory.outbox import delta_of
    from melete.primitives import Address

    if not path.exists():
        return None
    chain_id = settings.chain_id if registry is None else registry.chain_id
    target = None if settings.registry is None else Address(settings.registry, "--registry")
    target = target if registry is None else registry.address
    hidden = (State.REFUSED, State.REPLACED)

    def is_meant(item: Item) -> bool:
        of_registry = chain_id in (None, item.chain_id) and target in (None, item.target)
        return of_registry and _carries_delta(item) and wanted.is_met_by(delta_of(item))

    with Outbox(path) as opened:
        items = [item for item in opened.items() if item.state not in hidden and is_meant(item)]
    if len({(item.chain_id, item.target) for item in items}) > 1:
        raise InvalidInput("--registry", None, "given with --chain-id: the outbox holds this place for several")
    if not items:
        return None
    item = items[-1]
    known = {"state": item.state.value, "reason": item.reason or "", "transaction": item.transaction_hash or ""}
    return Found(delta_of(item), "outbox", known)


def find_in_store(store: WitnessStore, wanted: Wanted, registry: MemoryRegistry | None) -> Found | None:
    """Return the delta that a kept witness becomes at its place, as far as the previous root is known; None without.

    Errors: those of `WitnessStore.get`, but for a witness that is missing.
    """
    from melete.errors import WitnessMissing
    from melete.memory.space import Head
    from melete.memory.witness_kinds import DELTA

    if wanted.space_id is None:
        return None
    try:
        witness = store.get(DELTA.place(wanted.space_id, wanted.sequence))
    except WitnessMissing:
        return None
    root = _previous_root(wanted.space_id, wanted.sequence, registry)
    head = Head(ZERO_BYTES32, ZERO_BYTES32 if root is None else root, wanted.sequence - 1)
    return Found(witness.build_delta(wanted.space_id, head), "witness store", {}, is_whole=root is not None)


def _verify_root(registry: MemoryRegistry, event: TransitionCommitted, block: BlockReference) -> None:
    """Compare an event with the registry's own state at the block up to which was read, where the registry tells."""
    from melete.errors import BrokenHistory, ContractError

    sequence = event.delta.sequence
    try:
        root = registry.state_root_at(event.delta.space_id, sequence, block)
    except ContractError:  # a registry without that view
        return
    if root != event.next_state_root:
        raise BrokenHistory(sequence, "next_state_root", root, event.next_state_root)


def _previous_root(space_id: Bytes32, sequence: int, registry: MemoryRegistry | None) -> Bytes32 | None:
    """Return the state root before a transition, or None where nobody says."""
    from melete.errors import ContractError

    if sequence == 1:
        return ZERO_BYTES32
    if registry is None:
        return None
    try:
        head = registry.head(space_id)
        if head.sequence == sequence - 1:
            return head.state_root
        root = registry.state_root_at(space_id, sequence - 1)
    except ContractError:  # no such space, or a registry without that view
        return None
    return None if root == ZERO_BYTES32 else root


def _carries_delta(item: Item) -> bool:
    from melete.chain.reverts import compute_selector
    from melete.memory.registry import FUNCTIONS

    return item.data[:4] == compute_selector(FUNCTIONS["commitTransition"]) and len(item.data) >= 4 + 224
