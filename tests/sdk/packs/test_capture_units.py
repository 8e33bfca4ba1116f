from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs.capture.log import find_quotes, narrates, suggest
from melete.packs.capture.outline import read_outline
from melete.packs.capture.shapes import Shape
from melete.packs.capture.units import Candidate, SourceUnit, extract_units


def units(text: str, shape: Shape, author: str | None = None, source: str = "notes.md") -> list[SourceUnit]:
    return list(extract_units(source, read_outline(text), shape, author))


def lines(text: str, shape: Shape, author: str | None = None) -> list[tuple[int, str, Candidate]]:
    return [(unit.line, unit.text, unit.candidate) for unit in units(text, shape, author)]


# Philosophy


def test_a_bold_principle_and_its_prose_are_one_unit() -> None:
    text = "# Title\n\nIntroduction.\n\n**Short.** One.\nTwo.\n\nThree.\n\n**Kind.**\nFour.\n"
    found = [(unit.line, unit.text) for unit in units(text, Shape.PHILOSOPHY)]
    assert found == [(5, "**Short.** One.\nTwo.\n\nThree."), (10, "**Kind.**\nFour.")]


def test_each_topic_of_a_section_of_takes_is_one_unit() -> None:
    text = "## Ada's Takes\n\n### Roadmaps\n\nThey are promises.\n\n### Speed\n\n- one\n- two\n\n## End\n\n### N\n\nx\n"
    found = [unit.text for unit in units(text, Shape.PHILOSOPHY)]
    assert found == ["**Roadmaps**\n\nThey are promises.", "one", "two"]


def test_principles_may_be_bullets_that_start_in_bold() -> None:
    found = [unit.text for unit in units("- **Short.** One.\n- **Kind.** Two.\n- plain\n", Shape.PHILOSOPHY)]
    assert found[0] == "**Short.** One."
    assert found[1].startswith("**Kind.** Two.")


# Priorities


def test_each_bullet_of_priorities_is_a_unit_of_its_sections_kind() -> None:
    text = (
        "## Active right now\n- a\n### Tidemark\n- b\n## Open bets\n- c\n## What NOT to work on\n- d\n"
        "## Recently shipped\n- e\n## Scheduled tasks\n- f\n## Someday\n- g\nprose\n"
    )
    assert lines(text, Shape.PRIORITIES) == [
        (2, "a", Candidate.GOAL),
        (4, "b", Candidate.GOAL),
        (6, "c", Candidate.GOAL),
        (8, "d", Candidate.DIRECTIVE),
        (10, "e", Candidate.ACTION_LOG),
        (12, "f", Candidate.CLAIM),
        (14, "g\nprose", Candidate.UNKNOWN),
    ]


# Whole files


@pytest.mark.parametrize(
    ("shape", "candidate"),
    [
        (Shape.FEEDBACK, Candidate.DIRECTIVE),
        (Shape.PROJECT, Candidate.CLAIM),
        (Shape.REFERENCE, Candidate.CLAIM),
    ],
)
def test_a_whole_file_is_one_unit_without_frontmatter_and_title(shape: Shape, candidate: Candidate) -> None:
    (unit,) = units("---\nname: x\n---\n\n# Title\n\nOne.\n\n## Part\n\nTwo.\n", shape)
    assert (unit.line, unit.section, unit.text, unit.candidate) == (7, "Title", "One.\n\n## Part\n\nTwo.", candidate)


def test_the_one_composite_project_is_split_at_its_sections() -> None:
    text = "# T\n\nintro\n\n## A\n\nx\n\n### B\n\ny\n"
    found = units(text, Shape.PROJECT, source="raw/project_memorymarket_v3.md")
    assert [(unit.section, unit.text) for unit in found] == [("A", "x"), ("B", "y")]


@pytest.mark.parametrize("text", ["", "\n\n", "---\nname: x\n---\n", "# Title only\n", "<!-- nothing -->\n"])
def test_an_empty_file_has_no_unit(text: str) -> None:
    assert units(text, Shape.FEEDBACK) == []


# Marketing


def test_sections_of_a_marketing_master_give_claims_rules_and_examples() -> None:
    text = (
        "# Master\n\nintro\n\n## Positioning\n\nIt is a notebook.\n\n- with a list\n\n## Voice\n\n- warm\n- plain\n\n"
        "## Approved Examples\n\n- one\n- two\n\n## Rejected examples\n\n> three\n> lines\n\nWhy: stale\n\n"
        "## Other\n\nx\n"
    )
    assert lines(text, Shape.MARKETING_MASTER) == [
        (7, "It is a notebook.\n\n- with a list", Candidate.CLAIM),
        (13, "warm", Candidate.DIRECTIVE),
        (14, "plain", Candidate.DIRECTIVE),
        (18, "one", Candidate.DEMONSTRATION),
        (19, "two", Candidate.DEMONSTRATION),
        (23, "three\nlines\n\nWhy: stale", Candidate.DEMONSTRATION),
        (30, "x", Candidate.UNKNOWN),
    ]
    valences = [unit.valence for unit in units(text, Shape.MARKETING_MASTER) if unit.valence]
    assert valences == ["positive", "positive", "negative"]


def test_an_example_under_a_heading_of_its_own_is_one_whatever_it_holds() -> None:
    text = (
        "## Approved Examples\n\n### Post\n\nFirst line.\n\n- a list\n- of the post\n\n### Code\n\n```\nx {\n}\n```\n"
    )
    found = [unit.text for unit in units(text, Shape.MARKETING_MASTER)]
    assert found == ["First line.\n\n- a list\n- of the post", "x {\n}"]


# Logs


LOG = """\
# Log

- before any day

### 2026-04-18

- Ran /social-post for the release
- Committed the fix. Ada: "In copy, never shout."
- decided: Tidemark is free
- corrected: never use tabs
- Talked about autumn

## Not a day

- outside

### 2026-04-19

- Ada said: Keep it short. Always.
"""


def test_each_bullet_below_a_day_is_judged() -> None:
    assert lines(LOG, Shape.LOG, "Ada") == [
        (7, "Ran /social-post for the release", Candidate.ACTION_LOG),
        (8, "In copy, never shout.", Candidate.GOAL_OR_DIRECTIVE),
        (8, 'Committed the fix. Ada: "In copy, never shout."', Candidate.ACTION_LOG),
        (9, "decided: Tidemark is free", Candidate.CLAIM_OR_GOAL),
        (10, "corrected: never use tabs", Candidate.DIRECTIVE),
        (11, "Talked about autumn", Candidate.UNKNOWN),
        (19, "Keep it short. Always.", Candidate.GOAL_OR_DIRECTIVE),
    ]


def test_words_of_somebody_else_are_not_the_authors() -> None:
    (first, second) = units('### 2026-04-18\n- Sent it. Bob: "Never shout."\n- Adam: Never shout.\n', Shape.LOG, "Ada")
    assert first.candidate is Candidate.ACTION_LOG
    assert (second.text, second.quoted) == ("Adam: Never shout.", False)


def test_a_narration_that_also_decides_goes_to_a_person() -> None:
    (unit,) = units("### 2026-04-18\n- Deployed the site, and decided the domain is tidemark.example\n", Shape.LOG)
    assert unit.candidate is Candidate.UNKNOWN
    assert "decided" in unit.reason


def test_what_a_bullet_says_beside_a_quote_is_not_lost() -> None:
    text = '### 2026-04-18\n- decided: Tidemark is free. Ada: "In copy, always say so."\n'
    assert [unit.text for unit in units(text, Shape.LOG, "Ada")] == [
        "In copy, always say so.",
        "decided: Tidemark is free.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Ran /deploy",
        "ran the job",
        "Committed fix to X",
        "**14:02** Published the post",
        "14:02 - sent the mail",
        "✅ Deployed v2",
        "- Fixed the page where users don't see it".removeprefix("- "),
        "We have shipped it",
        "I merged the branch",
        "**site**: updated the footer",
        "Then also pushed the tag",
        "The bot triggered /nightly",
    ],
)
def test_narration_is_known(text: str) -> None:
    assert narrates(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "decided: go",
        "Closed-loop funnels beat open ones",
        "Signed packs are worth the trouble",
        "Tested copy always beats guesses",
        "Set the default to dark",
        "Read the docs first",
        "Cut scope before quality",
        "Fixture data is in the repo",
        "Rants are not welcome",
        "The deployed site is in Kiel",
        "",
        "!" * 5000,
    ],
)
def test_what_asserts_or_orders_is_no_narration(text: str) -> None:
    assert narrates(text) is None


@pytest.mark.parametrize(
    ("text", "word", "correction"),
    [
        ("corrected: use commas", "corrected", True),
        ("never use tabs", "never use", True),
        ("stop doing that", "stop doing", True),
        ("Don't answer on Sundays", "don't", True),
        ("decided on blue", "decided", False),
        ("name is locked", "locked", False),
        ("going with Kiel", "going with", False),
        ("decided to never use tabs", "never use", True),
    ],
)
def test_words_suggest_a_correction_or_a_decision(text: str, word: str, correction: bool) -> None:
    assert suggest(text) == (word, correction)


@pytest.mark.parametrize("text", ["the road is blocked", "undecided", "never used", "it stopped doing well", ""])
def test_words_inside_other_words_suggest_nothing(text: str) -> None:
    assert suggest(text) is None


@pytest.mark.parametrize(
    ("text", "quotes"),
    [
        ('Ada: "Keep it short."', ["Keep it short."]),
        ("**Ada:** Keep it short. Never pad.", ["Keep it short. Never pad."]),
        ("Ada said never pad", ["never pad"]),
        ("“Keep it short.” — Ada", ["Keep it short."]),
        ('Sent it. Ada said: "One." Then Ada said "Two."', ["One.", "Two."]),
        ("Deployed it, Ada: the name is set. All fine.", ["the name is set."]),
        ("Canada: never", []),
        ("Ada", []),
        ("Ada:", []),
        ("met Ada at noon", []),
        ('He said "never"', []),
    ],
)
def test_the_authors_words_are_found(text: str, quotes: list[str]) -> None:
    assert [quote.text for quote in find_quotes(text, "Ada")] == quotes


def test_without_a_name_only_plain_quotes_of_author_owner_or_user_count() -> None:
    assert [quote.text for quote in find_quotes('Sent it. User: "Never shout."', None)] == ["Never shout."]
    assert [quote.text for quote in find_quotes("Owner: never shout", None)] == ["never shout"]
    assert find_quotes("Fixed a fault for the user: it crashed", None) == []


def test_a_name_is_text_and_no_pattern() -> None:
    assert find_quotes('anything: "x y"', ".*") == []
    assert [quote.text for quote in find_quotes('A.* (x): "so be it"', "A.* (x)")] == ["so be it"]


# Any text


@pytest.mark.parametrize("shape", list(Shape))
@given(text=st.text(alphabet='-*#` ab:."\n<>0', max_size=80))
def test_every_unit_lies_in_its_file(shape: Shape, text: str) -> None:
    for unit in units(text, shape, "a"):
        assert unit.text.strip()
        assert 1 <= unit.line <= text.count("\n") + 1


def test_long_hostile_lines_are_read_at_once() -> None:
    # Patterns that go back over what they read would not come to an end here.
    for text in ("!" * 50_000, '"' * 50_000, "**" * 20_000, "Ada said " * 8_000, "<!--" * 10_000 + "\n" * 10):
        assert len(units(f"### 2026-04-18\n- {text}\n", Shape.LOG, "Ada")) <= 2
