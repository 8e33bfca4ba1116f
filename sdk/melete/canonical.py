"""JSON as bytes: RFC 8785 canonical form, and a reader that refuses what canonical JSON cannot carry.

`rfc8785` does the work. Around it: one exception, with a JSON pointer, for everything that it or Python's reader
would take silently (NaN, Infinity, 1E400, duplicate members) or refuse in words of their own (lone surrogates, deep
nesting, integers beyond 2^53 - 1). A float from 2^53 up to 1e21 has a canonical form, as RFC 8785 wants it, that
reads as such an integer and is refused when it is read back: loudly, but refused; use a string.
No text is normalized: two spellings of one glyph stay two member names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import rfc8785

from melete.errors import InvalidJson
from melete.primitives import Bytes32, is_utf8, keccak256

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

#: Beyond it an integer is not the same number in every JSON reader (RFC 7493).
LARGEST_INTEGER: Final = 2**53 - 1
_NESTED = "it is nested too deeply to be read; flatten it"


def canonicalize(value: Json) -> bytes:
    """Return the RFC 8785 bytes of a JSON value. Errors: `InvalidJson`, pointing at the first fault."""
    try:
        return rfc8785.dumps(value)
    except RecursionError:
        raise InvalidJson("", _NESTED) from None
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        # The quick way says no; the slow way says where.
        for pointer, rule in _faults(value):
            raise InvalidJson(pointer, rule) from None
        raise InvalidJson("", f"it cannot be canonicalized ({error})") from None


def load_json(text: str | bytes) -> Json:
    """Return the value of a JSON text (bytes are UTF-8), refusing what canonical JSON cannot carry.

    Errors: `InvalidJson`: not JSON, a duplicate member, NaN, Infinity, a number beyond double precision, an integer
    beyond 2^53 - 1, a lone surrogate, nesting too deep.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        loose = json.loads(decoded, object_pairs_hook=_Members, parse_constant=_Constant, parse_int=_parse_int)
        return _strict(loose, "")
    except UnicodeDecodeError as error:
        raise InvalidJson("", f"it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise InvalidJson("", f"it is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InvalidJson("", _NESTED) from None


def canonicalize_json(text: str | bytes) -> bytes:
    """Return the RFC 8785 bytes of a JSON text."""
    return canonicalize(load_json(text))


def compute_content_hash(value: Json) -> Bytes32:
    """Return the keccak256 of a JSON value's canonical bytes."""
    return keccak256(canonicalize(value))


class _Members(list[tuple[str, Any]]):
    """The members of one object as read, before duplicates are refused."""


class _Constant(str):
    """NaN, Infinity or -Infinity, as read."""


def _parse_int(digits: str) -> int | _Constant:
    # Python refuses to convert very long digit strings; whatever is that long is out of range anyway.
    return int(digits) if len(digits) <= 20 else _Constant(digits)


def _strict(value: Any, pointer: str) -> Json:
    if type(value) is _Members:
        members: dict[str, Json] = {}
        for name, member in value:
            place = f"{pointer}/{_escape(name)}"
            if name in members:
                raise InvalidJson(place, "the member stands twice in its object; keep one")
            if not is_utf8(name):
                raise InvalidJson(place, "the member's name holds a lone surrogate, which UTF-8 cannot carry")
            members[name] = _strict(member, place)
        return members
    if isinstance(value, list):
        return [_strict(item, f"{pointer}/{index}") for index, item in enumerate(value)]
    rule = _scalar_fault(value)
    if rule:
        raise InvalidJson(pointer, rule)
    return value  # type: ignore[no-any-return]


def _faults(value: Any, pointer: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, member in value.items():
            if not isinstance(name, str):
                yield pointer, f"a member name must be text, not {type(name).__name__}"
            elif not is_utf8(name):
                yield (
                    f"{pointer}/{_escape(name)}",
                    "the member's name holds a lone surrogate, which UTF-8 cannot carry",
                )
            yield from _faults(member, f"{pointer}/{_escape(str(name))}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _faults(item, f"{pointer}/{index}")
    else:
        rule = _scalar_fault(value)
        if rule:
            yield pointer, rule


def _scalar_fault(value: Any) -> str:
    if isinstance(value, _Constant):
        return f"{value[:24]} is no number that JSON can carry between readers; use a string"
    if isinstance(value, str):
        return "" if is_utf8(value) else "the text holds a lone surrogate, which UTF-8 cannot carry"
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int):
        return "" if abs(value) <= LARGEST_INTEGER else "the integer is beyond 2^53 - 1; use a string"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "the number is beyond double precision or not a number; use a string"
    return f"a value of type {type(value).__name__} is not JSON"


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
