"""Does what a store keeps about its being on record agree with its audit log?

    recordings      batches of audit rows, one after the other from the first on, all in one space of one registry
    recorded        a row for each memory that those audit rows made; what ended it, once that is on record, too

The place of a content in its batch is known exactly where nothing of the batch was forgotten: what was forgotten before
its batch was recorded has no place there, and the log does not say when that was. Not seen is another root or
commitment of 32 bytes, since the leaves are salted and their salts stand in the witnesses (`melete memory prove`
compares those), and that all rows of both tables are gone, which is how a store looks that was never recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from sqlalchemy import Connection, select

from melete.wire.audit_state import Made
from melete.wire.cells import altered, read_address, read_bytes32, read_int, read_text
from melete.wire.errors import BrokenAudit
from melete.wire.tables import AnyRow, recorded, recordings

BATCH: Final = "the record of its batch"
MEMORY: Final = "the record of its memory"
_CHAIN: Final = re.compile(r"[1-9][0-9]{0,77}", re.ASCII)
_ROWS_AT_A_TIME: Final = 1_000


def is_on_record(connection: Connection) -> bool:
    """Return whether a store keeps anything about its being on record."""
    return any(
        connection.execute(select(column).limit(1)).first() for column in (recordings.c.first, recorded.c.number)
    )


def check(connection: Connection, head: int, made: Iterable[Made]) -> Iterator[BrokenAudit]:
    """Yield what is wrong with what a store keeps about its being on record.

    `head` is the number of the newest audit row; `made` are all memories that the log tells of, in order.
    """
    try:
        batches = list(_read_batches(connection, head))
    except BrokenAudit as fault:
        yield fault
        return  # places and ends are measured by the batches
    last = batches[-1][1] if batches else 0
    places = _Places()
    due = (memory for memory in made if memory.number <= last)
    for memory, row in _pairs(due, _rows_of_recorded(connection)):
        if memory is None:
            if row is not None:
                yield BrokenAudit(row.number, MEMORY, "none", row.id)
            continue
        while batches[0][1] < memory.number:
            batches.pop(0)
        places.enter(*batches[0])
        wrong = ("a row", "none") if row is None else _fault_of(row, memory, last, places)
        if wrong:
            yield BrokenAudit(memory.number, MEMORY, *wrong)
        places.take(memory, row)


# Batches


def _read_batches(connection: Connection, head: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last audit row of each batch, once it follows the one before. Errors: `BrokenAudit`."""
    due = 1
    space: object = None
    roots: set[bytes] = set()
    for row in connection.execute(select(recordings).order_by(recordings.c.first)):
        first, last = row.first, read_int(row.last, due, BATCH)
        if first != due or not first <= last <= head:
            expected, received = f"from {due} to {head} at most", f"from {first} to {last}"
            raise BrokenAudit(min(first, due), BATCH, expected, received)
        words = [read_bytes32(word, first, BATCH) for word in (row.space, row.root, row.commitment)]
        registry = read_address(row.registry, first, BATCH)
        chain = read_text(row.chain, first, BATCH)
        is_hash = all(map(any, words)) and any(registry) and _CHAIN.fullmatch(chain)
        if not is_hash or roots & {*words[1:]}:
            raise altered(first, BATCH)
        place = (chain, registry, words[0])
        if space is not None and place != space:
            raise BrokenAudit(first, BATCH, "in the space of the first", "in another")
        space = place
        roots |= {*words[1:]}
        due = last + 1
        yield first, last


# Memories


class _Places:
    """Which places a batch has for the content of its next memory: see `BatchHead.content_index`."""

    def __init__(self) -> None:
        self._batch = (0, 0)
        #: The least and the greatest place of the next content.
        self.least = self.most = 0

    def enter(self, first: int, last: int) -> None:
        """Go on to a batch, if this is not the one already."""
        if self._batch != (first, last):
            self._batch = first, last
            self.least = self.most = 2 + last - first  # behind its head and its audit rows

    def is_absent(self, memory: Made) -> bool:
        """Return whether a memory was gone for sure when its batch was recorded."""
        return memory.ended is not None and memory.ended <= self._batch[1]

    def take(self, memory: Made, row: AnyRow | None) -> None:
        """Go on to what comes after a memory."""
        if self.is_absent(memory):
            return
        place = None if row is None else row.place
        if type(place) is int and self.least <= place <= self.most:
            self.least = self.most = place + 1
        else:
            self.least, self.most = self.least + (memory.ended is None), self.most + 1


def _fault_of(row: AnyRow, memory: Made, last: int, places: _Places) -> tuple[object, object] | None:
    """Return what is wrong with the row of a memory: what was expected, and what came."""
    if row.id != memory.id:
        return memory.id, row.id
    # What ended the memory is known for sure once it is on record; before, when its witness was erased.
    ends = {memory.ended} if memory.ended is None or memory.ended <= last else {None, memory.ended}
    if row.ended not in ends:
        return "ended by {}".format(" or ".join(map(str, ends))), f"by {row.ended}"
    if row.place is None:
        is_right = memory.ended is not None
    else:
        is_right = row.ended is None and type(row.place) is int and places.least <= row.place <= places.most
        is_right = is_right and not places.is_absent(memory)
    return None if is_right else (f"with its content at {places.least}", f"at {row.place}")


def _pairs(made: Iterable[Made], rows: Iterator[AnyRow]) -> Iterator[tuple[Made | None, AnyRow | None]]:
    """Yield memories and rows by their numbers, in order: both where they meet, or the one that is alone."""
    row = next(rows, None)
    for memory in made:
        while row is not None and row.number < memory.number:
            yield None, row
            row = next(rows, None)
        if row is not None and row.number == memory.number:
            yield memory, row
            row = next(rows, None)
        else:
            yield memory, None
    while row is not None:
        yield None, row
        row = next(rows, None)


def _rows_of_recorded(connection: Connection) -> Iterator[AnyRow]:
    last = -(2**63)
    query = select(recorded).order_by(recorded.c.number).limit(_ROWS_AT_A_TIME)
    while rows := connection.execute(query.where(recorded.c.number > last)).all():
        yield from rows
        last = rows[-1].number
