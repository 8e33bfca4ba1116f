from __future__ import annotations

import copy
import pickle

import pytest
from eth_abi import encode
from eth_utils import is_checksum_address, keccak, to_checksum_address
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput
from melete.primitives import (
    ZERO_ADDRESS,
    ZERO_BYTES32,
    Address,
    Bytes32,
    keccak256,
    parse_bytes,
    parse_sequence,
    uint,
    uint64,
    uint_word,
)
from strategies import addresses, uint64s, words

# Words


@given(words)
def test_bytes32_takes_bytes_and_hex_and_gives_lower_case_hex(word: bytes) -> None:
    given_forms = [word, bytearray(word), memoryview(word), "0x" + word.hex(), "0x" + word.hex().upper()]
    parsed = {Bytes32(form) for form in given_forms}
    assert parsed == {word}
    assert str(Bytes32(word)) == "0x" + word.hex()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        bytes(31),
        bytes(33),
        "",
        "0x",
        "0x00",
        "hello",
        "00" * 32,
        "0x" + "00" * 31,
        "0x" + "00" * 33,
        "0x" + "0" * 63,
        "0x" + "0g" * 32,
        "0X" + "00" * 32,
        " 0x" + "00" * 32,
        "0x" + "00" * 32 + "\n",
        "0x" + "\uff10" * 64,
        5,
        0,
        1.0,
        True,
        None,
        [0] * 32,
    ],
    ids=repr,
)
def test_bytes32_refuses_what_is_not_exactly_32_bytes(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        Bytes32(value, "salt")  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.value) == ("salt", value)


@pytest.mark.parametrize("value", [Bytes32(b"\x11" * 32), Address(b"\x22" * 20)], ids=repr)
def test_words_survive_copies_and_pickles_with_their_type(value: object) -> None:
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301
        assert again == value
        assert type(again) is type(value)


def test_repr_of_words_can_be_read_back() -> None:
    names = {"Bytes32": Bytes32, "Address": Address}
    for value in (Bytes32(b"\xab" * 32), Address(b"\xab" * 20)):
        assert eval(repr(value), names) == value  # noqa: S307


def test_zero_words_are_zero() -> None:
    assert not any(ZERO_BYTES32)
    assert not any(ZERO_ADDRESS)
    assert (len(ZERO_BYTES32), len(ZERO_ADDRESS)) == (32, 20)


# Addresses


@given(addresses)
def test_address_is_written_with_its_eip_55_checksum(address: bytes) -> None:
    assert str(Address(address)) == to_checksum_address(address)
    assert Address(str(Address(address))) == address


@pytest.mark.parametrize("digits", ["ab" * 20, "AB" * 20, "12" * 20, "00" * 20])
def test_address_without_mixed_case_needs_no_checksum(digits: str) -> None:
    assert Address("0x" + digits) == bytes.fromhex(digits)


@given(addresses)
def test_address_word_is_its_abi_encoding(address: bytes) -> None:
    assert Address(address).word == encode(["address"], [address])


@given(addresses, st.data())
def test_address_refuses_every_text_whose_mixed_case_is_no_checksum(address: bytes, data: st.DataObject) -> None:
    digits = "".join(data.draw(st.sampled_from([digit.lower(), digit.upper()])) for digit in address.hex())
    text = "0x" + digits
    if is_checksum_address(text) or digits in (digits.lower(), digits.upper()):
        assert Address(text) == address
    else:
        with pytest.raises(InvalidInput, match="checksum"):
            Address(text)


@pytest.mark.parametrize(
    "text",
    [
        # EIP-55's own examples.
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0x27b1fdb04752bbc536007a920d24acb045561c26",
    ],
)
def test_address_takes_the_examples_of_eip_55_and_refuses_them_with_one_letter_turned(text: str) -> None:
    assert str(Address(text)) == text
    at = next(index for index, character in enumerate(text) if index > 1 and character.isalpha())
    turned = text[:at] + text[at].swapcase() + text[at + 1 :]
    with pytest.raises(InvalidInput, match="checksum"):
        Address(turned)


@pytest.mark.parametrize("value", [b"", bytes(19), bytes(21), bytes(32), "0x", "0x" + "00" * 32, "00" * 20, 0, None])
def test_address_refuses_what_is_not_exactly_20_bytes(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        Address(value, "controller")  # type: ignore[arg-type]
    assert caught.value.field == "controller"


# Bytes


@given(st.binary(max_size=80))
def test_parse_bytes_reads_bytes_and_their_hex(data: bytes) -> None:
    assert parse_bytes(data) == parse_bytes("0x" + data.hex()) == parse_bytes("0x" + data.hex().upper()) == data


@pytest.mark.parametrize("value", ["", "00", "0x0", "0xabc", "0xzz", "0x00 ", "0X00", "0x00\n", 0, 7, None, [1, 2]])
def test_parse_bytes_refuses_numbers_and_text_that_is_no_whole_hex(value: object) -> None:
    with pytest.raises(InvalidInput):
        parse_bytes(value)  # type: ignore[arg-type]


@given(st.binary(max_size=300))
def test_keccak256_is_that_of_ethereum(data: bytes) -> None:
    assert keccak256(data) == keccak(data)
    assert type(keccak256(data)) is Bytes32


def test_keccak256_of_nothing_is_the_published_figure() -> None:
    assert str(keccak256(b"")) == "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"


# Numbers


@given(uint64s)
def test_uint64_keeps_every_number_of_64_bits_and_its_word_is_its_abi_encoding(number: int) -> None:
    assert uint64(number) == number
    assert uint_word(number) == encode(["uint64"], [number])


@pytest.mark.parametrize("value", [-1, 2**64, 1.0, True, False, "1", b"\x01", None])
def test_uint64_refuses_other_numbers_and_other_types(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        uint64(value, "nonce")  # type: ignore[arg-type]
    assert caught.value.field == "nonce"


@pytest.mark.parametrize("bits", [8, 64, 256])
def test_uint_ends_where_its_bits_end(bits: int) -> None:
    assert uint(2**bits - 1, bits, "value") == 2**bits - 1
    with pytest.raises(InvalidInput):
        uint(2**bits, bits, "value")


# Sequences


@given(uint64s)
def test_parse_sequence_reads_every_number_of_64_bits(number: int) -> None:
    assert parse_sequence(str(number)) == number


def test_parse_sequence_refuses_leading_zero() -> None:
    with pytest.raises(InvalidInput):
        parse_sequence("01")


def test_parse_sequence_refuses_the_number_after_the_largest() -> None:
    assert parse_sequence("18446744073709551615") == 2**64 - 1
    with pytest.raises(InvalidInput):
        parse_sequence("18446744073709551616")


@pytest.mark.parametrize(
    "value",
    ["", "00", " 1", "1 ", "1\n", "\n1", "+1", "-1", "-0", "1.0", "1e3", "0x1", "1_000", "\u0661", "\uff11", "\u00b2",
     "9" * 21, "9" * 5000, 0, 1, 1.0, True, None, b"1", ["1"]],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
def test_parse_sequence_refuses_every_other_spelling(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_sequence(value)
    assert caught.value.field == "sequence"


@given(st.text(max_size=22))
def test_parse_sequence_gives_back_only_what_it_read(text: str) -> None:
    try:
        number = parse_sequence(text)
    except InvalidInput:
        return
    assert str(number) == text
