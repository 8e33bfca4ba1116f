"""The managed block: the part of an agent's own file that belongs to one installed pack. Bytes in, bytes out.

    <!-- amp:begin @creator/slug -->
    what the pack's agents.md says

    > Pack files: .amp/slug/memory/
    <!-- amp:end @creator/slug -->

A marker counts only as a whole line. Of one pack a file holds one pair, begin before end and no other marker between,
or none; anything else is refused. Whatever stands outside the block stays as it is, to the byte:

    remove_block(put_block(before, slug, body), slug, unterminated=is_unterminated(before)) == before

A block goes to the end of the file, after a blank line, in the line ends of the file. A file whose last line had no
end gets one, so that who appends to it does not hit the marker; `unterminated` says that this end goes again.

Source: AMP v0.4, Part 7; decisions, AMP packs, Install.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from melete.packs.errors import AgentsRefused, BlockDamaged, PackRefused

#: Who made a pack that was installed from a folder.
LOCAL: Final = "local"
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
#: What an agents.md that is no text is refused by, and what clears it.
AGENTS_RULE: Final = "agents-text"
AGENTS_REMEDY: Final = "save agents.md as UTF-8 without NUL characters"
#: UTF-16, either way round.
_OTHER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")

#: Any line that some tool could take for a marker of some pack.
_ANY_MARKER: Final = rb"(?i:<!--[ \t]*amp:(?:begin|end)\b)"
_LINE_START: Final = rb"(?:(?<![^\r\n])|(?<=\A\xef\xbb\xbf))"
_CREATOR: Final = rb"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class Block(NamedTuple):
    """A block as it stands in a file: from the start of its begin line to the end of its end line's text."""

    creator: str
    start: int
    end: int
    newline: bytes
    #: What stands between the markers, its line ends as `\\n`.
    body: bytes


def find_text_fault(host: bytes) -> int | None:
    """Return where an agent's own file shows that it is no UTF-8 text that could be written back; None if nowhere."""
    if host.startswith(_OTHER_MARKS):
        return 0
    place = host.find(b"\x00")
    return None if place < 0 else place


def find_agents_fault(agents: bytes) -> tuple[int, str] | None:
    """Return the line of an agents.md that would spoil the file it is put into, and why; None for none.

    Asked is what is asked of that file, and UTF-8 throughout: an agent reads both as one text.
    """
    place = find_text_fault(agents)
    if place is not None:
        return _line_of(agents, place), "it is not UTF-8 text, or holds a NUL character"
    try:
        agents.decode("utf-8")
    except UnicodeDecodeError as error:
        return _line_of(agents, error.start), f"it is not UTF-8 (byte {error.start})"
    return None


def compute_body(agents: bytes, memory_path: str) -> bytes:
    """Return what stands between the markers: agents.md as it is, a blank line, and where the pack's files are.

    Line ends become `\\n`; `put_block` writes those of the file. Errors: `AgentsRefused` for an agents.md that is not
    UTF-8 text: the file that it goes into could not be read again; `PackRefused`, rule `amp-marker`, for one that holds
    anything like a marker: it could end its own block.
    """
    fault = find_agents_fault(agents)
    if fault is not None:
        raise AgentsRefused(AGENTS_RULE, "agents.md", fault[1], fault[0], AGENTS_REMEDY)
    text = _normalize(agents.removeprefix(BYTE_ORDER_MARK))
    marker = re.search(_ANY_MARKER, text)
    if marker:
        line = text.count(b"\n", 0, marker.start()) + 1
        raise PackRefused(
            "amp-marker",
            "agents.md",
            f"its line {line} holds a marker like those that frame the block it is installed in; remove that line",
        )
    if text and not text.endswith(b"\n"):
        text += b"\n"
    return text + b"\n> Pack files: " + memory_path.encode() + b"\n"


def find_block(host: bytes, slug: str, file: str = "") -> Block | None:
    """Return the block of a pack, whoever is named as its creator; None if the file holds no marker of it.

    `slug` is one that `parse_slug` returned; `file` is the file's name, for messages. Errors: `BlockDamaged`, naming
    the line, for anything but one ordered pair with no marker between.
    """
    pattern = re.compile(
        _LINE_START + rb"<!-- amp:(begin|end) @(" + _CREATOR + rb")/" + re.escape(slug.encode()) + rb" -->(?![^\r\n])"
    )
    found = list(pattern.finditer(host))
    if not found:
        return None

    def refuse(marker: re.Match[bytes], reason: str) -> BlockDamaged:
        return BlockDamaged(file, _line_of(host, marker.start()), slug, reason)

    begin = found[0]
    if begin[1] != b"begin":
        raise refuse(begin, "an end comes before any begin")
    if len(found) == 1:
        raise refuse(begin, "its end is missing")
    end = found[1]
    if end[1] != b"end":
        raise refuse(end, "a second begin follows before any end")
    if end[2] != begin[2]:
        raise refuse(end, "begin and end name two creators")
    if len(found) > 2:
        raise refuse(found[2], "there is more than one block")
    other = re.compile(_LINE_START + _ANY_MARKER).search(host, begin.end(), end.start())
    if other:
        raise refuse(other, "a marker of another pack stands inside")
    newline = _line_end_at(host, begin.end())
    body = _normalize(host[begin.end() + len(newline) : end.start()])
    return Block(begin[2].decode(), begin.start(), end.end(), newline, body)


def put_block(host: bytes, slug: str, body: bytes, *, creator: str = LOCAL, file: str = "") -> bytes:
    """Return the file with the pack's block: in place of the one that it holds, or else at its end.

    `body` is what `compute_body` returned. Errors: `BlockDamaged`.
    """
    block = find_block(host, slug, file)
    newline = block.newline if block else find_newline(host)
    name = f"@{creator}/{slug}".encode()
    lines = b"<!-- amp:begin " + name + b" -->\n" + body + b"<!-- amp:end " + name + b" -->"
    text = lines.replace(b"\n", newline)
    if block:
        return host[: block.start] + text + host[block.end :]
    if not host:
        return text + newline
    return host + newline * (2 if is_unterminated(host) else 1) + text + newline


def remove_block(
    host: bytes,
    slug: str,
    *,
    unterminated: bool = False,
    inherited: bool = False,
    others: Iterable[str] = (),
    file: str = "",
) -> bytes:
    """Return the file without the pack's block, and without the blank line that was put before it.

    `unterminated` is what `is_unterminated` said before the block was put: then, with nothing after the block, the
    line end that was added goes too. `inherited` is what it said before the block of an earlier pack was put, and is
    heeded unless the last line left is the end marker of one of the `others`, packs that stay. A file without the
    block is returned as it is. Errors: `BlockDamaged`.
    """
    block = find_block(host, slug, file)
    if block is None:
        return host
    newline = block.newline
    before = host[: block.start]
    after = host[block.end + len(_line_end_at(host, block.end)) :]
    if not before.endswith(newline):
        return before + after
    above = before[: -len(newline)]
    if above and not _ends_line(above, newline):
        return before + after  # somebody took the blank line away, and what is left is the end of their own line
    if not after and above.endswith(newline):
        last = above[: -len(newline)]
        end_lines = tuple(f"/{other} -->".encode() for other in others)
        if unterminated or (inherited and not (end_lines and last.endswith(end_lines))):
            above = last
    return above + after


def find_newline(host: bytes) -> bytes:
    """Return the line end that most lines of a file have; `\\n` for none, or as many of each."""
    pairs = host.count(b"\r\n")
    feeds = host.count(b"\n") - pairs
    if pairs > feeds:
        return b"\r\n"
    return b"\r" if b"\r" in host and not pairs + feeds else b"\n"


def is_unterminated(host: bytes) -> bool:
    """Return whether a file's last line has no end. An empty file has no last line."""
    return bool(host) and not _ends_line(host, find_newline(host))


def is_blank(host: bytes) -> bool:
    """Return whether nothing is left of a file, but perhaps a byte order mark that an editor added."""
    return host in (b"", BYTE_ORDER_MARK)


def _ends_line(text: bytes, newline: bytes) -> bool:
    return text.endswith((b"\n", newline))


def _line_end_at(host: bytes, place: int) -> bytes:
    return b"\r\n" if host.startswith(b"\r\n", place) else host[place : place + 1]


def _normalize(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _line_of(host: bytes, place: int) -> int:
    return _normalize(host[:place]).count(b"\n") + 1
