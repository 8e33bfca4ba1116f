from __future__ import annotations

from typing import Any

import pytest
from eth_abi import encode
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput
from melete.memory.commitment import (
    compute_delta_commitment,
    compute_locator_commitment,
    compute_profile_id,
    compute_provenance_commitment,
)
from melete.primitives import Bytes32
from strategies import words

from ..strategies import bytes32s, texts

WORD = Bytes32(b"\x11" * 32)
contents = st.binary(max_size=200)


@given(words, words, contents)
def test_delta_commitment_is_the_hash_of_four_abi_words(profile_id: bytes, salt: bytes, payload: bytes) -> None:
    tag = keccak(text="AgentMemoryState.deltaCommitment.v1")
    expected = keccak(encode(["bytes32"] * 4, [tag, profile_id, salt, keccak(payload)]))
    assert compute_delta_commitment(Bytes32(profile_id), Bytes32(salt), payload) == expected


@given(words, contents)
def test_provenance_commitment_is_the_hash_of_three_abi_words(salt: bytes, provenance: bytes) -> None:
    tag = keccak(text="AgentMemoryState.provenanceCommitment.v1")
    expected = keccak(encode(["bytes32"] * 3, [tag, salt, keccak(provenance)]))
    assert compute_provenance_commitment(Bytes32(salt), provenance) == expected


@given(words, texts)
def test_locator_commitment_is_the_hash_of_three_abi_words(salt: bytes, locator: str) -> None:
    tag = keccak(text="AgentMemoryState.locatorCommitment.v1")
    expected = keccak(encode(["bytes32"] * 3, [tag, salt, keccak(locator.encode())]))
    assert compute_locator_commitment(Bytes32(salt), locator) == expected


@given(texts)
def test_profile_id_is_the_hash_of_its_name(name: str) -> None:
    assert compute_profile_id(name) == keccak(text=name)


@given(bytes32s, contents)
def test_one_content_under_one_salt_commits_to_three_different_words(salt: Bytes32, content: bytes) -> None:
    text = content.hex()
    commitments = {
        compute_delta_commitment(salt, salt, text.encode()),
        compute_provenance_commitment(salt, text.encode()),
        compute_locator_commitment(salt, text),
    }
    assert len(commitments) == 3


def test_locator_keeps_its_spelling() -> None:
    composed, decomposed = compute_locator_commitment(WORD, "\u00e9"), compute_locator_commitment(WORD, "e\u0301")
    assert composed != decomposed


@pytest.mark.parametrize("content", ["text", 5, None, ["x"], True])
def test_commitments_refuse_content_that_is_no_bytes(content: Any) -> None:
    with pytest.raises(InvalidInput, match="payload"):
        compute_delta_commitment(WORD, WORD, content)
    with pytest.raises(InvalidInput, match="provenance"):
        compute_provenance_commitment(WORD, content)


@pytest.mark.parametrize("text", [b"bytes", 5, None, "\ud800", ["x"]])
def test_names_and_locators_must_be_text_that_utf_8_can_carry(text: Any) -> None:
    with pytest.raises(InvalidInput, match="profile name"):
        compute_profile_id(text)
    with pytest.raises(InvalidInput, match="locator"):
        compute_locator_commitment(WORD, text)


@pytest.mark.parametrize("salt", [b"", bytes(31), bytes(33), "0x", "salt", 0, None])
def test_commitments_refuse_a_salt_that_is_not_32_bytes(salt: Any) -> None:
    with pytest.raises(InvalidInput, match="deltaSalt"):
        compute_delta_commitment(WORD, salt, b"")
    with pytest.raises(InvalidInput, match="provenanceSalt"):
        compute_provenance_commitment(salt, b"")
    with pytest.raises(InvalidInput, match="locatorSalt"):
        compute_locator_commitment(salt, "")
    with pytest.raises(InvalidInput, match="profileId"):
        compute_delta_commitment(salt, WORD, b"")
