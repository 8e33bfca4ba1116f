from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from melete.errors import MeleteError, StoreBusy, StoreNotWritten, StoreUnreadable, UnsafeFile
from melete.meditation.layers import Layer
from melete.meditation.runner import journal as journal_module
from melete.meditation.runner.journal import Journal, Stage, Start
from melete.primitives import Address, Bytes32

START = Start(
    chain_id=31337,
    registry=Address(b"\x11" * 20),
    subject=Address(b"\x22" * 20),
    base_version=2**64 - 1,
    pre_root=Bytes32(b"\x33" * 32),
    record_count=2**60,
    policy_version=3,
    trigger="EVENT",
    reason="Something happened.",
    summary="",
    next_planned_at=0,
    record_uri="",
    started_at=1_800_000_000,
    scope=0b0101,
    cycle_id=Bytes32(b"\x44" * 32),
)
CHECK: dict[str, Any] = {"name": "one", "result": "passed"}
CHANGE: dict[str, Any] = {"operation": "clean", "what": "something"}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "deep" / "cycle.jsonl")


def reread(journal: Journal) -> Journal:
    other = Journal(journal.path)
    other.read()
    return other


def begin(journal: Journal) -> None:
    """A cycle in the middle of its first layer."""
    journal.start(START)
    journal.begin_layer(Layer.RUNTIME, 1_800_000_001)
    journal.found(Layer.RUNTIME, "checks", CHECK, 1_800_000_002)


# Writing and reading


def test_what_is_written_is_read_by_the_next_process(journal: Journal) -> None:
    with journal.working():
        begin(journal)
        number = journal.begin_change(Layer.RUNTIME, CHANGE, 1_800_000_003)
        journal.begin_change(Layer.RUNTIME, {**CHANGE, "what": "cut off"}, 1_800_000_004)
        journal.end_change(Layer.RUNTIME, number, CHANGE, 1_800_000_005)
        here = journal.cycle
    found = reread(journal).cycle
    assert found == here
    assert found is not None
    assert (found.start, found.stage, found.last_at) == (START, Stage.STARTED, 1_800_000_005)
    assert found.findings[Layer.RUNTIME].checks == [CHECK]
    assert found.findings[Layer.RUNTIME].changes == [CHANGE]
    assert [change["what"] for change in found.open_changes[Layer.RUNTIME].values()] == ["cut off"]
    assert (found.begun, found.done, found.scope) == ({Layer.RUNTIME}, set(), (Layer.RUNTIME, Layer.TASKS_ROLES))


def test_stages_follow_what_was_written(journal: Journal) -> None:
    with journal.working():
        begin(journal)
        journal.complete_layer(Layer.RUNTIME, 1_800_000_003)
        assert reread(journal).cycle is not None
        journal.finish({"summary": "x"}, {Layer.RUNTIME: {"layer": 0}})
        found = reread(journal).cycle
        assert found is not None
        assert (found.stage, found.record, found.documents) == (
            Stage.FINISHED, {"summary": "x"}, {Layer.RUNTIME: {"layer": 0}},
        )  # fmt: skip
        journal.queue(7)
        found = reread(journal).cycle
        assert found is not None
        assert (found.stage, found.item, found.done) == (Stage.QUEUED, 7, {Layer.RUNTIME})


def test_change_that_came_to_nothing_is_none(journal: Journal) -> None:
    with journal.working():
        begin(journal)
        number = journal.begin_change(Layer.RUNTIME, CHANGE, 1)
        journal.end_change(Layer.RUNTIME, number, None, 2)
    found = reread(journal).cycle
    assert found is not None
    assert (found.findings[Layer.RUNTIME].changes, found.open_changes[Layer.RUNTIME]) == ([], {})


def test_clearing_leaves_what_no_record_tells_yet(journal: Journal) -> None:
    carried: list[Any] = [{"layer": 1, **CHANGE}]
    with journal.working():
        begin(journal)
        journal.clear(carried)
        assert (journal.cycle, journal.carried) == (None, carried)
        journal.start(START)  # and the next one can start
        assert journal.carried == carried
    assert reread(journal).carried == carried
    with journal.working():
        journal.clear()
    assert journal.path.read_bytes() == b""


def test_file_that_is_not_there_is_an_empty_journal(journal: Journal) -> None:
    assert journal.read() is None
    assert not journal.path.exists()


def test_journal_is_for_its_owner_alone(journal: Journal) -> None:
    with journal.working():
        begin(journal)
        journal.clear([{"layer": 0, **CHANGE}])
        begin(journal)
    assert journal.path.stat().st_mode & 0o077 == 0
    journal.path.chmod(0o640)
    with pytest.raises(UnsafeFile, match="chmod 600"), journal.working():
        pass


def test_one_process_at_a_time_works_on_it(journal: Journal) -> None:
    with journal.working(), pytest.raises(StoreBusy, match="another runner"), Journal(journal.path).working():
        pass
    with Journal(journal.path).working():
        pass


# Crashes


def test_line_that_was_torn_counts_as_never_written_wherever_it_was_torn(journal: Journal) -> None:
    with journal.working():
        begin(journal)
        whole = journal.path.read_bytes()
        journal.begin_change(Layer.RUNTIME, CHANGE, 3)
    longer = journal.path.read_bytes()
    for size in range(len(whole), len(longer)):
        journal.path.write_bytes(longer[:size])
        found = reread(journal).cycle
        assert found is not None
        assert found.open_changes[Layer.RUNTIME] == {}
        with journal.working():
            journal.end_change(Layer.RUNTIME, None, CHANGE, 4)  # what comes next replaces what was torn
        found = reread(journal).cycle
        assert found is not None
        assert found.findings[Layer.RUNTIME].changes == [CHANGE]


def test_disk_that_is_full_leaves_the_journal_as_it_was(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(handle: int, data: Any) -> int:
        if len(data) > 10:
            return write(handle, data[:10])
        raise OSError(28, "No space left on device")

    with journal.working():
        begin(journal)
        before = journal.path.read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr(journal_module.os, "write", half)
            with pytest.raises(StoreNotWritten, match="No space left"):
                journal.found(Layer.RUNTIME, "checks", {**CHECK, "detail": "x" * 21}, 3)
        assert journal.path.read_bytes() == before
        journal.found(Layer.RUNTIME, "checks", CHECK, 4)
    found = reread(journal).cycle
    assert found is not None
    assert found.findings[Layer.RUNTIME].checks == [CHECK, CHECK]


def test_changes_and_ends_are_on_disk_when_they_are_written(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(journal_module.os, "fsync", lambda handle: synced.append(handle) or fsync(handle))
    with journal.working():
        for write in (
            lambda: journal.start(START),
            lambda: journal.begin_change(Layer.RUNTIME, CHANGE, 1),
            lambda: journal.end_change(Layer.RUNTIME, None, CHANGE, 2),
            lambda: journal.complete_layer(Layer.RUNTIME, 3),
            lambda: journal.finish({}, {}),
            lambda: journal.queue(1),
            lambda: journal.clear(),
        ):
            synced.clear()
            write()
            assert synced


# What is none of ours


@pytest.mark.parametrize(
    "line",
    [
        b"no JSON\n",
        b"[]\n",
        b"{}\n",
        b'{"entry": "sung"}\n',
        b'{"entry": "found", "layer": 0, "member": "checks", "value": {}, "at": 1}\n',  # nothing was started
        b'{"entry": "started", "format": "melete.cycle-journal/2"}\n',
        b'{"entry": "carried", "changes": 7}\n',
        b"\xff\xfe\n",
        b"\0\0\0\n",
    ],
)
def test_file_of_something_else_is_refused_and_left_alone(journal: Journal, line: bytes) -> None:
    journal.path.parent.mkdir()
    journal.path.write_bytes(line)
    journal.path.chmod(0o600)
    with pytest.raises(StoreUnreadable, match="line 1"), journal.working():
        pass
    assert journal.path.read_bytes() == line


@pytest.mark.parametrize(
    ("entry", "members"),
    [
        ("found", {"layer": 4, "member": "checks", "value": {}, "at": 1}),
        ("found", {"layer": 1, "member": "checks", "value": {}, "at": 1}),  # out of scope
        ("found", {"layer": 0, "member": "moods", "value": {}, "at": 1}),
        ("found", {"layer": 0, "member": "checks", "value": [1], "at": 1}),
        ("layer-done", {"layer": 0}),
        ("finished", {"record": None, "documents": {}}),
        ("queued", {"item": None}),
        ("started", {}),
    ],
)
def test_line_that_makes_no_sense_is_named(journal: Journal, entry: str, members: dict[str, Any]) -> None:
    with journal.working():
        journal.start(START)
    with journal.path.open("a") as file:
        file.write(json.dumps({"entry": entry, **members}) + "\n")
    with pytest.raises(StoreUnreadable, match="line 2"):
        journal.read()


def test_link_or_folder_in_its_place_is_refused(journal: Journal, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"")
    journal.path.parent.mkdir()
    journal.path.symlink_to(target)
    with pytest.raises(MeleteError), journal.working():
        journal.start(START)
    assert target.read_bytes() == b""
    journal.path.unlink()
    journal.path.mkdir()
    with pytest.raises(StoreUnreadable):
        journal.read()
