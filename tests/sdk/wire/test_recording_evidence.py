from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from melete import Address, Transition, Witness, compute_delta_commitment, keccak256, verify_history
from melete.canonical import canonicalize, load_json
from melete.chain.outbox import State
from melete.errors import BrokenHistory, InvalidInput, NodeUnreachable
from melete.memory.batch import InclusionProof, compute_node, verify_inclusion
from melete.memory.delta import compute_transition_id
from melete.memory.profiles import BATCH, PLAIN
from melete.memory.witness_kinds import DELTA, OPERATION
from melete.wire.approval import Queue
from melete.wire.errors import BrokenAudit, EnvelopeError, UnknownMemory
from melete.wire.recording import attesting
from melete.wire.recording.batches import open_delta
from melete.wire.recording.errors import NotAtHand, NotForgotten, NotOnRecord, NotOpened
from melete.wire.recording.evidence import Evidence, Kept, Standing, prove

from .recording_samples import (
    SPACE,
    Desk,
    never_waiting_for_the_disk,  # noqa: F401 - used by every test
    open_desk,
)
from .samples import EPISODIC, SEMANTIC, database_of, open_store, remember, run

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path, str(tmp_path / "memories.db")) as desk:
        yield desk


def proven(desk: Desk, memory_id: str) -> Evidence:
    return prove(desk.store, desk.witnesses, memory_id, desk.registry)


# From the row to the root


def test_memory_is_proven_from_its_row_to_the_state_root(tmp_path: Path, store_url: str) -> None:
    with open_desk(tmp_path, store_url) as desk:
        ids = [remember(desk.store, f"tea {number}", tags=["x"], metadata={"n": number}) for number in range(7)]
        desk.record()
        for number, memory_id in enumerate(ids, start=1):
            evidence = proven(desk, memory_id)
            assert (evidence.state, evidence.kept, evidence.standing) == ("active", Kept.OPENED, Standing.COMMITTED)
            made = evidence.made
            assert made.entry.number == number
            assert made.sequence == 1 + (number - 1) // 4
            assert made.anchor is not None
            assert made.anchor.delta == desk.registry.history[made.sequence - 1].delta
            assert made.anchor.state_root == desk.registry.history[made.sequence - 1].next_state_root
            assert evidence.registry_head == desk.registry.head()
            assert evidence.ended is None


def test_whole_chain_holds_when_it_is_followed_by_hand(desk: Desk) -> None:
    """Every arrow of the evidence, by the primitives alone."""
    memory_id = remember(desk.store, "likes tea")
    remember(desk.store, "likes coffee")
    desk.record()
    evidence = proven(desk, memory_id)
    made, content = evidence.made, evidence.content
    assert made.included is not None
    assert content is not None
    assert made.batch is not None
    assert made.anchor is not None
    for included in (made.included, content):
        operation = desk.witnesses.get(OPERATION.place(made.batch.root, included.proof.index))
        assert included.leaf == keccak256(b"\x00" + operation.salt + keccak256(operation.content))
        assert verify_inclusion(made.batch, operation, included.proof) == included.leaf
    # Five operations: the head, two rows, two contents.
    assert content.proof.index == 3
    node = compute_node(content.proof.siblings[0], content.leaf)
    node = compute_node(content.proof.siblings[1], node)
    assert compute_node(node, content.proof.siblings[2]) == made.batch.root
    witness = desk.witnesses.get(DELTA.place(SPACE, 1))
    delta = made.anchor.delta
    assert delta.delta_commitment == compute_delta_commitment(BATCH.id, witness.delta_salt, made.batch.to_payload())
    assert compute_transition_id(delta) == made.anchor.transition_id
    assert verify_history(SPACE, [Transition.of(delta)]).state_root == made.anchor.state_root


def test_node_is_asked_once_and_a_bounded_number_of_rows_is_read(desk: Desk) -> None:
    ids = [remember(desk.store, f"tea {number}") for number in range(60)]
    desk.store.forget(EPISODIC, [ids[0]])
    desk.record()
    for memory_id in (ids[5], ids[0]):
        desk.registry.node.requests = 0
        statements: list[str] = []
        database = database_of(desk.store)
        with database.reading() as connection:
            connection.connection.driver_connection.set_trace_callback(statements.append)
        desk.witnesses._database.db.set_trace_callback(statements.append)
        proven(desk, memory_id)
        assert desk.registry.node.requests == 1
        assert len(statements) < 60
        with database.reading() as connection:
            connection.connection.driver_connection.set_trace_callback(None)
        desk.witnesses._database.db.set_trace_callback(None)


def test_without_a_registry_nobody_is_asked(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.record()
    desk.registry.node.requests = 0
    evidence = prove(desk.store, desk.witnesses, memory_id)
    assert evidence.standing is Standing.RECORDED
    assert evidence.made.anchor is None
    assert desk.registry.node.requests == 0


def test_evidence_as_json_holds_neither_content_nor_salts(desk: Desk) -> None:
    gone = remember(desk.store, "zanzibar", tags=["qwertz"], metadata={"k": "quokka"})
    kept = remember(desk.store, "zanzibar too", tags=["qwertz"], metadata={"k": "quokka"})
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    desk.record()
    for memory_id in (gone, kept):
        text = json.dumps(proven(desk, memory_id).to_json())
        assert canonicalize(load_json(text))
        assert not any(word in text for word in ("zanzibar", "qwertz", "quokka"))
        for entry in desk.witnesses.iterate():
            salt = entry.record.salt if entry.kind == OPERATION.name and entry.record else None
            assert salt is None or salt.hex() not in text
    members = proven(desk, kept).to_json()
    assert members["spaceId"] == str(SPACE)
    assert InclusionProof.from_json(
        {name: members["made"]["operation"][name] for name in ("index", "count", "siblings")}  # type: ignore[index,call-overload]
    )


# How far it has come


def test_what_waits_is_told_apart_from_what_is_queued_and_what_is_committed(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes tea")
    evidence = proven(desk, memory_id)
    assert (evidence.standing, evidence.kept) == (Standing.WAITS, Kept.WAITS)
    assert evidence.space is None
    desk.recorder.flush()
    assert proven(desk, memory_id).standing is Standing.QUEUED
    desk.submit()
    assert proven(desk, memory_id).standing is Standing.COMMITTED


def test_delta_that_was_rebuilt_on_another_head_is_found(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.recorder.flush()
    other = Witness(PLAIN.id, b"something else", keccak256(b"salt"))
    desk.registry.take(other.build_delta(SPACE, desk.registry.head()))
    desk.outbox.record_state(desk.outbox.items(), State.CONFLICT)
    desk.recorder.retry()
    assert proven(desk, memory_id).standing is Standing.QUEUED
    desk.submit()
    evidence = proven(desk, memory_id)
    assert (evidence.standing, evidence.made.sequence) == (Standing.COMMITTED, 2)


def test_sequence_that_another_delta_has_is_no_evidence(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.recorder.flush()
    other = Witness(PLAIN.id, b"something else", keccak256(b"salt"))
    desk.registry.take(other.build_delta(SPACE, desk.registry.head()))
    with pytest.raises(BrokenHistory) as caught:
        proven(desk, memory_id)
    assert (caught.value.sequence, caught.value.rule) == (1, "next_state_root")


def test_node_that_is_gone_proves_nothing(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.record()
    desk.registry.node.is_gone = True
    with pytest.raises(NodeUnreachable):
        proven(desk, memory_id)


# What was forgotten


def test_forgotten_memory_is_proven_though_nobody_can_open_it(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    evidence = proven(desk, gone)
    assert evidence.is_forgotten
    assert (evidence.kept, evidence.standing, evidence.ended) == (Kept.OPENED, Standing.WAITS, None)
    desk.recorder.erase_forgotten()
    evidence = proven(desk, gone)
    assert (evidence.kept, evidence.standing) == (Kept.ERASED, Standing.WAITS)
    desk.record()
    evidence = proven(desk, gone)
    assert (evidence.kept, evidence.standing) == (Kept.ERASED, Standing.COMMITTED)
    assert evidence.made.standing is Standing.COMMITTED
    assert evidence.content is not None
    assert evidence.ended is not None
    assert evidence.ended.anchor is not None
    assert evidence.ended.anchor.delta == desk.registry.history[1].delta


def test_swept_memory_is_proven_to_have_ended(desk: Desk) -> None:
    gone = remember(desk.store, "coffee", ttl_seconds=5)
    desk.record()
    desk.clock.now += 5
    assert proven(desk, gone).state == "expired"
    desk.store.sweep()
    desk.record()
    evidence = proven(desk, gone)
    assert evidence.ended is not None
    assert (evidence.state, evidence.ended.entry.action.value) == ("forgotten", "sweep")


def test_memory_forgotten_before_it_was_recorded_has_no_content_on_record(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.store.forget(EPISODIC, [gone])
    desk.record()
    evidence = proven(desk, gone)
    assert (evidence.kept, evidence.content, evidence.standing) == (Kept.NEVER, None, Standing.COMMITTED)


def test_merged_memory_and_what_took_it_up_are_both_proven(desk: Desk) -> None:
    first, second = remember(desk.store, "likes tea"), remember(desk.store, "likes milk")
    (merged,) = desk.store.merge(EPISODIC, [first, second]).ids
    desk.record()
    assert proven(desk, first).state == "merged"
    assert proven(desk, merged).made.entry.sources == (first, second)


def test_write_is_proven_from_its_approval_on(tmp_path: Path) -> None:
    with open_desk(tmp_path, str(tmp_path / "memories.db"), approval=Queue()) as desk:
        memory_id = remember(desk.store, "likes tea", SEMANTIC, writer="ada")
        desk.record()
        with pytest.raises(NotOnRecord):
            proven(desk, memory_id)
        desk.store.approve(memory_id, "eve")
        desk.record()
        evidence = proven(desk, memory_id)
        assert (evidence.made.entry.action.value, evidence.made.entry.by) == ("approve", "eve")
        assert evidence.standing is Standing.COMMITTED


def test_id_that_was_never_kept_is_unknown(desk: Desk) -> None:
    remember(desk.store, "likes tea")
    desk.record()
    with pytest.raises(UnknownMemory):
        proven(desk, UNKNOWN)
    with pytest.raises(EnvelopeError):
        proven(desk, "no id")


# What does not hold


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memories SET content = 'likes coffee'",
        "UPDATE memories SET tags = '[\"x\"]'",
        "UPDATE memories SET metadata = '{\"x\":1}'",
        "UPDATE memories SET salt = zeroblob(32)",
        "UPDATE memories SET created_at = created_at + 1",
        "UPDATE memories SET expires_at = 5",
        "UPDATE memories SET audited = 9",
        "UPDATE scopes SET agent = 'eve'",
        "UPDATE audit SET entry = replace(entry, 'default', 'eve')",
        "UPDATE audit SET hash = zeroblob(32)",
        "DELETE FROM audit",
    ],
)
def test_altered_store_proves_nothing(desk: Desk, statement: str) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.record()
    run(desk.store, statement)
    with pytest.raises(BrokenAudit) as caught:
        proven(desk, memory_id)
    assert caught.value.number == 1
    assert "coffee" not in str(caught.value)


def test_memory_whose_row_is_gone_without_an_entry_was_not_forgotten(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.record()
    run(desk.store, "DELETE FROM memories")
    with pytest.raises(BrokenAudit) as caught:
        proven(desk, memory_id)
    assert (caught.value.number, caught.value.rule) == (1, "a memory's row")


def test_expiry_is_compared_with_the_last_entry_that_set_it(desk: Desk) -> None:
    memory_id, other = remember(desk.store, "likes tea", ttl_seconds=50), remember(desk.store, "likes milk")
    desk.store.expire(EPISODIC, [memory_id], ttl_seconds=60)
    desk.store.merge(EPISODIC, [memory_id, other])
    desk.record()
    assert proven(desk, memory_id).state == "merged"
    run(desk.store, "UPDATE memories SET expires_at = expires_at - 10 WHERE number = 1")
    with pytest.raises(BrokenAudit) as caught:
        proven(desk, memory_id)
    assert (caught.value.number, caught.value.rule) == (1, "the expiry of a memory")


def test_what_was_forgotten_before_it_was_recorded_is_said_to_be_that(desk: Desk) -> None:
    remember(desk.store, "likes tea")
    desk.record()
    gone = remember(desk.store, "likes coffee")
    desk.store.forget(EPISODIC, [gone])
    with pytest.raises(NotOnRecord, match="was forgotten"):
        proven(desk, gone)
    with pytest.raises(UnknownMemory) as caught:
        desk.store.show(gone)
    assert "any" not in str(caught.value)


def test_row_that_was_made_up_with_its_audit_is_not_what_was_recorded(desk: Desk, tmp_path: Path) -> None:
    """Somebody who may write to the database wrote a whole other log, which agrees with itself."""
    from melete.wire.recording.errors import BrokenRecording

    memory_id = remember(desk.store, "likes tea")
    desk.record()
    with open_store(str(tmp_path / "other.db"), desk.clock, new_id=lambda: memory_id) as other:
        remember(other, "likes coffee")
        rows = {}
        with database_of(desk.store).reading() as connection:
            for name in ("recordings", "recorded"):
                rows[name] = [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {name}")]  # noqa: S608
        with database_of(other).writing() as connection:
            for name, values in rows.items():
                for row in values:
                    marks = ", ".join("?" * len(row))
                    connection.exec_driver_sql(f"INSERT INTO {name} VALUES ({marks})", row)  # noqa: S608
        other.verify_audit()
        desk.store = other
        with pytest.raises(BrokenRecording) as caught:
            proven(desk, memory_id)
        assert caught.value.rule == "the hash of the audit row"


def forget_delta(desk: Desk) -> None:
    desk.witnesses.discard([DELTA.place(SPACE, 1)])


def erase_delta(desk: Desk) -> None:
    desk.witnesses.erase(DELTA.place(SPACE, 1))


def forget_operation(index: int) -> Callable[[Desk], None]:
    def harm(desk: Desk) -> None:
        opened = open_delta(desk.witnesses, desk.registry.history[0].delta)
        assert opened is not None
        desk.witnesses.discard([OPERATION.place(opened.batch.root, index)])

    return harm


def erase_operation(index: int) -> Callable[[Desk], None]:
    def harm(desk: Desk) -> None:
        opened = open_delta(desk.witnesses, desk.registry.history[0].delta)
        assert opened is not None
        desk.witnesses.erase(OPERATION.place(opened.batch.root, index))

    return harm


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (forget_delta, NotAtHand),
        (erase_delta, NotOpened),
        *((forget_operation(index), NotOpened) for index in range(3)),
        *((erase_operation(index), NotOpened) for index in range(2)),
    ],
)
def test_missing_witness_is_not_taken_for_a_proof(
    desk: Desk, harm: Callable[[Desk], None], error: type[Exception]
) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.record()
    harm(desk)
    with pytest.raises(error):
        proven(desk, memory_id)


def test_content_that_was_erased_by_hand_is_told_and_the_row_is_still_proven(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.record()
    erase_operation(2)(desk)
    evidence = proven(desk, memory_id)
    assert (evidence.state, evidence.kept, evidence.standing) == ("active", Kept.ERASED, Standing.COMMITTED)


def test_another_registry_than_the_recorded_one_is_refused(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.record()
    desk.registry.address = Address(b"\x55" * 20)
    with pytest.raises(InvalidInput) as caught:
        proven(desk, memory_id)
    assert caught.value.field == "registry"


# Attesting


def forgotten(desk: Desk) -> tuple[str, str]:
    """Two memories of one batch, forgotten by two entries of another."""
    ids = remember(desk.store, "likes coffee"), remember(desk.store, "likes milk")
    desk.record()
    for memory_id in ids:
        desk.store.forget(EPISODIC, [memory_id])
    desk.record()
    return ids


def test_evidence_for_an_attestation_names_all_that_one_transition_ended(desk: Desk) -> None:
    first, second = forgotten(desk)
    anchors = [attesting.require_deleted(proven(desk, memory_id)) for memory_id in (first, second)]
    assert anchors[0] == anchors[1]
    operation = attesting.keep_evidence(desk.store, desk.witnesses, proven(desk, first), anchors[0])
    document: Any = load_json(operation.content)
    assert document["transitionId"] == str(anchors[0].transition_id)
    assert document["sequence"] == "2"
    assert [memory["id"] for memory in document["memories"]] == [first, second]
    opened = open_delta(desk.witnesses, desk.registry.history[0].delta)
    assert opened is not None
    for memory in document["memories"]:
        recorded = memory["recorded"]
        assert recorded["sequence"] == "1"
        assert recorded["leaf"] == str(opened.leaves[recorded["index"]])
    assert b"coffee" not in operation.content
    again = attesting.keep_evidence(desk.store, desk.witnesses, proven(desk, second), anchors[1])
    assert again == operation


def test_memory_that_is_there_is_not_attested_to_be_deleted(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes tea")
    desk.record()
    with pytest.raises(NotForgotten) as caught:
        attesting.require_deleted(proven(desk, memory_id))
    assert caught.value.id == memory_id


def test_forgetting_that_is_not_committed_is_not_attested(desk: Desk) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    with pytest.raises(NotOnRecord, match="was forgotten, but that is not on record yet"):
        attesting.require_deleted(proven(desk, gone))
    desk.recorder.flush()
    with pytest.raises(NotOnRecord):
        attesting.require_deleted(proven(desk, gone))


def test_witness_that_is_still_there_is_not_attested_to_be_erased(desk: Desk) -> None:
    """Somebody put a witness back that was erased."""
    gone = remember(desk.store, "likes coffee")
    desk.record()
    opened = open_delta(desk.witnesses, desk.registry.history[0].delta)
    assert opened is not None
    place = OPERATION.place(opened.batch.root, 2)
    operation = desk.witnesses.get(place)
    desk.store.forget(EPISODIC, [gone])
    desk.record()
    desk.witnesses.discard([place])
    desk.witnesses.put(place, operation)
    evidence = proven(desk, gone)
    assert evidence.kept is Kept.OPENED
    with pytest.raises(NotOnRecord):
        attesting.keep_evidence(desk.store, desk.witnesses, evidence, attesting.require_deleted(evidence))
