"""Who could act for a space at each point of its history, and who did.

    registered -> (committed by the authorizer in force | updated, nonce by nonce) ...

`verify_history` proves that transitions form a chain; here the authorization events stand between them, in the order
of the chain, and every transition must name the authorizer in force. Events do not show who approved: calldata does,
where the transaction called the registry itself (`identify_approval`).

All of it takes constant memory for one space, and memory by the number of spaces for a registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from melete.canonical import Json
from melete.errors import BrokenHistory, InvalidInput, InvalidSignature
from melete.memory.events import (
    LogReference,
    MemoryEvent,
    SpaceAuthorizationUpdated,
    SpaceRegistered,
    TransitionCommitted,
)
from melete.memory.history import verify_history
from melete.memory.space import (
    GENESIS,
    Head,
    SpaceAuthorization,
    SpaceState,
    compute_authorization_hash,
    compute_registration_hash,
    compute_space_id,
)
from melete.primitives import NOT_SHOWN, ZERO_ADDRESS, Address, Bytes32, keccak256, parse_sequence
from melete.signatures import recover_signer
from melete.typed_data import Domain

#: What the authorization of a space can break, beside the rules of `melete.memory.history`.
AUTHORIZATION_RULES: Final = (
    "space_unregistered",
    "space_registered_again",
    "zero_authorization",
    "config_nonce_skipped",
    "config_nonce_repeated",
    "authorizer",
    "event_order",
)


# The history of a space


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a space's history that held.

    `in_force` is the authorization that it needed approval from: of a registration, the one that it creates; of an
    update, the one that it replaces. `state` is what the registry knew afterwards.
    """

    event: MemoryEvent
    in_force: SpaceAuthorization
    state: SpaceState


def follow_space(space_id: Bytes32, events: Iterable[MemoryEvent], start: SpaceState | None = None) -> Iterator[Step]:
    """Yield a space's events, each with the authorization in force and the state that follows.

    `start` is what was known before them; None before the registration. Errors: `BrokenHistory` for the first event
    that does not follow, with its rule: one of `melete.memory.history.RULES` or of `AUTHORIZATION_RULES`.
    """
    space_id, state, order = Bytes32(space_id, "spaceId"), start, EventOrder()
    for event in events:
        before = state
        state = next_state(space_id, state, event, order)
        yield Step(event, (before or state).authorization, state)


def verify_space_history(
    space_id: Bytes32, events: Iterable[MemoryEvent], start: SpaceState | None = None
) -> SpaceState:
    """Return what the registry knows of a space after all its events, which must follow one by one.

    The state of `start` if there are none. Errors: `BrokenHistory`, as `follow_space`; also for no registration.
    """
    space_id, state = Bytes32(space_id, "spaceId"), start
    order, remaining = EventOrder(), iter(events)
    stopped_at: MemoryEvent | None = None

    def transitions(authorizer: Address, sequence: int) -> Iterator[TransitionCommitted]:
        # The hot path: transitions one after the other, up to the next event of another kind.
        nonlocal stopped_at
        for event in remaining:
            if type(event) is not TransitionCommitted:
                stopped_at = event
                return
            sequence += 1
            order.take(event.reference, sequence)
            yield event
            if event.authorizer != authorizer:
                raise BrokenHistory(sequence, "authorizer", authorizer, event.authorizer)

    for event in remaining:
        state = next_state(space_id, state, event, order)
        while state is not None:
            stopped_at = None
            head = verify_history(
                space_id,
                transitions(state.authorization.authorizer, state.head.sequence),  # type: ignore[arg-type]
                state.head,
            )
            state = SpaceState(state.authorization, head)
            if stopped_at is None:
                return state
            state = next_state(space_id, state, stopped_at, order)
    if state is None:
        raise BrokenHistory(1, "space_unregistered", "a registration", None)
    return state


def verify_registry_history(events: Iterable[MemoryEvent]) -> dict[Bytes32, SpaceState]:
    """Return the state of every space after all events of a registry, in their order.

    Errors: `BrokenHistory` for the first event that does not follow in its space.
    """
    states: dict[Bytes32, SpaceState] = {}
    order = EventOrder()
    for event in events:
        space_id = _space_of(event)
        states[space_id] = next_state(space_id, states.get(space_id), event, order)
    return states


def space_state_to_json(state: SpaceState | None) -> Json:
    """Return the JSON object of what is known of a space, for a file that a reader goes on from; null for nothing."""
    if state is None:
        return None
    authorization, head = state.authorization, state.head
    return {
        "controller": str(authorization.controller),
        "authorizer": str(authorization.authorizer),
        "configNonce": str(authorization.config_nonce),
        "transitionId": str(head.transition_id),
        "stateRoot": str(head.state_root),
        "sequence": str(head.sequence),
    }


def space_state_from_json(document: Json) -> SpaceState | None:
    """Return what `space_state_to_json` wrote. Errors: `InvalidInput`, naming what is wrong."""
    if document is None:
        return None
    if not isinstance(document, dict) or set(document) != _STATE_MEMBERS:
        raise InvalidInput(
            "state", NOT_SHOWN, f"null, or a JSON object with the members {', '.join(sorted(_STATE_MEMBERS))}"
        )
    text = {name: value for name, value in document.items() if isinstance(value, str)}
    if len(text) != len(document):
        raise InvalidInput("state", NOT_SHOWN, "a JSON object whose members are all strings")
    authorization = SpaceAuthorization(
        Address(text["controller"], "controller"),
        Address(text["authorizer"], "authorizer"),
        parse_sequence(text["configNonce"], "configNonce"),
    )
    transition_id, state_root = Bytes32(text["transitionId"], "transitionId"), Bytes32(text["stateRoot"], "stateRoot")
    return SpaceState(authorization, Head(transition_id, state_root, parse_sequence(text["sequence"])))


_STATE_MEMBERS: Final = frozenset(
    {"controller", "authorizer", "configNonce", "transitionId", "stateRoot", "sequence"}
)  # fmt: skip


class EventOrder:
    """Where the last event stood: the next one must stand after it."""

    __slots__ = ("block", "index")

    def __init__(self) -> None:
        self.block, self.index = -1, -1

    def take(self, reference: LogReference, due: int) -> None:
        block, index = reference.block_number, reference.log_index
        if block < self.block or (block == self.block and index <= self.index):
            received = f"log {index} of block {block}"
            raise BrokenHistory(due, "event_order", f"after log {self.index} of block {self.block}", received)
        self.block, self.index = block, index


def next_state(space_id: Bytes32, state: SpaceState | None, event: MemoryEvent, order: EventOrder) -> SpaceState:
    if not isinstance(event, TransitionCommitted | SpaceRegistered | SpaceAuthorizationUpdated):
        raise InvalidInput("events", event, "events of a memory registry, as `decode_event` returns them")
    head = GENESIS if state is None else state.head
    due = head.sequence + 1
    order.take(event.reference, due)
    if isinstance(event, TransitionCommitted):
        if state is None:
            raise BrokenHistory(due, "space_unregistered", "a registration", "a transition")
        head = verify_history(space_id, (event,), head)  # type: ignore[arg-type]  # it has what is read there
        if event.authorizer != state.authorization.authorizer:
            raise BrokenHistory(due, "authorizer", state.authorization.authorizer, event.authorizer)
        return SpaceState(state.authorization, head)
    if event.space_id != space_id:
        raise BrokenHistory(due, "space_id", space_id, event.space_id)
    if ZERO_ADDRESS in (event.controller, event.authorizer):
        raise BrokenHistory(due, "zero_authorization", "a controller and an authorizer", ZERO_ADDRESS)
    if isinstance(event, SpaceRegistered):
        if state is not None:
            raise BrokenHistory(due, "space_registered_again", "one registration", "another")
        return SpaceState(SpaceAuthorization(event.controller, event.authorizer, 0))
    if state is None:
        raise BrokenHistory(due, "space_unregistered", "a registration", "an update")
    nonce = state.authorization.config_nonce + 1
    if event.config_nonce != nonce:
        rule = "config_nonce_skipped" if event.config_nonce > nonce else "config_nonce_repeated"
        raise BrokenHistory(due, rule, nonce, event.config_nonce)
    return SpaceState(SpaceAuthorization(event.controller, event.authorizer, nonce), head)


def _space_of(event: MemoryEvent) -> Bytes32:
    return event.delta.space_id if isinstance(event, TransitionCommitted) else event.space_id


# Who approved


class ApprovedBy(Enum):
    """How it is known who approved."""

    #: The account's key signed: anyone can recover it from the calldata, whoever showed them.
    KEY = "its key signed"
    #: The account itself sent the transaction, with an empty signature. That it was the sender is the node's word.
    DIRECT_CALL = "it called directly"
    #: The registry was called through another contract, or the account's code answered for it.
    UNKNOWN = "could not tell"


@dataclass(frozen=True, slots=True)
class Approval:
    """How the account in force approved an event; `account` is None when that could not be told."""

    by: ApprovedBy
    account: Address | None = None


COULD_NOT_TELL: Final = Approval(ApprovedBy.UNKNOWN)

_REGISTER: Final = keccak256(b"registerSpace(bytes32,address,address,bytes32,bytes)")[:4]
_UPDATE: Final = keccak256(b"updateSpaceAuthorization(bytes32,address,address,bytes)")[:4]
_COMMIT: Final = keccak256(
    b"commitTransition((bytes32,uint64,bytes32,bytes32,bytes32,bytes32,bytes32),bytes)"
)[:4]  # fmt: skip


def identify_approval(step: Step, domain: Domain, sender: Address, to: Address | None, data: bytes) -> Approval:
    """Return who approved an event, from the transaction that it stands in: sender, callee and calldata.

    `domain` is the registry's. A transaction that did not call the registry, that holds other calldata than the event
    needs, or whose signature no key of the account in force made, is "could not tell", never a guess.
    """
    words, struct_hash, account = _expected_call(step, data)
    if to != domain.verifying_contract or words is None or data[: len(words)] != words:
        return COULD_NOT_TELL
    signature = _read_signature(data, len(words))
    if signature is None:
        return COULD_NOT_TELL
    if not signature:
        return Approval(ApprovedBy.DIRECT_CALL, account) if sender == account else COULD_NOT_TELL
    try:
        signer = recover_signer(domain.digest(struct_hash), signature)
    except InvalidSignature:
        return COULD_NOT_TELL
    return Approval(ApprovedBy.KEY, account) if signer == account else COULD_NOT_TELL


def _expected_call(step: Step, data: bytes) -> tuple[bytes | None, Bytes32, Address]:
    """Return selector and words that the call must start with (None if it cannot be the event's), what is signed for
    it, and by whom."""
    event, in_force = step.event, step.in_force
    if isinstance(event, TransitionCommitted):
        return _COMMIT + event.delta.words(), event.transition_id, in_force.authorizer
    words = event.space_id + event.controller.word + event.authorizer.word
    if isinstance(event, SpaceAuthorizationUpdated):
        struct_hash = compute_authorization_hash(
            event.space_id, event.controller, event.authorizer, event.config_nonce
        )  # fmt: skip
        return _UPDATE + words, struct_hash, in_force.controller
    # The salt is not in the event; the id binds it.
    salt = data[4 + 96 : 4 + 128]
    binds = len(salt) == 32 and compute_space_id(event.controller, Bytes32(salt)) == event.space_id
    struct_hash = compute_registration_hash(event.space_id, event.controller, event.authorizer)
    return _REGISTER + words + salt if binds else None, struct_hash, in_force.controller


def _read_signature(data: bytes, start: int) -> bytes | None:
    """Return the `bytes` argument whose offset stands at `start`, wherever that leads; None if it is not whole."""
    offset = int.from_bytes(data[start : start + 32], "big")
    place = 4 + offset
    length = int.from_bytes(data[place : place + 32], "big")
    signature = data[place + 32 : place + 32 + length]
    is_whole = len(data) >= place + 32 and len(signature) == length
    return signature if is_whole else None
