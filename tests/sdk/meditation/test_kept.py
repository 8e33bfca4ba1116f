"""What a witness store keeps for a subject: by chain and registry, and as it was kept before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from melete.errors import StoreUnreadable, WitnessErased, WitnessMissing
from melete.meditation.kept import SET_ASIDE, Kept, find_records
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_kinds import LAYERS, REPORT, LayerDocument, subject_scope
from melete.memory.witness_store import WitnessStore
from melete.primitives import Address, Bytes32, keccak256

from .registry_fake import ADDRESS, BASELINE, SUBJECT

RUNTIME = LAYERS[0]


@dataclass(frozen=True)
class Where:
    chain_id: int = 1
    address: Address = ADDRESS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WitnessStore]:
    with WitnessStore.create(tmp_path / "store.db", StoreKey(keccak256(b"a key"))) as store:
        yield store


@pytest.fixture
def kept(store: WitnessStore) -> Kept:
    return Kept(store, Where(), SUBJECT)


def version(number: int) -> LayerDocument:
    return LayerDocument({**BASELINE[0].document, "extensions": {"a/b": number}}, Bytes32(bytes([number]) * 32))


def record(number: int) -> dict[str, Any]:
    return {"subject": str(SUBJECT), "number": number}


def test_scope_is_of_one_subject_of_one_registry_on_one_chain() -> None:
    a, b = Address(b"\x11" * 20), Address(b"\x22" * 20)
    scopes = {subject_scope(*place) for place in ((1, a, b), (2, a, b), (1, b, a), (1, a, a), (1, b, b))}
    assert len(scopes) == 5
    assert {len(scope) for scope in scopes} == {32}


def test_places_of_two_chains_and_of_two_registries_are_two(store, kept) -> None:
    others = [Kept(store, where, SUBJECT) for where in (Where(chain_id=2), Where(address=Address(b"\x22" * 20)))]
    for number, one in enumerate((kept, *others), 1):
        one.put(RUNTIME, 2, version(number))
    assert [one.get(RUNTIME, 2) for one in (kept, *others)] == [version(number) for number in (1, 2, 3)]
    for one, number in ((kept, 2), (others[0], 3)):
        assert one.find(RUNTIME, RUNTIME.commit(version(number))) == []


def test_what_was_kept_under_the_subject_alone_is_still_read(store, kept) -> None:
    store.put(RUNTIME.place(SUBJECT, 2), version(1))
    assert kept.get(RUNTIME, 2) == version(1)
    assert kept.open(RUNTIME, RUNTIME.commit(version(1)), 2) == version(1)
    assert kept.versions(RUNTIME) == [2]
    kept.put(RUNTIME, 2, version(2))
    assert kept.get(RUNTIME, 2) == version(2)
    assert kept.open(RUNTIME, RUNTIME.commit(version(1)), 2) == version(1)


def test_what_the_chain_does_not_have_leaves_its_place_and_is_found_by_what_it_opens(kept) -> None:
    for number in (1, 2, 3):
        kept.put(RUNTIME, number, version(number))
        kept.put(REPORT, number, record(number))
    kept.set_aside(1, 2)
    assert kept.versions(RUNTIME) == [1]
    with pytest.raises(WitnessMissing):
        kept.get(RUNTIME, 2)
    assert kept.get(REPORT, 2) == record(2)
    for number in (2, 3):
        assert kept.open(RUNTIME, RUNTIME.commit(version(number)), number) == version(number)
    kept.put(RUNTIME, 2, version(7))
    kept.set_aside(1, 2)
    assert kept.open(RUNTIME, RUNTIME.commit(version(7)), 2) == version(7)
    aside = [row.place.number for row in kept.store.list_rows(RUNTIME) if row.place.number >= SET_ASIDE]
    assert aside == [SET_ASIDE, SET_ASIDE + 1, SET_ASIDE + 2]


def test_erased_document_is_told_as_such_until_its_place_is_needed(kept) -> None:
    kept.put(RUNTIME, 2, version(2))
    kept.store.erase(kept.place(RUNTIME, 2))
    for look in (lambda: kept.get(RUNTIME, 2), lambda: kept.open(RUNTIME, RUNTIME.commit(version(2)), 2)):
        with pytest.raises(WitnessErased):
            look()
    kept.set_aside(1, 0)
    kept.put(RUNTIME, 2, version(3))


def spoil(store: WitnessStore, place: Any, commitment: Bytes32) -> None:
    """A row as another version might have written it."""
    store._put(place, commitment, bytes(32) + b"\x00 no JSON")


def test_record_that_this_version_does_not_read_is_named_by_its_place(store, kept) -> None:
    word = RUNTIME.commit(version(1))
    spoil(store, kept.place(RUNTIME, 4), word)
    looks = (lambda: kept.get(RUNTIME, 4), lambda: kept.open(RUNTIME, word, 4), lambda: kept.find(RUNTIME, word))
    for look in looks:
        with pytest.raises(StoreUnreadable, match=f"layer.0 4 of 0x{kept.place(RUNTIME, 4).scope.hex()}"):
            look()
    spoil(store, kept.place(REPORT, 4), word)
    with pytest.raises(StoreUnreadable, match="report 4"):
        find_records(store, SUBJECT, 4)


def test_number_that_cannot_be_read_as_an_integer_is_read_as_the_float_that_it_was(kept) -> None:
    wide = {**record(1), "observed": [1e16, -(2.0**60)]}
    kept.put(REPORT, 1, wide)
    assert kept.get(REPORT, 1) == wide
    assert kept.open(REPORT, REPORT.commit(wide), 1) == wide


def test_records_of_a_subject_are_found_without_knowing_the_registry(store, kept) -> None:
    kept.put(REPORT, 1, record(1))
    Kept(store, Where(2), SUBJECT).put(REPORT, 1, record(2))
    Kept(store, Where(), Address(b"\x33" * 20)).put(REPORT, 1, {"subject": "0x" + "33" * 20})
    store.put(REPORT.place(SUBJECT, 1), record(3))
    assert sorted(one["number"] for one in find_records(store, SUBJECT, 1)) == [1, 2, 3]
    assert find_records(store, SUBJECT, 2) == []


def test_record_that_cannot_be_read_does_not_hide_another(store, kept) -> None:
    kept.put(REPORT, 4, record(4))
    spoil(store, Kept(store, Where(2), SUBJECT).place(REPORT, 4), Bytes32(b"\x01" * 32))
    assert find_records(store, SUBJECT, 4) == [record(4)]
