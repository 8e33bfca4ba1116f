from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput, WitnessMismatch
from melete.memory.delta import ExperienceDelta
from melete.memory.space import GENESIS, Head
from melete.memory.witness import Witness, verify_witness
from melete.primitives import ZERO_BYTES32, Bytes32
from models.memory import compute_delta_commitment, compute_locator_commitment, compute_provenance_commitment
from strategies import nonzero_words, words

from ..strategies import texts

WORD, OTHER = Bytes32(b"\x11" * 32), Bytes32(b"\x22" * 32)
FULL = Witness(WORD, b"payload", WORD, b"provenance", OTHER, "ipfs://locator", Bytes32(b"\x33" * 32))
BARE = Witness(WORD, b"payload", WORD)


@st.composite
def witnesses(draw: Any) -> Witness:
    provenance = draw(st.none() | st.binary(max_size=40))
    locator = draw(st.none() | texts)
    return Witness(
        Bytes32(draw(nonzero_words)),
        draw(st.binary(max_size=40)),
        Bytes32(draw(words)),
        provenance,
        None if provenance is None else Bytes32(draw(words)),
        locator,
        None if locator is None else Bytes32(draw(words)),
    )


heads = st.builds(Head, words.map(Bytes32), words.map(Bytes32), st.integers(0, 2**64 - 2))

# What opens


@given(witnesses())
def test_commitments_are_those_of_the_model_and_absent_ones_zero(witness: Witness) -> None:
    expected = (
        compute_delta_commitment(witness.profile_id, witness.delta_salt, witness.payload),
        bytes(32)
        if witness.provenance is None
        else compute_provenance_commitment(witness.provenance_salt or b"", witness.provenance),
        bytes(32)
        if witness.locator is None
        else compute_locator_commitment(witness.locator_salt or b"", witness.locator),
    )
    assert witness.compute_commitments() == expected


@given(witnesses(), words, heads)
def test_witness_opens_the_delta_that_it_built(witness: Witness, space_id: bytes, head: Head) -> None:
    delta = witness.build_delta(Bytes32(space_id), head)
    assert verify_witness(delta, witness) is delta
    assert (delta.space_id, delta.profile_id) == (space_id, witness.profile_id)
    assert (delta.sequence, delta.prev_state_root) == (head.sequence + 1, head.state_root)


def test_empty_content_is_committed_and_absent_content_is_not() -> None:
    empty = Witness(WORD, b"", WORD, b"", WORD, "", WORD)
    delta = empty.build_delta(WORD, GENESIS)
    assert ZERO_BYTES32 not in (delta.provenance_commitment, delta.locator_commitment)
    with pytest.raises(WitnessMismatch, match="provenanceCommitment"):
        verify_witness(delta, Witness(WORD, b"", WORD))


def test_delta_after_the_last_sequence_cannot_be_built() -> None:
    with pytest.raises(InvalidInput, match="sequence"):
        BARE.build_delta(WORD, Head(WORD, WORD, 2**64 - 1))


# What does not open


def flip(value: bytes, at: int, bit: int) -> bytes:
    return value[:at] + bytes([value[at] ^ 1 << bit]) + value[at + 1 :]


#: The part of a witness that is changed, and the commitment that this leaves closed.
CLOSES = {
    "profile_id": "profileId",
    "payload": "deltaCommitment",
    "delta_salt": "deltaCommitment",
    "provenance": "provenanceCommitment",
    "provenance_salt": "provenanceCommitment",
    "locator_salt": "locatorCommitment",
}


@given(st.sampled_from(list(CLOSES)), st.data())
def test_flipping_any_bit_of_any_part_leaves_its_commitment_closed(name: str, data: st.DataObject) -> None:
    value = getattr(FULL, name)
    flipped = flip(value, data.draw(st.integers(0, len(value) - 1)), data.draw(st.integers(0, 7)))
    with pytest.raises(WitnessMismatch) as caught:
        verify_witness(FULL.build_delta(WORD, GENESIS), replace(FULL, **{name: flipped}))
    assert caught.value.commitment == CLOSES[name]


@given(texts.filter(lambda text: text != FULL.locator))
def test_another_locator_leaves_its_commitment_closed(locator: str) -> None:
    with pytest.raises(WitnessMismatch) as caught:
        verify_witness(FULL.build_delta(WORD, GENESIS), replace(FULL, locator=locator))
    assert caught.value.commitment == "locatorCommitment"


@pytest.mark.parametrize("name", ["delta_commitment", "provenance_commitment", "locator_commitment", "profile_id"])
def test_delta_with_another_commitment_stays_closed_and_the_error_holds_both_words(name: str) -> None:
    delta = FULL.build_delta(WORD, GENESIS)
    with pytest.raises(WitnessMismatch) as caught:
        verify_witness(replace(delta, **{name: OTHER}), FULL)
    assert (caught.value.expected, caught.value.received) == (OTHER, getattr(delta, name))


@pytest.mark.parametrize(
    ("witness", "commitment"),
    [
        (replace(FULL, provenance=None, provenance_salt=None), "provenanceCommitment"),
        (replace(FULL, locator=None, locator_salt=None), "locatorCommitment"),
    ],
    ids=["provenance", "locator"],
)
def test_leaving_out_what_was_committed_or_adding_what_was_not_is_caught(witness: Witness, commitment: str) -> None:
    for committed, shown in ((FULL, witness), (witness, FULL)):
        with pytest.raises(WitnessMismatch) as caught:
            verify_witness(committed.build_delta(WORD, GENESIS), shown)
        assert caught.value.commitment == commitment


def test_space_sequence_and_root_are_no_matter_of_the_witness() -> None:
    delta = FULL.build_delta(WORD, GENESIS)
    elsewhere = replace(delta, space_id=OTHER, sequence=9, prev_state_root=OTHER)
    assert verify_witness(elsewhere, FULL) is elsewhere
    assert isinstance(elsewhere, ExperienceDelta)


# Shape


@pytest.mark.parametrize("salt", [b"", bytes(31), bytes(33), "0x", "hello", 5])
@pytest.mark.parametrize("name", ["profile_id", "delta_salt", "provenance_salt", "locator_salt"])
def test_witness_refuses_words_of_another_length(name: str, salt: Any) -> None:
    with pytest.raises(InvalidInput):
        replace(FULL, **{name: salt})


@pytest.mark.parametrize("missing", ["provenance", "provenance_salt", "locator", "locator_salt"])
def test_witness_refuses_content_without_salt_and_salt_without_content(missing: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(FULL, **{missing: None})
    assert caught.value.field == missing.removesuffix("_salt") + "_salt"


@pytest.mark.parametrize(
    "change",
    [
        {"delta_salt": b"5ec2e7"},
        {"provenance_salt": "5ec2e7"},
        {"locator_salt": "0x5ec2e7"},
        {"payload": "likes 5ec2e7"},
        {"provenance": "told by 5ec2e7"},
        {"locator": b"ipfs://5ec2e7"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_refusal_of_a_witness_shows_neither_content_nor_salts(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(FULL, **change).compute_commitments()
    shown = f"{caught.value} {caught.value!r}"
    assert not any(secret in shown for secret in ("5ec2e7", b"5ec2e7".hex(), b"ipfs://5ec2e7".hex()))


def test_repr_shows_neither_content_nor_salts() -> None:
    secret = Witness(WORD, b"likes tea", OTHER, b"told by ada", OTHER, "ipfs://secret", OTHER)
    shown = f"{secret!r} {secret}"
    for hidden in ("tea", "ada", "secret", OTHER.hex(), b"likes tea".hex()):
        assert hidden not in shown
    assert WORD.hex() in shown
