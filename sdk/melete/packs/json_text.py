"""JSON as JavaScript reads and writes it: what a pack's signature covers is the text that `JSON.stringify` gives.

    parse(b'{"b": 1.0, "1": 5e-7}')            {"b": 1, "1": 5e-07}
    stringify(...)                             b'{"1":5e-7,"b":1}'

A text that JavaScript would read otherwise than it stands there is refused with the place and the reason: a member
that stands twice, `__proto__`, a number that becomes another one or infinite. So is what is not JSON to JavaScript.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

#: Objects and arrays inside one another. JavaScript sets no limit, and readers differ in where they give up.
DEEPEST: Final = 100
#: The orders in which `stringify` writes the members of an object.
ORDERS: Final = ("text", "reference")
#: From here on JavaScript keeps a member's name that is a number in its place (ECMAScript, array index).
_NO_INDEX: Final = 2**32 - 1
_SAFE: Final = 2**53
_NESTED: Final = f"it is nested more than {DEEPEST} deep; flatten it"


def parse(text: str | bytes) -> Json:
    """Return the value of a JSON text as `JSON.parse` gives it; bytes are UTF-8.

    A number that JavaScript holds as an integer comes as `int`, whether or not it is written with a point or an
    exponent; every other one as `float`. Lone surrogates, written as escapes, stay.

    Errors: `InvalidJson` for what is not JSON, not UTF-8, or begins with a byte order mark; for a member that stands
    twice or is named `__proto__`; for a number that a double holds only as another integer, or not at all; for more
    than 100 levels.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            _refuse("", f"it is not UTF-8 (byte {error.start}); save it as UTF-8")
    if text.startswith("\ufeff"):
        _refuse("", "it begins with a byte order mark, which is not JSON; remove it")
    try:
        try:
            value: Json = _QUICK.decode(text)
        except _Fault:
            # The quick way says no; the slow way says where.
            _find_fault(_SLOW.decode(text), "")
            raise AssertionError("a fault that is nowhere") from None
    except json.JSONDecodeError as error:
        _refuse("", f"it is not JSON: {error.msg} in line {error.lineno}, column {error.colno}")
    except RecursionError:
        _refuse("", _NESTED)
    if text.count("[") + text.count("{") > DEEPEST:
        _check_depth(value)
    return value


def stringify(value: Json, *, order: str = "text") -> bytes:
    """Return the bytes of `JSON.stringify(value)`, in UTF-8.

    Names that are array indexes (0 to 2^32 - 2, written plainly) come first, ascending, in every object. The others
    stand in the order of the value (`text`), or by length and then by UTF-16 code unit, as the reference tool sorts
    them (`reference`).

    Errors: `InvalidJson` for what JavaScript would not write as it is: an infinite number or none, an integer that a
    double does not hold, a value of another type, more than 100 levels; `InvalidInput` for another order.
    Source: ECMAScript, JSON.stringify, OrdinaryOwnPropertyKeys and Number::toString.
    """
    if order not in ORDERS:
        from melete.errors import InvalidInput

        raise InvalidInput("order", order, "text or reference")
    parts: list[str] = []
    _write(value, order == "reference", parts, [])
    return "".join(parts).encode("utf-8")


def number_text(number: float) -> str:
    """Return the text of a finite number as ECMAScript writes it. Source: ECMAScript, Number::toString."""
    if type(number) is int and -_SAFE <= number <= _SAFE:
        return str(number)
    number = float(number)
    if number == 0:
        return "0"
    # Python's text has the same digits, the fewest that give the number back; only their layout differs.
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        text = digits.ljust(point, "0")
        if len(digits) > point:
            text = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        text = f"{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return text if number > 0 else f"-{text}"


def string_text(text: str) -> str:
    """Return a text as `JSON.stringify` quotes it: half a surrogate pair as an escape, everything else as it is."""
    quoted: str = _quote(text)
    if text.isascii():
        return quoted
    try:
        quoted.encode("utf-8")
    except UnicodeEncodeError:
        # Two halves side by side are one character to JavaScript, wherever they came from.
        paired = quoted.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return "".join(f"\\u{ord(one):04x}" if "\ud800" <= one <= "\udfff" else one for one in paired)
    return quoted


# Reading


class _Fault(Exception):
    """Something is refused, wherever it stands."""


class _Token(str):
    """A number as written."""


class _Constant(str):
    """NaN, Infinity or -Infinity, as written."""


class _Members(list[tuple[str, Any]]):
    """The members of one object as written."""


def _read_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) != len(members) or "__proto__" in value:
        raise _Fault
    return value


def _read_number(token: str) -> int | float:
    if len(token) < 16:  # below 10^15, if it is an integer
        try:
            return int(token)
        except ValueError:
            pass
    number = float(token)
    if number - number != 0 or not _is_exact(token, number):
        raise _Fault
    return int(number) if number.is_integer() and (abs(number) <= _SAFE or _is_integer(token)) else number


def _read_constant(_: str) -> NoReturn:
    raise _Fault


def _is_integer(token: str) -> bool:
    return token.lstrip("-").isdigit()


def _is_exact(token: str, number: float) -> bool:
    """Return whether an integer that is written out is the number that a double makes of it."""
    return not _is_integer(token) or int(token) == int(number)


_QUICK: Final = json.JSONDecoder(
    object_pairs_hook=_read_object, parse_int=_read_number, parse_float=_read_number, parse_constant=_read_constant
)
_SLOW: Final = json.JSONDecoder(
    object_pairs_hook=_Members, parse_int=_Token, parse_float=_Token, parse_constant=_Constant
)


def _find_fault(value: Any, pointer: str) -> None:
    """Raise for the first thing that is refused, with its place."""
    if isinstance(value, _Members):
        seen = set()
        for name, member in value:
            place = f"{pointer}/{_escape(name)}"
            if name in seen:
                _refuse(
                    place, "the member stands twice in its object, and readers differ in which one counts; keep one"
                )
            if name == "__proto__":
                _refuse(place, "JavaScript does not read a member of this name as a member; rename it")
            seen.add(name)
            _find_fault(member, place)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _find_fault(item, f"{pointer}/{index}")
    elif isinstance(value, _Constant):
        _refuse(pointer, f"{value} is not JSON; use a string")
    elif isinstance(value, _Token):
        number = float(value)
        if number - number != 0:
            _refuse(pointer, f"{_shorten(value)} is beyond double precision, and JavaScript writes null; use a string")
        if not _is_exact(value, number):
            _refuse(pointer, f"{_shorten(value)} is {number_text(number)} to JavaScript; use a string")


def _check_depth(value: Json) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    if any(isinstance(one, dict | list) for one in level):
        _refuse("", _NESTED)


# Writing


def _write(value: Any, by_length: bool, parts: list[str], path: list[str]) -> None:
    kind = type(value)
    if kind is str:
        parts.append(string_text(value))
    elif value is None or kind is bool:
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif kind is int or kind is float:
        fault = _find_number_fault(value)
        if fault:
            _refuse("".join(path), fault)
        parts.append(number_text(value))
    elif kind in (dict, list):
        if len(path) >= DEEPEST:
            _refuse("".join(path), _NESTED)
        opened = len(parts)
        if kind is dict:
            for name in _order(value, by_length, path):
                # The first comma gives way to the opening bracket.
                parts += (",", string_text(name), ":")
                path.append(f"/{_escape(name)}")
                _write(value[name], by_length, parts, path)
                path.pop()
        else:
            for index, item in enumerate(value):
                parts.append(",")
                path.append(f"/{index}")
                _write(item, by_length, parts, path)
                path.pop()
        opening, closing = "{}" if kind is dict else "[]"
        if len(parts) > opened:
            parts[opened] = opening
        else:
            parts.append(opening)
        parts.append(closing)
    else:
        _refuse("".join(path), f"a value of type {kind.__name__} is not JSON")


def _order(value: dict[Any, Any], by_length: bool, path: list[str]) -> list[str]:
    for name in value:
        if type(name) is not str:
            _refuse("".join(path), f"a member name must be text, not {type(name).__name__}")
    names = list(value)
    if by_length:
        # The length is the number of UTF-16 code units too.
        names.sort(key=_by_length)
    if any(name[:1].isdigit() for name in names):
        indexes = [name for name in names if _is_index(name)]
        names = sorted(indexes, key=int) + [name for name in names if not _is_index(name)]
    return names


def _by_length(name: str) -> tuple[int, bytes]:
    units = name.encode("utf-16-be", "surrogatepass")
    return len(units), units


def _is_index(name: str) -> bool:
    plain = name.isascii() and name.isdigit() and len(name) <= 10
    return plain and (name == "0" or name[0] != "0") and int(name) < _NO_INDEX


def _find_number_fault(number: float) -> str:
    if isinstance(number, float):
        return "" if number - number == 0 else "the number is infinite or none, which JSON cannot carry; use a string"
    try:
        exact = -_SAFE <= number <= _SAFE or int(float(number)) == number
    except OverflowError:
        exact = False
    return "" if exact else "a double does not hold the integer; use a string"


# `json.encoder.encode_basestring` escapes what JSON.stringify escapes, halves of surrogate pairs excepted.
_quote = json.encoder.encode_basestring


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _shorten(token: str) -> str:
    return token if len(token) <= 40 else f"{token[:40]}..."


def _refuse(pointer: str, rule: str) -> NoReturn:
    from melete.errors import InvalidJson

    raise InvalidJson(pointer, rule) from None
