"""Logs as a node writes them: what is read quickly is what is read slowly, be it right or wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.chain.scan.form import as_web3, decode_log
from melete.errors import BrokenHistory, InvalidInput, MeleteError, UnusableLogs
from melete.memory.events import (
    TOPICS,
    MemoryEvent,
    SpaceAuthorizationUpdated,
    SpaceRegistered,
    TransitionCommitted,
    decode_event,
)
from melete.memory.forensics import follow_space, verify_space_history
from melete.memory.raw_history import decode_quickly, verify_space_logs
from melete.memory.space import SpaceState
from melete.primitives import uint_word

from .test_events import COMMITTED, REGISTERED, UPDATED, any_log, build_log
from .test_forensics import ACCOUNTS, OTHER, WORD, Registry, a_life, of_space, registries

KIND = dict(zip((SpaceRegistered, SpaceAuthorizationUpdated, TransitionCommitted), TOPICS, strict=True))


def write_log(event: MemoryEvent) -> dict[str, Any]:
    """An event's log, as JSON-RPC writes it."""
    if isinstance(event, TransitionCommitted):
        delta = event.delta
        indexed = [delta.space_id, event.transition_id, uint_word(delta.sequence)]
        commitments = [delta.delta_commitment, delta.provenance_commitment, delta.profile_id, delta.locator_commitment]
        words = [delta.prev_state_root, event.next_state_root, *commitments, event.authorizer.word]
    else:
        indexed = [event.space_id, event.controller.word, event.authorizer.word]
        words = [uint_word(event.config_nonce)] if isinstance(event, SpaceAuthorizationUpdated) else []
    reference = event.reference
    return {
        "address": "0x" + "44" * 20,
        "topics": ["0x" + word.hex() for word in (KIND[type(event)], *indexed)],
        "data": "0x" + b"".join(words).hex(),
        "blockNumber": hex(reference.block_number),
        "blockHash": str(reference.block_hash),
        "transactionHash": str(reference.transaction_hash),
        "logIndex": hex(reference.log_index),
        "removed": False,
    }


def quickly(logs: list[dict[str, Any]], start: SpaceState | None = None) -> Any:
    return outcome(lambda: verify_space_logs(WORD, iter(logs), start))


def slowly(logs: list[dict[str, Any]], start: SpaceState | None = None) -> Any:
    def verify() -> SpaceState:
        decoded = (decode_log(decode_event, log) for log in logs)
        return verify_space_history(WORD, (event for event in decoded if event is not None), start)  # type: ignore[misc]

    return outcome(verify)


def outcome(read: Any) -> Any:
    try:
        return read()
    except MeleteError as error:
        return type(error), str(error)


# Verifying


def test_logs_are_written_as_they_are_decoded() -> None:
    events = a_life()
    assert [decode_event(as_web3(write_log(event))) for event in events] == events


@given(registries())
def test_logs_lead_to_the_state_that_their_events_lead_to(registry: Registry) -> None:
    for space_id, state in registry.states.items():
        logs = [write_log(event) for event in of_space(registry.events, space_id)]
        assert verify_space_logs(space_id, iter(logs)) == state


def test_reading_goes_on_from_any_state_in_the_middle() -> None:
    logs = [write_log(event) for event in a_life()]
    whole = verify_space_logs(WORD, logs)
    for cut in range(1, len(logs) + 1):
        assert verify_space_logs(WORD, logs[cut:], verify_space_logs(WORD, logs[:cut])) == whole


def test_without_a_registration_there_is_no_state() -> None:
    with pytest.raises(BrokenHistory, match="a registration"):
        verify_space_logs(WORD, [])


def test_logs_of_other_events_are_passed_over() -> None:
    logs = [write_log(event) for event in a_life()]
    for place in range(len(logs) + 1):
        other = {**logs[0], "topics": [str(OTHER)]}
        assert verify_space_logs(WORD, [*logs[:place], other, *logs[place:]]) == verify_space_logs(WORD, logs)


#: What a node, or whoever stands before it, may write in place of a text of hex.
JUNK: list[Any] = [
    "", "0x", "0x0", "0x1", "0x2", "0x-1", "-0x1", " 0x1", "0x_1", "0x" + "0" * 63, "0x" + "0" * 64, "0x" + "00" * 33,
    "0x" + " " * 64, "0x" + "ff" * 32, "zz" + "11" * 32, "0x" + "é" * 64, None, 1, [], {},
]  # fmt: skip


@given(st.data())
def test_logs_that_are_tampered_with_end_as_their_events_do(data: st.DataObject) -> None:
    logs = [write_log(event) for event in a_life()]
    for _ in range(data.draw(st.integers(1, 2))):
        log = data.draw(st.sampled_from(logs))
        member = data.draw(st.sampled_from(["topics", "topic", "data", "blockNumber", "blockHash", "transactionHash",
                                            "logIndex", "gone", "again", "swapped"]))  # fmt: skip
        if member == "gone":
            logs.remove(log)
        elif member == "again":
            logs.insert(data.draw(st.integers(0, len(logs))), log)
        elif member == "swapped":
            at = logs.index(log)
            logs[at - 1], logs[at] = logs[at], logs[at - 1]
        elif member == "topics":
            held = log["topics"] or []
            log["topics"] = data.draw(st.sampled_from([held[:3], [*held, str(WORD)], [], None, "four"]))
        elif member == "topic" and log["topics"]:
            log["topics"] = [*log["topics"]]
            at = data.draw(st.integers(0, len(log["topics"]) - 1))
            log["topics"][at] = data.draw(changed(log["topics"][at]))
        elif member != "topic":
            log[member] = data.draw(changed(log[member]))
        if not logs:
            return
    assert quickly(logs) == slowly(logs)


def changed(text: Any) -> st.SearchStrategy[Any]:
    """A text in other letters, cut, moved against its neighbour, with one digit changed; or something else."""
    if not isinstance(text, str):
        return st.sampled_from(JUNK)

    def put(at: int, digit: str) -> str:
        return text[:at] + digit + text[at + 1 :]

    ways = [text.upper(), text.upper().replace("0X", "0x"), text[:-2], text + "00", text + " "]
    ways.append(text[:2] + " " + text[2:-1])
    digits = st.builds(put, st.integers(0, max(0, len(text) - 1)), st.sampled_from("01f x-"))
    return st.sampled_from(JUNK) | st.sampled_from(ways) | digits


def test_upper_case_is_read_as_well() -> None:
    logs = [write_log(event) for event in a_life()]
    shouted = [{**log, "data": "0x" + log["data"][2:].upper(), "topics": [topic.upper() for topic in log["topics"]]}
               for log in logs]  # fmt: skip
    assert verify_space_logs(WORD, shouted) == verify_space_logs(WORD, logs)


def test_a_word_that_borrows_from_its_neighbour_is_refused() -> None:
    log = write_log(a_life()[1])
    _, _, named, sequence = log["topics"]
    log["topics"][2:] = [named + sequence[2:4], "0x" + sequence[4:]]
    logs = [write_log(a_life()[0]), log]
    with pytest.raises(UnusableLogs):
        verify_space_logs(WORD, logs)


def test_every_state_on_the_way_is_the_one_that_events_lead_to() -> None:
    events = a_life()
    steps = list(follow_space(WORD, events))
    for end, step in enumerate(steps, start=1):
        assert verify_space_logs(WORD, [write_log(event) for event in events[:end]]) == step.state


def test_a_log_that_comes_twice_is_named_by_the_sequence_that_was_due() -> None:
    logs = [write_log(event) for event in a_life()]
    twice = [*logs[:2], *logs[1:]]
    assert quickly(twice) == slowly(twice)
    with pytest.raises(BrokenHistory) as caught:
        verify_space_logs(WORD, twice)
    assert (caught.value.sequence, caught.value.rule) == (2, "event_order")


def test_an_event_at_the_same_place_as_the_one_before_is_out_of_order() -> None:
    registry = Registry()
    registry.register(WORD, ACCOUNTS[0], ACCOUNTS[1])
    registry.commit(WORD)
    registry.commit(WORD)
    logs = [write_log(event) for event in registry.events]
    for place in (1, 2):
        moved = [dict(log) for log in logs]
        moved[place].update({name: moved[place - 1][name] for name in ("blockNumber", "logIndex")})
        with pytest.raises(BrokenHistory) as caught:
            verify_space_logs(WORD, moved)
        assert caught.value.rule == "event_order"


# Decoding quickly


@given(st.sampled_from([REGISTERED, UPDATED, COMMITTED]), st.data())
def test_quick_decoding_gives_the_same_events(signature: str, data: st.DataObject) -> None:
    word = st.binary(min_size=32, max_size=32)
    account = st.binary(min_size=20, max_size=20)
    number = st.integers(0, 2**64 - 1)
    shapes: dict[str, list[Any]] = {
        REGISTERED: [word, account, account],
        UPDATED: [word, account, account, number],
        COMMITTED: [word, word, number, *[word] * 6, account],
    }
    log = build_log(signature, [data.draw(shape) for shape in shapes[signature]])
    event = decode_quickly(log)
    assert event == decode_event(log)
    assert type(event) is type(decode_event(log))


def decoded(decode: Any, log: Any) -> Any:
    try:
        return decode(log)
    except InvalidInput as error:
        return vars(error)


@given(st.sampled_from([REGISTERED, UPDATED, COMMITTED]), st.integers(0, 7), st.binary(max_size=33), st.data())
def test_quick_decoding_refuses_the_same_logs(signature: str, place: int, junk: bytes, data: st.DataObject) -> None:
    log = any_log(signature)
    if place < 4:
        log["topics"][place] = junk
    elif place == 4:
        log["topics"] = log["topics"][: len(junk) % 5]
    elif place == 5:
        at = data.draw(st.integers(0, len(log["data"])))
        log["data"] = bytes(log["data"])[:at] + junk + bytes(log["data"])[at:]
    else:
        log["blockHash" if place == 6 else "transactionHash"] = junk
    assert decoded(decode_quickly, log) == decoded(decode_event, log)


@pytest.mark.parametrize("member", ["sequence", "authorizer"])
@pytest.mark.parametrize("at", [0, 11])
def test_quick_decoding_leaves_dirty_words_to_the_one_that_refuses_them(member: str, at: int) -> None:
    log = any_log(COMMITTED)
    if member == "sequence":
        log["topics"][3] = log["topics"][3][:at] + b"\x01" + log["topics"][3][at + 1 :]
    else:
        at += 192
        log["data"] = bytes(log["data"])[:at] + b"\x01" + bytes(log["data"])[at + 1 :]
    with pytest.raises(InvalidInput):
        decode_quickly(log)
