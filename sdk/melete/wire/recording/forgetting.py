"""What a store has forgotten leaves the witnesses, too: the contents' own, and nothing else of their batches.

A batch's row in the store says that everything which its audit rows ended is erased; what later rows ended is looked up
in the log. So nothing has to be remembered between the forgetting and this, and asking again does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from melete.errors import NotScrubbed
from melete.memory.witness_store import WitnessStore
from melete.wire.audit import Entry
from melete.wire.engines import Database
from melete.wire.recording.batches import erase_operations
from melete.wire.recording.journal import (
    core_of,
    find_recording,
    load_endings,
    load_newest,
    load_newest_head,
    load_recorded,
    note_ended,
)
from melete.wire.recording.lock import recording_alone
from melete.wire.recording.operations import ENDING
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
    while a recorder is at work; `ConfigurationError` inside a transaction; the stores'.
    """
    database = core_of(store).database
    with recording_alone(database):
        return erase_since(database, witnesses, 0)[0]


def erase_since(database: Database, witnesses: WitnessStore, known: int) -> tuple[Erased, int]:
    """Erase what was ended by audit rows after the newest batch and after `known`; return up to which row that holds.

    For whoever holds the right to record the store.
    """
    with database.reading() as connection:
        newest, head = load_newest(connection), load_newest_head(connection)
        entries = load_endings(connection, max(known, 0 if newest is None else newest.last))
    return erase_ended(database, witnesses, entries), head.number


def erase_ended(database: Database, witnesses: WitnessStore, entries: Iterable[Entry]) -> Erased:
    """Erase the witnesses of the contents that some entries ended, and note it in the store."""
    ended = {memory: entry.number for entry in entries if entry.action in ENDING for memory in entry.memories}
    if not ended:
        return Erased()
    places = []
    with database.reading() as connection:
        known = [memory for memory in load_recorded(connection, list(ended)) if memory.ended is None]
        for memory in known:
            recording = find_recording(connection, memory.number)
            if memory.place is not None and recording is not None:
                places.append((recording.root, memory.place))
    erased = Erased()
    if places:
        try:
            erased = Erased(erase_operations(witnesses, places))
        except NotScrubbed:
            erased = Erased(len(places), is_scrubbed=False)
    if known:
        with database.writing() as connection:
            for number in sorted({ended[memory.id] for memory in known}):
                note_ended(connection, [memory.id for memory in known if ended[memory.id] == number], number)
    return erased
