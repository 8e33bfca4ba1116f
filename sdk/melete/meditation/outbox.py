"""Reports in an outbox: written down with their documents before anything goes out, and registered exactly once.

A subject is a lane, the number that a record is expected to get a position. One report of a subject waits at a time:
the next cycle starts from what this one registers. A report whose state is gone is a conflict, and is never sent
again by itself: what it says was computed against another state. One that the registry refuses because of who sends
it, or when, waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from melete.canonical import Json
from melete.chain.logs import Scanner
from melete.chain.outbox import OPEN, Item, Outbox, State
from melete.chain.rpc import Answer, batch, to_bytes
from melete.chain.rules import Judged, Rules, Verdict
from melete.errors import (
    BadBaseVersion,
    BadPreRoot,
    ContractError,
    ControllerCannotSubmit,
    EndedInFuture,
    InvalidInput,
    MeleteError,
    MissingPermission,
    NoContract,
    NodeUnreachable,
    NotEnrolled,
)
from melete.meditation.cycle import CycleReport, compute_changed_layers
from melete.meditation.events import TOPICS, CycleRecorded, decode_event
from melete.meditation.kept import Kept
from melete.meditation.layers import compute_root, layers_of
from melete.meditation.registry import MeditationRegistry, decode_answer, decode_report_call, encode_call, to_head
from melete.memory.witness_kinds import LAYERS, REPORT, Kind, LayerDocument, Place
from melete.memory.witness_store import WitnessStore
from melete.primitives import Address, Bytes32, keccak256, uint_word

if TYPE_CHECKING:
    from web3 import Web3


#: Refusals that have to do with who sends a report, or when, and not with the report.
PASSING: Final = (MissingPermission, ControllerCannotSubmit, EndedInFuture)
#: What is told of the state, the state itself has to show: one node may be a block behind.
STATE: Final = (BadBaseVersion, BadPreRoot, NotEnrolled)
LOST: Final = "the chain does not have it any more, and what it builds on is gone"


class MeditationOutbox:
    """Reports to one registry, waiting in an outbox; the documents behind them are kept in a witness store."""

    def __init__(self, outbox: Outbox, registry: MeditationRegistry, witnesses: WitnessStore) -> None:
        self.outbox = outbox
        self.registry = registry
        self.witnesses = witnesses

    def add(
        self,
        subject: Address,
        report: CycleReport,
        record: dict[str, Json] | None = None,
        documents: Mapping[int, LayerDocument] | None = None,
    ) -> Item:
        """Judge a report as the registry would, and write it down with the documents that open it.

        `record` is the cycle record behind `recordHash`, `documents` the new state of each layer that changes.
        Killed before it returns, the report waits, or is not known (`recover` decides).
        Errors: those of `report`; `InvalidInput` while another report of the subject waits or is in conflict, or for
        a document that is not the one committed to.
        """
        subject = Address(subject, "subject")
        with self.outbox.adding():
            self.recover()
            self.take_back_lost(subject)
            if self.waiting(subject):
                raise InvalidInput(
                    "subject", subject, "without a report that waits or is in conflict: settle that one first"
                )
            state = self.registry.load_state(subject, restores_version=report.restores_version)
            self.registry.check(subject, report)
            records = self.registry.head(subject).record_count
            opened = self._openings(report, state.commitments, record, documents or {}, records + 1)
            data = self.registry.report_call(subject, report)
            item = Item(
                chain_id=self.registry.chain_id,
                target=self.registry.address,
                lane=bytes(subject),
                position=records + 1,
                effect=keccak256(data),
                data=data,
            )
            (draft,) = self.outbox.add([item], State.DRAFT)
            kept = self.kept(subject)
            with self.witnesses.transaction():
                kept.set_aside(state.state_version, records)
                for kind, number, one in opened:
                    kept.put(kind, number, one)
            self.outbox.record_state([draft], State.QUEUED)
            return draft

    def recover(self) -> None:
        """Finish what a killed `add` began: a draft whose documents are kept waits from now on, others are forgotten.

        A draft without any document of its own waits: it needs none.
        """
        with self.outbox.adding():
            here = (self.registry.chain_id, self.registry.address)
            drafts = [item for item in self.outbox.items(State.DRAFT) if (item.chain_id, item.target) == here]
            kept = [item for item in drafts if self._is_kept(item)]
            self.outbox.record_state(kept, State.QUEUED)
            self.outbox.drop(item for item in drafts if item not in kept)

    def take_back_lost(self, subject: Address) -> None:
        """See to reports that were done on a chain which does not have them any more: it went back, or began anew.

        Those that still build on the registered state, one on the other, wait again; the others are let go. Errors:
        `NotEnrolled` for a subject that has such reports, and is not known any more.
        """
        subject = Address(subject, "subject")
        with self.outbox.adding():
            done = self.outbox.lane(self.registry.chain_id, self.registry.address, bytes(subject), State.DONE)
            if not done:
                return
            head = self.registry.head(subject)
            version, root, builds = head.state_version, head.root, True
            for item in done:
                if item.position <= head.record_count:
                    continue
                _, report = decode_report_call(item.data)
                builds = builds and (report.base_version, report.pre_root) == (version, root)
                if not builds:
                    self.outbox.record_state([item], State.REPLACED, LOST)
                    continue
                self.outbox.record_state([item], State.QUEUED)
                after = compute_root(report.post_commitments)
                version, root = version + (after != root), after

    def queue_again(self, item: Item) -> Item | None:
        """Let a refused report wait again if the registry takes it now, or refuses it for what may pass.

        All that opens it has to be kept still. Returns the item, or None where it has to stay as it is.
        Errors: the node's.
        """
        subject, report = decode_report_call(item.data)
        with self.outbox.adding():
            taken = self.outbox.lane(item.chain_id, item.target, item.lane)
            if not self._is_kept(item) or any(other.position == item.position for other in taken):
                return None
            try:
                self.registry.check(subject, report)
            except PASSING:
                pass
            except ContractError:
                return None
            self.outbox.record_state([item], State.QUEUED)
            return self.outbox.get(item.id)

    def give_up(self, item: Item) -> bool:
        """Take a report back that waits and is not on its way; False if it is, or was, by now.

        What opens it stays in the store. Errors: `OutboxBusy` while another process sends.
        """
        with self.outbox.acting():
            if self.outbox.get(item.id).state is not State.QUEUED:
                return False
            self.outbox.record_state([item], State.REPLACED, "it was given up")
            return True

    def kept(self, subject: Address) -> Kept:
        """Return what the witness store keeps of a subject."""
        return Kept(self.witnesses, self.registry, Address(subject, "subject"))

    def waiting(self, subject: Address) -> list[Item]:
        """Return the subject's reports that wait, are on their way, or are in conflict."""
        lane = bytes(Address(subject, "subject"))
        return self.outbox.lane(self.registry.chain_id, self.registry.address, lane, *OPEN, State.CONFLICT)

    def withdraw(self, subject: Address) -> list[CycleReport]:
        """Take back reports that are in conflict or were refused, and return them: none of them was ever registered.

        Nor are their documents, which go from the store. What really happened is registered by a new report, made on
        the state as it is.
        """
        subject = Address(subject, "subject")
        place = (self.registry.chain_id, self.registry.address, bytes(subject))
        stopped = self.outbox.items(State.CONFLICT, State.REFUSED)
        stale = [item for item in stopped if (item.chain_id, item.target, item.lane) == place]
        reports = [decode_report_call(item.data)[1] for item in stale]
        for item in stale:
            self.forget(item)
            self.outbox.record_state([item], State.REPLACED, item.reason or "withdrawn")
        return reports

    def forget(self, item: Item) -> None:
        """Take what opens an item's report out of the store, for one that never was registered and never will be."""
        kept = self.kept(Address(item.lane))
        self.witnesses.discard(place for place in self.places(item) if kept.is_own(place))

    def places(self, item: Item) -> list[Place]:
        """Return the places of what an item's report alone put into the store."""
        subject, report = decode_report_call(item.data)
        kept = self.kept(subject)
        wanted: list[tuple[Kind[Any], int, Bytes32]] = [
            (kind, report.base_version + 1, word) for kind, word in zip(LAYERS, report.post_commitments, strict=True)
        ]
        wanted.append((REPORT, item.position, report.record_hash))
        return [place for one in wanted if (place := kept.find_place(*one)) is not None]

    def _openings(
        self,
        report: CycleReport,
        before: Sequence[Bytes32],
        record: dict[str, Json] | None,
        documents: Mapping[int, LayerDocument],
        position: int,
    ) -> list[tuple[Kind[Any], int, Any]]:
        """What opens a report, checked: kind, number and record of each."""
        found: list[tuple[Kind[Any], int, Any]] = []
        for layer in layers_of(compute_changed_layers(_four(before), report.post_commitments)):
            kind = LAYERS[layer]
            if layer not in documents:
                continue
            if kind.commit(documents[layer]) != report.post_commitments[layer]:
                raise InvalidInput(f"documents[{int(layer)}]", None, "the document and salt that the report commits to")
            found.append((kind, report.base_version + 1, documents[layer]))
        if record is not None:
            if REPORT.commit(record) != report.record_hash:
                raise InvalidInput("record", None, "the record that the report's recordHash commits to")
            found.append((REPORT, position, record))
        return found

    def _is_kept(self, item: Item) -> bool:
        """Whether every document that was to be kept is: they go in together, so one tells of all."""
        return bool(self.places(item)) or not any(decode_report_call(item.data)[1].record_hash)


class MeditationRules(Rules):
    """What the state and the events of an Agent Meditation registry say of reports."""

    def __init__(self, first_block: int = 0) -> None:
        """`first_block` is the registry's: events are looked for from there on."""
        self._first_block = first_block

    def judge(self, w3: Web3, items: Sequence[Item], block: int) -> list[Judged]:
        """Return what the registry says of each item: from one call each, and from events where one may have landed,
        all up to one block."""
        heads: list[tuple[str, list[Any]]] = [
            (
                "eth_call",
                [{"to": str(i.target), "data": "0x" + encode_call("headOf", Address(i.lane)).hex()}, hex(block)],
            )
            for i in items
        ]
        return [self._judge(w3, item, answer, block) for item, answer in zip(items, batch(w3, heads), strict=True)]

    def _judge(self, w3: Web3, item: Item, answer: Answer, block: int) -> Judged:
        if answer.error is not None:
            return answer.error
        data = to_bytes(answer.result)
        if not data:
            return NoContract(item.target, item.chain_id)
        try:
            head = to_head(decode_answer(item.target, "headOf", data))
            _, report = decode_report_call(item.data)
            if head.record_count >= item.position and self._has_landed(w3, item, head.record_count, block):
                return Verdict.LANDED
        except NodeUnreachable:
            raise
        except MeleteError as error:
            return error
        if not head.enrolled:
            return Verdict.WAITS  # a node may be behind, and an enrollment may come again
        same = (head.state_version, head.root) == (report.base_version, report.pre_root)
        return Verdict.DUE if same else Verdict.CONFLICT

    def may_pass(self, item: Item, error: ContractError) -> bool:  # noqa: ARG002 - all reports are alike in this
        """Return whether a report may be taken from another sender, or later."""
        return isinstance(error, (*PASSING, *STATE))

    def _has_landed(self, w3: Web3, item: Item, record_count: int, block: int) -> bool:
        """Whether one of the records since the item was made is the item's: the very same report."""
        subject = Address(item.lane)
        topics: list[Any] = [TOPICS[CycleRecorded], Bytes32(subject.word)]
        numbers = range(item.position, record_count + 1)
        if len(numbers) <= 100:  # providers bound the alternatives for one topic
            topics.append([Bytes32(uint_word(number)) for number in numbers])
        scanner = Scanner(w3, item.target, decode_event, start_block=self._first_block, until=block, topics=topics)
        _, report = decode_report_call(item.data)
        return any(isinstance(event, CycleRecorded) and event.report == report for event in scanner.events())


def _four(words: Sequence[Bytes32]) -> tuple[Bytes32, Bytes32, Bytes32, Bytes32]:
    a, b, c, d = words
    return a, b, c, d
