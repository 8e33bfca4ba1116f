from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs.findings import Severity
from melete.packs.hidden import (
    HIDDEN_RULE,
    MARKER_RULE,
    find_hidden_characters,
    find_hidden_text,
    find_markers,
    remove_hidden,
)

TAGS = "".join(chr(0xE0000 + ord(character)) for character in "rm -rf")

HIDDEN = {
    "tag character": "\U000e0001\U000e0020\U000e0072\U000e007f",
    "zero-width character": "\u200b\u200c\u200d\u2060\u2064\ufeff\u180e\u034f",
    "bidirectional control": "\u061c\u200e\u200f\u202a\u202e\u2066\u2069\u206f",
    "soft hyphen": "\u00ad",
    "variation selector": "\ufe00\U000e0100\U000e01ef",
    "filler": "\u3164\u115f\uffa0\ufff9",
    "line end that not every reader sees": "\x0b\x0c\r\x85\u2028\u2029",
    "control character": "\x00\x08\x1b\x7f\x9f",
}


@pytest.mark.parametrize(("kind", "character"), [(kind, one) for kind, group in HIDDEN.items() for one in group])
def test_each_hidden_character_is_told_with_line_kind_and_code_point(kind: str, character: str) -> None:
    (finding,) = find_hidden_text(f"first\nse{character}cond\nthird", "memory/a.md")
    assert (finding.rule, finding.severity) == (HIDDEN_RULE, Severity.WARNING)
    assert (finding.file, finding.line) == ("memory/a.md", 2)
    assert kind in finding.message
    assert f"U+{ord(character):04X}" in finding.message
    assert character not in str(finding)


def test_instruction_in_tag_characters_is_one_finding_a_line() -> None:
    text = f"[directive must] In all copy, always be kind.{TAGS}\n\n{TAGS}\u00ad"
    found = find_hidden_text(text, "a")
    assert [(finding.line, finding.message.split(" that")[0]) for finding in found] == [
        (1, "6 times a tag character"),
        (3, "6 times a tag character"),
        (3, "a soft hyphen"),
    ]
    assert "U+E0072" in found[0].message


def test_many_different_code_points_are_named_up_to_a_bound() -> None:
    (finding,) = find_hidden_text("".join(chr(point) for point in range(0xE0000, 0xE0080)), "a")
    assert finding.message.startswith("128 times")
    assert finding.message.endswith("...")
    assert len(finding.message) < 200


@pytest.mark.parametrize(
    "text",
    [
        "plain text, tabs\t and line ends\n",
        "a\r\nb\r\n",
        "caf\u00e9 \u2014 \u65e5\u672c\u8a9e \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
        "nice \u2764\ufe0f and \U0001f600",
        "family \U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f3f3\ufe0f\u200d\U0001f308 and \U0001f469\U0001f3fd\u200d\U0001f4bb",
    ],
)
def test_what_people_type_is_not_hidden(text: str) -> None:
    assert find_hidden_text(text, "a") == []


@pytest.mark.parametrize("text", ["a\u200db", "\u200d\U0001f469", "\U0001f469\u200d", "a\u200d\U0001f469"])
def test_joiner_that_joins_no_two_pictures_is_told(text: str) -> None:
    assert len(find_hidden_text(text, "a")) == 1


def test_lone_carriage_return_is_told_beside_those_of_line_ends() -> None:
    assert [finding.line for finding in find_hidden_text("a\r\nhide\rthis\r\n", "a")] == [2]


@given(st.text() | st.text("a\u200b\u00ad\U000e0041\r\n"))
def test_text_without_its_hidden_characters_hides_nothing_and_keeps_its_lines(text: str) -> None:
    seen = remove_hidden(text)
    assert find_hidden_characters(seen) == {}
    assert seen.count("\n") == text.count("\n")


# Markers


@pytest.mark.parametrize(
    "marker",
    [
        "<!-- amp:begin @local/notes -->",
        "<!-- amp:end @local/notes -->",
        "<!--amp:end-->",
        "<!--  AMP:Begin x",
        "<!-- amp : end @a/b -->",
    ],
)
def test_each_marker_is_told_once_a_line(marker: str) -> None:
    found = find_markers(f"x\ntext {marker} {marker}\n\n{marker}", "agents.md")
    assert [(finding.rule, finding.severity, finding.line) for finding in found] == [
        (MARKER_RULE, Severity.ERROR, 2),
        (MARKER_RULE, Severity.ERROR, 4),
    ]


@pytest.mark.parametrize(
    "text", ["<!-- comment -->", "amp:begin", "<!-- example:begin -->", "<!- amp:begin", "< amp:end >"]
)
def test_other_comments_are_no_markers(text: str) -> None:
    assert find_markers(text, "agents.md") == []


def test_many_markers_take_no_more_than_their_length() -> None:
    assert len(find_markers("<!-- amp:end -->\n" * 20_000, "a")) == 20_000
