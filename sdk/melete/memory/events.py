"""The registry's three events as values, decoded from logs by their words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from melete.errors import InvalidInput
from melete.memory.delta import ExperienceDelta
from melete.memory.history import Transition
from melete.primitives import Address, Bytes32, keccak256, uint64

SPACE_REGISTERED: Final = "SpaceRegistered(bytes32,address,address)"
SPACE_AUTHORIZATION_UPDATED: Final = "SpaceAuthorizationUpdated(bytes32,address,address,uint64)"
TRANSITION_COMMITTED: Final = (
    "TransitionCommitted(bytes32,bytes32,uint64,bytes32,bytes32,bytes32,bytes32,bytes32,bytes32,address)"
)


@dataclass(frozen=True, slots=True)
class LogReference:
    """Where an event stands: block number and hash, transaction, and index within the block."""

    block_number: int
    block_hash: Bytes32
    transaction_hash: Bytes32
    log_index: int


@dataclass(frozen=True, slots=True)
class SpaceRegistered:
    space_id: Bytes32
    controller: Address
    authorizer: Address
    reference: LogReference


@dataclass(frozen=True, slots=True)
class SpaceAuthorizationUpdated:
    space_id: Bytes32
    controller: Address
    authorizer: Address
    config_nonce: int
    reference: LogReference


@dataclass(frozen=True, slots=True)
class TransitionCommitted:
    """A delta that was accepted; `authorizer` approved it."""

    delta: ExperienceDelta
    transition_id: Bytes32
    next_state_root: Bytes32
    authorizer: Address
    reference: LogReference

    @property
    def transition(self) -> Transition:
        """The event as a claim, for `verify_history`."""
        return Transition(self.delta, self.transition_id, self.next_state_root, self.authorizer)


MemoryEvent: TypeAlias = SpaceRegistered | SpaceAuthorizationUpdated | TransitionCommitted

#: The first topic of each event, and how many topics and data words follow it.
TOPICS: Final = {
    keccak256(SPACE_REGISTERED.encode()): (3, 0),
    keccak256(SPACE_AUTHORIZATION_UPDATED.encode()): (3, 1),
    keccak256(TRANSITION_COMMITTED.encode()): (3, 7),
}
_REGISTERED, _UPDATED, _COMMITTED = TOPICS


def decode_event(log: Mapping[str, Any]) -> MemoryEvent | None:
    """Return the event that a log (as web3 gives it) holds, or None for another contract's kind of event.

    Errors: `InvalidInput` for a log of our events with words missing, dirty or too many.
    """
    topics = [Bytes32(bytes(topic), "topic") for topic in log["topics"]]
    if not topics or topics[0] not in TOPICS:
        return None
    data = bytes(log["data"])
    topic_count, word_count = TOPICS[topics[0]]
    if len(topics) != topic_count + 1 or len(data) != 32 * word_count:
        raise InvalidInput("log", data, f"{topic_count + 1} topics and {32 * word_count} bytes of data")
    words = [Bytes32(data[start : start + 32]) for start in range(0, len(data), 32)]
    reference = LogReference(
        int(log["blockNumber"]),
        Bytes32(bytes(log["blockHash"]), "blockHash"),
        Bytes32(bytes(log["transactionHash"]), "transactionHash"),
        int(log["logIndex"]),
    )
    first, second, third = topics[1:]
    if topics[0] == _REGISTERED:
        return SpaceRegistered(first, _address(second), _address(third), reference)
    if topics[0] == _UPDATED:
        return SpaceAuthorizationUpdated(first, _address(second), _address(third), _number(words[0]), reference)
    prev_state_root, next_state_root, delta_commitment, provenance, profile_id, locator, authorizer = words
    delta = ExperienceDelta(first, _number(third), prev_state_root, delta_commitment, provenance, profile_id, locator)
    return TransitionCommitted(delta, second, next_state_root, _address(authorizer), reference)


def _address(word: Bytes32) -> Address:
    if any(word[:12]):
        raise InvalidInput("log", word, "an address word with 12 zero bytes before it")
    return Address(word[12:])


def _number(word: Bytes32) -> int:
    return uint64(int.from_bytes(word, "big"), "log")
