"""What would be overdue, and when: statuses at any time, under any policy and floor.

Statuses speak of registered, self-reported records, and forecasts assume that nothing else is registered until then.

Source: Agent Meditation, Status derivation.
"""

from __future__ import annotations

from dataclasses import dataclass

from melete.meditation.layers import Layer
from melete.meditation.policy import NO_FLOOR, Floor, Policy, Requirements, check_floor, check_policy, join_requirements
from melete.meditation.status import NO_DEMAND, Demand, LayerStatus, Signal, judge_layer, judge_signal


@dataclass(frozen=True, slots=True)
class Anchors:
    """What a subject's statuses are counted from. Times are seconds; 0 is never."""

    enrolled_at: int
    last_completed_at: tuple[int, int, int, int] = (0, 0, 0, 0)
    demands: tuple[Demand, Demand, Demand, Demand] = (NO_DEMAND, NO_DEMAND, NO_DEMAND, NO_DEMAND)
    last_signal_at: int = 0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The statuses of a subject at a time: of its four layers, and of its signal."""

    at: int
    requirements: Requirements
    layers: tuple[LayerStatus, LayerStatus, LayerStatus, LayerStatus]
    signal: Signal


def forecast(anchors: Anchors, at: int, policy: Policy, floor: Floor = NO_FLOOR) -> Forecast:
    """Return what the statuses are at a time if this policy and this floor are in force by then.

    A change of either moves no anchor, so the answer holds whenever it is made. Errors: the registry's, for a policy
    or a floor that it would refuse.
    """
    requirements = join_requirements(check_policy(policy), check_floor(floor))
    runtime, memory, tasks, cognition = (
        judge_layer(
            layer,
            requirements,
            enrolled_at=anchors.enrolled_at,
            last_completed_at=anchors.last_completed_at[layer],
            demand=anchors.demands[layer],
            now=at,
        )
        for layer in Layer
    )
    signal = judge_signal(requirements, last_signal_at=anchors.last_signal_at, now=at)
    return Forecast(at, requirements, (runtime, memory, tasks, cognition), signal)
