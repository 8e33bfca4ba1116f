from __future__ import annotations

from dataclasses import replace

import pytest

from melete.errors import InvalidLayerMask, MissingInterval
from melete.meditation.forecast import Anchors, forecast
from melete.meditation.policy import Floor, Policy
from melete.meditation.status import Demand, MaintenanceStatus, SignalStatus

HOUR, DAY = 3600, 86400
POLICY = Policy(0x0F, 0b0111, 0x0F, due_window=HOUR, pulse_interval=DAY, max_interval=(DAY, 7 * DAY, 30 * DAY, 0))
ENROLLED = 1_000_000
ANCHORS = Anchors(ENROLLED, (ENROLLED + DAY, 0, 0, 0), last_signal_at=ENROLLED + DAY)
FRESH, DUE, OVERDUE, UNSCHEDULED = (
    MaintenanceStatus.FRESH,
    MaintenanceStatus.DUE,
    MaintenanceStatus.OVERDUE,
    MaintenanceStatus.UNSCHEDULED,
)


def statuses(anchors: Anchors, at: int, policy: Policy = POLICY, floor: Floor | None = None) -> list[MaintenanceStatus]:
    found = forecast(anchors, at, policy, floor or Floor())
    return [layer.status for layer in found.layers]


def test_forecast_counts_from_completions_and_from_enrollment() -> None:
    assert statuses(ANCHORS, ENROLLED + DAY) == [FRESH, FRESH, FRESH, UNSCHEDULED]
    assert statuses(ANCHORS, ENROLLED + 2 * DAY - HOUR) == [DUE, FRESH, FRESH, UNSCHEDULED]
    assert statuses(ANCHORS, ENROLLED + 2 * DAY) == [OVERDUE, FRESH, FRESH, UNSCHEDULED]
    assert statuses(ANCHORS, ENROLLED + 7 * DAY) == [OVERDUE, OVERDUE, FRESH, UNSCHEDULED]


def test_another_policy_moves_deadlines_and_no_anchor() -> None:
    longer = replace(POLICY, max_interval=(3 * DAY, 14 * DAY, 30 * DAY, 0))
    assert statuses(ANCHORS, ENROLLED + 7 * DAY, longer) == [OVERDUE, FRESH, FRESH, UNSCHEDULED]


def test_a_floor_tightens_adds_and_never_relaxes() -> None:
    floor = Floor(0b1001, max_interval=(HOUR, 0, 0, DAY))
    assert statuses(ANCHORS, ENROLLED + DAY + HOUR, POLICY, floor) == [OVERDUE, FRESH, FRESH, OVERDUE]
    loose = Floor(0b0001, max_interval=(90 * DAY, 0, 0, 0))
    assert statuses(ANCHORS, ENROLLED + 2 * DAY, POLICY, loose)[0] is OVERDUE


def test_a_demand_lowers_a_deadline() -> None:
    demand = Demand(ENROLLED + DAY, ENROLLED + DAY + 10)
    anchors = replace(ANCHORS, demands=(Demand(), demand, Demand(), Demand()))
    assert forecast(anchors, ENROLLED + DAY, POLICY).layers[1].deadline == ENROLLED + DAY + 10


def test_signal_is_judged_apart() -> None:
    assert forecast(ANCHORS, ENROLLED + 2 * DAY, POLICY).signal.status is SignalStatus.PRESENT
    silent = forecast(ANCHORS, ENROLLED + 2 * DAY + 1, POLICY).signal
    assert (silent.status, silent.silent_since) == (SignalStatus.SILENT, ENROLLED + 2 * DAY)


def test_policy_or_floor_that_the_registry_would_refuse_is_refused() -> None:
    with pytest.raises(MissingInterval):
        forecast(ANCHORS, ENROLLED, replace(POLICY, max_interval=(0, 1, 1, 1)))
    with pytest.raises(InvalidLayerMask):
        forecast(ANCHORS, ENROLLED, POLICY, Floor(0x10))
