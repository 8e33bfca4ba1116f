"""How timely a subject's registered maintenance is, and whether a signal came in time: two answers, never one.

Both speak of registered, self-reported records: not of health, and not of the live state.

Source: Agent Meditation, Status derivation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from melete.meditation.layers import to_layer
from melete.meditation.policy import LATEST_TIME, Requirements
from melete.primitives import ZERO_BYTES32, Bytes32


class MaintenanceStatus(IntEnum):
    """How timely a layer's registered maintenance is."""

    NOT_ENROLLED = 0
    UNSUPPORTED = 1
    UNSCHEDULED = 2
    FRESH = 3
    DUE = 4
    OVERDUE = 5


class SignalStatus(IntEnum):
    """Whether a sign of activity came within the interval."""

    NOT_ENROLLED = 0
    NOT_TRACKED = 1
    PRESENT = 2
    SILENT = 3


@dataclass(frozen=True, slots=True)
class LayerCheckpoint:
    """What is registered about one layer, with the contract's members. Times are seconds; 0 is never."""

    commitment: Bytes32 = ZERO_BYTES32
    last_completed_at: int = 0
    last_completed_recorded_at: int = 0
    completed_under_policy: int = 0
    last_changed_version: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """A controller's outstanding request to complete a layer; `demanded_at` 0 is none."""

    demanded_at: int = 0
    due_by: int = 0


NO_DEMAND: Final = Demand()


@dataclass(frozen=True, slots=True)
class LayerStatus:
    """A layer's status, the deadline it was judged against (0 for none), and whether it was never completed."""

    status: MaintenanceStatus
    deadline: int = 0
    never_completed: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    """A subject's signal: its status, the last one, and since when it is silent (0 when it is not)."""

    status: SignalStatus
    last_signal_at: int = 0
    silent_since: int = 0


def judge_layer(
    layer: int,
    requirements: Requirements | None,
    *,
    enrolled_at: int,
    last_completed_at: int,
    demand: Demand = NO_DEMAND,
    now: int,
) -> LayerStatus:
    """Return a layer's status at a time. `requirements` is None for a subject that is not enrolled.

    OVERDUE from the deadline on; DUE from the due window before it on. The deadline counts from the last completion,
    or from the enrollment if there was none, and is lowered by an outstanding demand. Errors: `InvalidLayer`.
    """
    layer = to_layer(layer)
    if requirements is None:
        return LayerStatus(MaintenanceStatus.NOT_ENROLLED)
    never_completed = last_completed_at == 0
    if not requirements.required_layers >> layer & 1:
        supported = requirements.supported_layers >> layer & 1
        status = MaintenanceStatus.UNSCHEDULED if supported else MaintenanceStatus.UNSUPPORTED
        return LayerStatus(status, 0, never_completed)
    anchor = enrolled_at if never_completed else last_completed_at
    deadline = min(anchor + requirements.max_interval[layer], LATEST_TIME)
    if demand.demanded_at:
        deadline = min(deadline, demand.due_by)
    if now >= deadline:
        status = MaintenanceStatus.OVERDUE
    elif now + requirements.due_window >= deadline:
        status = MaintenanceStatus.DUE
    else:
        status = MaintenanceStatus.FRESH
    return LayerStatus(status, deadline, never_completed)


def judge_signal(requirements: Requirements | None, *, last_signal_at: int, now: int) -> Signal:
    """Return a subject's signal at a time. `requirements` is None for a subject that is not enrolled.

    SILENT only after the interval has passed, since the moment it had passed.
    """
    if requirements is None:
        return Signal(SignalStatus.NOT_ENROLLED)
    if requirements.pulse_interval == 0:
        return Signal(SignalStatus.NOT_TRACKED, last_signal_at)
    expected_by = min(last_signal_at + requirements.pulse_interval, LATEST_TIME)
    if now > expected_by:
        return Signal(SignalStatus.SILENT, last_signal_at, expected_by)
    return Signal(SignalStatus.PRESENT, last_signal_at)
