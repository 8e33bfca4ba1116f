"""Cut a source file into units, by its shape: text, place, and what the place suggests the unit to be.

Source: AMP v0.4, Part 10 (boundaries) and Part 4 (narration, and the quotes in it).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from melete.packs.capture.log import find_quotes, narrates, suggest
from melete.packs.capture.outline import (
    Block,
    Line,
    Outline,
    Section,
    block_of,
    bold_lead,
    bullets,
    bullets_and_paragraphs,
    is_bullet,
    label_of,
    parse_heading,
    sections,
)
from melete.packs.capture.shapes import Shape, is_date_heading, section_key


class Candidate(StrEnum):
    """What the place of a unit suggests it to be; the unit's own words decide."""

    GOAL = "goal"
    CLAIM = "claim"
    DIRECTIVE = "directive"
    DEMONSTRATION = "demonstration"
    GOAL_OR_DIRECTIVE = "goal or directive"
    CLAIM_OR_GOAL = "claim or goal"
    ACTION_LOG = "action-log"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """A piece of a source file that is one memory, or one line of narration."""

    source: str
    line: int
    shape: Shape
    section: str
    text: str
    candidate: Candidate
    #: Why the place suggests the candidate.
    reason: str
    #: Only for demonstrations: positive, negative or mixed.
    valence: str | None = None
    #: True for the words of the author, found in a bullet of a log.
    quoted: bool = False
    #: The numbers of the lines of the source that it was cut from.
    lines: tuple[int, ...] = ()


class _Place(NamedTuple):
    candidate: Candidate
    reason: str
    valence: str | None = None
    #: True where a section is one unit, even if it holds bullets.
    whole: bool = False


#: Sections of files of priorities.
_PRIORITIES: Final = {
    "active right now": _Place(Candidate.GOAL, "an active priority"),
    "open bets": _Place(Candidate.GOAL, "an open bet"),
    "what not to work on": _Place(Candidate.DIRECTIVE, "something not to work on"),
    "recently shipped": _Place(Candidate.ACTION_LOG, "recently shipped"),
    "scheduled tasks": _Place(Candidate.CLAIM, "a scheduled task"),
}
#: Sections of marketing masters, by how their titles start.
_MARKETING: Final = {
    "positioning": _Place(Candidate.CLAIM, "positioning", whole=True),
    "core story": _Place(Candidate.CLAIM, "the core story", whole=True),
    "product description": _Place(Candidate.CLAIM, "a product description", whole=True),
    "voice": _Place(Candidate.DIRECTIVE, "a rule of voice"),
    "anti-patterns": _Place(Candidate.DIRECTIVE, "an anti-pattern"),
    "vocabulary": _Place(Candidate.DIRECTIVE, "a rule of vocabulary"),
    "revision checklist": _Place(Candidate.DIRECTIVE, "an item of the revision checklist"),
    "marketing philosophy": _Place(Candidate.GOAL, "a marketing principle"),
    "approved examples": _Place(Candidate.DEMONSTRATION, "an approved example", "positive"),
    "rejected examples": _Place(Candidate.DEMONSTRATION, "a rejected example", "negative"),
    "before and after": _Place(Candidate.DEMONSTRATION, "a rewrite", "mixed"),
}
_BESIDE_EXAMPLES: Final = _Place(Candidate.UNKNOWN, "a paragraph beside examples")
#: Fewer words beside a quote only introduce it.
_WORDS_OF_A_REST: Final = 6
#: The one project file that Part 10 names as a composite.
COMPOSITE_PROJECT: Final = "project_memorymarket_v3.md"


def extract_units(source: str, outline: Outline, shape: Shape, author: str | None = None) -> tuple[SourceUnit, ...]:
    """Return the units of a file in order. `author` is the name whose words in a log are kept."""
    if shape is Shape.LOG:
        found = _log(source, outline.lines, author)
    elif shape is Shape.PHILOSOPHY:
        found = _philosophy(source, outline.lines)
    elif shape is Shape.PRIORITIES:
        found = _priorities(source, outline.lines)
    elif shape is Shape.MARKETING_MASTER:
        found = _marketing(source, outline.lines)
    else:
        found = _whole_file(source, outline, shape)
    return tuple(unit for unit in found if unit.text.strip())


def _whole_file(source: str, outline: Outline, shape: Shape) -> Iterator[SourceUnit]:
    candidate, reason = {
        Shape.FEEDBACK: (Candidate.DIRECTIVE, "feedback"),
        Shape.PROJECT: (Candidate.CLAIM, "a project file"),
        Shape.REFERENCE: (Candidate.CLAIM, "a reference file"),
    }[shape]
    if source.rpartition("/")[2].lower() == COMPOSITE_PROJECT:
        for section in sections(outline.lines):
            if section.level in (2, 3):
                block = block_of(section.lines)
                unit = SourceUnit(source, section.line, shape, section.title, block.text, candidate, reason)
                yield replace(unit, lines=(section.line, *block.numbers))
        return
    lines = outline.lines
    title = ""
    first = next((index for index, line in enumerate(lines) if not line.blank), None)
    heading = parse_heading(lines[first]) if first is not None else None
    if first is not None and heading is not None and heading.level == 1:
        title, lines = heading.title, lines[first + 1 :]
    block = block_of(lines)
    yield SourceUnit(source, block.line, shape, title, block.text, candidate, reason, lines=block.numbers)


def _philosophy(source: str, lines: Sequence[Line]) -> Iterator[SourceUnit]:
    takes = 0  # the level of the heading of a section of takes, while inside it
    for section in sections(lines):
        if section.level and section.level <= takes:
            takes = 0
        if section_key(section.title).endswith("takes"):
            takes = section.level
        reason = "a stance" if takes else "a principle"
        make = SourceUnit(source, section.line, Shape.PHILOSOPHY, section.title, "", Candidate.GOAL, reason)
        found = list(_principles(section.lines))
        if not found and takes:
            found = list(bullets(section.lines))
            if not found and section.level > takes:
                whole = block_of(section.lines)
                lead = (f"**{section.title}**", "")
                found = [Block(section.line, (*lead, *whole.lines), (section.line, *whole.numbers))]
        for block in found:
            yield replace(make, line=block.line, text=block.text, lines=block.numbers)


def _principles(lines: Sequence[Line]) -> Iterator[Block]:
    """Yield each line that starts in bold, with the prose up to the next one."""
    starts = [index for index, line in enumerate(lines) if _is_principle(line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        if is_bullet(lines[start]):
            yield next(bullets(lines[start:end]))
        else:
            yield block_of(lines[start:end])


def _is_principle(line: Line) -> bool:
    if line.code:
        return False
    return bold_lead(next(bullets([line])).lines[0] if is_bullet(line) else line.text) is not None


def _priorities(source: str, lines: Sequence[Line]) -> Iterator[SourceUnit]:
    unknown = _Place(Candidate.UNKNOWN, "a section that says nothing about its kind")
    for section, place in _placed(lines, _PRIORITIES):
        kind = place or unknown
        for block in bullets(section.lines):
            yield _place_unit(source, Shape.PRIORITIES, section, block, kind)


def _marketing(source: str, lines: Sequence[Line]) -> Iterator[SourceUnit]:
    unknown = _Place(Candidate.UNKNOWN, "a section that says nothing about its kind", whole=True)
    for section, place in _placed(lines, _MARKETING):
        kind = place or unknown
        if section.level == 1 and place is None:
            continue  # the title of the file, and what introduces it
        if kind.candidate is Candidate.DEMONSTRATION:
            nested = section_key(section.title) not in _MARKETING
            for block, is_example in _examples(section, nested=nested):
                found = kind if is_example else _BESIDE_EXAMPLES
                yield _place_unit(source, Shape.MARKETING_MASTER, section, block, found)
            continue
        listed = [] if kind.whole else list(bullets(section.lines))
        for block in listed or [block_of(section.lines)]:
            yield _place_unit(source, Shape.MARKETING_MASTER, section, block, kind)


def _place_unit(source: str, shape: Shape, section: Section, block: Block, place: _Place) -> SourceUnit:
    """Return a block of a section as a unit of what is known about its place."""
    return SourceUnit(
        source,
        block.line,
        shape,
        section.title,
        block.text,
        place.candidate,
        place.reason,
        place.valence,
        lines=block.numbers,
    )


def _examples(section: Section, *, nested: bool) -> Iterator[tuple[Block, bool]]:
    """Yield the examples of a section: what a heading below names, or bullets and fences, or paragraphs.

    With each comes whether it is one: a paragraph beside bullets may be, or only speak of them.
    """
    lines = section.lines
    first = next((line for line in lines if not line.blank), None)
    if first is None:
        return
    listed = any(map(is_bullet, lines))
    if nested and not (listed and is_bullet(first)):
        yield _unwrap(block_of(lines)), True
        return
    for block, is_listed in _annotated(bullets_and_paragraphs(lines)):
        fenced = not is_listed and _opens_fence(block.lines[0])
        yield block if is_listed else _unwrap(block), is_listed or fenced or not listed


def _annotated(blocks: Iterator[tuple[Block, bool]]) -> Iterator[tuple[Block, bool]]:
    """Join each paragraph that only says why with the example before it."""
    held: tuple[Block, bool] | None = None
    for block, listed in blocks:
        if held is not None and not listed and label_of(block.lines[0]) is not None:
            before = held[0]
            joined = (*before.lines, "", *block.lines)
            held = Block(before.line, joined, (*before.numbers, *block.numbers)), held[1]
            continue
        if held is not None:
            yield held
        held = block, listed
    if held is not None:
        yield held


def _unwrap(block: Block) -> Block:
    """Take the fence or the quotation marks of a block quote away: the example is what stands inside."""
    lines = list(block.lines)
    body = [index for index, line in enumerate(lines) if _opens_fence(line)]
    if len(body) == 2 and body[0] == 0:
        return block._replace(lines=(*lines[1 : body[1]], *lines[body[1] + 1 :]))
    quoted = [line for line in lines if line.startswith(">")]
    if lines and lines[0].startswith(">") and quoted:
        plain = (line[1:].removeprefix(" ") if line.startswith(">") else line for line in lines)
        return block._replace(lines=tuple(plain))
    return block


def _opens_fence(line: str) -> bool:
    return line.startswith(("```", "~~~"))


def _placed(lines: Sequence[Line], known: dict[str, _Place]) -> Iterator[tuple[Section, _Place | None]]:
    """Yield sections with what is known about them, or about the nearest heading above that is known."""
    above: list[tuple[int, _Place]] = []
    for section in sections(lines):
        while above and above[-1][0] >= section.level:
            above.pop()
        key = section_key(section.title)
        place = next((place for name, place in known.items() if key.startswith(name)), None)
        if place is not None:
            above.append((section.level, place))
        yield section, place or (above[-1][1] if above else None)


def _log(source: str, lines: Sequence[Line], author: str | None) -> Iterator[SourceUnit]:
    day, level = "", 0
    for section, heading in _days(lines):
        if heading:
            day, level = section.title, section.level
        elif section.level <= level:
            day = ""
        if not day:
            continue
        for block in bullets(section.lines):
            yield from _bullet(source, day, block, author)


def _days(lines: Sequence[Line]) -> Iterator[tuple[Section, bool]]:
    for section in sections(lines):
        head = Line(section.line, f"### {section.title}", code=False)
        yield section, bool(section.level) and is_date_heading(head)


def _bullet(source: str, day: str, block: Block, author: str | None) -> Iterator[SourceUnit]:
    """Yield the author's words in a bullet, each as a unit, and then what is left of it, if that says anything."""
    text = block.text
    unit = SourceUnit(source, block.line, Shape.LOG, day, text, Candidate.UNKNOWN, "", lines=block.numbers)
    quotes = find_quotes(text, author)
    for quote in quotes:
        first, last = text.count("\n", 0, quote.start), text.count("\n", 0, quote.end)
        yield replace(
            unit,
            line=block.numbers[first],
            lines=block.numbers[first : last + 1],
            text=quote.text,
            candidate=Candidate.GOAL_OR_DIRECTIVE,
            reason="the author's own words",
            quoted=True,
        )
    rest = text
    for quote in reversed(quotes):
        rest = f"{rest[: quote.start].rstrip()} {rest[quote.end :].lstrip()}".strip()
    action = narrates(rest)
    hint = suggest(rest, strong=action is not None)
    if action is not None and hint is None:
        said = "; the author's words in it are kept" if quotes else ""
        yield replace(unit, candidate=Candidate.ACTION_LOG, reason=f"it narrates an action ({action}){said}")
    elif action is not None and hint is not None:
        reason = f"it narrates an action ({action}) and says {hint.word!r}"
        yield replace(unit, text=rest, reason=reason)
    elif hint is not None:
        candidate = Candidate.DIRECTIVE if hint.correction else Candidate.CLAIM_OR_GOAL
        yield replace(unit, text=rest, candidate=candidate, reason=f"it says {hint.word!r}")
    elif not quotes or len(rest.split()) >= _WORDS_OF_A_REST:
        yield replace(unit, text=rest, reason="it says neither decision nor correction")
