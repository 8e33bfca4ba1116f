"""JSON as bytes: RFC 8785 canonical form, and a reader that refuses what canonical JSON cannot carry.

`rfc8785` does the work. Around it: one exception, with a JSON pointer, for everything that it or Python's reader
would take silently (NaN, Infinity, 1E400, duplicate members) or refuse in words of their own (lone surrogates, deep
nesting, integers beyond 2^53 - 1). A float from 2^53 up to 1e21 has a canonical form, as RFC 8785 wants it, that
reads as such an integer and is refused when it is read back. What has to be read back is held to `check_readable`;
`load_canonical` still reads it where it was written before anybody asked.
No text is normalized: two spellings of one glyph stay two member names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import rfc8785

from melete.errors import InvalidJson
from melete.primitives import Bytes32, is_utf8, keccak256

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

#: Beyond it an integer is not the same number in every JSON reader (RFC 7493).
LARGEST_INTEGER: Final = 2**53 - 1
#: From it on, the canonical form of a float has an exponent, and is no integer.
FIRST_WITH_EXPONENT: Final = 1e21
LONGEST_WIDE_INTEGER: Final = len("-999999999999999900000")
UNREADABLE: Final = "its canonical form is an integer beyond 2^53 - 1, which cannot be read back; use a string"
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
    return _load(text, _parse_int)


def load_canonical(data: bytes) -> Json:
    """Return the value whose canonical bytes were written here: as `load_json`, and each wide integer is a float.

    Such an integer can only be a float's canonical form, since `canonicalize` takes no integer of that size; read as
    that float, the value has the same canonical bytes again. For what is kept, never for what others wrote.
    """
    return _load(data, _parse_canonical_int)


def check_readable(value: Json) -> None:
    """Refuse a value with a number whose canonical form `load_json` would refuse.

    Errors: `InvalidJson`, pointing at the number.
    """
    for pointer in _unreadable(value, ""):
        raise InvalidJson(pointer, UNREADABLE)


def is_readable_number(number: float) -> bool:
    """Return whether the canonical form of a finite number is read as that number again."""
    return not LARGEST_INTEGER < abs(number) < FIRST_WITH_EXPONENT


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


def _load(text: str | bytes, parse_int: Callable[[str], Any]) -> Json:
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        loose = json.loads(decoded, object_pairs_hook=_Members, parse_constant=_Constant, parse_int=parse_int)
        return _strict(loose, "")
    except UnicodeDecodeError as error:
        raise InvalidJson("", f"it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise InvalidJson("", f"it is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InvalidJson("", _NESTED) from None


def _parse_int(digits: str) -> int | _Constant:
    # Python refuses to convert very long digit strings; whatever is that long is out of range anyway.
    return int(digits) if len(digits) <= 20 else _Constant(digits)


def _parse_canonical_int(digits: str) -> int | float | _Constant:
    if len(digits) > LONGEST_WIDE_INTEGER:
        return _Constant(digits)
    number = int(digits)
    if abs(number) <= LARGEST_INTEGER:
        return number
    # Where it is no float's canonical form, it was not written here.
    return float(number) if canonicalize(float(number)) == digits.encode() else _Constant(digits)


def _unreadable(value: Json, pointer: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _unreadable(member, f"{pointer}/{_escape(name)}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _unreadable(item, f"{pointer}/{index}")
    elif isinstance(value, float) and not is_readable_number(value):
        yield pointer


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
