"""The audit log: a chain of entries that says of every write what was done, never what was said. Pure.

    hash of an entry = keccak256(canonical JSON of the entry), which holds the hash of the entry before

An entry names its number, the hash before it, the time, the action, agent, type and ids; for what was written also a
digest of the content, `keccak256(salt || keccak256(content) || keccak256(canonical JSON of tags and metadata))`, with
32 random bytes as salt. The salt stands in the memory's row. Forgetting erases row and salt, and without the salt
nobody can find out by guessing what the digest was of.

The chain shows every change of the log, and of the rows that it records, to whoever knows its head. Somebody who may
write to the database can also write another log; keep the head elsewhere, too (on a registry, for example).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from melete.canonical import Json, canonicalize
from melete.errors import InputError, InvalidInput
from melete.primitives import ZERO_BYTES32, Bytes32, keccak256
from melete.wire.errors import BrokenAudit

#: What `BrokenAudit` names as broken.
RULES: Final = (
    "the audit row's number",
    "the hash of the audit row",
    "the entry of the audit row",
    "the hash of the audit row before",
    "the newest audit row",
    "a memory's row",
    "the digest of a memory",
    "the time of a memory",
    "the expiry of a memory",
    "the merge of a memory",
    "the last audit row of a memory",
    "the text index",
    "the word count of a memory",
    "the counts of a scope",
    "the vectors of a scope",
    "a pending write",
    "the decision about a pending write",
    "the name of who decided",
    "the tables of the store",
    "the record of its batch",
    "the record of its memory",
    "the head that was recorded elsewhere",
)


class Action(StrEnum):
    """What an entry records."""

    REMEMBER = "remember"
    MERGE = "merge"
    FORGET = "forget"
    EXPIRE = "expire"
    #: Memories whose time had come were removed.
    SWEEP = "sweep"
    #: A write was put into the queue, and was approved or rejected there.
    PROPOSE = "propose"
    APPROVE = "approve"
    #: Also when a hook rejects a write at once.
    REJECT = "reject"


class AuditHead(NamedTuple):
    """Number and hash of the newest entry; number 0 and a zero word before the first."""

    number: int
    hash: Bytes32


EMPTY: Final = AuditHead(0, ZERO_BYTES32)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `at` and `expires` are seconds since 1970, UTC; `operation` is what was proposed or decided about."""

    number: int
    previous: Bytes32
    at: int
    action: Action
    agent: str
    type: str
    memories: tuple[str, ...]
    #: Of each memory that is written or proposed.
    digest: Bytes32 | None = None
    #: The memories that a merge retires.
    sources: tuple[str, ...] = ()
    expires: int | None = None
    #: Who writes, and who decides.
    writer: str | None = None
    by: str | None = None
    operation: str | None = None

    def to_bytes(self) -> bytes:
        """Return the canonical JSON of the entry, without members that it has no value for."""
        members: dict[str, Json] = {
            "number": self.number,
            "previous": str(self.previous),
            "at": self.at,
            "action": self.action.value,
            "agent": self.agent,
            "type": self.type,
            "memories": list(self.memories),
        }
        if self.digest is not None:
            members["digest"] = str(self.digest)
        if self.sources:
            members["sources"] = list(self.sources)
        if self.expires is not None:
            # Times may be beyond what every JSON reader keeps.
            members["expires"] = str(self.expires)
        for name in ("writer", "by", "operation"):
            value: str | None = getattr(self, name)
            if value is not None:
                members[name] = value
        # What RFC 8785 gives, several times as quick: names are ASCII, and there are no floats.
        return json.dumps(members, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Entry:
        """Return the entry that `to_bytes` wrote. Errors: `InputError` for anything else."""
        try:
            # Whatever a lenient reader lets pass, the entry would be written in another way.
            entry = cls(**_values(json.loads(data)))
            same = entry.to_bytes() == data
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
            same = False
        if not same:
            raise InvalidInput("entry", None, "an entry of the audit log, in its one spelling")
        return entry


_NUMBERS: Final = frozenset({"number", "at"})
_LISTS: Final = frozenset({"memories", "sources"})


def _values(members: Any) -> dict[str, Any]:
    """Return the members of an entry as its values. What is of another type raises something, if only later."""
    for name, value in members.items():
        if name in _LISTS:
            is_right = type(value) is list and all(type(item) is str for item in value)
        else:
            is_right = type(value) is (int if name in _NUMBERS else str)
        if not is_right:
            raise TypeError(name)
    values = dict(members)
    values["previous"] = Bytes32(values["previous"])
    values["action"] = Action(values["action"])
    values["memories"] = tuple(values["memories"])
    if "digest" in values:
        values["digest"] = Bytes32(values["digest"])
    if "sources" in values:
        values["sources"] = tuple(values["sources"])
    if "expires" in values:
        values["expires"] = int(values["expires"])
    return values


#: How every entry begins: its members are in order, and quotes in a text are escaped.
_TIME: Final = re.compile(r'\{"action":"[a-z]+","agent":"(?:[^"\\]|\\.)*","at":([0-9]{1,16})[,}]')


def read_time(data: str) -> int | None:
    """Return the time of an entry without reading all of it, which may be long; None for another form."""
    found = _TIME.match(data)
    return None if found is None else int(found[1])


def compute_digest(salt: bytes, content: str, tags: Sequence[str], metadata: Json) -> Bytes32:
    """Return the salted digest of what a memory holds."""
    if tags or metadata is not None:
        rest = keccak256(canonicalize({"metadata": metadata, "tags": list(tags)}))
    else:
        rest = _NOTHING_ELSE
    return keccak256(salt + keccak256(content.encode()) + rest)


_NOTHING_ELSE: Final = keccak256(canonicalize({"metadata": None, "tags": []}))


def follow(head: AuditHead, number: int, data: bytes, stored_hash: bytes) -> Entry:
    """Return the entry of the audit row that stands after `head`, once its own number, hash and entry agree.

    Errors: `BrokenAudit`, at this row, or at the one before when this one vouches for another.
    """
    due = head.number + 1
    if number != due:
        raise BrokenAudit(min(number, due), "the audit row's number", due, number)
    computed = keccak256(data)
    if computed != stored_hash:
        raise BrokenAudit(number, "the hash of the audit row", bytes(stored_hash), computed)
    try:
        entry = Entry.from_bytes(data)
    except InputError:
        raise BrokenAudit(number, "the entry of the audit row", "as it was written", "of another form") from None
    if entry.number != number:
        raise BrokenAudit(number, "the audit row's number", number, entry.number)
    if entry.previous != head.hash:
        # This row agrees with itself, so the one before is another than the one that it was written after.
        raise BrokenAudit(max(head.number, 1), "the hash of the audit row before", entry.previous, head.hash)
    return entry
