"""A cycle report, and the rules by which the registry takes it, in its order and with its errors.

Source: Agent Meditation, Cycle records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from melete.errors import (
    BadBaseVersion,
    BadPreRoot,
    BadRestoredRoot,
    BadRestoresVersion,
    CompletedOutsideScope,
    CompletionNotLater,
    EndedBeforeStarted,
    EndedInFuture,
    InconsistentOutcome,
    InvalidInput,
    InvalidLayerMask,
    LayersNotSupported,
    OpsOutsideScope,
    PolicyNotYetEffective,
    PolicySuperseded,
    TriggerNotAllowed,
    UnknownPolicyVersion,
    UnscopedLayerChanged,
)
from melete.meditation.layers import (
    ALL_LAYERS,
    Commitments,
    Layer,
    compute_root,
    layers_of,
    mask_of,
    to_commitments,
    to_layer,
)
from melete.meditation.policy import TIME_BITS, Policy
from melete.primitives import ZERO_BYTES32, Bytes32, uint


class Operation(IntEnum):
    """What a cycle did to a layer."""

    CLEAN = 0
    REPAIR = 1
    UPDATE = 2
    ITERATE = 3


class Outcome(IntEnum):
    """How a cycle as a whole ended."""

    COMPLETED = 0
    PARTIAL = 1
    ABORTED = 2
    FAILED = 3


class Trigger(IntEnum):
    """What started a cycle. In a mask of triggers its bit is `1 << trigger`."""

    SCHEDULED = 0
    EVENT = 1
    COMMANDED = 2
    SELF = 3


#: The members that are numbers, and how many bits the contract's types give them.
BITS: Final = {
    "base_version": 64,
    "layer_mask": 8,
    "completed_layers": 8,
    "ops_mask": 16,
    "outcome": 8,
    "trigger": 8,
    "policy_version": 32,
    "reported_started_at": TIME_BITS,
    "reported_ended_at": TIME_BITS,
    "next_planned_at": TIME_BITS,
    "restores_version": 64,
}


@dataclass(frozen=True, slots=True)
class CycleReport:
    """One cycle as it is registered, with the contract's members. Times are seconds.

    Errors: `InvalidInput` for values that the contract's types cannot hold; `check_report` judges the rest.
    """

    base_version: int
    pre_root: Bytes32
    post_commitments: Commitments
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
    record_hash: Bytes32 = ZERO_BYTES32
    record_uri: str = ""

    def __post_init__(self) -> None:
        for name, bits in BITS.items():
            value = getattr(self, name)
            uint(value.value if isinstance(value, IntEnum) else value, bits, name)
        object.__setattr__(self, "pre_root", Bytes32(self.pre_root, "preRoot"))
        object.__setattr__(self, "post_commitments", to_commitments(self.post_commitments))
        object.__setattr__(self, "record_hash", Bytes32(self.record_hash, "recordHash"))
        if not isinstance(self.record_uri, str):
            raise InvalidInput("recordURI", self.record_uri, "text")


@dataclass(frozen=True, slots=True)
class SubjectState:
    """What the rules need of a subject's registered state.

    `policies` are (policy, effective from) of all versions, the first first; `roots` those of the state versions that
    a report may name.
    """

    state_version: int
    commitments: Commitments
    last_completed_at: tuple[int, int, int, int]
    policies: Sequence[tuple[Policy, int]]
    roots: Mapping[int, Bytes32]

    @property
    def root(self) -> Bytes32:
        """The root of the current state version."""
        return compute_root(self.commitments)


def compute_ops_mask(operations: Mapping[int, Sequence[int]]) -> int:
    """Return the mask of what was done where: bit `layer * 4 + operation`. Errors: `InvalidLayer`, `InvalidInput`."""
    mask = 0
    for layer, done in operations.items():
        for operation in done:
            if type(operation) not in (int, Operation) or operation not in tuple(Operation):
                raise InvalidInput("operation", operation, "0 clean, 1 repair, 2 update or 3 iterate")
            mask |= 1 << to_layer(layer) * 4 + operation
    return mask


def compute_changed_layers(before: Commitments, after: Commitments) -> int:
    """Return the mask of the layers whose commitments differ."""
    return mask_of(layer for layer in Layer if before[layer] != after[layer])


def derive_outcome(layer_mask: int, completed_layers: int, *, failed: bool = False) -> Outcome:
    """Return the outcome that a scope and its completions amount to: all, some, or none of the layers.

    None completed is ABORTED, or FAILED when the cycle says so.
    """
    if completed_layers == layer_mask:
        return Outcome.COMPLETED
    if completed_layers:
        return Outcome.PARTIAL
    return Outcome.FAILED if failed else Outcome.ABORTED


def check_report(state: SubjectState, report: CycleReport, now: int) -> int:
    """Return the mask of the layers that a report changes, or raise the first error of `report`.

    Who submits it is not judged here. `now` is the clock of the block that takes it.
    """
    _check_scope(report)
    _check_outcome(report)
    _check_policy(state, report)
    if report.base_version != state.state_version:
        raise BadBaseVersion(state.state_version, report.base_version)
    if report.pre_root != state.root:
        raise BadPreRoot(state.root, report.pre_root)
    changed = compute_changed_layers(state.commitments, report.post_commitments)
    for layer in layers_of(changed & ~report.layer_mask):
        raise UnscopedLayerChanged(layer.value, state.commitments[layer], report.post_commitments[layer])
    _check_times(state, report, now)
    _check_restore(state, report)
    return changed


def _check_scope(report: CycleReport) -> None:
    if report.layer_mask == 0 or report.layer_mask > ALL_LAYERS:
        raise InvalidLayerMask(report.layer_mask)
    if report.completed_layers & ~report.layer_mask:
        raise CompletedOutsideScope(report.layer_mask, report.completed_layers)
    scoped = sum(0x0F << 4 * layer for layer in layers_of(report.layer_mask))
    if report.ops_mask & ~scoped:
        raise OpsOutsideScope(report.layer_mask, report.ops_mask)


def _check_outcome(report: CycleReport) -> None:
    every, none = report.completed_layers == report.layer_mask, report.completed_layers == 0
    consistent = {
        Outcome.COMPLETED: every,
        Outcome.PARTIAL: not every and not none,
        Outcome.ABORTED: not every,
        Outcome.FAILED: none,
    }
    if not consistent.get(report.outcome, False):  # type: ignore[call-overload]
        raise InconsistentOutcome(report.outcome, report.layer_mask, report.completed_layers)


def _check_policy(state: SubjectState, report: CycleReport) -> None:
    version, started = report.policy_version, report.reported_started_at
    if not 1 <= version <= len(state.policies):
        raise UnknownPolicyVersion(len(state.policies), version)
    policy, effective_from = state.policies[version - 1]
    if started < effective_from:
        raise PolicyNotYetEffective(effective_from, started)
    if version < len(state.policies):
        superseded_at = state.policies[version][1]
        if started >= superseded_at:
            raise PolicySuperseded(superseded_at, started)
    if report.layer_mask & ~policy.supported_layers:
        raise LayersNotSupported(policy.supported_layers, report.layer_mask)
    if not policy.allowed_triggers >> report.trigger & 1:
        raise TriggerNotAllowed(policy.allowed_triggers, report.trigger)


def _check_times(state: SubjectState, report: CycleReport, now: int) -> None:
    if report.reported_started_at > report.reported_ended_at:
        raise EndedBeforeStarted(report.reported_started_at, report.reported_ended_at)
    if report.reported_ended_at > now:
        raise EndedInFuture(now, report.reported_ended_at)
    for layer in layers_of(report.completed_layers):
        if report.reported_ended_at <= state.last_completed_at[layer]:
            raise CompletionNotLater(layer.value, state.last_completed_at[layer], report.reported_ended_at)


def _check_restore(state: SubjectState, report: CycleReport) -> None:
    if report.restores_version == 0:
        return
    if report.restores_version >= state.state_version:
        raise BadRestoresVersion(state.state_version, report.restores_version)
    if report.restores_version not in state.roots:
        raise InvalidInput("roots", report.restores_version, "a state version whose root is given with the state")
    root, restored = compute_root(report.post_commitments), state.roots[report.restores_version]
    if root != restored:
        raise BadRestoredRoot(restored, root)
