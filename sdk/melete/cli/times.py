"""Times and spans as people write and read them. Inside, a time is seconds since 1970 in UTC."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final

import click

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN: Final = re.compile(r"([0-9]{1,9})([smhdw])", re.ASCII)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def parse_span(text: str) -> int | None:
    """Return the seconds of a span such as 90, 30m, 12h, 7d or 1w; None for text that is none."""
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    found = _SPAN.fullmatch(text)
    return int(found[1]) * _UNITS[found[2]] if found else None


def parse_time(text: str, now: datetime) -> int | None:
    """Return a time: seconds since 1970, ISO 8601 (local unless it says otherwise), a span ahead such as +3h, or a
    weekday (the start of the next such day, local). None for text that is none."""
    if text.startswith("+"):
        span = parse_span(text[1:])
        return None if span is None else int(now.timestamp()) + span
    if text.isascii() and text.isdigit() and 8 < len(text) <= 15:
        return int(text)
    if text.lower() in _DAYS:
        ahead = (_DAYS.index(text.lower()) - now.weekday() - 1) % 7 + 1
        day = (now + timedelta(days=ahead)).date()
        return int(datetime(day.year, day.month, day.day).timestamp())
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        return None


class TimeParameter(click.ParamType):
    """A time on the command line; see `parse_time`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the time in seconds, or fail as a usage error."""
        if isinstance(value, int):
            return value
        found = parse_time(value, datetime.now().astimezone())
        if found is None or not 0 <= found < 2**48:
            self.fail(
                f"{value!a} is no time; give seconds since 1970, 2026-12-04, 2026-12-04T17:00, +3h or friday",
                param,
                ctx,
            )
        return found


class SpanParameter(click.ParamType):
    """A span on the command line; see `parse_span`."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the span in seconds, or fail as a usage error."""
        if isinstance(value, int):
            return value
        found = parse_span(value)
        if found is None or not 0 <= found < 2**48:
            self.fail(f"{value!a} is no span; give seconds, or 30m, 12h, 7d, 1w", param, ctx)
        return found


def show_time(seconds: int) -> str:
    """Return a time in the local zone; - for 0, which is never."""
    if seconds == 0:
        return "-"
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} (seconds since 1970)"


def show_distance(seconds: int) -> str:
    """Return how far away a moment is, in its largest units: in 3 h, 2 d 4 h ago, now."""
    if seconds == 0:
        return "now"
    rest = abs(seconds)
    parts: list[str] = []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if rest >= size and len(parts) < 2:
            parts.append(f"{rest // size} {name}")
            rest %= size
        elif parts:
            break
    text = " ".join(parts)
    return f"in {text}" if seconds > 0 else f"{text} ago"
