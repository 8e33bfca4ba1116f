"""`MaintenanceRunner`: one cycle after the other for one subject, each registered once, whatever happens in between.

    nothing -> started -> finished -> queued -> nothing      run, then resume until it is settled
                  |                       |
                  +-- killed: resume registers what really happened
                                          +-- lost race, refused: told, and the changes go into the next record

Adopting a change here and registering it there are two steps. The journal holds what lies between them.

Source: Agent Meditation, Off-chain documents; Security Considerations, Divergence between off-chain and on-chain state.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from melete.canonical import Json, compute_content_hash
from melete.errors import InvalidInput
from melete.meditation.cycle import CycleReport, Outcome, Trigger
from melete.meditation.documents import POLICY_SCHEMA, check_document
from melete.meditation.layers import Layer, layers_of, mask_of
from melete.meditation.outbox import MeditationOutbox
from melete.meditation.registry import Subject
from melete.meditation.runner.clock import RegistryClock
from melete.meditation.runner.concluding import Concluded, build_record, ended_at
from melete.meditation.runner.findings import LONGEST_TEXT, cut_text
from melete.meditation.runner.journal import Journal, JournaledCycle, Stage, Start
from melete.meditation.runner.obligations import Obligation
from melete.meditation.runner.registering import CycleResult, Registrar
from melete.meditation.runner.reports import CycleState, Settled
from melete.meditation.runner.routine import LayerRoutine
from melete.meditation.runner.running import LayersRun
from melete.primitives import Address, Bytes32, is_utf8


class MaintenanceRunner:
    """Runs the cycles of one subject.

    `routines` are at most one for each layer; `journal` is the file of what is not registered yet; `policy` is the
    registered policy's document, for the dependencies between layers and the fewest cases of an evaluation (without
    it, there are none); `known_obligations` are those that no change of layer 3 may drop, beside those of its
    registered document. `clock` gives the time in the registry's domain: that of its latest block, unless told
    otherwise. `first_block` is where the registry's events begin.
    """

    def __init__(
        self,
        outbox: MeditationOutbox,
        subject: Address,
        routines: Iterable[LayerRoutine],
        journal: Path,
        *,
        policy: dict[str, Json] | None = None,
        known_obligations: Sequence[Obligation] = (),
        clock: Callable[[], int] | None = None,
        first_block: int = 0,
        new_salt: Callable[[], bytes] = lambda: secrets.token_bytes(32),
    ) -> None:
        """Errors: `InvalidInput` for two routines of one layer; those of `check_document` for the policy."""
        self.outbox, self.registry = outbox, outbox.registry
        self.subject = Address(subject, "subject")
        self.routines: dict[Layer, LayerRoutine] = {}
        for routine in routines:
            if routine.layer in self.routines:
                raise InvalidInput("routines", routine.layer.value, "one routine for a layer, and not two")
            self.routines[Layer(routine.layer)] = routine
        self.journal = Journal(journal)
        self._policy = None if policy is None else check_document(policy, expected=POLICY_SCHEMA)
        self._known_obligations = tuple(known_obligations)
        self._clock = RegistryClock(self.registry) if clock is None else clock
        self._new_salt = new_salt
        self._registrar = Registrar(outbox, self.subject, self.journal, first_block, new_salt)

    # Running

    def run(
        self,
        trigger: Trigger = Trigger.SCHEDULED,
        *,
        reason: str = "",
        scope: int | None = None,
        summary: str = "",
        next_planned_at: int = 0,
        record_uri: str = "",
    ) -> CycleResult:
        """Run a cycle over the layers of `scope` (a mask; all that have a routine), and put its report into the outbox.

        Sending it is the caller's; `resume` says what became of it. What a registry would refuse whatever the routines
        do is refused before any of them runs.
        Errors: `InvalidInput` while an earlier cycle is not settled (`resume` it first), for a layer without a
        routine, and for a policy document that is not the registered policy's; those of `report`; `StoreBusy` while
        another runner works for the subject; the node's. Whatever is raised once a routine has run, `resume` goes on.
        """
        with self.journal.working():
            self._require_settled()
            loaded = self.registry.load_subject(self.subject)
            wanted = self._choose_scope(loaded, scope)
            self._check_policy(loaded)
            now = self._now()
            probe = _probe(loaded, wanted, trigger, now)
            probe = replace(probe, next_planned_at=next_planned_at, record_uri=record_uri)
            if not is_utf8(record_uri):
                raise InvalidInput("record_uri", record_uri, "text that UTF-8 can carry")
            self.registry.check(self.subject, probe)
            start = Start(
                chain_id=self.registry.chain_id,
                registry=self.registry.address,
                subject=self.subject,
                base_version=loaded.head.state_version,
                pre_root=loaded.head.root,
                record_count=loaded.head.record_count,
                policy_version=loaded.head.policy_version,
                trigger=Trigger(trigger).name,
                reason=cut_text(reason, LONGEST_TEXT),
                summary=cut_text(summary, LONGEST_TEXT),
                next_planned_at=next_planned_at,
                record_uri=record_uri,
                started_at=now,
                scope=wanted,
                cycle_id=Bytes32(secrets.token_bytes(32)),
            )
            cycle = self.journal.start(start)
            concluded = self._layers_of(cycle, loaded).run(self._clock)
            return self._finish(cycle, concluded, self._now(), cut_off=False)

    def resume(self) -> CycleResult:
        """Bring an earlier cycle further, from wherever it stands, and say what became of it.

        After a kill, the layers in scope are described as they are now, and what the journal holds is registered as
        what happened: a layer counts as completed only if its routine came to its end, and the cycle ended with the
        last thing that was written down. A report that waits in the outbox is not sent here. Without a cycle, what was
        put into the outbox by hand is settled.
        Errors: those of `run`; call again when what they name is put right.
        """
        with self.journal.working():
            cycle = self.journal.cycle
            if cycle is None:
                return self._settle_others()
            self._require_own(cycle)
            if cycle.stage is Stage.STARTED:
                loaded = self.registry.load_subject(self.subject)
                head, start = loaded.head, cycle.start
                if (head.state_version, head.root) != (start.base_version, start.pre_root):
                    return self._registrar.give_up(
                        cycle, CycleState.CONFLICT, "another record came first", was_cut_off=True
                    )
                concluded = self._layers_of(cycle, loaded).conclude_cut_off()
                return self._finish(cycle, concluded, cycle.last_at, cut_off=True)
            if cycle.stage is Stage.FINISHED:
                return self._registrar.queue(cycle)
            self.outbox.recover()
            return self._registrar.settle(cycle)

    def settle_report(self, result: CycleResult) -> CycleResult:
        """Say what became by now of a report that waited outside of any cycle. Errors: the node's."""
        if result.item is None:
            return result
        return self._tell(self._registrar.reports.settle(self.outbox.outbox.get(result.item.id)))

    def give_up(self) -> CycleResult:
        """Forget a cycle whose report was not sent yet; what it changed goes into the next record.

        For one that can never be registered, whatever is put right. A report that is on its way, or came to its end, is
        settled instead, as `resume` does. Errors: those of `resume`; `OutboxBusy` while another process sends.
        """
        with self.journal.working():
            cycle = self.journal.cycle
            if cycle is None:
                return CycleResult(CycleState.NOTHING)
            self._require_own(cycle)
            self.outbox.recover()
            found = None
            if cycle.stage is Stage.QUEUED:
                found = self._registrar.settle(cycle)
            elif cycle.record is not None and self._registrar.is_under_way(cycle):
                found = self._registrar.queue(cycle)
            if found is not None and not self._takes_back(found):
                return found
            return self._registrar.give_up(cycle, CycleState.REFUSED, "it was given up")

    def _takes_back(self, found: CycleResult) -> bool:
        return found.state is CycleState.QUEUED and found.item is not None and self.outbox.give_up(found.item)

    def _settle_others(self) -> CycleResult:
        self.outbox.recover()
        self.outbox.take_back_lost(self.subject)
        reports = self._registrar.reports
        for item in self.outbox.waiting(self.subject):
            return self._tell(reports.settle(item))
        return CycleResult(CycleState.NOTHING)

    def _tell(self, found: Settled) -> CycleResult:
        is_conflict = found.state is CycleState.CONFLICT
        changed = self._registrar.reports.changes_since(found.report.base_version) if is_conflict else ()
        return CycleResult(
            found.state, None, found.report, found.item, found.event, reason=found.reason, changed_since=changed
        )

    # Before a cycle

    def _require_settled(self) -> None:
        cycle = self.journal.cycle
        if cycle is not None:
            self._require_own(cycle)
            rule = f"settled first: it started at {cycle.start.started_at}; resume it"
            raise InvalidInput("earlier cycle", cycle.stage.value, rule)
        self.outbox.recover()
        self.outbox.take_back_lost(self.subject)
        if self.outbox.waiting(self.subject):
            rule = "settled first: it waits in the outbox or is in conflict there; resume it"
            raise InvalidInput("earlier report", "unsettled", rule)

    def _require_own(self, cycle: JournaledCycle) -> None:
        start = cycle.start
        for name, expected, received in (
            ("chain", self.registry.chain_id, start.chain_id),
            ("registry", self.registry.address, start.registry),
            ("subject", self.subject, start.subject),
        ):
            if expected != received:
                raise InvalidInput("journal", received, f"that of {name} {expected}; give each subject its own file")

    def _choose_scope(self, loaded: Subject, scope: int | None) -> int:
        known = mask_of(self.routines)
        wanted = known & loaded.policy.supported_layers if scope is None else scope
        if not wanted:
            raise InvalidInput("scope", wanted, "at least one layer that has a routine and is supported by the policy")
        for layer in layers_of(wanted & ~known):
            raise InvalidInput("scope", layer.value, "a layer that has a routine")
        return wanted

    def _check_policy(self, loaded: Subject) -> None:
        if self._policy is None:
            return
        computed, registered = compute_content_hash(self._policy), loaded.policy.policy_hash
        if computed != registered:
            rule = f"the document behind policy version {loaded.head.policy_version}, whose hash is {registered}"
            raise InvalidInput("policy", computed, rule)

    def _now(self) -> int:
        clock = self._clock
        return clock.ask() if isinstance(clock, RegistryClock) else clock()

    # A cycle

    def _layers_of(self, cycle: JournaledCycle, loaded: Subject) -> LayersRun:
        return LayersRun(
            self.journal,
            cycle,
            loaded,
            self.outbox.kept(self.subject),
            self.routines,
            policy=self._policy,
            known_obligations=self._known_obligations,
        )

    def _finish(self, cycle: JournaledCycle, concluded: Sequence[Concluded], now: int, *, cut_off: bool) -> CycleResult:
        ended = ended_at(cycle.findings.values(), now)
        record = build_record(cycle.start, concluded, ended, cut_off=cut_off)
        self.journal.finish(record, {one.layer: one.document for one in concluded if one.document is not None})
        return self._registrar.queue(cycle, was_cut_off=cut_off)


def _probe(loaded: Subject, scope: int, trigger: Trigger, now: int) -> CycleReport:
    """The report of a cycle that completes its scope at once and changes nothing: what is refused of it, always is."""
    return CycleReport(
        base_version=loaded.head.state_version,
        pre_root=loaded.head.root,
        post_commitments=loaded.commitments,
        layer_mask=scope,
        completed_layers=scope,
        ops_mask=0,
        outcome=Outcome.COMPLETED,
        trigger=trigger,
        policy_version=loaded.head.policy_version,
        reported_started_at=now,
        reported_ended_at=now,
    )
