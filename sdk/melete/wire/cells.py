"""The cells of a row that hold JSON or text: as a store writes them, or the row is named as altered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from melete.wire.errors import BrokenAudit

if TYPE_CHECKING:
    from melete.canonical import Json


def read_tags(text: object, number: int) -> tuple[str, ...]:
    """Return the tags in a cell of the row that audit row `number` made. Errors: `BrokenAudit`."""
    tags = _read(text, number)
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise _altered(number)
    return tuple(str(tag) for tag in tags)


def read_metadata(text: object, number: int) -> dict[str, Json] | None:
    """Return the metadata in such a cell; None where there is none. Errors: `BrokenAudit`."""
    if text is None:
        return None
    metadata = _read(text, number)
    if not isinstance(metadata, dict):
        raise _altered(number)
    return metadata


def read_content(text: object, number: int) -> str:
    """Return the content in such a cell. Errors: `BrokenAudit`."""
    if not isinstance(text, str):
        raise _altered(number)
    return text


def read_sources(text: object, number: int) -> dict[str, int]:
    """Return the sources of a merge that waits, with their audit numbers, in order. Errors: `BrokenAudit`."""
    try:
        found = dict(_read(text, number))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise _altered(number) from None
    return found  # type: ignore[return-value]


def _read(text: object, number: int) -> Json:
    try:
        found: Json = json.loads(read_content(text, number))
    except (ValueError, RecursionError):
        raise _altered(number) from None
    return found


def _altered(number: int) -> BrokenAudit:
    return BrokenAudit(number, "a memory's row", "as it was written", "of another form")
