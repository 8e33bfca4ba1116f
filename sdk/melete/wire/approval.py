"""Who lets a long-term memory in: a hook that is asked before `remember` and `merge` of one commit.

    MemoryStore.open(path)                                              # approves by itself
    MemoryStore.open(path, approval=CallableApproval(lambda diff: "password" not in diff.after))
    MemoryStore.open(path, approval=Queue())                            # writes wait for somebody else

Episodic and working memories are short-lived and pass unasked, and so do forgetting and expiring. Whatever is decided
stands in the audit log, in the transaction of the write.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from melete.canonical import Json
from melete.errors import InvalidInput
from melete.primitives import is_utf8
from melete.wire.envelope import MemoryType, Operation
from melete.wire.invisible import drop_invisible, has_invisible

LONGEST_NAME: Final = 128


class Decision(StrEnum):
    """What a hook answers, and what becomes of a write that waits."""

    APPROVED = "approved"
    REJECTED = "rejected"
    #: The write goes into the queue.
    PENDING = "pending"


#: What becomes of a write in the queue when its content was forgotten, or its time came, before anybody decided.
FORGOTTEN: Final = "forgotten"
EXPIRED: Final = "expired"
#: All that can become of a write that waited.
DECISIONS: Final = frozenset({Decision.APPROVED.value, Decision.REJECTED.value, FORGOTTEN, EXPIRED})


@dataclass(frozen=True, slots=True, repr=False)
class Diff:
    """What a write changes. `before` holds the contents that a merge retires, in order; it is empty for `remember`."""

    before: tuple[str, ...]
    after: str
    tags: tuple[str, ...]
    agent: str
    type: MemoryType
    metadata: dict[str, Json] | None = field(default=None, hash=False)

    def __repr__(self) -> str:
        return f"Diff({len(self.before)} before, agent={self.agent!a}, type={self.type.value})"


class ApprovalHook(Protocol):
    """Decides about a write. It is asked outside of any transaction, so it may take its time."""

    @property
    def name(self) -> str:
        """Who the audit log names as having decided."""

    def decide(self, diff: Diff) -> Decision:
        """Return the decision. What it raises leaves the store as it was."""


class AutoApprove:
    """Approves every write; the default."""

    name = "auto"

    def decide(self, diff: Diff) -> Decision:  # noqa: ARG002 - the protocol's signature
        return Decision.APPROVED


class CallableApproval:
    """Asks a function, which answers True or False (or a `Decision`).

    Errors: `InvalidInput` for any other answer: what is merely truthy approves nothing.
    """

    def __init__(self, function: Callable[[Diff], bool | Decision], name: str = "callable") -> None:
        self._function = function
        self.name = verify_name(name)

    def decide(self, diff: Diff) -> Decision:
        answer = self._function(diff)
        if answer is True:
            return Decision.APPROVED
        if answer is False:
            return Decision.REJECTED
        if isinstance(answer, Decision):
            return answer
        raise InvalidInput("approval", type(answer).__name__, "True, False or a Decision")


class Queue:
    """Lets every write wait until somebody other than the writer approves or rejects it."""

    name = "queue"

    def decide(self, diff: Diff) -> Decision:  # noqa: ARG002 - the protocol's signature
        return Decision.PENDING


@dataclass(frozen=True, slots=True, repr=False)
class PendingWrite:
    """A write that waits. `number` is the audit row that proposed it, `writer` who must not decide about it.

    `content` is None for a merge some of whose sources are no longer as they were: it can only be rejected.
    """

    id: str
    number: int
    operation: Operation
    agent: str
    type: MemoryType
    writer: str
    created_at: int
    expires_at: int | None
    before: tuple[str, ...]
    content: str | None
    tags: tuple[str, ...]
    sources: tuple[str, ...]
    metadata: dict[str, Json] | None = field(default=None, hash=False)

    @property
    def diff(self) -> Diff:
        """What it would change."""
        return Diff(self.before, self.content or "", self.tags, self.agent, self.type, self.metadata)

    def __repr__(self) -> str:
        return f"PendingWrite({self.id}, {self.operation.value}, agent={self.agent!a}, type={self.type.value})"

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members: `before` and `after` are what it changes; no `after` if it cannot any more."""
        members: dict[str, Json] = {
            "id": self.id,
            "number": self.number,
            "op": self.operation.value,
            "agent_id": self.agent,
            "memory_type": self.type.value,
            "writer": self.writer,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "sources": list(self.sources),
            "before": list(self.before),
            "after": self.content,
            "tags": list(self.tags),
            "metadata": self.metadata,
        }
        return {name: value for name, value in members.items() if value is not None}


# Names


def verify_name(value: object, field: str = "name") -> str:
    """Return a person's or program's name, without the space around it: 1 to 128 characters, each of which shows.

    Errors: `InvalidInput`.
    """
    rule = f"a name of 1 to {LONGEST_NAME} printable characters, none of them invisible"
    if not isinstance(value, str) or not is_utf8(value):
        raise InvalidInput(field, value if value is None else type(value).__name__, rule)
    name = " ".join(value.split())
    is_shown = name.isprintable() and not has_invisible(name)
    if not 1 <= len(name) <= LONGEST_NAME or not is_shown or not fold_name(name):
        raise InvalidInput(field, value[: LONGEST_NAME + 1], rule)
    return name


def fold_name(name: str) -> str:
    """Return the form by which names are told apart: case, width, space and invisible characters do not count.

    Letters of different alphabets that look alike are different letters still.
    """
    folded = drop_invisible(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()))
    shown = "".join(character for character in folded if unicodedata.category(character)[0] not in "CZ")
    # What stood apart because of something invisible between it is one character then.
    return unicodedata.normalize("NFKC", shown)


def is_same_name(one: str, other: str) -> bool:
    """Return whether two names are one person's."""
    return fold_name(one) == fold_name(other)
