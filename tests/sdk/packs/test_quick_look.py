from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs.findings import Finding
from melete.packs.grammar import TYPES, Source, walk
from melete.packs.quick_look import cites_only, locate, look_quickly
from melete.packs.wording import HOW_TO, READS_AS

lines = st.sampled_from(
    [
        *(
            "[claim] it is",
            "[claim] it was",
            "[goal] optimize",
            "[goal must] win",
            "[directive] In x, never y",
            "[demo mixed] x",
        ),
        *(
            "[demo positive] {",
            "[demo positive] {",
            "[claim] {",
            "[goal] {",
            "{",
            "}",
            "}",
            "optimize",
            "a",
            "",
            "",
            "  > r",
        ),
        *(
            "  > [A]",
            "[demo x]",
            "[x]",
            "[claim]",
            "[claim] \u00a0",
            "[demo mixed] \u00a0",
            " ",
            "> r",
            "[",
            "[demo positive] { ",
        ),
    ]
)
texts = st.lists(lines, max_size=14).map("\n".join) | st.lists(lines, max_size=10).map("\n\n".join)


@given(texts)
def test_quick_look_says_what_the_walk_says_or_nothing(text: str) -> None:
    look = look_quickly(text, 0)
    if look is None:
        return
    findings: list[Finding] = []
    blocks = list(walk(text, 0, "a", findings, {}))
    assert findings == []
    assert [number for number, *_ in blocks] == list(range(1, len(blocks) + 1))
    counts = dict.fromkeys(TYPES, 0)
    doubtful = []
    for number, tag, content, _, _, _ in blocks:
        counts[tag.type] += 1
        if tag.type in HOW_TO and not READS_AS[tag.type](content):
            doubtful.append((number, tag.type))
    assert look.counts == counts
    assert look.doubtful == doubtful
    numbers = [number for number, _ in doubtful]
    assert list(locate(text, 0, numbers)) == [blocks[number - 1][5] for number in numbers]


@pytest.mark.parametrize(
    "text",
    [
        "[claim] it is\n  > r\n\n[claim] it was\n",
        "[demo positive] {\n[claim] x\n\n}\n  > r\n\n[goal must] optimize",
        "[demo positive] {\nx\n}",
        "",
    ],
)
def test_text_without_faults_needs_no_closer_look(text: str) -> None:
    assert look_quickly(text, 0) is not None


@pytest.mark.parametrize(
    "text",
    [
        "# prose\n",
        "[x] y",
        "[claim x] y",
        "[claim]",
        "[claim] it is\nwrapped",
        "[demo positive] {\nx\n",
        "[demo positive] {\n\n}\n",
        "[demo positive] {",
        "[demo positive] { \nx\n}",
        "[goal] {\noptimize\n}\n",
        "[claim] {\nx\n}\n",
        "[claim] it is\n\n  > r",
        " ",
    ],
)
def test_anything_else_needs_one(text: str) -> None:
    assert look_quickly(text, 0) is None


@pytest.mark.parametrize(
    "piece", ["[demo positive] {\n", "{\n}\n", "[claim] {\n", "[", "  > a\n", "[demo positive] {\n}\n", "x"]
)
def test_long_text_takes_no_more_than_its_length(piece: str) -> None:
    # A look that starts over at each of them would take minutes.
    look_quickly(piece * (200_000 // len(piece)), 0)
    look_quickly(piece * (200_000 // len(piece)) + "\n}", 0)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("  > [A]", True),
        ("  > [A \u2014 verbatim]", True),
        ("  >[A] ", True),
        ("  > see [B]", True),
        ("  > [B]", False),
        ("  > [A]\n  > [B \u2014 verbatim]", False),
        ("  > [A - verbatim]", False),
    ],
)
def test_citations_are_compared_with_the_legend(reason: str, expected: bool) -> None:
    assert cites_only(f"[claim] x\n{reason}\n", {"A": Source("t")}) == expected


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("goal", "In x, the GOAL is to y", True),
        ("goal", "optimizes", True),
        ("goal", "by Default", True),
        ("goal", "the goal was to y", False),
        ("claim", "It is", True),
        ("claim", "(It) has", True),
        ("claim", "is", False),
        ("claim", "This was", False),
        ("claim", "It\tIS so", True),
        ("directive", "In x, never y", True),
        ("directive", "when x, Prefer y", True),
        ("directive", "Whenever x, always y", False),
        ("directive", "Always x in y", False),
        ("directive", "Begin x, always", False),
        ("directive", "Always x in y, never z", True),
        ("demonstration", "anything", True),
        ("demonstration", " ", False),
    ],
)
def test_wording_of_each_type(kind: str, content: str, expected: bool) -> None:
    assert READS_AS[kind](content) == expected


def test_long_wording_takes_no_more_than_its_length() -> None:
    # A search that starts over at each word would take minutes.
    for text in ("in " * 100_000 + "never", "is " * 100_000, "a " * 100_000 + "is", "x." * 100_000):
        for reads in READS_AS.values():
            reads(text)
