"""The registry beside its model: several subjects, controllers and operators, while time moves.

After every step, right or wrong, the events or the error of the contract are those of the model, and so is
every view about everybody. What a step may never do stands below as invariants, read from the chain alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from meditation_chain import Clock, Contract, deploy
from models.meditation import (
    ABORTED,
    COMPLETED,
    FAILED,
    LATEST_TIME,
    LAYERS,
    NOBODY,
    PARTIAL,
    ZERO_HASH,
    CycleReport,
    Event,
    Floor,
    MeditationModel,
    Policy,
    Rejected,
    Subject,
    keccak256,
    requirements,
)

HOUR, DAY = 3600, 86400
BEGINNING = 1_800_000_000
COMMITMENTS = [ZERO_HASH] + [keccak256(bytes([number])) for number in range(5)]
#: The model's name of every write.
OPERATIONS = {
    "enroll": "enroll",
    "setOperator": "set_operator",
    "revokeOperator": "revoke_operator",
    "setController": "set_controller",
    "setPolicy": "set_policy",
    "setFloor": "set_floor",
    "demand": "demand",
    "withdrawDemand": "withdraw_demand",
    "report": "report",
    "pulse": "pulse",
}
ROLES = ["subject", "subject", "controller", "operator", "anybody"]
DEFECTS = [
    "scope",
    "completed",
    "ops",
    "outcome",
    "policy version",
    "trigger",
    "base version",
    "pre root",
    "unscoped change",
    "restore",
]

some_layers = st.integers(1, 15)
any_mask = st.one_of(st.integers(0, 15), some_layers, st.integers(0, 255))
rare = st.sampled_from([False] * 9 + [True])
durations = st.one_of(
    st.sampled_from([0, 1, HOUR, DAY, 30 * DAY, 2**32 - 1, 2**32, LATEST_TIME]), st.integers(0, 2 * DAY)
)
four_durations = st.tuples(durations, durations, durations, durations)
four_commitments = st.tuples(*[st.sampled_from(COMMITMENTS)] * 4)
sound_durations = st.sampled_from([1, HOUR, DAY, 30 * DAY, LATEST_TIME])
sound_policies = st.builds(
    Policy,
    policy_hash=st.sampled_from(COMMITMENTS),
    policy_uri=st.sampled_from(["", "ipfs://policy", "x" * 40]),
    supported_layers=st.sampled_from([15, 15, 7, 1]),
    required_layers=st.sampled_from([0, 1]),
    allowed_triggers=st.sampled_from([15, 15, 2]),
    disclosure=st.integers(0, 2),
    due_window=durations,
    pulse_interval=durations,
    max_interval=st.tuples(*[sound_durations] * 4),
).flatmap(lambda policy: st.sampled_from([policy, replace(policy, required_layers=policy.supported_layers)]))
any_policies = st.builds(
    Policy,
    supported_layers=any_mask,
    required_layers=any_mask,
    allowed_triggers=any_mask,
    disclosure=st.integers(0, 3),
    due_window=durations,
    pulse_interval=durations,
    max_interval=four_durations,
)
policies = st.one_of(sound_policies, sound_policies, sound_policies, any_policies)
floors = st.builds(
    Floor,
    required_layers=st.one_of(st.integers(0, 15), st.integers(0, 16)),
    pulse_interval=durations,
    max_interval=st.one_of(four_durations, st.tuples(*[sound_durations] * 4)),
)
picks = st.integers(0, 10_000)


def machine_for(request: Any, bytecode: str, abi: Any, people: list[str], tally: Counter[str]) -> Any:
    """A machine class for this node; `tally` counts what was accepted and what was refused, and why."""
    subjects, anybody = people[:3], st.sampled_from(people)
    who = st.sampled_from(subjects[:2] * 8 + people)
    everything = st.sampled_from([7, 7, 7, 3, 5, 6, 1, 2, 4, 0])

    class Machine(RuleBasedStateMachine):
        @initialize(
            first=sound_policies,
            second=sound_policies,
            rights=everything,
            permissions=everything,
            shared=st.booleans(),
        )
        def start(self, first: Policy, second: Policy, rights: int, permissions: int, shared: bool) -> None:
            """Two subjects with operators, one with a controller; sharing, each is the other's operator."""
            self.clock = Clock(request)
            self.clock.start_at(BEGINNING)
            address = deploy(request, bytecode, people[0], self.clock.wait(1))
            self.registry = Contract(request, self.clock, address, abi)
            self.model = MeditationModel()
            self.raw: dict[Any, tuple[Any, Any]] = {}
            self.views: dict[Any, Any] = {}
            self.before: dict[Any, Any] = {}
            self.roots: dict[tuple[str, int], bytes] = {}
            self.policies: dict[tuple[str, int], Any] = {}
            self.states: dict[bytes, tuple[bytes, ...]] = {}
            self.last_step: tuple[str, str, Any, bool] = ("", "", None, False)
            self.observe()
            baseline = tuple(COMMITMENTS[1:5])
            self.act("enroll", subjects[0], baseline, first, people[3], rights)
            self.act("enroll", subjects[1], baseline, second, NOBODY, 0)
            self.act("setOperator", subjects[0], subjects[1] if shared else people[4], permissions)
            self.act("setOperator", subjects[1], subjects[0] if shared else people[4], permissions)
            self.let_pass(HOUR)

        # Steps

        @rule(seconds=st.sampled_from([1, 1, 59, HOUR, DAY, 40 * DAY]))
        def wait(self, seconds: int) -> None:
            self.let_pass(seconds)

        @rule(of=who, pick=picks, offset=st.sampled_from([-1, 0, 1]))
        def wait_until_a_boundary(self, of: str, pick: int, offset: int) -> None:
            ahead = sorted(
                moment + offset
                for moment in self.boundaries(of)
                if self.clock.now < moment + offset < self.clock.now + 400 * DAY
            )
            if ahead:
                self.let_pass(ahead[pick % len(ahead)] - self.clock.now)

        @rule(
            caller=who,
            baseline=four_commitments,
            policy=policies,
            controller=anybody,
            without=st.booleans(),
            rights=any_mask,
        )
        def enroll(
            self,
            caller: str,
            baseline: tuple[bytes, ...],
            policy: Policy,
            controller: str,
            without: bool,
            rights: int,
        ) -> None:
            sound = rights if rights % 5 == 0 else rights & 7
            if without:
                self.act("enroll", caller, baseline, policy, NOBODY, 0 if rights else sound)
            else:
                self.act("enroll", caller, baseline, policy, controller, sound)

        @rule(caller=who, operator=st.sampled_from([*people, NOBODY]), permissions=st.integers(0, 8))
        def set_operator(self, caller: str, operator: str, permissions: int) -> None:
            self.act("setOperator", caller, operator, permissions)

        @rule(of=who, role=st.sampled_from(ROLES), pick=picks, operator=anybody)
        def revoke_operator(self, of: str, role: str, pick: int, operator: str) -> None:
            self.act("revokeOperator", self.caller(of, role, pick), of, operator)

        @rule(
            of=who,
            role=st.sampled_from(["subject", "controller", "controller", "anybody"]),
            pick=picks,
            new_controller=st.sampled_from([*people, NOBODY]),
            rights=st.integers(0, 8),
            shrink=st.booleans(),
        )
        def set_controller(self, of: str, role: str, pick: int, new_controller: str, rights: int, shrink: bool) -> None:
            held = self.model.head_of(of)[2]
            if new_controller == NOBODY and pick % 4:
                rights = 0
            elif shrink:
                rights &= held
            self.act("setController", self.caller(of, role, pick), of, new_controller, rights)

        @rule(of=who, role=st.sampled_from(ROLES), pick=picks, policy=policies)
        def set_policy(self, of: str, role: str, pick: int, policy: Policy) -> None:
            self.act("setPolicy", self.caller(of, role, pick), of, policy)

        @rule(of=who, role=st.sampled_from(["controller", "controller", "anybody"]), pick=picks, floor=floors)
        def set_floor(self, of: str, role: str, pick: int, floor: Floor) -> None:
            self.act("setFloor", self.caller(of, role, pick), of, floor)

        @rule(
            of=who,
            role=st.sampled_from(["controller", "controller", "controller", "anybody"]),
            pick=picks,
            mask=st.one_of(some_layers, some_layers, any_mask),
            ahead=st.sampled_from([-1, 0, 1, HOUR, DAY]),
        )
        def demand(self, of: str, role: str, pick: int, mask: int, ahead: int) -> None:
            self.act("demand", self.caller(of, role, pick), of, mask, self.clock.now + ahead)

        @rule(of=who, role=st.sampled_from(["controller", "controller", "anybody"]), pick=picks, mask=any_mask)
        def withdraw_demand(self, of: str, role: str, pick: int, mask: int) -> None:
            self.act("withdrawDemand", self.caller(of, role, pick), of, mask)

        @rule(
            of=who,
            role=st.sampled_from(ROLES),
            pick=picks,
            ahead=st.sampled_from([-DAY, 0, DAY]),
            none=st.booleans(),
        )
        def pulse(self, of: str, role: str, pick: int, ahead: int, none: bool) -> None:
            self.act("pulse", self.caller(of, role, pick), of, 0 if none else self.clock.now + ahead)

        @rule(of=who, role=st.sampled_from(ROLES), pick=picks, data=st.data())
        def report(self, of: str, role: str, pick: int, data: st.DataObject) -> None:
            self.act("report", self.caller(of, role, pick), of, self.draw_report(of, data))

        @rule(of=who, data=st.data())
        def report_own(self, of: str, data: st.DataObject) -> None:
            self.act("report", of, of, self.draw_report(of, data))

        @rule(of=who, defect=st.sampled_from(DEFECTS), data=st.data())
        def report_with_a_defect(self, of: str, defect: str, data: st.DataObject) -> None:
            subject = self.model.subjects.get(of)
            if subject is not None:
                report = self.draw_report(of, data)
                self.act("report", of, of, self.spoil(report, defect, subject, data))

        @rule(of=who, version=picks, commitments=four_commitments, truly=st.booleans())
        def restore(self, of: str, version: int, commitments: tuple[bytes, ...], truly: bool) -> None:
            """A cycle that returns to an earlier state, or only says so."""
            subject = self.model.subjects.get(of)
            if subject is not None and subject.state_version > 1:
                restored = 1 + version % (subject.state_version - 1)
                post = self.states[subject.roots[restored - 1]] if truly else commitments
                report = self.failed_cycle(subject, self.clock.now)
                report = replace(report, post_commitments=post, restores_version=restored)
                self.act("report", of, of, report)

        @rule(of=who, version=picks, offset=st.sampled_from([-1, 0, 1]), later=st.booleans())
        def report_at_the_turn_of_a_policy(self, of: str, version: int, offset: int, later: bool) -> None:
            """A cycle that starts when one policy gives way to the next, and cites either."""
            subject = self.model.subjects.get(of)
            if subject is not None and subject.policy_version > 1:
                earlier = 1 + version % (subject.policy_version - 1)
                report = self.failed_cycle(subject, subject.policies[earlier][1] + offset)
                self.act("report", of, of, replace(report, policy_version=earlier + later))

        @rule(of=who, mask=some_layers, commitments=four_commitments)
        def complete_now(self, of: str, mask: int, commitments: tuple[bytes, ...]) -> None:
            """A sound cycle within this second, so that completions meet demands and policies."""
            subject = self.model.subjects.get(of)
            if subject is not None:
                mask = (mask & subject.policies[-1][0].supported_layers) or 1
                report = self.sound_report(subject, mask, self.clock.now, self.clock.now)
                post = [(commitments if mask >> layer & 1 else subject.commitments)[layer] for layer in LAYERS]
                self.act("report", of, of, replace(report, post_commitments=tuple(post)))

        @rule(of=who, mask=some_layers, commitments=four_commitments, before=st.booleans())
        def complete_and_demand_within_a_second(
            self, of: str, mask: int, commitments: tuple[bytes, ...], before: bool
        ) -> None:
            subject = self.model.subjects.get(of)
            if subject is None or subject.controller == NOBODY:
                return
            self.let_pass(1)
            due_by = self.clock.now + HOUR
            if before:
                self.act("demand", subject.controller, of, mask, due_by)
            self.complete_now(of, mask, commitments)
            if not before:
                self.act("demand", subject.controller, of, mask, due_by)

        # How steps are made

        def let_pass(self, seconds: int) -> None:
            self.clock.wait(seconds)
            self.last_step = ("wait", "", None, True)
            self.observe()

        def caller(self, of: str, role: str, pick: int) -> str:
            subject = self.model.subjects.get(of)
            anybody = people[pick % len(people)]
            if role == "subject" or subject is None:
                return of
            if role == "controller":
                return anybody if subject.controller == NOBODY else subject.controller
            if role == "operator" and subject.operators:
                return sorted(subject.operators)[pick % len(subject.operators)]
            return anybody

        def boundaries(self, of: str) -> list[int]:
            """The moments at which something about a subject turns."""
            subject = self.model.subjects.get(of)
            if subject is None:
                return []
            effective = requirements(subject)
            moments = [effective_from for _, effective_from in subject.policies]
            moments += [subject.last_signal_at, subject.last_signal_at + effective.pulse_interval]
            for layer in LAYERS:
                deadline = self.model.layer_status(of, layer)[1]
                moments += [deadline, deadline - effective.due_window]
                moments += [subject.checkpoints[layer].last_completed_at, *(subject.demands[layer] or ())]
            return moments

        def draw_report(self, of: str, data: st.DataObject) -> CycleReport:
            subject = self.model.subjects.get(of)
            if subject is None:
                return CycleReport(1, ZERO_HASH, (ZERO_HASH,) * 4, 15, 15, 0, 0, 0, 1, 0, 0)
            governing = subject.policy_version
            if data.draw(rare, "an earlier policy"):
                governing = data.draw(st.integers(1, subject.policy_version), "policy version")
            policy, effective_from = subject.policies[governing - 1]
            mask = (data.draw(some_layers, "scope") & policy.supported_layers) or policy.supported_layers
            moments = sorted(
                time
                for moment in [*self.boundaries(of), self.clock.now]
                for time in (moment - 1, moment, moment + 1)
                if 0 <= time <= self.clock.now + 1
            )
            started_at = moments[data.draw(picks, "start") % len(moments)]
            if not data.draw(rare, "any start"):
                started_at = max(started_at, effective_from)
            ended_at = moments[data.draw(picks, "end") % len(moments)]
            if not data.draw(rare, "any end"):
                ended_at = max(started_at, ended_at)
            report = self.sound_report(subject, mask, started_at, ended_at)
            report = replace(report, policy_version=governing, trigger=data.draw(st.sampled_from([1, 1, 0, 3])))

            completed = data.draw(st.integers(0, 15), "completed") & mask
            fitting = {mask: [COMPLETED], 0: [ABORTED, FAILED]}.get(completed, [PARTIAL, ABORTED])
            report = replace(report, completed_layers=completed, outcome=data.draw(st.sampled_from(fitting)))
            changing = data.draw(st.integers(0, 15), "changing") & mask
            drawn = data.draw(four_commitments, "new commitments")
            post = [drawn[layer] if changing >> layer & 1 else subject.commitments[layer] for layer in LAYERS]
            return replace(report, post_commitments=tuple(post))

        def failed_cycle(self, subject: Subject, started_at: int) -> CycleReport:
            """A cycle over what the first policy supports that completed nothing."""
            scope = subject.policies[0][0].supported_layers
            report = self.sound_report(subject, scope, started_at, max(started_at, self.clock.now))
            return replace(report, completed_layers=0, outcome=FAILED)

        def sound_report(self, subject: Subject, mask: int, started_at: int, ended_at: int) -> CycleReport:
            return CycleReport(
                base_version=subject.state_version,
                pre_root=subject.roots[-1],
                post_commitments=tuple(subject.commitments),  # type: ignore[arg-type]
                layer_mask=mask,
                completed_layers=mask,
                ops_mask=sum(0x6 << 4 * layer for layer in LAYERS if mask >> layer & 1),
                outcome=COMPLETED,
                trigger=1,
                policy_version=subject.policy_version,
                reported_started_at=started_at,
                reported_ended_at=ended_at,
                next_planned_at=ended_at + DAY,
                record_uri="ipfs://record" if mask == 15 else "",
            )

        def spoil(self, report: CycleReport, defect: str, subject: Subject, data: st.DataObject) -> CycleReport:
            if defect == "scope":
                return replace(report, layer_mask=data.draw(any_mask))
            if defect == "completed":
                return replace(report, completed_layers=data.draw(any_mask))
            if defect == "ops":
                return replace(report, ops_mask=data.draw(st.integers(0, 2**16 - 1)))
            if defect == "outcome":
                return replace(report, outcome=data.draw(st.integers(0, 4)))
            if defect == "policy version":
                return replace(report, policy_version=data.draw(st.integers(0, subject.policy_version + 1)))
            if defect == "trigger":
                return replace(report, trigger=data.draw(st.integers(0, 255)))
            if defect == "base version":
                return replace(report, base_version=data.draw(st.integers(0, subject.state_version + 1)))
            if defect == "pre root":
                return replace(report, pre_root=data.draw(st.sampled_from([ZERO_HASH, *subject.roots])))
            if defect == "unscoped change":
                return replace(report, post_commitments=data.draw(four_commitments))
            return replace(report, restores_version=data.draw(st.integers(0, subject.state_version + 1)))

        def act(self, function: str, caller: str, *arguments: Any) -> None:
            """Take a step on both sides: the same events, or the same error with the same values."""
            expected = self.outcome_in_model(function, caller, arguments)
            accepted = not isinstance(expected, Rejected)
            tally[expected.name if isinstance(expected, Rejected) else function] += 1
            self.last_step = (function, caller, arguments, accepted)
            if isinstance(expected, Rejected):
                refusal = self.registry.refusal(function, *arguments, sender=caller)
                assert refusal == (expected.name, *expected.arguments)
            else:
                if function in ("report", "pulse"):
                    sequence = self.registry.call(function, *arguments, sender=caller)
                    assert sequence == self.model.subjects[arguments[0]].record_count
                assert self.registry.send(function, *arguments, sender=caller) == expected
                if function == "enroll":
                    self.states[self.model.subjects[caller].roots[-1]] = arguments[0]
                if function == "report":
                    self.states[self.model.subjects[arguments[0]].roots[-1]] = arguments[1].post_commitments
            self.observe()

        def outcome_in_model(self, function: str, caller: str, arguments: tuple[Any, ...]) -> list[Event] | Rejected:
            self.model.now = self.clock.now
            try:
                events: list[Event] = getattr(self.model, OPERATIONS[function])(caller, *arguments)
            except Rejected as rejected:
                return rejected
            return events

        def observe(self) -> None:
            """Ask every view about everybody, and hold each answer against the model."""
            self.model.now = self.clock.now
            expected = {}
            for of in people:
                expected |= self.expected_views(of)
            answers = request.batch([self.registry.request_for(*asked) for asked in expected])
            self.before = self.views
            self.views = {}
            for (asked, value), answer in zip(expected.items(), answers, strict=True):
                seen, decoded = self.raw.get(asked, (None, None))
                assert "error" not in answer, f"{asked} reverts: {answer}"
                if answer["result"] != seen:
                    decoded = self.registry.decode(asked[0], bytes.fromhex(answer["result"][2:]))
                    self.raw[asked] = (answer["result"], decoded)
                assert decoded == value, (asked, self.clock.now)
                self.views[asked] = decoded

        def expected_views(self, of: str) -> dict[tuple[Any, ...], Any]:
            model = self.model
            head = model.head_of(of)
            views: dict[tuple[Any, ...], Any] = {
                ("headOf", of): head,
                ("floorOf", of): model.floor_of(of),
                ("requirementsOf", of): model.requirements_of(of),
                ("signalStatus", of): model.signal_status(of),
            }
            for layer in LAYERS:
                views["checkpointOf", of, layer] = model.checkpoint_of(of, layer)
                views["demandOf", of, layer] = model.demand_of(of, layer)
                views["layerStatus", of, layer] = model.layer_status(of, layer)
            for version in {0, 1, head[5] - 1, head[5], head[5] + 1} - {-1}:
                views["rootAt", of, version] = model.root_at(of, version)
            for version in {0, 1, head[3] - 1, head[3], head[3] + 1} - {-1}:
                views["policyOf", of, version] = model.policy_of(of, version)
                views["policyEffectiveFrom", of, version] = model.policy_effective_from(of, version)
            for operator in people:
                views["operatorPermissions", of, operator] = model.operator_permissions(of, operator)
            return views

        # What never happens, read from the chain alone

        def anchors(self, views: dict[Any, Any], of: str) -> list[tuple[int, int, int]]:
            """By layer, when it was last completed, when that was recorded, and under which policy."""
            return [views["checkpointOf", of, layer][1:4] for layer in LAYERS]

        def deadlines(self, views: dict[Any, Any], of: str) -> list[int]:
            return [views["layerStatus", of, layer][1] for layer in LAYERS]

        @invariant()
        def a_pulse_refreshes_nothing(self) -> None:
            function, _, arguments, accepted = self.last_step
            if function == "pulse" and accepted:
                of = arguments[0]
                for layer in LAYERS:
                    assert self.views["checkpointOf", of, layer] == self.before["checkpointOf", of, layer]
                    assert self.views["layerStatus", of, layer] == self.before["layerStatus", of, layer]
                assert self.views["headOf", of][5] == self.before["headOf", of][5]

        @invariant()
        def only_a_completion_moves_an_anchor(self) -> None:
            if not self.before:
                return
            function, _, arguments, accepted = self.last_step
            for of in people:
                moved = [
                    layer
                    for layer in LAYERS
                    if self.anchors(self.views, of)[layer] != self.anchors(self.before, of)[layer]
                ]
                completed = 0
                if function == "report" and accepted and arguments[0] == of:
                    completed = arguments[1].completed_layers
                assert moved == [layer for layer in LAYERS if completed >> layer & 1]

        @invariant()
        def the_floor_is_never_undercut(self) -> None:
            for of in people:
                required, pulse_interval, intervals = self.views["floorOf", of]
                _, effective, _, effective_pulse, effective_intervals = self.views["requirementsOf", of]
                assert required & ~effective == 0
                assert pulse_interval == 0 or 0 < effective_pulse <= pulse_interval
                for layer in LAYERS:
                    if required >> layer & 1:
                        assert 0 < effective_intervals[layer] <= intervals[layer]

        @invariant()
        def history_is_never_rewritten(self) -> None:
            for (function, of, *rest), value in self.views.items():
                if function == "rootAt" and value != ZERO_HASH:
                    assert self.roots.setdefault((of, rest[0]), value) == value
                if function == "policyOf" and value[2]:
                    assert self.policies.setdefault((of, rest[0]), value) == value

        @invariant()
        def a_controller_never_submits(self) -> None:
            function, caller, arguments, accepted = self.last_step
            if function in ("report", "pulse") and accepted:
                assert caller != self.before["headOf", arguments[0]][1]

        @invariant()
        def rights_only_shrink(self) -> None:
            for of in people if self.before else []:
                controller, rights = self.before["headOf", of][1:3]
                if controller != NOBODY:
                    assert self.views["headOf", of][2] & ~rights == 0

        @invariant()
        def nobody_else_is_touched(self) -> None:
            function, caller, arguments, _ = self.last_step
            if not self.before or function == "wait":
                return
            touched = caller if function in ("enroll", "setOperator") else arguments[0]
            for asked, value in self.views.items():
                if asked[1] != touched and asked in self.before:
                    assert value == self.before[asked]

    return Machine


def test_registry_agrees_with_the_model_after_every_step(accounts: Any, networks: Any, project: Any) -> None:
    provider = networks.provider.web3.provider

    def request(method: str, parameters: Any) -> Any:
        return provider.make_request(method, parameters)

    request.batch = provider.make_batch_request  # type: ignore[attr-defined]
    contract = project.AgentMeditationRegistry.contract_type
    people = [str(account.address).lower() for account in list(accounts)[:5]]
    tally: Counter[str] = Counter()
    abi = [entry.model_dump() for entry in contract.abi]
    run_state_machine_as_test(machine_for(request, contract.deployment_bytecode.bytecode, abi, people, tally))
    assert tally["report"], "no cycle was ever accepted"
    assert tally["NotController"], "nothing was ever refused"
