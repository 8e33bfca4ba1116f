"""pulse: a sign of activity that refreshes nothing."""

from __future__ import annotations

import pytest

from meditation_chain import Contract
from meditation_examples import ALL_PERMISSIONS, DAY, HOUR, Agent
from models.meditation import PERM_POLICY, PERM_PULSE, PERM_REPORT, PRESENT, SILENT


def test_pulse_counts_signals_and_stores_the_plan(agent: Agent) -> None:
    before = agent.head()
    planned = agent.clock.now + DAY
    values = {
        "subject": agent.address,
        "seq": 1,
        "recordedAt": agent.clock.now,
        "nextPlannedAt": planned,
        "submitter": agent.address,
    }
    assert agent.registry.call("pulse", agent.address, planned, sender=agent.address) == 1
    assert agent.pulse(next_planned_at=planned) == [("Pulsed", values)]
    after = {**before, "recordCount": 1, "lastSignalAt": agent.clock.now, "nextPlannedAt": planned}
    assert agent.head() == after


def test_pulses_and_records_share_one_count(agent: Agent) -> None:
    agent.pulse()
    assert agent.report()[0][1]["seq"] == 2
    agent.clock.wait(1)
    assert agent.pulse()[0][1]["seq"] == 3
    assert agent.head()["recordCount"] == 3


def test_two_pulses_in_one_second_are_both_counted(agent: Agent) -> None:
    agent.pulse()
    agent.pulse()
    assert (agent.head()["recordCount"], agent.head()["lastSignalAt"]) == (2, agent.clock.now)


@pytest.mark.parametrize("planned", [0, 1, 2**48 - 1])
def test_plan_binds_nobody_and_may_lie_in_the_past(agent: Agent, planned: int) -> None:
    agent.pulse(next_planned_at=agent.clock.now + DAY)
    agent.pulse(next_planned_at=planned)
    assert agent.head()["nextPlannedAt"] == planned


def test_pulse_ends_a_silence(agent: Agent) -> None:
    agent.clock.wait(DAY)
    assert agent.signal()[0] == SILENT
    agent.pulse()
    assert agent.signal() == (PRESENT, agent.clock.now, 0)


def test_pulse_clears_no_demand(controlled: Agent, controller: str) -> None:
    made = (controlled.clock.now, controlled.clock.now + HOUR)
    controlled.registry.send("demand", controlled.address, 0x0F, made[1], sender=controller)
    controlled.pulse()
    assert [controlled.demand(layer) for layer in range(4)] == [made] * 4


@pytest.mark.parametrize("permissions", range(8))
def test_pulse_is_open_to_operators_for_pulses_or_reports(agent: Agent, operator: str, permissions: int) -> None:
    agent.grant(operator, permissions)
    if permissions & (PERM_PULSE | PERM_REPORT):
        event = agent.pulse(by=operator)[0][1]
        assert (event["subject"], event["submitter"]) == (agent.address, operator)
    else:
        refusal = agent.registry.refusal("pulse", agent.address, 0, sender=operator)
        assert refusal == ("MissingPermission", PERM_REPORT | PERM_PULSE, permissions)


def test_pulse_refuses_an_unknown_subject(registry: Contract, outsider: str) -> None:
    assert registry.refusal("pulse", outsider, 0, sender=outsider) == ("NotEnrolled", outsider)


@pytest.mark.parametrize("permissions", [0, PERM_POLICY, ALL_PERMISSIONS])
def test_pulse_refuses_the_controller_whatever_it_was_granted(
    controlled: Agent, controller: str, permissions: int
) -> None:
    controlled.grant(controller, permissions)
    refusal = controlled.registry.refusal("pulse", controlled.address, 0, sender=controller)
    assert refusal == ("ControllerCannotSubmit", controller)


def test_former_controller_pulses_with_the_permission_it_was_granted(
    controlled: Agent, controller: str, outsider: str
) -> None:
    controlled.grant(controller, PERM_PULSE)
    controlled.registry.send("setController", controlled.address, outsider, 0, sender=controller)
    assert controlled.pulse(by=controller)[0][1]["submitter"] == controller
