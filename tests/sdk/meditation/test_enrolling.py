"""Enrolling, as far as the store goes: what is refused fixes nothing, and a crash loses no salt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from melete.errors import AlreadyEnrolled, InvalidInput, MeleteError, NodeUnreachable
from melete.meditation.enrolling import enroll
from melete.meditation.kept import Kept
from melete.meditation.layers import Layer
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_kinds import LAYERS, LayerDocument
from melete.memory.witness_store import WitnessStore
from melete.primitives import Address, keccak256

from .registry_fake import ADDRESS, NAMES, POLICY, SUBJECT, example

DOCUMENTS: dict[int, Any] = {layer: example(f"baseline/{NAMES[layer]}.json") for layer in Layer}
OTHERS = {**DOCUMENTS, 0: {**DOCUMENTS[0], "extensions": {"a/b": "another"}}}


@dataclass(frozen=True)
class Sender:
    address: Address = SUBJECT


@dataclass
class FakeRegistry:
    chain_id: int = 31337
    address: Address = ADDRESS
    sender: Sender = field(default_factory=Sender)
    refusal: MeleteError | None = None
    fault: MeleteError | None = None
    enrolled: list[Any] = field(default_factory=list)

    def check_enroll(self, *_: Any) -> None:
        if self.refusal is not None:
            raise self.refusal

    def enroll(self, baseline: Any, *_: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        self.enrolled.append(baseline)
        return baseline


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WitnessStore]:
    with WitnessStore.create(tmp_path / "store.db", StoreKey(keccak256(b"a key"))) as store:
        yield store


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def kept(store: WitnessStore, registry: FakeRegistry) -> Callable[[], list[LayerDocument]]:
    return lambda: [Kept(store, registry, SUBJECT).get(LAYERS[layer], 1) for layer in Layer]


def test_what_is_enrolled_is_kept_with_four_fresh_salts(registry, store, kept) -> None:
    enroll(registry, store, DOCUMENTS, POLICY)
    assert [LAYERS[layer].commit(one) for layer, one in enumerate(kept())] == list(registry.enrolled[0])
    assert len({one.salt for one in kept()} | {bytes(32)}) == 5


def test_what_the_registry_refuses_is_refused_before_anything_is_kept(registry, store) -> None:
    registry.refusal = AlreadyEnrolled(SUBJECT)
    with pytest.raises(AlreadyEnrolled):
        enroll(registry, store, DOCUMENTS, POLICY, public_salt=True)
    assert list(store.list_rows()) == []


def test_enrollment_that_failed_goes_on_with_the_same_salts(registry, store, kept) -> None:
    registry.fault = NodeUnreachable("a node", "gone")
    for _ in range(2):
        with pytest.raises(NodeUnreachable):
            enroll(registry, store, DOCUMENTS, POLICY)
    salts = [one.salt for one in kept()]
    registry.fault = None
    enroll(registry, store, DOCUMENTS, POLICY)
    assert [one.salt for one in kept()] == salts


@pytest.mark.parametrize(("first", "then"), [(True, False), (False, True)])
def test_salt_of_the_other_kind_is_not_taken_from_a_failed_enrollment(registry, store, kept, first, then) -> None:
    registry.fault = NodeUnreachable("a node", "gone")
    with pytest.raises(NodeUnreachable):
        enroll(registry, store, DOCUMENTS, POLICY, public_salt=first)
    registry.fault = None
    enroll(registry, store, DOCUMENTS, POLICY, public_salt=then)
    assert {one.salt == bytes(32) for one in kept()} == {then}


def test_other_documents_take_the_places_of_a_failed_enrollment_which_stay_found(registry, store, kept) -> None:
    registry.fault = NodeUnreachable("a node", "gone")
    with pytest.raises(NodeUnreachable):
        enroll(registry, store, DOCUMENTS, POLICY)
    first, registry.fault = kept()[0], None
    enroll(registry, store, OTHERS, POLICY)
    assert kept()[0].document == OTHERS[0]
    # Should its transaction come through after all.
    assert Kept(store, registry, SUBJECT).open(LAYERS[0], LAYERS[0].commit(first), 1) == first


def test_documents_that_are_not_four_are_refused(registry, store) -> None:
    with pytest.raises(InvalidInput):
        enroll(registry, store, {0: DOCUMENTS[0]}, POLICY)
