from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidLayer
from melete.meditation.policy import Requirements
from melete.meditation.status import (
    NO_DEMAND,
    Demand,
    LayerStatus,
    MaintenanceStatus,
    Signal,
    SignalStatus,
    judge_layer,
    judge_signal,
)

LATEST = 2**48 - 1
ENROLLED = 1_000_000
#: Layers 0 and 2 required, layer 1 supported; a window of 100 seconds; a signal every 50.
REQUIREMENTS = Requirements(
    supported_layers=7, required_layers=5, due_window=100, pulse_interval=50, max_interval=(1000, 0, 4000, 0)
)
FRESH, DUE, OVERDUE = MaintenanceStatus.FRESH, MaintenanceStatus.DUE, MaintenanceStatus.OVERDUE


def judge(layer: int = 0, now: int = ENROLLED, **known: Any) -> LayerStatus:
    given = {"requirements": REQUIREMENTS, "enrolled_at": ENROLLED, "last_completed_at": 0, **known}
    return judge_layer(layer, given.pop("requirements"), now=now, **given)


# The statuses of a layer


@pytest.mark.parametrize("layer", range(4))
def test_nobody_is_not_enrolled_and_has_completed_nothing_to_speak_of(layer: int) -> None:
    nobody = judge(layer, requirements=None, enrolled_at=0)
    assert nobody == LayerStatus(MaintenanceStatus.NOT_ENROLLED, 0, False)


def test_layer_that_nobody_requires_is_unscheduled_or_unsupported_at_any_time() -> None:
    for now in (ENROLLED, LATEST):
        assert judge(1, now) == LayerStatus(MaintenanceStatus.UNSCHEDULED, 0, True)
        assert judge(3, now) == LayerStatus(MaintenanceStatus.UNSUPPORTED, 0, True)


def test_completion_of_a_layer_that_nobody_requires_is_told() -> None:
    assert judge(1, last_completed_at=ENROLLED) == LayerStatus(MaintenanceStatus.UNSCHEDULED, 0, False)
    assert judge(3, last_completed_at=ENROLLED) == LayerStatus(MaintenanceStatus.UNSUPPORTED, 0, False)


def test_required_layer_is_judged_whether_it_is_supported_or_not() -> None:
    requirements = replace(REQUIREMENTS, supported_layers=8)
    assert judge(requirements=requirements) == LayerStatus(FRESH, ENROLLED + 1000, True)


@pytest.mark.parametrize(
    ("seconds", "status"),
    [(0, FRESH), (899, FRESH), (900, DUE), (999, DUE), (1000, OVERDUE), (1001, OVERDUE), (LATEST - ENROLLED, OVERDUE)],
)
def test_layer_is_due_from_its_window_on_and_overdue_from_its_deadline_on(
    seconds: int, status: MaintenanceStatus
) -> None:
    assert judge(now=ENROLLED + seconds) == LayerStatus(status, ENROLLED + 1000, True)


def test_deadline_counts_from_the_last_completion_and_no_longer_from_the_enrollment() -> None:
    completed = ENROLLED + 700
    assert judge(now=completed + 899, last_completed_at=completed) == LayerStatus(FRESH, completed + 1000, False)
    assert judge(now=completed + 1000, last_completed_at=completed) == LayerStatus(OVERDUE, completed + 1000, False)


def test_each_layer_has_its_own_interval() -> None:
    assert judge(2, ENROLLED + 3899) == LayerStatus(FRESH, ENROLLED + 4000, True)


def test_without_a_window_a_layer_is_never_due() -> None:
    requirements = replace(REQUIREMENTS, due_window=0)
    statuses = [judge(now=ENROLLED + 999 + step, requirements=requirements).status for step in (0, 1)]
    assert statuses == [FRESH, OVERDUE]


def test_window_as_long_as_the_interval_is_due_at_once() -> None:
    assert judge(requirements=replace(REQUIREMENTS, due_window=999)).status is FRESH
    assert judge(requirements=replace(REQUIREMENTS, due_window=1000)).status is DUE


@pytest.mark.parametrize("layer", [-1, 4, 255, True, "0", None])
def test_what_is_no_layer_is_refused_even_for_nobody(layer: Any) -> None:
    for requirements in (None, REQUIREMENTS):
        with pytest.raises(InvalidLayer):
            judge(layer, requirements=requirements)


# Demands


def test_demand_lowers_the_deadline_and_never_raises_it() -> None:
    made = ENROLLED + 10
    assert judge(demand=Demand(made, ENROLLED + 999)).deadline == ENROLLED + 999
    assert judge(demand=Demand(made, ENROLLED + 1001)).deadline == ENROLLED + 1000
    assert judge(demand=NO_DEMAND).deadline == ENROLLED + 1000


def test_demand_is_judged_like_any_deadline() -> None:
    demand = Demand(ENROLLED + 10, ENROLLED + 300)
    statuses = [judge(now=ENROLLED + seconds, demand=demand).status for seconds in (199, 200, 299, 300)]
    assert statuses == [FRESH, DUE, DUE, OVERDUE]


def test_demand_of_a_layer_that_nobody_requires_changes_nothing() -> None:
    demand = Demand(ENROLLED, ENROLLED + 1)
    assert judge(1, LATEST, demand=demand) == LayerStatus(MaintenanceStatus.UNSCHEDULED, 0, True)


# The end of time


def test_deadline_beyond_48_bits_is_the_last_second() -> None:
    requirements = replace(REQUIREMENTS, due_window=0, max_interval=(LATEST, 0, LATEST - ENROLLED, 0))
    for layer in (0, 2):
        assert judge(layer, LATEST - 1, requirements=requirements) == LayerStatus(FRESH, LATEST, True)
        assert judge(layer, LATEST, requirements=requirements) == LayerStatus(OVERDUE, LATEST, True)


def test_deadline_one_second_below_48_bits_is_itself() -> None:
    requirements = replace(REQUIREMENTS, due_window=0, max_interval=(LATEST - 1 - ENROLLED, 0, 1, 0))
    assert judge(now=LATEST - 2, requirements=requirements) == LayerStatus(FRESH, LATEST - 1, True)
    assert judge(now=LATEST - 1, requirements=requirements) == LayerStatus(OVERDUE, LATEST - 1, True)


def test_window_that_reaches_beyond_48_bits_is_due() -> None:
    requirements = replace(REQUIREMENTS, due_window=LATEST, max_interval=(LATEST, 0, LATEST, 0))
    assert judge(now=LATEST - 1, requirements=requirements).status is DUE


# Signals


def test_nobody_gives_no_signal() -> None:
    assert judge_signal(None, last_signal_at=0, now=ENROLLED) == Signal(SignalStatus.NOT_ENROLLED, 0, 0)


def test_signal_that_is_not_tracked_is_still_told() -> None:
    requirements = replace(REQUIREMENTS, pulse_interval=0)
    answer = judge_signal(requirements, last_signal_at=ENROLLED, now=LATEST)
    assert answer == Signal(SignalStatus.NOT_TRACKED, ENROLLED, 0)


def test_silence_begins_only_after_the_interval_has_passed() -> None:
    present = judge_signal(REQUIREMENTS, last_signal_at=ENROLLED, now=ENROLLED + 50)
    assert present == Signal(SignalStatus.PRESENT, ENROLLED, 0)
    silent = judge_signal(REQUIREMENTS, last_signal_at=ENROLLED, now=ENROLLED + 51)
    assert silent == Signal(SignalStatus.SILENT, ENROLLED, ENROLLED + 50)
    assert judge_signal(REQUIREMENTS, last_signal_at=ENROLLED, now=LATEST) == silent


def test_signal_expected_at_the_end_of_time_is_never_missed() -> None:
    for interval in (LATEST - ENROLLED, LATEST):
        requirements = replace(REQUIREMENTS, pulse_interval=interval)
        answer = judge_signal(requirements, last_signal_at=ENROLLED, now=LATEST)
        assert answer == Signal(SignalStatus.PRESENT, ENROLLED, 0)
    requirements = replace(REQUIREMENTS, pulse_interval=LATEST - ENROLLED - 1)
    answer = judge_signal(requirements, last_signal_at=ENROLLED, now=LATEST)
    assert answer == Signal(SignalStatus.SILENT, ENROLLED, LATEST - 1)


def test_signal_and_maintenance_are_two_answers() -> None:
    silent_and_fresh = ENROLLED + 60
    assert judge(now=silent_and_fresh).status is FRESH
    assert judge_signal(REQUIREMENTS, last_signal_at=ENROLLED, now=silent_and_fresh).status is SignalStatus.SILENT
    present_and_overdue = ENROLLED + 1000
    assert judge(now=present_and_overdue).status is OVERDUE
    last = present_and_overdue - 1
    assert judge_signal(REQUIREMENTS, last_signal_at=last, now=present_and_overdue).status is SignalStatus.PRESENT


# Over all times

times = st.sampled_from([1, 2, LATEST - 1, LATEST]) | st.integers(1, LATEST)
durations = st.sampled_from([1, 2, LATEST - 1, LATEST]) | st.integers(1, LATEST)
demands = st.just(NO_DEMAND) | st.builds(Demand, times, times)


@given(times, st.just(0) | times, durations, st.just(0) | durations, demands, times, times)
def test_a_layer_only_ever_gets_staler_as_time_passes(
    enrolled_at: int, completed: int, interval: int, window: int, demand: Demand, one: int, other: int
) -> None:
    requirements = Requirements(15, 1, window, 0, (interval, 0, 0, 0))
    earlier, later = (
        judge_layer(0, requirements, enrolled_at=enrolled_at, last_completed_at=completed, demand=demand, now=now)
        for now in sorted([one, other])
    )
    assert earlier.status <= later.status
    assert earlier.deadline == later.deadline <= LATEST
    assert earlier.never_completed is later.never_completed is (completed == 0)


@given(times, durations, durations, demands, times)
def test_a_shorter_interval_never_makes_a_layer_fresher(
    anchor: int, one: int, other: int, demand: Demand, now: int
) -> None:
    tight, loose = (
        judge_layer(
            0,
            Requirements(15, 1, 0, 0, (interval, 0, 0, 0)),
            enrolled_at=1,
            last_completed_at=anchor,
            demand=demand,
            now=now,
        )
        for interval in sorted([one, other])
    )
    assert tight.deadline <= loose.deadline
    assert tight.status >= loose.status


@given(times, durations, times)
def test_silence_is_told_with_its_beginning_and_presence_without(last: int, interval: int, now: int) -> None:
    answer = judge_signal(Requirements(15, 0, 0, interval, (0, 0, 0, 0)), last_signal_at=last, now=now)
    assert answer.last_signal_at == last
    assert (answer.status is SignalStatus.SILENT) == (now - last > interval)
    assert answer.silent_since == (last + interval if now - last > interval else 0)
