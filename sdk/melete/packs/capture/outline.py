"""What capture sees of a Markdown file: its lines, sections, bullets and paragraphs, each with its line number.

Less than Markdown, on purpose: frontmatter is set apart, comments are gone (a reader of the page never saw them), and
what stands in a code fence is neither a heading nor a bullet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

_FENCE: Final = re.compile(r"(`{3,}|~{3,})(.*)", re.ASCII)
_HEADING: Final = re.compile(r"[ ]{0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*", re.ASCII)
_BULLET: Final = re.compile(r"([ \t]*)(?:[-*+]|[0-9]{1,3}[.)])[ \t]+(.*)", re.ASCII)
_TASK_BOX: Final = re.compile(r"\[[ xX]\][ \t]+", re.ASCII)
_RULE: Final = re.compile(r"[ ]{0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*", re.ASCII)
_BOLD_LEAD: Final = re.compile(r"(?:\*\*|__)(?=\S)(.+?)(?<=\S)(?:\*\*|__)", re.ASCII)


class Line(NamedTuple):
    """A line of a file, without its line end; `code` if it stands in a fence, the fence's own lines included."""

    number: int
    text: str
    code: bool

    @property
    def blank(self) -> bool:
        return not self.text.strip()


class Heading(NamedTuple):
    """A heading: its level from 1, and its text."""

    level: int
    title: str


class Section(NamedTuple):
    """The lines under a heading up to the next one of any level; level 0 is what comes before the first."""

    line: int
    level: int
    title: str
    lines: tuple[Line, ...]


class Block(NamedTuple):
    """Lines that belong together, the number of the first, and those of all lines of the file that they come from."""

    line: int
    lines: tuple[str, ...]
    numbers: tuple[int, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Outline(NamedTuple):
    """A file taken apart: the text of its frontmatter, if it has any, and the lines after it."""

    frontmatter: str | None
    lines: tuple[Line, ...]


def read_outline(text: str) -> Outline:
    """Take a file apart. Lines end at `\\n`, and a `\\r` before it belongs to the line end."""
    raw = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    first, frontmatter = 0, None
    if raw[0].rstrip() == "---":
        end = next((index for index, line in enumerate(raw[1:], 1) if line.rstrip() in ("---", "...")), None)
        if end is not None:
            frontmatter, first = "\n".join(raw[1:end]), end + 1
    return Outline(frontmatter, tuple(_read_lines(raw, first)))


def parse_heading(line: Line) -> Heading | None:
    """Return the heading that a line is, or None."""
    found = None if line.code else _HEADING.fullmatch(line.text)
    return Heading(len(found[1]), found[2].strip()) if found else None


def is_bullet(line: Line) -> bool:
    """True for a bullet or a numbered item that is not nested in another one."""
    found = None if line.code else _BULLET.fullmatch(line.text)
    return found is not None and _width(found[1]) < 2 and not _RULE.fullmatch(line.text)


def bold_lead(text: str) -> str | None:
    """Return what a line sets in bold at its start, or None. A label (`**Why:**`) is no principle, and gives None."""
    found = _BOLD_LEAD.match(text.lstrip())
    if found is None or label_of(text) is not None:
        return None
    return found[1]


_LABELS: Final = {
    "why": "why", "reason": "why", "rationale": "why", "because": "why", "how to apply": "apply", "how": "apply",
    "apply": "apply", "note": "why", "context": "why", "why it works": "why", "why it fails": "why",
}  # fmt: skip
_LABEL: Final = re.compile(
    r"[ \t]*(?:[-*+][ \t]+)?(?:\*\*|__)?([A-Za-z][A-Za-z ]{1,30}?)[ \t]*(?:\*\*|__)?:(?:\*\*|__)?[ \t]*", re.ASCII
)


def label_of(text: str) -> tuple[str, str] | None:
    """Return the kind of label that a line starts with (`why` or `apply`) and the rest of the line, or None."""
    found = _LABEL.match(text)
    kind = _LABELS.get(found[1].lower()) if found else None
    return (kind, text[found.end() :]) if found and kind else None


def sections(lines: Iterable[Line]) -> Iterator[Section]:
    """Yield the sections of a file in order."""
    line, level, title, inside = 1, 0, "", list[Line]()
    for each in lines:
        heading = parse_heading(each)
        if heading is None:
            inside.append(each)
            continue
        if level or any(not one.blank for one in inside):
            yield Section(line, level, title, tuple(inside))
        line, level, title, inside = each.number, heading.level, heading.title, []
    if level or any(not one.blank for one in inside):
        yield Section(line, level, title, tuple(inside))


def bullets(lines: Sequence[Line]) -> Iterator[Block]:
    """Yield each bullet with what hangs below it: lines that go on, nested bullets, indented paragraphs, fences."""
    return (_bullet(part) for part, listed in _split_bullets(lines) if listed)


def bullets_and_paragraphs(lines: Sequence[Line]) -> Iterator[tuple[Block, bool]]:
    """Yield each bullet, as `bullets` does, and each paragraph or fence beside them; and whether it is a bullet."""
    for part, listed in _split_bullets(lines):
        if listed:
            yield _bullet(part), True
        else:
            yield from ((block, False) for block in paragraphs(part))


def _split_bullets(lines: Sequence[Line]) -> Iterator[tuple[Sequence[Line], bool]]:
    """Yield the lines of each bullet, and those between them."""
    start, listed = 0, False
    for index, line in enumerate(lines):
        if is_bullet(line) or (listed and _ends_bullet(lines, index)):
            if index > start:
                yield lines[start:index], listed
            start, listed = index, is_bullet(line)
    if start < len(lines):
        yield lines[start:], listed


def paragraphs(lines: Sequence[Line]) -> Iterator[Block]:
    """Yield runs of lines between blank ones; a fence stays whole, and a horizontal rule separates."""
    held: list[Line] = []
    for line in lines:
        if line.code or not (line.blank or _RULE.fullmatch(line.text)):
            held.append(line)
        elif held:
            yield block_of(held)
            held = []
    if held:
        yield block_of(held)


def block_of(lines: Sequence[Line]) -> Block:
    """Return lines as a block, without blank lines and horizontal rules at either end."""
    kept = list(lines)
    while kept and is_nothing(kept[-1]):
        kept.pop()
    first = next((index for index, line in enumerate(kept) if not is_nothing(line)), 0)
    kept = kept[first:]
    number = kept[0].number if kept else (lines[0].number if lines else 1)
    return Block(number, tuple(line.text for line in kept), tuple(line.number for line in kept))


def is_nothing(line: Line) -> bool:
    """True for a blank line and a horizontal rule, outside of code."""
    return not line.code and (line.blank or _RULE.fullmatch(line.text) is not None)


def _bullet(lines: Sequence[Line]) -> Block:
    block = block_of(lines)
    found = _BULLET.fullmatch(block.lines[0])
    first = _TASK_BOX.sub("", found[2], count=1) if found else block.lines[0]
    indents = [_indent(line) for line in block.lines[1:] if line.strip()]
    depth = min(indents, default=0)
    below = (line[depth:] if line.strip() else "" for line in block.lines[1:])
    return block._replace(lines=(first, *below))


def _ends_bullet(lines: Sequence[Line], index: int) -> bool:
    """True where a bullet is over: text at the margin after a blank line."""
    line = lines[index]
    return not line.code and not line.blank and index > 0 and lines[index - 1].blank and _indent(line.text) < 2


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" \t"))


def _width(space: str) -> int:
    return len(space.expandtabs(4))


def _read_lines(raw: Sequence[str], first: int) -> Iterator[Line]:
    """Yield the lines after the frontmatter, without comments and the lines that held nothing else.

    A fence inside a comment is no fence, a comment inside a fence is code, and one that is never closed is text.
    """
    last_close = max((index for index, text in enumerate(raw) if "-->" in text), default=-1)
    fence, inside = "", False
    for index in range(first, len(raw)):
        text = raw[index]
        if fence:
            yield Line(index + 1, text, code=True)
            found = _FENCE.fullmatch(text.strip())
            fence = "" if found and found[1].startswith(fence) and not found[2] else fence
            continue
        found = None if inside else _FENCE.fullmatch(text.lstrip())
        if found and "`" not in found[2]:
            fence = found[1]
            yield Line(index + 1, text, code=True)
            continue
        shown, inside = _strip_comments(text, inside=inside, closes_later=index < last_close)
        if shown.strip() or (not text.strip() and not inside):
            yield Line(index + 1, shown, code=False)


def _strip_comments(text: str, *, inside: bool, closes_later: bool) -> tuple[str, bool]:
    if not inside and "<!--" not in text:
        return text, False
    kept = ""
    while text:
        if inside:
            _, closed, text = text.partition("-->")
            inside = not closed
            continue
        before, opened, rest = text.partition("<!--")
        if opened and not closes_later and "-->" not in rest:
            before, opened, rest = text, "", ""
        kept, text, inside = kept + before, rest, bool(opened)
    return kept.rstrip(), inside
