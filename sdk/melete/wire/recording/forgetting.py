"""What a store has forgotten leaves the witnesses, too: the contents' own, and nothing else of their batches.

A batch's row in the store says that everything which its audit rows ended is erased; what later rows ended is looked up
in the log. So nothing has to be remembered between the forgetting and this, and asking again does no harm. Nor is the
store believed about where a witness is, or that it is erased: the batch says that (`contents`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import Connection

from melete.errors import MeleteError, NotScrubbed
from melete.memory.witness_store import WitnessStore
from melete.wire.audit import Entry
from melete.wire.engines import Database
from melete.wire.errors import BrokenAudit
from melete.wire.recording.batches import erase_operations
from melete.wire.recording.contents import Contents
from melete.wire.recording.errors import NotAtHand
from melete.wire.recording.journal import (
    BATCH_ROW,
    MEMORY_ROW,
    Recorded,
    core_of,
    find_ended_waiting,
    find_makings,
    iterate_recordings,
    load_audit_head,
    load_endings,
    load_entries_at,
    load_recorded,
    load_standing,
    note_ended,
)
from melete.wire.recording.lock import recording_alone
from melete.wire.recording.operations import ENDING, WRITING
from melete.wire.store import MemoryStore


class Erased(NamedTuple):
    """How many witnesses were erased, and whether their bytes have left the witness store's file."""

    witnesses: int = 0
    is_scrubbed: bool = True

    def and_then(self, other: Erased) -> Erased:
        """Return what both came to."""
        return Erased(self.witnesses + other.witnesses, self.is_scrubbed and other.is_scrubbed)


def erase_forgotten(store: MemoryStore, witnesses: WitnessStore) -> Erased:
    """Erase the witnesses of what a store has forgotten, or swept, since it was recorded last.

    No node is asked, and nothing is recorded; a store that is not on record has no witnesses. Errors: `StoreBusy`
    while a recorder is at work; `ConfigurationError` inside a transaction; those of `erase_ended`; the stores'.
    """
    database = core_of(store).database
    with recording_alone(database):
        return erase_since(database, witnesses, 0)[0]


def erase_since(database: Database, witnesses: WitnessStore, known: int) -> tuple[Erased, int]:
    """Erase what was ended by audit rows after the newest batch and after `known`; return up to which row that holds.

    For whoever holds the right to record the store. Errors: as `erase_ended`.
    """
    with database.reading() as connection:
        newest, head = load_standing(connection)
        if known >= head.number:
            return Erased(), head.number
        recorded, fault = 0, None
        if newest is not None:
            batch = Contents(witnesses).find(newest)
            recorded, fault = batch.head.last, batch.fault
            own = load_audit_head(connection, recorded)
            if own != batch.head.after:
                received = "missing" if own is None else own.hash
                fault = fault or BrokenAudit(recorded, "the hash of the audit row", batch.head.hash, received)
        entries = load_endings(connection, max(known, recorded))
    erased = erase_ended(database, witnesses, entries, recorded)
    if fault is not None:
        raise fault
    return erased, head.number


def erase_ended(database: Database, witnesses: WitnessStore, entries: Iterable[Entry], recorded: int) -> Erased:
    """Erase the witnesses of the contents that some entries ended, and note it in the store.

    `recorded` is the last audit row that is on record: what later ones made has no witness yet. What the store says of
    a memory is compared with what the batch says: where they differ, what can be found is erased, nothing is noted, and
    the first such row is named. Errors: `BrokenAudit`; `NotAtHand` where a witness is missing that has to be there.
    """
    ended = {memory: entry.number for entry in entries if entry.action in ENDING for memory in entry.memories}
    if not ended:
        return Erased()
    with database.reading() as connection:
        known = {memory.id: memory for memory in load_recorded(connection, list(ended))}
        made = _find_made(connection, known, ended, recorded)
        batches = list(iterate_recordings(connection, list(made)))
    contents = Contents(witnesses)
    places, done = [], []
    faults: list[MeleteError] = []
    for (number, memory_id), recording in zip(made.items(), batches, strict=True):
        try:
            placed = contents.place(recording, number, memory_id)
        except (BrokenAudit, NotAtHand) as error:
            faults.append(error)
            continue
        if placed.at is not None and placed.is_kept:
            places.append((placed.root, placed.at))
        fault = _find_fault(known.get(memory_id), number, placed.at, ended[memory_id]) or placed.fault
        if fault is None:
            done.append(memory_id)
        else:
            faults.append(fault)
    erased = Erased()
    if places:
        try:
            erased = Erased(erase_operations(witnesses, places))
        except NotScrubbed:
            erased = Erased(len(places), is_scrubbed=False)
    fresh = [memory_id for memory_id in done if known[memory_id].ended is None]
    if fresh:
        with database.writing() as connection:
            for number in sorted({ended[memory_id] for memory_id in fresh}):
                note_ended(connection, [each for each in fresh if ended[each] == number], number)
    if faults:
        raise faults[0]
    return erased


def _find_made(
    connection: Connection, known: Mapping[str, Recorded], ended: Mapping[str, int], recorded: int
) -> dict[int, str]:
    """Return the memories on record of some that have ended, by the audit row that made them, in order.

    The store's rows say which that is; where they do not, or an audit row says otherwise, the log is searched.
    """
    entries = load_entries_at(connection, [memory.number for memory in known.values()])
    made: dict[str, int] = {}
    for memory in known.values():
        entry = entries.get(memory.number)
        if entry is not None and entry.action in WRITING and entry.memories == (memory.id,):
            made[memory.id] = memory.number
    rest = {memory_id for memory_id in ended if memory_id not in made}
    if rest and recorded:
        # Most were made and ended since, or ended in the queue; for the others the whole log is read.
        rest -= find_makings(connection, rest, recorded, max(ended.values())).keys()
        rest -= find_ended_waiting(connection, rest, ended)
        made.update(find_makings(connection, rest, 0, recorded))
    if not recorded and known:
        first = min(memory.number for memory in known.values())
        raise BrokenAudit(first, BATCH_ROW, "a batch", "missing")
    return {number: memory_id for memory_id, number in sorted(made.items(), key=lambda item: item[1])}


def _find_fault(row: Recorded | None, number: int, place: int | None, ended: int) -> BrokenAudit | None:
    """Return how the store's row about a memory differs from what it should be before its end is noted, or after."""
    if row is None or row.number != number:
        return BrokenAudit(number, MEMORY_ROW, "there", "missing")
    if row.ended not in (None, ended):
        return BrokenAudit(number, MEMORY_ROW, f"ended by audit row {ended}", row.ended)
    due = place if row.ended is None else None
    return None if row.place == due else BrokenAudit(number, MEMORY_ROW, f"at place {due}", row.place)
