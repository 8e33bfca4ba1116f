from __future__ import annotations

from typing import Any

import pytest
from Crypto.Hash import keccak
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput, InvalidJson, InvalidLayer
from melete.meditation.cycle import Outcome
from melete.meditation.layers import (
    ALL_LAYERS,
    SCHEMAS,
    TAG_LAYER_COMMITMENT,
    TAG_STATE_ROOT,
    Layer,
    commit_to_document,
    compute_layer_commitment,
    compute_root,
    compute_schema_hash,
    layers_of,
    mask_of,
    to_commitments,
    to_layer,
)
from melete.primitives import ZERO_BYTES32, Bytes32
from strategies import words

WORDS = [Bytes32(bytes([number]) * 32) for number in range(1, 6)]
NO_LAYERS: list[Any] = [-1, 4, 255, 2**64, True, False, 1.0, "1", None, Outcome.PARTIAL]

# The published worked example
RUNTIME_SCHEMA_HASH = Bytes32("0x6a00023d50bfe315bf6650953a4bb81910aef335c63ee465d2f52937b860790b")
COGNITION_SCHEMA_HASH = Bytes32("0x086a5b8a0101b4013c63de2d7392ddb4ae22c61e33afd0eaef58387952c1f468")
BASELINE = tuple(
    Bytes32(commitment)
    for commitment in (
        "0x053bdcecda479dd30b5bfd7a02661df67b79e978fea6888245df8aa167d6d282",
        "0x3a8a0162793df87f7094634e37d9e5d3d8470bd43cc7fee5669f609d922ee9c3",
        "0x3d3356ae1bc86136718f1ecd7f42d8a0570db2d21116c886cab291a789010585",
        "0xbe9a1abba6f84ec051c3eb91bb19e2d3504d773da883b94aece5ee9e37c79e8e",
    )
)


def hash_by_others(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


# Hashes


def test_tags_are_the_published_ones() -> None:
    assert str(TAG_LAYER_COMMITMENT) == "0xc76b0a7a69207b3cf002d75e6493bc9fe99e8d75b5096ead1276bc4339b69d85"
    assert str(TAG_STATE_ROOT) == "0xe2251470d039826c2565c6e003924bb890e07cd981b370528c245e47f1c3e7c6"


def test_schema_hashes_of_the_first_and_the_last_layer_are_the_published_ones() -> None:
    assert compute_schema_hash(SCHEMAS[Layer.RUNTIME]) == RUNTIME_SCHEMA_HASH
    assert compute_schema_hash(SCHEMAS[Layer.COGNITION]) == COGNITION_SCHEMA_HASH


def test_commitments_of_the_worked_example_are_the_published_ones() -> None:
    content_hash = Bytes32("0xa25eae406d69cd3802dbb588487f486e5b5e006b7ef521303ea24406979a4731")
    assert compute_layer_commitment(0, RUNTIME_SCHEMA_HASH, content_hash, ZERO_BYTES32) == BASELINE[0]
    content_hash = Bytes32("0xc6e5d3da30fc9d27be29773df620dbed9a359d6bba795d93bafcdb5963e9ede8")
    salt = Bytes32("0x4d7a0c3f6b9e2d5a8c1f4b7e0a3d6c9f2b5e8a1d4c7f0b3e6a9d2c5f8b1e4a7d")
    assert compute_layer_commitment(3, COGNITION_SCHEMA_HASH, content_hash, salt) == BASELINE[3]


def test_root_of_the_worked_example_is_the_published_one() -> None:
    assert str(compute_root(BASELINE)) == "0x090e63d66e6cdb08331fece350bd0320551287d53d6644d5af158b04d94d149f"


@given(st.integers(0, 3), words, words, words)
def test_layer_commitment_hashes_the_abi_encoding_of_its_five_words(
    layer: int, schema_hash: bytes, content_hash: bytes, salt: bytes
) -> None:
    tag = hash_by_others(b"AgentMeditationMechanism/LayerCommitment/v1")
    types = ["bytes32", "uint8", "bytes32", "bytes32", "bytes32"]
    expected = hash_by_others(encode(types, [tag, layer, schema_hash, content_hash, salt]))
    assert compute_layer_commitment(layer, Bytes32(schema_hash), Bytes32(content_hash), Bytes32(salt)) == expected


@given(st.lists(words, min_size=4, max_size=4))
def test_root_hashes_the_abi_encoding_of_tag_and_commitments(commitments: list[bytes]) -> None:
    tag = hash_by_others(b"AgentMeditationMechanism/StateRoot/v1")
    expected = hash_by_others(encode(["bytes32", "bytes32[4]"], [tag, commitments]))
    assert compute_root(map(Bytes32, commitments)) == expected


def test_the_same_content_is_committed_to_differently_in_every_layer() -> None:
    assert len({compute_layer_commitment(layer, *WORDS[:3]) for layer in range(4)}) == 4


def test_root_depends_on_the_order_of_the_layers() -> None:
    assert compute_root(WORDS[:4]) != compute_root(WORDS[3::-1])


@pytest.mark.parametrize("layer", NO_LAYERS)
def test_layer_commitment_refuses_what_is_no_layer_and_names_it(layer: Any) -> None:
    with pytest.raises(InvalidLayer) as caught:
        compute_layer_commitment(layer, *WORDS[:3])
    assert caught.value.layer is layer


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("bad", [b"", bytes(31), bytes(33), "0x11", None, 5])
def test_layer_commitment_refuses_what_is_no_word_and_names_it_as_the_standard_does(position: int, bad: Any) -> None:
    given_words: list[Any] = WORDS[:3]
    given_words = [*given_words[:position], bad, *given_words[position + 1 :]]
    with pytest.raises(InvalidInput) as caught:
        compute_layer_commitment(0, *given_words)
    assert caught.value.field == ("schemaHash", "contentHash", "salt")[position]


@pytest.mark.parametrize("number", [0, 1, 3, 5])
def test_root_needs_exactly_four_commitments(number: int) -> None:
    with pytest.raises(InvalidInput, match=f"these are {number}"):
        compute_root(WORDS[:number])


def test_root_names_the_commitment_that_is_no_word() -> None:
    bad: Any = [*WORDS[:2], bytes(31), WORDS[3]]
    with pytest.raises(InvalidInput) as caught:
        compute_root(bad)
    assert caught.value.field == "commitments[2]"


def test_commitments_are_four_words_from_any_iterable() -> None:
    assert to_commitments(word for word in WORDS[:4]) == tuple(WORDS[:4])
    assert all(type(word) is Bytes32 for word in to_commitments([bytes(word) for word in WORDS[:4]]))  # type: ignore[misc]


# Documents

DOCUMENT: dict[str, Any] = {
    "layer": 1,
    "schema": "amm.layer.memory-skills/1",
    "digest": "é",
    "skills": [{"held": True}],
}


def test_document_is_committed_to_by_its_canonical_bytes_its_schema_and_its_layer() -> None:
    canonical = '{"digest":"é","layer":1,"schema":"amm.layer.memory-skills/1","skills":[{"held":true}]}'
    tag = hash_by_others(b"AgentMeditationMechanism/LayerCommitment/v1")
    schema_hash, content_hash = hash_by_others(b"amm.layer.memory-skills/1"), hash_by_others(canonical.encode())
    expected = hash_by_others(tag + bytes(31) + b"\x01" + schema_hash + content_hash + WORDS[0])
    assert commit_to_document(DOCUMENT, WORDS[0]) == expected


def test_document_without_a_salt_is_committed_to_with_zeros() -> None:
    assert commit_to_document(DOCUMENT) == commit_to_document(DOCUMENT, ZERO_BYTES32)
    assert commit_to_document(DOCUMENT) != commit_to_document(DOCUMENT, WORDS[0])


def test_order_of_a_documents_members_is_of_no_account() -> None:
    assert commit_to_document(dict(reversed(DOCUMENT.items()))) == commit_to_document(DOCUMENT)


@pytest.mark.parametrize("layer", [*NO_LAYERS, Layer.MEMORY_SKILLS])
def test_document_must_say_its_layer_as_an_integer(layer: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        commit_to_document({**DOCUMENT, "layer": layer})
    assert caught.value.field == "layer"


@pytest.mark.parametrize("schema", [*SCHEMAS.values(), "amm.layer.memory-skills/2", "", None, 1, ["x"]])
def test_document_must_name_the_schema_of_its_own_layer(schema: Any) -> None:
    if schema == SCHEMAS[Layer.MEMORY_SKILLS]:
        assert commit_to_document({**DOCUMENT, "schema": schema}) == commit_to_document(DOCUMENT)
        return
    with pytest.raises(InvalidInput) as caught:
        commit_to_document({**DOCUMENT, "schema": schema})
    assert caught.value.field == "schema"


@pytest.mark.parametrize("missing", ["layer", "schema"])
def test_document_must_have_both_members(missing: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        commit_to_document({name: value for name, value in DOCUMENT.items() if name != missing})
    assert caught.value.field == missing


def test_document_that_canonical_json_cannot_carry_is_refused_with_the_place() -> None:
    with pytest.raises(InvalidJson) as caught:
        commit_to_document({**DOCUMENT, "skills": [{"weight": float("nan")}]})
    assert caught.value.pointer == "/skills/0/weight"


# Masks


def test_each_layers_bit_is_one_shifted_by_its_index() -> None:
    assert [mask_of([layer]) for layer in Layer] == [1, 2, 4, 8]
    assert mask_of(Layer) == ALL_LAYERS == 15


@given(st.sets(st.integers(0, 3)))
def test_mask_holds_exactly_the_layers_it_was_made_of(layers: set[int]) -> None:
    assert list(layers_of(mask_of(layers))) == sorted(layers)


def test_a_layer_named_twice_stands_once_in_the_mask() -> None:
    assert mask_of([2, 2, Layer.TASKS_ROLES]) == 4


def test_bits_beyond_the_layers_name_none() -> None:
    assert list(layers_of(0xF0)) == []
    assert list(layers_of(0x1A)) == [Layer.MEMORY_SKILLS, Layer.COGNITION]


@pytest.mark.parametrize("layer", NO_LAYERS)
def test_mask_refuses_what_is_no_layer(layer: Any) -> None:
    with pytest.raises(InvalidLayer):
        mask_of([0, layer])


def test_layer_is_found_by_its_index_and_stays_itself() -> None:
    assert [to_layer(index) for index in range(4)] == list(Layer)
    assert to_layer(Layer.COGNITION) is Layer.COGNITION
