from __future__ import annotations

import multiprocessing
import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete import Bytes32, keccak256
from melete.errors import (
    ConfigurationError,
    InvalidInput,
    MeleteError,
    NotAuthentic,
    NotScrubbed,
    PlaceTaken,
    StoreBusy,
    StoreUnreadable,
    WitnessErased,
    WitnessMismatch,
    WitnessMissing,
    WrongKey,
)
from melete.memory.batch import BatchTree, Operation, verify_inclusion
from melete.memory.witness_keys import Passphrase, StoreKey
from melete.memory.witness_kinds import DELTA, LAYERS, OPERATION, REPORT, LayerDocument, Place
from melete.memory.witness_store import WitnessStore

from .witness_samples import (
    CHEAP,
    KEY,
    OTHER_KEY,
    OTHER_SPACE,
    PASSPHRASE,
    SPACE,
    SUBJECT,
    bytes_on_disk,
    database_of,
    files_of,
    fill,
    make_batch_witness,
    make_deltas,
    make_operations,
    make_witness,
    place,
    rewrite,
    salt,
    sealed_of,
)

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "witnesses.db"


@pytest.fixture
def store(path: Path) -> Iterator[WitnessStore]:
    with WitnessStore.create(path, KEY) as store:
        yield store


# Keeping and getting


def test_what_was_put_comes_back_equal_and_opens_its_delta(store: WitnessStore) -> None:
    witnesses = [make_witness(number) for number in range(1, 16)]
    for delta, witness in zip(make_deltas(witnesses), witnesses, strict=True):
        assert store.put_delta(delta, witness)
        assert store.get(place(delta.sequence)) == witness


def test_store_survives_closing_and_opening(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        witnesses = fill(store, 5)
    with WitnessStore.open(path, KEY) as store:
        assert [entry.record for entry in store.iterate()] == witnesses


def test_putting_the_same_again_changes_nothing(store: WitnessStore) -> None:
    assert store.put(place(1), make_witness(1))
    before = sealed_of(store, place(1))
    assert not store.put(place(1), make_witness(1))
    assert sealed_of(store, place(1)) == before


@pytest.mark.parametrize(
    "other",
    [
        make_witness(2),
        replace(make_witness(3), provenance=b"told by bob"),
        replace(make_witness(3), provenance_salt=salt(7)),
        replace(make_witness(3), provenance=None, provenance_salt=None),
    ],
    ids=["payload", "provenance", "provenance salt", "no provenance"],
)
def test_another_witness_for_the_same_place_is_refused_and_the_first_stays(store: WitnessStore, other: Any) -> None:
    store.put(place(3), make_witness(3))
    with pytest.raises(PlaceTaken) as caught:
        store.put(place(3), other)
    assert (caught.value.kind, caught.value.scope, caught.value.number) == ("delta", SPACE, 3)
    assert store.get(place(3)) == make_witness(3)


def test_witness_that_does_not_open_its_delta_is_refused(store: WitnessStore) -> None:
    (delta,) = make_deltas([make_witness(1)])
    with pytest.raises(WitnessMismatch):
        store.put_delta(delta, make_witness(2))
    assert list(store.iterate()) == []


def test_missing_witness_is_named(store: WitnessStore) -> None:
    fill(store, 2)
    for absent in (place(3), place(1, OTHER_SPACE), OPERATION.place(SPACE, 1)):
        with pytest.raises(WitnessMissing) as caught:
            store.get(absent)
        assert (caught.value.kind, caught.value.scope, caught.value.number) == absent


def test_layer_documents_operations_and_reports_fit_the_same_store(store: WitnessStore) -> None:
    document = LayerDocument({"schema": "amm.layer.memory-skills/1", "layer": 1, "skills": ["tea"]}, salt(1))
    kept = {
        LAYERS[1].place(SUBJECT, 1): document,
        REPORT.place(SUBJECT, 2**64 - 1): {"outcome": "completed"},
        OPERATION.place(SPACE, 0): Operation(b"remember", salt(2)),
        place(2**63): make_witness(1),
    }
    for at, record in kept.items():
        assert store.put(at, record)
        assert not store.put(at, record)
    assert {entry.place: entry.record for entry in store.iterate()} == kept
    assert all(store.get(at) == record for at, record in kept.items())


def test_layer_that_did_not_change_is_found_at_each_of_its_versions(store: WitnessStore) -> None:
    document = LayerDocument({"schema": "amm.layer.runtime/1", "layer": 0}, salt(1))
    for version in (1, 2, 5):
        store.put(LAYERS[0].place(SUBJECT, version), document)
    commitment = LAYERS[0].commit(document)
    assert [entry.number for entry in store.find(commitment)] == [1, 2, 5]
    assert store.find(keccak256(b"nothing")) == []


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (LAYERS[0], LayerDocument({"schema": "amm.layer.tasks-roles/1", "layer": 2}, salt(1))),
        (LAYERS[0], LayerDocument([], salt(1))),  # type: ignore[arg-type]
        (REPORT, ["no object"]),
    ],
)
def test_record_of_another_kind_is_refused(store: WitnessStore, kind: Any, record: Any) -> None:
    with pytest.raises(InvalidInput):
        store.put(kind.place(SUBJECT, 1), record)
    assert list(store.iterate()) == []


@pytest.mark.parametrize("at", [Place("delta", b"short", 1), Place("rumour", SPACE, 1), Place("delta", SPACE, 2**64)])
def test_place_that_is_none_is_refused(store: WitnessStore, at: Place) -> None:
    for use in (store.get, store.erase, lambda at: store.put(at, make_witness(1))):
        with pytest.raises(InvalidInput):
            use(at)


def test_iterating_goes_by_kind_scope_and_number_and_can_be_narrowed(store: WitnessStore) -> None:
    fill(store, 200)
    fill(store, 70, OTHER_SPACE)
    for index, operation in enumerate(make_operations(3)):
        store.put(OPERATION.place(SPACE, index), operation)
    places = [entry.place for entry in store.iterate()]
    assert places == sorted(places)
    assert len(places) == 273
    assert [entry.number for entry in store.iterate(DELTA, SPACE)] == list(range(1, 201))
    assert {entry.scope for entry in store.iterate(DELTA)} == {SPACE, OTHER_SPACE}
    assert len(list(store.iterate(OPERATION))) == 3
    assert [row.place for row in store.list_rows()] == places
    with pytest.raises(InvalidInput):
        next(store.iterate(scope=SPACE))


def test_writing_while_iterating_neither_repeats_nor_loses_what_was_there(store: WitnessStore) -> None:
    fill(store, 150)
    seen = []
    for entry in store.iterate(DELTA, SPACE):
        seen.append(entry.number)
        if entry.number <= 150:
            store.put(place(entry.number, OTHER_SPACE), make_witness(entry.number))
    assert seen == list(range(1, 151))


def test_snapshot_shows_one_state_whatever_others_write(store: WitnessStore, path: Path) -> None:
    fill(store, 100)
    with WitnessStore.open(path, KEY) as other, store.snapshot():
        assert len(list(store.iterate())) == 100
        fill(other, 50, first=101)
        assert len(list(store.iterate())) == 100
    assert len(list(store.iterate())) == 150


def put_at_once(store: WitnessStore, records: list[tuple[int, int]]) -> None:
    """Put witnesses, given as place and number, in one transaction."""
    with store.transaction():
        for at, number in records:
            store.put(place(at), make_witness(number))


def test_transaction_keeps_all_or_nothing(store: WitnessStore) -> None:
    with pytest.raises(PlaceTaken):
        put_at_once(store, [(1, 1), (2, 2), (3, 3), (2, 9)])
    assert list(store.iterate()) == []
    with store.transaction(), store.transaction():
        fill(store, 3)
    assert len(list(store.iterate())) == 3


# Batches


def test_batch_is_kept_with_its_operations_and_each_is_opened_alone(store: WitnessStore) -> None:
    operations = make_operations(11)
    witness = make_batch_witness(operations)
    (delta,) = make_deltas([witness])
    batch = store.put_batch(delta, witness, operations)
    assert store.put_batch(delta, witness, operations) == batch
    store.erase(OPERATION.place(batch.root, 4))
    tree = BatchTree(row.commitment for row in store.list_rows(OPERATION, batch.root))
    for index in set(range(11)) - {4}:
        verify_inclusion(batch, store.get(OPERATION.place(batch.root, index)), tree.prove_inclusion(index))


@pytest.mark.parametrize("operations", [make_operations(2), make_operations(4), make_operations(3)[::-1]])
def test_batch_with_other_operations_than_its_payload_names_is_refused_whole(
    store: WitnessStore, operations: list[Operation]
) -> None:
    witness = make_batch_witness(make_operations(3))
    (delta,) = make_deltas([witness])
    with pytest.raises(WitnessMismatch):
        store.put_batch(delta, witness, operations)
    assert list(store.iterate()) == []


def test_batch_under_another_profile_is_refused(store: WitnessStore) -> None:
    witness = replace(make_batch_witness(make_operations(3)), profile_id=make_witness(1).profile_id)
    (delta,) = make_deltas([witness])
    with pytest.raises(WitnessMismatch):
        store.put_batch(delta, witness, make_operations(3))


# Moving


def test_waiting_witnesses_move_up_when_somebody_else_took_their_place(store: WitnessStore) -> None:
    witnesses = fill(store, 4)
    store.move(DELTA, SPACE, {number: number + 1 for number in (1, 2, 3, 4)})
    assert [(entry.number, entry.record) for entry in store.iterate()] == list(enumerate(witnesses, start=2))
    assert store.put(place(1), make_witness(7))


@pytest.mark.parametrize(
    ("numbers", "error"),
    [({1: 3}, PlaceTaken), ({9: 10}, WitnessMissing), ({1: 9, 2: 9}, InvalidInput), ({4: 9}, WitnessErased)],
)
def test_move_that_cannot_be_moves_nothing(
    store: WitnessStore, numbers: dict[int, int], error: type[MeleteError]
) -> None:
    fill(store, 4)
    store.erase(place(4))
    before = list(store.iterate())
    with pytest.raises(error):
        store.move(DELTA, SPACE, numbers)
    assert list(store.iterate()) == before


# Erasing


def test_erased_row_stays_and_says_so(store: WitnessStore) -> None:
    fill(store, 3)
    assert store.erase(place(2)) == 1
    assert store.erase(place(2)) == 0
    with pytest.raises(WitnessErased):
        store.get(place(2))
    assert [(entry.number, entry.record is None) for entry in store.iterate()] == [(1, False), (2, True), (3, False)]
    assert [row.erased for row in store.list_rows()] == [False, True, False]


def test_erased_witness_is_not_put_back(store: WitnessStore) -> None:
    fill(store, 1)
    store.erase(place(1))
    with pytest.raises(WitnessErased):
        store.put(place(1), make_witness(1))


def test_erasing_what_is_not_there_erases_nothing_else(store: WitnessStore) -> None:
    fill(store, 2)
    with pytest.raises(WitnessMissing):
        store.erase(place(1), place(7))
    assert store.get(place(1)) == make_witness(1)


def leaves_no_trace(secret: bytes, disk: bytes) -> bool:
    return not any(secret[start : start + 8] in disk for start in range(0, len(secret) - 7, 32))


@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_erasure_leaves_no_trace_of_the_ciphertext_in_any_file(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], random: Any, at_once: bool
) -> None:
    path = tmp_path_factory.mktemp("erasure") / "witnesses.db"
    with WitnessStore.create(path, KEY) as store:
        order = random.sample(range(1, len(sizes) + 1), len(sizes))
        for numbers in (order[::2], order[1::2]):
            with store.transaction():
                for number in numbers:
                    store.put(place(number), make_witness(number, os.urandom(sizes[number - 1])))
        moved = random.choice(order)
        store.move(DELTA, SPACE, {moved: 1000})
        gone = [place(number) for number in order if number != moved and random.random() < 0.6] + [place(1000)]
        ciphertexts = [sealed_of(store, at) for at in gone]
        assert not any(leaves_no_trace(ciphertext, bytes_on_disk(path)) for ciphertext in ciphertexts)
        if at_once:
            store.erase(*gone)
        else:
            with store.transaction():
                for at in gone:
                    store.erase(at)
        # While the store is still open, and once it is closed.
        assert all(leaves_no_trace(ciphertext, bytes_on_disk(path)) for ciphertext in ciphertexts)
    assert all(leaves_no_trace(ciphertext, bytes_on_disk(path)) for ciphertext in ciphertexts)


def test_no_plain_text_is_ever_in_any_file(store: WitnessStore, path: Path) -> None:
    secrets = (b"likes tea with milk", b"told by ada lovelace", b"ipfs://secret-locator", bytes(salt(1)))
    witness = make_witness(1, secrets[0])
    store.put(place(1), replace(witness, provenance=secrets[1], provenance_salt=salt(1), locator=secrets[2].decode(),
                                locator_salt=salt(1)))  # fmt: skip
    store.put(OPERATION.place(SPACE, 0), Operation(secrets[0], salt(1)))
    store.put(REPORT.place(SUBJECT, 1), {"note": secrets[0].decode()})
    for action in (lambda: None, lambda: store.change_key(OTHER_KEY), lambda: store.erase(place(1)), store.close):
        action()
        assert not any(secret in bytes_on_disk(path) for secret in secrets)
        assert SPACE in bytes_on_disk(path)


def test_erasure_says_when_a_reader_keeps_the_old_bytes_alive_and_ends_it_when_asked_again(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 3)
    with WitnessStore.open(path, KEY, busy_seconds=0.1) as store:
        secret = sealed_of(store, place(1))
        with WitnessStore.open(path, KEY) as reader, reader.snapshot():
            assert reader.get(place(1)) == make_witness(1)
            with pytest.raises(NotScrubbed):
                store.erase(place(1))
            with pytest.raises(WitnessErased):
                store.get(place(1))
        assert store.erase(place(1)) == 0
        assert leaves_no_trace(secret, bytes_on_disk(path))


def test_opening_ends_an_erasure_that_was_cut_short(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 3)
        secret = sealed_of(store, place(1))
    rewrite(path, "UPDATE witnesses SET sealed = NULL WHERE number = ?", (1).to_bytes(8, "big"))
    rewrite(path, "UPDATE store SET unscrubbed = 1")
    assert not leaves_no_trace(secret, bytes_on_disk(path))
    with WitnessStore.open(path, KEY) as store:
        assert leaves_no_trace(secret, bytes_on_disk(path))
        assert database_of(store).db.execute("SELECT unscrubbed FROM store").fetchone() == (0,)


# Keys


@pytest.mark.parametrize(("old", "new"), [(KEY, OTHER_KEY), (KEY, PASSPHRASE), (PASSPHRASE, KEY), (KEY, KEY)])
def test_key_change_encrypts_every_row_anew_and_leaves_none_of_the_old_bytes(path: Path, old: Any, new: Any) -> None:
    with WitnessStore.create(path, old) as store:
        witnesses = fill(store, 100)
        store.erase(place(7))
        before = [sealed_of(store, place(number)) for number in (1, 50, 100)]
        store.change_key(new)
        assert all(leaves_no_trace(ciphertext, bytes_on_disk(path)) for ciphertext in before)
        assert store.get(place(1)) == witnesses[0]
        assert store.put(place(101), make_witness(101))
    with WitnessStore.open(path, new) as store:
        assert [entry.record for entry in store.iterate()] == [
            None if number == 7 else make_witness(number) for number in range(1, 102)
        ]
    if old is not new:
        with pytest.raises(WrongKey):
            WitnessStore.open(path, old)


def test_other_process_with_the_old_key_learns_of_the_change_and_harms_nothing(path: Path, store: WitnessStore) -> None:
    fill(store, 3)
    with WitnessStore.open(path, KEY) as stale:
        store.change_key(OTHER_KEY)
        for use in (
            lambda: stale.get(place(1)),
            lambda: list(stale.iterate()),
            lambda: stale.put(place(4), make_witness(4)),
            lambda: stale.erase(place(1)),
            lambda: stale.change_key(KEY),
        ):
            with pytest.raises(WrongKey, match="meanwhile"):
                use()
    assert len(list(store.iterate())) == 3


def test_key_change_stops_at_a_row_that_does_not_open_and_changes_nothing(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 3)
    rewrite(path, "UPDATE witnesses SET sealed = zeroblob(80) WHERE number = ?", (2).to_bytes(8, "big"))
    with WitnessStore.open(path, KEY) as store:
        with pytest.raises(NotAuthentic):
            store.change_key(OTHER_KEY)
        assert store.get(place(1)) == make_witness(1)
        store.erase(place(2))
        store.change_key(OTHER_KEY)
        assert store.get(place(3)) == make_witness(3)


def test_key_is_not_changed_inside_another_transaction(store: WitnessStore) -> None:
    fill(store, 1)
    with pytest.raises(ConfigurationError), store.transaction():
        store.change_key(OTHER_KEY)
    assert store.get(place(1)) == make_witness(1)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [(KEY, OTHER_KEY), (KEY, PASSPHRASE), (PASSPHRASE, KEY), (PASSPHRASE, Passphrase("correct horsf", CHEAP))],
)
def test_wrong_key_says_so_and_touches_nothing(path: Path, right: Any, wrong: Any) -> None:
    with WitnessStore.create(path, right) as store:
        fill(store, 3)
    before, times = files_of(path), path.stat()
    for read_only in (False, True):
        with pytest.raises(WrongKey) as caught:
            WitnessStore.open(path, wrong, read_only=read_only)
        assert path.name in str(caught.value)
    assert files_of(path) == before
    assert path.stat().st_mtime_ns == times.st_mtime_ns


def test_wrong_key_touches_nothing_while_the_store_is_in_use(path: Path, store: WitnessStore) -> None:
    fill(store, 3)
    before = files_of(path)
    with pytest.raises(WrongKey):
        WitnessStore.open(path, OTHER_KEY)
    after = files_of(path)
    assert {name: content for name, content in after.items() if not name.endswith("-shm")} == {
        name: content for name, content in before.items() if not name.endswith("-shm")
    }


# Others at work


def test_several_processes_put_into_one_store_and_none_is_lost(path: Path) -> None:
    WitnessStore.create(path, KEY).close()

    def put_every_fourth(rest: int) -> None:
        with WitnessStore.open(path, KEY) as store:
            for number in range(1, 81):
                store.put(place(number, OTHER_SPACE), make_witness(number))  # all put the same
                if number % 4 == rest:
                    store.put(place(number), make_witness(number))

    children = [FORK.Process(target=put_every_fourth, args=(rest,)) for rest in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    with WitnessStore.open(path, KEY) as store:
        for space in (SPACE, OTHER_SPACE):
            assert [entry.record for entry in store.iterate(DELTA, space)] == [make_witness(n) for n in range(1, 81)]


def test_only_one_of_several_processes_makes_the_store(path: Path) -> None:
    made = FORK.Value("i", 0)

    def create(number: int) -> None:
        try:
            WitnessStore.create(path, StoreKey(bytes([number]) * 32)).close()
        except InvalidInput:
            return
        with made.get_lock():
            made.value += 1

    children = [FORK.Process(target=create, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert made.value == 1


def test_threads_share_one_store(store: WitnessStore) -> None:
    failures: list[BaseException] = []

    def put(first: int) -> None:
        try:
            for number in range(first, first + 20):
                store.put(place(number), make_witness(number))
                assert store.get(place(number)) == make_witness(number)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test must see it
            failures.append(error)

    threads = [Thread(target=put, args=(20 * index + 1,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [entry.number for entry in store.iterate()] == list(range(1, 121))


def test_store_in_use_for_too_long_is_said_to_be_busy(path: Path, store: WitnessStore) -> None:
    with WitnessStore.open(path, KEY, busy_seconds=0.05) as other, store.transaction():
        fill(store, 1)
        with pytest.raises(StoreBusy):
            other.put(place(2), make_witness(2))
        assert list(other.iterate()) == []


def test_closed_store_says_that_it_cannot_be_used(store: WitnessStore) -> None:
    store.close()
    with pytest.raises(StoreUnreadable):
        store.get(place(1))


# What is never shown, and never piles up


def test_neither_keys_nor_content_stand_in_a_repr_or_an_error(path: Path) -> None:
    payload, hidden = b"likes tea", salt(5)
    witness = replace(make_witness(1, payload), provenance=b"told by ada", provenance_salt=hidden)
    with WitnessStore.create(path, PASSPHRASE) as store:
        store.put(place(1), witness)
        operation = Operation(payload, hidden)
        shown = [repr(store), repr(KEY), repr(PASSPHRASE), repr(operation), repr(list(store.iterate())), repr(witness)]
        shown.append(repr(LayerDocument({"likes": "tea"}, hidden)))
        for use in (
            lambda: store.put(place(1), replace(witness, payload=b"likes tea a lot")),
            lambda: store.put(place(2), replace(witness, locator="tea \ud800", locator_salt=hidden)),
            lambda: Operation("likes tea", hidden),  # type: ignore[arg-type]
            lambda: Operation(payload, hidden + b"tea"),  # type: ignore[arg-type]
            lambda: WitnessStore.open(path, KEY),
            lambda: StoreKey("ab" * 31),
            lambda: StoreKey(b"ada"),
            lambda: Passphrase("ada\ud800"),
        ):
            with pytest.raises(MeleteError) as caught:
                use()
            shown.append(f"{caught.value} {caught.value!r} {vars(caught.value)}")
    text = " ".join(shown)
    for secret in ("tea", "ada", "horse", hidden.hex(), str(bytes(hidden)), "01" * 32, "ab" * 31, repr(b"\x01" * 32)):
        assert secret not in text


def test_reading_a_long_store_takes_no_more_memory_than_a_short_one(store: WitnessStore) -> None:
    def peak() -> int:
        tracemalloc.start()
        for _ in store.iterate():
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    with store.transaction():
        for number in range(1, 301):
            store.put(place(number), make_witness(number, bytes(1_000)))
    short = peak()
    with store.transaction():
        for number in range(301, 2_001):
            store.put(place(number), make_witness(number, bytes(1_000)))
    assert peak() < 1.5 * short


@given(st.binary(max_size=300), st.none() | st.binary(max_size=50), st.none() | st.text(max_size=20))
def test_any_witness_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, payload: bytes, provenance: bytes | None, locator: str | None
) -> None:
    witness = replace(
        make_witness(1, payload),
        provenance=provenance,
        provenance_salt=None if provenance is None else salt(1),
        locator=locator,
        locator_salt=None if locator is None else salt(2),
    )
    data = DELTA.to_bytes(witness)
    again = DELTA.from_bytes(data)
    assert again == witness
    assert again.compute_commitments() == witness.compute_commitments()
    assert all(type(word) is Bytes32 for word in (again.profile_id, again.delta_salt))
    assert DELTA.from_json(DELTA.to_json(witness)) == witness


@given(st.binary(max_size=400))
def test_bytes_that_are_no_record_are_refused_or_read_without_harm(data: bytes) -> None:
    for kind in (DELTA, OPERATION, LAYERS[0], REPORT):
        try:
            kind.from_bytes(data)
        except InvalidInput as error:
            assert error.value is None or len(data) < 32  # noqa: PT017
