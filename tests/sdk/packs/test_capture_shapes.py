from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput
from melete.packs.capture.outline import bullets, label_of, paragraphs, read_outline, sections
from melete.packs.capture.shapes import Shape, detect_shape, parse_shape_choice, section_key


def shape_of(path: str, text: str = "") -> Shape | None:
    found = detect_shape(path, read_outline(text))
    return found.shape if found else None


# By name


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("raw/feedback_em_dashes.md", Shape.FEEDBACK),
        ("raw/project_tidemark.md", Shape.PROJECT),
        ("raw/reference_hosting.md", Shape.REFERENCE),
        ("raw/Feedback_Tone.MD", Shape.FEEDBACK),
        ("main_agent_memory_logs.md", Shape.LOG),
        ("philosophy.md", Shape.PHILOSOPHY),
        ("notes/our-philosophy-2026.md", Shape.PHILOSOPHY),
        ("wiki/pages/current-priorities.md", Shape.PRIORITIES),
        ("marketing/tidemark/tidemark-marketing.md", Shape.MARKETING_MASTER),
    ],
)
def test_a_name_tells_the_shape(path: str, shape: Shape) -> None:
    assert shape_of(path) is shape


def test_a_prefix_says_more_than_a_word_in_a_name_and_a_name_more_than_content() -> None:
    assert shape_of("raw/feedback_philosophy.md") is Shape.FEEDBACK
    assert shape_of("philosophy.md", "### 2026-04-18\n\n- Ran it\n") is Shape.PHILOSOPHY


@pytest.mark.parametrize("path", ["notes.md", "feedback.md", "my_feedback_note.md", "prioritise.md", "x-marketing.md"])
def test_a_name_that_only_looks_like_one_tells_nothing(path: str) -> None:
    assert shape_of(path, "Some prose.\n") is None


# By content


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("### 2026-04-18\n\n- Ran the job\n", Shape.LOG),
        ("### 2026-04-18 (Saturday)\n- Ran the job\n", Shape.LOG),
        ("## Active right now\n\n- One thing\n", Shape.PRIORITIES),
        ("## What NOT to work on\n", Shape.PRIORITIES),
        ("## Positioning\n\n## Voice rules\n", Shape.MARKETING_MASTER),
        ("**Short beats long.** Yes.\n\n**Kind beats clever.** Yes.\n", Shape.PHILOSOPHY),
        ("---\nname: x\ntype: reference\n---\n\nProse.\n", Shape.REFERENCE),
    ],
)
def test_content_tells_the_shape(text: str, shape: Shape) -> None:
    assert shape_of("notes.md", text) is shape


@pytest.mark.parametrize(
    "text",
    [
        "## 2026-04-18\n\n- a head of another level\n",
        "### 2026-04-18\n\nprose, and no bullet\n",
        "```\n### 2026-04-18\n- in a fence\n```\n",
        "<!--\n### 2026-04-18\n- in a comment\n-->\n",
        "**One bold line.** Prose.\n",
        "Some **bold** word, and **another**.\n",
        "**Why:** a label\n\n**How to apply:** another\n",
        "## Positioning\n\nOne section alone.\n",
        "type: feedback\n",
        "",
    ],
)
def test_content_that_only_looks_like_one_tells_nothing(text: str) -> None:
    assert shape_of("notes.md", text) is None


@pytest.mark.parametrize("title", ["Open bets", "**Open bets**", "open bets (3)", "Open Bets:", "`Open bets` ✅"])
def test_titles_are_compared_without_decoration(title: str) -> None:
    assert section_key(title) == "open bets"


# What a person says


def test_a_shape_can_be_chosen_for_a_file_with_an_equals_sign_in_its_name() -> None:
    assert parse_shape_choice("a=b.md=log") == ("a=b.md", Shape.LOG)


@pytest.mark.parametrize("text", ["log", "=log", "notes.md=", "notes.md=diary", "notes.md=LOG"])
def test_any_other_choice_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_shape_choice(text)
    assert caught.value.field == "--shape"


# The outline under it


def test_frontmatter_is_set_apart_and_lines_keep_their_numbers() -> None:
    outline = read_outline("---\ntype: x\n---\n\nFirst.\r\nSecond.\n")
    assert outline.frontmatter == "type: x"
    assert [(line.number, line.text) for line in outline.lines] == [(4, ""), (5, "First."), (6, "Second."), (7, "")]


def test_frontmatter_that_never_ends_is_text() -> None:
    assert read_outline("---\nNot frontmatter\n").frontmatter is None


def test_comments_are_not_read_and_do_not_shift_lines() -> None:
    outline = read_outline("a <!-- secret --> b\n<!-- more\nand more -->\nlast\n")
    assert [(line.number, line.text) for line in outline.lines if line.text] == [(1, "a  b"), (4, "last")]


def test_a_comment_that_is_never_closed_is_text() -> None:
    assert [line.text for line in read_outline("a <!-- b\nc").lines] == ["a <!-- b", "c"]


def test_a_comment_in_a_fence_is_code_and_a_fence_in_a_comment_is_none() -> None:
    outline = read_outline("```\n<!-- kept -->\n```\n<!--\n```\n-->\n- bullet\n")
    assert "<!-- kept -->" in [line.text for line in outline.lines]
    assert [block.text for block in bullets(outline.lines)] == ["bullet"]


def test_lines_end_at_a_line_feed_only() -> None:
    assert len(read_outline("a\u2028b\x0bc\x85d\n").lines) == 2


def test_a_bullet_holds_what_hangs_below_it() -> None:
    text = "- first\n  goes on\n  - nested\n\n  a paragraph\n- [x] second\n\nafter\n1. third\n---\n"
    found = list(bullets(read_outline(text).lines))
    assert [(block.line, block.text) for block in found] == [
        (1, "first\ngoes on\n- nested\n\na paragraph"),
        (6, "second"),
        (9, "third"),
    ]


def test_a_horizontal_rule_is_no_bullet() -> None:
    assert list(bullets(read_outline("- - -\n* * *\n").lines)) == []


def test_a_fence_stays_in_one_paragraph() -> None:
    found = list(paragraphs(read_outline("a\n\n```\nb\n\nc\n```\n\nd\n").lines))
    assert [block.text for block in found] == ["a", "```\nb\n\nc\n```", "d"]


def test_text_before_the_first_heading_is_a_section_of_its_own() -> None:
    found = list(sections(read_outline("intro\n# One\nx\n## Two ##\ny\n").lines))
    assert [(section.line, section.level, section.title) for section in found] == [
        (1, 0, ""),
        (2, 1, "One"),
        (4, 2, "Two"),
    ]


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("**Why:** because", ("why", "because")),
        ("Why: because", ("why", "because")),
        ("**How to apply**: In all copy", ("apply", "In all copy")),
        ("  reason: x", ("why", "x")),
        ("Why not: x", None),
        ("Somewhy: x", None),
    ],
)
def test_labels_are_known_with_and_without_bold(line: str, label: tuple[str, str] | None) -> None:
    assert label_of(line) == label


@given(st.text(alphabet="-*#`~<!>\n ab:[]1.\r\t", max_size=80))
def test_any_text_has_an_outline_whose_lines_are_lines_of_it(text: str) -> None:
    outline = read_outline(text)
    source = text.removeprefix("\ufeff").split("\n")
    for line in outline.lines:
        assert "\n" not in line.text
        assert 1 <= line.number <= len(source)
    assert [line.number for line in outline.lines] == sorted({line.number for line in outline.lines})
    for block in [*bullets(outline.lines), *paragraphs(outline.lines)]:
        assert block.lines
