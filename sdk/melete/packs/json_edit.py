"""Setting members of a JSON object in its text, and leaving everything else as somebody wrote it."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from melete.packs.json_text import Json

_DECODER: Final = json.JSONDecoder()


class _Member(NamedTuple):
    """Where a member stands: its name from `start` to `name_end`, its value from `value` to `end`."""

    start: int
    name_end: int
    value: int
    end: int


def replace_members(text: str, members: dict[str, Json]) -> str:
    """Return the text of a JSON object with members set, and all else as it stands, to the space.

    What is there keeps its place; what is not follows at the end, written as the object is: on lines of their own with
    the same indentation and line ends, or in one line. `text` is one that `melete.packs.json_text.parse` takes.
    """
    opened, found = _find_members(text)
    first = min(found.values(), default=None)
    newline, indent = _find_style(text[opened : first.start] if first else "")
    colon = text[first.name_end : first.value] if first else ": "
    comma = "," if newline or colon == ":" else ", "

    def write(value: Json) -> str:
        if not newline:
            return json.dumps(value, ensure_ascii=False, separators=(comma, colon))
        lines = json.dumps(value, ensure_ascii=False, indent=indent, separators=(",", colon))
        return lines.replace("\n", newline + indent)

    added = [f"{json.dumps(name)}{colon}{write(value)}" for name, value in members.items() if name not in found]
    if added:
        last = max((member.end for member in found.values()), default=opened)
        between = f",{newline}{indent}" if newline else comma
        text = text[:last] + (between if found else "") + between.join(added) + text[last:]
    # From the end, so that the places before it stay right.
    for place, name in sorted(((found[name], name) for name in members if name in found), reverse=True):
        text = text[: place.value] + write(members[name]) + text[place.end :]
    return text


def _find_style(gap: str) -> tuple[str, str]:
    """Return line end and indentation of what stands between a bracket and the first name; both empty in one line."""
    for newline in ("\r\n", "\n", "\r"):
        _, found, indent = gap.rpartition(newline)
        if found:
            return newline, indent
    return "", ""


def _find_members(text: str) -> tuple[int, dict[str, _Member]]:
    """Return where an object opens, and its members."""
    found: dict[str, _Member] = {}
    opened = _skip(text, 0) + 1
    start = _skip(text, opened)
    while text[start] != "}":
        name, name_end = _DECODER.raw_decode(text, start)
        value = _skip(text, _skip(text, name_end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        found[name] = _Member(start, name_end, value, end)
        start = _skip(text, end)
        if text[start] == ",":
            start = _skip(text, start + 1)
    return opened, found


def _skip(text: str, at: int) -> int:
    """Return where the next thing stands that is no space."""
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at
