"""Deciding about writes that wait, one after the other, at a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from melete.cli.memory_text import PAGE_LENGTH, clean, clean_lines, describe_time, tell
from melete.wire.approval import PendingWrite, is_same_name
from melete.wire.errors import MemoryRefused

if TYPE_CHECKING:
    from melete.wire.store import MemoryStore

#: Writes that are read from the store at a time.
_AT_A_TIME: Final = 200
_ANSWERS: Final = {"y": "approve", "yes": "approve", "n": "reject", "no": "reject", "s": "skip", "skip": "skip",
                   "q": "quit", "quit": "quit"}  # fmt: skip


@dataclass(slots=True)
class Review:
    """What came of a review: how many writes were approved, rejected, left, and could not be decided about."""

    approved: int = 0
    rejected: int = 0
    left: int = 0
    refused: int = 0


def list_pending(store: MemoryStore, agent_id: str | None = None) -> Iterator[PendingWrite]:
    """Yield all writes that wait, oldest first."""
    seen = 0
    while True:
        # Those of a portion that have expired are left out of it, so one that is not full need not be the last.
        writes = store.pending(agent_id=agent_id, after=seen, limit=_AT_A_TIME)
        if not writes:
            return
        yield from writes
        seen = writes[-1].number


def review(store: MemoryStore, name: str, agent_id: str | None = None) -> Review:
    """Show every write that waits, and do what is answered on standard input. The end of input leaves the rest.

    What is shown is what is decided about: a write in the queue does not change, and a merge whose sources did is
    refused. Only "y" or "yes" approves.
    """
    found = Review()
    writes = list(list_pending(store, agent_id))
    for place, write in enumerate(writes):
        tell(f"\n{place + 1} of {len(writes)}", err=True)
        for line in describe(write):
            tell(line, err=True)
        answer = _ask(write, name)
        if answer == "quit":
            found.left += len(writes) - place
            break
        if answer == "skip":
            found.left += 1
            continue
        try:
            (store.approve if answer == "approve" else store.reject)(write.id, name)
        except MemoryRefused as error:
            tell(f"melete: {error}", err=True)
            found.refused += 1
        else:
            found.approved += answer == "approve"
            found.rejected += answer == "reject"
    return found


def _ask(write: PendingWrite, name: str) -> str:
    if is_same_name(name, write.writer) or is_same_name(name, write.agent):
        tell("It is yours, so somebody else decides about it.", err=True)
        return "skip"
    obstacle = _obstacle(write)
    if obstacle:
        tell(obstacle, err=True)
    while True:
        tell("Reject? [n/skip/quit] " if obstacle else "Approve? [y/n/skip/quit] ", err=True, newline=False)
        try:
            line = "" if sys.stdin is None else sys.stdin.readline()
        except (UnicodeDecodeError, OSError):
            line = ""  # nobody types that
        if not line:
            tell("", err=True)
            return "quit"
        answer = _ANSWERS.get(line.strip().lower())
        if answer is not None and not (obstacle and answer == "approve"):
            return answer


def _obstacle(write: PendingWrite) -> str:
    if write.content is None:
        return "What it was to merge is no longer as it was: it can only be rejected."
    texts = (write.content, *write.before, json.dumps(write.metadata, ensure_ascii=False))
    if any(len(text) > PAGE_LENGTH for text in texts):
        return f"It is too long to be shown whole: read it by 'pending --json', then 'approve {write.id}'."
    return ""


def describe(write: PendingWrite) -> Iterator[str]:
    """Yield the lines that say who wants to write what."""
    expires = "" if write.expires_at is None else f", until {describe_time(write.expires_at)}"
    yield f"{write.id}  {write.operation.value}, {write.type.value}"
    yield f"agent {clean(write.agent)}, written by {clean(write.writer)}, {describe_time(write.created_at)}{expires}"
    if write.tags:
        yield f"tags {', '.join(map(clean, write.tags))}"
    if write.metadata is not None:
        yield f"metadata {describe_metadata(write, PAGE_LENGTH)}"
    yield from describe_diff(write, PAGE_LENGTH)


def describe_metadata(write: PendingWrite, limit: int) -> str:
    """Return the metadata as one line of JSON that a terminal can show."""
    return clean(json.dumps(write.metadata, ensure_ascii=False), limit)


def describe_diff(write: PendingWrite, limit: int) -> Iterator[str]:
    """Yield the lines that would go, after "-", and those that would come, after "+"."""
    for text in write.before:
        yield from (f"- {line}" for line in clean_lines(text, limit))
    if write.content is not None:
        yield from (f"+ {line}" for line in clean_lines(write.content, limit))
