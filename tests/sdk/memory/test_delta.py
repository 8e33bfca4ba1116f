from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from eth_abi import encode
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from melete.errors import InvalidInput
from melete.memory.delta import ExperienceDelta, compute_next_state_root, compute_transition_id
from melete.primitives import ZERO_BYTES32, Bytes32
from melete.resources import load_schema
from models.memory import compute_next_state_root as model_next_state_root
from models.memory import hash_experience_delta
from strategies import words

from ..strategies import as_model, experience_deltas

WORD = Bytes32(b"\x11" * 32)
DELTA = ExperienceDelta(WORD, 7, WORD, WORD, WORD, WORD, WORD)
DOCUMENT = DELTA.to_json()
WORDS = ["spaceId", "prevStateRoot", "deltaCommitment", "provenanceCommitment", "profileId", "locatorCommitment"]
ATTRIBUTES = {
    "spaceId": "space_id",
    "prevStateRoot": "prev_state_root",
    "deltaCommitment": "delta_commitment",
    "provenanceCommitment": "provenance_commitment",
    "profileId": "profile_id",
    "locatorCommitment": "locator_commitment",
}

# Hashes


@given(experience_deltas)
def test_transition_id_is_the_struct_hash_of_the_standard(delta: ExperienceDelta) -> None:
    assert compute_transition_id(delta) == hash_experience_delta(as_model(delta))


@given(experience_deltas)
def test_words_are_the_abi_encoding_of_the_struct(delta: ExperienceDelta) -> None:
    types = ["bytes32", "uint64", *["bytes32"] * 5]
    assert delta.words() == encode(types, as_model(delta).members())


@given(words, words)
def test_next_state_root_is_the_struct_hash_of_the_standard(prev_state_root: bytes, transition_id: bytes) -> None:
    root = compute_next_state_root(Bytes32(prev_state_root), Bytes32(transition_id))
    assert root == model_next_state_root(prev_state_root, transition_id)


def test_sequence_fills_a_whole_word_far_beyond_32_bits() -> None:
    ids = {
        compute_transition_id(replace(DELTA, sequence=sequence)) for sequence in (1, 2**32 + 1, 2**53 + 1, 2**64 - 1)
    }
    assert len(ids) == 4
    packed = keccak(keccak(text=TYPE) + WORD + (7).to_bytes(8, "big") + WORD * 5)
    assert compute_transition_id(DELTA) != packed


TYPE = (
    "ExperienceDelta(bytes32 spaceId,uint64 sequence,bytes32 prevStateRoot,bytes32 deltaCommitment,"
    "bytes32 provenanceCommitment,bytes32 profileId,bytes32 locatorCommitment)"
)


@given(experience_deltas, st.sampled_from([*ATTRIBUTES.values(), "sequence"]), st.data())
def test_flipping_any_field_changes_the_transition_id(delta: ExperienceDelta, name: str, data: st.DataObject) -> None:
    bit = 1 << data.draw(st.integers(0, 63 if name == "sequence" else 255))
    value = getattr(delta, name)
    if name == "sequence":
        flipped: Any = value ^ bit
    else:
        flipped = Bytes32((int.from_bytes(value, "big") ^ bit).to_bytes(32, "big"))
    assert compute_transition_id(replace(delta, **{name: flipped})) != compute_transition_id(delta)


@given(experience_deltas, st.permutations(list(ATTRIBUTES.values())))
def test_members_do_not_stand_in_for_each_other(delta: ExperienceDelta, order: list[str]) -> None:
    moved = replace(delta, **dict(zip(order, [getattr(delta, name) for name in ATTRIBUTES.values()], strict=True)))
    assert (compute_transition_id(moved) == compute_transition_id(delta)) == (moved == delta)


@pytest.mark.parametrize("value", [b"", bytes(31), bytes(33), "0x", "hello", 5])
def test_next_state_root_refuses_what_is_not_32_bytes(value: Any) -> None:
    with pytest.raises(InvalidInput, match="prevStateRoot"):
        compute_next_state_root(value, WORD)
    with pytest.raises(InvalidInput, match="transitionId"):
        compute_next_state_root(WORD, value)


# Building one


@pytest.mark.parametrize("member", WORDS)
@pytest.mark.parametrize(
    "value", [b"", bytes(31), bytes(33), bytes(20), "", "0x", "0x" + "00" * 31, "hello", 0, 5, 1.0, None, True]
)
def test_delta_refuses_a_word_that_is_not_32_bytes_and_names_the_member(member: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(DELTA, **{ATTRIBUTES[member]: value})
    assert caught.value.field == member


@pytest.mark.parametrize("value", [-1, 2**64, "1", 1.0, True, None, b"\x01"])
def test_delta_refuses_a_sequence_that_is_no_uint64(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(DELTA, sequence=value)
    assert caught.value.field == "sequence"


def test_delta_takes_words_as_bytes_and_as_hex() -> None:
    plain, text = bytes(WORD), "0x" + "11" * 32
    delta = ExperienceDelta(plain, 7, text, bytearray(plain), plain, text, text)  # type: ignore[arg-type]
    assert delta == DELTA
    assert all(type(getattr(delta, name)) is Bytes32 for name in ATTRIBUTES.values())


def test_absent_options_are_zero_words() -> None:
    delta = ExperienceDelta(WORD, 1, ZERO_BYTES32, WORD, profile_id=WORD)
    assert (delta.provenance_commitment, delta.locator_commitment) == (bytes(32), bytes(32))


def test_delta_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        DELTA.sequence = 8  # type: ignore[misc]


# JSON


@given(experience_deltas)
def test_delta_comes_back_from_its_json(delta: ExperienceDelta) -> None:
    document = delta.to_json()
    assert ExperienceDelta.from_json(document) == delta
    assert ExperienceDelta.from_json(dict(reversed(document.items()))) == delta
    assert document["sequence"] == str(delta.sequence)
    assert list(document) == ["spaceId", "sequence", *WORDS[1:]]


@pytest.mark.parametrize("member", ["sequence", *WORDS])
def test_from_json_names_a_missing_member(member: str) -> None:
    document = {name: value for name, value in DOCUMENT.items() if name != member}
    with pytest.raises(InvalidInput) as caught:
        ExperienceDelta.from_json(document)
    assert caught.value.field == member


@pytest.mark.parametrize("member", ["space_id", "SpaceId", "spaceId ", "", "signature", "__proto__", "deltaSalt"])
def test_from_json_names_an_unknown_member(member: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ExperienceDelta.from_json({**DOCUMENT, member: "0x" + "11" * 32})
    assert caught.value.value == member


@pytest.mark.parametrize("document", [None, [], "{}", 5, [["spaceId", "0x"]], b"{}"])
def test_from_json_refuses_what_is_no_object(document: object) -> None:
    with pytest.raises(InvalidInput, match="JSON object"):
        ExperienceDelta.from_json(document)


@pytest.mark.parametrize("member", WORDS)
@pytest.mark.parametrize(
    "value",
    ["", "0x", "0x0", "hello", "11" * 32, "0x" + "11" * 31, "0x" + "11" * 33, "0x" + "1" * 63, "0x" + "1g" * 32,
     "0X" + "11" * 32, " 0x" + "11" * 32, "0x" + "11" * 32 + "\n", "0x" + "\uff11" * 64, 0, 5, 1.0, None, True, [],
     {}, WORD, bytes(32)],
    ids=lambda value: ascii(value)[:16],
)  # fmt: skip
def test_from_json_refuses_an_ill_formed_word_and_names_the_member(member: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        ExperienceDelta.from_json({**DOCUMENT, member: value})
    assert caught.value.field == member


@pytest.mark.parametrize(
    "value",
    ["01", " 1", "1 ", "1\n", "\n1", "+1", "-1", "-0", "1.0", "1e3", "0x1", "", "\u0661", "\uff11", "1_0",
     str(2**64), "9" * 5000, 1, 1.0, True, None, [], ["1"], 2**53],
    ids=lambda value: ascii(value)[:16],
)  # fmt: skip
def test_from_json_refuses_an_ill_formed_sequence_and_names_it(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        ExperienceDelta.from_json({**DOCUMENT, "sequence": value})
    assert caught.value.field == "sequence"


# The schema says the same

SCHEMA = Draft202012Validator(load_schema("experience-delta"))


def accepts(document: object) -> bool:
    try:
        ExperienceDelta.from_json(document)
    except InvalidInput:
        return False
    return True


#: Texts around those that are a word or a sequence: one character more, less or other.
@st.composite
def nearly(draw: Any, text: str) -> str:
    at = draw(st.integers(0, len(text)))
    piece = draw(
        st.sampled_from(["", "0", "1", "f", "F", "x", "X", " ", "\n", "\r\n", "\u2028", "\u0661", "\uff11", "-"])
    )
    return text[:at] + piece + text[at + draw(st.integers(0, 1)) :]


sequence_texts = st.integers(0, 2**64 + 2**60).map(str) | st.sampled_from(
    ["0", "00", "1", str(2**63), str(2**64 - 1), str(2**64), str(10**19), str(10**20 - 1), str(2**65)]
)
other_values = st.none() | st.booleans() | st.integers(0, 2**64) | st.floats(allow_nan=False) | st.text(max_size=3)
member_values = (
    words.map(lambda word: "0x" + word.hex())
    | words.map(lambda word: "0x" + word.hex().upper()).flatmap(nearly)
    | words.map(lambda word: "0x" + word.hex()).flatmap(nearly)
    | sequence_texts
    | sequence_texts.flatmap(nearly)
    | other_values
    | st.lists(other_values, max_size=1)
)


@given(
    experience_deltas,
    st.dictionaries(st.sampled_from(["sequence", *WORDS]), member_values, max_size=2),
    st.sets(st.sampled_from(["sequence", *WORDS]), max_size=1),
    st.dictionaries(st.sampled_from(["space_id", "sequence ", "", "x"]), st.text(max_size=1), max_size=1),
)
def test_schema_and_from_json_accept_the_same_documents(
    delta: ExperienceDelta, changed: dict[str, Any], dropped: set[str], added: dict[str, Any]
) -> None:
    document = {**delta.to_json(), **changed, **added}
    for member in dropped:
        del document[member]
    assert accepts(document) == SCHEMA.is_valid(document)


@given(sequence_texts | sequence_texts.flatmap(nearly))
def test_schema_and_from_json_accept_the_same_sequences(text: str) -> None:
    document = {**DOCUMENT, "sequence": text}
    assert accepts(document) == SCHEMA.is_valid(document)


def test_schema_ends_where_64_bits_end() -> None:
    near = {value + step for value in (12, 2**53, 2**63, 10**18, 10**19, 2**64 - 1, 10**20) for step in range(-12, 13)}
    largest = str(2**64 - 1)
    near |= {int(largest[:length] + digit) for length in range(len(largest)) for digit in "0123456789"}
    for number in near:
        assert SCHEMA.is_valid({**DOCUMENT, "sequence": str(number)}) == (number < 2**64)


@pytest.mark.parametrize("document", [None, [], "{}", 5, {}, [DOCUMENT]])
def test_schema_and_from_json_refuse_what_is_no_delta(document: object) -> None:
    assert (accepts(document), SCHEMA.is_valid(document)) == (False, False)
