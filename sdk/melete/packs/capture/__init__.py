"""Make a pack from notes, logs and a wiki, without a model.

    captured = capture(["knowledge-base"], author="Ada")
    captured.judged                                  # every unit, kept, dropped, rejected or ambiguous, and why
    write_pack("my-pack", build_pack(settings, captured.sources, captured.judged))

Shapes and boundaries of units follow the format's guide; what has no single reading goes to a person, in a review
file that `review` writes and takes back.

Source: AMP v0.4, Parts 4, 10 and 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.packs.capture.distill import Judged
    from melete.packs.capture.shapes import Shape
    from melete.packs.capture.sources import LeftOut, Source
    from melete.packs.capture.uncut import Uncut


class Captured(NamedTuple):
    """What was read, what became of each unit, which files were left out, and which lines are in no unit."""

    sources: tuple[Source, ...]
    judged: tuple[Judged, ...]
    left_out: tuple[LeftOut, ...]
    uncut: tuple[Uncut, ...] = ()


def capture(
    arguments: Sequence[str],
    *,
    author: str | None = None,
    shapes: Mapping[str, Shape] | None = None,
    recorded: Mapping[str, Shape] | None = None,
) -> Captured:
    """Read files and folders, and judge every unit in them. Arguments and errors: as `sources.load_sources`."""
    from melete.packs.capture.distill import distill
    from melete.packs.capture.sources import load_sources
    from melete.packs.capture.uncut import find_uncut

    sources = load_sources(arguments, shapes, recorded=recorded)
    judged = distill(sources.used, author)
    cut: dict[str, set[int]] = {source.path: set() for source in sources.used}
    for one in judged:
        cut[one.unit.source].update(one.unit.lines)
    uncut = (left for source in sources.used for left in find_uncut(source.path, source.outline, cut[source.path]))
    return Captured(sources.used, judged, sources.left_out, tuple(uncut))
