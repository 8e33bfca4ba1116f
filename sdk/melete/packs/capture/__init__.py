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


class Captured(NamedTuple):
    """What was read, what became of each unit, and what was left out."""

    sources: tuple[Source, ...]
    judged: tuple[Judged, ...]
    left_out: tuple[LeftOut, ...]


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

    sources = load_sources(arguments, shapes, recorded=recorded)
    return Captured(sources.used, distill(sources.used, author), sources.left_out)
