from __future__ import annotations

from typing import Any

import pytest
from eth_abi import encode
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

from melete.chain.reverts import compute_selector, decode_revert, error_classes
from melete.errors import (
    BadPreviousState,
    BadSequence,
    ContractError,
    ContractPanic,
    EmptyRevert,
    InvalidSpaceId,
    RevertReason,
    SignatureError,
    SignatureErrorS,
    UnknownRevert,
)
from melete.primitives import Bytes32
from strategies import uint64s, words


def revert_data(signature: str, *values: Any) -> bytes:
    types = [kind for kind in signature.partition("(")[2][:-1].split(",") if kind]
    return keccak(text=signature)[:4] + encode(types, values)


@pytest.mark.parametrize(
    ("selector", "signature"),
    [
        # Seen on chain, or published with the standard.
        ("1b7779a8", "UnknownSpace()"),
        ("8baa579f", "InvalidSignature()"),
        ("bf4bf5b8", "InvalidSignatureS()"),
        ("08c379a0", "Error(string)"),
        ("4e487b71", "Panic(uint256)"),
    ],
)
def test_selectors_are_the_published_ones(selector: str, signature: str) -> None:
    assert compute_selector(signature).hex() == selector
    assert error_classes()[bytes.fromhex(selector)].signature == signature


@pytest.mark.parametrize("cls", sorted(error_classes().values(), key=lambda cls: cls.__name__))
def test_every_selector_is_decoded_to_its_class(cls: type[ContractError]) -> None:
    others = {"bytes32": b"\xab" * 32, "string": "text", "address": b"\xcd" * 20}
    types = [kind for kind in cls.signature.partition("(")[2][:-1].split(",") if kind]
    values = [
        2 ** int(kind[4:]) - 1 - place if kind.startswith("uint") else others[kind] for place, kind in enumerate(types)
    ]
    for data in (revert_data(cls.signature, *values), "0x" + revert_data(cls.signature, *values).hex()):
        error = decode_revert(data)
        assert type(error) is cls
        assert list(vars(error).values()) == values


def test_no_two_errors_share_a_selector() -> None:
    signatures = [cls.signature for cls in error_classes().values()]
    assert len({keccak(text=signature)[:4] for signature in signatures}) == len(signatures) >= 14


@given(uint64s, uint64s)
def test_bad_sequence_is_decoded_with_both_numbers(expected: int, received: int) -> None:
    error = decode_revert(revert_data("BadSequence(uint64,uint64)", expected, received))
    assert isinstance(error, BadSequence)
    assert (error.expected, error.received) == (expected, received)


@given(words, words)
def test_words_are_decoded_as_bytes32(expected: bytes, received: bytes) -> None:
    for signature, cls in (("InvalidSpaceId", InvalidSpaceId), ("BadPreviousState", BadPreviousState)):
        error = decode_revert(revert_data(f"{signature}(bytes32,bytes32)", expected, received))
        assert isinstance(error, cls)
        assert (error.expected, error.received) == (expected, received)
        assert (type(error.expected), type(error.received)) == (Bytes32, Bytes32)


def test_errors_of_other_registries_are_decoded() -> None:
    assert isinstance(decode_revert("0x8baa579f"), SignatureError)
    assert isinstance(decode_revert("0xbf4bf5b8"), SignatureErrorS)


# What Solidity itself says


@pytest.mark.parametrize("data", [b"", "", "0x", None])
def test_missing_data_is_an_empty_revert(data: Any) -> None:
    assert isinstance(decode_revert(data), EmptyRevert)


@pytest.mark.parametrize("code", [0x00, 0x01, 0x11, 0x12, 0x21, 0x32, 0x41, 0x51, 2**256 - 1])
def test_panic_keeps_its_code(code: int) -> None:
    error = decode_revert(revert_data("Panic(uint256)", code))
    assert isinstance(error, ContractPanic)
    assert error.code == code


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_reason_is_kept_and_shown_safely(reason: str) -> None:
    error = decode_revert(revert_data("Error(string)", reason))
    assert isinstance(error, RevertReason)
    assert error.reason == reason
    assert str(error).isprintable()


def test_words_of_a_node_in_the_place_of_data_are_a_reason() -> None:
    error = decode_revert("VM Exception while processing transaction: revert")
    assert isinstance(error, RevertReason)
    assert error.reason == "VM Exception while processing transaction: revert"


# What nobody says


@pytest.mark.parametrize("data", [b"\x01", b"\x08\xc3\x79", b"\xde\xad\xbe\xef", b"\xde\xad\xbe\xef" + bytes(64)])
def test_unknown_data_is_kept_whole(data: bytes) -> None:
    error = decode_revert(data)
    assert isinstance(error, UnknownRevert)
    assert error.data == data


WITH_ARGUMENTS = [
    revert_data("BadSequence(uint64,uint64)", 1, 2),
    revert_data("InvalidSpaceId(bytes32,bytes32)", b"\x11" * 32, b"\x22" * 32),
    revert_data("BadPreviousState(bytes32,bytes32)", b"\x11" * 32, b"\x22" * 32),
    revert_data("Panic(uint256)", 17),
    revert_data("Error(string)", "why not"),
]


@given(st.sampled_from(WITH_ARGUMENTS), st.data())
def test_truncated_data_is_unknown_and_kept_whole(whole: bytes, data: st.DataObject) -> None:
    # The last word of a text may be cut down to the text: all of it is still there.
    needed = len(whole) - (25 if whole.startswith(bytes.fromhex("08c379a0")) else 0)
    cut = whole[: data.draw(st.integers(1, needed - 1))]
    error = decode_revert(cut)
    assert isinstance(error, UnknownRevert)
    assert error.data == cut


@pytest.mark.parametrize("at", [4, 27, 36, 59])
def test_dirty_words_of_a_uint64_are_unknown(at: int) -> None:
    data = bytearray(revert_data("BadSequence(uint64,uint64)", 1, 2))
    data[at] = 1
    assert isinstance(decode_revert(bytes(data)), UnknownRevert)


@pytest.mark.parametrize(
    "tail",
    [
        b"\xff" * 32,
        b"\xff" * 64,
        bytes(31) + b"\x20" + b"\xff" * 32,
        bytes(31) + b"\x20" + bytes(23) + b"\x7f" + b"\xff" * 8,
        bytes(31) + b"\x20" + bytes(31) + b"\x02" + b"\xff\xfe" + bytes(30),
    ],
    ids=["offset_beyond_the_end", "all_ones", "length_beyond_the_end", "length_of_2_to_the_71", "no_utf_8"],
)
def test_text_that_points_nowhere_or_is_no_text_is_unknown(tail: bytes) -> None:
    assert isinstance(decode_revert(bytes.fromhex("08c379a0") + tail), UnknownRevert)


@given(
    st.sampled_from([b"", *error_classes()]),
    st.binary(max_size=100) | st.lists(words, max_size=4).map(b"".join),
)
def test_any_data_is_decoded_and_never_raises(selector: bytes, tail: bytes) -> None:
    error = decode_revert(selector + tail)
    assert isinstance(error, ContractError)
    assert str(error).isprintable()


@given(st.text())
def test_any_text_is_decoded_and_never_raises(text: str) -> None:
    error = decode_revert(text)
    assert isinstance(error, ContractError)
    assert str(error).isprintable()
