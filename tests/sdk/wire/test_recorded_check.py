"""What a store keeps about its being on record, and somebody who writes to it: the audit names what does not agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from melete.wire.errors import BrokenAudit
from melete.wire.recording.forgetting import erase_forgotten

from .recording_samples import Desk, never_waiting_for_the_disk, open_desk
from .samples import EPISODIC, database_of, remember, run

__all__ = ["never_waiting_for_the_disk"]


@pytest.fixture
def desk(tmp_path: Path, store_url: str) -> Iterator[Desk]:
    """Nine audit rows, recorded in batches of four: memories 1, 2, 3 (ended by 6), 4, 5 (of 1 and 2), 7, 8 and 9."""
    with open_desk(tmp_path, store_url) as desk:
        ids = [remember(desk.store, f"tea {number}") for number in range(4)]
        desk.store.merge(EPISODIC, ids[:2])
        desk.store.forget(EPISODIC, [ids[2]])
        for number in range(3):
            remember(desk.store, f"milk {number}")
        desk.record()
        desk.store.verify_audit()
        yield desk


def broken(desk: Desk) -> tuple[int, str]:
    with pytest.raises(BrokenAudit) as caught:
        desk.store.verify_audit()
    return caught.value.number, caught.value.rule


BATCH, MEMORY = "the record of its batch", "the record of its memory"


@pytest.mark.parametrize(
    ("statement", "number", "rule"),
    [
        ("UPDATE recorded SET ended = 99 WHERE number = 2", 2, MEMORY),
        ("UPDATE recorded SET ended = 6 WHERE number = 2", 2, MEMORY),
        ("UPDATE recorded SET ended = NULL WHERE number = 3", 3, MEMORY),
        ("UPDATE recorded SET place = NULL WHERE number = 2", 2, MEMORY),
        ("UPDATE recorded SET place = 0 WHERE number = 2", 2, MEMORY),
        ("UPDATE recorded SET place = place + 1 WHERE number = 9", 9, MEMORY),
        ("UPDATE recorded SET place = 7 WHERE number = 3", 3, MEMORY),
        ("UPDATE recorded SET id = '0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10' WHERE number = 4", 4, MEMORY),
        ("DELETE FROM recorded WHERE number = 2", 2, MEMORY),
        ("DELETE FROM recorded", 1, MEMORY),
        ("UPDATE recorded SET number = 6 WHERE number = 5", 5, MEMORY),
        ("UPDATE recorded SET number = -6 WHERE number = 1", -6, MEMORY),
        ("UPDATE recordings SET root = {zero} WHERE first = 5", 5, BATCH),
        ("UPDATE recordings SET commitment = {short} WHERE first = 5", 5, BATCH),
        ("UPDATE recordings SET space = {short} WHERE first = 1", 1, BATCH),
        ("UPDATE recordings SET root = (SELECT r.root FROM recordings r WHERE r.first = 1) WHERE first = 5", 5, BATCH),
        ("UPDATE recordings SET space = root WHERE first = 5", 5, BATCH),
        ("UPDATE recordings SET registry = {short} WHERE first = 1", 1, BATCH),
        ("UPDATE recordings SET chain = '1e3' WHERE first = 1", 1, BATCH),
        ("UPDATE recordings SET chain = '7' WHERE first = 9", 9, BATCH),
        ("UPDATE recordings SET last = 1000000 WHERE first = 9", 9, BATCH),
        ("UPDATE recordings SET last = 3 WHERE first = 1", 4, BATCH),
        ("UPDATE recordings SET last = 0 WHERE first = 1", 1, BATCH),
        ("UPDATE recordings SET first = 0 WHERE first = 1", 0, BATCH),
        ("DELETE FROM recordings WHERE first = 1", 1, BATCH),
        ("DELETE FROM recordings WHERE first = 5", 5, BATCH),
        ("DELETE FROM recordings WHERE first = 9", 9, MEMORY),
        ("DELETE FROM recordings", 1, MEMORY),
    ],
)
def test_record_that_was_altered_is_named(desk: Desk, statement: str, number: int, rule: str) -> None:
    is_file = database_of(desk.store).engine.dialect.name == "sqlite"
    zero, short = (f"x'{digits}'" if is_file else f"'\\x{digits}'::bytea" for digits in ("00" * 32, "abcd"))
    run(desk.store, statement.format(zero=zero, short=short))
    assert broken(desk) == (number, rule)


def test_record_holds_while_what_was_forgotten_waits_to_be_recorded(desk: Desk) -> None:
    gone = remember(desk.store, "coffee")
    desk.recorder.flush()
    desk.store.forget(EPISODIC, [gone])
    desk.store.verify_audit()
    erase_forgotten(desk.store, desk.witnesses)
    desk.store.verify_audit()
    desk.record()
    desk.store.verify_audit()


def test_record_holds_for_what_was_forgotten_before_it_was_recorded(desk: Desk) -> None:
    """The content has no place in the batch then, and those after it come sooner."""
    ids = [remember(desk.store, f"coffee {number}") for number in range(4)]
    desk.store.forget(EPISODIC, ids[1:3])
    desk.record()
    desk.store.verify_audit()
    run(desk.store, "UPDATE recorded SET place = 4 WHERE number = 11")
    assert broken(desk) == (11, MEMORY)
