"""Which of the seven shapes a source file has, by its name or by what it holds.

Source: AMP v0.4, Part 10. A file of no shape is left out unless its owner says which one it has.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from melete.errors import InvalidInput
from melete.packs.capture.outline import Line, Outline, bold_lead, is_bullet, parse_heading, sections


class Shape(StrEnum):
    """How a file is cut into units."""

    PHILOSOPHY = "philosophy"
    PRIORITIES = "priorities"
    FEEDBACK = "feedback"
    PROJECT = "project"
    REFERENCE = "reference"
    LOG = "log"
    MARKETING_MASTER = "marketing-master"


class Detected(NamedTuple):
    """A shape, and what it was told by."""

    shape: Shape
    reason: str


#: The sections that make a file one of priorities, in lower case.
PRIORITY_SECTIONS: Final = ("active right now", "open bets", "what not to work on")
#: The sections of a marketing master; two of them make one.
MARKETING_SECTIONS: Final = ("positioning", "voice", "anti-patterns", "approved examples")
LOG_NAME: Final = "main_agent_memory_logs.md"

_PREFIXES: Final = {
    "feedback_": Shape.FEEDBACK,
    "project_": Shape.PROJECT,
    "reference_": Shape.REFERENCE,
}
_DATE_HEAD: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\b.*", re.ASCII)
_KIND: Final = re.compile(r"^[ ]*type:[ ]*[\"']?(feedback|project|reference)[\"']?[ ]*$", re.ASCII | re.MULTILINE)
#: So many lines that start in bold separate a file into principles; one alone is emphasis.
_BOLD_LINES: Final = 2


def detect_shape(path: str, outline: Outline) -> Detected | None:
    """Return the shape of a file, or None. A name says more than content, and a prefix more than a word in a name."""
    return _by_name(path) or _by_content(outline)


def is_date_heading(line: Line) -> bool:
    """True for the head of a day in a log: `### 2026-04-21`, with or without words after it."""
    heading = parse_heading(line)
    return heading is not None and heading.level == 3 and _DATE_HEAD.fullmatch(heading.title) is not None


def parse_shape_choice(text: str) -> tuple[str, Shape]:
    """Return file and shape of `FILE=SHAPE`. Errors: `InvalidInput`."""
    path, equals, name = text.rpartition("=")
    if not equals or not path:
        raise InvalidInput("--shape", text, "FILE=SHAPE")
    try:
        return path, Shape(name)
    except ValueError:
        raise InvalidInput("--shape", text, f"FILE=SHAPE with one of {', '.join(Shape)}") from None


def section_key(title: str) -> str:
    """Return a section's title as sections are compared: in lower case, without decoration, counts or remarks."""
    plain = re.sub(r"[*_`]+|\s*\(.*\)\s*$", "", title, flags=re.ASCII).casefold()
    return re.sub(r"[^a-z0-9]+$", "", re.sub(r"^[^a-z0-9]+", "", plain, flags=re.ASCII), flags=re.ASCII)


def _by_name(path: str) -> Detected | None:
    folder, _, name = path.replace("\\", "/").rpartition("/")
    name = name.lower()
    if not name.endswith((".md", ".markdown", ".txt")):
        return None
    for prefix, shape in _PREFIXES.items():
        if name.startswith(prefix):
            return Detected(shape, f"its name starts with {prefix}")
    if name == LOG_NAME:
        return Detected(Shape.LOG, f"its name is {LOG_NAME}")
    if "philosophy" in name:
        return Detected(Shape.PHILOSOPHY, "its name holds philosophy")
    if "current-priorities" in name:
        return Detected(Shape.PRIORITIES, "its name holds current-priorities")
    if name.endswith("-marketing.md") and "marketing" in folder.lower().split("/")[-2:]:
        return Detected(Shape.MARKETING_MASTER, "its name is marketing/.../...-marketing.md")
    return None


def _by_content(outline: Outline) -> Detected | None:
    found = _KIND.search(outline.frontmatter or "")
    if found:
        return Detected(Shape(found[1]), f"its frontmatter says type: {found[1]}")
    titles = {section_key(section.title) for section in sections(outline.lines)}
    if any(title in titles for title in PRIORITY_SECTIONS):
        return Detected(Shape.PRIORITIES, "it has a section of priorities")
    if sum(any(title.startswith(name) for title in titles) for name in MARKETING_SECTIONS) >= 2:
        return Detected(Shape.MARKETING_MASTER, "it has the sections of a marketing master")
    if _is_log(outline.lines):
        return Detected(Shape.LOG, "it has days as headings over bullets")
    if sum(not line.code and bold_lead(line.text) is not None for line in outline.lines) >= _BOLD_LINES:
        return Detected(Shape.PHILOSOPHY, "bold lines separate it")
    return None


def _is_log(lines: tuple[Line, ...]) -> bool:
    dated = False
    for line in lines:
        if parse_heading(line) is not None:
            dated = is_date_heading(line)
        elif dated and is_bullet(line):
            return True
    return False
