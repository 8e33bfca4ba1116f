"""The quickest look at a cluster: for one in which nothing breaks the grammar, which is nearly every one.

A large pack has to be validated in little more time than it takes to read it. One pass of one regular expression lists
what is there; only where that list holds anything but whole primitives does `melete.packs.grammar.walk` judge line by
line. Tests hold the two together.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from melete.packs.grammar import TYPES, read_tag
from melete.packs.wording import READS_AS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


class QuickLook(NamedTuple):
    """How many primitives there are of each type, and which do not read as theirs: their numbers and types."""

    counts: dict[str, int]
    doubtful: list[tuple[int, str]]


def look_quickly(text: str, start: int) -> QuickLook | None:
    """Return what a text holds from the first line of a primitive on; None if anything there needs a closer look.

    Lines of `text` end at a line feed alone.
    """
    if not _closes_bodies(text):
        return None
    counts = dict.fromkeys(TYPES, 0)
    doubtful = []
    known: dict[str, tuple[str, Callable[[str], bool]]] = {}
    for number, (inside, content, other) in enumerate(_blocks().findall(text, start), start=1):
        if other:
            return None
        judged = known.get(inside)
        if judged is None:
            tag = read_tag(inside)
            if tag.fault is not None:
                return None
            judged = known[inside] = tag.type, READS_AS[tag.type]
        kind, reads_well = judged
        if kind == "demonstration":
            if not _is_whole(content):
                return None
        elif not reads_well(content):
            if not content.strip() or "\n" in content:
                return None
            doubtful.append((number, kind))
        elif "\n" in content:
            return None
        counts[kind] += 1
    return QuickLook(counts, doubtful)


def locate(text: str, start: int, numbers: Collection[int]) -> Iterator[int]:
    """Yield where the primitives of these numbers begin, in order, in a text that was looked at quickly."""
    for number, match in enumerate(_blocks().finditer(text, start), start=1):
        if number in numbers:
            yield match.start()


def cites_only(text: str, codes: Collection[str]) -> bool:
    """Return False if a reason perhaps cites a source by another short code."""
    cited = re.findall(r"\n[^\S\n]{2}>[^\S\n]?\[([^\[\]\n]+)\][^\S\n]*$", text, re.ASCII | re.MULTILINE)
    return all(code in codes or code.removesuffix(" — verbatim") in codes for code in set(cited))


@cache
def _blocks() -> re.Pattern[str]:
    """Return what matches a whole primitive, its tag, its text (with its braces), or any other line."""
    space = r"[^\S\n]"
    body = r"\{\n(?:(?!\}$).*+\n)*+\}$"
    return re.compile(rf"\[(\w[^\]\n]*+)\]{space}*+({body}|.*+)(?:\n{space}{{2}}>.*+)*+|(.++)", re.ASCII | re.MULTILINE)


def _closes_bodies(text: str) -> bool:
    """Return whether the last brace that opens a body has one that closes it, and so all before it have.

    Looking for the end of the text from each of many that are never closed would take too long.
    """
    opened = text.rfind("{\n") if "{" in text else -1
    return opened < 0 or text.rfind("\n}\n") >= opened or text.endswith("\n}")


def _is_whole(content: str) -> bool:
    """Return whether a demonstration is right at first sight: text in its line, or in braces and not blank."""
    if content[:1] != "{":
        return content.strip() != ""
    return content[:2] == "{\n" and content[-2:] == "\n}" and content[1:-1].strip() != ""
