"""What a memory store knows of its being on record: which audit rows wait, which batch recorded the others, and where.

A batch's row is written last: after the delta is in the outbox, its witnesses are kept, and those of what it tells to
be forgotten are erased. So whatever a row of `recordings` covers is done with; what is behind the newest one is not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, func, insert, or_, select, update

from melete.primitives import Address, Bytes32
from melete.wire.audit import EMPTY, AuditHead, Entry
from melete.wire.errors import BrokenAudit
from melete.wire.prepared import Prepared
from melete.wire.recording.operations import ENDING, WRITING, BatchHead, Content, Write
from melete.wire.store import MemoryStore
from melete.wire.tables import AnyRow, audit, memories, meta, recorded, recordings
from melete.wire.words import SIZE_BITS
from melete.wire.writing import ROWS_AT_A_TIME, Core

#: A batch is cut where the contents of its memories come to so many characters, but not before the first.
MOST_CHARACTERS: Final = 2**24


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
    """Return the batch recorded last."""
    return _recording(_NEWEST.run(connection, {}).fetchone())


def find_recording(connection: Connection, number: int) -> Recording | None:
    """Return the batch that recorded an audit row; None for one that waits."""
    query = select(recordings).where(recordings.c.first <= number).order_by(recordings.c.first.desc()).limit(1)
    found = _recording(connection.execute(query).first())
    return found if found is not None and number <= found.last else None


def _recording(row: AnyRow | None) -> Recording | None:
    if row is None:
        return None
    first, last, chain, registry, space, root, commitment = row
    words = (Bytes32(bytes(word)) for word in (space, root, commitment))
    return Recording(first, last, int(chain), Address(bytes(registry)), *words)


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
        found += [Recorded(row.number, row.id, row.place, row.ended) for row in connection.execute(query)]
    return found


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
    number, digest = _HEAD.run(connection, {}).fetchone()
    return AuditHead(number, Bytes32(bytes(digest))) if number else EMPTY


def load_audit_head(connection: Connection, number: int) -> AuditHead | None:
    """Return the head of the audit chain as it was after row `number`; None where there is no such row."""
    if number == 0:
        return EMPTY
    row = _HASH.run(connection, {"of": number}).fetchone()
    return None if row is None else AuditHead(number, Bytes32(bytes(row[0])))


def load_audit_row(connection: Connection, number: int) -> tuple[bytes, bytes] | None:
    """Return the bytes of an entry and the hash that stands beside them. Errors: `BrokenAudit` for other types."""
    row = connection.execute(select(audit.c.entry, audit.c.hash).where(audit.c.number == number)).first()
    if row is None:
        return None
    if not isinstance(row.hash, bytes):
        raise BrokenAudit(number, "the hash of the audit row", "32 bytes", "of another type")
    return _bytes_of(number, row.entry), row.hash


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
    return [_entry(number, _bytes_of(number, text)) for number, text in rows]


def load_entries(connection: Connection, first: int, last: int) -> list[Entry]:
    """Return the entries of some audit rows. Errors: `BrokenAudit`."""
    query = select(audit.c.number, audit.c.entry).where(audit.c.number.between(first, last)).order_by(audit.c.number)
    return [_entry(number, _bytes_of(number, text)) for number, text in connection.execute(query)]


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
        memories.c.number, memories.c.id, memories.c.content, memories.c.tags, memories.c.metadata, memories.c.salt
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
        return [], False
    first, last = rows[0][0], _find_cut(connection, [row[0] for row in rows])
    contents = {}
    for number, memory_id, content, tags, metadata, salt in _CONTENTS.run(connection, _documents(first, last)):
        contents[number] = make_content(number, memory_id, content, tags, metadata, salt)
    writes: list[Write] = []
    for number, text, digest in rows:
        if number > last:
            return writes, True
        try:
            writes.append(Write(text.encode(), Bytes32(bytes(digest)), contents.get(number)))
        except ValueError:
            raise BrokenAudit(number, *_NO_ENTRY) from None
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


def make_content(number: int, memory_id: str, content: str, tags: str, metadata: str | None, salt: bytes) -> Content:
    """Return what columns of `memories` hold. Errors: `BrokenAudit` for what no store has written."""
    try:
        return Content(number, memory_id, content, tuple(json.loads(tags)), metadata, Bytes32(bytes(salt)))
    except (ValueError, TypeError, RecursionError):
        raise BrokenAudit(number, "a memory's row", "as it was written", "of another form") from None


_NO_ENTRY: Final = ("the entry of the audit row", "as it was written", "of another form")


def _bytes_of(number: int, entry: object) -> bytes:
    if not isinstance(entry, str):
        raise BrokenAudit(number, *_NO_ENTRY)
    return entry.encode()


def _entry(number: int, data: bytes) -> Entry:
    try:
        return Entry.from_bytes(data)
    except ValueError:
        raise BrokenAudit(number, *_NO_ENTRY) from None
