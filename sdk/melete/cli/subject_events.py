"""Events of the registry of subjects as JSON: the standard's names, and as text what is 64 bits wide."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

#: The members that are 64 bits wide, whatever event they stand in; and those that are in one of them.
_WIDE: Final = frozenset(("seq", "base_version", "new_version", "restores_version"))
_WIDE_IN: Final = {"LayerCommitmentChanged": frozenset(("version",))}
#: Members with a report's own members.
_REPORT: Final = "report"


def event_json(event: Any) -> dict[str, Any]:
    """Return what an event says, with its name and its block."""
    kind = type(event).__name__
    found: dict[str, Any] = {"event": kind}
    for name, value in _members(event):
        found[_camel_case(name)] = str(value) if name in _WIDE | _WIDE_IN.get(kind, frozenset()) else _plain(value)
    return {**found, "block": event.reference.block_number}


def _members(event: Any) -> list[tuple[str, Any]]:
    members = [(field.name, getattr(event, field.name)) for field in fields(event) if field.name != "reference"]
    plain = [member for member in members if member[0] != _REPORT]
    for name, report in members:
        if name == _REPORT:
            # What the event says itself, it says of the report too.
            known = {known for known, _ in plain}
            plain += [(one, value) for one, value in _members_of(report) if one not in known]
    return plain


def _members_of(report: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(report, field.name)) for field in fields(report)]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, bytes) else value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join("URI" if word == "uri" else word.capitalize() for word in others)
