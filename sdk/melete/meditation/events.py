"""The registry's ten events as values, decoded from logs by their words.

Source: Agent Meditation, Events. The topic of an event that carries a structure is built from the structure's
components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from melete.errors import InvalidInput
from melete.meditation.cycle import CycleReport
from melete.memory.events import LogReference
from melete.primitives import Address, Bytes32, keccak256

REPORT_TYPE: Final = (
    "(uint64,bytes32,bytes32[4],uint8,uint8,uint16,uint8,uint8,uint32,uint48,uint48,uint48,uint64,bytes32,string)"
)


@dataclass(frozen=True, slots=True)
class Enrolled:
    subject: Address
    controller: Address
    controller_rights: int
    root: Bytes32
    enrolled_at: int
    reference: LogReference


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    subject: Address
    previous_controller: Address
    new_controller: Address
    rights: int
    reference: LogReference


@dataclass(frozen=True, slots=True)
class OperatorSet:
    """An operator was given permissions, or lost them (0); `by` is the subject, or the controller that revoked."""

    subject: Address
    operator: Address
    permissions: int
    by: Address
    reference: LogReference


@dataclass(frozen=True, slots=True)
class PolicyUpdated:
    subject: Address
    version: int
    policy_hash: Bytes32
    effective_from: int
    by: Address
    reference: LogReference


@dataclass(frozen=True, slots=True)
class FloorUpdated:
    subject: Address
    version: int
    effective_from: int
    by: Address
    reference: LogReference


@dataclass(frozen=True, slots=True)
class Demanded:
    subject: Address
    layer_mask: int
    due_by: int
    by: Address
    reference: LogReference


@dataclass(frozen=True, slots=True)
class DemandWithdrawn:
    subject: Address
    layer_mask: int
    by: Address
    reference: LogReference


@dataclass(frozen=True, slots=True)
class CycleRecorded:
    """A report that was taken: `seq` is the record's number, `changed_layers` what the registry found to differ."""

    subject: Address
    seq: int
    base_version: int
    new_version: int
    report: CycleReport
    changed_layers: int
    recorded_at: int
    submitter: Address
    reference: LogReference


@dataclass(frozen=True, slots=True)
class LayerCommitmentChanged:
    subject: Address
    layer: int
    version: int
    previous_commitment: Bytes32
    new_commitment: Bytes32
    reference: LogReference


@dataclass(frozen=True, slots=True)
class Pulsed:
    subject: Address
    seq: int
    recorded_at: int
    next_planned_at: int
    submitter: Address
    reference: LogReference


MeditationEvent: TypeAlias = (
    Enrolled
    | ControllerChanged
    | OperatorSet
    | PolicyUpdated
    | FloorUpdated
    | Demanded
    | DemandWithdrawn
    | CycleRecorded
    | LayerCommitmentChanged
    | Pulsed
)

#: The types of each event's members in the order of its class, with a * where one is a topic.
_SHAPES: Final[dict[type[MeditationEvent], str]] = {
    Enrolled: "address* address* uint8 bytes32 uint48",
    ControllerChanged: "address* address* address* uint8",
    OperatorSet: "address* address* uint8 address*",
    PolicyUpdated: "address* uint32* bytes32 uint48 address",
    FloorUpdated: "address* uint32* uint48 address",
    Demanded: "address* uint8 uint48 address",
    DemandWithdrawn: "address* uint8 address",
    CycleRecorded: f"address* uint64* uint64 uint64 {REPORT_TYPE} uint8 uint48 address",
    LayerCommitmentChanged: "address* uint8* uint64* bytes32 bytes32",
    Pulsed: "address* uint64* uint48 uint48 address",
}

#: The signature of each event, from which its first topic is hashed.
SIGNATURES: Final = {
    kind: f"{kind.__name__}({','.join(part.removesuffix('*') for part in shape.split())})"
    for kind, shape in _SHAPES.items()
}
TOPICS: Final = {kind: keccak256(signature.encode()) for kind, signature in SIGNATURES.items()}
_KINDS: Final = {topic: kind for kind, topic in TOPICS.items()}

#: The words of a report before its text: 17 that are values, and the offset of the text.
_REPORT_WORDS: Final = 18
_REPORT_BITS: Final = (64, 0, 0, 0, 0, 0, 8, 8, 16, 8, 8, 32, 48, 48, 48, 64, 0)


def decode_event(log: Mapping[str, Any]) -> MeditationEvent | None:
    """Return the event that a log (as web3 gives it) holds, or None for another contract's kind of event.

    Errors: `InvalidInput` for a log of our events with words missing, dirty or too many.
    """
    topics = [Bytes32(bytes(topic), "topic") for topic in log["topics"]]
    kind = _KINDS.get(topics[0]) if topics else None
    if kind is None:
        return None
    parts, data = _SHAPES[kind].split(), bytes(log["data"])
    indexed = [part for part in parts if part.endswith("*")]
    head = 32 * (len(parts) - len(indexed))
    if len(topics) != len(indexed) + 1 or len(data) < head or (kind is not CycleRecorded and len(data) != head):
        raise InvalidInput("log", data, f"{len(indexed) + 1} topics and {head} bytes of data")
    words = iter([Bytes32(data[start : start + 32]) for start in range(0, head, 32)])
    others = iter(topics[1:])
    values = [
        _decode_report(data, next(words), head)
        if part == REPORT_TYPE
        else _value(part.removesuffix("*"), next(others) if part.endswith("*") else next(words))
        for part in parts
    ]
    reference = LogReference(
        int(log["blockNumber"]),
        Bytes32(bytes(log["blockHash"]), "blockHash"),
        Bytes32(bytes(log["transactionHash"]), "transactionHash"),
        int(log["logIndex"]),
    )
    make: Any = kind  # what each member is, the shape says
    found: MeditationEvent = make(*values, reference)
    return found


def _decode_report(data: bytes, offset: Bytes32, head: int) -> CycleReport:
    """The report behind the event's words, encoded as Solidity encodes it and no other way."""
    body = data[head:]
    words = [Bytes32(body[start : start + 32]) for start in range(0, 32 * (len(body) // 32), 32)]
    if _number(offset, 64) != head or len(words) <= _REPORT_WORDS or len(body) % 32:
        raise InvalidInput("log", data, "a report right behind the event's words")
    size = _number(words[_REPORT_WORDS], 64)
    text = body[32 * (_REPORT_WORDS + 1) :]
    if (
        _number(words[_REPORT_WORDS - 1], 64) != 32 * _REPORT_WORDS
        or len(text) != size + -size % 32
        or any(text[size:])
    ):
        raise InvalidInput("log", data, "a report whose text stands right behind its words, padded with zeros")
    numbers = [_number(word, bits) if bits else 0 for word, bits in zip(words, _REPORT_BITS, strict=False)]
    try:
        uri = text[:size].decode()
    except UnicodeDecodeError:
        # Whoever submits chooses the bytes: a bad locator must not hide the record that carries it.
        uri = text[:size].decode(errors="replace")
    members: list[Any] = [numbers[0], words[1], tuple(words[2:6]), *numbers[6:16], words[16], uri]
    return CycleReport(*members)


def _value(kind: str, word: Bytes32) -> Any:
    if kind == "bytes32":
        return word
    if kind == "address":
        if any(word[:12]):
            raise InvalidInput("log", word, "an address word with 12 zero bytes before it")
        return Address(word[12:])
    return _number(word, int(kind.removeprefix("uint")))


def _number(word: Bytes32, bits: int) -> int:
    number = int.from_bytes(word, "big")
    if number >> bits:
        raise InvalidInput("log", word, f"a number of at most {bits} bits")
    return number
