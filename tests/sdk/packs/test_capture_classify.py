from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs.capture.classify import (
    _MAY,
    LONGEST_LEAD,
    LONGEST_REASON,
    classify,
    draft,
    find_facets,
    is_of_type,
    plain,
    readings_of,
    split_sentences,
    split_unit,
)
from melete.packs.capture.review import FACETS
from melete.packs.capture.shapes import Shape
from melete.packs.capture.units import Candidate, SourceUnit


def unit(text: str, candidate: Candidate, reason: str = "its place", valence: str | None = None) -> SourceUnit:
    return SourceUnit("notes.md", 3, Shape.FEEDBACK, "", text, candidate, reason, valence)


# How a sentence reads


@pytest.mark.parametrize(
    ("sentence", "readings"),
    [
        ("In all copy, never use em dashes.", {"directive"}),
        ("When a key is rotated, prefer a new one over the old one.", {"directive"}),
        ("when in doubt, always ask", {"directive"}),
        ("Optimize reach over polish.", {"goal"}),
        ("In every post, the goal is to teach one thing.", {"goal"}),
        ("Default cadence: one release a week.", {"goal"}),
        ("Tidemark is a notebook.", {"claim"}),
        ("A team has two people.", {"claim"}),
        ("The default port is 8080.", {"claim"}),
        ("In every post, always optimize for reach.", {"directive", "goal"}),
        ("It is a notebook.", set()),
        ("This is why.", set()),
        ("When it is late, call.", set()),
        ("Never use em dashes.", set()),
        ("Interesting posts never shout.", set()),
        ("Thisxis fine.", set()),
        ("Is it?", set()),
        ("is", set()),
        ("", set()),
    ],
)
def test_a_sentence_has_the_readings_of_its_patterns(sentence: str, readings: set[str]) -> None:
    assert readings_of(sentence) == readings


# Which type a unit gets


@pytest.mark.parametrize(
    ("candidate", "text", "kind"),
    [
        (Candidate.GOAL, "Optimize reach over polish.", "goal"),
        (Candidate.GOAL, "In headlines, never shout.", "directive"),
        (Candidate.CLAIM, "Tidemark is a notebook.", "claim"),
        (Candidate.CLAIM, "When it rains, always stay in.", "directive"),
        (Candidate.DIRECTIVE, "In all copy, never shout.", "directive"),
        (Candidate.GOAL_OR_DIRECTIVE, "In all copy, never shout.", "directive"),
        (Candidate.GOAL_OR_DIRECTIVE, "Optimize reach over polish.", "goal"),
        (Candidate.CLAIM_OR_GOAL, "decided: Tidemark is free", "claim"),
        (Candidate.CLAIM_OR_GOAL, "Going forward the goal is to be early", "goal"),
    ],
)
def test_one_reading_that_fits_the_place_settles_the_type(candidate: Candidate, text: str, kind: str) -> None:
    proposal = classify(unit(text, candidate))
    assert (proposal.type, proposal.question) == (kind, None)
    assert proposal.why[0] == "its place: its place"
    assert is_of_type(kind, proposal.content)


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        (Candidate.GOAL, "Ship the table"),
        (Candidate.GOAL, "Tidemark is a notebook."),
        (Candidate.CLAIM, "Optimize reach over polish."),
        (Candidate.CLAIM, "It is a notebook."),
        (Candidate.DIRECTIVE, "Never use em dashes."),
        (Candidate.DIRECTIVE, "Tidemark is a notebook."),
        (Candidate.GOAL_OR_DIRECTIVE, "In every post, always optimize for reach."),
        (Candidate.GOAL_OR_DIRECTIVE, "Tidemark is a notebook."),
        (Candidate.CLAIM_OR_GOAL, "going with blue"),
        (Candidate.UNKNOWN, "Tidemark is a notebook."),
        (Candidate.UNKNOWN, "In all copy, never shout."),
    ],
)
def test_anything_else_is_a_question_for_a_person(candidate: Candidate, text: str) -> None:
    proposal = classify(unit(text, candidate))
    assert proposal.question
    assert proposal.why


def test_the_same_unit_gives_the_same_proposal() -> None:
    one = unit("**Short.** In all copy, never pad. Why not.", Candidate.DIRECTIVE)
    assert classify(one) == classify(one)


# Content and reason


@pytest.mark.parametrize(
    ("text", "content", "reason"),
    [
        ("In all copy, never shout.", "In all copy, never shout.", ""),
        ("In all copy, never shout.\n\nPeople leave.", "In all copy, never shout.", "People leave."),
        ("In all copy,\nnever shout.", "In all copy, never shout.", ""),
        (
            "Ada reads aloud.\n\n**Why:** one reply.\n\n**How to apply:** In all copy, never shout.",
            "In all copy, never shout.",
            "Ada reads aloud.\n\none reply.",
        ),
        (
            "**In all copy, never shout.** People leave.\n- at once",
            "In all copy, never shout.",
            "People leave.\n- at once",
        ),
        ("**Quiet.** In all copy, never shout.\nMore.", "In all copy, never shout. More.", "Quiet."),
        ("**Quiet.** It pays.", "Quiet.", "It pays."),
        ("- In all copy, never shout.\n- second", "In all copy, never shout.", "- second"),
        ("See [[style|the guide]] in [[copy]].", "See the guide in copy.", ""),
        ("corrected: In all copy, never shout", "In all copy, never shout", ""),
        ("**Decided:** Tidemark is free", "Tidemark is free", ""),
    ],
)
def test_the_leading_sentence_is_content_and_the_rest_its_reason(text: str, content: str, reason: str) -> None:
    assert split_unit(unit(text, Candidate.DIRECTIVE)) == (content, reason)


def test_a_lead_that_is_too_long_is_its_first_sentence() -> None:
    text = "In all copy, never shout. " + "People leave. " * 40
    content, reason = split_unit(unit(text, Candidate.DIRECTIVE))
    assert content == "In all copy, never shout."
    assert reason.startswith("People leave. People")
    assert len(text) > LONGEST_LEAD


def test_a_unit_with_too_long_a_reason_is_put_to_a_person() -> None:
    text = "In all copy, never shout.\n\n" + "x" * (LONGEST_REASON + 1)
    assert "longer than one memory" in (classify(unit(text, Candidate.DIRECTIVE)).question or "")


def test_the_description_of_a_file_leads_only_where_the_file_says_nothing_else() -> None:
    labelled = unit("Why: people leave.", Candidate.DIRECTIVE)
    assert split_unit(labelled, "In all copy, never shout.") == ("In all copy, never shout.", "people leave.")
    assert split_unit(unit("One.", Candidate.DIRECTIVE), "In all copy, never shout.")[0] == "One."


@given(st.lists(st.sampled_from(["In all copy", "never", "**Quiet.**", "Why:", "\n", "\n\n", "- item", "e.g. x."])))
def test_no_word_of_a_unit_is_lost(parts: list[str]) -> None:
    text = " ".join(parts)
    content, reason = split_unit(unit(text, Candidate.DIRECTIVE))

    def words(text: str) -> list[str]:
        for mark in ("**", "-", "Why:"):
            text = text.replace(mark, " ")
        return sorted(text.split())

    assert words(f"{content} {reason}") == words(text)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Use e.g. A or B. Then stop.", ["Use e.g. A or B.", "Then stop."]),
        ("Version 2.3 is out. Good.", ["Version 2.3 is out.", "Good."]),
        ('He said "no." Then left.', ['He said "no."', "Then left."]),
        ("one", ["one"]),
        ("", []),
    ],
)
def test_sentences_end_where_a_reader_sees_it(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_plain_text_is_one_line_without_bold_and_links() -> None:
    assert plain("**A**  b\n![[c|d]]\t[[e]]") == "A b d e"


# Demonstrations


def test_a_line_is_content_and_several_lines_are_a_body() -> None:
    one = classify(unit("No signal, no problem.", Candidate.DEMONSTRATION, valence="positive"))
    many = classify(unit("First.\n\nSecond.\nWhy: it is short", Candidate.DEMONSTRATION, valence="mixed"))
    assert (one.content, one.body, one.reason, one.facets) == (
        "No signal, no problem.",
        None,
        None,
        {"valence": "positive"},
    )
    assert (many.content, many.body, many.reason) == ("", "First.\n\nSecond.", "it is short")


def test_a_body_with_a_closing_brace_at_the_margin_is_indented() -> None:
    proposal = classify(unit("if x {\n}\n", Candidate.DEMONSTRATION))
    assert proposal.body == "  if x {\n  }"


def test_an_artifact_that_is_just_an_opening_brace_is_a_body() -> None:
    assert classify(unit("{", Candidate.DEMONSTRATION)).body == "{"


# Facets


@pytest.mark.parametrize(
    ("kind", "words", "facets"),
    [
        ("directive", "In all copy, never shout.", ("must", "project", "permanent")),
        ("directive", "When late, prefer a call.", ("should", "project", "permanent")),
        ("directive", "In this session, always ask. You may stop.", ("must", "session", "permanent")),
        ("directive", "In demos, prefer dark. It may change.", ("may", "project", "permanent")),
        ("goal", "Optimize company-wide for calm this quarter.", ("should", "org", "seasonal")),
        ("goal", "Optimize for this session.", ("should", "project", "permanent")),
        ("goal", "Default for now: dark.", ("should", "project", "tactical")),
        ("claim", "Tidemark is free.", ("permanent",)),
        ("claim", "Tidemark is free this quarter.", ("tactical",)),
        ("claim", "Mayday is a call.", ("permanent",)),
    ],
)
def test_facets_follow_from_words(kind: str, words: str, facets: tuple[str, ...]) -> None:
    assert tuple(find_facets(kind, words, unit(words, Candidate.GOAL))[0].values()) == facets


def test_an_active_priority_passes() -> None:
    facets, why = find_facets("goal", "Optimize reach.", unit("", Candidate.GOAL, "an active priority"))
    assert facets["stability"] == "seasonal"
    assert why == ("seasonal: it is an active priority",)


@given(st.sampled_from(["goal", "claim", "directive", "demonstration"]), st.text(max_size=60))
def test_facets_are_always_those_of_the_type_in_order(kind: str, words: str) -> None:
    facets, _ = find_facets(kind, words, unit(words, Candidate.GOAL))
    assert list(facets) == list(FACETS[kind])
    assert all(value in FACETS[kind][name] for name, value in facets.items())


# Drafts


@pytest.mark.parametrize(
    ("kind", "sentence", "expected"),
    [
        ("directive", "Never use em dashes.", "In [context], never use em dashes."),
        ("directive", "Don't shout", "In [context], never shout"),
        ("directive", "Always ask", "In [context], always ask"),
        ("directive", "API keys first", "In [context], always API keys first"),
        ("goal", "Ship it", "In [context], the goal is to ship it"),
        ("claim", "Free for schools", "Free for schools"),
        ("directive", "In all copy, never shout.", "In all copy, never shout."),
        ("directive", "", ""),
    ],
)
def test_a_draft_leaves_room_for_what_only_a_person_knows(kind: str, sentence: str, expected: str) -> None:
    assert draft(kind, sentence) == expected


@pytest.mark.parametrize("text", ["Ship by May 5.", "the May release", "may 2027", "MAYBE"])
def test_a_month_is_no_force(text: str) -> None:
    assert not _MAY.search(text)


@pytest.mark.parametrize("text", ["you may skip it", "May be left out.", "It MAY go.", "Optional: a title", "OPTIONAL"])
def test_what_may_be_done_is_a_force(text: str) -> None:
    assert _MAY.search(text)
