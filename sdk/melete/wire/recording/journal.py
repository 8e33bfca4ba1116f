"""What a memory store knows of its being on record: which audit rows wait, which batch recorded the others, and where.

A batch's row is written last: after the delta is in the outbox, its witnesses are kept, and those of what it tells to
be forgotten are erased. So whatever a row of `recordings` covers is done with; what is behind the newest one is not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, func, insert, or_, select, update

from melete.errors import InvalidInput
from melete.primitives import Address, Bytes32
from melete.wire.approval import EXPIRED, FORGOTTEN
from melete.wire.audit import EMPTY, AuditHead, Entry
from melete.wire.cells import (
    altered,
    number_of,
    read_address,
    read_bytes32,
    read_int_or_none,
    read_metadata,
    read_number,
    read_tags,
    read_text,
    read_text_or_none,
)
from melete.wire.errors import BrokenAudit
from melete.wire.prepared import Prepared
from melete.wire.recording.operations import ENDING, WRITING, BatchHead, Content, Write
from melete.wire.store import MemoryStore
from melete.wire.tables import AnyRow, audit, memories, meta, pending, recorded, recordings
from melete.wire.words import SIZE_BITS
from melete.wire.writing import ROWS_AT_A_TIME, Core

#: A batch is cut where the contents of its memories come to so many characters, but not before the first.
MOST_CHARACTERS: Final = 2**24
#: What of an audit row is broken, in the words of `BrokenAudit`, where the tables of this module are.
BATCH_ROW: Final = "the record of its batch"
MEMORY_ROW: Final = "the record of its memory"
_NUMBER: Final = "the audit row's number"
_ENTRY: Final = "the entry of the audit row"
_ROW_HASH: Final = "the hash of the audit row"
_NEWEST_ROW: Final = "the newest audit row"
#: A chain's id, as it is written: 256 bits at most.
_CHAIN: Final = re.compile("0|[1-9][0-9]{0,77}", re.ASCII)


class Recording(NamedTuple):
    """A batch that was recorded: its audit rows, where it went, and by what it is found there."""

    first: int
    last: int
    chain_id: int
    registry: Address
    space_id: Bytes32
    root: Bytes32
    commitment: Bytes32


class Recorded(NamedTuple):
    """A memory on record: by audit row `number`; `place` is that of its content in the batch, until it is erased.

    `ended` is the audit row that ended it, once the recorder knows.
    """

    number: int
    id: str
    place: int | None
    ended: int | None


def core_of(store: MemoryStore) -> Core:
    """Return what is behind a store."""
    return store._core


# Batches


_NEWEST: Final = Prepared(select(recordings).order_by(recordings.c.first.desc()).limit(1))


def load_newest(connection: Connection) -> Recording | None:
    """Return the batch recorded last. Errors: `BrokenAudit` for a row that was altered, here and below."""
    return _recording(_NEWEST.run(connection, {}).fetchone())


def load_standing(connection: Connection) -> tuple[Recording | None, AuditHead]:
    """Return the batch recorded last, and the head of the audit chain, which is not before its end."""
    newest, head = load_newest(connection), load_newest_head(connection)
    if newest is not None and newest.last > head.number:
        raise BrokenAudit(newest.first, BATCH_ROW, f"audit rows up to {head.number}", newest.last)
    return newest, head


def is_on_record(connection: Connection) -> bool:
    """Return whether anything of a store was recorded."""
    return any(connection.execute(select(table.c[0]).limit(1)).first() is not None for table in (recordings, recorded))


def find_recording(connection: Connection, number: int) -> Recording | None:
    """Return the batch that recorded an audit row; None for one that waits."""
    query = select(recordings).where(recordings.c.first <= number).order_by(recordings.c.first.desc()).limit(1)
    found = _recording(connection.execute(query).first())
    return found if found is not None and number <= found.last else None


def _recording(row: AnyRow | None) -> Recording | None:
    if row is None:
        return None
    first, last, chain, registry, space, root, commitment = row
    first = read_number(first, 0, BATCH_ROW)
    if not 1 <= first <= read_number(last, first, BATCH_ROW) or not _CHAIN.fullmatch(
        read_text(chain, first, BATCH_ROW)
    ):
        raise altered(first, BATCH_ROW)
    words = (read_bytes32(word, first, BATCH_ROW) for word in (space, root, commitment))
    return Recording(first, last, int(chain), read_address(registry, first, BATCH_ROW), *words)


_ADD_RECORDING: Final = Prepared(insert(recordings))
_ADD_RECORDED: Final = Prepared(insert(recorded))


def add_recording(connection: Connection, recording: Recording, head: BatchHead, entries: Sequence[Entry]) -> None:
    """Note that a batch is recorded, the memories that its rows made, and those that they ended."""
    row = recording._asdict()
    row["chain"], row["space"] = str(row.pop("chain_id")), row.pop("space_id")
    _ADD_RECORDING.run(connection, row)
    for entry in entries:
        if entry.action in WRITING:
            place = head.content_index(entry.number)
            made = {"number": entry.number, "id": entry.memories[0], "place": place, "ended": None}
            _ADD_RECORDED.run(connection, made)
    for entry in entries:
        if entry.action in ENDING:
            note_ended(connection, entry.memories, entry.number)


# Memories


def load_recorded(connection: Connection, ids: Sequence[str]) -> list[Recorded]:
    """Return what is known of memories on record, in no order; those that are not are left out."""
    found: list[Recorded] = []
    for start in range(0, len(ids), ROWS_AT_A_TIME):
        query = select(recorded).where(recorded.c.id.in_(ids[start : start + ROWS_AT_A_TIME]))
        found += [_recorded(row) for row in connection.execute(query)]
    return found


def _recorded(row: AnyRow) -> Recorded:
    number = read_number(row.number, 0, MEMORY_ROW)
    place, ended = (read_int_or_none(cell, number, MEMORY_ROW) for cell in (row.place, row.ended))
    return Recorded(number, read_text(row.id, number, MEMORY_ROW), place, ended)


def note_ended(connection: Connection, ids: Sequence[str], number: int) -> None:
    """Note that memories ended with an audit row, and that their contents' witnesses are erased."""
    for start in range(0, len(ids), ROWS_AT_A_TIME):
        some = recorded.c.id.in_(ids[start : start + ROWS_AT_A_TIME])
        connection.execute(update(recorded).where(some).values(place=None, ended=number))


# Audit rows


_HEAD: Final = Prepared(select(meta.c.number, meta.c.hash))
_HASH: Final = Prepared(select(audit.c.hash).where(audit.c.number == bindparam("of")))


def load_newest_head(connection: Connection) -> AuditHead:
    """Return the head of the audit chain."""
    number, digest = _HEAD.run(connection, {}).fetchone() or (None, None)
    number = read_number(number, 0, _NEWEST_ROW)
    return AuditHead(number, read_bytes32(digest, number, _NEWEST_ROW)) if number else EMPTY


def load_audit_head(connection: Connection, number: int) -> AuditHead | None:
    """Return the head of the audit chain as it was after row `number`; None where there is no such row."""
    if number == 0:
        return EMPTY
    row = _HASH.run(connection, {"of": number}).fetchone()
    return None if row is None else AuditHead(number, read_bytes32(row[0], number, _ROW_HASH))


def load_audit_row(connection: Connection, number: int) -> tuple[bytes, bytes] | None:
    """Return the bytes of an entry and the hash that stands beside them. Errors: `BrokenAudit`."""
    row = connection.execute(select(audit.c.entry, audit.c.hash).where(audit.c.number == number)).first()
    if row is None:
        return None
    return _bytes_of(number, row.entry), read_bytes32(row.hash, number, _ROW_HASH)


#: An entry holds neither of these in a text of its own, where quotes are escaped.
_ENDINGS: Final = Prepared(
    select(audit.c.number, audit.c.entry)
    .where(audit.c.number > bindparam("after"))
    .where(or_(*(audit.c.entry.like(f'%"action":"{action.value}"%') for action in sorted(ENDING))))
    .order_by(audit.c.number)
)


def load_endings(connection: Connection, after: int) -> list[Entry]:
    """Return the entries after an audit row that ended memories. Errors: `BrokenAudit`."""
    rows = _ENDINGS.run(connection, {"after": after}).fetchall()
    return [_entry(number, text) for number, text in rows]


def load_entries(connection: Connection, first: int, last: int) -> list[Entry]:
    """Return the entries of some audit rows. Errors: `BrokenAudit`."""
    query = select(audit.c.number, audit.c.entry).where(audit.c.number.between(first, last)).order_by(audit.c.number)
    return [_entry(number, text) for number, text in connection.execute(query)]


def load_entries_at(connection: Connection, numbers: Sequence[int]) -> dict[int, Entry]:
    """Return the entries of some audit rows by number, without those that are not there. Errors: `BrokenAudit`."""
    found = {}
    for start in range(0, len(numbers), ROWS_AT_A_TIME):
        some = audit.c.number.in_(numbers[start : start + ROWS_AT_A_TIME])
        rows = connection.execute(select(audit.c.number, audit.c.entry).where(some))
        found.update({number: _entry(number, text) for number, text in rows})
    return found


_SOME: Final = Prepared(
    select(audit.c.number, audit.c.entry)
    .where(audit.c.number > bindparam("after"))
    .where(audit.c.number <= bindparam("through"))
    .order_by(audit.c.number)
    .limit(10_000)
)
#: Where an entry of one memory names it; in a text of its own, quotes are escaped.
_NAMED: Final = re.compile(r'"memories":\["([^"\\]*)"\]')


def find_makings(connection: Connection, ids: Collection[str], after: int, through: int) -> dict[str, int]:
    """Return which of the audit rows after one, up to another, made some memories. Errors: `BrokenAudit`.

    Reads all these rows, some at a time.
    """
    found: dict[str, int] = {}
    while len(found) < len(ids) and after < through:
        rows = _SOME.run(connection, {"after": after, "through": through}).fetchall()
        if not rows:
            break
        after = read_number(rows[-1][0], 0, _NUMBER)
        for number, text in rows:
            named = _NAMED.search(read_text(text, number, _ENTRY))
            if named is not None and named[1] in ids and _entry(number, text).action in WRITING:
                found[named[1]] = number
    return found


def find_ended_waiting(connection: Connection, ids: Collection[str], ended: Mapping[str, int]) -> set[str]:
    """Return which of some ids are of writes that ended in the queue, with the audit rows given for them."""
    found: set[str] = set()
    sorted_ids = sorted(ids)
    for start in range(0, len(sorted_ids), ROWS_AT_A_TIME):
        some = pending.c.id.in_(sorted_ids[start : start + ROWS_AT_A_TIME])
        rows = connection.execute(select(pending.c.id, pending.c.decision, pending.c.decided).where(some))
        found |= {each for each, decision, at in rows if decision in (FORGOTTEN, EXPIRED) and at == ended[each]}
    return found


def iterate_recordings(connection: Connection, numbers: Sequence[int]) -> Iterator[Recording | None]:
    """Yield the batch that recorded each of some audit rows, whose numbers rise; None for one that waits."""
    found: Recording | None = None
    for number in numbers:
        if found is None or number > found.last:
            found = find_recording(connection, number)
        yield found


_ROWS: Final = Prepared(
    select(audit.c.number, audit.c.entry, audit.c.hash)
    .where(audit.c.number > bindparam("after"))
    .order_by(audit.c.number)
    .limit(bindparam("most"))
)
#: A document's number begins with that of the audit row that made it.
_made = memories.c.document.between(bindparam("from_document"), bindparam("to_document"))
_CONTENTS: Final = Prepared(
    select(
        memories.c.document,
        memories.c.number,
        memories.c.id,
        memories.c.content,
        memories.c.tags,
        memories.c.metadata,
        memories.c.salt,
    ).where(_made)
)
_SIZE: Final = Prepared(select(func.coalesce(func.sum(func.length(memories.c.content)), 0)).where(_made))
_SIZES: Final = Prepared(select(memories.c.number, func.length(memories.c.content)).where(_made))


def load_waiting(connection: Connection, before: AuditHead, most: int) -> tuple[list[Write], bool]:
    """Return the audit rows after `before`, at most so many, each with what it wrote if that is still there.

    And whether there are more. Errors: `BrokenAudit` for a row that cannot be read.
    """
    rows = _ROWS.run(connection, {"after": before.number, "most": most + 1}).fetchall()
    more, rows = len(rows) > most, rows[:most]
    if not rows:
        if load_newest_head(connection).number > before.number:
            raise BrokenAudit(before.number + 1, _NUMBER, before.number + 1, "missing")
        return [], False
    for due, (number, *_) in enumerate(rows, before.number + 1):
        if number != due:
            raise BrokenAudit(due, _NUMBER, due, number)
    first, last = rows[0][0], _find_cut(connection, [row[0] for row in rows])
    contents = {}
    for document, number, *cells in _CONTENTS.run(connection, _documents(first, last)):
        if number != number_of(document):
            raise altered(number_of(document))
        contents[number] = make_content(number, *cells)
    writes: list[Write] = []
    for number, text, digest in rows:
        if number > last:
            return writes, True
        try:
            data, stored = _bytes_of(number, text), read_bytes32(digest, number, _ROW_HASH)
            writes.append(Write(data, stored, contents.get(number)))
        except InvalidInput:
            raise altered(number, _ENTRY) from None
    return writes, more


def _find_cut(connection: Connection, numbers: Sequence[int]) -> int:
    """Return the last of some audit rows whose contents fit a batch together."""
    place = _documents(numbers[0], numbers[-1])
    if _SIZE.run(connection, place).fetchone()[0] <= MOST_CHARACTERS:
        return numbers[-1]
    sizes = dict(_SIZES.run(connection, place).fetchall())
    last, total = numbers[0], sizes.get(numbers[0], 0)
    for number in numbers[1:]:
        total += sizes.get(number, 0)
        if total > MOST_CHARACTERS:
            break
        last = number
    return last


def _documents(first: int, last: int) -> dict[str, int]:
    return {"from_document": first << SIZE_BITS, "to_document": (last + 1 << SIZE_BITS) - 1}


def make_content(
    number: int, memory_id: object, content: object, tags: object, metadata: object, salt: object
) -> Content:
    """Return what columns of `memories` hold. Errors: `BrokenAudit` for what no store has written."""
    read_metadata(metadata, number)
    return Content(
        number,
        read_text(memory_id, number),
        read_text(content, number),
        read_tags(tags, number),
        read_text_or_none(metadata, number),
        read_bytes32(salt, number),
    )


def _bytes_of(number: int, entry: object) -> bytes:
    return read_text(entry, number, _ENTRY).encode()


def _entry(number: int, text: object) -> Entry:
    try:
        entry = Entry.from_bytes(_bytes_of(number, text))
    except InvalidInput:
        raise altered(number, _ENTRY) from None
    if entry.number != number:
        raise BrokenAudit(number, _NUMBER, number, entry.number)
    return entry
