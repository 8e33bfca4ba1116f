"""What the audit log says of every memory and every write that waited, entry by entry. Pure.

Entries that contradict each other are told here: an approval of something else than was proposed, for example.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import intern
from typing import Final, NamedTuple

from melete.wire.approval import EXPIRED, FORGOTTEN, Decision
from melete.wire.audit import Action, Entry
from melete.wire.errors import BrokenAudit

DECISION: Final = "the decision about a pending write"


class Made(NamedTuple):
    """A memory of which the log tells: by the audit row that made it, and the one that ended it, if any did."""

    number: int
    id: str
    ended: int | None


@dataclass(slots=True)
class Live:
    """What the log says of a memory that is not erased. There may be millions, so it holds no more than is compared."""

    number: int
    at: int
    agent: str
    type: str
    digest: bytes
    audited: int
    expires: int | None
    merged_into: str | None = None


@dataclass(slots=True)
class Proposal:
    """What the log says of a write that was put into the queue."""

    made: Entry
    audited: int
    decision: str | None = None
    by: str | None = None
    #: The last audit row of each source of a merge, as it was then.
    sources: dict[str, int] = field(default_factory=dict)


class State:
    """All memories and proposals, as the entries so far tell of them; `keeps_ended` asks for those that ended, too."""

    def __init__(self, *, keeps_ended: bool) -> None:
        self.memories: dict[str, Live] = {}
        self.proposals: dict[str, Proposal] = {}
        #: Since when there are scopes, by agent and type.
        self.since: dict[tuple[str, str], int] = {}
        self._ended: list[Made] | None = [] if keeps_ended else None

    def list_made(self) -> list[Made]:
        """Return all memories that the log tells of, in order."""
        made = [Made(memory.number, memory_id, None) for memory_id, memory in self.memories.items()]
        return sorted([*made, *(self._ended or ())])

    def apply(self, entry: Entry) -> None:
        """Go on to the next entry. Errors: `BrokenAudit` for one that contradicts those before."""
        try:
            if entry.action in (Action.FORGET, Action.SWEEP):
                for memory_id in entry.memories:
                    self._end(memory_id, entry)
            elif entry.action is Action.EXPIRE:
                for memory_id in entry.memories:
                    memory = self.memories[memory_id]
                    memory.expires, memory.audited = entry.expires, entry.number
            elif entry.action is Action.PROPOSE:
                self._propose(entry)
            elif entry.action is Action.REJECT:
                for memory_id in entry.memories:
                    self._decide(memory_id, Decision.REJECTED, entry)
            else:
                self._add(entry)
        except (KeyError, ValueError):
            raise BrokenAudit(
                entry.number, "the entry of the audit row", "about memories that there are", entry.action.value
            ) from None

    def _propose(self, entry: Entry) -> None:
        (memory_id,) = entry.memories
        if memory_id in self.proposals or entry.digest is None:
            raise ValueError(memory_id)
        self.since.setdefault((entry.agent, entry.type), entry.number)
        sources = {source: self.memories[source].audited for source in entry.sources}
        self.proposals[memory_id] = Proposal(entry, entry.number, sources=sources)

    def _add(self, entry: Entry) -> None:
        (memory_id,) = entry.memories
        if memory_id in self.memories or entry.digest is None:
            raise ValueError(memory_id)
        if entry.action is Action.APPROVE:
            self._check_approval(entry, self.proposals[memory_id])
            self._decide(memory_id, Decision.APPROVED, entry)
        scope = (intern(entry.agent), intern(entry.type))
        self.since.setdefault(scope, entry.number)
        self.memories[memory_id] = Live(entry.number, entry.at, *scope, entry.digest, entry.number, entry.expires)
        for source in entry.sources:
            memory = self.memories[source]
            memory.merged_into, memory.audited = memory_id, entry.number

    def _check_approval(self, entry: Entry, proposal: Proposal) -> None:
        """Raise for the approval of something else than what was proposed, or of a merge whose sources had changed."""
        made, ends = proposal.made, [proposal.made.expires]
        for source, audited in proposal.sources.items():
            memory = self.memories[source]
            ends.append(memory.expires)
            if memory.audited != audited:
                raise BrokenAudit(entry.number, DECISION, f"about {source} as it was", "about another state of it")
        expires = min((end for end in ends if end is not None), default=None)
        # Sources may stand in another order than they were proposed in; the digest is over their order.
        proposed = (made.digest, sorted(made.sources), expires)
        approved = (entry.digest, sorted(entry.sources), entry.expires)
        if approved != proposed:
            raise BrokenAudit(entry.number, DECISION, f"about what was proposed, {made.digest}", str(entry.digest))

    def _decide(self, memory_id: str, decision: str, entry: Entry) -> None:
        proposal = self.proposals[memory_id]
        if proposal.decision is not None:
            raise ValueError(memory_id)
        made = proposal.made
        by, is_same = entry.agent, (entry.agent, entry.type) == (made.agent, made.type)
        if entry.action in (Action.APPROVE, Action.REJECT):
            if entry.by is None:
                raise ValueError(memory_id)
            by = entry.by
            is_same = is_same and (entry.writer, entry.operation) == (made.writer, made.operation)
        if not is_same:
            raise BrokenAudit(entry.number, DECISION, "about a write as it was proposed", "about another")
        proposal.decision, proposal.audited, proposal.by = decision, entry.number, by

    def _end(self, memory_id: str, entry: Entry) -> None:
        memory = self.memories.pop(memory_id, None)
        if memory is None:
            self._decide(memory_id, FORGOTTEN if entry.action is Action.FORGET else EXPIRED, entry)
        elif self._ended is not None:
            self._ended.append(Made(memory.number, memory_id, entry.number))
