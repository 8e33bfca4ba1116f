from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from melete import Head, Transition
from melete.errors import BrokenHistory, InvalidInput, MissingFile, StoreUnreadable
from melete.memory.witness_kinds import DELTA, OPERATION
from melete.wire.engines import is_on_server
from melete.wire.errors import BrokenAudit
from melete.wire.recording.batches import open_delta
from melete.wire.recording.errors import BrokenRecording, UnsafeBackup
from melete.wire.recording.preflight import Preflight, Verdict, check, open_copy, open_to_judge, parse_file
from melete.wire.recording.recorder import Flushed
from melete.wire.recording.restoring import Restored, restore
from postgres import Server

from .recording_samples import (
    SPACE,
    Desk,
    never_waiting_for_the_disk,  # noqa: F401 - used by every test
    open_desk,
)
from .samples import EPISODIC, fetch, open_store, recalled, remember, run


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path, str(tmp_path / "memories.db")) as desk:
        yield desk


def judged(desk: Desk, backup: Path) -> Preflight:
    copy = desk.folder / "judged.db"
    copy.unlink(missing_ok=True)
    copy.touch(0o600)
    with open_copy(backup, copy) as store:
        return check(store, desk.witnesses, SPACE, desk.registry.history)


def restored(desk: Desk, backup: Path, target: Path, *, force: bool = False) -> Restored:
    return restore(backup, target, desk.witnesses, desk.registry.domain, SPACE, desk.registry.history, force=force)


def three_batches(desk: Desk) -> list[Path]:
    """Backups of before each batch and after the last; two memories in each."""
    backups = []
    for number in range(3):
        backups.append(desk.copy(f"before {number}.db"))
        remember(desk.store, f"tea {number}")
        remember(desk.store, f"coffee {number}")
        desk.record()
    return [*backups, desk.copy("last.db")]


# Which state it is


def test_canonical_head_is_told(desk: Desk) -> None:
    *_, backup = three_batches(desk)
    found = judged(desk, backup)
    assert (found.verdict, found.sequence, found.audit) == (Verdict.HEAD, 3, desk.store.audit_head())
    assert found.space == desk.registry.head()


@pytest.mark.parametrize("sequence", range(3))
def test_earlier_state_is_told_with_its_sequence(desk: Desk, sequence: int) -> None:
    backups = three_batches(desk)
    found = judged(desk, backups[sequence])
    assert (found.verdict, found.sequence, found.audit.number) == (Verdict.EARLIER, sequence, 2 * sequence)


def test_earlier_state_within_a_batch_is_known_too(desk: Desk) -> None:
    remember(desk.store, "tea")
    desk.record()
    remember(desk.store, "milk")
    backup = desk.copy("within.db")
    remember(desk.store, "coffee")
    desk.record()
    found = judged(desk, backup)
    assert (found.verdict, found.sequence, found.audit.number) == (Verdict.EARLIER, 2, 2)


def test_state_behind_the_record_is_unknown(desk: Desk) -> None:
    three_batches(desk)
    remember(desk.store, "water")
    found = judged(desk, desk.copy("ahead.db"))
    assert (found.verdict, found.sequence, found.unrecorded) == (Verdict.UNKNOWN, 3, 1)


def test_store_of_a_space_that_records_nothing_is_unknown(desk: Desk) -> None:
    remember(desk.store, "water")
    found = judged(desk, desk.copy("alone.db"))
    assert (found.verdict, found.sequence, found.unrecorded) == (Verdict.UNKNOWN, 0, 1)


@pytest.mark.parametrize("shared", range(4))
@pytest.mark.parametrize("more", [1, 9])
def test_diverged_state_is_told_with_the_row_from_which_it_differs(desk: Desk, shared: int, more: int) -> None:
    """A copy of the store was written on, apart from the recorded one."""
    for number in range(shared):
        remember(desk.store, f"tea {number}")
    copy = desk.copy("apart.db")
    for number in range(6):
        remember(desk.store, f"coffee {number}")
    desk.record()
    with open_store(str(copy), desk.clock) as apart:
        for number in range(more):
            remember(apart, f"milk {number}")
    found = judged(desk, copy)
    assert (found.verdict, found.diverged_at) == (Verdict.DIVERGED, shared + 1)


def test_another_store_altogether_has_diverged_from_the_first_row(desk: Desk, tmp_path: Path) -> None:
    three_batches(desk)
    with open_store(str(tmp_path / "other.db"), desk.clock) as other:
        remember(other, "tea")
    found = judged(desk, tmp_path / "other.db")
    assert (found.verdict, found.diverged_at) == (Verdict.DIVERGED, 1)


def test_later_batches_that_cannot_be_opened_leave_it_open_which_state_it_is(desk: Desk) -> None:
    backups = three_batches(desk)
    desk.witnesses.discard([DELTA.place(SPACE, 3)])
    found = judged(desk, backups[2])
    assert (found.verdict, found.sequence, found.unread) == (Verdict.UNTOLD, 2, (3,))
    assert judged(desk, backups[1]).verdict is Verdict.EARLIER
    assert judged(desk, backups[3]).verdict is Verdict.UNTOLD


def test_batches_that_cannot_be_opened_in_between_hide_what_lies_between(desk: Desk) -> None:
    backups = three_batches(desk)
    within = desk.copy("x.db")
    assert judged(desk, within).verdict is Verdict.HEAD
    desk.witnesses.erase(DELTA.place(SPACE, 2))
    assert judged(desk, backups[3]).verdict is Verdict.HEAD
    assert judged(desk, backups[2]).verdict is Verdict.EARLIER
    assert judged(desk, backups[1]).verdict is Verdict.UNTOLD


def test_witnesses_that_open_nothing_leave_everything_open(desk: Desk) -> None:
    *_, backup = three_batches(desk)
    desk.witnesses.discard([row.place for row in list(desk.witnesses.list_rows(DELTA))])
    assert judged(desk, backup).verdict is Verdict.UNTOLD


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memories SET content = 'milk' WHERE document = (SELECT max(document) FROM memories)",
        "DELETE FROM memories WHERE document = (SELECT min(document) FROM memories)",
        "DELETE FROM audit WHERE number = 3",
        "UPDATE meta SET hash = zeroblob(32)",
    ],
)
def test_backup_that_contradicts_itself_has_diverged_and_is_restored_by_force_only(
    desk: Desk, tmp_path: Path, statement: str
) -> None:
    *_, backup = three_batches(desk)
    with open_store(str(backup), desk.clock) as store:
        run(store, statement)
        with pytest.raises(BrokenAudit) as caught:
            store.verify_audit()
    found = judged(desk, backup)
    broken = (Verdict.DIVERGED, caught.value.number, caught.value.rule)
    assert (found.verdict, found.diverged_at, found.broken) == broken
    target = tmp_path / "restored.db"
    words = (backup, target, desk.witnesses, desk.registry.domain, SPACE, desk.registry.history)
    with pytest.raises(UnsafeBackup, match=f"from audit row {caught.value.number} on"):
        restore(*words)
    assert not target.exists()
    receipt = json.loads(restore(*words, force=True).receipt.read_bytes())
    assert (receipt["forced"], receipt["divergedAt"], receipt["broken"]) == (True, *broken[1:])
    assert "cannot be recorded" in receipt["note"]
    assert target.exists()


def test_history_that_does_not_follow_judges_nothing(desk: Desk) -> None:
    *_, backup = three_batches(desk)
    del desk.registry.history[1]
    with pytest.raises(BrokenHistory):
        judged(desk, backup)


def test_record_that_contradicts_itself_judges_nothing(desk: Desk) -> None:
    """The second batch was replaced by one of another store, with witnesses and all."""
    *_, backup = three_batches(desk)
    first = desk.registry.history[0]
    head = Head(first.transition_id, first.next_state_root, 1)
    third = desk.witnesses.get(DELTA.place(SPACE, 3))
    desk.witnesses.discard([DELTA.place(SPACE, 2), DELTA.place(SPACE, 3)])
    forged = Transition.of(third.build_delta(SPACE, head))
    desk.witnesses.put_delta(forged.delta, third)
    desk.registry.history = [first, forged]
    with pytest.raises(BrokenRecording) as caught:
        judged(desk, backup)
    assert caught.value.sequence == 2


# The backup stays as it is


def test_backup_is_not_changed_by_being_judged(desk: Desk) -> None:
    *_, backup = three_batches(desk)
    backup.chmod(0o640)
    before, status = backup.read_bytes(), backup.stat()
    names = {path.name for path in desk.folder.iterdir()}
    judged(desk, backup)
    after = backup.stat()
    assert backup.read_bytes() == before
    assert (after.st_mtime_ns, after.st_mode) == (status.st_mtime_ns, status.st_mode)
    assert {path.name for path in desk.folder.iterdir()} - names == {"judged.db"}


def test_store_that_is_in_use_is_judged_as_it_is_now(desk: Desk) -> None:
    """Its newest rows are in the log beside the file."""
    three_batches(desk)
    assert judged(desk, Path(desk.store.label)).verdict is Verdict.HEAD


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(84)])
def test_file_that_is_no_store_is_refused(desk: Desk, content: bytes) -> None:
    path = desk.folder / "file"
    path.write_bytes(content)
    with pytest.raises(StoreUnreadable):
        judged(desk, path)
    assert path.read_bytes() == content


def test_backup_that_is_not_there_is_named(desk: Desk) -> None:
    with pytest.raises(MissingFile):
        judged(desk, desk.folder / "nowhere.db")


# Stores on either database, judged as the command does


@pytest.fixture
def any_desk(tmp_path: Path, store_url: str) -> Iterator[Desk]:
    with open_desk(tmp_path, store_url) as desk:
        yield desk


def judged_in_place(desk: Desk, url: str) -> Preflight:
    place = url if is_on_server(url) else parse_file(url, "BACKUP")
    copy = desk.folder / "judged.db"
    copy.unlink(missing_ok=True)
    with open_to_judge(place, copy) as store:
        return check(store, desk.witnesses, SPACE, desk.registry.history)


def test_store_is_judged_where_it_is(any_desk: Desk, store_url: str) -> None:
    remember(any_desk.store, "tea")
    any_desk.record()
    assert judged_in_place(any_desk, store_url).verdict is Verdict.HEAD
    remember(any_desk.store, "coffee")
    found = judged_in_place(any_desk, store_url)
    assert (found.verdict, found.unrecorded) == (Verdict.UNKNOWN, 1)
    run(any_desk.store, "UPDATE memories SET content = 'milk' WHERE number = 1")
    before = fetch(any_desk.store, "SELECT * FROM memories")
    found = judged_in_place(any_desk, store_url)
    assert (found.verdict, found.diverged_at) == (Verdict.DIVERGED, 1)
    assert fetch(any_desk.store, "SELECT * FROM memories") == before


def test_store_on_a_server_is_judged_as_it_was_at_one_moment(tmp_path: Path, postgres: Server) -> None:
    url = postgres.new_store()
    with open_desk(tmp_path, url) as desk:
        remember(desk.store, "tea")
        desk.record()

        def transitions() -> Iterator[Transition]:
            remember(desk.store, "coffee")  # somebody writes while it is judged
            yield from desk.registry.history

        with open_to_judge(url, tmp_path / "unused.db") as store:
            assert store.audit_head().number == 1
            found = check(store, desk.witnesses, SPACE, transitions())
        assert (found.verdict, found.audit.number) == (Verdict.HEAD, 1)
        assert not (tmp_path / "unused.db").exists()


def test_server_without_a_store_is_not_given_one(tmp_path: Path, postgres: Server) -> None:
    url = postgres.new_store()
    for _ in range(2):
        with pytest.raises(MissingFile), open_to_judge(url, tmp_path / "unused.db"):
            pass


@pytest.mark.parametrize("url", ["postgresql://ada:secret@host/db", "sqlite://secret", "secret://x"])
def test_database_on_a_server_is_not_restored_from_or_to(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_file(url, "BACKUP")
    assert caught.value.field == "BACKUP"
    assert "ada" not in str(caught.value)


def test_file_is_named_by_its_path_or_as_a_url() -> None:
    assert parse_file("a/b.db", "BACKUP") == Path("a/b.db")
    assert parse_file("sqlite:////a/b.db", "BACKUP") == Path("/a/b.db")
    assert parse_file("sqlite:///b.db", "BACKUP") == Path("b.db")


# Restoring


def test_head_is_restored_whole_with_a_receipt(desk: Desk) -> None:
    *_, backup = three_batches(desk)
    target = desk.folder / "restored" / "memories.db"
    found = restored(desk, backup, target)
    assert (found.preflight.verdict, found.forgotten) == (Verdict.HEAD, ())
    with open_store(str(target), desk.clock) as store:
        assert store.verify_audit() == desk.store.audit_head()
        assert fetch(store, "SELECT * FROM memories") == fetch(desk.store, "SELECT * FROM memories")
    receipt = json.loads(found.receipt.read_text())
    assert receipt["format"] == "melete.restore-receipt/1"
    assert receipt["backupSha256"] == "0x" + hashlib.sha256(backup.read_bytes()).hexdigest()
    assert (receipt["verdict"], receipt["sequence"], receipt["forced"]) == ("the canonical head", "3", False)
    assert (receipt["spaceId"], receipt["chainId"]) == (str(SPACE), 31337)
    assert receipt["auditHash"] == str(desk.store.audit_head().hash)
    for path in (target, found.receipt):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(path.name for path in target.parent.iterdir()) == sorted([target.name, found.receipt.name])


def test_restored_head_goes_on_being_recorded(desk: Desk) -> None:
    *_, backup = three_batches(desk)
    restored(desk, backup, desk.folder / "new.db")
    with open_store(str(desk.folder / "new.db"), desk.clock) as store:
        desk.store = store
        remember(store, "milk")
        assert desk.recorder.flush() == Flushed(batches=1, rows=1)


def test_what_was_forgotten_since_is_taken_out_before_anybody_sees_it(desk: Desk) -> None:
    gone, kept = remember(desk.store, "likes coffee"), remember(desk.store, "likes tea")
    desk.record()
    backup = desk.copy("backup.db")
    desk.store.forget(EPISODIC, [gone])
    desk.record()
    found = restored(desk, backup, desk.folder / "new.db")
    assert (found.preflight.verdict, found.preflight.sequence, found.forgotten) == (Verdict.EARLIER, 1, (gone,))
    assert json.loads(found.receipt.read_text())["forgottenSince"] == [gone]
    assert b"coffee" not in (desk.folder / "new.db").read_bytes()
    with open_store(str(desk.folder / "new.db"), desk.clock) as store:
        store.verify_audit(found.preflight.audit)
        assert [row[0] for row in fetch(store, "SELECT id FROM memories")] == [kept]
        assert recalled(store, "coffee") == []


def test_what_went_into_a_merge_that_was_forgotten_is_taken_out_too(desk: Desk) -> None:
    ids = [remember(desk.store, f"coffee {number}") for number in range(2)]
    (merged,) = desk.store.merge(EPISODIC, ids).ids
    desk.record()
    backup = desk.copy("backup.db")
    desk.store.forget(EPISODIC, [merged])
    desk.record()
    assert set(restored(desk, backup, desk.folder / "new.db").forgotten) == {merged, *ids}


def unsafe(desk: Desk, verdict: str) -> Path:
    three_batches(desk)
    if verdict == "unknown":
        remember(desk.store, "water")
        return desk.copy("unsafe.db")
    if verdict == "untold":
        path = desk.copy("unsafe.db")
        desk.witnesses.discard([DELTA.place(SPACE, 3)])
        return path
    with open_store(str(desk.folder / "unsafe.db"), desk.clock) as other:
        remember(other, "water")
    return desk.folder / "unsafe.db"


@pytest.mark.parametrize("verdict", ["unknown", "untold", "diverged"])
def test_any_other_state_is_refused_and_nothing_is_written(desk: Desk, verdict: str) -> None:
    backup = unsafe(desk, verdict)
    before = {path.name for path in desk.folder.iterdir()}
    with pytest.raises(UnsafeBackup) as caught:
        restored(desk, backup, desk.folder / "new.db")
    assert caught.value.path == str(backup)
    assert {path.name for path in desk.folder.iterdir()} == before


@pytest.mark.parametrize("verdict", ["unknown", "untold", "diverged"])
def test_forced_restore_says_so_in_its_receipt(desk: Desk, verdict: str) -> None:
    found = restored(desk, unsafe(desk, verdict), desk.folder / "new.db", force=True)
    receipt = json.loads(found.receipt.read_text())
    assert receipt["forced"] is True
    assert receipt["verdict"] == found.preflight.verdict.value
    with open_store(str(desk.folder / "new.db"), desk.clock) as store:
        store.verify_audit()


def test_nothing_is_written_over(desk: Desk) -> None:
    *_, backup = three_batches(desk)
    target = desk.folder / "new.db"
    target.write_bytes(b"mine")
    with pytest.raises(InvalidInput):
        restored(desk, backup, target)
    assert target.read_bytes() == b"mine"
    assert list(desk.folder.glob("*.json")) == []


def test_restore_that_is_killed_leaves_no_store(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, backup = three_batches(desk)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {path.name for path in desk.folder.iterdir()}
    monkeypatch.setattr("melete.wire.recording.restoring._write_receipt", killed)
    with pytest.raises(KeyboardInterrupt):
        restored(desk, backup, desk.folder / "new.db")
    assert {path.name for path in desk.folder.iterdir()} == before


def test_backup_of_an_older_version_is_judged_and_restored(desk: Desk) -> None:
    """The first version knew nothing of records."""
    *_, backup = three_batches(desk)
    older = desk.folder / "older.db"
    shutil.copy(backup, older)
    with closing(sqlite3.connect(older)) as db:
        db.execute("DROP TABLE recordings")
        db.execute("DROP TABLE recorded")
        db.execute("PRAGMA user_version = 1")
        db.execute("UPDATE meta SET version = 1")
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert judged(desk, older).verdict is Verdict.HEAD
    restored(desk, older, desk.folder / "new.db")
    with open_store(str(desk.folder / "new.db"), desk.clock) as store:
        desk.store = store
        assert desk.recorder.flush() == Flushed(taken_over=6)


def test_witness_of_a_content_is_not_needed_to_judge(desk: Desk) -> None:
    *_, backup = three_batches(desk)
    opened = open_delta(desk.witnesses, desk.registry.history[0].delta)
    assert opened is not None
    desk.witnesses.erase(OPERATION.place(opened.batch.root, 3))
    assert judged(desk, backup).verdict is Verdict.HEAD
