from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from melete.packs.block import (
    compute_body,
    find_block,
    find_newline,
    is_blank,
    is_unterminated,
    put_block,
    remove_block,
)
from melete.packs.errors import BlockDamaged, PackRefused

AGENTS = b"# AMP Routing\n\n## Always load\n- operating-principles.md\n"
BODY = compute_body(AGENTS, ".amp/notes/memory/")
BEGIN, END = b"<!-- amp:begin @local/notes -->", b"<!-- amp:end @local/notes -->"
#: Bits that files are made of: text, line ends of all kinds, marks, and what looks like a marker and is none.
pieces = st.sampled_from(
    [
        b"rules",
        b"\n",
        b"\n\n",
        b"\r\n",
        b"\r",
        b" ",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\xff\x00",
        b"say " + BEGIN,
        END + b".",
        b"<!-- amp:begin @local/notes-2 -->\n<!-- amp:end @local/notes-2 -->\n",
        b"\n<!-- amp:end @ada/old -->",
        b"<!-- comment -->",
    ]
)
hosts = st.lists(pieces, max_size=12).map(b"".join)
slugs = st.permutations(["notes", "voice", "a"])


def without_own_lines(host: bytes) -> bool:
    """Whether no line of the file is a marker of one of our packs by chance."""
    return all(find_all(host, slug) == 0 for slug in ("notes", "voice", "a"))


def find_all(host: bytes, slug: str) -> int:
    lines = re.split(rb"\r\n|\r|\n", host.removeprefix(b"\xef\xbb\xbf"))
    return sum(line in (b"<!-- amp:begin @local/%b -->" % slug.encode(), END) for line in lines)


# Putting and removing


def test_block_is_framed_as_the_specification_shows_it() -> None:
    assert put_block(b"# Rules\n", "notes", BODY) == (
        b"# Rules\n\n"
        b"<!-- amp:begin @local/notes -->\n"
        b"# AMP Routing\n\n## Always load\n- operating-principles.md\n"
        b"\n> Pack files: .amp/notes/memory/\n"
        b"<!-- amp:end @local/notes -->\n"
    )


@given(hosts)
def test_removing_restores_every_byte(host: bytes) -> None:
    assume(without_own_lines(host))
    assert remove_block(put_block(host, "notes", BODY), "notes", unterminated=is_unterminated(host)) == host


@given(hosts, st.text(max_size=30).map(str.encode).filter(lambda text: b"amp:" not in text and b"\x00" not in text))
def test_removing_restores_every_byte_whatever_stands_in_the_block(host: bytes, agents: bytes) -> None:
    assume(without_own_lines(host))
    body = compute_body(agents, "~/.amp/notes/memory/")
    put = put_block(host, "notes", body)
    assert find_block(put, "notes") is not None
    assert remove_block(put, "notes", unterminated=is_unterminated(host)) == host


@given(hosts, slugs, slugs)
def test_several_packs_leave_in_any_order(host: bytes, come: list[str], go: list[str]) -> None:
    assume(without_own_lines(host))
    first, ended = come[0], not is_unterminated(host)

    def remove(after: bytes, slug: str, others: list[str]) -> bytes:
        own = not ended and slug == first
        return remove_block(after, slug, unterminated=own, inherited=not ended and not own, others=others)

    steps = [host]
    for slug in come:
        steps.append(put_block(steps[-1], slug, BODY))
    after = steps[-1]
    for count, slug in enumerate(go, 1):
        after = remove(after, slug, go[count:])
    assert after == host
    # In reverse, every step is undone to the byte.
    for count in reversed(range(len(come))):
        assert remove(steps[count + 1], come[count], come[:count]) == steps[count]


@given(hosts)
def test_putting_again_replaces_in_place(host: bytes) -> None:
    assume(without_own_lines(host))
    other = compute_body(b"other\r\nlines", ".amp/notes/memory/")
    once = put_block(host, "notes", BODY)
    assert put_block(once, "notes", BODY) == once
    assert put_block(once, "notes", other) == put_block(host, "notes", other)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_block_takes_the_line_ends_of_the_file(newline: bytes) -> None:
    put = put_block(b"one" + newline + b"two" + newline, "notes", BODY)
    assert b"\n" not in put.replace(newline, b"")
    assert b"\r" not in put.replace(newline, b"")
    assert remove_block(put, "notes") == b"one" + newline + b"two" + newline


def test_block_follows_a_file_that_was_converted() -> None:
    put = put_block(b"one\ntwo\n", "notes", BODY).replace(b"\n", b"\r\n")
    block = find_block(put, "notes")
    assert block is not None
    assert (block.body, block.newline) == (BODY, b"\r\n")
    assert remove_block(put, "notes") == b"one\r\ntwo\r\n"


def test_last_line_without_end_gets_one_so_that_appending_spares_the_marker() -> None:
    put = put_block(b"rules", "notes", BODY)
    assert put.endswith(END + b"\n")
    assert remove_block(put + b"appended\n", "notes", unterminated=True) == b"rules\nappended\n"


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        (lambda put: b"first\n" + put, b"first\nrules\n"),
        (lambda put: put + b"\nlast\n", b"rules\n\nlast\n"),
        (lambda put: put + b"last", b"rules\nlast"),
        (lambda put: put.replace(BEGIN, b"own\n" + BEGIN), b"rules\n\nown\n"),
        (lambda put: put.replace(b"\n\n" + BEGIN, b"\n\n\n\n" + BEGIN), b"rules\n\n\n"),
        (lambda put: put.replace(b"\n\n" + BEGIN, b"\n" + BEGIN), b"rules\n"),
        (lambda put: put[:-1], b"rules\n"),
        (lambda put: put[len(b"rules\n\n") :], b""),
    ],
)
def test_edits_outside_the_block_stay(edit: object, left: bytes) -> None:
    assert callable(edit)
    assert remove_block(edit(put_block(b"rules\n", "notes", BODY)), "notes") == left


def test_file_without_block_is_left_alone() -> None:
    for host in (b"", b"rules", put_block(b"rules\n", "other", BODY)):
        assert remove_block(host, "notes", unterminated=True) == host
        assert find_block(host, "notes") is None


def test_block_of_another_creator_is_the_same_packs() -> None:
    put = put_block(b"rules\n", "notes", BODY, creator="Ada-1")
    block = find_block(put, "notes")
    assert block is not None
    assert block.creator == "Ada-1"
    assert remove_block(put, "notes") == b"rules\n"


def test_marker_after_a_byte_order_mark_is_a_whole_line() -> None:
    put = b"\xef\xbb\xbf" + put_block(b"", "notes", BODY)
    assert is_blank(remove_block(put, "notes"))


# What is no block


@pytest.mark.parametrize(
    "line",
    [
        b" " + BEGIN,
        BEGIN + b" ",
        b"> " + BEGIN,
        BEGIN + b"x",
        b"`" + BEGIN + b"`",
        BEGIN.replace(b"local", b"lo/cal"),
        BEGIN.replace(b"notes", b"notes-2"),
        BEGIN.replace(b"notes", b"my-notes"),
        BEGIN.replace(b"notes", b"Notes"),
        BEGIN.replace(b"begin", b"BEGIN"),
        BEGIN.replace(b"begin @", b"begin  @"),
        BEGIN.replace(b"@local/", b""),
    ],
)
def test_marker_counts_only_as_a_whole_line(line: bytes) -> None:
    host = b"rules\n" + line + b"\nmore\n"
    assert find_block(host, "notes") is None
    put = put_block(host, "notes", BODY)
    assert remove_block(put, "notes") == host


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        ([BEGIN], 2, "its end is missing"),
        ([END], 2, "an end comes before any begin"),
        ([END, BEGIN], 2, "an end comes before any begin"),
        ([BEGIN, BEGIN, END], 3, "a second begin follows before any end"),
        ([BEGIN, END, END], 4, "there is more than one block"),
        ([BEGIN, END, BEGIN], 4, "there is more than one block"),
        ([BEGIN, b"text", END, b"text", BEGIN, END], 6, "there is more than one block"),
        ([BEGIN, END.replace(b"local", b"ada")], 3, "begin and end name two creators"),
        ([BEGIN, b"<!-- amp:begin @local/voice -->", END], 3, "a marker of another pack stands inside"),
        ([BEGIN, b"text", b"<!-- AMP:end @x/voice -->", END], 4, "a marker of another pack stands inside"),
    ],
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_anything_but_one_ordered_pair_is_refused(lines: list[bytes], line: int, reason: str, newline: bytes) -> None:
    host = newline.join([b"rules", *lines, b"tail"])
    for act in (
        lambda: find_block(host, "notes", "CLAUDE.md"),
        lambda: put_block(host, "notes", BODY, file="CLAUDE.md"),
        lambda: remove_block(host, "notes", file="CLAUDE.md"),
    ):
        with pytest.raises(BlockDamaged) as caught:
            act()
        assert (caught.value.file, caught.value.line, caught.value.reason) == ("CLAUDE.md", line, reason)


# Bodies


@pytest.mark.parametrize(
    "marker",
    [
        BEGIN,
        END,
        b"<!-- amp:end @local/other -->",
        b"text <!-- amp:end @local/notes --> text",
        b"<!--amp:begin",
        b"<!--\tAMP:End",
    ],
)
def test_agents_file_with_a_marker_is_refused(marker: bytes) -> None:
    with pytest.raises(PackRefused) as caught:
        compute_body(b"# Routing\r\n\r\n" + marker + b"\n", ".amp/notes/memory/")
    assert (caught.value.rule, caught.value.file) == ("amp-marker", "agents.md")
    assert "line 3" in str(caught.value)


def test_comment_that_is_no_marker_is_kept() -> None:
    for agents in (b"<!-- amp:beginning -->\n", b"<!-- note -->\n", b"amp:end\n"):
        assert compute_body(agents, "x").startswith(agents)


def test_body_ends_its_last_line_and_loses_its_byte_order_mark() -> None:
    assert compute_body(b"\xef\xbb\xbfone\r\ntwo", "x") == b"one\ntwo\n\n> Pack files: x\n"
    assert compute_body(b"", "x") == b"\n> Pack files: x\n"


@pytest.mark.parametrize(
    ("host", "newline", "unterminated"),
    [
        (b"", b"\n", False),
        (b"a", b"\n", True),
        (b"a\r\nb\r\nc\n", b"\r\n", False),
        (b"a\r\nb\n", b"\n", False),
        (b"a\rb\r", b"\r", False),
        (b"a\nb\r", b"\n", True),
        (b"a\r\nb", b"\r\n", True),
    ],
)
def test_line_end_is_that_of_most_lines(host: bytes, newline: bytes, unterminated: bool) -> None:
    assert (find_newline(host), is_unterminated(host)) == (newline, unterminated)
