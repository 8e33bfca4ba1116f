"""What several memories become as one. Pure, but for reading a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from melete.wire.cells import read_content, read_tags
from melete.wire.envelope import MAX_CONTENT_BYTES, MAX_TAGS
from melete.wire.errors import EnvelopeError
from melete.wire.tables import AnyRow
from melete.wire.words import SIZE_BITS


class Source(NamedTuple):
    """A memory that is taken up."""

    id: str
    content: str
    tags: tuple[str, ...]

    @classmethod
    def of(cls, row: AnyRow) -> Source:
        number = row.document >> SIZE_BITS
        return cls(row.id, read_content(row.content, number), read_tags(row.tags, number))


def join_sources(sources: Sequence[Source], more_tags: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return content and tags of the merged memory: contents joined by a newline, in order; each tag once.

    Tags of the sources come first, then those given with the merge.
    Errors: `EnvelopeError` where the whole is larger than a memory may be.
    """
    content = "\n".join(source.content for source in sources)
    if len(content) * 4 > MAX_CONTENT_BYTES and len(content.encode()) > MAX_CONTENT_BYTES:
        rule = f"what is merged may take {MAX_CONTENT_BYTES} bytes of UTF-8; merge fewer"
        raise EnvelopeError("content", f"{len(content)} characters", rule)
    tags = tuple(dict.fromkeys([*(tag for source in sources for tag in source.tags), *more_tags]))
    if len(tags) > MAX_TAGS:
        raise EnvelopeError("tags", f"{len(tags)} tags", f"what is merged may have {MAX_TAGS} tags in all; merge fewer")
    return content, tags
