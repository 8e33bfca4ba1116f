from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.cli.times import parse_span, parse_time, show_distance, show_time

#: A Monday.
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("30m", 1800), ("12h", 43200), ("7d", 604800), ("1w", 604800)],
)
def test_span_is_read_in_its_unit(text: str, seconds: int) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1.5h", "h", "1y", "1 h", "+1h", "\u0661h", "1" * 16, "9999999999d"])
def test_what_is_no_span_is_refused(text: str) -> None:
    assert parse_span(text) is None


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1796040000", 1796040000),
        ("+3h", int(NOW.timestamp()) + 10800),
        ("2026-12-04T17:00:00+00:00", 1796403600),
        ("2026-12-04T17:00:00Z", 1796403600),
        ("2026-12-04", int(datetime(2026, 12, 4).timestamp())),
        ("friday", int(datetime(2026, 12, 4).timestamp())),
        ("Monday", int(datetime(2026, 12, 7).timestamp())),
        ("tuesday", int(datetime(2026, 12, 1).timestamp())),
    ],
)
def test_time_is_read_in_every_form(text: str, time: int) -> None:
    assert parse_time(text, NOW) == time


@pytest.mark.parametrize("text", ["", "soon", "+", "+x", "12", "2026-13-01", "17:00", "-5", "fri\u0131day", "1" * 16])
def test_what_is_no_time_is_refused(text: str) -> None:
    assert parse_time(text, NOW) is None


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_is_refused(text: str) -> None:
    found = parse_time(text, NOW)
    assert found is None or isinstance(found, int)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (1, "in 1 s"),
        (10800, "in 3 h"),
        (10860, "in 3 h 1 min"),
        (-187_200, "2 d 4 h ago"),
        (86_401, "in 1 d"),
        (-59, "59 s ago"),
    ],
)
def test_distance_is_told_in_its_largest_units(seconds: int, text: str) -> None:
    assert show_distance(seconds) == text


def test_never_and_times_beyond_the_calendar_are_told() -> None:
    assert show_time(0) == "-"
    assert str(2**48 - 1) in show_time(2**48 - 1)
    assert show_time(1796040000).startswith("2026-1")
