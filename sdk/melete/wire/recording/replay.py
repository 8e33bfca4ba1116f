"""Audit rows and contents, written into an empty store as they were written into the one that they come from.

Every row of the log is taken over verbatim, so both chains have the same heads. What is not there to be written any
more is missing from the rows; in the end the new store's own log says that it was forgotten, and both agree. Names
registered by hand, and vectors without an embedder, are not on record and do not come back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import insert, select, update

from melete.primitives import Bytes32
from melete.wire.approval import EXPIRED, FORGOTTEN, Decision, fold_name
from melete.wire.audit import Action, AuditHead, Entry
from melete.wire.lookup import load_rows, with_merged
from melete.wire.recording.operations import Content
from melete.wire.tables import AnyRow, audit, memories, names, pending
from melete.wire.words import SIZE_BITS
from melete.wire.writing import Change, Core, Draft, compute_document, in_portions

#: Who the log of a new store names for what is forgotten because it could not be written.
BY: Final = "rebuild"


@dataclass(frozen=True, slots=True)
class Missing:
    """A memory that a log tells of, and that is not there: why, and what was merged into it."""

    id: str
    agent: str
    type: str
    why: str
    sources: tuple[str, ...] = ()


class Replay:
    """Writes audit rows and contents into a store, inside one transaction."""

    def __init__(self, core: Core, change: Change) -> None:
        self._core, self._change, self._connection = core, change, change.connection
        self._scopes: dict[tuple[str, str], int] = {}
        self._missing: dict[str, Missing] = {}
        #: Writes that wait for approval, by id: agent and type.
        self._waiting: dict[str, tuple[str, str]] = {}

    def write(self, entries: Iterable[tuple[Entry, bytes, Bytes32]], contents: Mapping[int, Content | str]) -> None:
        """Write audit rows that follow, with the contents of those that wrote one: by number, or why there is none."""
        rows = []
        for entry, data, digest in entries:
            # A scope begins with its first row.
            self._apply(entry, contents.get(entry.number))
            self._change.head = AuditHead(entry.number, digest)
            rows.append({"number": entry.number, "entry": data.decode(), "hash": digest})
        if rows:
            self._connection.execute(insert(audit), rows)

    def forget_missing(self) -> tuple[list[Missing], list[str]]:
        """Let the log say that what is missing was forgotten; return that, and what waited for approval."""
        gone: list[Missing] = []
        waiting = list(self._waiting)
        for agent, kind in dict.fromkeys([*((one.agent, one.type) for one in self._missing.values()),
                                          *self._waiting.values()]):  # fmt: skip
            own = [one for one in self._missing.values() if (one.agent, one.type) == (agent, kind)]
            writes = [memory_id for memory_id, scope in self._waiting.items() if scope == (agent, kind)]
            rows = self._rows_of([source for one in own for source in one.sources])
            merged = [Missing(row.id, agent, kind, self._why(row.id, own)) for row in rows]
            found = list({one.id: one for one in [*own, *merged]}.values())
            entry = self._change.record(Action.FORGET, agent, kind, [*(one.id for one in found), *writes], by=BY)
            if rows:
                self._change.erase(rows)
            self._settle(writes, FORGOTTEN, agent, entry.number)
            gone += found
        self._missing.clear()
        self._waiting.clear()
        return gone, waiting

    def _why(self, memory_id: str, own: Sequence[Missing]) -> str:
        for one in own:
            if memory_id in one.sources:
                return one.why
        return own[0].why

    def _rows_of(self, ids: Sequence[str]) -> list[AnyRow]:
        """Return the rows of memories, and of all that was merged into them."""
        return with_merged(self._connection, list(load_rows(self._connection, ids).values()))

    # Entries

    def _apply(self, entry: Entry, content: Content | str | None) -> None:
        if entry.action is Action.PROPOSE:
            self._propose(entry)
        elif entry.action is Action.REJECT:
            if entry.memories:  # else a hook refused it at once
                self._settle(entry.memories, Decision.REJECTED, entry.by, entry.number)
                self._register(entry)
        elif entry.action is Action.EXPIRE:
            self._expire(entry)
        elif entry.action in (Action.FORGET, Action.SWEEP):
            self._end(entry)
        else:
            self._add(entry, content)

    def _add(self, entry: Entry, content: Content | str | None) -> None:
        (memory_id,) = entry.memories
        if entry.action is Action.APPROVE:
            self._settle(entry.memories, Decision.APPROVED, entry.by, entry.number)
            self._register(entry)
        scope = self._scope(entry)
        into = entry.number << SIZE_BITS
        if isinstance(content, Content):
            draft = self._draft(content)
            self._change.add_memory(scope, entry, draft)
            into = compute_document(entry, draft)
        else:
            why = content or "forgotten"
            self._missing[memory_id] = Missing(memory_id, entry.agent, entry.type, why, entry.sources)
        if entry.sources:
            rows = list(load_rows(self._connection, entry.sources).values())
            self._change.withdraw(rows)
            for some in in_portions([row.document for row in rows]):
                self._connection.execute(
                    update(memories).where(memories.c.document.in_(some)).values(merged_into=into, audited=entry.number)
                )

    def _draft(self, content: Content) -> Draft:
        metadata: Any = None if content.metadata is None else json.loads(content.metadata)
        return Draft.make(self._core, content.content, content.tags, metadata, memory_id=content.id, salt=content.salt)

    def _expire(self, entry: Entry) -> None:
        rows = load_rows(self._connection, entry.memories).values()
        for some in in_portions([row.document for row in rows]):
            kept = memories.c.document.in_(some)
            self._connection.execute(
                update(memories).where(kept).values(expires_at=entry.expires, audited=entry.number)
            )

    def _end(self, entry: Entry) -> None:
        ids = [memory_id for memory_id in entry.memories if memory_id not in self._waiting]
        for memory_id in ids:
            self._missing.pop(memory_id, None)
        rows = list(load_rows(self._connection, ids).values())
        if rows:
            self._change.erase(rows)
        decision = FORGOTTEN if entry.action is Action.FORGET else EXPIRED
        self._settle(entry.memories, decision, entry.agent, entry.number)

    # Writes that wait for approval

    def _propose(self, entry: Entry) -> None:
        (memory_id,) = entry.memories
        self._waiting[memory_id] = (entry.agent, entry.type)
        row = {
            "number": entry.number,
            "id": memory_id,
            "operation": entry.operation,
            "scope": self._scope(entry),
            "writer": entry.writer,
            "created_at": entry.at,
            "expires_at": entry.expires,
        }
        self._connection.execute(insert(pending), row)

    def _settle(self, ids: Iterable[str], decision: str, by: str | None, number: int) -> None:
        for memory_id in ids:
            if self._waiting.pop(memory_id, None) is not None:
                values = {"decision": str(decision), "decided": number, "decided_by": by}
                self._connection.execute(update(pending).where(pending.c.id == memory_id).values(values))

    def _register(self, entry: Entry) -> None:
        """Keep the name of who decided, as the store did when it was new."""
        if entry.by is None:
            return
        folded = fold_name(entry.by)
        if self._connection.execute(select(names.c.folded).where(names.c.folded == folded)).first() is None:
            row = {"folded": folded, "name": entry.by, "since": entry.at}
            self._connection.execute(insert(names), row)

    def _scope(self, entry: Entry) -> int:
        key = (entry.agent, entry.type)
        if key not in self._scopes:
            self._scopes[key] = self._change.scope(*key)
        return self._scopes[key]
