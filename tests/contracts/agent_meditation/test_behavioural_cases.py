"""The thirteen cases that the specification expects of every implementation, each with its sentence."""

from __future__ import annotations

from functools import reduce

from meditation_chain import Contract, selector_of
from meditation_examples import ALL_RIGHTS, BASELINE, DAY, HOUR, POLICY, Agent
from models.meditation import (
    DUE,
    FRESH,
    LAYERS,
    NOBODY,
    OVERDUE,
    PARTIAL,
    PRESENT,
    SILENT,
    Floor,
)


def test_1_pulse_moves_only_signal_count_and_plan_and_a_subject_that_only_pulses_becomes_overdue(
    agent: Agent,
) -> None:
    before, deadlines = agent.everything(), agent.deadlines()
    for _ in range(6):
        agent.clock.wait(4 * HOUR)
        agent.pulse(next_planned_at=agent.clock.now + HOUR)
        assert agent.deadlines() == deadlines
    after = agent.everything()
    moved = {
        "recordCount": 6,
        "lastSignalAt": agent.clock.now,
        "nextPlannedAt": agent.clock.now + HOUR,
    }
    assert after == {**before, "head": {**before["head"], **moved}}
    assert agent.clock.now >= deadlines[0]
    assert agent.signal()[0] == PRESENT
    assert agent.status(0) == OVERDUE


def test_2_partial_cycle_moves_only_the_deadlines_of_the_layers_it_completed(agent: Agent) -> None:
    before = agent.deadlines()
    agent.report(completed_layers=0b0011, outcome=PARTIAL)
    now = agent.clock.now
    assert agent.deadlines() == [now + DAY, now + 7 * DAY, before[2], before[3]]


def test_3_layer_never_completed_counts_from_enrollment_and_only_a_completion_moves_its_anchor(
    agent: Agent,
) -> None:
    enrolled_at = agent.head()["enrolledAt"]
    assert agent.deadline(0) == enrolled_at + DAY
    agent.clock.wait(2 * DAY)
    assert agent.status(0) == OVERDUE
    agent.set_policy(max_interval=(5 * DAY, 7 * DAY, 30 * DAY, 90 * DAY))
    assert agent.deadline(0) == enrolled_at + 5 * DAY
    agent.report(layer_mask=0b0001)
    assert agent.deadline(0) == agent.clock.now + 5 * DAY


def test_4_cycle_submitted_late_keeps_the_time_at_which_it_ended(agent: Agent) -> None:
    ended_at = agent.clock.now
    agent.clock.wait(20 * HOUR)
    agent.report(reported_ended_at=ended_at)
    checkpoint = agent.checkpoint(0)
    assert (checkpoint["lastCompletedAt"], checkpoint["lastCompletedRecordedAt"]) == (
        ended_at,
        agent.clock.now,
    )
    assert agent.deadline(0) == ended_at + DAY
    assert agent.head()["lastSignalAt"] == agent.clock.now


def test_5_cycle_computed_against_an_outdated_state_cannot_overwrite_a_newer_one(agent: Agent) -> None:
    outdated = agent.cycle(post_commitments=agent.changed(2))
    agent.change(0)
    registry, newer = agent.registry, agent.root_at(2)
    refusal = registry.refusal("report", agent.address, outdated, sender=agent.address)
    assert refusal == ("BadBaseVersion", 2, 1)
    refusal = agent.report_refusal(pre_root=outdated.pre_root, post_commitments=outdated.post_commitments)
    assert refusal == ("BadPreRoot", newer, outdated.pre_root)
    assert agent.head()["root"] == newer


def test_6_record_that_changes_a_layer_outside_its_scope_is_rejected(agent: Agent) -> None:
    post = agent.changed(3)
    refusal = agent.report_refusal(layer_mask=0b0111, post_commitments=post)
    assert refusal == ("UnscopedLayerChanged", 3, BASELINE[3], post[3])


def test_7_policy_version_that_was_not_in_effect_at_the_start_is_rejected_in_both_directions(
    agent: Agent,
) -> None:
    before = agent.clock.now
    changed_at = agent.clock.wait(HOUR)
    agent.set_policy()
    after = agent.clock.wait(HOUR)
    refusal = agent.report_refusal(policy_version=2, reported_started_at=before)
    assert refusal == ("PolicyNotYetEffective", changed_at, before)
    refusal = agent.report_refusal(policy_version=1, reported_started_at=after)
    assert refusal == ("PolicySuperseded", changed_at, after)


def test_8_record_that_ends_no_later_than_a_completion_is_rejected_so_none_is_registered_twice(
    agent: Agent,
) -> None:
    cycle = agent.cycle()
    agent.registry.send("report", agent.address, cycle, sender=agent.address)
    agent.clock.wait(HOUR)
    refusal = agent.registry.refusal("report", agent.address, cycle, sender=agent.address)
    assert refusal == ("CompletionNotLater", 0, cycle.reported_ended_at, cycle.reported_ended_at)


def test_9_subject_cannot_undercut_the_floor_nor_touch_the_controller_nor_set_the_floor(
    controlled: Agent, controller: str, outsider: str
) -> None:
    registry = controlled.registry
    floor = Floor(required_layers=0b1001, pulse_interval=HOUR, max_interval=(HOUR, 0, 0, DAY))
    registry.send("setFloor", controlled.address, floor, sender=controller)
    controlled.set_policy(supported_layers=0b0010, required_layers=0, pulse_interval=0, max_interval=(90 * DAY,) * 4)
    assert controlled.requirements() == {
        "supportedLayers": 0b0010,
        "requiredLayers": 0b1001,
        "dueWindow": POLICY.due_window,
        "pulseInterval": HOUR,
        "maxInterval": (HOUR, 0, 0, DAY),
    }
    for new_controller, rights in [(outsider, ALL_RIGHTS), (NOBODY, 0), (controller, 0)]:
        refusal = registry.refusal(
            "setController", controlled.address, new_controller, rights, sender=controlled.address
        )
        assert refusal == ("NotController", controller, controlled.address)
    refusal = registry.refusal("setFloor", controlled.address, Floor(), sender=controlled.address)
    assert refusal == ("NotController", controller, controlled.address)


def test_10_demand_lowers_the_deadline_until_a_completion_that_does_not_precede_it(
    controlled: Agent, controller: str
) -> None:
    ended_before = controlled.clock.now
    demanded_at = controlled.clock.wait(HOUR)
    due_by = demanded_at + HOUR
    controlled.registry.send("demand", controlled.address, 0b0001, due_by, sender=controller)
    assert controlled.deadline(0) == due_by

    controlled.clock.wait(60)
    controlled.report(layer_mask=0b0001, reported_ended_at=ended_before)
    assert controlled.deadline(0) == due_by

    controlled.report(layer_mask=0b0001, reported_ended_at=demanded_at)
    assert controlled.deadline(0) == demanded_at + DAY


def test_11_rollback_is_a_new_version_with_an_earlier_root_and_a_false_claim_is_rejected(
    agent: Agent,
) -> None:
    agent.change(0)
    agent.change(1)
    refusal = agent.report_refusal(post_commitments=BASELINE, restores_version=2)
    assert refusal == ("BadRestoredRoot", agent.root_at(2), agent.root_at(1))
    refusal = agent.report_refusal(post_commitments=BASELINE, restores_version=3)
    assert refusal == ("BadRestoresVersion", 3, 3)
    agent.report(post_commitments=BASELINE, restores_version=1)
    assert agent.head()["stateVersion"] == 4
    assert agent.root_at(4) == agent.root_at(1)


def test_12_subject_is_silent_and_fresh_at_one_time_present_and_overdue_at_another(agent: Agent) -> None:
    agent.report()
    agent.clock.wait(7 * HOUR)
    assert (agent.signal()[0], agent.status(0)) == (SILENT, FRESH)
    agent.clock.wait(17 * HOUR)
    agent.pulse()
    assert (agent.signal()[0], agent.status(0)) == (PRESENT, OVERDUE)


def test_12_pulse_right_at_the_deadline_does_not_move_it(agent: Agent) -> None:
    """Activity taken for maintenance is the confusion that this registry exists to avoid."""
    deadline = agent.deadline(0)
    agent.clock.wait_until(deadline - POLICY.due_window)
    agent.pulse()
    assert (agent.status(0), agent.deadline(0)) == (DUE, deadline)
    agent.clock.wait_until(deadline)
    agent.pulse()
    assert (agent.status(0), agent.deadline(0)) == (OVERDUE, deadline)
    assert [agent.checkpoint(layer)["lastCompletedAt"] for layer in LAYERS] == [0] * 4


def test_13_interface_id_is_the_xor_of_the_selectors_of_the_23_functions(registry: Contract) -> None:
    other_standards = {"supportsInterface", "clock", "CLOCK_MODE"}
    functions = [entry for name, entry in registry.functions.items() if name not in other_standards]
    assert len(functions) == 23
    xor = reduce(int.__xor__, (int.from_bytes(selector_of(entry), "big") for entry in functions))
    assert xor == 0x9C81B550
