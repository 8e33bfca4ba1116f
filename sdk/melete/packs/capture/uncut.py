"""The text of a source that is in none of its units: nothing that was read goes away without a word.

A heading belongs to what stands below it: it counts as cut where anything there is in a unit, down to the next heading
of its level. Blank lines and horizontal rules say nothing; frontmatter and comments are no text of a page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from melete.packs.capture.outline import Line, Outline, is_nothing, parse_heading


class Uncut(NamedTuple):
    """Lines of a source that are in no unit, from `first` to `last`; `lines` counts those that hold something."""

    path: str
    first: int
    last: int
    lines: int


def find_uncut(path: str, outline: Outline, cut: Collection[int]) -> tuple[Uncut, ...]:
    """Return what is left of a file, in order; `cut` are the numbers of the lines that are in its units."""
    covered = {*cut, *_find_headings(outline.lines, cut)}
    found: list[Uncut] = []
    joins = False
    for line in outline.lines:
        if is_nothing(line) or line.blank:
            continue
        if line.number in covered:
            joins = False
        elif joins:
            found[-1] = found[-1]._replace(last=line.number, lines=found[-1].lines + 1)
        else:
            found.append(Uncut(path, line.number, line.number, 1))
            joins = True
    return tuple(found)


def _find_headings(lines: Iterable[Line], cut: Collection[int]) -> Iterator[int]:
    """Yield the numbers of the headings with a line below them that is in a unit."""
    above: list[tuple[int, int]] = []
    for line in lines:
        heading = parse_heading(line)
        if heading is not None:
            while above and above[-1][0] >= heading.level:
                above.pop()
            above.append((heading.level, line.number))
        if line.number in cut:
            yield from (number for _, number in above)
            above.clear()  # these are known by now
