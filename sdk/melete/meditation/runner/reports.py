"""What became of a report in an outbox: found by the hash of its record, judged by the outbox and the chain.

A record's hash is no other cycle's, for every record holds a random word. Wherever it is found, in the outbox or among
the registry's events, the report is not made again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from melete.chain.logs import Scanner
from melete.chain.outbox import Item, State
from melete.errors import NodeRefused, PlaceTaken
from melete.meditation.cycle import CycleReport
from melete.meditation.events import TOPICS, CycleRecorded, LayerCommitmentChanged, MeditationEvent, decode_event
from melete.meditation.outbox import MeditationOutbox
from melete.meditation.registry import decode_report_call
from melete.memory.witness_kinds import REPORT
from melete.primitives import Address, Bytes32, uint_word

#: A provider bounds the alternatives for one topic.
MOST_ALTERNATIVES: Final = 100


class CycleState(StrEnum):
    """What became of a cycle, or of a report."""

    #: There was none to settle.
    NOTHING = "nothing"
    #: The report waits in the outbox, or is on its way.
    QUEUED = "queued"
    #: It is registered.
    REGISTERED = "registered"
    #: Another record came first. Nothing is registered; the next cycle starts from the state as it is now.
    CONFLICT = "conflict"
    #: The registry does not take the report. Nothing is registered; the next cycle makes another one.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a report; `event` is the registry's once it is registered, as far as its logs are at hand."""

    state: CycleState
    report: CycleReport
    item: Item
    event: CycleRecorded | None = None

    @property
    def reason(self) -> str:
        """Why it was not registered."""
        return self.item.reason or ""


class Reports:
    """A subject's reports in an outbox."""

    def __init__(self, outbox: MeditationOutbox, subject: Address, first_block: int = 0) -> None:
        """`first_block` is the registry's: events are looked for from there on."""
        self.outbox, self.registry, self.subject = outbox, outbox.registry, subject
        self._first_block = first_block

    def find_item(self, record_hash: Bytes32) -> Item | None:
        """Return the last item that carries a record, in whatever state."""
        for item in reversed(self.outbox.outbox.items()):
            if self.is_of_lane(item) and decode_report_call(item.data)[1].record_hash == record_hash:
                return item
        return None

    def find_event(self, record_hash: Bytes32, after: int) -> CycleRecorded | None:
        """Return the event of a record, among those of this subject that have a number above `after`."""
        last = self.registry.head(self.subject).record_count
        if last <= after:
            return None
        topics: list[Bytes32 | list[Bytes32] | None] = [TOPICS[CycleRecorded], Bytes32(self.subject.word)]
        if last - after <= MOST_ALTERNATIVES:
            topics.append([Bytes32(uint_word(number)) for number in range(after + 1, last + 1)])
        scanner: Scanner[MeditationEvent] = Scanner(
            self.registry.w3, self.registry.address, decode_event, start_block=self._first_block, topics=topics
        )
        for event in scanner.events():
            if isinstance(event, CycleRecorded) and event.report.record_hash == record_hash:
                return event
        return None

    def settle(self, item: Item) -> Settled:
        """Say what became of an item, and clear up after one that will not be registered.

        A registered record gets its own number in the witness store: a pulse may have come between. What a report in
        conflict, or one that was refused for good, had put into the store is taken away again; one that was refused for
        what may pass (its sender, the clock) waits again. May be called again at any time.
        """
        _, report = decode_report_call(item.data)
        if item.state is State.DONE:
            self.outbox.take_back_lost(self.subject)
            item = self.outbox.outbox.get(item.id)
        if item.state is State.DONE:
            event = self._find_event_of(item, report)
            if event is not None:
                self._renumber(item, event)
            return Settled(CycleState.REGISTERED, report, item, event)
        if item.state in (State.CONFLICT, State.REPLACED):
            self.outbox.withdraw(self.subject)
            return Settled(CycleState.CONFLICT, report, item)
        if item.state is State.REFUSED:
            again = self.outbox.queue_again(item)
            if again is not None:
                return Settled(CycleState.QUEUED, report, again)
            self.outbox.forget(item)
            return Settled(CycleState.REFUSED, report, item)
        return Settled(CycleState.QUEUED, report, item)

    def changes_since(self, version: int) -> tuple[LayerCommitmentChanged, ...]:
        """Return what was registered after a state version, layer by layer."""
        return tuple(self.registry.changes_since(self.subject, version, self._first_block))

    def is_of_lane(self, item: Item) -> bool:
        """Return whether an item is a report of this subject to this registry."""
        place = (self.registry.chain_id, self.registry.address, bytes(self.subject))
        return (item.chain_id, item.target, item.lane) == place

    def _find_event_of(self, item: Item, report: CycleReport) -> CycleRecorded | None:
        """Return the event of an item that landed: from its block, or from all that could be its."""
        number = item.block_number
        if number is not None:
            with suppress(NodeRefused):  # of a chain that began anew, the block may be in the future
                for event in self.registry.events(self.subject, number, number, kinds=[CycleRecorded]):
                    if isinstance(event, CycleRecorded) and event.report == report:
                        return event
        return self.find_event(report.record_hash, item.position - 1)

    def _renumber(self, item: Item, event: CycleRecorded) -> None:
        kept = self.outbox.kept(self.subject)
        place = kept.find_place(REPORT, item.position, event.report.record_hash)
        if event.seq != item.position and place is not None and kept.is_own(place):
            with suppress(PlaceTaken):  # it is found by its hash all the same
                kept.renumber(REPORT, item.position, event.seq)
