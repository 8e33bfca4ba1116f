"""The events of the optional records as values, decoded from logs by their words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from melete.errors import InvalidInput
from melete.memory.events import LogReference
from melete.primitives import Address, Bytes32, keccak256, uint64

DELETION_ATTESTED: Final = "DeletionAttested(bytes32,bytes32,bytes32,address)"
AUDIT_GRANTED: Final = "AuditGranted(bytes32,address,bytes32,uint64,uint64,bytes32)"
AUDIT_ACKNOWLEDGED: Final = "AuditAcknowledged(bytes32,address,bytes32)"
AUDIT_REVOKED: Final = "AuditRevoked(bytes32,address,bytes32)"
DESCRIPTOR_PUBLISHED: Final = "DescriptorPublished(bytes32,bytes32,address,string)"
DESCRIPTOR_CLEARED: Final = "DescriptorCleared(bytes32,address)"


@dataclass(frozen=True, slots=True)
class DeletionAttested:
    """A controller's statement that what a transition was about has been deleted: no proof that no copy is left."""

    space_id: Bytes32
    transition_id: Bytes32
    evidence_commitment: Bytes32
    controller: Address
    reference: LogReference


@dataclass(frozen=True, slots=True)
class AuditGranted:
    space_id: Bytes32
    auditor: Address
    grant_id: Bytes32
    from_sequence: int
    to_sequence: int
    witness_set_root: Bytes32
    reference: LogReference


@dataclass(frozen=True, slots=True)
class AuditAcknowledged:
    """The auditor's statement that it computed the granted root."""

    space_id: Bytes32
    auditor: Address
    grant_id: Bytes32
    reference: LogReference


@dataclass(frozen=True, slots=True)
class AuditRevoked:
    space_id: Bytes32
    auditor: Address
    grant_id: Bytes32
    reference: LogReference


@dataclass(frozen=True, slots=True)
class DescriptorPublished:
    space_id: Bytes32
    content_hash: Bytes32
    controller: Address
    uri: str
    reference: LogReference


@dataclass(frozen=True, slots=True)
class DescriptorCleared:
    space_id: Bytes32
    controller: Address
    reference: LogReference


RecordEvent: TypeAlias = (
    DeletionAttested | AuditGranted | AuditAcknowledged | AuditRevoked | DescriptorPublished | DescriptorCleared
)

#: The first topic of each event, how many topics follow it, and how many data words come first.
TOPICS: Final = {
    keccak256(DELETION_ATTESTED.encode()): (3, 1),
    keccak256(AUDIT_GRANTED.encode()): (3, 3),
    keccak256(AUDIT_ACKNOWLEDGED.encode()): (3, 0),
    keccak256(AUDIT_REVOKED.encode()): (3, 0),
    keccak256(DESCRIPTOR_PUBLISHED.encode()): (3, 1),
    keccak256(DESCRIPTOR_CLEARED.encode()): (2, 0),
}
_ATTESTED, _GRANTED, _ACKNOWLEDGED, _REVOKED, _PUBLISHED, _CLEARED = TOPICS


def decode_record_event(log: Mapping[str, Any]) -> RecordEvent | None:
    """Return the event that a log (as web3 gives it) holds, or None for another contract's kind of event.

    Errors: `InvalidInput` for a log of our events with words missing, dirty or too many.
    """
    topics = [Bytes32(bytes(topic), "topic") for topic in log["topics"]]
    if not topics or topics[0] not in TOPICS:
        return None
    data = bytes(log["data"])
    topic_count, word_count = TOPICS[topics[0]]
    fits = len(data) == 32 * word_count or topics[0] == _PUBLISHED
    if len(topics) != topic_count + 1 or not fits:
        raise InvalidInput("log", data, f"{topic_count + 1} topics and {word_count} words of data")
    reference = LogReference(
        int(log["blockNumber"]),
        Bytes32(bytes(log["blockHash"]), "blockHash"),
        Bytes32(bytes(log["transactionHash"]), "transactionHash"),
        int(log["logIndex"]),
    )
    first, second = topics[1:3]
    if topics[0] == _CLEARED:
        return DescriptorCleared(first, _address(second), reference)
    third = topics[3]
    if topics[0] == _PUBLISHED:
        return DescriptorPublished(first, second, _address(third), read_uri(data, 0, 1), reference)
    words = [Bytes32(data[start : start + 32]) for start in range(0, len(data), 32)]
    if topics[0] == _ATTESTED:
        return DeletionAttested(first, second, third, _address(words[0]), reference)
    if topics[0] == _GRANTED:
        ends = _number(words[0]), _number(words[1])
        return AuditGranted(first, _address(second), third, *ends, words[2], reference)
    kind = AuditAcknowledged if topics[0] == _ACKNOWLEDGED else AuditRevoked
    return kind(first, _address(second), third, reference)


def read_uri(data: bytes, at: int, words: int) -> str:
    """Return the URI whose offset is word `at` of ABI data with `words` words before it.

    Errors: `InvalidInput` for data written otherwise than Solidity does, and for bytes that no descriptor holds.
    """
    head = 32 * words
    offset, length = (int.from_bytes(data[start : start + 32], "big") for start in (32 * at, head))
    text = data[head + 32 : head + 32 + min(length, len(data))]
    padded = text + bytes(-len(text) % 32)
    if len(data) < head + 32 or offset != head or length != len(text) or data[head + 32 :] != padded:
        raise InvalidInput("uri", data, "one string, as Solidity encodes it")
    if not all(0x21 <= byte <= 0x7E for byte in text):
        raise InvalidInput("uri", text, "printable ASCII without spaces")
    return text.decode("ascii")


def _address(word: Bytes32) -> Address:
    if any(word[:12]):
        raise InvalidInput("log", word, "an address word with 12 zero bytes before it")
    return Address(word[12:])


def _number(word: Bytes32) -> int:
    return uint64(int.from_bytes(word, "big"), "log")
