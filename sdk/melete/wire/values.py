"""What a store keeps and what it tells about it, as values. None of them shows content in its `repr`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from melete.canonical import Json
from melete.primitives import Bytes32
from melete.wire.audit import Entry
from melete.wire.envelope import MemoryType


class MemoryState(StrEnum):
    """Whether a memory can be recalled, and if not, why."""

    ACTIVE = "active"
    #: Its time has come; the next sweep removes it.
    EXPIRED = "expired"
    #: Another memory has taken it up.
    MERGED = "merged"
    #: It waits for approval.
    PENDING = "pending"


@dataclass(frozen=True, slots=True, repr=False)
class Memory:
    """One memory as the store keeps it. Times are seconds since 1970, UTC; `expires_at` is None for never.

    `number` is the audit row that made it, `audited` the last one about it; `merged_into` the id of what took it up.
    """

    id: str
    agent_id: str
    memory_type: MemoryType
    content: str
    tags: tuple[str, ...]
    metadata: dict[str, Json] | None = field(hash=False)
    state: MemoryState
    created_at: int
    expires_at: int | None
    merged_into: str | None
    number: int
    audited: int

    def __repr__(self) -> str:
        return f"Memory({self.id}, {self.memory_type.value}, {self.state.value}, agent_id={self.agent_id!a})"

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members; times are numbers, and what is None is left out."""
        members: dict[str, Json] = {
            "id": self.id,
            "agent_id": self.agent_id,
            "memory_type": self.memory_type.value,
            "content": self.content,
            "tags": list(self.tags),
            "metadata": self.metadata,
            "state": self.state.value,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "merged_into": self.merged_into,
            "number": self.number,
            "audited": self.audited,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True, repr=False)
class WriteRecord:
    """One write as an observer sees it, inside the write's transaction.

    `entry` is the audit row with its time, action and ids, `hash` the head of the chain after it. `written` is the
    memory that came to be, with the salt of its digest; `erased` the ids whose content is gone after this.
    """

    entry: Entry
    hash: Bytes32
    written: Memory | None = None
    salt: Bytes32 | None = None
    erased: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"WriteRecord({self.entry.number}, {self.entry.action.value})"
