from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from melete import ExperienceDelta, Witness
from melete.errors import WrongKey
from melete.memory.batch import Batch
from melete.memory.profiles import BATCH
from melete.memory.witness_drill import Answer, Finding, drill
from melete.memory.witness_kinds import DELTA, OPERATION
from melete.memory.witness_store import WitnessStore

from .witness_samples import (
    KEY,
    OTHER_KEY,
    make_batch_witness,
    make_deltas,
    make_operations,
    make_witness,
    place,
    salt,
    sealed_of,
)

WITNESSES = [make_witness(number) for number in range(1, 31)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WitnessStore]:
    with WitnessStore.create(tmp_path / "witnesses.db", KEY) as store:
        yield store


def keep(store: WitnessStore, witnesses: list[Witness]) -> list[ExperienceDelta]:
    deltas = list(make_deltas(witnesses))
    with store.transaction():
        for delta, witness in zip(deltas, witnesses, strict=True):
            store.put_delta(delta, witness)
    return deltas


def closed(findings: Iterator[Finding]) -> dict[int, tuple[Answer, str]]:
    """What did not open, by sequence."""
    return {
        finding.place.number: (finding.answer, finding.commitment)
        for finding in findings
        if finding.answer is not Answer.OPENED
    }


def test_drill_opens_every_commitment_of_a_whole_store(store: WitnessStore) -> None:
    deltas = keep(store, WITNESSES)
    assert list(drill(store, deltas)) == [Finding(place(number), Answer.OPENED) for number in range(1, 31)]


def test_drill_names_each_place_that_it_cannot_open_and_why(store: WitnessStore) -> None:
    deltas = keep(store, WITNESSES)
    store.erase(place(3))
    store._database.run("DELETE FROM witnesses WHERE number = x'0000000000000005'")
    swapped = sealed_of(store, place(7))
    store._database.run("UPDATE witnesses SET sealed = ? WHERE number = x'0000000000000008'", (swapped,))
    deltas[10] = replace(deltas[10], delta_commitment=salt(1))
    deltas[11] = replace(deltas[11], provenance_commitment=salt(1))
    deltas[12] = replace(deltas[12], locator_commitment=salt(1))
    deltas[13] = replace(deltas[13], profile_id=salt(1))
    assert closed(drill(store, deltas)) == {
        3: (Answer.ERASED, ""),
        5: (Answer.MISSING, ""),
        8: (Answer.DOES_NOT_DECRYPT, ""),
        11: (Answer.DOES_NOT_OPEN, "deltaCommitment"),
        12: (Answer.DOES_NOT_OPEN, "provenanceCommitment"),
        13: (Answer.DOES_NOT_OPEN, "locatorCommitment"),
        14: (Answer.DOES_NOT_OPEN, "profileId"),
    }


def test_record_that_another_version_wrote_does_not_open(store: WitnessStore) -> None:
    deltas = keep(store, WITNESSES[:2])
    database = store._database
    kind, scope, number = "delta", deltas[0].space_id, (1).to_bytes(8, "big")
    for record in (b"", b"\x20" + bytes(200), b"\x13" + b"\xff" * 200):
        sealed = database.sealer.seal(kind, scope, number, deltas[0].delta_commitment, record)
        database.run("UPDATE witnesses SET sealed = ? WHERE number = ?", (sealed, number))
        assert closed(drill(store, deltas)) == {1: (Answer.DOES_NOT_OPEN, "")}


def test_drill_of_a_store_that_holds_nothing_names_everything(store: WitnessStore) -> None:
    assert closed(drill(store, make_deltas(WITNESSES))) == dict.fromkeys(range(1, 31), (Answer.MISSING, ""))


def test_drill_ends_when_the_key_was_changed_meanwhile(store: WitnessStore) -> None:
    findings = drill(store, keep(store, WITNESSES))
    assert next(findings).answer is Answer.OPENED
    with WitnessStore.open(store.path, KEY) as other:
        other.change_key(OTHER_KEY)
    with pytest.raises(WrongKey):
        next(findings)


# Batches


def drill_batch(store: WitnessStore, harm: Callable[[Batch], object]) -> dict[int, tuple[Answer, str]]:
    operations = make_operations(6)
    witness = make_batch_witness(operations)
    (delta,) = make_deltas([witness])
    harm(store.put_batch(delta, witness, operations))
    first, *others = drill(store, [delta])
    assert first == Finding(place(1), Answer.OPENED)
    assert [finding.place.number for finding in others] == list(range(6))
    assert {finding.place.kind for finding in others} == {"operation"}
    return closed(iter(others))


def test_drill_opens_every_operation_of_a_batch(store: WitnessStore) -> None:
    assert drill_batch(store, lambda _: None) == {}


def test_erased_operation_is_named_and_the_others_open(store: WitnessStore) -> None:
    found = drill_batch(store, lambda batch: store.erase(OPERATION.place(batch.root, 2)))
    assert found == {2: (Answer.ERASED, "")}


def test_lost_leaf_leaves_no_path_to_the_root_for_the_others(store: WitnessStore) -> None:
    found = drill_batch(
        store,
        lambda _: store._database.run(
            "DELETE FROM witnesses WHERE kind = 'operation' AND number = x'0000000000000002'"
        ),
    )
    assert found == dict.fromkeys((0, 1, 3, 4, 5), (Answer.DOES_NOT_OPEN, "root")) | {2: (Answer.MISSING, "")}


def test_operations_that_were_never_kept_are_missing(store: WitnessStore) -> None:
    (delta,) = keep(store, [make_batch_witness(make_operations(3))])
    assert [finding.answer for finding in drill(store, [delta])] == [Answer.OPENED, *[Answer.MISSING] * 3]


def test_payload_that_is_no_batch_under_its_profile_opens_and_has_no_operations(store: WitnessStore) -> None:
    (delta,) = keep(store, [Witness(BATCH.id, b"no batch", salt(1))])
    assert list(drill(store, [delta])) == [Finding(DELTA.place(delta.space_id, 1), Answer.OPENED)]


# Memory


def test_drill_of_a_long_history_takes_no_more_memory_than_of_a_short_one(store: WitnessStore) -> None:
    def peak(count: int) -> int:
        witnesses = (make_witness(number, bytes(1_000)) for number in range(1, count + 1))
        tracemalloc.start()
        for _ in drill(store, make_deltas(witnesses)):  # type: ignore[arg-type]  # one after the other is enough
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    with store.transaction():
        for number in range(1, 801):
            store.put(place(number), make_witness(number, bytes(1_000)))
    peak(10)  # what is loaded once
    assert peak(800) < peak(100) + 100 * 1_000
