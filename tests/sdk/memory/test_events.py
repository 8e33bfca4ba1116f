from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from eth_abi import encode
from eth_utils import keccak
from hexbytes import HexBytes
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput
from melete.memory.events import (
    LogReference,
    SpaceAuthorizationUpdated,
    SpaceRegistered,
    TransitionCommitted,
    decode_event,
)
from melete.memory.history import Transition
from melete.primitives import Address, Bytes32
from melete.resources import load_artifact
from strategies import addresses, uint64s, words

from ..strategies import experience_deltas

REFERENCE = LogReference(7, Bytes32(b"\xb1" * 32), Bytes32(b"\x7a" * 32), 3)
REGISTERED = "SpaceRegistered(bytes32,address,address)"
UPDATED = "SpaceAuthorizationUpdated(bytes32,address,address,uint64)"
COMMITTED = "TransitionCommitted(bytes32,bytes32,uint64,bytes32,bytes32,bytes32,bytes32,bytes32,bytes32,address)"
SIGNATURES = [REGISTERED, UPDATED, COMMITTED]


def build_log(signature: str, arguments: list[Any]) -> dict[str, Any]:
    """A log of an event whose first three arguments are indexed, as web3 gives it."""
    types = signature.partition("(")[2][:-1].split(",")
    topics = [encode([kind], [value]) for kind, value in zip(types[:3], arguments[:3], strict=True)]
    return {
        "address": "0x" + "44" * 20,
        "topics": [HexBytes(keccak(text=signature)), *map(HexBytes, topics)],
        "data": HexBytes(encode(types[3:], arguments[3:])),
        "blockNumber": 7,
        "blockHash": HexBytes(b"\xb1" * 32),
        "transactionHash": HexBytes(b"\x7a" * 32),
        "logIndex": 3,
    }


def any_log(signature: str) -> dict[str, Any]:
    word, account = b"\x11" * 32, b"\x22" * 20
    arguments = {
        REGISTERED: [word, account, account],
        UPDATED: [word, account, account, 1],
        COMMITTED: [word, word, 1, *[word] * 6, account],
    }
    return build_log(signature, arguments[signature])


def test_signatures_are_those_of_the_compiled_registry() -> None:
    compiled = {
        f"{entry['name']}({','.join(argument['type'] for argument in entry['inputs'])})": entry["inputs"]
        for entry in load_artifact("AgentMemoryStateRegistry").abi
        if entry["type"] == "event"
    }
    for signature in SIGNATURES:
        assert [argument["indexed"] for argument in compiled[signature]][:3] == [True] * 3
        assert not any(argument["indexed"] for argument in compiled[signature][3:])


@given(words, addresses, addresses)
def test_registration_is_decoded(space_id: bytes, controller: bytes, authorizer: bytes) -> None:
    event = decode_event(build_log(REGISTERED, [space_id, controller, authorizer]))
    assert event == SpaceRegistered(Bytes32(space_id), Address(controller), Address(authorizer), REFERENCE)


@given(words, addresses, addresses, uint64s)
def test_update_is_decoded(space_id: bytes, controller: bytes, authorizer: bytes, nonce: int) -> None:
    event = decode_event(build_log(UPDATED, [space_id, controller, authorizer, nonce]))
    expected = SpaceAuthorizationUpdated(Bytes32(space_id), Address(controller), Address(authorizer), nonce, REFERENCE)
    assert event == expected


@given(experience_deltas, words, words, addresses)
def test_transition_is_decoded(delta: Any, transition_id: bytes, next_state_root: bytes, authorizer: bytes) -> None:
    arguments = [
        delta.space_id,
        transition_id,
        delta.sequence,
        delta.prev_state_root,
        next_state_root,
        delta.delta_commitment,
        delta.provenance_commitment,
        delta.profile_id,
        delta.locator_commitment,
        authorizer,
    ]
    event = decode_event(build_log(COMMITTED, arguments))
    claims = (Bytes32(transition_id), Bytes32(next_state_root), Address(authorizer))
    assert event == TransitionCommitted(delta, *claims, REFERENCE)
    assert event.transition == Transition(delta, *claims)


# What is not ours, or not whole


@given(words, st.lists(words, max_size=3), st.binary(max_size=320))
def test_other_events_are_none_whatever_they_hold(topic: bytes, topics: list[bytes], data: bytes) -> None:
    log = {**any_log(COMMITTED), "topics": [topic, *topics], "data": data}
    assert decode_event(log) is None


@pytest.mark.parametrize("signature", SIGNATURES)
def test_an_event_of_a_like_name_is_none(signature: str) -> None:
    log = any_log(signature)
    log["topics"][0] = HexBytes(keccak(text=signature.replace("bytes32,", "uint256,", 1)))
    assert decode_event(log) is None


def test_an_anonymous_log_is_none() -> None:
    assert decode_event({**any_log(COMMITTED), "topics": []}) is None


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_wrong_number_of_topics_is_refused(signature: str, count: int) -> None:
    log = any_log(signature)
    log["topics"] = (log["topics"] * 2)[:count]
    with pytest.raises(InvalidInput, match="log"):
        decode_event(log)


@pytest.mark.parametrize(
    ("signature", "change"),
    [(signature, change) for signature in SIGNATURES for change in (1, 31, 32, 64)]
    + [(signature, change) for signature in (UPDATED, COMMITTED) for change in (-32, -31, -1)],
)
def test_wrong_number_of_words_is_refused(signature: str, change: int) -> None:
    log = any_log(signature)
    log["data"] = HexBytes(log["data"][:change] if change < 0 else log["data"] + bytes(change))
    with pytest.raises(InvalidInput, match="log"):
        decode_event(log)


def dirty(word: bytes, at: int) -> HexBytes:
    return HexBytes(word[:at] + b"\x01" + word[at + 1 :])


@pytest.mark.parametrize("signature", [REGISTERED, UPDATED])
@pytest.mark.parametrize("topic", [2, 3])
@pytest.mark.parametrize("at", [0, 11])
def test_dirty_address_in_a_topic_is_refused(signature: str, topic: int, at: int) -> None:
    log = any_log(signature)
    log["topics"][topic] = dirty(log["topics"][topic], at)
    with pytest.raises(InvalidInput, match="address word"):
        decode_event(log)


@pytest.mark.parametrize("at", [0, 11])
def test_dirty_authorizer_word_is_refused(at: int) -> None:
    log = any_log(COMMITTED)
    log["data"] = HexBytes(log["data"][:-32] + dirty(log["data"][-32:], at))
    with pytest.raises(InvalidInput, match="address word"):
        decode_event(log)


@pytest.mark.parametrize("at", [0, 23])
def test_number_beyond_64_bits_is_refused(at: int) -> None:
    committed, updated = any_log(COMMITTED), any_log(UPDATED)
    committed["topics"][3] = dirty(committed["topics"][3], at)
    updated["data"] = dirty(updated["data"], at)
    for log in (committed, updated):
        with pytest.raises(InvalidInput, match="log"):
            decode_event(log)


def test_events_at_different_places_differ() -> None:
    event = decode_event(any_log(REGISTERED))
    moved = decode_event({**any_log(REGISTERED), "logIndex": 4})
    assert isinstance(moved, SpaceRegistered)
    assert moved.reference == replace(REFERENCE, log_index=4)
    assert moved != event
