"""What a witness store keeps: kinds of records, each with its place, its commitment and its bytes.

    kind       scope             number           record
    delta      space id          sequence         Witness          opens a delta's three commitments
    operation  root of a batch   index, from 0    Operation        opens a leaf of the batch
    layer.0    subject's scope   state version    LayerDocument    opens the commitment of layer 0; so to layer.3
    report     subject's scope   record number    a JSON object    its content hash is a cycle's record hash

A subject's scope is of one registry on one chain (`subject_scope`); places that were written before that have the
subject's address instead, and are still read. A space id does not name its chain: keep one store for each registry of
memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from melete.canonical import Json, canonicalize, compute_content_hash, load_canonical
from melete.errors import InvalidInput, InvalidJson
from melete.meditation.layers import Layer, commit_to_document
from melete.memory.batch import Operation
from melete.memory.witness import Witness
from melete.primitives import NOT_SHOWN, Address, Bytes32, keccak256, parse_bytes, secret_bytes32, uint64, uint_word

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of record: how long its scope is, and how a record is committed to, written and read.

    `to_json` and `from_json` are for exports. What reads raises `InvalidInput`, without showing the record.
    """

    name: str
    scope_length: int
    commit: Callable[[T], Bytes32] = field(repr=False)
    to_bytes: Callable[[T], bytes] = field(repr=False)
    from_bytes: Callable[[bytes], T] = field(repr=False)
    to_json: Callable[[T], Json] = field(repr=False)
    from_json: Callable[[Any], T] = field(repr=False)
    #: The length of scopes as they were written before; 0 where there never was another.
    earlier_scope_length: int = 0

    def place(self, scope: bytes, number: int) -> Place:
        """Return a place of this kind. Errors: `InvalidInput` for a scope of another length, or no uint64."""
        scope = parse_bytes(scope, "scope")
        if len(scope) not in (self.scope_length, self.earlier_scope_length):
            raise InvalidInput("scope", scope, f"{self.scope_length} bytes for the kind {self.name}")
        return Place(self.name, scope, uint64(number, "number"))


class Place(NamedTuple):
    """Where a record is kept. Made by `Kind.place`."""

    kind: str
    scope: bytes
    number: int


class Entry(NamedTuple):
    """What is kept at a place: the commitment, and the record, or None where it was erased."""

    kind: str
    scope: bytes
    number: int
    commitment: Bytes32
    record: Any

    @property
    def place(self) -> Place:
        return Place(self.kind, self.scope, self.number)

    def __repr__(self) -> str:
        state = "erased" if self.record is None else "kept"
        return f"Entry(kind={self.kind!r}, scope=0x{self.scope.hex()}, number={self.number}, {state})"


@dataclass(frozen=True, slots=True)
class LayerDocument:
    """A layer state document with the salt of its commitment."""

    document: dict[str, Json] = field(repr=False)
    salt: Bytes32 = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "salt", secret_bytes32(self.salt, "salt"))


# A witness as bytes: flags, profile id, three salts (zero where absent), two lengths; then provenance, locator, payload

_HEAD: Final = struct.Struct(">B32s32s32s32sQQ")
_HEAD_LENGTH, _read_head = _HEAD.size, _HEAD.unpack_from
_FORM, _WITH_PROVENANCE, _WITH_LOCATOR = 0x10, 1, 2
_UNREADABLE: Final = "a record as it was written here (it is not shown); it was written by another version"


def _witness_to_bytes(witness: Witness) -> bytes:
    provenance = witness.provenance or b""
    locator = (witness.locator or "").encode()
    flags = _FORM | (witness.provenance is not None) * _WITH_PROVENANCE | (witness.locator is not None) * _WITH_LOCATOR
    head = _HEAD.pack(
        flags,
        witness.profile_id,
        witness.delta_salt,
        witness.provenance_salt or b"",
        witness.locator_salt or b"",
        len(provenance),
        len(locator),
    )
    return b"".join((head, provenance, locator, witness.payload))


# Opening a witness is the hot path of every audit. What is read here was checked when it was written, and is
# authenticated: the members are set without checking them again.
_new, _word = object.__new__, bytes.__new__
_set_profile_id, _set_payload, _set_delta_salt = (
    Witness.__dict__[name].__set__ for name in ("profile_id", "payload", "delta_salt")
)
_set_provenance, _set_provenance_salt, _set_locator, _set_locator_salt = (
    Witness.__dict__[name].__set__ for name in ("provenance", "provenance_salt", "locator", "locator_salt")
)


def _witness_from_bytes(data: bytes) -> Witness:
    try:
        flags, profile_id, delta_salt, provenance_salt, locator_salt, first, second = _read_head(data)
    except struct.error:
        raise InvalidInput("record", None, _UNREADABLE) from None
    middle = _HEAD_LENGTH + first
    end = middle + second
    if flags & ~3 != _FORM or len(data) < end:
        raise InvalidInput("record", None, _UNREADABLE)
    witness = _new(Witness)
    _set_profile_id(witness, _word(Bytes32, profile_id))
    _set_delta_salt(witness, _word(Bytes32, delta_salt))
    _set_payload(witness, data[end:])
    with_provenance, with_locator = flags & _WITH_PROVENANCE, flags & _WITH_LOCATOR
    _set_provenance(witness, data[_HEAD_LENGTH:middle] if with_provenance else None)
    _set_provenance_salt(witness, _word(Bytes32, provenance_salt) if with_provenance else None)
    _set_locator(witness, data[middle:end].decode() if with_locator else None)
    _set_locator_salt(witness, _word(Bytes32, locator_salt) if with_locator else None)
    return witness


def _commit_to_witness(witness: Witness) -> Bytes32:
    try:
        return witness.compute_commitments()[0]
    except InvalidInput as error:
        raise InvalidInput(error.field, None, f"{error.rule} (its value is not shown)") from None


def _witness_to_json(witness: Witness) -> Json:
    return {
        "profileId": str(witness.profile_id),
        "payload": _hex(witness.payload),
        "deltaSalt": str(witness.delta_salt),
        "provenance": None if witness.provenance is None else _hex(witness.provenance),
        "provenanceSalt": None if witness.provenance_salt is None else str(witness.provenance_salt),
        "locator": witness.locator,
        "locatorSalt": None if witness.locator_salt is None else str(witness.locator_salt),
    }


def _witness_from_json(document: Any) -> Witness:
    members = ("profileId", "payload", "deltaSalt", "provenance", "provenanceSalt", "locator", "locatorSalt")
    profile_id, payload, delta_salt, provenance, provenance_salt, locator, locator_salt = _members(document, members)
    if locator is not None and not isinstance(locator, str):
        raise InvalidInput("locator", NOT_SHOWN, "text or null")
    return Witness(
        Bytes32(profile_id, "profileId"),
        _unhex(payload, "payload"),
        secret_bytes32(delta_salt, "deltaSalt"),
        None if provenance is None else _unhex(provenance, "provenance"),
        None if provenance_salt is None else secret_bytes32(provenance_salt, "provenanceSalt"),
        locator,
        None if locator_salt is None else secret_bytes32(locator_salt, "locatorSalt"),
    )


# An operation as bytes: salt, content


def _operation_to_bytes(operation: Operation) -> bytes:
    return operation.salt + operation.content


def _operation_from_bytes(data: bytes) -> Operation:
    return Operation(data[32:], Bytes32(data[:32]))


def _operation_to_json(operation: Operation) -> Json:
    return {"content": _hex(operation.content), "salt": str(operation.salt)}


def _operation_from_json(document: Any) -> Operation:
    content, salt = _members(document, ("content", "salt"))
    return Operation(_unhex(content, "content"), salt)


# A layer document as bytes: salt, canonical JSON


def _layer_kind(layer: Layer) -> Kind[LayerDocument]:
    def commit(record: LayerDocument) -> Bytes32:
        if not isinstance(record.document, dict) or record.document.get("layer") != int(layer):
            raise InvalidInput("document", NOT_SHOWN, f"the document of layer {int(layer)}")
        return commit_to_document(record.document, record.salt)

    return Kind(
        f"layer.{int(layer)}",
        32,
        commit,
        lambda record: record.salt + canonicalize(record.document),
        lambda data: LayerDocument(_read_json(data[32:]), Bytes32(data[:32])),
        lambda record: {"document": record.document, "salt": str(record.salt)},
        lambda document: LayerDocument(*_members(document, ("document", "salt"))),
        earlier_scope_length=20,
    )


def _commit_to_report(record: dict[str, Json]) -> Bytes32:
    if not isinstance(record, dict):
        raise InvalidInput("report", NOT_SHOWN, "a JSON object")
    return compute_content_hash(record)


DELTA: Final = Kind(
    "delta", 32, _commit_to_witness, _witness_to_bytes, _witness_from_bytes, _witness_to_json, _witness_from_json
)
OPERATION: Final = Kind(
    "operation",
    32,
    Operation.compute_leaf,
    _operation_to_bytes,
    _operation_from_bytes,
    _operation_to_json,
    _operation_from_json,
)
LAYERS: Final = tuple(_layer_kind(layer) for layer in Layer)
REPORT: Final[Kind[dict[str, Json]]] = Kind(
    "report",
    32,
    _commit_to_report,
    canonicalize,
    lambda data: _read_json(data),
    lambda record: {"document": record},
    lambda document: _members(document, ("document",))[0],
    earlier_scope_length=20,
)
_SCOPE_TAG: Final = b"melete.witnesses.subject/1"
_ALL: Final[tuple[Kind[Any], ...]] = (DELTA, OPERATION, *LAYERS, REPORT)
KINDS: Final = {kind.name: kind for kind in _ALL}


def subject_scope(chain_id: int, registry: Address, subject: Address) -> Bytes32:
    """Return the scope of what is kept for a subject of one registry on one chain."""
    return keccak256(b"".join((_SCOPE_TAG, uint_word(chain_id), registry.word, subject.word)))


def find_kind(name: str) -> Kind[Any]:
    """Return a kind by its name. Errors: `InvalidInput`."""
    if name not in KINDS:
        raise InvalidInput("kind", name, f"one of {', '.join(KINDS)}")
    return KINDS[name]


# JSON


def _read_json(data: bytes) -> Any:
    try:
        return load_canonical(data)
    except InvalidJson:
        raise InvalidInput("record", None, _UNREADABLE) from None


def _members(document: Any, names: tuple[str, ...]) -> list[Any]:
    if not isinstance(document, dict) or set(document) != set(names):
        raise InvalidInput("record", NOT_SHOWN, f"a JSON object with the members {', '.join(names)}")
    return [document[name] for name in names]


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


def _unhex(text: Any, name: str) -> bytes:
    try:
        return parse_bytes(text, name)
    except InvalidInput:
        raise InvalidInput(name, None, "0x and the hex digits of whole bytes (its value is not shown)") from None
