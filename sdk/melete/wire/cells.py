"""The cells of a row as values: of the type and form in which a store writes them, or the row is named as altered.

SQLite keeps anything in any column, so what a file holds is not known before it is looked at. `number` is the audit row
that is named, `rule` what of it is told to be broken.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from melete.primitives import Address, Bytes32
from melete.wire.envelope import verify_memory_id
from melete.wire.errors import BrokenAudit, EnvelopeError
from melete.wire.words import SIZE_BITS

if TYPE_CHECKING:
    from melete.canonical import Json

ROW: Final = "a memory's row"
WAITING: Final = "a pending write"
#: Audit rows and times are numbers that every JSON reader keeps.
_LARGEST: Final = 2**53 - 1

Choice = TypeVar("Choice", bound=StrEnum)


def number_of(document: object) -> int:
    """Return the audit row that made a document; 0 for what is no document's number."""
    return document >> SIZE_BITS if type(document) is int else 0


# Cells of one value


def read_int(value: object, number: int, rule: str = ROW) -> int:
    """Return the whole number in a cell. Errors: `BrokenAudit`."""
    if type(value) is not int:
        raise altered(number, rule)
    return value


def read_int_or_none(value: object, number: int, rule: str = ROW) -> int | None:
    """Return the whole number in a cell, None for an empty one. Errors: `BrokenAudit`."""
    return None if value is None else read_int(value, number, rule)


def read_number(value: object, number: int, rule: str) -> int:
    """Return the number of an audit row, or a time: from 0 to 2^53 - 1. Errors: `BrokenAudit`."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise altered(number, rule)
    return value


def read_text(value: object, number: int, rule: str = ROW) -> str:
    """Return the text in a cell. Errors: `BrokenAudit`."""
    if not isinstance(value, str):
        raise altered(number, rule)
    return value


def read_id(value: object, number: int, rule: str = ROW) -> str:
    """Return the id of a memory in a cell. Errors: `BrokenAudit`."""
    try:
        return verify_memory_id(value)
    except EnvelopeError:
        raise altered(number, rule) from None


def read_text_or_none(value: object, number: int, rule: str = ROW) -> str | None:
    """Return the text in a cell, None for an empty one. Errors: `BrokenAudit`."""
    return None if value is None else read_text(value, number, rule)


def read_bytes32(value: object, number: int, rule: str = ROW) -> Bytes32:
    """Return the 32 bytes in a cell. Errors: `BrokenAudit`."""
    if not isinstance(value, bytes) or len(value) != 32:
        raise altered(number, rule)
    return Bytes32(value)


def read_address(value: object, number: int, rule: str = ROW) -> Address:
    """Return the 20 bytes in a cell, as an address. Errors: `BrokenAudit`."""
    if not isinstance(value, bytes) or len(value) != 20:
        raise altered(number, rule)
    return Address(value)


def read_choice(choices: type[Choice], value: object, number: int, rule: str = ROW) -> Choice:
    """Return the one of an enumeration's members that a cell names. Errors: `BrokenAudit`."""
    try:
        return choices(read_text(value, number, rule))
    except ValueError:
        raise altered(number, rule) from None


def read_one_of(choices: Collection[str], value: object, number: int, rule: str = ROW) -> str:
    """Return the one of some texts that a cell holds. Errors: `BrokenAudit`."""
    if not isinstance(value, str) or value not in choices:
        raise altered(number, rule)
    return value


# Cells of JSON


def read_tags(text: object, number: int, rule: str = ROW) -> tuple[str, ...]:
    """Return the tags in a cell. Errors: `BrokenAudit`."""
    tags = _read_json(text, number, rule)
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise altered(number, rule)
    return tuple(tags)


def read_metadata(text: object, number: int, rule: str = ROW) -> dict[str, Json] | None:
    """Return the metadata in a cell; None where there is none. Errors: `BrokenAudit`."""
    if text is None:
        return None
    metadata = _read_json(text, number, rule)
    if not isinstance(metadata, dict):
        raise altered(number, rule)
    return metadata


def read_content(text: object, number: int) -> str:
    """Return the content in a cell. Errors: `BrokenAudit`."""
    return read_text(text, number)


def read_sources(text: object, number: int) -> dict[str, int]:
    """Return the sources of a merge that waits, with their last audit rows, in order. Errors: `BrokenAudit`."""
    pairs = _read_json(text, number, WAITING)
    if not isinstance(pairs, list) or not all(_is_source(pair) for pair in pairs):
        raise altered(number, WAITING)
    return dict(pairs)


def _is_source(pair: Any) -> bool:
    return type(pair) is list and len(pair) == 2 and type(pair[0]) is str and type(pair[1]) is int


def _read_json(text: object, number: int, rule: str) -> Any:
    found = read_text(text, number, rule)
    try:
        return json.loads(found)
    except (ValueError, RecursionError):
        raise altered(number, rule) from None


def altered(number: int, rule: str = ROW) -> BrokenAudit:
    """Return the error for a cell that holds what no store has written there."""
    return BrokenAudit(number, rule, "as it was written", "of another form")
