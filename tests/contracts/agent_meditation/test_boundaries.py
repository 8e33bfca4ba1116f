"""Both sides of every line that time draws."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meditation_chain import Contract
from meditation_examples import DAY, HOUR, POLICY, Agent
from models.meditation import (
    DUE,
    FRESH,
    LATEST_TIME,
    LAYERS,
    NOBODY,
    OVERDUE,
    PRESENT,
    SILENT,
    Floor,
)

WINDOW = POLICY.due_window


# Deadlines


@pytest.mark.parametrize(
    ("before_deadline", "status"),
    [
        (WINDOW + 1, FRESH),
        (WINDOW, DUE),
        (WINDOW - 1, DUE),
        (1, DUE),
        (0, OVERDUE),
        (-1, OVERDUE),
    ],
)
def test_status_turns_at_the_window_and_at_the_deadline(agent: Agent, before_deadline: int, status: int) -> None:
    agent.report()
    for layer in LAYERS:
        deadline = agent.checkpoint(layer)["lastCompletedAt"] + POLICY.max_interval[layer]
        agent.clock.wait_until(deadline - before_deadline)
        assert agent.registry.call("layerStatus", agent.address, layer) == (status, deadline, False)


@pytest.mark.parametrize(("before_deadline", "status"), [(1, FRESH), (0, OVERDUE)])
def test_without_a_window_nothing_is_ever_due(agent: Agent, before_deadline: int, status: int) -> None:
    agent.set_policy(due_window=0)
    agent.clock.wait_until(agent.deadline(0) - before_deadline)
    assert agent.status(0) == status


def test_window_longer_than_the_interval_makes_a_layer_due_at_once(agent: Agent) -> None:
    agent.set_policy(due_window=LATEST_TIME)
    agent.report()
    assert [agent.status(layer) for layer in LAYERS] == [DUE] * 4


@pytest.mark.parametrize(("before_due", "status"), [(WINDOW + 1, FRESH), (WINDOW, DUE), (1, DUE), (0, OVERDUE)])
def test_status_turns_alike_at_a_demanded_deadline(
    controlled: Agent, controller: str, before_due: int, status: int
) -> None:
    due_by = controlled.clock.now + 5 * HOUR
    controlled.registry.send("demand", controlled.address, 0b1000, due_by, sender=controller)
    controlled.clock.wait_until(due_by - before_due)
    assert controlled.registry.call("layerStatus", controlled.address, 3) == (status, due_by, True)


def test_shortest_interval_is_a_second(agent: Agent) -> None:
    agent.set_policy(max_interval=(1, 1, 1, 1), due_window=0)
    agent.report()
    assert agent.status(0) == FRESH
    agent.clock.wait(1)
    assert agent.status(0) == OVERDUE


# Signals


@pytest.mark.parametrize(
    ("after_interval", "status", "silent_since"),
    [(-1, PRESENT, False), (0, PRESENT, False), (1, SILENT, True)],
)
def test_signal_falls_silent_when_more_than_the_interval_has_passed(
    agent: Agent, after_interval: int, status: int, silent_since: bool
) -> None:
    agent.pulse()
    last, turn = agent.clock.now, agent.clock.now + POLICY.pulse_interval
    agent.clock.wait_until(turn + after_interval)
    assert agent.signal() == (status, last, turn if silent_since else 0)


# Policies


def test_cycle_that_starts_in_the_second_of_a_new_policy_is_governed_by_it(agent: Agent) -> None:
    taken_effect_at = agent.clock.now
    agent.set_policy()
    agent.clock.wait(HOUR)
    refusal = agent.report_refusal(policy_version=1, reported_started_at=taken_effect_at)
    assert refusal == ("PolicySuperseded", taken_effect_at, taken_effect_at)
    agent.report(policy_version=2, reported_started_at=taken_effect_at)


def test_cycle_that_starts_a_second_before_a_new_policy_is_governed_by_the_old_one(agent: Agent) -> None:
    taken_effect_at = agent.clock.now
    agent.set_policy()
    agent.clock.wait(HOUR)
    refusal = agent.report_refusal(policy_version=2, reported_started_at=taken_effect_at - 1)
    assert refusal == ("PolicyNotYetEffective", taken_effect_at, taken_effect_at - 1)
    agent.report(policy_version=1, reported_started_at=taken_effect_at - 1)


def test_of_two_policies_in_one_second_only_the_later_governs(agent: Agent) -> None:
    second = agent.clock.now
    agent.set_policy()
    agent.set_policy()
    assert agent.registry.call("policyEffectiveFrom", agent.address, 2) == second
    assert agent.registry.call("policyEffectiveFrom", agent.address, 3) == second
    agent.clock.wait(HOUR)
    for started_at, error in [(second - 1, "PolicyNotYetEffective"), (second, "PolicySuperseded")]:
        refusal = agent.report_refusal(policy_version=2, reported_started_at=started_at)
        assert refusal == (error, second, started_at)
    agent.report(policy_version=3, reported_started_at=second)


def test_no_cycle_started_before_the_enrollment(agent: Agent) -> None:
    enrolled_at = agent.head()["enrolledAt"]
    refusal = agent.report_refusal(reported_started_at=enrolled_at - 1)
    assert refusal == ("PolicyNotYetEffective", enrolled_at, enrolled_at - 1)
    agent.report(reported_started_at=enrolled_at, reported_ended_at=enrolled_at)


def test_subject_may_report_in_the_second_of_its_enrollment(registry: Contract, subject: str) -> None:
    agent = Agent(registry, subject).enroll()
    agent.report()
    assert agent.checkpoint(0)["lastCompletedAt"] == agent.head()["enrolledAt"]


# Reported times


def test_cycle_may_end_in_the_second_it_started_and_not_before(agent: Agent) -> None:
    now = agent.clock.now
    refusal = agent.report_refusal(reported_started_at=now - 5, reported_ended_at=now - 6)
    assert refusal == ("EndedBeforeStarted", now - 5, now - 6)
    agent.report(reported_started_at=now - 5, reported_ended_at=now - 5)


def test_cycle_may_end_now_and_not_later(agent: Agent) -> None:
    now = agent.clock.now
    refusal = agent.report_refusal(reported_started_at=now, reported_ended_at=now + 1)
    assert refusal == ("EndedInFuture", now, now + 1)
    agent.report(reported_started_at=now, reported_ended_at=now)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("after_last", "accepted"), [(-1, False), (0, False), (1, True)])
def test_completion_has_to_end_after_the_last_one(agent: Agent, layer: int, after_last: int, accepted: bool) -> None:
    last = agent.clock.now - 60
    agent.report(layer_mask=1 << layer, reported_ended_at=last)
    ended_at = last + after_last
    if accepted:
        agent.report(reported_ended_at=ended_at)
        assert agent.checkpoint(layer)["lastCompletedAt"] == ended_at
    else:
        refusal = agent.report_refusal(reported_ended_at=ended_at)
        assert refusal == ("CompletionNotLater", layer, last, ended_at)
        agent.report(layer_mask=0x0F & ~(1 << layer), reported_ended_at=ended_at)


def test_layer_that_is_only_in_scope_may_end_before_its_last_completion(agent: Agent) -> None:
    agent.report()
    completed_at = agent.clock.now
    agent.clock.wait(HOUR)
    agent.report(completed_layers=0, outcome=3, reported_ended_at=completed_at - 1)
    assert agent.checkpoint(0)["lastCompletedAt"] == completed_at


# Demands and completions


def test_completion_that_ended_before_the_demand_does_not_clear_it(controlled: Agent, controller: str) -> None:
    ended_at = controlled.clock.now
    demanded_at = controlled.clock.wait(1)
    due_by = demanded_at + HOUR
    controlled.registry.send("demand", controlled.address, 0x0F, due_by, sender=controller)
    controlled.clock.wait(1)
    controlled.report(reported_ended_at=ended_at)
    assert [controlled.demand(layer) for layer in LAYERS] == [(demanded_at, due_by)] * 4


@pytest.mark.parametrize("after_demand", [0, 1])
def test_completion_that_ended_with_the_demand_or_later_clears_it(
    controlled: Agent, controller: str, after_demand: int
) -> None:
    demanded_at = controlled.clock.now
    controlled.registry.send("demand", controlled.address, 0x0F, demanded_at + HOUR, sender=controller)
    controlled.clock.wait(2)
    controlled.report(layer_mask=0b0110, reported_ended_at=demanded_at + after_demand)
    made = (demanded_at, demanded_at + HOUR)
    assert [controlled.demand(layer) for layer in LAYERS] == [made, (0, 0), (0, 0), made]


def test_completion_recorded_in_the_second_of_the_demand_after_it_clears_it(controlled: Agent, controller: str) -> None:
    controlled.registry.send("demand", controlled.address, 0x0F, controlled.clock.now + 1, sender=controller)
    controlled.report()
    assert [controlled.demand(layer) for layer in LAYERS] == [(0, 0)] * 4


def test_demand_made_in_the_second_of_a_completion_after_it_stands(controlled: Agent, controller: str) -> None:
    now = controlled.clock.now
    controlled.report(layer_mask=0b0011)
    controlled.registry.send("demand", controlled.address, 0b0101, now + HOUR, sender=controller)
    made = (now, now + HOUR)
    assert [controlled.demand(layer) for layer in LAYERS] == [made, (0, 0), made, (0, 0)]
    assert controlled.deadline(0) == now + HOUR
    controlled.clock.wait(HOUR)
    assert controlled.status(0) == OVERDUE

    controlled.report(layer_mask=0b0101, reported_ended_at=now + 1)
    assert [controlled.demand(layer) for layer in LAYERS] == [(0, 0)] * 4
    assert controlled.deadline(0) == now + 1 + DAY


def test_demand_completion_and_demand_within_one_second(controlled: Agent, controller: str) -> None:
    now = controlled.clock.now
    controlled.registry.send("demand", controlled.address, 1, now + 1, sender=controller)
    controlled.report()
    assert controlled.demand(0) == (0, 0)
    controlled.registry.send("demand", controlled.address, 1, now + 2, sender=controller)
    assert controlled.demand(0) == (now, now + 2)
    controlled.clock.wait(5)
    controlled.report(reported_ended_at=now + 1)
    assert controlled.demand(0) == (0, 0)


def test_demand_in_the_second_of_a_late_record_is_not_cleared_by_its_earlier_end(
    controlled: Agent, controller: str
) -> None:
    now = controlled.clock.now
    controlled.registry.send("demand", controlled.address, 1, now + HOUR, sender=controller)
    controlled.report(reported_ended_at=now - 1)
    assert controlled.demand(0) == (now, now + HOUR)


def test_cleared_demand_stays_cleared(controlled: Agent, controller: str) -> None:
    controlled.registry.send("demand", controlled.address, 1, controlled.clock.now + 1, sender=controller)
    controlled.report()
    for _ in range(3):
        controlled.clock.wait(HOUR)
        controlled.change(0)
        controlled.pulse()
        assert controlled.demand(0) == (0, 0)


# The end of time


def test_deadline_stops_at_the_latest_time(registry: Contract, subject: str) -> None:
    policy = replace(POLICY, max_interval=(LATEST_TIME,) * 4, pulse_interval=LATEST_TIME)
    agent = Agent(registry, subject).enroll(policy)
    assert agent.deadlines() == [LATEST_TIME] * 4
    for now, status in [
        (LATEST_TIME - WINDOW - 1, FRESH),
        (LATEST_TIME - WINDOW, DUE),
        (LATEST_TIME - 1, DUE),
        (LATEST_TIME, OVERDUE),
    ]:
        registry.clock.now = now
        assert [agent.status(layer) for layer in LAYERS] == [status] * 4
        assert agent.signal()[0] == PRESENT


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_deadline_is_exact_up_to_the_latest_time(registry: Contract, subject: str, beyond: int) -> None:
    interval = LATEST_TIME - registry.clock.now + beyond
    policy = replace(POLICY, max_interval=(interval,) * 4, pulse_interval=interval)
    agent = Agent(registry, subject).enroll(policy)
    latest = min(LATEST_TIME, LATEST_TIME + beyond)
    assert agent.deadlines() == [latest] * 4
    registry.clock.now = LATEST_TIME
    assert agent.signal() == (
        (SILENT, agent.head()["enrolledAt"], latest)
        if beyond < 0
        else (
            PRESENT,
            agent.head()["enrolledAt"],
            0,
        )
    )


def test_window_beyond_the_latest_time_makes_a_layer_due(registry: Contract, subject: str) -> None:
    policy = replace(POLICY, max_interval=(LATEST_TIME,) * 4, due_window=LATEST_TIME)
    agent = Agent(registry, subject).enroll(policy)
    assert [agent.status(layer) for layer in LAYERS] == [DUE] * 4


def test_floor_with_the_longest_intervals_is_joined_without_overflow(controlled: Agent, controller: str) -> None:
    controlled.set_policy(required_layers=0b0001, max_interval=(LATEST_TIME, 0, 0, 0), pulse_interval=0)
    floor = Floor(0x0F, LATEST_TIME, (LATEST_TIME,) * 4)
    controlled.registry.send("setFloor", controlled.address, floor, sender=controller)
    assert controlled.deadlines() == [LATEST_TIME] * 4
    assert controlled.signal() == (PRESENT, controlled.head()["lastSignalAt"], 0)


def test_registry_still_records_in_the_last_second(registry: Contract, subject: str) -> None:
    agent = Agent(registry, subject).enroll(controller=NOBODY)
    registry.clock.wait_until(LATEST_TIME)
    agent.report(next_planned_at=LATEST_TIME)
    assert agent.checkpoint(0)["lastCompletedAt"] == LATEST_TIME
    assert agent.deadlines() == [LATEST_TIME] * 4
    assert [agent.status(layer) for layer in LAYERS] == [OVERDUE] * 4
