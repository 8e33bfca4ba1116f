"""Before a backup is used: which state of its space is it?

A backup is judged by the head of its audit log, which stands for every row before it, against the heads that the space
records. Of a file, a copy is judged: so the backup stays as it is, and what was judged is what is restored. What a
server holds is judged where it is, as it is at one moment.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from melete.canonical import Json
from melete.errors import InvalidInput
from melete.memory.delta import ExperienceDelta
from melete.memory.history import Transition, verify_history
from melete.memory.space import Head
from melete.memory.witness_store import WitnessStore
from melete.primitives import NOT_SHOWN, Bytes32
from melete.sqlite_errors import translate
from melete.wire import sqlite_file
from melete.wire.audit import EMPTY, AuditHead
from melete.wire.engines import BUSY_SECONDS, parse_path
from melete.wire.errors import BrokenAudit
from melete.wire.recording.batches import OpenedBatch, iterate_entries, open_delta
from melete.wire.recording.errors import BrokenRecording, NotOpened
from melete.wire.recording.journal import core_of, load_audit_head
from melete.wire.store import MemoryStore


class Verdict(StrEnum):
    """Which state of its space a store is."""

    HEAD = "the canonical head"
    EARLIER = "a known earlier state"
    #: Nothing that is recorded contradicts it, and nothing says that it is a state of the space.
    UNKNOWN = "a state that is recorded nowhere"
    DIVERGED = "another history than the recorded one"
    UNTOLD = "could not be told"

    @property
    def is_safe(self) -> bool:
        return self in (Verdict.HEAD, Verdict.EARLIER)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a store was found to be. `audit` is the head of its log, `space` the space's head that it was held against.

    `sequence` is the transition whose state it is, or that recorded its newest row; 0 before the first. `diverged_at`
    is the first audit row that differs from the recorded one; `unrecorded` counts the rows behind the space's head;
    `unread` are transitions that could not be opened.
    """

    verdict: Verdict
    audit: AuditHead
    space: Head
    sequence: int = 0
    diverged_at: int | None = None
    unrecorded: int = 0
    unread: tuple[int, ...] = field(default=())
    #: What does not agree in a store that is not as it was written, at `diverged_at`.
    broken: str | None = None

    def to_note(self) -> dict[str, Json]:
        """Return the member that says what a store which is made of this one cannot be used for, where that is so."""
        return {"note": NOT_RECORDED_HERE} if self.verdict in (Verdict.EARLIER, Verdict.DIVERGED) else {}

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members; sequences are strings."""
        return {
            "verdict": self.verdict.value,
            "sequence": str(self.sequence),
            "auditNumber": self.audit.number,
            "auditHash": str(self.audit.hash),
            "headSequence": str(self.space.sequence),
            "headStateRoot": str(self.space.state_root),
            "divergedAt": self.diverged_at,
            "unrecorded": self.unrecorded,
            "unread": [str(sequence) for sequence in self.unread],
            **({} if self.broken is None else {"broken": self.broken}),
        }


#: Said of a store that stands behind what its space records, or beside it.
NOT_RECORDED_HERE: Final = (
    "this store cannot be recorded in that space any more, which records more than it holds: use it to look at, or "
    "record it in a new space; to go on in that space, run melete memory rebuild without --at into a new store"
)


def check(
    store: MemoryStore, witnesses: WitnessStore, space_id: Bytes32, transitions: Iterable[Transition]
) -> Preflight:
    """Return which state of a space a store is, after its log, its rows and its index were found to agree.

    `transitions` are all of the space, from the first; that they end at the registry's head, the caller knows.
    A store that is not as it was written has diverged, from the first audit row at which it does not agree.
    Errors: `BrokenHistory`; `BrokenRecording`; the stores'.
    """
    deltas: list[ExperienceDelta] = []

    def collected() -> Iterator[Transition]:
        for transition in transitions:
            deltas.append(transition.delta)
            yield transition

    space = verify_history(Bytes32(space_id, "spaceId"), collected())
    try:
        audit = store.verify_audit()
    except BrokenAudit as error:
        return Preflight(Verdict.DIVERGED, _head_as_kept(store), space, diverged_at=error.number, broken=error.rule)
    batches, unread = _open_all(witnesses, deltas)
    return _Judge(store, witnesses, audit, space, batches, unread).judge()


def _head_as_kept(store: MemoryStore) -> AuditHead:
    try:
        return store.audit_head()
    except InvalidInput:
        return EMPTY


def _open_all(witnesses: WitnessStore, deltas: Sequence[ExperienceDelta]) -> tuple[list[OpenedBatch], list[int]]:
    batches: list[OpenedBatch] = []
    unread: list[int] = []
    for delta in deltas:
        try:
            opened = open_delta(witnesses, delta)
        except NotOpened:
            unread.append(delta.sequence)
            continue
        if opened is None:
            continue
        due = batches[-1].head.after if batches else EMPTY
        if not unread and opened.head.before != due:
            raise BrokenRecording(delta.sequence, "the audit row before the batch", due.hash, opened.head.previous)
        batches.append(opened)
    return batches, unread


class _Judge:
    """Compares a store's log with what was recorded."""

    def __init__(
        self,
        store: MemoryStore,
        witnesses: WitnessStore,
        audit: AuditHead,
        space: Head,
        batches: Sequence[OpenedBatch],
        unread: Sequence[int],
    ) -> None:
        self._store, self._witnesses = store, witnesses
        self._audit, self._space, self._batches, self._unread = audit, space, batches, tuple(unread)

    def judge(self) -> Preflight:
        for opened in self._batches:
            if opened.head.first > self._audit.number:
                return self._earlier(opened)
            own = self._own_head(min(opened.head.last, self._audit.number))
            if opened.head.last > self._audit.number or own != opened.head.after:
                return self._look_into(opened)
        return self._beyond()

    def _own_head(self, number: int) -> AuditHead | None:
        with core_of(self._store).database.reading() as connection:
            return load_audit_head(connection, number)

    def _earlier(self, following: OpenedBatch) -> Preflight:
        """The log ends before a batch: at the end of the one before it, unless that one is not at hand."""
        before = [opened for opened in self._batches if opened.head.last < following.head.first]
        sequence = before[-1].sequence if before else 0
        if following.head.before == self._audit:
            return self._found(Verdict.EARLIER, sequence)
        if following.head.before.number == self._audit.number:
            return self._found(Verdict.DIVERGED, sequence, diverged_at=self._audit.number)
        return self._found(Verdict.UNTOLD, sequence)

    def _look_into(self, opened: OpenedBatch) -> Preflight:
        """The log ends within a batch, or differs from it: which of both, its entries say."""
        for entry, _, digest in iterate_entries(self._witnesses, opened):
            if entry.number > self._audit.number:
                return self._found(Verdict.EARLIER, opened.sequence)
            if self._own_head(entry.number) != AuditHead(entry.number, digest):
                return self._found(Verdict.DIVERGED, opened.sequence, diverged_at=entry.number)
        return self._found(Verdict.EARLIER, opened.sequence)  # not reached: the last entry differs, or is beyond

    def _beyond(self) -> Preflight:
        """All that could be opened is in the log."""
        newest = self._batches[-1] if self._batches else None
        sequence = 0 if newest is None else newest.sequence
        if any(number > sequence for number in self._unread):
            return self._found(Verdict.UNTOLD, sequence)
        recorded = 0 if newest is None else newest.head.last
        if newest is None or self._audit.number > recorded:
            return self._found(Verdict.UNKNOWN, sequence, unrecorded=self._audit.number - recorded)
        return self._found(Verdict.HEAD, sequence)

    def _found(
        self, verdict: Verdict, sequence: int, *, diverged_at: int | None = None, unrecorded: int = 0
    ) -> Preflight:
        return Preflight(verdict, self._audit, self._space, sequence, diverged_at, unrecorded, self._unread)


# Copies


def parse_file(text: str, field: str) -> Path:
    """Return the path that a text or `sqlite:///PATH` names. Errors: `InvalidInput` for the URL of a server."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return parse_path(text, field)
    if scheme != "sqlite" or not rest.startswith("/"):
        # What is not a scheme alone may hold a password.
        shown = scheme if scheme.isalpha() and scheme.isascii() else NOT_SHOWN
        rule = "the path of a SQLite file; what a server keeps is restored by its own tools, or rebuilt from its space"
        raise InvalidInput(field, shown, rule)
    return parse_path(rest[1:], field)


@contextmanager
def open_to_judge(place: Path | str, copy: Path) -> Iterator[MemoryStore]:
    """Open a file, by way of a copy, or a store on a server, inside one state that does not change.

    Errors: `MissingFile`, `StoreUnreadable`, `StoreBusy`; `InvalidInput` for the URL of no server.
    """
    if isinstance(place, Path):
        copy.touch(0o600)
        with open_copy(place, copy) as store:
            yield store
        return
    with MemoryStore.open(place, create=False) as store, store.snapshot():
        yield store


@contextmanager
def open_copy(backup: Path, copy: Path) -> Iterator[MemoryStore]:
    """Copy a backup, as it is at one moment, to a new file of mode 0600, and open that as a store.

    The backup is not changed. Errors: `MissingFile`, `StoreUnreadable`, `StoreBusy`.
    """
    copy_store(backup, copy)
    with MemoryStore.open(copy, create=False, scrub_at_once=False) as store:
        yield store


def copy_store(backup: Path, copy: Path) -> None:
    """Copy a store's file to another, which is there and empty. Errors: as `open_copy`."""
    sqlite_file.check_file(backup, BUSY_SECONDS)
    mode = "mode=ro" if sqlite_file.has_companion(backup) else "mode=ro&immutable=1"
    try:
        with (
            closing(sqlite_file.connect(backup, mode, BUSY_SECONDS)) as source,
            closing(sqlite3.connect(copy, isolation_level=None)) as target,
        ):
            source.backup(target)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate(error, str(backup)) from None
