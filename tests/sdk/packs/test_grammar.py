from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from melete.errors import InvalidInput
from melete.packs.findings import Finding, Severity
from melete.packs.grammar import (
    ALIASES,
    FACETS,
    Citation,
    Cluster,
    Source,
    Unit,
    parse_cluster,
    serialize_cluster,
    walk,
)

FILE = "memory/a.md"


def parse(text: str) -> Cluster:
    return parse_cluster(text, FILE)


def only(text: str) -> Unit:
    """The one primitive of a text that has no fault."""
    cluster = parse(text)
    assert cluster.findings == ()
    (unit,) = cluster.units
    return unit


def fault(text: str) -> Finding:
    """The one error of a text."""
    (finding,) = parse(text).findings
    assert finding.severity is Severity.ERROR
    assert finding.file == FILE
    return finding


# A primitive


def test_primitive_has_type_facets_content_reason_line_and_id() -> None:
    cluster = parse(
        "\n[directive must, org, permanent] In all copy, never shout.\n  > It is rude.\n\n[claim] It is so.\n"
    )
    first, second = cluster.units
    assert first.id == "memory/a.md#1"
    assert (first.type, first.content, first.body) == ("directive", "In all copy, never shout.", None)
    assert list(first.facets.items()) == [("force", "must"), ("scope", "org"), ("stability", "permanent")]
    assert (first.reason, first.line, first.facet_text) == ("It is rude.", 2, " must, org, permanent")
    assert (second.id, second.facets, second.reason, second.line) == ("memory/a.md#2", {}, None, 5)
    assert cluster.findings == ()


@pytest.mark.parametrize("kind", FACETS)
def test_every_value_of_every_facet_stands_in_its_place(kind: str) -> None:
    first, *others = FACETS[kind]
    for value in first.values:
        assert only(f"[{kind} {value}] text").facets == {first.name: value}
    for position, facet in enumerate(others, start=1):
        before = [one.values[0] for one in FACETS[kind][:position]]
        for value in facet.values:
            assert only(f"[{kind} {', '.join([*before, value])}] text").facets[facet.name] == value


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("goal", {"force": "should", "scope": "project", "stability": "permanent"}),
        ("claim", {"stability": "permanent"}),
        ("directive may", {"force": "may", "scope": "project", "stability": "permanent"}),
        ("demo mixed", {"valence": "mixed"}),
    ],
)
def test_facets_left_out_from_the_right_have_their_defaults(tag: str, expected: dict[str, str]) -> None:
    assert only(f"[{tag}] text").all_facets == expected


@pytest.mark.parametrize(
    "tag", ["directive  must ,org", "directive\tmust, org", "directive must,org ", "directive must, org"]
)
def test_space_around_facets_does_not_count(tag: str) -> None:
    assert only(f"[{tag}] text").facets == {"force": "must", "scope": "org"}


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("directive permanent, must, org", "expected force at position 1 for directive, got permanent"),
        ("directive must, permanent", "expected scope at position 2 for directive, got permanent"),
        ("directive must, org, must", "expected stability at position 3 for directive, got must"),
        ("directive must, , permanent", "expected scope at position 2 for directive, got nothing"),
        ("directive must,", "expected scope at position 2 for directive, got nothing"),
        ("directive ,", "expected force at position 1 for directive, got nothing"),
        ("directive must org", "expected force at position 1 for directive, got must org"),
        ("directive Must", "expected force at position 1 for directive, got Must"),
        ("directive-must", "expected force at position 1 for directive, got -must"),
        ("directive: must", "expected force at position 1 for directive, got : must"),
        ("directive must, org, permanent, x", "expected no facet at position 4 for directive, got x"),
        ("directive must, illustrates: x", "expected scope at position 2 for directive, got illustrates: x"),
        ("goal must, session", "expected scope at position 2 for goal, got session"),
        ("claim seasonal", "expected stability at position 1 for claim, got seasonal"),
        ("claim permanent, x", "expected no facet at position 2 for claim, got x"),
        ("demo", "expected valence at position 1 for demonstration, got nothing"),
        ("demonstration good", "expected valence at position 1 for demonstration, got good"),
        ("demo illustrates: x", "expected valence at position 1 for demonstration, got illustrates: x"),
        ("demo illustrates: x, positive", "expected valence at position 1 for demonstration, got illustrates: x"),
        ("demo positive, x", "expected illustrates at position 2 for demonstration, got x"),
        ("demo positive, illustrates:", "expected illustrates at position 2 for demonstration, got illustrates:"),
        (
            "demo positive, illustrates: x, y",
            "expected illustrates at position 2 for demonstration, got illustrates: x",
        ),
        ("directive m\u00fcst", r"expected force at position 1 for directive, got m\xfcst"),
        ("directive must\u00a0", r"expected force at position 1 for directive, got must\xa0"),
    ],
)
def test_misplaced_facet_is_named_with_its_position(tag: str, message: str) -> None:
    found = fault(f"\n[{tag}] In all copy, never shout.\n")
    assert (found.rule, found.message) == ("facet-position", message)
    assert (found.line, found.unit) == (2, "memory/a.md#1")
    assert found.remedy


def test_demo_is_a_demonstration_and_may_illustrate() -> None:
    for name in ("demo", "demonstration"):
        unit = only(f"[{name} negative, illustrates: plain-words] Synergy!")
        assert (unit.type, unit.facets, unit.illustrates) == ("demonstration", {"valence": "negative"}, "plain-words")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("[click here](http://x) text", "click"),
        ("[Directive must] text", "Directive"),
        ("[note] text", "note"),
        ("[directives must] text", "directives"),
        ("[demos positive] text", "demos"),
        ("[dir\u00e9ctive must] text", r"dir\xe9ctive"),
        ("[1] text", "1"),
        ("[x]", "x"),
    ],
)
def test_unknown_type_is_one_clear_error(line: str, named: str) -> None:
    found = fault(f"\n\n{line}\nmore of it\n  > and its reason\n\n[claim] It is so.\n")
    assert (found.rule, found.line, found.unit) == ("unknown-type", 3, "memory/a.md#1")
    assert found.message == f"unknown type {named}"


def test_wrong_primitive_is_none_and_keeps_its_number() -> None:
    cluster = parse("[claim] a\n\n[claim x] b\n\n[nothing] c\n\n[claim] d\nwrapped\n\n[claim] e\n")
    assert [unit.id for unit in cluster.units] == ["memory/a.md#1", "memory/a.md#5"]
    assert [finding.unit for finding in cluster.findings] == ["memory/a.md#2", "memory/a.md#3", "memory/a.md#4"]


@pytest.mark.parametrize("text", ["[claim]", "[claim] ", "[claim permanent]\t", "[claim] \u00a0"])
def test_primitive_without_text_is_refused(text: str) -> None:
    assert fault(text).rule == "content-missing"


def test_content_is_kept_to_the_end_of_its_line() -> None:
    assert only("[claim]   a [b] {c} > d  \n").content == "a [b] {c} > d  "
    assert only("[claim]a").content == "a"
    assert only("[directive must] {").content == "{"
    assert only("[demo positive] use {").content == "use {"


# Reasons and citations


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("  > one", "one"),
        ("  > one\n  > two", "one\ntwo"),
        ("  >one\n  >  two ", "one\n two "),
        ("\t\t> one", "one"),
        (" \t> one", "one"),
        ("  >\n  > ", "\n"),
        ("  > > one", "> one"),
    ],
)
def test_reason_lines_join_with_line_feeds(lines: str, expected: str) -> None:
    assert only(f"[claim] a\n{lines}\n").reason == expected
    assert only(f"[demo positive] {{\na\n}}\n{lines}").reason == expected


@pytest.mark.parametrize("line", ["> one", " > one", "   > one", "    > one", "one", "  one", "- one", "}"])
def test_other_line_right_below_a_primitive_is_an_error(line: str) -> None:
    found = fault(f"[claim] a\n{line}\nand on\n")
    assert (found.rule, found.line, found.unit) == ("continuation", 2, "memory/a.md#1")


def test_blank_line_ends_a_primitive() -> None:
    for blank in ("", "  ", "\t", "\r"):
        found = fault(f"[claim] a\n{blank}\n  > too late\n")
        assert (found.rule, found.line) == ("orphan-reason", 3)


def test_primitives_may_stand_right_below_one_another() -> None:
    cluster = parse("[claim] a\n[claim] b\n  > c\n[claim] d")
    assert [(unit.content, unit.reason) for unit in cluster.units] == [("a", None), ("b", "c"), ("d", None)]
    assert cluster.findings == ()


def test_citations_are_reason_lines_with_a_short_code_alone() -> None:
    unit = only("[claim] a\n  > [Lex 252]\n  > see [Tour 1]\n  > [Tour 1 \u2014 verbatim]\n  > [a] [b]\n  > []")
    assert unit.citations == (Citation("Lex 252", verbatim=False), Citation("Tour 1", verbatim=True))
    assert only("[claim] a\n  > b").citations == ()
    assert only("[claim] a").citations == ()


# Braces


def test_brace_body_is_verbatim_and_nothing_in_it_is_a_primitive() -> None:
    body = "[directive must] not one\n\n  > no reason\n }\n}}\n```\n} \n```\n[demo positive] {"
    unit = only(f"[demo negative, illustrates: x] {{\n{body}\n}}\n  > why")
    assert (unit.content, unit.body, unit.reason) == (body, body, "why")


def test_closing_brace_in_the_first_column_ends_a_body_even_in_a_code_fence() -> None:
    cluster = parse("[demo positive] {\n```\n{\n}\n```\n}\n")
    assert cluster.units == ()  # what follows the brace is right below it
    assert [(finding.rule, finding.line) for finding in cluster.findings] == [("continuation", 5)]


@pytest.mark.parametrize("end", ["}", "}\n", "}\r\n", "}\n\n"])
def test_closing_brace_may_be_the_last_line(end: str) -> None:
    assert only(f"[demo positive] {{\nbody\n{end}").body == "body"


@pytest.mark.parametrize("close", ["", " }", "} ", "}}", "\t}"])
def test_brace_that_is_not_closed_is_told_at_its_opening_line(close: str) -> None:
    found = fault(f"\n[demo positive] {{\nbody\n[claim] not one\n{close}\n")
    assert (found.rule, found.line, found.unit) == ("brace-unterminated", 2, "memory/a.md#1")


@pytest.mark.parametrize("body", ["", "\n", " \n\t\n"])
def test_body_without_text_is_refused(body: str) -> None:
    assert fault(f"[demo positive] {{\n{body}}}\n").rule == "content-missing"


@pytest.mark.parametrize("line", ["{ ", "{\t"])
def test_brace_with_space_after_it_is_told(line: str) -> None:
    assert [finding.rule for finding in parse(f"[demo positive] {line}\nbody\n}}\n").findings] == [
        "brace-open",
        "continuation",
    ]


def test_only_demonstrations_open_braces() -> None:
    found = fault("[directive must] {\nbody\n}\n")
    assert (found.rule, found.line) == ("continuation", 2)


def test_nothing_in_braces_of_an_unknown_type_is_a_primitive() -> None:
    cluster = parse("[example positive] {\n\n[claim] not one\n\n}\n\n[claim] one\n")
    assert [unit.content for unit in cluster.units] == ["one"]
    assert [finding.rule for finding in cluster.findings] == ["unknown-type"]


# Text between primitives, lines


def test_prose_is_passed_over_with_one_warning_a_paragraph() -> None:
    cluster = parse("# Title\n\nprose\nmore prose\n\n[claim] a\n\n> quote\n---\n")
    assert [unit.content for unit in cluster.units] == ["a"]
    assert [(finding.rule, finding.severity, finding.line) for finding in cluster.findings] == [
        ("stray-text", Severity.WARNING, 1),
        ("stray-text", Severity.WARNING, 3),
        ("stray-text", Severity.WARNING, 8),
    ]


@pytest.mark.parametrize(
    "line", [" [directive must] x", "\t[claim] x", "[]", "[ claim] x", "[", "[claim x", "[^1]: note"]
)
def test_line_that_looks_like_a_primitive_and_is_none_is_an_error(line: str) -> None:
    for before in ("", "prose\n"):
        errors = [finding for finding in parse(f"{before}{line}\n").findings if finding.is_error]
        assert [(finding.rule, finding.line) for finding in errors] == [
            ("tag-malformed", 1 + len(before.split("\n")) - 1)
        ]


def test_lines_end_at_line_feeds_only() -> None:
    text = "[claim] a\x0b[claim] b\u2028[claim] c\x85[claim] d\x0c[claim] e\r[claim] f"
    assert only(text).content == text.removeprefix("[claim] ")


def test_carriage_return_before_a_line_feed_belongs_to_the_line_end() -> None:
    text = "---\ntype: cluster\n---\n\nsources:\n  A: B\n\n[claim] a\n  > b\n  > c\n\n"
    text += "[demo positive] {\nx\n\ny\n}\n  > z\n"
    assert parse(text.replace("\n", "\r\n")) == parse(text)
    assert [unit.line for unit in parse(text.replace("\n", "\r\n")).units] == [8, 12]


def test_space_is_that_of_ascii() -> None:
    assert only("[claim]\u00a0a").content == "\u00a0a"
    assert only("[claim]\x1ca").content == "\x1ca"
    assert fault("[claim] a\n\u00a0 > b").rule == "continuation"


def test_byte_order_mark_does_not_hide_the_frontmatter() -> None:
    assert parse("\ufeff---\ntype: cluster\n---\n[claim] a").frontmatter == {"type": "cluster"}


# Frontmatter and legend


def test_frontmatter_is_read_and_lines_go_on_counting() -> None:
    cluster = parse("---\ntype: cluster\nsource: self\n---\n\n[claim] a\n")
    assert cluster.frontmatter == {"type": "cluster", "source": "self"}
    assert cluster.units[0].line == 6


@pytest.mark.parametrize(("text", "line"), [("---\na: [\n---\n[claim] a", 3), ("---\na: 1\na: 2\n---\n[claim] a", 3)])
def test_frontmatter_that_cannot_be_read_is_told_and_the_rest_is_read(text: str, line: int) -> None:
    cluster = parse(text)
    assert [(finding.rule, finding.line) for finding in cluster.findings] == [("frontmatter", line)]
    assert cluster.frontmatter is None
    assert len(cluster.units) == 1


def test_frontmatter_that_does_not_end_is_told() -> None:
    findings = parse("---\ntype: cluster\n\n[claim] a\n").findings
    assert (findings[0].rule, findings[0].line) == ("frontmatter", 1)


def test_legend_of_sources_has_titles_and_addresses() -> None:
    cluster = parse(
        "---\na: 1\n---\n\nsources:\n  Lex 252: Episode 252: the long one\n    https://x.example/252\n"
        "  T-1: Tour\n\n[claim] a\n"
    )
    assert cluster.sources == {
        "Lex 252": Source("Episode 252: the long one", "https://x.example/252"),
        "T-1": Source("Tour"),
    }
    assert cluster.findings == ()


def test_legend_may_be_absent() -> None:
    assert parse("[claim] a\n  > [Lex 252]\n").findings == ()


@pytest.mark.parametrize(
    ("legend", "line"),
    [
        ("  A: one\n  A: two", 3),
        ("  A", 2),
        ("  A:one", 2),
        ("  A: ", 2),
        ("    https://x.example", 2),
        ("  A: one\n    https://x.example\n    https://y.example", 4),
        ("  A: one\n    not an address", 3),
    ],
)
def test_wrong_line_of_the_legend_is_told(legend: str, line: int) -> None:
    found = fault(f"sources:\n{legend}\n\n[claim] a\n")
    assert (found.rule, found.line) == ("legend", line)


def test_legend_after_a_primitive_is_none() -> None:
    cluster = parse("[claim] a\n\nsources:\n  A: one\n")
    assert cluster.sources == {}
    assert [finding.rule for finding in cluster.findings] == ["stray-text"]


# Any text


fragments = st.sampled_from(
    [
        *(
            "[claim]",
            "[goal must]",
            "[demo positive]",
            "[demo bad]",
            "[x]",
            "[",
            "]",
            "{",
            "}",
            ">",
            "  >",
            "  > a",
            " ",
            "a",
        ),
        *(
            "\n",
            "\n",
            "\n\n",
            "\r\n",
            "\r",
            "---",
            "\n---\n",
            "sources:",
            "\n  A: b\n",
            "\t",
            "\u2028",
            "\u00a0",
            " {\n",
            "\n}\n",
        ),
        *("[demo mixed] {\n", "illustrates: x", ", "),
    ]
)
texts = st.lists(fragments, max_size=25).map("".join) | st.text(max_size=40)


@given(texts)
@example("[demo positive] {\n" * 3)
def test_any_text_is_read_with_lines_that_are_there(text: str) -> None:
    cluster = parse(text)
    lines = text.count("\n") + 1
    assert all(1 <= (finding.line or 0) <= lines for finding in cluster.findings)
    assert all(text.replace("\r\n", "\n").split("\n")[unit.line - 1].startswith("[") for unit in cluster.units)
    wrong = {finding.unit for finding in cluster.findings if finding.is_error and finding.unit}
    numbers = sorted(int(id.removeprefix(f"{FILE}#")) for id in wrong | {unit.id for unit in cluster.units})
    assert numbers == list(range(1, len(numbers) + 1))


@given(st.text("[]cldemoaim ,:{}>\t\r\x0b\u00e9\u2028_1", max_size=14) | texts)
@example("[claim]")
@example("[demo] {")
def test_line_begins_a_primitive_exactly_where_the_specification_says(line: str) -> None:
    line = line.replace("\n", "")
    spans: list[tuple[int, int]] = []
    blocks = list(walk(line, 0, FILE, [], {}, spans))
    match = re.match(r"^\[(\w+)([^\]]*?)\]\s*(.*)$", line, re.ASCII)
    assert bool(spans) == bool(match)
    for _, tag, content, _, _, _ in blocks:
        assert match is not None
        assert (tag.type, tag.facet_text, content) == (ALIASES.get(match[1], match[1]), match[2], match[3])


@given(texts)
def test_spans_are_those_of_all_primitives_right_or_wrong(text: str) -> None:
    text = text.replace("\r\n", "\n")
    spans: list[tuple[int, int]] = []
    blocks = list(walk(text, 0, FILE, [], {}, spans))
    assert [spans[block[0] - 1][0] for block in blocks] == [block[5] for block in blocks]
    assert all(text[begin] == "[" and begin < end for begin, end in spans)


@pytest.mark.parametrize(
    "piece", ["[demo positive] {\n", "[", "[claim", "  > a\n", "{\n}\n", "[x] {\n\n", "sources:\n", "\n", "}\n"]
)
def test_long_text_takes_no_more_than_its_length(piece: str) -> None:
    # A walk that starts over at each of them would take minutes.
    parse(piece * (200_000 // len(piece)))


# Writing


inline = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=20)
tricky = st.text("[]{}>:#-\u2014 \tab\r\u2028\u00a0,", max_size=12)
contents = (inline | tricky).map(lambda text: text.lstrip(" \t\r\f\v").rstrip("\r")).filter(str.strip)
reasons = st.none() | st.lists((inline | tricky).map(lambda text: text.rstrip("\r")), min_size=1, max_size=3).map(
    "\n".join
)
bodies = (
    st.lists(
        (inline | tricky | st.just("[claim] x") | st.just("  > y")).map(lambda text: text.rstrip("\r")), max_size=4
    )
    .map("\n".join)
    .filter(lambda body: body.strip() and "}" not in body.split("\n"))
)
ids = st.text("abc-#: {}[\u00e9", min_size=1, max_size=8).filter(lambda text: text.strip() == text and text)
codes = st.text("ab1:\u00e9[]-> ", min_size=1, max_size=6).filter(
    lambda text: text.strip() == text and ": " not in text
)


@st.composite
def units(draw: Callable[..., Any], id: str) -> Unit:
    kind = draw(st.sampled_from(sorted(FACETS)))
    facets = FACETS[kind]
    count = draw(st.integers(1 if kind == "demonstration" else 0, len(facets)))
    given = {facet.name: draw(st.sampled_from(facet.values)) for facet in facets[:count]}
    reason = draw(reasons)
    if kind != "demonstration":
        return Unit(id, kind, given, draw(contents), reason=reason)
    illustrates = draw(st.none() | ids)
    body = draw(st.none() | bodies)
    content = draw(contents.filter(lambda text: text.rstrip(" \t\r\f\v") != "{")) if body is None else body
    return Unit(id, kind, given, content, body=body, reason=reason, illustrates=illustrates)


@st.composite
def clusters(draw: Callable[..., Any]) -> Cluster:
    count = draw(st.integers(0, 4))
    made = tuple(draw(units(f"{FILE}#{number}")) for number in range(1, count + 1))
    titles = contents.map(lambda text: text.strip(" \t\r\f\v")).filter(str.strip)
    sources = draw(
        st.dictionaries(codes, st.builds(Source, titles, st.none() | st.just("https://x.example/a")), max_size=3)
    )
    values = st.text("ab: #'\"-\u00e9", max_size=6) | st.integers(0, 9)
    frontmatter = draw(st.none() | st.dictionaries(st.sampled_from(["type", "source", "a b"]), values, max_size=3))
    return Cluster(FILE, frontmatter, sources, made)


@given(clusters())
def test_what_is_written_parses_to_the_same(cluster: Cluster) -> None:
    text = serialize_cluster(cluster)
    assert parse(text) == cluster
    assert serialize_cluster(parse(text)) == text
    assert parse(text.replace("\n", "\r\n")) == cluster


@given(texts)
@example("[claim] x\r")
@example("[claim] x\r\r\n")
@example("[claim] x\n  > y\r")
@example("[demo positive] {\nx\r\r\n}\r")
def test_what_is_read_without_an_error_can_be_written(text: str) -> None:
    cluster = parse(text)
    if not cluster.has_errors:
        again = parse(serialize_cluster(cluster))
        assert [unit._replace(line=0) for unit in again.units] == [unit._replace(line=0) for unit in cluster.units]


def test_many_carriage_returns_take_no_more_than_their_length() -> None:
    parse("[claim] x" + "\r" * 200_000 + "y")


def test_cluster_is_written_as_the_specification_shows_it() -> None:
    made = (
        Unit(
            f"{FILE}#1",
            "directive",
            {"force": "must", "scope": "org"},
            "In all copy, never shout.",
            reason="Rude.\n[A]",
        ),
        Unit(f"{FILE}#2", "demonstration", {"valence": "negative"}, "a\n\nb", body="a\n\nb", illustrates="x"),
        Unit(f"{FILE}#3", "claim", {}, "It is so."),
    )
    cluster = Cluster(FILE, {"type": "cluster", "source": "self"}, {"A": Source("Book", "https://x.example")}, made)
    assert serialize_cluster(cluster) == (
        "---\ntype: cluster\nsource: self\n---\n\n"
        "sources:\n  A: Book\n    https://x.example\n\n"
        "[directive must, org] In all copy, never shout.\n  > Rude.\n  > [A]\n\n"
        "[demo negative, illustrates: x] {\na\n\nb\n}\n\n"
        "[claim] It is so.\n"
    )


def test_units_that_differ_only_in_where_they_stand_are_equal() -> None:
    first, second = Unit("a#1", "claim", {}, "x", line=1), Unit("a#1", "claim", {}, "x", line=9, facet_text=" ")
    assert first == second
    assert hash(first) == hash(second)
    assert first != Unit("a#1", "claim", {}, "y")
    assert first != Unit("a#1", "claim", {"stability": "permanent"}, "x")


DEMO = {"valence": "positive"}


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("type", {"type": "demo"}),
        ("type", {"type": "note"}),
        ("facets", {"facets": {"stability": "seasonal"}}),
        ("facets", {"facets": {"force": "must"}}),
        ("facets", {"facets": {"stability": "permanent", "force": "must"}}),
        ("facets", {"type": "directive", "facets": {"scope": "org"}}),
        ("facets", {"type": "demonstration"}),
        ("content", {"content": ""}),
        ("content", {"content": " a"}),
        ("content", {"content": "\u00a0"}),
        ("content", {"content": "a\nb"}),
        ("content", {"content": "a\r"}),
        ("content", {"content": "a\ud800"}),
        ("content", {"content": 7}),
        ("content", {"type": "demonstration", "facets": DEMO, "content": "{"}),
        ("content", {"type": "demonstration", "facets": DEMO, "content": "{ "}),
        ("content", {"type": "demonstration", "facets": DEMO, "content": "a", "body": "b"}),
        ("body", {"body": "a"}),
        ("body", {"type": "demonstration", "facets": DEMO, "content": "", "body": ""}),
        ("body", {"type": "demonstration", "facets": DEMO, "content": "\n", "body": "\n"}),
        ("body", {"type": "demonstration", "facets": DEMO, "content": "a\n}\nb", "body": "a\n}\nb"}),
        ("body", {"type": "demonstration", "facets": DEMO, "content": "a\r\nb", "body": "a\r\nb"}),
        ("illustrates", {"illustrates": "x"}),
        ("illustrates", {"type": "demonstration", "facets": DEMO, "illustrates": "a, b"}),
        ("illustrates", {"type": "demonstration", "facets": DEMO, "illustrates": "a]"}),
        ("illustrates", {"type": "demonstration", "facets": DEMO, "illustrates": " a"}),
        ("illustrates", {"type": "demonstration", "facets": DEMO, "illustrates": ""}),
        ("reason", {"reason": "a\r\nb"}),
        ("reason", {"reason": "a\r"}),
        ("reason", {"reason": 7}),
        ("source", {"source": "self"}),
    ],
)
def test_unit_that_no_line_can_carry_is_refused_by_the_name_of_its_member(field: str, changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {"id": "a#1", "type": "claim", "facets": {}, "content": "a"}
    Unit(**good)
    with pytest.raises(InvalidInput) as caught:
        Unit(**{**good, **changes})
    assert caught.value.field == field


def test_refused_unit_does_not_show_a_secret() -> None:
    with pytest.raises(InvalidInput) as caught:
        Unit("a#1", "claim", {}, "token = abcdefghij0123456789\n")
    assert "abcdefghij" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "sources"),
    [
        ("sources", {"a: b": Source("t")}),
        ("sources", {" a": Source("t")}),
        ("sources", {"a\nb": Source("t")}),
        ("sources", {"": Source("t")}),
        ("sources", {"a": Source("")}),
        ("sources", {"a": Source("t\nu")}),
        ("sources", {"a": Source("t", "two words")}),
        ("sources", {"a": Source("t", "")}),
    ],
)
def test_source_that_no_line_can_carry_is_refused(field: str, sources: dict[str, Source]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Cluster(FILE, None, sources)
    assert caught.value.field == field


def test_units_out_of_order_are_refused() -> None:
    for id in (f"{FILE}#2", "memory/b.md#1", "1"):
        with pytest.raises(InvalidInput) as caught:
            Cluster(FILE, units=(Unit(id, "claim", {}, "a"),))
        assert caught.value.field == "id"


def test_cluster_with_errors_is_not_written() -> None:
    with pytest.raises(InvalidInput, match="without errors"):
        serialize_cluster(parse("[nothing] a\n"))


def test_changed_copy_is_checked_again_when_it_is_written() -> None:
    (unit,) = parse("[claim] a").units
    with pytest.raises(InvalidInput) as caught:
        serialize_cluster(Cluster(FILE)._replace(units=(unit._replace(content="a\n[claim] b"),)))
    assert caught.value.field == "content"
