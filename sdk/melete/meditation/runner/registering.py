"""From a finished record to the registry, with the journal at every step: queued once, and settled when it is certain.

Whether a report landed, only the chain says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from melete.canonical import Json
from melete.chain.outbox import Item
from melete.errors import BadBaseVersion, BadPreRoot, ContractError, InvalidInput
from melete.meditation.cycle import CycleReport, check_report
from melete.meditation.events import CycleRecorded, LayerCommitmentChanged
from melete.meditation.layers import Layer, to_commitments
from melete.meditation.outbox import MeditationOutbox
from melete.meditation.records import derive_report
from melete.meditation.registry import decode_report_call
from melete.meditation.runner.concluding import carry_on
from melete.meditation.runner.journal import Journal, JournaledCycle
from melete.meditation.runner.reports import CycleState, Reports
from melete.memory.witness_kinds import LAYERS, REPORT, LayerDocument
from melete.primitives import Address, Bytes32


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What became of a cycle, with its record and report where there are any.

    `event` is the registry's once it is registered. `changed_since` tells, for a conflict, what others registered
    after the state that the cycle was computed against.
    """

    state: CycleState
    record: dict[str, Json] | None = None
    report: CycleReport | None = None
    item: Item | None = None
    event: CycleRecorded | None = None
    reason: str = ""
    changed_since: tuple[LayerCommitmentChanged, ...] = ()
    was_cut_off: bool = False


class Registrar:
    """Brings a subject's finished cycles to the registry, through an outbox and its witness store."""

    def __init__(
        self,
        outbox: MeditationOutbox,
        subject: Address,
        journal: Journal,
        first_block: int,
        new_salt: Callable[[], bytes],
    ) -> None:
        self.outbox, self.subject, self.journal = outbox, subject, journal
        self.registry, self.reports = outbox.registry, Reports(outbox, subject, first_block)
        self._new_salt = new_salt

    def queue(self, cycle: JournaledCycle, *, was_cut_off: bool = False) -> CycleResult:
        """Put the report of a finished record into the outbox, unless it is there, or registered.

        Errors: those of `report` that may pass (a missing permission, a clock that is behind): call again later.
        """
        record = cycle.record
        assert record is not None  # the stage is finished
        self.outbox.recover()
        record_hash = REPORT.commit(record)
        item = self.reports.find_item(record_hash)
        if item is not None:
            self.journal.queue(item.id)
            return self.settle(cycle, was_cut_off=was_cut_off)
        event = self.reports.find_event(record_hash, cycle.start.record_count)
        if event is not None:  # sent from another outbox, which is gone
            self._forget(cycle)
            return CycleResult(CycleState.REGISTERED, record, event.report, event=event, was_cut_off=was_cut_off)
        return self._add(cycle, record, was_cut_off=was_cut_off)

    def settle(self, cycle: JournaledCycle, *, was_cut_off: bool = False) -> CycleResult:
        """Find out what became of a report that was put into the outbox; clear the journal once that is certain."""
        item = self._find_own(cycle)
        if item is None:
            # Another file than the one that it was put into: only the chain can tell.
            return self.queue(cycle, was_cut_off=was_cut_off)
        found = self.reports.settle(item)
        if found.state in (CycleState.CONFLICT, CycleState.REFUSED):
            return self.give_up(cycle, found.state, found.reason, report=found.report, was_cut_off=was_cut_off)
        if found.state is CycleState.REGISTERED:
            self._forget(cycle)
        return CycleResult(found.state, cycle.record, found.report, found.item, found.event, was_cut_off=was_cut_off)

    def is_under_way(self, cycle: JournaledCycle) -> bool:
        """Return whether a finished record is in the outbox, or registered."""
        assert cycle.record is not None  # the stage is finished
        record_hash = REPORT.commit(cycle.record)
        if self.reports.find_item(record_hash) is not None:
            return True
        return self.reports.find_event(record_hash, cycle.start.record_count) is not None

    def give_up(
        self,
        cycle: JournaledCycle,
        state: CycleState,
        reason: str,
        *,
        report: CycleReport | None = None,
        was_cut_off: bool = False,
    ) -> CycleResult:
        """Clear the journal of a cycle that is never going to be registered; its changes go into the next record."""
        changed = self.reports.changes_since(cycle.start.base_version) if state is CycleState.CONFLICT else ()
        carried = [*self.journal.carried, *carry_on(cycle.findings.values(), cycle.start.started_at)]
        self.journal.clear(carried)
        return CycleResult(state, cycle.record, report, reason=reason, changed_since=changed, was_cut_off=was_cut_off)

    # Private

    def _add(self, cycle: JournaledCycle, record: dict[str, Json], *, was_cut_off: bool) -> CycleResult:
        state = self.registry.load_state(self.subject)
        if (state.state_version, state.root) != (cycle.start.base_version, cycle.start.pre_root):
            return self.give_up(cycle, CycleState.CONFLICT, "another record came first", was_cut_off=was_cut_off)
        documents: dict[int, LayerDocument] = {
            layer: LayerDocument(document, Bytes32(self._new_salt())) for layer, document in cycle.documents.items()
        }
        after = to_commitments(
            LAYERS[layer].commit(documents[layer]) if layer in documents else state.commitments[layer]
            for layer in Layer
        )
        report = derive_report(record, state.commitments, after, record_uri=cycle.start.record_uri)
        try:
            # What these rules say now, they say for ever: only the clock and permissions may change.
            check_report(state, report, report.reported_ended_at)
        except ContractError as error:
            return self.give_up(cycle, CycleState.REFUSED, str(error), report=report, was_cut_off=was_cut_off)
        try:
            item = self.outbox.add(self.subject, report, record, documents)
        except (BadBaseVersion, BadPreRoot) as error:
            return self.give_up(cycle, CycleState.CONFLICT, str(error), report=report, was_cut_off=was_cut_off)
        self.journal.queue(item.id)
        return CycleResult(CycleState.QUEUED, record, report, item, was_cut_off=was_cut_off)

    def _find_own(self, cycle: JournaledCycle) -> Item | None:
        """Return the item that the journal names, if it is the cycle's."""
        assert cycle.item is not None  # the stage is queued
        assert cycle.record is not None
        try:
            item = self.outbox.outbox.get(cycle.item)
        except InvalidInput:
            return None
        if not self.reports.is_of_lane(item):
            return None
        return item if decode_report_call(item.data)[1].record_hash == REPORT.commit(cycle.record) else None

    def _forget(self, cycle: JournaledCycle) -> None:
        """Clear the journal of a registered cycle; what its scope did not hold is carried on."""
        scope = [layer.value for layer in cycle.scope]
        self.journal.clear([change for change in self.journal.carried if change["layer"] not in scope])
