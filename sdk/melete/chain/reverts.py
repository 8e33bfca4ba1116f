"""Revert data as exceptions: every error of every ABI of ours, of other registries, and of Solidity itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from melete import errors
from melete.errors import ContractError, ContractPanic, EmptyRevert, RevertReason, UnknownRevert
from melete.primitives import Address, Bytes32, keccak256, parse_bytes


@cache
def error_classes() -> dict[bytes, type[ContractError]]:
    """Return every contract error by its four-byte selector."""
    return {compute_selector(cls.signature): cls for cls in _walk(ContractError) if cls.signature}


def compute_selector(signature: str) -> bytes:
    """Return the first four bytes of the keccak256 of an ABI signature."""
    return keccak256(signature.encode())[:4]


def decode_revert(data: bytes | str | None) -> ContractError:
    """Return the exception that revert data stands for; it is returned, never raised.

    Empty or missing data is `EmptyRevert`; data of no known error, or that its error cannot hold, `UnknownRevert`.
    """
    try:
        raw = parse_bytes(data or b"", "revert data")
    except errors.InvalidInput:
        # Some nodes put words where the data belongs.
        return RevertReason(str(data))
    if not raw:
        return EmptyRevert()
    cls = error_classes().get(raw[:4])
    if cls is None:
        return UnknownRevert(raw)
    values = _decode(cls.signature, raw[4:])
    return UnknownRevert(raw) if values is None else cls(*values)


def _decode(signature: str, data: bytes) -> list[object] | None:
    types = [name for name in signature[signature.index("(") + 1 : -1].split(",") if name]
    if not types:
        return None if data else []
    from eth_abi.abi import decode, encode
    from eth_abi.exceptions import DecodingError

    try:
        values = decode(types, data)
    except (DecodingError, UnicodeDecodeError, OverflowError):
        return None
    if encode(types, values) != data:  # more than the error holds, or written otherwise than Solidity does
        return None
    edges = {"bytes32": Bytes32, "address": Address}
    return [edges[name](value) if name in edges else value for name, value in zip(types, values, strict=True)]


def _walk(cls: type[ContractError]) -> Iterator[type[ContractError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _walk(child)


# Named here so that a reader finds the two errors that the language itself raises.
SOLIDITY_ERRORS = (ContractPanic, RevertReason)
