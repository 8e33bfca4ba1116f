"""The restore drill as one function: a store made of a space's verified history and the witnesses that open it.

    history = [event.transition for event in registry.transitions(space_id)]
    rebuild(store, witnesses, registry.domain, space_id, history)

The new store ends with the rows that the recorded one had at that sequence, less what was forgotten since: that is
named, never brought back, even where a witness of it should still be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from melete.errors import InvalidInput
from melete.memory.delta import ExperienceDelta
from melete.memory.history import Transition, verify_history
from melete.memory.space import Head
from melete.memory.witness_store import WitnessStore
from melete.primitives import Bytes32
from melete.typed_data import Domain
from melete.wire.audit import EMPTY, Action, AuditHead, Entry
from melete.wire.audit_check import verify
from melete.wire.recording.batches import OpenedBatch, is_erased, iterate_entries, load_content, open_delta
from melete.wire.recording.errors import BrokenRecording, NotOpened
from melete.wire.recording.journal import Recording, add_recording, core_of, load_newest
from melete.wire.recording.operations import ENDING, WRITING, Content
from melete.wire.recording.replay import Missing, Replay
from melete.wire.store import MemoryStore

#: Why a memory does not come back.
FORGOTTEN: Final = "forgotten"
EXPIRED: Final = "expired"
ERASED: Final = "its witness was erased"
UNOPENED: Final = "its witness cannot be opened"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuilt store is: the state after transition `sequence` of the space, whose audit log ended at `head`.

    `forgotten` names what was there then and has been forgotten, or has expired and was swept, since; `unopened` what
    could not be opened, and `unread` the later transitions of which it cannot be told what was forgotten by them;
    `waiting` the writes that waited for approval, which are recorded when they are approved. Where anything is named in
    the first, second or last of these, the store's own log goes on after `head` with that.
    """

    space: Head
    sequence: int
    head: AuditHead
    batches: int
    memories: int
    forgotten: tuple[Missing, ...] = ()
    unopened: tuple[Missing, ...] = ()
    unread: tuple[int, ...] = ()
    waiting: tuple[str, ...] = ()
    #: Whether the space records nothing of this log behind it, so that the store can go on in the space.
    is_newest: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether everything could be opened that had to be."""
        return not self.unopened and not self.unread


def rebuild(
    store: MemoryStore,
    witnesses: WitnessStore,
    domain: Domain,
    space_id: Bytes32,
    transitions: Iterable[Transition],
    *,
    at: int | None = None,
) -> Rebuilt:
    """Write into an empty store what a space records up to transition `at` (default: the last), all of it or nothing.

    `transitions` are all of the space, from the first; that they end at the registry's head, the caller knows. `domain`
    is the registry's. Errors: `InvalidInput` for a store that is not empty, and for a sequence beyond the last;
    `BrokenHistory`; `NotOpened` for a batch up to `at`; `BrokenRecording` for what contradicts itself; the stores'.
    """
    deltas: list[ExperienceDelta] = []

    def collected() -> Iterable[Transition]:
        for transition in transitions:
            deltas.append(transition.delta)
            yield transition

    space_id = Bytes32(space_id, "spaceId")
    head = verify_history(space_id, collected())
    sequence = head.sequence if at is None else at
    if type(sequence) is not int or not 0 <= sequence <= head.sequence:
        raise InvalidInput("at", at, f"a sequence from 0 to {head.sequence}, the space's last")
    ended, unread = find_endings(witnesses, deltas[sequence:])
    core = core_of(store)
    with core.change() as change:
        if change.head != EMPTY or load_newest(change.connection) is not None:
            raise InvalidInput("store", store.label, "an empty one; give the path of a new store")
        replay = Replay(core, change)
        batches = 0
        for delta in deltas[:sequence]:
            opened = open_delta(witnesses, delta)
            if opened is None:
                continue
            if opened.head.before != change.head:
                rule = "the audit row before the batch"
                raise BrokenRecording(delta.sequence, rule, change.head.hash, opened.head.previous)
            entries = list(iterate_entries(witnesses, opened))
            replay.write(entries, _load_contents(witnesses, opened, entries, ended))
            recording = Recording(
                opened.head.first,
                opened.head.last,
                domain.chain_id,
                domain.verifying_contract,
                space_id,
                opened.batch.root,
                opened.commitment,
            )
            add_recording(change.connection, recording, opened.head, [entry for entry, _, _ in entries])
            batches += 1
        recorded = change.head
        missing, waiting = replay.forget_missing()
        change.finish()
        verify(core.database, change.connection, recorded)
    return Rebuilt(
        head,
        sequence,
        recorded,
        batches,
        store.count(),
        tuple(one for one in missing if one.why != UNOPENED),
        tuple(one for one in missing if one.why == UNOPENED),
        tuple(unread),
        tuple(waiting),
        not unread and all(open_delta(witnesses, delta) is None for delta in deltas[sequence:]),
    )


def find_endings(witnesses: WitnessStore, deltas: Sequence[ExperienceDelta]) -> tuple[dict[str, str], list[int]]:
    """Return what some transitions record as forgotten or expired, by id, and those that cannot be opened."""
    ended: dict[str, str] = {}
    unread: list[int] = []
    for delta in deltas:
        try:
            opened = open_delta(witnesses, delta)
            if opened is not None:
                for entry, _, _ in iterate_entries(witnesses, opened):
                    if entry.action in ENDING:
                        why = FORGOTTEN if entry.action is Action.FORGET else EXPIRED
                        ended.update(dict.fromkeys(entry.memories, why))
        except NotOpened:
            unread.append(delta.sequence)
    return ended, unread


def _load_contents(
    witnesses: WitnessStore,
    opened: OpenedBatch,
    entries: Sequence[tuple[Entry, bytes, Bytes32]],
    ended: dict[str, str],
) -> dict[int, Content | str]:
    """Return what the rows of a batch wrote, by number, or why it does not come back."""
    found: dict[int, Content | str] = {}
    for entry, _, _ in entries:
        if entry.action not in WRITING:
            continue
        why = ended.get(entry.memories[0])
        if why is not None:
            found[entry.number] = why
            continue
        try:
            content = load_content(witnesses, opened, entry)
        except NotOpened:
            index = opened.head.content_index(entry.number)
            gone = index is not None and is_erased(witnesses, opened.batch.root, index)
            found[entry.number] = ERASED if gone else UNOPENED
        else:
            found[entry.number] = FORGOTTEN if content is None else content
    return found
