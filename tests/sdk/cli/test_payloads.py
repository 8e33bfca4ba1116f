"""What is shown of what a witness opens: decoded by its profile, escaped, bounded; and how far a long run has come."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.cli import progress
from melete.cli.history_lines import event_to_json, event_to_text
from melete.cli.payloads import (
    MOST_BYTES,
    Answer,
    Opening,
    describe_payload,
    open_delta,
    profiles,
    shown_payload,
    store_at_hand,
)
from melete.cli.progress import Progress
from melete.cli.stores import WitnessOptions
from melete.errors import ConfigurationError, MissingFile
from melete.memory.batch import Batch
from melete.memory.commitment import compute_profile_id
from melete.memory.events import LogReference, SpaceAuthorizationUpdated, SpaceRegistered, TransitionCommitted
from melete.memory.forensics import COULD_NOT_TELL, Approval, ApprovedBy, Step
from melete.memory.history import Transition
from melete.memory.profiles import BATCH, ENCRYPTED, JSON, PLAIN, seal
from melete.memory.space import GENESIS, Head, SpaceAuthorization, SpaceState
from melete.memory.witness import Witness
from melete.memory.witness_keys import create_key_file, load_key_file
from melete.memory.witness_kinds import DELTA
from melete.memory.witness_store import WitnessStore
from melete.primitives import Address, Bytes32, keccak256

from ..memory.witness_samples import KEY, SPACE, make_witness, salt

KNOWN = profiles()
ACCOUNT, OTHER = Address(b"\x11" * 20), Address(b"\x22" * 20)
REFERENCE = LogReference(7, keccak256(b"block"), keccak256(b"transaction"), 3)
IN_FORCE = SpaceAuthorization(ACCOUNT, OTHER)
HOSTILE = b"\x1b[2J\r\nall is well \xe2\x80\xae\x07"


def text_of(profile_id: Bytes32, payload: bytes) -> str:
    text = shown_payload(describe_payload(KNOWN, profile_id, payload))
    assert text.isprintable()
    assert text.isascii()
    assert len(text) < 300
    return text


# Payloads


def test_plain_bytes_are_shown_as_text_where_they_are_text_and_as_hex_else() -> None:
    assert text_of(PLAIN.id, b"green tea") == "melete.plain/1 'green tea'"
    assert text_of(PLAIN.id, b"\xff\x00") == "melete.plain/1 '0xff00'"
    assert describe_payload(KNOWN, PLAIN.id, b"tea") == {
        "payloadBytes": 3, "profile": "melete.plain/1", "payload": "0x746561", "text": "tea"
    }  # fmt: skip


def test_values_of_other_profiles_are_shown_as_their_json() -> None:
    assert text_of(JSON.id, b'{"op":"add"}') == 'melete.json/1 \'{"op":"add"}\''
    batch = Batch(3, keccak256(b"root"))
    assert '\'{"count":3' in text_of(BATCH.id, batch.to_payload())
    assert describe_payload(KNOWN, BATCH.id, batch.to_payload())["payload"] == batch.to_json()
    envelope = seal(b"hidden", b"k" * 32, b"n" * 12).to_payload()
    assert "hidden" not in text_of(ENCRYPTED.id, envelope)


def test_bytes_of_an_unknown_profile_are_shown_as_they_are() -> None:
    found = describe_payload(KNOWN, compute_profile_id("mine/1"), b"tea")
    assert found == {"payloadBytes": 3, "payload": "0x746561", "text": "tea"}
    assert text_of(compute_profile_id("mine/1"), b"tea") == "unknown profile 'tea'"


def test_what_its_own_profile_refuses_is_not_shown() -> None:
    found = describe_payload(KNOWN, JSON.id, b'{"secret": 1 }')
    assert "payload" not in found
    assert "secret" not in json.dumps(found)
    assert "RFC 8785" in text_of(JSON.id, b'{"secret": 1 }')


def test_a_payload_beyond_the_bound_is_not_shown_to_anyone() -> None:
    assert "payload" in describe_payload(KNOWN, PLAIN.id, b"x" * MOST_BYTES)
    found = describe_payload(KNOWN, PLAIN.id, b"x" * (MOST_BYTES + 1))
    assert set(found) == {"payloadBytes", "notShown"}
    assert "longer" in text_of(PLAIN.id, b"x" * (MOST_BYTES + 1))


@given(st.sampled_from([PLAIN.id, JSON.id, BATCH.id, ENCRYPTED.id, salt(1)]), st.binary(max_size=300))
def test_any_payload_is_one_short_printable_line_and_json(profile_id: Bytes32, payload: bytes) -> None:
    text_of(profile_id, payload)
    json.dumps(describe_payload(KNOWN, profile_id, payload))


# Stores


@pytest.fixture
def store(tmp_path: Path) -> Any:
    WitnessStore.create(tmp_path / "store.db", KEY).close()
    with WitnessStore.open(tmp_path / "store.db", KEY) as opened:
        yield opened


def test_a_delta_opens_at_its_place_and_wherever_else_its_commitment_is_kept(store: WitnessStore) -> None:
    witness = make_witness(15)
    delta = witness.build_delta(SPACE, GENESIS)
    assert open_delta(store, delta) == Opening(Answer.MISSING)
    store.put(DELTA.place(SPACE, 9), witness)
    assert open_delta(store, delta) == Opening(Answer.OPENED, witness)
    store.put(DELTA.place(SPACE, 1), make_witness(2))
    assert open_delta(store, delta) == Opening(Answer.OPENED, witness), "another witness has its place"
    store.erase(DELTA.place(SPACE, 9))
    assert open_delta(store, delta) == Opening(Answer.DOES_NOT_OPEN, make_witness(2), "deltaCommitment")


def test_an_erased_witness_is_nothing_wrong_and_another_one_is(store: WitnessStore) -> None:
    delta = make_witness(1).build_delta(SPACE, GENESIS)
    store.put(DELTA.place(SPACE, 1), make_witness(1))
    store.erase(DELTA.place(SPACE, 1))
    assert open_delta(store, delta) == Opening(Answer.ERASED)
    held = [answer for answer in Answer if Opening(answer).holds]
    assert held == [Answer.OPENED, Answer.MISSING, Answer.ERASED]


def test_a_witness_that_opens_one_commitment_of_three_does_not_open(store: WitnessStore) -> None:
    committed, kept = make_witness(15), make_witness(15)
    kept = Witness(kept.profile_id, kept.payload, kept.delta_salt, b"told by eve", salt(3), kept.locator, salt(4))
    store.put(DELTA.place(SPACE, 1), kept)
    opening = open_delta(store, committed.build_delta(SPACE, GENESIS))
    assert (opening.answer, opening.closed) == (Answer.DOES_NOT_OPEN, "provenanceCommitment")


def test_no_key_named_means_no_store_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MELETE_WITNESS_KEY", "MELETE_WITNESS_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)
    with store_at_hand(WitnessOptions(tmp_path / "store.db", None)) as store:
        assert store is None
    monkeypatch.setenv("MELETE_WITNESS_KEY", "11" * 32)
    monkeypatch.setenv("MELETE_WITNESS_PASSPHRASE", "two of them")
    with pytest.raises(ConfigurationError), store_at_hand(WitnessOptions(tmp_path / "store.db", None)):
        pass


def test_a_key_named_for_a_store_that_is_not_there_is_told(tmp_path: Path) -> None:
    create_key_file(tmp_path / "key")
    with pytest.raises(MissingFile), store_at_hand(WitnessOptions(tmp_path / "store.db", str(tmp_path / "key"))):
        pass
    WitnessStore.create(tmp_path / "store.db", load_key_file(tmp_path / "key")).close()
    before = (tmp_path / "store.db").read_bytes()
    with store_at_hand(WitnessOptions(tmp_path / "store.db", str(tmp_path / "key"))) as store:
        assert store is not None
    assert (tmp_path / "store.db").read_bytes() == before


# Events


def committed(witness: Witness) -> Step:
    claim = Transition.of(witness.build_delta(SPACE, GENESIS), OTHER)
    event = TransitionCommitted(claim.delta, claim.transition_id, claim.next_state_root, OTHER, REFERENCE)
    return Step(event, IN_FORCE, SpaceState(IN_FORCE, Head(claim.transition_id, claim.next_state_root, 1)))


STEPS = [
    Step(SpaceRegistered(SPACE, ACCOUNT, OTHER, REFERENCE), IN_FORCE, SpaceState(IN_FORCE)),
    Step(SpaceAuthorizationUpdated(SPACE, ACCOUNT, OTHER, 1, REFERENCE), IN_FORCE, SpaceState(IN_FORCE)),
    committed(Witness(PLAIN.id, HOSTILE, salt(1))),
]
APPROVALS = [None, COULD_NOT_TELL, Approval(ApprovedBy.KEY, OTHER), Approval(ApprovedBy.DIRECT_CALL, ACCOUNT)]
OPENINGS = [
    None,
    *(Opening(answer) for answer in Answer),
    Opening(Answer.OPENED, Witness(PLAIN.id, HOSTILE, salt(1))),
    Opening(Answer.DOES_NOT_OPEN, Witness(PLAIN.id, b"private", salt(1)), "deltaCommitment"),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("approval", APPROVALS)
@pytest.mark.parametrize("opening", OPENINGS)
def test_every_event_is_a_printable_line_and_an_object_without_secrets(
    step: Step, approval: Approval | None, opening: Opening | None
) -> None:
    line = event_to_text(step, approval, opening, KNOWN)
    assert line.isprintable()
    assert line.isascii()
    text = json.dumps(event_to_json(step, approval, opening, KNOWN))
    for shown in (line, text):
        assert "private" not in shown
        assert salt(1).hex() not in shown
    if approval is not None:
        assert approval.by.value in line


def test_an_object_holds_the_whole_delta_and_where_it_stands() -> None:
    found = event_to_json(STEPS[2], APPROVALS[2], None, KNOWN)
    event = STEPS[2].event
    assert isinstance(event, TransitionCommitted)
    assert event.delta.to_json().items() <= found.items()
    assert (found["approved"], found["approvedBy"]) == ("its key signed", str(OTHER))
    assert (found["block"], found["blockHash"], found["logIndex"]) == (7, str(REFERENCE.block_hash), 3)
    assert "witness" not in found


# Progress


class Terminal(io.StringIO):
    def __init__(self, watched: bool) -> None:
        super().__init__()
        self._watched = watched

    def isatty(self) -> bool:
        return self._watched


@pytest.mark.parametrize("watched", [True, False])
def test_progress_is_told_where_somebody_looks_and_taken_back(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(watched), iter([10.0, 10.01, 11.0])
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    shown = Progress()
    for text in ("block 1", "block 2", "block 3" + "x" * 200):
        shown.tell(text)
    shown.clear()
    shown.clear()
    written = terminal.getvalue()
    assert ("block 1" in written, "block 2" in written, "block 3" in written) == (watched, False, watched)
    assert written.endswith("\r") is watched
    assert all(len(part) <= progress.WIDTH for part in written.split("\r"))
