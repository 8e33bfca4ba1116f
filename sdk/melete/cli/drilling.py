"""Trying what a store opens of a history, while it is read: what the restore drill counts and names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from melete.memory.events import MemoryEvent
    from melete.memory.forensics import Step
    from melete.memory.witness_store import WitnessStore


class Driller:
    """Opens every commitment of what a reader reads, and keeps what stays closed."""

    def __init__(self, store: WitnessStore) -> None:
        self._store = store
        #: What stayed closed, each with the block of its transition.
        self._closed: list[tuple[int, str]] = []

    @property
    def closed(self) -> list[str]:
        """What does not open, in order, and why."""
        return [line for _, line in self._closed]

    def take_back(self, block_number: int) -> None:
        """Forget what was found in later blocks; the reader forgets how many opened there."""
        while self._closed and self._closed[-1][0] > block_number:
            self._closed.pop()

    def prepare(self, events: Sequence[MemoryEvent]) -> None:
        """Nothing is fetched ahead."""

    def tell(self, step: Step) -> Iterable[str]:
        """Open what a transition commits to, with its operations if it is a batch."""
        from melete.memory.events import TransitionCommitted
        from melete.memory.witness_drill import Answer, drill

        opened, block_number = 0, step.event.reference.block_number
        if isinstance(step.event, TransitionCommitted):
            for finding in drill(self._store, (step.event.delta,)):
                if finding.answer is Answer.OPENED:
                    opened += 1
                    continue
                line = f"{finding.place.kind} {finding.place.number}: {finding.answer} {finding.commitment}"
                self._closed.append((block_number, line.rstrip()))
        return ["opened"] * opened
