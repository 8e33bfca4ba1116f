from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs.capture.duplicates import content_words, find_duplicate
from melete.packs.capture.routes import RULES, Rule, find_route

OPS, VOICE, STRATEGY = "ops-tools.md", "copy-voice.md", "content-strategy.md"
PRODUCT, PRINCIPLES, DEMOS = "product-context.md", "operating-principles.md", "demonstrations.md"


@pytest.mark.parametrize(
    ("words", "file", "rank"),
    [
        ("rotate every credential", OPS, 1),
        ("an API key", OPS, 1),
        ("the api-keys", OPS, 1),
        ("set it in .env", OPS, 1),
        ("mail by Resend", OPS, 1),
        ("two email addresses", OPS, 1),
        ("before a deployment", OPS, 1),
        ("no em dash", VOICE, 2),
        ("no em-dashes", VOICE, 2),
        ("the tone of it", VOICE, 2),
        ("a sentence-pattern", VOICE, 2),
        ("banned words", VOICE, 2),
        ("the colour blue", VOICE, 2.5),
        ("a dark theme", VOICE, 2.5),
        ("brand voice", VOICE, 2),
        ("the launch", STRATEGY, 3),
        ("each story", STRATEGY, 3),
        ("lead with data", STRATEGY, 3),
        ("a closed-loop test", STRATEGY, 3),
        ("ONE CTA", STRATEGY, 3),
    ],
)
def test_a_word_sends_a_directive_to_its_file(words: str, file: str, rank: float) -> None:
    route = find_route("directive", f"In this case, always mind {words}.")
    assert (route.file, route.rank) == (file, rank)
    assert f"rule {rank:g}" in route.reason


@pytest.mark.parametrize(
    "words",
    [
        "the tokenizer",
        "a milestone",
        "a triangle",
        "the octal",
        "postpone it",
        "information",
        "brandy",
        "drafty",
        "redesigned",
    ],
)
def test_a_word_inside_another_one_sends_nothing_anywhere(words: str) -> None:
    route = find_route("directive", f"In this case, always mind {words}.")
    assert route.file is None
    assert "no rule" in route.reason


def test_the_first_rule_that_matches_wins() -> None:
    assert find_route("claim", "The launch post has a tone and a token").file == OPS
    assert find_route("claim", "The launch post has a tone").file == VOICE
    assert find_route("claim", "The launch post has an angle").file == STRATEGY
    assert find_route("claim", "Tidemark is a notebook").file == PRODUCT


@pytest.mark.parametrize(("kind", "file"), [("claim", PRODUCT), ("goal", PRINCIPLES), ("demonstration", DEMOS)])
def test_without_a_word_the_type_decides(kind: str, file: str) -> None:
    assert find_route(kind, "Plain words").file == file


def test_a_directive_without_a_word_is_a_principle_only_where_principles_are_kept() -> None:
    assert find_route("directive", "In reviews, always ask.").file is None
    assert find_route("directive", "In reviews, always ask.", principle=True).file == PRINCIPLES


def test_only_visual_rules_have_a_subtype() -> None:
    assert find_route("directive", "Mind the palette").subtype == "visual-brand"
    assert find_route("directive", "Mind the tone").subtype is None


def test_two_files_of_equal_rank_are_a_question() -> None:
    rules = (*RULES, Rule(3, "podcast.md", r"launch(?:es)?"))
    route = find_route("directive", "Mind the launch", rules=rules)
    assert route.file is None
    assert "podcast.md" in route.reason
    assert STRATEGY in route.reason


def test_two_rules_of_equal_rank_for_one_file_are_none() -> None:
    rules = (Rule(1, OPS, "boat"), Rule(1, OPS, "sail"))
    assert find_route("directive", "boat and sail", rules=rules).file == OPS


@given(st.sampled_from(["goal", "claim", "directive", "demonstration"]), st.text(max_size=80))
def test_goals_claims_and_demonstrations_always_have_a_file(kind: str, words: str) -> None:
    route = find_route(kind, words)
    assert route.file is not None or kind == "directive"
    assert route.reason.isprintable()


# Duplicates


FEEDBACK = {
    "raw/feedback_dashes.md": content_words("In any copy, never use em dashes. Readers stumble over an em dash."),
    "raw/feedback_tests.md": content_words("Write a failing test before the fix."),
}


@pytest.mark.parametrize(
    "text",
    [
        "corrected: never use em dashes in copy",
        "Never use an em dash in any COPY!",
        "don't use em-dashes in copy",
    ],
)
def test_what_stands_in_a_feedback_file_is_a_duplicate(text: str) -> None:
    assert find_duplicate(text, FEEDBACK) == "raw/feedback_dashes.md"


@pytest.mark.parametrize(
    "text",
    [
        "never use em dashes in spoken headlines",
        "never use semicolons",
        "use em dashes in copy and a failing test",
        "never, always, and so on",
        "",
    ],
)
def test_what_says_more_is_none(text: str) -> None:
    assert find_duplicate(text, FEEDBACK) is None


def test_exactly_four_of_five_words_are_not_over_eighty_percent() -> None:
    known = {"f.md": frozenset({"ship", "small", "boat", "fast"})}
    assert find_duplicate("ship small boat fast today", known) is None
    assert find_duplicate("ship small boat fast", known) == "f.md"
    six = {"f.md": frozenset({"ship", "small", "boat", "fast", "red"})}
    assert find_duplicate("ship small boat fast red sail", six) == "f.md"


def test_words_must_stand_in_one_file() -> None:
    halves = {"a.md": frozenset({"ship", "small"}), "b.md": frozenset({"boat", "fast"})}
    assert find_duplicate("ship small boat fast", halves) is None


def test_words_of_any_alphabet_count() -> None:
    assert content_words("Größe zählt, ДА; don\u2019t") == {"größe".casefold(), "zählt", "да"}
