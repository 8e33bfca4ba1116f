from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from melete import Address, LocalSigner, Witness, keccak256, verify_history
from melete.chain.errors import LaneStopped
from melete.chain.outbox import Outbox, State
from melete.errors import (
    ConfigurationError,
    CouldNotTell,
    InvalidAuthorization,
    InvalidInput,
    NodeUnreachable,
    OutboxBusy,
    StoreBusy,
)
from melete.memory.profiles import PLAIN
from melete.memory.witness_drill import Answer, drill
from melete.memory.witness_kinds import DELTA, OPERATION
from melete.memory.witness_store import WitnessStore
from melete.primitives import ZERO_BYTES32
from melete.wire.approval import CallableApproval, Queue
from melete.wire.errors import BrokenAudit
from melete.wire.recording.batches import open_delta
from melete.wire.recording.errors import NotAtHand, NotOpened, RecordedElsewhere, RecordingStopped
from melete.wire.recording.forgetting import Erased, erase_forgotten
from melete.wire.recording.lock import recording_alone
from melete.wire.recording.operations import Content, operation_to_entry
from melete.wire.recording.recorder import Flushed, Recorder, keep_recording

from .recording_samples import (
    AUTHOR,
    KEY,
    SPACE,
    Desk,
    LocalRegistry,
    never_waiting_for_the_disk,  # noqa: F401 - used by every test
    open_desk,
)
from .samples import EPISODIC, SEMANTIC, database_of, fetch, open_store, remember, run


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path, str(tmp_path / "memories.db")) as desk:
        yield desk


@pytest.fixture
def any_desk(tmp_path: Path, store_url: str) -> Iterator[Desk]:
    """On SQLite, and on PostgreSQL."""
    with open_desk(tmp_path, store_url) as desk:
        yield desk


def recorded_rows(desk: Desk) -> list[int]:
    """The audit rows that the registry's transitions record, in the order of the space."""
    numbers = []
    for transition in desk.registry.history:
        opened = open_delta(desk.witnesses, transition.delta)
        if opened is not None:
            numbers += range(opened.head.first, opened.head.last + 1)
    return numbers


def operations_of(desk: Desk) -> list[bytes]:
    """The bytes of every operation that the witness store still opens."""
    return [entry.record.content for entry in desk.witnesses.iterate(OPERATION) if entry.record is not None]


# Recording


def test_every_write_is_recorded_once_in_batches(any_desk: Desk) -> None:
    ids = [remember(any_desk.store, f"tea {number}") for number in range(9)]
    any_desk.store.forget(EPISODIC, ids[:1])
    assert any_desk.recorder.count_waiting() == 10
    assert any_desk.recorder.flush() == Flushed(batches=3, rows=10)
    any_desk.submit()
    assert recorded_rows(any_desk) == list(range(1, 11))
    assert verify_history(SPACE, any_desk.registry.history).sequence == 3
    assert any_desk.recorder.flush() == Flushed()
    assert any_desk.recorder.count_waiting() == 0


def test_payload_names_nothing_but_a_count_and_a_root(desk: Desk) -> None:
    remember(desk.store, "likes tea")
    desk.record()
    witness = desk.witnesses.get(DELTA.place(SPACE, 1))
    assert witness.payload.startswith(b'{"count":3,"root":"0x')
    assert (witness.provenance, witness.locator) == (None, None)


def test_batch_ends_with_the_head_of_the_audit_log(desk: Desk) -> None:
    for number in range(3):
        remember(desk.store, f"tea {number}")
    desk.record()
    opened = open_delta(desk.witnesses, desk.registry.history[0].delta)
    assert opened is not None
    assert opened.head.after == desk.store.audit_head()


def test_store_that_was_never_on_record_is_recorded_from_its_first_row(desk: Desk) -> None:
    """Recording may begin whenever it pleases: the audit log holds all that was written."""
    ids = [remember(desk.store, f"tea {number}", tags=["drinks"], metadata={"n": number}) for number in range(3)]
    desk.store.merge(EPISODIC, ids[:2])
    desk.record()
    contents = [Content.from_bytes(each) for each in operations_of(desk) if b"memory-content" in each]
    assert [content.content for content in contents] == ["tea 0", "tea 1", "tea 2", "tea 0\ntea 1"]
    assert contents[0].tags == ("drinks",)
    assert contents[0].metadata == '{"n":0}'


def test_large_contents_make_smaller_batches(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("melete.wire.recording.journal.MOST_CHARACTERS", 1_000)
    for length in (400, 400, 400, 5_000, 10):
        remember(desk.store, "x" * length)
    assert desk.recorder.flush() == Flushed(batches=4, rows=5)
    desk.submit()
    assert recorded_rows(desk) == [1, 2, 3, 4, 5]


def commit_otherwise(desk: Desk, *, kept: bool) -> None:
    """Commit something else to the space, whose witness is kept here or not."""
    witness = Witness(PLAIN.id, b"something else", keccak256(b"salt"))
    delta = witness.build_delta(SPACE, desk.registry.head())
    if kept:
        desk.witnesses.put_delta(delta, witness)
    desk.registry.take(delta)


@pytest.mark.parametrize("kept", [True, False])
def test_what_others_commit_in_between_stays_where_it_is(desk: Desk, kept: bool) -> None:
    remember(desk.store, "tea 1")
    desk.record()
    commit_otherwise(desk, kept=kept)
    remember(desk.store, "tea 2")
    desk.options["pass_unopened"] = not kept
    assert desk.recorder.flush() == Flushed(batches=1, rows=1)
    desk.submit()
    assert recorded_rows(desk) == [1, 2]
    assert len(desk.registry.history) == 3


def test_space_that_went_on_unopened_may_hold_a_later_record_of_this_store(desk: Desk) -> None:
    """Memory store and witness store are both back from a backup, and the outbox is lost."""
    remember(desk.store, "tea")
    desk.record()
    copy = desk.copy("copy.db")
    desk.witnesses.backup(desk.folder / "witnesses copy.db")
    remember(desk.store, "coffee")
    desk.record()
    with (
        open_store(str(copy), desk.clock) as desk.store,
        Outbox(desk.folder / "new outbox.db") as desk.outbox,
        WitnessStore.open(desk.folder / "witnesses copy.db", KEY) as desk.witnesses,
    ):
        remember(desk.store, "milk")
        with pytest.raises(NotOpened) as caught:
            desk.recorder.flush()
        assert caught.value.sequence == 2
        assert desk.outbox.items() == []


def test_witness_of_a_delta_that_never_landed_does_not_stand_for_the_one_that_did(desk: Desk) -> None:
    remember(desk.store, "tea")
    desk.record()
    never = Witness(PLAIN.id, b"never sent", keccak256(b"salt"))
    desk.witnesses.put_delta(never.build_delta(SPACE, desk.registry.head()), never)
    commit_otherwise(desk, kept=False)
    remember(desk.store, "coffee")
    with pytest.raises(NotOpened) as caught:
        desk.recorder.flush()
    assert caught.value.sequence == 2


def test_batches_of_another_kind_in_the_space_are_not_ours(desk: Desk) -> None:
    """Somebody keeps batches of his own in the same space, with the same witness store."""
    from melete.memory.batch import Operation, compute_batch
    from melete.memory.profiles import BATCH

    operations = [Operation(b"%d" % number, keccak256(b"%d" % number)) for number in range(3)]
    batch = compute_batch(operation.compute_leaf() for operation in operations)
    witness = Witness(BATCH.id, batch.to_payload(), keccak256(b"salt"))
    delta = witness.build_delta(SPACE, desk.registry.head())
    desk.witnesses.put_batch(delta, witness, operations)
    desk.registry.take(delta)
    remember(desk.store, "tea")
    assert desk.recorder.flush() == Flushed(batches=1, rows=1)


# Approval


def test_write_in_the_queue_is_recorded_with_its_content_when_it_is_approved(tmp_path: Path) -> None:
    with open_desk(tmp_path, str(tmp_path / "memories.db"), approval=Queue()) as desk:
        waiting, refused = (remember(desk.store, f"secret {number}", SEMANTIC, writer="ada") for number in range(2))
        desk.record()
        assert not any(b"secret" in each for each in operations_of(desk))
        desk.store.approve(waiting, "eve")
        desk.store.reject(refused, "eve")
        desk.record()
        found = b"".join(operations_of(desk))
        assert b"secret 0" in found
        assert b"secret 1" not in found
        assert recorded_rows(desk) == [1, 2, 3, 4]


def test_write_that_a_hook_rejects_is_recorded_without_content(tmp_path: Path) -> None:
    hook = CallableApproval(lambda _: False)
    with open_desk(tmp_path, str(tmp_path / "memories.db"), approval=hook) as desk:
        assert not desk.store.remember(SEMANTIC, "secret").ok
        desk.record()
        assert recorded_rows(desk) == [1]
        assert b"secret" not in b"".join(operations_of(desk))


# Forgetting


def test_what_is_forgotten_loses_its_witness_and_keeps_its_transition(any_desk: Desk) -> None:
    kept, gone = remember(any_desk.store, "likes tea"), remember(any_desk.store, "likes coffee")
    any_desk.record()
    any_desk.store.forget(EPISODIC, [gone])
    assert any_desk.recorder.flush() == Flushed(batches=1, rows=1, erased=1)
    any_desk.submit()
    found = b"".join(operations_of(any_desk))
    assert b"coffee" not in found
    assert b"likes tea" in found
    assert len(any_desk.registry.history) == 2
    findings = list(drill(any_desk.witnesses, (item.delta for item in any_desk.registry.history)))
    assert [finding.answer for finding in findings if finding.answer is not Answer.OPENED] == [Answer.ERASED]
    assert fetch(any_desk.store, "SELECT id, place, ended FROM recorded ORDER BY number") == [
        (kept, 3, None),
        (gone, None, 3),
    ]


def test_nothing_of_what_is_forgotten_is_left_in_any_file(desk: Desk) -> None:
    """Looked for as it would be without encryption: in the memory store, and by what the witness store opens."""
    gone = remember(desk.store, "zanzibar", tags=["qwertz"], metadata={"hidden": "quokka"})
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    desk.record()
    for path in desk.folder.glob("memories.db*"):
        assert not any(word in path.read_bytes() for word in (b"zanzibar", b"qwertz", b"quokka")), path.name
    for entry in desk.witnesses.iterate():
        for part in (entry.record.content,) if entry.kind == OPERATION.name and entry.record else ():
            assert not any(word in part for word in (b"zanzibar", b"qwertz", b"quokka"))


def test_forgetting_needs_no_node_to_erase_the_witness(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    desk.registry.node.is_gone = True
    recorder = desk.recorder
    with pytest.raises(NodeUnreachable):
        recorder.flush()
    assert b"coffee" not in b"".join(operations_of(desk))
    assert recorder.count_waiting() == 1


def test_forgetting_a_merged_memory_erases_all_that_went_into_it(desk: Desk) -> None:
    ids = [remember(desk.store, f"coffee {number}") for number in range(3)]
    (merged,) = desk.store.merge(EPISODIC, ids).ids
    desk.record()
    desk.store.forget(EPISODIC, [merged])
    assert desk.recorder.flush().erased == 4
    assert b"coffee" not in b"".join(operations_of(desk))


def test_what_has_expired_loses_its_witness_when_it_is_swept(desk: Desk) -> None:
    remember(desk.store, "coffee", ttl_seconds=10)
    desk.record()
    desk.clock.now += 10
    assert desk.store.sweep() == 1
    assert desk.recorder.flush() == Flushed(batches=1, rows=1, erased=1)
    assert b"coffee" not in b"".join(operations_of(desk))


def test_witnesses_are_erased_without_a_recorder_too(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    assert erase_forgotten(desk.store, desk.witnesses) == Erased(1)
    assert erase_forgotten(desk.store, desk.witnesses) == Erased()
    assert b"coffee" not in b"".join(operations_of(desk))
    assert desk.recorder.flush() == Flushed(batches=1, rows=1)


def test_what_was_forgotten_before_it_was_recorded_never_gets_a_witness(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.store.forget(EPISODIC, [gone])
    assert desk.recorder.flush() == Flushed(batches=1, rows=2)
    assert b"coffee" not in b"".join(operations_of(desk))
    assert fetch(desk.store, "SELECT id, place, ended FROM recorded") == [(gone, None, 2)]


def test_witness_that_is_missing_is_not_taken_for_an_erased_one(desk: Desk) -> None:
    """It may be in the witness store that is in use, of which this one is an old copy."""
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.witnesses.discard([OPERATION.place(open_delta(desk.witnesses, desk.registry.history[0].delta).batch.root, 2)])  # type: ignore[union-attr]
    desk.store.forget(EPISODIC, [gone])
    with pytest.raises(NotAtHand, match="audit row 1: its witness is missing"):
        desk.recorder.flush()
    assert fetch(desk.store, "SELECT ended FROM recorded") == [(None,)]


def test_bytes_that_cannot_go_yet_are_told(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    with WitnessStore.open(desk.witnesses.path, KEY, read_only=True) as reader, reader.snapshot():
        list(reader.iterate())
        flushed = desk.recorder.flush()
    assert (flushed.erased, flushed.is_scrubbed) == (1, False)
    assert b"coffee" not in b"".join(operations_of(desk))


# Going on after a crash


STEPS = ("add", "put_delta", "_insert", "record_state", "_finish")


def crash(desk: Desk, step: str, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> bool:
    """Record what waits, and be gone before a step is done, or right after it; say whether it came to that."""
    target: Any = {"put_delta": WitnessStore, "_insert": WitnessStore, "_finish": Recorder}.get(step, Outbox)
    done = getattr(target, step)

    def last(*arguments: Any, **options: Any) -> Any:
        if after:
            done(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(target, step, last)
        with suppress(KeyboardInterrupt):
            desk.recorder.flush()
            return False
    return True


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_recorder_that_was_killed_goes_on_and_records_nothing_twice(
    desk: Desk, step: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        remember(desk.store, f"tea {number}")
    assert crash(desk, step, monkeypatch, after=after)
    remember(desk.store, "tea 3")
    desk.record()
    assert recorded_rows(desk) == [1, 2, 3, 4]
    assert fetch(desk.store, "SELECT first, last FROM recordings ORDER BY first") in (
        [(1, 3), (4, 4)],
        [(1, 4)],
    )
    assert all(finding.answer is Answer.OPENED for finding in drill(desk.witnesses, deltas(desk)))
    roots = {row.place.scope for row in desk.witnesses.list_rows(OPERATION)}  # none without a delta
    assert len(roots) == len(desk.registry.history)


def deltas(desk: Desk) -> Iterator[Any]:
    return (transition.delta for transition in desk.registry.history)


@pytest.mark.parametrize("step", STEPS)
def test_what_was_forgotten_after_a_crash_is_erased_though_the_store_knew_of_no_witness(
    desk: Desk, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = remember(desk.store, "likes coffee")
    assert crash(desk, step, monkeypatch, after=False)
    desk.store.forget(EPISODIC, [gone])
    desk.record()
    assert b"coffee" not in b"".join(operations_of(desk))
    assert recorded_rows(desk) == [1, 2]


def test_store_from_a_backup_takes_over_what_was_recorded_since(desk: Desk) -> None:
    """The backup holds all rows, and nothing of their being recorded."""
    for number in range(6):
        remember(desk.store, f"tea {number}")
    copy = desk.copy("copy.db")
    desk.record()
    with open_store(str(copy), desk.clock) as older:
        desk.store = older
        assert desk.recorder.flush() == Flushed(taken_over=6)
        remember(older, "tea 6")
        desk.record()
    assert recorded_rows(desk) == list(range(1, 8))


def test_batches_that_the_outbox_lost_are_queued_again(desk: Desk, tmp_path: Path) -> None:
    for number in range(4):
        remember(desk.store, f"tea {number}")
    desk.record()
    for number in range(8):
        remember(desk.store, f"coffee {number}")
    desk.recorder.flush()
    desk.outbox.close()
    with Outbox(tmp_path / "another outbox.db") as empty:
        desk.outbox = empty
        assert desk.recorder.flush() == Flushed()
        desk.submit()
    assert recorded_rows(desk) == list(range(1, 13))


def test_draft_between_outbox_and_witness_store_is_nobody_elses_to_judge(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, met = WitnessStore.put_delta, []

    def kept_while_another_looks(store: WitnessStore, *arguments: Any) -> Any:
        with Outbox(desk.outbox.path) as other, pytest.raises(OutboxBusy), other.adding(wait_seconds=0.05):
            pass
        met.append(len(desk.outbox.items(State.DRAFT)))
        return keep(store, *arguments)

    monkeypatch.setattr(WitnessStore, "put_delta", kept_while_another_looks)
    remember(desk.store, "tea")
    desk.record()
    assert met == [1]
    assert recorded_rows(desk) == [1]


# What is refused


def test_store_is_recorded_in_one_space_of_one_registry(desk: Desk) -> None:
    remember(desk.store, "tea")
    desk.record()
    with pytest.raises(InvalidInput) as caught:
        Recorder(desk.store, desk.outbox, desk.registry, desk.witnesses, keccak256(b"other"), AUTHOR)
    assert caught.value.field == "space"
    desk.registry.address = Address(b"\x55" * 20)
    with pytest.raises(InvalidInput) as caught:
        _ = desk.recorder
    assert caught.value.field == "registry"


@pytest.mark.parametrize("most", [0, 1_001, -1, True, 1.5])
def test_batch_of_another_size_is_refused(desk: Desk, most: Any) -> None:
    desk.options["most"] = most
    with pytest.raises(InvalidInput) as caught:
        _ = desk.recorder
    assert caught.value.field == "batch"


def test_another_store_is_not_recorded_after_this_one(desk: Desk, tmp_path: Path) -> None:
    remember(desk.store, "tea")
    desk.record()
    with open_store(str(tmp_path / "other.db"), desk.clock) as other:
        remember(other, "coffee")
        recorder = Recorder(other, desk.outbox, desk.registry, desk.witnesses, SPACE, AUTHOR)
        with pytest.raises(RecordedElsewhere) as caught:
            recorder.flush()
        assert (caught.value.sequence, caught.value.number) == (1, 1)
        assert "other rows" in caught.value.reason
    assert len(desk.outbox.items()) == 1


def test_earlier_state_of_the_store_is_not_recorded_after_a_later_one(desk: Desk) -> None:
    remember(desk.store, "tea")
    desk.record()
    copy = desk.copy("copy.db")
    remember(desk.store, "coffee")
    remember(desk.store, "milk")
    desk.record()
    with open_store(str(copy), desk.clock) as older:
        desk.store = older
        remember(older, "water")
        with pytest.raises(RecordedElsewhere) as caught:
            desk.recorder.flush()
        assert "earlier state" in caught.value.reason


def test_witness_store_that_knows_nothing_of_the_record_is_refused(desk: Desk, tmp_path: Path) -> None:
    remember(desk.store, "tea")
    desk.record()
    with WitnessStore.create(tmp_path / "other witnesses.db", KEY) as other:
        remember(desk.store, "coffee")
        recorder = Recorder(desk.store, desk.outbox, desk.registry, other, SPACE, AUTHOR)
        with pytest.raises(NotAtHand):
            recorder.flush()
    assert recorder.count_waiting() == 1


def test_signer_who_is_not_the_authorizer_is_refused_before_anything_is_written(desk: Desk) -> None:
    remember(desk.store, "tea")
    recorder = Recorder(desk.store, desk.outbox, desk.registry, desk.witnesses, SPACE, LocalSigner(keccak256(b"eve")))
    with pytest.raises(InvalidAuthorization):
        recorder.flush()
    assert desk.outbox.items() == []
    assert list(desk.witnesses.list_rows()) == []


def test_refused_batch_stops_the_record_until_it_is_retried(desk: Desk) -> None:
    remember(desk.store, "tea")
    desk.recorder.flush()
    desk.outbox.record_state(desk.outbox.items(), State.REFUSED, "the approval is not there")
    remember(desk.store, "coffee")
    with pytest.raises(RecordingStopped) as caught:
        desk.recorder.flush()
    assert (caught.value.sequence, caught.value.reason) == (1, "the approval is not there")
    assert desk.recorder.retry() == 1
    desk.record()
    assert recorded_rows(desk) == [1, 2]


def test_conflict_is_named_and_retried_on_the_current_head_in_the_old_order(desk: Desk) -> None:
    for number in range(8):
        remember(desk.store, f"tea {number}")
    desk.recorder.flush()
    other = Witness(PLAIN.id, b"something else", keccak256(b"salt"))
    desk.registry.take(other.build_delta(SPACE, desk.registry.head()))
    desk.outbox.record_state(desk.outbox.items(), State.CONFLICT)
    remember(desk.store, "coffee")
    with pytest.raises(LaneStopped, match="conflict"):
        desk.recorder.flush()
    assert desk.recorder.retry() == 2
    assert desk.recorder.flush() == Flushed(batches=1, rows=1)
    desk.submit()
    assert recorded_rows(desk) == list(range(1, 10))
    assert len(desk.registry.history) == 4


def test_two_recorders_do_not_work_at_once(any_desk: Desk) -> None:
    remember(any_desk.store, "tea")
    with recording_alone(database_of(any_desk.store)), pytest.raises(StoreBusy) as caught:
        any_desk.recorder.flush()
    assert "another process" in caught.value.reason
    assert any_desk.recorder.flush().rows == 1


def test_store_is_not_recorded_inside_a_transaction(any_desk: Desk) -> None:
    """Nobody knows yet whether what is written there will have happened."""
    with any_desk.store.transaction():
        remember(any_desk.store, "tea")
        for act in (any_desk.recorder.flush, any_desk.recorder.erase_forgotten, any_desk.recorder.retry):
            with pytest.raises(ConfigurationError, match="transaction"):
                act()
    with any_desk.store.snapshot(), pytest.raises(ConfigurationError):
        any_desk.recorder.flush()
    assert any_desk.outbox.items() == []
    assert any_desk.recorder.flush().rows == 1


def test_lock_beside_a_store_follows_no_link(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "memories.db.recording").symlink_to(tmp_path / "elsewhere")
    remember(desk.store, "tea")
    with pytest.raises(Exception, match="lock"):
        desk.recorder.flush()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memories SET content = 'likes coffee'",
        "UPDATE memories SET tags = '[\"other\"]'",
        "UPDATE memories SET tags = 'none'",
        "UPDATE memories SET salt = x'00'",
        "UPDATE memories SET metadata = '{'",
        "UPDATE audit SET entry = replace(entry, 'default', 'somebody')",
        "UPDATE audit SET entry = '{}'",
        "UPDATE audit SET hash = x'00' WHERE number = 2",
        "DELETE FROM audit WHERE number = 1",
    ],
)
def test_store_that_was_altered_is_not_recorded(desk: Desk, statement: str) -> None:
    for number in range(2):
        remember(desk.store, f"tea {number}")
    run(desk.store, statement)
    with pytest.raises((BrokenAudit, InvalidInput)) as caught:
        desk.recorder.flush()
    assert "coffee" not in str(caught.value)
    assert desk.outbox.items() == []


# When to record


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_fills_a_batch_or_has_waited_is_due(desk: Desk) -> None:
    desk.options["clock"] = clock = Time()
    recorder = desk.recorder
    assert recorder.flush_if_due(60) is None
    remember(desk.store, "tea 1")
    assert recorder.flush_if_due(60) is None
    clock.now = 59.0
    assert recorder.flush_if_due(60) is None
    clock.now = 60.0
    assert recorder.flush_if_due(60) == Flushed(batches=1, rows=1)
    assert recorder.flush_if_due(60) is None
    for number in range(4):
        remember(desk.store, f"tea {number}")
    assert recorder.flush_if_due(60) == Flushed(batches=1, rows=4)


def test_forgetting_is_never_put_off(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    assert desk.recorder.flush_if_due(10**6) == Flushed(erased=1)
    assert b"coffee" not in b"".join(operations_of(desk))


def test_recording_goes_on_over_a_node_that_was_gone(desk: Desk) -> None:
    remember(desk.store, "tea")
    desk.registry.node.is_gone = True
    answers = iter([False, False, True])
    failures: list[Any] = []
    told: list[Flushed] = []

    def tell_failure(error: CouldNotTell) -> None:
        failures.append(error)
        desk.registry.node.is_gone = False

    keep_recording(desk.recorder, 0, lambda _: next(answers), told.append, tell_failure)
    assert [type(failure) for failure in failures] == [NodeUnreachable]
    assert told == [Flushed(batches=1, rows=1), Flushed()]


def test_node_is_not_asked_again_for_some_seconds(desk: Desk) -> None:
    desk.options["clock"] = clock = Time()
    recorder = desk.recorder
    asked = []
    for clock.now in (0.0, 1.0, 4.9, 5.0, 6.0):
        remember(desk.store, "tea")
        assert recorder.flush() == Flushed(batches=1, rows=1)
        asked.append(desk.registry.node.requests)
    assert asked == [1, 1, 1, 2, 2]
    desk.submit()
    assert recorded_rows(desk) == [1, 2, 3, 4, 5]


def test_what_landed_after_the_node_was_asked_is_not_taken_for_lost(desk: Desk) -> None:
    recorder = desk.recorder
    for number in range(3):
        remember(desk.store, f"tea {number}")
        assert recorder.flush() == Flushed(batches=1, rows=1)
        desk.submit()
    assert recorded_rows(desk) == [1, 2, 3]


def test_node_is_asked_again_after_anything_went_wrong(desk: Desk) -> None:
    recorder = desk.recorder
    remember(desk.store, "tea")
    recorder.flush()
    desk.outbox.record_state(desk.outbox.items(), State.CONFLICT)
    with pytest.raises(LaneStopped):
        recorder.flush()
    assert desk.registry.node.requests == 1
    commit_otherwise(desk, kept=False)
    assert recorder.retry() == 1
    asked = desk.registry.node.requests
    remember(desk.store, "coffee")
    recorder.flush()
    assert desk.registry.node.requests == asked + 1
    desk.submit()
    assert recorded_rows(desk) == [1, 2]


# Anything, in any order


@pytest.mark.parametrize("seed", range(3))
def test_random_work_is_recorded_once_and_opens(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    with open_desk(tmp_path, str(tmp_path / "memories.db")) as desk:
        ids: list[str] = []
        for number in range(40):
            act = dice.random()
            if act < 0.5 or not ids:
                ids.append(remember(desk.store, f"word{number}"))
            elif act < 0.65:
                desk.store.forget(EPISODIC, [ids.pop(dice.randrange(len(ids)))])
            elif act < 0.75 and len(ids) > 1:
                sources = [ids.pop(), ids.pop()]
                ids.append(desk.store.merge(EPISODIC, sources).ids[0])
            elif act < 0.85:
                crash(desk, dice.choice(STEPS), monkeypatch, after=dice.random() < 0.5) if waits(desk) else None
            else:
                desk.recorder.flush()
                if dice.random() < 0.5:
                    desk.submit()
        desk.record()
        assert recorded_rows(desk) == list(range(1, desk.store.audit_head().number + 1))
        answers = {finding.answer for finding in drill(desk.witnesses, deltas(desk))}
        assert answers <= {Answer.OPENED, Answer.ERASED}
        kept = {row[0] for row in fetch(desk.store, "SELECT content FROM memories")}
        opened = {Content.from_bytes(each).content for each in operations_of(desk) if b"memory-content" in each}
        assert opened == kept


def waits(desk: Desk) -> bool:
    return desk.recorder.count_waiting() > 0


def test_audit_rows_of_a_batch_are_those_of_the_store(any_desk: Desk) -> None:
    remember(any_desk.store, "tea é 🎉", tags=["ü"], metadata={"ß": 1})
    any_desk.record()
    rows = [operation_to_entry(each)[0] for each in operations_of(any_desk) if b"memory-operation" in each]
    assert [row.decode() for row in rows] == [text for (text,) in fetch(any_desk.store, "SELECT entry FROM audit")]


def test_registry_of_the_samples_is_a_chain() -> None:
    """The stand-in keeps the registry's own rules, so what is recorded on it would be taken by a real one."""
    registry = LocalRegistry()
    witness = Witness(PLAIN.id, b"payload", keccak256(b"salt"))
    registry.take(witness.build_delta(SPACE, registry.head()))
    with pytest.raises(AssertionError):
        registry.take(registry.history[0].delta)
    assert registry.state_root_at(SPACE, 1) == registry.head().state_root
    assert registry.state_root_at(SPACE, 2) == ZERO_BYTES32
