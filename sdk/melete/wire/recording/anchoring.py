"""Where deltas stand in a space, asked of a node in one request.

The root after a sequence and the root before it say which delta was committed there: no other one leads from the one to
the other. Of a registry without these views, its event and its head say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from melete.chain.reverts import compute_selector
from melete.chain.rpc import Answer, batch
from melete.chain.scan.form import as_web3
from melete.errors import BrokenHistory, ContractError, NodeRefused
from melete.memory.delta import ExperienceDelta
from melete.memory.events import TRANSITION_COMMITTED, LogReference, TransitionCommitted, decode_event
from melete.memory.history import Transition
from melete.memory.registry import FUNCTIONS, MemoryRegistry
from melete.memory.space import Head
from melete.memory.witness import Witness
from melete.primitives import ZERO_BYTES32, Bytes32, keccak256, uint_word
from melete.wire.recording.outbox import read_words


@dataclass(frozen=True, slots=True)
class Anchor:
    """A transition that the registry holds, and its event where the node told of it."""

    delta: ExperienceDelta
    transition_id: Bytes32
    state_root: Bytes32
    reference: LogReference | None = None


@dataclass(frozen=True, slots=True)
class Anchored:
    """The space's head when it was asked for, and the transitions that were asked about, by sequence."""

    head: Head
    anchors: Mapping[int, Anchor]


def load_anchors(
    registry: MemoryRegistry, space_id: Bytes32, witnesses: Mapping[int, Witness], first_block: int = 0
) -> Anchored:
    """Return which deltas, by sequence and witness, the registry holds; those beyond its head are left out.

    Errors: `BrokenHistory` for a sequence that another delta has; `UnknownSpace`; `NodeRefused`, `NodeUnreachable`.
    """
    requests = [_view(registry, "head", space_id)]
    for sequence in witnesses:
        requests += [
            _view(registry, "stateRootAt", space_id + uint_word(sequence - 1)),
            _view(registry, "stateRootAt", space_id + uint_word(sequence)),
            ("eth_getLogs", [_event_filter(registry, space_id, sequence, first_block)]),
        ]
    answers = iter(batch(registry.w3, requests))
    words = read_words(next(answers), 3)
    head = Head(words[0], words[1], int.from_bytes(words[2], "big"))
    anchors = {}
    for sequence, witness in witnesses.items():
        found = _judge(space_id, sequence, witness, head, answers)
        if found is not None:
            anchors[sequence] = found
    return Anchored(head, anchors)


def _judge(space_id: Bytes32, sequence: int, witness: Witness, head: Head, answers: Iterator[Answer]) -> Anchor | None:
    before, after, logs = next(answers), next(answers), next(answers)
    if head.sequence < sequence:
        return None
    event = _event(logs, space_id, sequence)
    try:
        previous = ZERO_BYTES32 if sequence == 1 else read_words(before, 1)[0]
        state_root = read_words(after, 1)[0]
    except (ContractError, NodeRefused):  # a registry without these views
        if event is None:
            raise logs.error or NodeRefused("eth_getLogs", f"it has no event of sequence {sequence}") from None
        previous, state_root = event.delta.prev_state_root, event.next_state_root
        if sequence == head.sequence and state_root != head.state_root:
            raise BrokenHistory(sequence, "next_state_root", head.state_root, state_root) from None
    delta = witness.build_delta(space_id, Head(ZERO_BYTES32, previous, sequence - 1))
    transition = Transition.of(delta)
    if transition.next_state_root != state_root:
        raise BrokenHistory(sequence, "next_state_root", state_root, transition.next_state_root)
    reference = event.reference if event is not None and event.transition_id == transition.transition_id else None
    return Anchor(delta, transition.transition_id, state_root, reference)


def _view(registry: MemoryRegistry, name: str, arguments: bytes) -> tuple[str, list[Any]]:
    data = compute_selector(FUNCTIONS[name]) + arguments
    return "eth_call", [{"to": str(registry.address), "data": "0x" + data.hex()}, "latest"]


def _event_filter(registry: MemoryRegistry, space_id: Bytes32, sequence: int, first_block: int) -> dict[str, Any]:
    topics = [str(keccak256(TRANSITION_COMMITTED.encode())), str(space_id), None, "0x" + uint_word(sequence).hex()]
    return {"address": str(registry.address), "fromBlock": hex(first_block), "toBlock": "latest", "topics": topics}


def _event(answer: Answer, space_id: Bytes32, sequence: int) -> TransitionCommitted | None:
    """Return the event that a node gives for a sequence; None if it gives none that can be read."""
    logs = answer.result if answer.error is None and isinstance(answer.result, list) else []
    for log in logs:
        try:
            event = decode_event(as_web3(log))
        except (KeyError, TypeError, ValueError):
            continue
        if isinstance(event, TransitionCommitted):
            delta = event.delta
            if (delta.space_id, delta.sequence) == (space_id, sequence):
                return event
    return None
