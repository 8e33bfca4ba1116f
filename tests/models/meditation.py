"""The meditation registry as its specification describes it, in plain Python.

It keeps whole histories where the contract packs words, clears demands where the contract derives that they
are cleared, and takes nothing from contract or SDK, so that agreement between them means something. Addresses
are lower-case hex, hashes are bytes, times and masks are int. Every operation takes the caller first, answers
the events it emits, and raises `Rejected` with the name and the values of the contract's error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import sha3

LAYERS = range(4)
LATEST_TIME = 2**48 - 1
NOBODY = "0x" + "00" * 20
ZERO_HASH = bytes(32)

RIGHT_FLOOR, RIGHT_DEMAND, RIGHT_REVOKE_OPERATORS = 1, 2, 4
PERM_REPORT, PERM_PULSE, PERM_POLICY = 1, 2, 4
COMPLETED, PARTIAL, ABORTED, FAILED = range(4)
NOT_ENROLLED, UNSUPPORTED, UNSCHEDULED, FRESH, DUE, OVERDUE = range(6)
NO_SIGNAL_OF_UNKNOWN, NOT_TRACKED, PRESENT, SILENT = range(4)

#: An event: its name, and its values by the names of the ABI.
Event = tuple[str, dict[str, Any]]


class Rejected(Exception):
    """The registry refuses: `name` and `arguments` are those of its error."""

    def __init__(self, name: str, *arguments: Any) -> None:
        super().__init__(name, arguments)
        self.name = name
        self.arguments = arguments


@dataclass(frozen=True)
class Policy:
    policy_hash: bytes = ZERO_HASH
    policy_uri: str = ""
    supported_layers: int = 0
    required_layers: int = 0
    allowed_triggers: int = 0
    disclosure: int = 0
    due_window: int = 0
    pulse_interval: int = 0
    max_interval: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True)
class Floor:
    required_layers: int = 0
    pulse_interval: int = 0
    max_interval: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True)
class CycleReport:
    base_version: int
    pre_root: bytes
    post_commitments: tuple[bytes, bytes, bytes, bytes]
    layer_mask: int
    completed_layers: int
    ops_mask: int
    outcome: int
    trigger: int
    policy_version: int
    reported_started_at: int
    reported_ended_at: int
    next_planned_at: int = 0
    restores_version: int = 0
    record_hash: bytes = ZERO_HASH
    record_uri: str = ""


@dataclass(frozen=True)
class Checkpoint:
    commitment: bytes = ZERO_HASH
    last_completed_at: int = 0
    last_completed_recorded_at: int = 0
    completed_under_policy: int = 0
    last_changed_version: int = 0


@dataclass(frozen=True)
class Requirements:
    supported_layers: int = 0
    required_layers: int = 0
    due_window: int = 0
    pulse_interval: int = 0
    max_interval: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass
class Subject:
    """Everything about one subject. Versions count from 1, so `roots[0]` is the root of version 1."""

    enrolled_at: int
    controller: str
    rights: int
    roots: list[bytes]
    policies: list[tuple[Policy, int]]
    checkpoints: list[Checkpoint]
    last_signal_at: int
    next_planned_at: int = 0
    record_count: int = 0
    floor: Floor = Floor()
    floor_version: int = 0
    demands: list[tuple[int, int] | None] = field(default_factory=lambda: [None] * 4)
    operators: dict[str, int] = field(default_factory=dict)

    @property
    def state_version(self) -> int:
        return len(self.roots)

    @property
    def policy_version(self) -> int:
        return len(self.policies)

    @property
    def commitments(self) -> list[bytes]:
        return [checkpoint.commitment for checkpoint in self.checkpoints]


class MeditationModel:
    """A registry; `now` is its clock, moved by whoever drives it."""

    def __init__(self) -> None:
        self.now = 0
        self.subjects: dict[str, Subject] = {}

    # Enrollment and roles

    def enroll(
        self,
        caller: str,
        baseline: Sequence[bytes],
        policy: Policy,
        controller: str,
        controller_rights: int,
    ) -> list[Event]:
        if caller in self.subjects:
            raise Rejected("AlreadyEnrolled", caller)
        _check_controller(caller, controller, controller_rights, allowed=0b111)
        _check_policy(policy)
        root = compute_root(baseline)
        self.subjects[caller] = Subject(
            enrolled_at=self.now,
            controller=controller,
            rights=controller_rights,
            roots=[root],
            policies=[(policy, self.now)],
            checkpoints=[Checkpoint(commitment, last_changed_version=1) for commitment in baseline],
            last_signal_at=self.now,
        )
        return [
            (
                "Enrolled",
                {
                    "subject": caller,
                    "controller": controller,
                    "controllerRights": controller_rights,
                    "root": root,
                    "enrolledAt": self.now,
                },
            ),
            _policy_updated(caller, 1, policy, self.now, caller),
        ]

    def set_operator(self, caller: str, operator: str, permissions: int) -> list[Event]:
        subject = self._enrolled(caller)
        if operator in (NOBODY, caller):
            raise Rejected("InvalidOperator", operator)
        if permissions > 0b111:
            raise Rejected("InvalidPermissions", 0b111, permissions)
        subject.operators[operator] = permissions
        return [_operator_set(caller, operator, permissions, caller)]

    def revoke_operator(self, caller: str, of: str, operator: str) -> list[Event]:
        subject = self._enrolled(of)
        if caller != of:
            _check_right(subject, caller, RIGHT_REVOKE_OPERATORS)
        subject.operators.pop(operator, None)
        return [_operator_set(of, operator, 0, caller)]

    def set_controller(self, caller: str, of: str, new_controller: str, rights: int) -> list[Event]:
        subject = self._enrolled(of)
        previous = subject.controller
        if previous == NOBODY and caller != of:
            raise Rejected("NotSubject", of, caller)
        if previous not in (NOBODY, caller):
            raise Rejected("NotController", previous, caller)
        _check_controller(of, new_controller, rights, allowed=0b111 if previous == NOBODY else subject.rights)
        subject.controller = new_controller
        subject.rights = rights
        return [
            (
                "ControllerChanged",
                {
                    "subject": of,
                    "previousController": previous,
                    "newController": new_controller,
                    "rights": rights,
                },
            )
        ]

    # Requirements

    def set_policy(self, caller: str, of: str, policy: Policy) -> list[Event]:
        subject = self._enrolled(of)
        _check_permission(subject, of, caller, PERM_POLICY)
        _check_policy(policy)
        subject.policies.append((policy, self.now))
        return [_policy_updated(of, subject.policy_version, policy, self.now, caller)]

    def set_floor(self, caller: str, of: str, floor: Floor) -> list[Event]:
        subject = self._enrolled(of)
        _check_right(subject, caller, RIGHT_FLOOR)
        if floor.required_layers > 0x0F:
            raise Rejected("InvalidLayerMask", floor.required_layers)
        _check_intervals(floor.required_layers, floor.max_interval)
        subject.floor = floor
        subject.floor_version += 1
        return [
            (
                "FloorUpdated",
                {"subject": of, "version": subject.floor_version, "effectiveFrom": self.now, "by": caller},
            )
        ]

    def demand(self, caller: str, of: str, layer_mask: int, due_by: int) -> list[Event]:
        subject = self._enrolled(of)
        _check_right(subject, caller, RIGHT_DEMAND)
        _check_layers(layer_mask)
        if due_by <= self.now:
            raise Rejected("DueByNotInFuture", self.now, due_by)
        for layer in _layers_in(layer_mask):
            subject.demands[layer] = (self.now, due_by)
        return [("Demanded", {"subject": of, "layerMask": layer_mask, "dueBy": due_by, "by": caller})]

    def withdraw_demand(self, caller: str, of: str, layer_mask: int) -> list[Event]:
        subject = self._enrolled(of)
        _check_right(subject, caller, RIGHT_DEMAND)
        _check_layers(layer_mask)
        for layer in _layers_in(layer_mask):
            subject.demands[layer] = None
        return [("DemandWithdrawn", {"subject": of, "layerMask": layer_mask, "by": caller})]

    # Records

    def report(self, caller: str, of: str, report: CycleReport) -> list[Event]:
        subject = self._enrolled(of)
        _check_submitter(subject, of, caller, PERM_REPORT)
        _check_scope(report)
        _check_outcome(report)
        _check_governing_policy(subject, report)
        _check_linkage(subject, report)
        _check_unscoped(subject, report)
        _check_times(subject, report, self.now)
        _check_restore(subject, report)

        before = subject.state_version
        changed = [layer for layer in LAYERS if report.post_commitments[layer] != subject.checkpoints[layer].commitment]
        previous = subject.commitments
        if changed:
            subject.roots.append(compute_root(report.post_commitments))
        for layer in changed:
            subject.checkpoints[layer] = replace(
                subject.checkpoints[layer],
                commitment=report.post_commitments[layer],
                last_changed_version=subject.state_version,
            )
        for layer in _layers_in(report.completed_layers):
            subject.checkpoints[layer] = replace(
                subject.checkpoints[layer],
                last_completed_at=report.reported_ended_at,
                last_completed_recorded_at=self.now,
                completed_under_policy=report.policy_version,
            )
            demanded = subject.demands[layer]
            if demanded is not None and demanded[0] <= report.reported_ended_at:
                subject.demands[layer] = None
        _count_signal(subject, self.now, report.next_planned_at)

        recorded: Event = (
            "CycleRecorded",
            {
                "subject": of,
                "seq": subject.record_count,
                "baseVersion": before,
                "newVersion": subject.state_version,
                "report": astuple(report),
                "changedLayers": sum(1 << layer for layer in changed),
                "recordedAt": self.now,
                "submitter": caller,
            },
        )
        return [recorded] + [
            (
                "LayerCommitmentChanged",
                {
                    "subject": of,
                    "layer": layer,
                    "version": subject.state_version,
                    "previousCommitment": previous[layer],
                    "newCommitment": report.post_commitments[layer],
                },
            )
            for layer in changed
        ]

    def pulse(self, caller: str, of: str, next_planned_at: int) -> list[Event]:
        subject = self._enrolled(of)
        _check_submitter(subject, of, caller, PERM_REPORT | PERM_PULSE)
        _count_signal(subject, self.now, next_planned_at)
        return [
            (
                "Pulsed",
                {
                    "subject": of,
                    "seq": subject.record_count,
                    "recordedAt": self.now,
                    "nextPlannedAt": next_planned_at,
                    "submitter": caller,
                },
            )
        ]

    # Views, each in the shape of the ABI

    def head_of(self, of: str) -> tuple[Any, ...]:
        subject = self.subjects.get(of)
        if subject is None:
            return (False, NOBODY, 0, 0, 0, 0, 0, ZERO_HASH, 0, 0, 0)
        return (
            True,
            subject.controller,
            subject.rights,
            subject.policy_version,
            subject.floor_version,
            subject.state_version,
            subject.record_count,
            subject.roots[-1],
            subject.enrolled_at,
            subject.last_signal_at,
            subject.next_planned_at,
        )

    def checkpoint_of(self, of: str, layer: int) -> tuple[Any, ...]:
        subject = self.subjects.get(of)
        return astuple(Checkpoint() if subject is None else subject.checkpoints[layer])

    def root_at(self, of: str, version: int) -> bytes:
        subject = self.subjects.get(of)
        known = subject is not None and 1 <= version <= subject.state_version
        return subject.roots[version - 1] if subject is not None and known else ZERO_HASH

    def policy_of(self, of: str, version: int) -> tuple[Any, ...]:
        subject = self.subjects.get(of)
        known = subject is not None and 1 <= version <= subject.policy_version
        return astuple(subject.policies[version - 1][0] if subject is not None and known else Policy())

    def policy_effective_from(self, of: str, version: int) -> int:
        subject = self.subjects.get(of)
        known = subject is not None and 1 <= version <= subject.policy_version
        return subject.policies[version - 1][1] if subject is not None and known else 0

    def floor_of(self, of: str) -> tuple[Any, ...]:
        subject = self.subjects.get(of)
        return astuple(Floor() if subject is None else subject.floor)

    def demand_of(self, of: str, layer: int) -> tuple[int, int]:
        subject = self.subjects.get(of)
        return (0, 0) if subject is None else subject.demands[layer] or (0, 0)

    def operator_permissions(self, of: str, operator: str) -> int:
        subject = self.subjects.get(of)
        return 0 if subject is None else subject.operators.get(operator, 0)

    def requirements_of(self, of: str) -> tuple[Any, ...]:
        subject = self.subjects.get(of)
        return astuple(Requirements() if subject is None else requirements(subject))

    def layer_status(self, of: str, layer: int) -> tuple[int, int, bool]:
        subject = self.subjects.get(of)
        if subject is None:
            return (NOT_ENROLLED, 0, False)
        effective = requirements(subject)
        last_completed_at = subject.checkpoints[layer].last_completed_at
        never = last_completed_at == 0
        if layer not in _layers_in(effective.required_layers):
            supported = layer in _layers_in(effective.supported_layers)
            return (UNSCHEDULED if supported else UNSUPPORTED, 0, never)
        anchor = subject.enrolled_at if never else last_completed_at
        deadline = min(anchor + effective.max_interval[layer], LATEST_TIME)
        demanded = subject.demands[layer]
        if demanded is not None:
            deadline = min(deadline, demanded[1])
        if self.now >= deadline:
            return (OVERDUE, deadline, never)
        return (DUE if self.now + effective.due_window >= deadline else FRESH, deadline, never)

    def signal_status(self, of: str) -> tuple[int, int, int]:
        subject = self.subjects.get(of)
        if subject is None:
            return (NO_SIGNAL_OF_UNKNOWN, 0, 0)
        interval = requirements(subject).pulse_interval
        if interval == 0:
            return (NOT_TRACKED, subject.last_signal_at, 0)
        silent_after = min(subject.last_signal_at + interval, LATEST_TIME)
        if self.now > silent_after:
            return (SILENT, subject.last_signal_at, silent_after)
        return (PRESENT, subject.last_signal_at, 0)

    def _enrolled(self, of: str) -> Subject:
        if of not in self.subjects:
            raise Rejected("NotEnrolled", of)
        return self.subjects[of]


def compute_root(commitments: Sequence[bytes]) -> bytes:
    return keccak256(keccak256(b"AgentMeditationMechanism/StateRoot/v1") + b"".join(commitments))


def compute_layer_commitment(layer: int, schema_hash: bytes, content_hash: bytes, salt: bytes) -> bytes:
    tag = keccak256(b"AgentMeditationMechanism/LayerCommitment/v1")
    return keccak256(tag + layer.to_bytes(32, "big") + schema_hash + content_hash + salt)


def keccak256(data: bytes) -> bytes:
    return bytes(sha3.keccak_256(data).digest())


def requirements(subject: Subject) -> Requirements:
    """The current policy joined with the floor."""
    policy, floor = subject.policies[-1][0], subject.floor
    intervals = []
    for layer in LAYERS:
        asked = [by.max_interval[layer] for by in (policy, floor) if layer in _layers_in(by.required_layers)]
        intervals.append(min(asked, default=0))
    return Requirements(
        supported_layers=policy.supported_layers,
        required_layers=policy.required_layers | floor.required_layers,
        due_window=policy.due_window,
        pulse_interval=min(
            (interval for interval in (policy.pulse_interval, floor.pulse_interval) if interval), default=0
        ),
        max_interval=(intervals[0], intervals[1], intervals[2], intervals[3]),
    )


def _layers_in(mask: int) -> list[int]:
    return [layer for layer in LAYERS if mask & (1 << layer)]


def _count_signal(subject: Subject, now: int, next_planned_at: int) -> None:
    subject.record_count += 1
    subject.last_signal_at = now
    subject.next_planned_at = next_planned_at


def _policy_updated(of: str, version: int, policy: Policy, now: int, by: str) -> Event:
    values = {
        "subject": of,
        "version": version,
        "policyHash": policy.policy_hash,
        "effectiveFrom": now,
        "by": by,
    }
    return ("PolicyUpdated", values)


def _operator_set(of: str, operator: str, permissions: int, by: str) -> Event:
    return ("OperatorSet", {"subject": of, "operator": operator, "permissions": permissions, "by": by})


def _check_controller(of: str, controller: str, rights: int, allowed: int) -> None:
    if rights & ~allowed:
        raise Rejected("InvalidRights", allowed, rights)
    if controller == of:
        raise Rejected("ControllerIsSubject", of)
    if controller == NOBODY and rights:
        raise Rejected("RightsWithoutController", rights)


def _check_right(subject: Subject, caller: str, right: int) -> None:
    if caller != subject.controller:
        raise Rejected("NotController", subject.controller, caller)
    if not subject.rights & right:
        raise Rejected("MissingRight", right, subject.rights)


def _check_permission(subject: Subject, of: str, caller: str, any_of: int) -> None:
    held = subject.operators.get(caller, 0)
    if caller != of and not held & any_of:
        raise Rejected("MissingPermission", any_of, held)


def _check_submitter(subject: Subject, of: str, caller: str, any_of: int) -> None:
    if caller == subject.controller:
        raise Rejected("ControllerCannotSubmit", caller)
    _check_permission(subject, of, caller, any_of)


def _check_layers(mask: int) -> None:
    if not 1 <= mask <= 0x0F:
        raise Rejected("InvalidLayerMask", mask)


def _check_policy(policy: Policy) -> None:
    _check_layers(policy.supported_layers)
    if policy.required_layers & ~policy.supported_layers:
        raise Rejected("RequiredNotSupported", policy.supported_layers, policy.required_layers)
    if not 1 <= policy.allowed_triggers <= 0x0F:
        raise Rejected("InvalidTriggers", policy.allowed_triggers)
    if policy.disclosure > 2:
        raise Rejected("InvalidDisclosure", 2, policy.disclosure)
    _check_intervals(policy.required_layers, policy.max_interval)


def _check_intervals(required: int, intervals: Sequence[int]) -> None:
    for layer in _layers_in(required):
        if intervals[layer] == 0:
            raise Rejected("MissingInterval", layer)


def _check_scope(report: CycleReport) -> None:
    _check_layers(report.layer_mask)
    if report.completed_layers & ~report.layer_mask:
        raise Rejected("CompletedOutsideScope", report.layer_mask, report.completed_layers)
    for layer in LAYERS:
        ops_of_layer = (report.ops_mask >> (4 * layer)) & 0x0F
        if ops_of_layer and layer not in _layers_in(report.layer_mask):
            raise Rejected("OpsOutsideScope", report.layer_mask, report.ops_mask)


def _check_outcome(report: CycleReport) -> None:
    scope, completed = report.layer_mask, report.completed_layers
    agrees = {
        COMPLETED: completed == scope,
        PARTIAL: completed not in (0, scope),
        ABORTED: completed != scope,
        FAILED: completed == 0,
    }
    if not agrees.get(report.outcome, False):
        raise Rejected("InconsistentOutcome", report.outcome, scope, completed)


def _check_governing_policy(subject: Subject, report: CycleReport) -> None:
    version, started_at = report.policy_version, report.reported_started_at
    if not 1 <= version <= subject.policy_version:
        raise Rejected("UnknownPolicyVersion", subject.policy_version, version)
    policy, effective_from = subject.policies[version - 1]
    if started_at < effective_from:
        raise Rejected("PolicyNotYetEffective", effective_from, started_at)
    if version < subject.policy_version:
        superseded_at = subject.policies[version][1]
        if started_at >= superseded_at:
            raise Rejected("PolicySuperseded", superseded_at, started_at)
    if report.layer_mask & ~policy.supported_layers:
        raise Rejected("LayersNotSupported", policy.supported_layers, report.layer_mask)
    if report.trigger > 3 or not policy.allowed_triggers & (1 << report.trigger):
        raise Rejected("TriggerNotAllowed", policy.allowed_triggers, report.trigger)


def _check_linkage(subject: Subject, report: CycleReport) -> None:
    if report.base_version != subject.state_version:
        raise Rejected("BadBaseVersion", subject.state_version, report.base_version)
    if report.pre_root != subject.roots[-1]:
        raise Rejected("BadPreRoot", subject.roots[-1], report.pre_root)


def _check_unscoped(subject: Subject, report: CycleReport) -> None:
    for layer in LAYERS:
        current, received = subject.checkpoints[layer].commitment, report.post_commitments[layer]
        if layer not in _layers_in(report.layer_mask) and received != current:
            raise Rejected("UnscopedLayerChanged", layer, current, received)


def _check_times(subject: Subject, report: CycleReport, now: int) -> None:
    started_at, ended_at = report.reported_started_at, report.reported_ended_at
    if started_at > ended_at:
        raise Rejected("EndedBeforeStarted", started_at, ended_at)
    if ended_at > now:
        raise Rejected("EndedInFuture", now, ended_at)
    for layer in _layers_in(report.completed_layers):
        last_completed_at = subject.checkpoints[layer].last_completed_at
        if ended_at <= last_completed_at:
            raise Rejected("CompletionNotLater", layer, last_completed_at, ended_at)


def _check_restore(subject: Subject, report: CycleReport) -> None:
    version = report.restores_version
    if version == 0:
        return
    if version >= subject.state_version:
        raise Rejected("BadRestoresVersion", subject.state_version, version)
    wanted, got = subject.roots[version - 1], compute_root(report.post_commitments)
    if wanted != got:
        raise Rejected("BadRestoredRoot", wanted, got)
