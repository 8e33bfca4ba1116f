"""Stores whose tables were changed behind their back.

What is forgotten leaves the witnesses all the same, or it is told which row is not as it was written; and whatever a
cell holds, no error is a fault of the program.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from melete.errors import CouldNotTell, MeleteError
from melete.memory.witness_kinds import OPERATION
from melete.memory.witness_store import WitnessStore
from melete.wire.approval import Queue
from melete.wire.errors import BrokenAudit
from melete.wire.recording.errors import NotAtHand
from melete.wire.recording.evidence import Kept, prove
from melete.wire.recording.forgetting import Erased, erase_forgotten

from .recording_samples import (
    KEY,
    Desk,
    never_waiting_for_the_disk,  # noqa: F401 - used by every test
    open_desk,
)
from .samples import EPISODIC, SEMANTIC, fetch, open_store, remember, run


@pytest.fixture
def any_desk(tmp_path: Path, store_url: str) -> Iterator[Desk]:
    """On SQLite, and on PostgreSQL."""
    with open_desk(tmp_path, store_url) as desk:
        yield desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path, str(tmp_path / "memories.db")) as desk:
        yield desk


def contents_of(witnesses: WitnessStore) -> bytes:
    """Everything that the witness store still opens."""
    return b"".join(entry.record.content for entry in witnesses.iterate(OPERATION) if entry.record is not None)


# Erasing


ZEROS = "decode(repeat('00', 32), 'hex')"
OTHER_PLACES = [
    "UPDATE recorded SET ended = 99 WHERE id = '{id}'",
    "UPDATE recorded SET ended = 99, place = NULL WHERE id = '{id}'",
    "UPDATE recorded SET ended = 3, place = NULL WHERE id = '{id}'",
    "UPDATE recorded SET place = NULL WHERE id = '{id}'",
    "UPDATE recorded SET place = 0 WHERE id = '{id}'",
    "UPDATE recorded SET place = 1 WHERE id = '{id}'",
    "UPDATE recorded SET place = -1 WHERE id = '{id}'",
    "UPDATE recorded SET number = 77 WHERE id = '{id}'",
    "UPDATE recorded SET id = 'another' WHERE id = '{id}'",
    "DELETE FROM recorded WHERE id = '{id}'",
    "DELETE FROM recorded",
    "UPDATE recordings SET root = {zeros}",
    "UPDATE recordings SET last = 1",
    "UPDATE recordings SET last = 3",
]
LOST_PLACES = [
    "UPDATE recordings SET last = 1000000",
    "UPDATE recordings SET first = 2",
    "UPDATE recordings SET root = {zeros}, commitment = {zeros}",
    "DELETE FROM recordings",
]


def alter(desk: Desk, statement: str, memory_id: str) -> None:
    zeros = "zeroblob(32)" if desk.store.label.endswith(".db") else ZEROS
    run(desk.store, statement.format(id=memory_id, zeros=zeros))


@pytest.mark.parametrize("statement", OTHER_PLACES)
def test_witness_is_erased_whatever_the_store_says_of_it_and_the_row_is_named(any_desk: Desk, statement: str) -> None:
    gone = remember(any_desk.store, "likes coffee")
    remember(any_desk.store, "likes tea")
    any_desk.record()
    any_desk.store.forget(EPISODIC, [gone])
    alter(any_desk, statement, gone)
    if "ended = 3" in statement:  # just what it will say once it is done
        assert erase_forgotten(any_desk.store, any_desk.witnesses) == Erased(1)
    else:
        with pytest.raises(BrokenAudit, match="the record of its") as caught:
            erase_forgotten(any_desk.store, any_desk.witnesses)
        assert caught.value.number == 1
    found = contents_of(any_desk.witnesses)
    assert b"coffee" not in found
    assert b"likes tea" in found
    assert b"melete.memory-batch/1" in found


@pytest.mark.parametrize("statement", LOST_PLACES)
def test_witness_that_is_not_found_any_more_is_never_a_success(any_desk: Desk, statement: str) -> None:
    gone = remember(any_desk.store, "likes coffee")
    remember(any_desk.store, "likes tea")
    any_desk.record()
    any_desk.store.forget(EPISODIC, [gone])
    alter(any_desk, statement, gone)
    before = contents_of(any_desk.witnesses)
    for ask in (lambda: erase_forgotten(any_desk.store, any_desk.witnesses), lambda: any_desk.recorder.flush()):
        with pytest.raises((BrokenAudit, NotAtHand)):
            ask()
    assert contents_of(any_desk.witnesses) == before


def test_altered_row_keeps_no_other_witness_from_being_erased(desk: Desk) -> None:
    ids = [remember(desk.store, f"likes coffee {number}") for number in range(6)]
    desk.record()
    desk.store.forget(EPISODIC, ids)
    run(desk.store, f"UPDATE recorded SET place = 0 WHERE id = '{ids[2]}'")  # noqa: S608
    with pytest.raises(BrokenAudit) as caught:
        desk.recorder.flush()
    assert caught.value.number == 3
    assert b"coffee" not in contents_of(desk.witnesses)
    assert fetch(desk.store, "SELECT number FROM recorded WHERE ended IS NULL") == [(3,)]


def test_batch_that_covers_a_forgetting_only_by_word_hides_it_not(desk: Desk) -> None:
    """The newest batch's last row is moved beyond the row that forgets."""
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    run(desk.store, "UPDATE recordings SET last = 2")
    with pytest.raises(BrokenAudit, match="number 1: the record of its batch"):
        erase_forgotten(desk.store, desk.witnesses)
    assert b"coffee" not in contents_of(desk.witnesses)


def test_witness_store_of_something_else_has_erased_nothing(desk: Desk, tmp_path: Path) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    with WitnessStore.create(tmp_path / "another.db", KEY) as other, pytest.raises(NotAtHand):
        erase_forgotten(desk.store, other)


def test_witness_that_nobody_can_open_is_erased_too(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    with sqlite3.connect(desk.witnesses.path) as db:
        db.execute(
            "UPDATE witnesses SET sealed = randomblob(90) WHERE kind = ? AND hex(number) LIKE '%2'", ("operation",)
        )
    assert erase_forgotten(desk.store, desk.witnesses) == Erased(1)


def test_witness_that_came_back_from_a_backup_is_erased_again(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.witnesses.backup(desk.folder / "old.db")
    desk.store.forget(EPISODIC, [gone])
    assert erase_forgotten(desk.store, desk.witnesses) == Erased(1)
    with WitnessStore.open(desk.folder / "old.db", KEY) as old:
        assert erase_forgotten(desk.store, old) == Erased(1)
        assert b"coffee" not in contents_of(old)


def test_write_that_was_forgotten_while_it_waited_had_no_witness(tmp_path: Path, store_url: str) -> None:
    with open_desk(tmp_path, store_url, approval=Queue()) as desk:
        (waiting,) = desk.store.remember(SEMANTIC, "likes coffee").ids
        desk.record()
        desk.store.forget(SEMANTIC, [waiting])
        assert erase_forgotten(desk.store, desk.witnesses) == Erased()
        assert desk.recorder.flush().rows == 1


def test_store_that_is_on_record_says_so_even_without_its_batches(desk: Desk) -> None:
    from melete.cli.memory_witnesses import _is_on_record

    assert not _is_on_record(desk.store)
    remember(desk.store, "tea")
    desk.record()
    assert _is_on_record(desk.store)
    run(desk.store, "DELETE FROM recordings")
    assert _is_on_record(desk.store)


# Cells


VALUES = (
    "7",
    "-1",
    "1.5",
    "'text'",
    "x''",
    "x'ff00'",
    "NULL",
    "3000000000",
    "9223372036854775807",
    "zeroblob(31)",
    "cast(x'ff' AS text)",
    "'[[1]]'",
    "'007'",
    "'" + "9" * 5_000 + "'",
    "'" + "[" * 3_000 + "'",
)
CELLS = [
    ("meta", ("number", "hash")),
    ("audit", ("number", "entry", "hash")),
    ("memories", ("number", "id", "salt", "tags", "metadata", "content", "audited", "expires_at", "created_at")),
    ("recorded", ("number", "id", "place", "ended")),
    ("recordings", ("first", "last", "chain", "registry", "space", "root", "commitment")),
]


def set_cell(path: Path, table: str, column: str, which: str, value: str) -> bool:
    """Whether SQLite took a value into a cell."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        where = f"rowid = (SELECT {which}(rowid) FROM {table})"  # noqa: S608
        db.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}")  # noqa: S608
    except sqlite3.Error:
        return False
    finally:
        db.close()
    return True


@pytest.mark.parametrize("which", ["min", "max"])
@pytest.mark.parametrize(("table", "column"), [(table, column) for table, columns in CELLS for column in columns])
def test_cell_that_no_store_has_written_is_told_and_never_a_fault(
    desk: Desk, table: str, column: str, which: str
) -> None:
    first, second = remember(desk.store, "likes coffee", tags=["a"]), remember(desk.store, "likes tea")
    desk.record()
    waiting = remember(desk.store, "likes milk", metadata={"n": 1})
    path = desk.copy("kept.db")
    kept, store = path.read_bytes(), desk.store
    for value in VALUES:
        path.write_bytes(kept)
        for suffix in ("-wal", "-shm", ".recording"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        if not set_cell(path, table, column, which, value):
            continue
        desk.clock.now += 1_000  # a node that answered is asked again
        try:
            desk.store = open_store(str(path), desk.clock)
        except CouldNotTell:
            continue
        try:
            for ask in (
                lambda: prove(desk.store, desk.witnesses, first),
                lambda: prove(desk.store, desk.witnesses, waiting),
                lambda: desk.recorder.count_waiting(),
                lambda: desk.store.forget(EPISODIC, [second]),
                lambda: erase_forgotten(desk.store, desk.witnesses),
            ):
                with suppress(MeleteError):
                    ask()
        finally:
            desk.store.close()
    desk.store = store


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET entry = x'ff' WHERE number = 2",
        "UPDATE audit SET entry = cast(entry AS blob) WHERE number = 2",
        "UPDATE audit SET hash = 'text' WHERE number = 2",
        "UPDATE audit SET hash = 1.5 WHERE number = 2",
        "UPDATE audit SET hash = 3000000000 WHERE number = 2",
        "UPDATE audit SET hash = 7 WHERE number = 1",
        "UPDATE audit SET number = 9223372036854775807 WHERE number = 2",
        "UPDATE audit SET number = -3 WHERE number = 2",
        "UPDATE meta SET hash = 7",
        "UPDATE meta SET number = 'two'",
        "UPDATE memories SET salt = 3000000000 WHERE number = 2",
        "UPDATE memories SET number = 5 WHERE number = 2",
        "UPDATE memories SET number = 'two' WHERE number = 2",
        "UPDATE memories SET content = x'00' WHERE number = 2",
        "UPDATE recordings SET chain = 'one'",
        "UPDATE recordings SET registry = 20",
        "UPDATE recordings SET space = 'here'",
        "UPDATE recordings SET last = 'one'",
    ],
)
def test_record_of_a_store_with_such_a_cell_names_the_row(desk: Desk, statement: str) -> None:
    remember(desk.store, "likes coffee")
    desk.record()
    remember(desk.store, "likes tea")
    run(desk.store, statement)
    with pytest.raises(BrokenAudit):
        desk.recorder.flush()


def test_proof_of_a_memory_that_was_not_erased_says_so(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    assert prove(desk.store, desk.witnesses, gone).kept is Kept.OPENED
    desk.record()
    assert prove(desk.store, desk.witnesses, gone).kept is Kept.ERASED
