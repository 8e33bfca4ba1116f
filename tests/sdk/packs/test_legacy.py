from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs.findings import Severity
from melete.packs.grammar import Cluster
from melete.packs.legacy import parse_cluster_v3

from .making import PRINCIPLES_V3

FILE = "memory/a.md"
HEAD = "---\ntype: cluster\napplies_to: all\n---\n\n"


def parse(text: str) -> Cluster:
    return parse_cluster_v3(text, FILE)


def block(*members: str, body: str = "It is so.") -> str:
    return "---\n" + "".join(f"{member}\n" for member in members) + f"---\n\n{body}\n"


def test_primitives_with_their_own_frontmatter_are_read() -> None:
    cluster = parse(PRINCIPLES_V3)
    assert cluster.findings == ()
    assert cluster.frontmatter is not None
    assert cluster.frontmatter["primitive_counts"] == {"goal": 1, "demonstration": 1}
    goal, demonstration = cluster.units
    assert (goal.id, goal.type, goal.facets, goal.source) == ("memory/a.md#1", "goal", {"force": "should"}, "self")
    assert (goal.content, goal.reason) == ("Answers that can be checked.", "Nobody trusts what nobody can check.")
    assert (demonstration.illustrates, demonstration.source) == ("plain-words", "imported")
    assert (demonstration.content, demonstration.reason) == ("It ships on Friday.\n\nNot sooner.", None)
    assert [unit.line for unit in cluster.units] == [9, 21]


@pytest.mark.parametrize("separator", ["\n---\n\n", "\n---\n\n\n", "---\n\n", "\n", "\n---\n"])
def test_blocks_are_told_apart_however_they_are_separated(separator: str) -> None:
    text = HEAD + block("type: claim", body="a") + separator + block("type: goal", body="b")
    cluster = parse(text)
    assert [(unit.type, unit.content) for unit in cluster.units] == [("claim", "a"), ("goal", "b")]
    assert cluster.findings == ()


def test_rule_inside_a_body_does_not_end_it() -> None:
    (unit,) = parse(HEAD + block("type: claim", body="before\n\n---\n\nafter")).units
    assert unit.content == "before\n\n---\n\nafter"


@pytest.mark.parametrize("end", ["", "\n---\n", "\n---", "\n---\n\n\n"])
def test_last_block_may_be_followed_by_a_separator(end: str) -> None:
    cluster = parse(HEAD + block("type: claim", body="a") + end)
    assert [unit.content for unit in cluster.units] == ["a"]
    assert cluster.findings == ()


def test_cluster_without_frontmatter_of_its_own_is_read() -> None:
    cluster = parse(block("type: claim", body="a"))
    assert cluster.frontmatter is None
    assert [unit.content for unit in cluster.units] == ["a"]


def test_reason_is_the_paragraph_that_begins_with_why() -> None:
    body = "One.\n\n**Why:** because\nof this\n\nTwo, not **Why:** here.\n\n**Why:** and that"
    (unit,) = parse(HEAD + block("type: claim", body=body)).units
    assert unit.reason == "because\nof this\nand that"
    assert " ".join(unit.content.split()) == "One. Two, not **Why:** here."


def test_line_ends_do_not_matter() -> None:
    assert parse(PRINCIPLES_V3.replace("\n", "\r\n")) == parse(PRINCIPLES_V3)


@pytest.mark.parametrize(
    ("members", "rule", "message"),
    [
        (("type: note",), "unknown-type", "unknown type note"),
        (("force: must",), "unknown-type", "unknown type missing"),
        (("type: [claim]",), "unknown-type", "unknown type no text but a value of type list"),
        (("type: goal", "force: always"), "facet-value", "force is always"),
        (("type: goal", "force: 7"), "facet-value", "force is no text but a value of type int"),
        (("type: goal", "scope: session"), "facet-value", "scope is session"),
        (("type: claim", "stability: seasonal"), "facet-value", "stability is seasonal"),
        (("type: claim", "force: must"), "facet-value", "a claim has no force"),
        (("type: demonstration",), "facet-value", "the demonstration has no valence"),
        (("type: demonstration", "valence: good"), "facet-value", "valence is good"),
        (("type: demonstration", "valence: mixed", "source: inferred"), "facet-value", "source is inferred"),
        (("type: claim", "source: elsewhere"), "facet-value", "source is elsewhere"),
        (
            ("type: demonstration", "valence: mixed", "illustrates: {a: b}"),
            "facet-value",
            "illustrates is no list of ids",
        ),
        (("type: claim", "a: ["), "frontmatter", "the frontmatter cannot be read"),
    ],
)
def test_wrong_member_is_told_with_its_primitive(members: tuple[str, ...], rule: str, message: str) -> None:
    cluster = parse(HEAD + block(*members) + "\n---\n\n" + block("type: claim", body="right"))
    (finding,) = cluster.findings
    assert (finding.rule, finding.severity, finding.unit) == (rule, Severity.ERROR, "memory/a.md#1")
    assert finding.message.startswith(message)
    assert finding.line is not None
    assert 6 <= finding.line <= 10
    assert [unit.id for unit in cluster.units] == ["memory/a.md#2"]


def test_primitive_without_text_is_told() -> None:
    for body in ("", " \n\t", "**Why:** only a reason"):
        (finding,) = parse(HEAD + block("type: claim", body=body)).findings
        assert (finding.rule, finding.line) == ("content-missing", 6)


def test_frontmatter_that_does_not_end_is_told_at_its_line() -> None:
    (finding,) = parse(HEAD + block("type: claim") + "\n---\n\n---\ntype: goal\n").findings
    assert (finding.rule, finding.line) == ("frontmatter", 14)


def test_text_outside_is_a_warning() -> None:
    (finding,) = parse(HEAD + "prose\nmore\n\n" + block("type: claim")).findings
    assert (finding.rule, finding.severity, finding.line) == ("stray-text", Severity.WARNING, 6)


fragments = st.sampled_from(
    [
        "---\n",
        "---\n",
        "\n",
        "type: claim\n",
        "type: goal\n",
        "text\n",
        "**Why:** x\n",
        "a: [\n",
        " ",
        "---",
        "\r\n",
        "[claim] x",
    ]
)


@given(st.lists(fragments, max_size=25).map("".join) | st.text(max_size=30))
def test_any_text_is_read_with_lines_that_are_there(text: str) -> None:
    cluster = parse(text)
    lines = text.count("\n") + 1
    assert all(1 <= (finding.line or 0) <= lines for finding in cluster.findings)
    assert all(1 <= unit.line <= lines and unit.content.strip() for unit in cluster.units)


@pytest.mark.parametrize("piece", ["---\n", "---\n\n", "---\ntype: claim\n---\nx\n", "\n", "---\n---\nx\n"])
def test_long_text_takes_no_more_than_its_length(piece: str) -> None:
    # A reader that starts over at each of them would take minutes.
    parse(piece * (50_000 // len(piece)))
