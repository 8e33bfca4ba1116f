"""The words that everything is made of: 32-byte words, addresses, numbers, and keccak256.

Each type is parsed once, at the edge, by calling it: `Bytes32("0x...")`, `Address("0x...")`, `uint64(7)`. What went
through carries its type, so nothing is checked twice. `field` names the value in the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias, cast, final

from sha3 import keccak_256 as keccak_256

from melete.errors import InvalidInput

BytesLike: TypeAlias = bytes | bytearray | memoryview

_SEQUENCE = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_HEX = re.compile(r"0x[0-9a-fA-F]*", re.ASCII)
UINT64_MAX: Final = 2**64 - 1
#: What an error holds in place of a secret.
NOT_SHOWN: Final = "not shown"


def parse_bytes(value: BytesLike | str, field: str = "bytes") -> bytes:
    """Return bytes as they are, or those that 0x-prefixed hex of even length names."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str) and _HEX.fullmatch(value) and len(value) % 2 == 0:
        return bytes.fromhex(value[2:])
    raise InvalidInput(field, value, "bytes, or hex of whole bytes with 0x before it")


def _fixed(value: BytesLike | str, length: int, field: str) -> bytes:
    rule = f"{length} bytes, or 0x and {2 * length} hex digits"
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
    elif isinstance(value, str) and len(value) == 2 + 2 * length and _HEX.fullmatch(value):
        raw = bytes.fromhex(value[2:])
    else:
        raise InvalidInput(field, value, rule)
    if len(raw) != length:
        raise InvalidInput(field, value, f"{rule} (these are {len(raw)} bytes)")
    return raw


@final
class Bytes32(bytes):
    """Exactly 32 bytes. `str()` gives 0x and 64 lower-case hex digits.

    Errors: `InvalidInput` for any other length, for text that is not 0x-prefixed hex, and for other types.
    """

    __slots__ = ()

    def __new__(cls, value: BytesLike | str, field: str = "value") -> Bytes32:
        if type(value) is Bytes32:
            return value
        raw = _fixed(value, 32, field)
        return super().__new__(cls, raw)

    def __str__(self) -> str:
        return "0x" + self.hex()

    def __repr__(self) -> str:
        return f"Bytes32('0x{self.hex()}')"


@final
class Address(bytes):
    """The 20 bytes of an account. `str()` gives the EIP-55 checksummed form.

    Text must carry a right checksum, or none (all digits lower-case, or all upper-case).
    """

    __slots__ = ()

    def __new__(cls, value: BytesLike | str, field: str = "address") -> Address:
        if type(value) is Address:
            return value
        address = super().__new__(cls, _fixed(value, 20, field))
        if isinstance(value, str):
            digits = value[2:]
            if not (digits.islower() or digits.isupper() or digits.isdigit() or str(address) == value):
                raise InvalidInput(field, value, f"an address with a right checksum, {address}, or without any")
        return address

    def __str__(self) -> str:
        digits = self.hex()
        checksum = keccak_256(digits.encode()).hexdigest()
        return "0x" + "".join(
            digit.upper() if int(mark, 16) >= 8 else digit for digit, mark in zip(digits, checksum, strict=False)
        )

    def __repr__(self) -> str:
        return f"Address('{self}')"

    @property
    def word(self) -> bytes:
        """The address as an ABI word: 12 zero bytes before it."""
        return bytes(12) + self


ZERO_BYTES32: Final = Bytes32(bytes(32))
ZERO_ADDRESS: Final = Address(bytes(20))

#: Wraps 32 bytes that a hash just gave; for inputs, call `Bytes32`.
trusted_bytes32 = cast("Callable[[bytes], Bytes32]", partial(bytes.__new__, Bytes32))


def keccak256(data: BytesLike) -> Bytes32:
    """Return the keccak-256 hash of bytes (Ethereum's, not SHA3-256). Errors: `InvalidInput` for what is no bytes."""
    try:
        return trusted_bytes32(keccak_256(data).digest())
    except TypeError:
        raise InvalidInput("data", type(data).__name__, "bytes; encode text first, for example as UTF-8") from None


def secret_bytes32(value: BytesLike | str, field: str) -> Bytes32:
    """Return `Bytes32(value, field)`; an error does not show the value."""
    with suppress(InvalidInput):
        return Bytes32(value, field)
    raise InvalidInput(field, NOT_SHOWN, "32 bytes, or 0x and 64 hex digits")


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can carry a text: not if it holds half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def uint64(value: int, field: str = "value") -> int:
    """Return an integer from 0 to 2^64 - 1; anything else, booleans and floats included, is `InvalidInput`."""
    return uint(value, 64, field)


def uint(value: int, bits: int, field: str = "value") -> int:
    """Return an integer from 0 to 2^bits - 1, else raise `InvalidInput`."""
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise InvalidInput(field, value, f"an integer from 0 to 2^{bits} - 1")
    return value


def uint_word(value: int) -> bytes:
    """Return a number as an ABI word: 32 bytes, big-endian."""
    return value.to_bytes(32, "big")


def parse_sequence(value: object, field: str = "sequence") -> int:
    """Return the number that a JSON sequence names: a string of ASCII digits without leading zeros, at most 2^64 - 1.

    A JSON number is refused: not every reader keeps all 64 bits of one.
    Source: ERC-8350, JSON values.
    """
    # 2^64 - 1 has 20 digits; a longer text is refused before it is converted.
    if isinstance(value, str) and len(value) <= 20 and _SEQUENCE.fullmatch(value) and int(value) <= UINT64_MAX:
        return int(value)
    raise InvalidInput(field, value, 'a string of decimal digits without leading zeros, at most 2^64 - 1, such as "1"')
