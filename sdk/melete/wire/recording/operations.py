"""A store's writes as the operations of a batch, and back. Pure.

    leaf 0                  the head of the batch: which audit rows it records, the audit hash before and after them
    leaves 1, 2 ...         the audit rows, one each, as they are
    the leaves after them   what those rows wrote and what was there to be recorded: contents, in the same order

A row's entry says who wrote what kind of memory and when, never what; it carries a salted digest of that. The content
with the digest's salt is a leaf of its own. So forgetting a memory takes its content's witness away, while those of all
entries stay: the audit chain of a space can be followed for good, and the batch keeps its root.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from melete.canonical import LARGEST_INTEGER, Json, load_json
from melete.errors import InputError, InvalidInput
from melete.primitives import ZERO_BYTES32, Bytes32, keccak256
from melete.wire.audit import Action, AuditHead, Entry, compute_digest, follow
from melete.wire.errors import BrokenAudit

HEAD_FORMAT: Final = "melete.memory-batch/1"
ENTRY_FORMAT: Final = "melete.memory-operation/1"
CONTENT_FORMAT: Final = "melete.memory-content/1"

#: The actions that write a memory, and those that end some.
WRITING: Final = frozenset({Action.REMEMBER, Action.MERGE, Action.APPROVE})
ENDING: Final = frozenset({Action.FORGET, Action.SWEEP})


# Contents


@dataclass(frozen=True, slots=True, repr=False)
class Content:
    """What audit row `number` wrote as memory `id`, with the salt of its digest.

    `metadata` is JSON text with its members in the order given, as a store keeps it; None where there is none.
    Errors: `InvalidInput` for members of another type; none is shown.
    """

    number: int
    id: str
    content: str
    tags: tuple[str, ...]
    metadata: str | None
    salt: Bytes32

    def __post_init__(self) -> None:
        texts = (self.id, self.content, *self.tags, self.metadata or "")
        if type(self.number) is not int or not all(type(text) is str for text in texts):
            raise _refused("a content of a number and texts")

    def __repr__(self) -> str:
        return f"Content({self.number}, {self.id})"

    def to_bytes(self) -> bytes:
        """Return the bytes of the operation: canonical JSON."""
        members: dict[str, Json] = {
            "content": self.content,
            "format": CONTENT_FORMAT,
            "id": self.id,
            "number": self.number,
            "salt": str(self.salt),
            "tags": list(self.tags),
        }
        if self.metadata is not None:
            members["metadata"] = self.metadata
        return _to_bytes(members)

    @classmethod
    def from_bytes(cls, data: bytes) -> Content:
        """Return the content that an operation states. Errors: `InvalidInput`, which does not show it."""
        members = _read(data, CONTENT_FORMAT)
        try:
            found = cls(
                members["number"],
                members["id"],
                members["content"],
                tuple(members["tags"]),
                members.get("metadata"),
                Bytes32(members["salt"]),
            )
            same = found.to_bytes() == data
        except (KeyError, TypeError, ValueError):
            same = False
        if not same:
            raise _refused("a content as it was recorded")
        return found

    def compute_digest(self) -> Bytes32:
        """Return the digest that the entry carries. Errors: `InvalidInput` for metadata that is no JSON object."""
        metadata: Any = None
        if self.metadata is not None:
            try:
                metadata = json.loads(self.metadata)
            except (ValueError, RecursionError):
                raise _refused("a content whose metadata is JSON") from None
        return compute_digest(self.salt, self.content, self.tags, metadata)


# Entries


def entry_to_operation(data: bytes, digest: Bytes32) -> bytes:
    """Return the operation that records an audit row: the bytes of its entry, and their hash. Canonical JSON."""
    return _BEFORE_ENTRY + data + _AFTER_ENTRY + str(digest).encode() + b'"}'


def operation_to_entry(operation: bytes) -> tuple[bytes, Bytes32]:
    """Return the bytes of an entry and the hash that an operation gives for them; `follow` judges both.

    Errors: `InvalidInput` for another kind of operation.
    """
    end = len(operation) - _TAIL_LENGTH
    is_entry = (
        end > len(_BEFORE_ENTRY)
        and operation.startswith(_BEFORE_ENTRY)
        and operation.startswith(_AFTER_ENTRY, end)
        and operation.endswith(b'"}')
    )
    if is_entry:
        try:
            digest = Bytes32(operation[end + len(_AFTER_ENTRY) : -2].decode("ascii"))
        except (InvalidInput, UnicodeDecodeError):
            digest = ZERO_BYTES32
        data = operation[len(_BEFORE_ENTRY) : end]
        if entry_to_operation(data, digest) == operation:
            return data, digest
    raise _refused("an audit row as it was recorded")


_BEFORE_ENTRY: Final = b'{"entry":'
_AFTER_ENTRY: Final = b',"format":"' + ENTRY_FORMAT.encode() + b'","hash":"'
_TAIL_LENGTH: Final = len(_AFTER_ENTRY) + 66 + len(b'"}')


# Batches


@dataclass(frozen=True, slots=True)
class BatchHead:
    """Which audit rows a batch records: from `first` to `last`, the hash before and the hash after them.

    `contents` are the numbers of the rows whose content is recorded with them. Errors: `InvalidInput`.
    """

    first: int
    last: int
    previous: Bytes32
    hash: Bytes32
    contents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        whole = all(type(number) is int for number in (self.first, self.last, *self.contents))
        if not whole or not 1 <= self.first <= self.last <= LARGEST_INTEGER:
            raise _refused("the head of a batch, with numbers from 1 on, in order")
        inside = all(self.first <= number <= self.last for number in self.contents)
        if not inside or list(self.contents) != sorted(set(self.contents)):
            raise _refused("the head of a batch, with contents of its own rows, in order")
        object.__setattr__(self, "previous", Bytes32(self.previous, "previous"))
        object.__setattr__(self, "hash", Bytes32(self.hash, "hash"))

    @property
    def before(self) -> AuditHead:
        """The head of the audit chain before the batch."""
        return AuditHead(self.first - 1, self.previous)

    @property
    def after(self) -> AuditHead:
        """The head of the audit chain after the batch."""
        return AuditHead(self.last, self.hash)

    @property
    def rows(self) -> int:
        """How many audit rows it records."""
        return self.last - self.first + 1

    @property
    def count(self) -> int:
        """How many operations it has."""
        return 1 + self.rows + len(self.contents)

    def entry_index(self, number: int) -> int:
        """Return the index of the operation that records an audit row. Errors: `InvalidInput` for another batch's."""
        if not self.first <= number <= self.last:
            raise InvalidInput("number", number, f"from {self.first} to {self.last}")
        return 1 + number - self.first

    def content_index(self, number: int) -> int | None:
        """Return the index of the operation that records what an audit row wrote; None where there is none."""
        place = bisect_left(self.contents, number)
        if place == len(self.contents) or self.contents[place] != number:
            return None
        return 1 + self.rows + place

    def to_bytes(self) -> bytes:
        """Return the bytes of the operation: canonical JSON."""
        return _to_bytes(
            {
                "contents": list(self.contents),
                "first": self.first,
                "format": HEAD_FORMAT,
                "hash": str(self.hash),
                "last": self.last,
                "previous": str(self.previous),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> BatchHead:
        """Return the head that an operation states. Errors: `InvalidInput`."""
        members = _read(data, HEAD_FORMAT)
        try:
            contents = tuple(members["contents"])
            found = cls(members["first"], members["last"], members["previous"], members["hash"], contents)
            same = found.to_bytes() == data
        except (KeyError, TypeError, ValueError):
            same = False
        if not same:
            raise _refused("the head of a batch as it was recorded")
        return found


@dataclass(frozen=True, slots=True, repr=False)
class Write:
    """An audit row that is to be recorded, its entry as bytes, with what it wrote if that is still there.

    Errors: `InvalidInput` for bytes that are no entry.
    """

    data: bytes
    hash: Bytes32
    content: Content | None = None
    entry: Entry = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry", Entry.from_bytes(self.data))

    def __repr__(self) -> str:
        return f"Write({self.entry.number}, {self.entry.action.value})"


def build_operations(before: AuditHead, writes: Sequence[Write]) -> tuple[BatchHead, list[bytes]]:
    """Return the head of a batch and all its operations, the head first, once the writes follow one by one.

    `before` is the head of the audit chain before them. Errors: `InvalidInput` for no writes; `BrokenAudit` for rows
    that do not follow, and for a content that is not the one whose digest its row carries.
    """
    if not writes:
        raise InvalidInput("writes", None, "at least one; a batch of none records nothing")
    at = before
    for write in writes:
        entry = write.entry
        follows = (entry.number, entry.previous) == (at.number + 1, at.hash)
        if not follows or keccak256(write.data) != write.hash:
            follow(at, entry.number, write.data, write.hash)  # says what is wrong, which is something
        verify_content(entry, write.content)
        at = AuditHead(entry.number, write.hash)
    contents = [write.content for write in writes if write.content is not None]
    numbers = tuple(content.number for content in contents)
    head = BatchHead(before.number + 1, at.number, before.hash, at.hash, numbers)
    entries = [entry_to_operation(write.data, write.hash) for write in writes]
    return head, [head.to_bytes(), *entries, *(content.to_bytes() for content in contents)]


def verify_content(entry: Entry, content: Content | None) -> None:
    """Return if a content is what an entry wrote, or None. Errors: `BrokenAudit`."""
    if content is None:
        return
    if entry.action not in WRITING or (content.number, (content.id,)) != (entry.number, entry.memories):
        raise BrokenAudit(entry.number, "a memory's row", "what the audit row wrote", "another")
    digest = content.compute_digest()
    if digest != entry.digest:
        raise BrokenAudit(entry.number, "the digest of a memory", entry.digest, digest)


# JSON


def _to_bytes(members: dict[str, Json]) -> bytes:
    # What RFC 8785 gives, several times as quick: names are ASCII, and there are no floats.
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def _read(data: bytes, wanted: str) -> dict[str, Any]:
    try:
        members = load_json(data)
    except InputError:
        members = None
    if not isinstance(members, dict) or members.get("format") != wanted:
        raise _refused(f"of the format {wanted}")
    return members


def _refused(rule: str) -> InvalidInput:
    return InvalidInput("operation", None, f"{rule} (it is not shown)")
