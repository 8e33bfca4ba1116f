"""What is asked of a memory store, and what it answers: five operations over four memory types, as values and as JSON.

    Envelope.from_json('{"op": "recall", "memory_type": "episodic", "query": "green tea"}').top_k   # None: 5 is meant
    Envelope(Operation.REMEMBER, MemoryType.SEMANTIC, content="prefers green tea").to_json()

An `Envelope` that exists keeps every rule, so a store need not check again. Whatever comes in, the answer is a value or
one error of `melete.wire.errors` that names the first member at fault; content, queries and metadata are not shown.

Stricter than the JSON Schema, which cannot say all of it: a number is an integer only without a fraction (5.0 and true
are none), content and ids are not empty, ids have one spelling, and everything has the limits below. `null` means the
same as leaving a member out, where the schema allows it. Members that an operation has no use for are checked, kept
and ignored. A member that was omitted stays omitted on the way out; only `amp_version` is always written.

Source: memorywire wire format (`AmpEnvelope`, `AmpResult`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final, NoReturn, Self, TypeVar

from melete.canonical import LARGEST_INTEGER, Json, canonicalize, load_json
from melete.errors import LONGEST_SHOWN, InvalidJson, show
from melete.primitives import NOT_SHOWN, is_utf8
from melete.wire.errors import EnvelopeError, MissingMember, UnknownMember, UnsupportedVersion

AMP_VERSION: Final = "amp/1"
#: What an omitted `agent_id` and an omitted `top_k` mean to a store.
DEFAULT_AGENT: Final = "default"
DEFAULT_TOP_K: Final = 5

MAX_TOP_K: Final = 1000
MAX_IDS: Final = 1000
MAX_TAGS: Final = 64
#: In characters.
MAX_TAG_LENGTH: Final = 256
MAX_AGENT_LENGTH: Final = 256
#: In bytes of UTF-8; for metadata, of their canonical JSON.
MAX_CONTENT_BYTES: Final = 16 * 2**20
MAX_QUERY_BYTES: Final = 2**20
MAX_METADATA_BYTES: Final = 64 * 2**10
MAX_METADATA_DEPTH: Final = 64
#: Beyond it a number is not the same in every JSON reader. A store refuses a shorter one whose deadline is beyond it.
MAX_TTL_SECONDS: Final = LARGEST_INTEGER
#: What `from_json` reads at most: the largest content, with room for escapes.
MAX_JSON_BYTES: Final = 64 * 2**20

_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
#: From here to 1e21 the canonical form of a float reads as an integer that is beyond `LARGEST_INTEGER`.
_FLOATS_AS_INTEGERS: Final = (2.0**53, 1e21)


class Operation(StrEnum):
    """What a store can be asked to do."""

    REMEMBER = "remember"
    RECALL = "recall"
    FORGET = "forget"
    MERGE = "merge"
    EXPIRE = "expire"


class MemoryType(StrEnum):
    """What kind of memory it is."""

    EPISODIC = "episodic"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"
    WORKING = "working"

    @property
    def is_long_term(self) -> bool:
        """Whether writes of this type pass an approval hook: semantic and procedural ones do."""
        return self in (MemoryType.SEMANTIC, MemoryType.PROCEDURAL)


#: The member that an operation cannot do without.
REQUIRED: Final = {
    Operation.REMEMBER: "content",
    Operation.RECALL: "query",
    Operation.FORGET: "memory_ids",
    Operation.MERGE: "memory_ids",
    Operation.EXPIRE: "memory_ids",
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """One request. `agent_id`, `top_k` and `ttl_seconds` are None where the store's defaults are meant.

    Ids and tags given twice count once, at their first place; but `merge` needs different ids, two at least.
    `metadata` is copied, and any JSON object up to 64 KiB. Time is in whole seconds from when the store acts; for
    `expire`, 0 is at once.
    Errors: `EnvelopeError` and those below it, naming the member.
    """

    op: Operation
    memory_type: MemoryType
    agent_id: str | None = None
    content: str | None = None
    query: str | None = None
    memory_ids: tuple[str, ...] = ()
    top_k: int | None = None
    tags: tuple[str, ...] = ()
    ttl_seconds: int | None = None
    metadata: dict[str, Json] | None = field(default=None, hash=False)
    amp_version: str = AMP_VERSION

    def __post_init__(self) -> None:
        if self.amp_version != AMP_VERSION:
            raise UnsupportedVersion("amp_version", _bounded(self.amp_version), f"it must be {AMP_VERSION}")
        _set(self, "op", _choice(Operation, self.op, "op"))
        _set(self, "memory_type", _choice(MemoryType, self.memory_type, "memory_type"))
        required = REQUIRED[self.op]
        if getattr(self, required) in (None, (), []):
            raise MissingMember(required, None, f"{self.op} cannot do without it")
        if self.agent_id is not None:
            verify_agent_id(self.agent_id)
        if self.content is not None:
            _private_text(self.content, "content", MAX_CONTENT_BYTES, shortest=1)
        if self.query is not None:
            _private_text(self.query, "query", MAX_QUERY_BYTES, nul=True)
        _set(self, "memory_ids", self._checked_ids())
        if self.top_k is not None:
            _integer(self.top_k, "top_k", 1, MAX_TOP_K, f"it must be an integer from 1 to {MAX_TOP_K}")
        _set(self, "tags", verify_tags(self.tags))
        if self.ttl_seconds is not None:
            _integer(self.ttl_seconds, "ttl_seconds", 0, MAX_TTL_SECONDS, "it must be an integer from 0 to 2^53 - 1")
        if self.metadata is not None:
            _set(self, "metadata", verify_metadata(self.metadata))

    def _checked_ids(self) -> tuple[str, ...]:
        given = _sequence(self.memory_ids, "memory_ids", MAX_IDS)
        different = tuple(dict.fromkeys(verify_memory_id(memory_id) for memory_id in given))
        if self.op is Operation.MERGE and not 2 <= len(different) == len(given):
            twice = next((given[at] for at in range(len(given)) if given[at] in given[:at]), given[0])
            raise EnvelopeError("memory_ids", twice, "merge needs at least two ids, and no id twice")
        return different

    def __repr__(self) -> str:
        """Name operation, type and agent; what a memory holds does not belong in a log."""
        return f"Envelope({self.op.value}, {self.memory_type.value}, agent_id={self.agent_id!a})"

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members, without those that were omitted, in the order of the specification."""
        members: dict[str, Json] = {
            "amp_version": self.amp_version,
            "op": self.op.value,
            "memory_type": self.memory_type.value,
            "agent_id": self.agent_id,
            "content": self.content,
            "query": self.query,
            "memory_ids": list(self.memory_ids) or None,
            "top_k": self.top_k,
            "tags": list(self.tags) or None,
            "ttl_seconds": self.ttl_seconds,
            "metadata": None if self.metadata is None else _copy_json(self.metadata, "", 0),
        }
        return {name: value for name, value in members.items() if value is not None}

    @classmethod
    def from_json(cls, document: object) -> Envelope:
        """Return the envelope that a JSON object states, given as a value, or as JSON text (bytes are UTF-8).

        Errors: `EnvelopeError` and those below it; `InvalidJson` for text that is no JSON.
        """
        return cls(**_members(cls, document, "envelope", nullable=_NULLABLE))


#: The members of an envelope that may be null, which means omitted.
_NULLABLE: Final = frozenset({"agent_id", "content", "query", "top_k", "ttl_seconds", "metadata"})


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory that was recalled, with a score that compares hits of one answer. Errors: `EnvelopeError`."""

    id: str
    content: str
    memory_type: MemoryType
    score: float
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        verify_memory_id(self.id, "id")
        _private_text(self.content, "content", MAX_CONTENT_BYTES)
        _set(self, "memory_type", _choice(MemoryType, self.memory_type, "memory_type"))
        if type(self.score) not in (int, float) or not math.isfinite(self.score):
            raise EnvelopeError("score", _bounded(self.score), "it must be a finite number")
        _set(self, "score", float(self.score))
        _set(self, "tags", verify_tags(self.tags))

    def __repr__(self) -> str:
        return f"Hit({self.id}, {self.memory_type.value}, score={self.score})"

    def to_json(self) -> dict[str, Json]:
        """Return the five JSON members."""
        return {
            "id": self.id,
            "content": self.content,
            "memory_type": self.memory_type.value,
            "score": self.score,
            "tags": list(self.tags),
        }

    @classmethod
    def from_json(cls, document: object) -> Hit:
        """Return the hit that a JSON object states: exactly its five members. Errors: `EnvelopeError`."""
        return cls(**_members(cls, document, "hit"))


@dataclass(frozen=True, slots=True)
class Result:
    """One answer: what was written or found, and whether approval was needed and given.

    `approved` is None where no approval was required. `detail` is for people, and empty when all went well.
    Errors: `EnvelopeError`, naming the member.
    """

    op: Operation
    ok: bool
    ids: tuple[str, ...] = ()
    hits: tuple[Hit, ...] = ()
    approved: bool | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        _set(self, "op", _choice(Operation, self.op, "op"))
        if type(self.ok) is not bool:
            raise EnvelopeError("ok", _bounded(self.ok), "it must be true or false")
        _set(self, "ids", tuple(verify_memory_id(item, "ids") for item in _sequence(self.ids, "ids")))
        _set(self, "hits", _sequence(self.hits, "hits"))
        for hit in self.hits:
            if not isinstance(hit, Hit):
                raise EnvelopeError("hits", _bounded(hit), "it must be a list of hits")
        if self.approved is not None and type(self.approved) is not bool:
            raise EnvelopeError("approved", _bounded(self.approved), "it must be true or false, or be left out")
        if not isinstance(self.detail, str) or not is_utf8(self.detail):
            raise EnvelopeError("detail", _bounded(self.detail), "it must be text that UTF-8 can carry")

    def add_detail(self, text: str) -> Self:
        """Return the same result, with something more said about it; nothing is added for an empty text."""
        return replace(self, detail="; ".join(filter(None, (self.detail, text))))

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members, without empty lists, an absent approval and an empty detail."""
        members: dict[str, Json] = {
            "op": self.op.value,
            "ok": self.ok,
            "ids": list(self.ids) or None,
            "hits": [hit.to_json() for hit in self.hits] or None,
            "approved": self.approved,
            "detail": self.detail or None,
        }
        return {name: value for name, value in members.items() if value is not None}

    @classmethod
    def from_json(cls, document: object) -> Result:
        """Return the result that a JSON object states, given as a value, or as JSON text (bytes are UTF-8).

        Errors: `EnvelopeError` and those below it; `InvalidJson` for text that is no JSON.
        """
        members = _members(cls, document, "result", nullable=frozenset({"approved"}))
        hits = members.get("hits", [])
        if isinstance(hits, list):
            members["hits"] = [Hit.from_json(hit) for hit in hits]
        return cls(**members)


# Members that stores and commands check too


def is_valid_memory_id(value: object) -> bool:
    """Return whether a value is a UUID in its one spelling here: lower-case hex digits, four hyphens."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def verify_memory_id(value: object, member: str = "memory_ids") -> str:
    """Return a memory's id. Errors: `EnvelopeError` for anything but a UUID in lower-case canonical form.

    Other spellings of a UUID (upper-case, in braces, after urn:uuid:, without hyphens) are refused: ids are compared
    as text everywhere, in files, logs and other programs too.
    """
    if not isinstance(value, str) or not _ID.fullmatch(value):
        rule = "an id must be a UUID in lower case with hyphens, such as 0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10"
        raise EnvelopeError(member, _bounded(value), rule)
    return value


def verify_agent_id(value: object, member: str = "agent_id") -> str:
    """Return an agent's id: 1 to 256 characters. Errors: `EnvelopeError`."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_AGENT_LENGTH:
        raise EnvelopeError(member, _bounded(value), f"it must be text of 1 to {MAX_AGENT_LENGTH} characters")
    return _storable(value, member)


def verify_tags(value: object, member: str = "tags") -> tuple[str, ...]:
    """Return tags, each once, in the order given: at most 64, of 1 to 256 characters. Errors: `EnvelopeError`."""
    tags = _sequence(value, member, MAX_TAGS)
    for tag in tags:
        if not isinstance(tag, str) or not 1 <= len(tag) <= MAX_TAG_LENGTH:
            raise EnvelopeError(member, _bounded(tag), f"a tag must be text of 1 to {MAX_TAG_LENGTH} characters")
        _storable(tag, member)
    return tuple(dict.fromkeys(tags))


def verify_metadata(value: object) -> dict[str, Json]:
    """Return a copy of metadata: a JSON object up to 64 KiB in canonical form, and 64 levels deep.

    Errors: `EnvelopeError`, which says where but does not show it.
    """
    if not isinstance(value, dict):
        raise EnvelopeError("metadata", _type_of(value), "it must be a JSON object")
    copied = _copy_json(value, "", 0)
    assert isinstance(copied, dict)  # a copy of a dict is one
    if len(canonicalize(copied)) > MAX_METADATA_BYTES:
        raise EnvelopeError("metadata", NOT_SHOWN, f"it may take {MAX_METADATA_BYTES} bytes as canonical JSON")
    return copied


def _copy_json(value: object, pointer: str, depth: int) -> Json:
    if depth > MAX_METADATA_DEPTH:
        _refuse_metadata(pointer, f"it may be nested {MAX_METADATA_DEPTH} levels deep")
    if isinstance(value, dict):
        copied: dict[str, Json] = {}
        for name, item in value.items():
            if not isinstance(name, str) or not _is_storable(name):
                _refuse_metadata(pointer, "a member's name must be text without NUL and lone surrogates")
            copied[name] = _copy_json(item, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}", depth + 1)
        return copied
    if isinstance(value, list):
        return [_copy_json(item, f"{pointer}/{index}", depth + 1) for index, item in enumerate(value)]
    rule = _scalar_fault(value)
    if rule:
        _refuse_metadata(pointer, rule)
    return value  # type: ignore[return-value]  # it was just found to be JSON


def _scalar_fault(value: object) -> str:
    if value is None or type(value) is bool:
        return ""
    if type(value) is str:
        return "" if _is_storable(value) else "text must be without NUL and lone surrogates"
    if type(value) is int:
        return "" if abs(value) <= LARGEST_INTEGER else "an integer must be within 2^53 - 1; use a string"
    if type(value) is float:
        alike = math.isfinite(value) and not _FLOATS_AS_INTEGERS[0] <= abs(value) < _FLOATS_AS_INTEGERS[1]
        return "" if alike else "a number must be one that every JSON reader reads alike; use a string"
    return f"a value of type {type(value).__name__} is not JSON"


def _refuse_metadata(pointer: str, rule: str) -> NoReturn:
    raise EnvelopeError("metadata", NOT_SHOWN, f"{rule} (at {show(pointer)})")


# Reading

Choice = TypeVar("Choice", bound=StrEnum)


def _members(cls: type, document: object, what: str, nullable: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the members that an object states, as arguments of its class: known, none missing, nulls left out."""
    if isinstance(document, str | bytes | bytearray):
        document = _load(document, what)
    if not isinstance(document, Mapping):
        raise EnvelopeError(what, _bounded(document), "it must be a JSON object")
    known = {each.name: each for each in fields(cls)}
    if "amp_version" in known and document.get("amp_version", AMP_VERSION) != AMP_VERSION:
        # A later version may have other members: say the version first.
        raise UnsupportedVersion("amp_version", _bounded(document["amp_version"]), f"it must be {AMP_VERSION}")
    for name in document:
        if name not in known:
            raise UnknownMember(str(_bounded(name)), None, f"the members of the {what} are {', '.join(known)}")
    members = {}
    for name, each in known.items():
        if name in document and not (document[name] is None and name in nullable):
            value = document[name]
            if each.type.startswith("tuple") and not isinstance(value, list):
                raise EnvelopeError(name, _type_of(value), "it must be a list")
            members[name] = value
        elif each.default is MISSING:
            raise MissingMember(name, None, f"the {what} cannot do without it")
    return members


def _load(text: str | bytes | bytearray, what: str) -> Json:
    if len(text) > MAX_JSON_BYTES:
        raise EnvelopeError(what, NOT_SHOWN, f"it may take {MAX_JSON_BYTES} bytes")
    try:
        return load_json(bytes(text) if isinstance(text, bytearray) else text)
    except InvalidJson as error:
        member = error.pointer.removeprefix("/").partition("/")[0].replace("~1", "/").replace("~0", "~")
        if not member:
            raise
        raise EnvelopeError(_bounded(member), NOT_SHOWN, error.rule.partition(";")[0]) from None


def _choice(kind: type[Choice], value: object, member: str) -> Choice:
    if isinstance(value, str):
        for choice in kind:
            if choice == value:
                return choice
    raise EnvelopeError(member, _bounded(value), f"it must be one of {', '.join(kind)}")


def _integer(value: object, member: str, least: int, most: int, rule: str) -> None:
    if type(value) is not int or not least <= value <= most:
        raise EnvelopeError(member, _bounded(value), rule)


def _sequence(value: object, member: str, longest: int | None = None) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise EnvelopeError(member, _type_of(value), "it must be a list")
    if longest is not None and len(value) > longest:
        raise EnvelopeError(member, f"{len(value)} items", f"it may have {longest} items")
    return tuple(value)


def _private_text(value: object, member: str, most: int, *, shortest: int = 0, nul: bool = False) -> None:
    """Check text that an error must not show."""
    if not isinstance(value, str):
        raise EnvelopeError(member, _type_of(value), "it must be text")
    if len(value) < shortest:
        raise EnvelopeError(member, "", "it must not be empty")
    if not is_utf8(value):
        raise EnvelopeError(member, NOT_SHOWN, "it holds a lone surrogate, which UTF-8 cannot carry")
    if "\0" in value and not nul:
        raise EnvelopeError(member, NOT_SHOWN, "it holds NUL, which not every database can keep")
    if len(value) > most or (len(value) * 4 > most and len(value.encode()) > most):
        raise EnvelopeError(member, f"{len(value)} characters", f"it may take {most} bytes of UTF-8")


def _is_storable(text: str) -> bool:
    return "\0" not in text and is_utf8(text)


def _storable(text: str, member: str) -> str:
    if not _is_storable(text):
        raise EnvelopeError(member, _bounded(text), "it must be text without NUL and lone surrogates")
    return text


def _bounded(value: Any) -> Any:
    """A value as an error holds it: text is cut, and of what has parts only the type is told."""
    if isinstance(value, str):
        return value[: LONGEST_SHOWN + 1]
    return value if value is None or isinstance(value, int | float) else _type_of(value)


def _type_of(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _set(target: object, name: str, value: object) -> None:
    object.__setattr__(target, name, value)
