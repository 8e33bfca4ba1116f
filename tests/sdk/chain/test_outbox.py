"""What an outbox's file tells of its items, without a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.chain.outbox import Item, Outbox, State
from melete.primitives import Address, Bytes32, keccak256

REGISTRY, OTHER = Address(b"\x11" * 20), Address(b"\x22" * 20)


def make_item(position: int, lane: bytes = b"lane", target: Address = REGISTRY, chain_id: int = 31337) -> Item:
    return Item(chain_id, target, lane, position, keccak256(b"%d" % position), b"call")


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox(tmp_path / "outbox.db") as opened:
        yield opened


def test_added_items_are_given_as_they_are_read_again(outbox: Outbox) -> None:
    for state in (State.DRAFT, State.QUEUED):
        added = outbox.add([make_item(number, lane=state.encode()) for number in (1, 2)], state)
        assert added == [outbox.get(item.id) for item in added]
        assert {item.state for item in added} == {state}


def test_signed_items_are_read_again_as_they_were_written(outbox: Outbox) -> None:
    (item,) = outbox.add([make_item(1)])
    signed = replace(item, state=State.SENT, sender=OTHER, nonce=7, raw=b"raw", transaction_hash=keccak256(b"raw"))
    outbox.record_sent([signed])
    assert outbox.get(item.id) == signed


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=12), st.data())
def test_the_last_item_of_a_lane_has_its_highest_position(
    tmp_path_factory: pytest.TempPathFactory, positions: list[int], data: st.DataObject
) -> None:
    with Outbox(tmp_path_factory.mktemp("outbox") / "outbox.db") as outbox:
        items = outbox.add([make_item(position) for position in positions])
        outbox.add([make_item(2**64 - 1, lane=b"another"), make_item(2**64 - 1, target=OTHER)])
        outbox.add([make_item(2**64 - 1, chain_id=1)])
        given_up = data.draw(st.sets(st.sampled_from(items))) if items else set()
        outbox.record_state(given_up, data.draw(st.sampled_from([State.REFUSED, State.REPLACED])))
        left = sorted(item.position for item in items if item not in given_up)
        last = outbox.last(31337, REGISTRY, b"lane")
        assert [item.position for item in outbox.lane(31337, REGISTRY, b"lane")] == left
        assert (None if last is None else last.position) == (left[-1] if left else None)


def test_items_are_chosen_by_state_and_chain_and_counted_from_the_oldest(outbox: Outbox) -> None:
    here = outbox.add([make_item(number) for number in range(1, 5)])
    there = outbox.add([make_item(1, chain_id=1)])
    outbox.record_state(here[:1], State.CONFLICT)
    assert outbox.items(State.QUEUED, chain_id=31337) == here[1:]
    assert outbox.items(State.QUEUED, chain_id=1) == there
    assert outbox.items(State.QUEUED, chain_id=31337, limit=2) == here[1:3]
    assert [item.state for item in outbox.lane(31337, REGISTRY, b"lane", State.CONFLICT)] == [State.CONFLICT]
    assert outbox.places(State.CONFLICT, 31337) == {(REGISTRY, b"lane")}
    assert outbox.places(State.CONFLICT, 1) == set()
    assert outbox.places(State.SENT, 31337) == set()


def test_effects_and_places_keep_their_types(outbox: Outbox) -> None:
    (item,) = outbox.add([make_item(3)])
    found = outbox.last(31337, REGISTRY, b"lane")
    assert found == item
    assert found is not None
    assert (type(found.target), type(found.effect)) == (Address, Bytes32)
