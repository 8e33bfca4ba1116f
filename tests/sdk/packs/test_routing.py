from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs.findings import Severity
from melete.packs.routing import Entry, check_routing, parse_routing

from .making import AGENTS

FILES = ("operating-principles.md", "copy-voice.md")


def rules(text: str, listed: tuple[str, ...] = FILES, present: tuple[str, ...] = FILES) -> list[tuple[str, int | None]]:
    return [(finding.rule, finding.line) for finding in check_routing(parse_routing(text), listed, present)]


def routed(cell: str) -> list[str]:
    text = f"## Route by task type\n\n| If the task involves... | Load |\n|---|---|\n| Writing | {cell} |\n"
    return [entry.file for entry in parse_routing(text).routes]


def test_table_of_the_specification_is_read() -> None:
    routing = parse_routing(AGENTS)
    assert routing.always == (Entry("what holds everywhere", "operating-principles.md", 4),)
    assert routing.routes == (Entry("Writing anything", "copy-voice.md", 10),)
    assert routing.empty_rows == ()
    assert parse_routing(AGENTS.replace("\n", "\r\n")) == routing
    assert rules(AGENTS) == []


@pytest.mark.parametrize(
    ("cell", "files"),
    [
        ("copy-voice.md", ["copy-voice.md"]),
        ("`copy-voice.md`", ["copy-voice.md"]),
        ("memory/copy-voice.md", ["copy-voice.md"]),
        ("./memory/copy-voice.md", ["copy-voice.md"]),
        ("[copy-voice.md](memory/copy-voice.md)", ["copy-voice.md"]),
        ("a.md, b.md", ["a.md", "b.md"]),
        ("../secret.md", ["../secret.md"]),
        ("nothing", []),
        ("a.mdx", []),
        ("", []),
    ],
)
def test_file_is_read_however_a_cell_writes_it(cell: str, files: list[str]) -> None:
    assert routed(cell) == files


@pytest.mark.parametrize(
    ("item", "description"),
    [
        ("- a.md \u2014 one - two", "one - two"),
        ("* `a.md` - one", "one"),
        ("+ a.md: one", "one"),
        ("- a.md", ""),
    ],
)
def test_items_of_the_list_have_descriptions(item: str, description: str) -> None:
    assert parse_routing(f"# Always load\n{item}\n").always == (Entry(description, "a.md", 2),)


def test_bar_after_a_backslash_is_text() -> None:
    assert parse_routing("## Route by task type\n| a \\| b | x.md |").routes == (Entry("a | b", "x.md", 2),)


def test_other_sections_are_passed_over() -> None:
    text = "- x.md\n| a | x.md |\n## Always load\n- a.md\n## Notes\n- y.md\n| b | y.md |\n"
    routing = parse_routing(text)
    assert [entry.file for entry in (*routing.always, *routing.routes)] == ["a.md"]


def test_row_to_a_file_that_is_not_there_is_an_error() -> None:
    text = AGENTS + "| Scripts | gone.md |\n"
    (finding,) = check_routing(parse_routing(text), FILES, FILES)
    assert (finding.rule, finding.severity, finding.line) == ("routing-missing-file", Severity.ERROR, 11)
    assert "gone.md" in finding.message


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        (AGENTS + "| Scripts | none |\n", "routing-row", 11),
        (AGENTS.replace("| Writing anything | copy-voice.md |\n", ""), "routing-unrouted", None),
        (AGENTS.replace("- operating-principles.md \u2014", "- copy-voice.md \u2014"), "routing-unrouted", None),
        ("# Routing\n\nRead everything.\n", "routing-empty", None),
        ("", "routing-empty", None),
        (
            "## Route by task type\n| All | operating-principles.md |\n| Writing | copy-voice.md |\n",
            "routing-always",
            None,
        ),
    ],
)
def test_incomplete_table_is_a_warning(text: str, rule: str, line: int | None) -> None:
    (finding,) = check_routing(parse_routing(text), FILES, FILES)
    assert (finding.rule, finding.severity, finding.line) == (rule, Severity.WARNING, line)


def test_file_that_is_there_and_not_listed_may_be_routed_to() -> None:
    assert rules(AGENTS + "| More | extra.md |\n", present=(*FILES, "extra.md")) == []


def test_pack_without_capability_files_needs_no_table() -> None:
    assert rules("", listed=(), present=()) == []


pieces = st.sampled_from(
    ["## Always load\n", "## Route by task type\n", "- ", "| ", "|", "a.md", " \u2014 ", "\n", "---|", "\\", "#"]
)


@given(st.lists(pieces, max_size=20).map("".join) | st.text(max_size=30))
def test_any_text_is_read_with_lines_that_are_there(text: str) -> None:
    routing = parse_routing(text)
    lines = [*routing.empty_rows, *(entry.line for entry in (*routing.always, *routing.routes))]
    assert all(1 <= line <= text.count("\n") + 1 for line in lines)


def test_secret_in_a_table_is_not_shown() -> None:
    text = "## Always load\n- sk-abcdefghijklmnopqrstuvwx.md\n"
    assert "abcdefgh" not in str(check_routing(parse_routing(text), FILES, FILES))


@pytest.mark.parametrize("piece", ["| a.md ", "a.m", ".md", "- a.md\n", "\\|", "|-"])
def test_long_text_takes_no_more_than_its_length(piece: str) -> None:
    # A search that starts over at each of them would take minutes.
    for head in ("## Always load\n- ", "## Route by task type\n| "):
        parse_routing(head + piece * (100_000 // len(piece)))
