"""demand: a controller asks for layers to be completed by a time."""

from __future__ import annotations

import pytest

from meditation_chain import Contract
from meditation_examples import ALL_PERMISSIONS, DAY, HOUR, Agent
from models.meditation import (
    LATEST_TIME,
    LAYERS,
    NOBODY,
    RIGHT_DEMAND,
    RIGHT_FLOOR,
    RIGHT_REVOKE_OPERATORS,
    UNSCHEDULED,
)


@pytest.mark.parametrize("mask", range(1, 16))
def test_demand_is_kept_for_exactly_the_layers_named(controlled: Agent, controller: str, mask: int) -> None:
    now, due_by = controlled.clock.now, controlled.clock.now + DAY
    events = controlled.registry.send("demand", controlled.address, mask, due_by, sender=controller)
    values = {"subject": controlled.address, "layerMask": mask, "dueBy": due_by, "by": controller}
    assert events == [("Demanded", values)]
    for layer in LAYERS:
        assert controlled.demand(layer) == ((now, due_by) if mask >> layer & 1 else (0, 0))


def test_demand_lowers_a_deadline_and_never_raises_one(controlled: Agent, controller: str) -> None:
    before = controlled.deadlines()
    controlled.registry.send("demand", controlled.address, 0b0010, before[1] - 1, sender=controller)
    controlled.registry.send("demand", controlled.address, 0b0100, before[2] + 1, sender=controller)
    assert controlled.deadlines() == [before[0], before[1] - 1, before[2], before[3]]


def test_later_demand_replaces_the_earlier_even_if_it_asks_for_less(controlled: Agent, controller: str) -> None:
    controlled.registry.send("demand", controlled.address, 0b0011, controlled.clock.now + HOUR, sender=controller)
    first = controlled.demand(1)
    now = controlled.clock.wait(60)
    controlled.registry.send("demand", controlled.address, 0b0001, now + DAY, sender=controller)
    assert controlled.demand(0) == (now, now + DAY)
    assert controlled.demand(1) == first


def test_demand_may_name_a_layer_that_is_not_required(controlled: Agent, controller: str) -> None:
    controlled.set_policy(required_layers=0b0001)
    due_by = controlled.clock.now + HOUR
    controlled.registry.send("demand", controlled.address, 0b1000, due_by, sender=controller)
    assert controlled.demand(3) == (controlled.clock.now, due_by)
    assert controlled.registry.call("layerStatus", controlled.address, 3) == (UNSCHEDULED, 0, True)


def test_demand_changes_no_state(controlled: Agent, controller: str) -> None:
    before = controlled.everything()
    controlled.registry.send("demand", controlled.address, 0x0F, LATEST_TIME, sender=controller)
    after = controlled.everything()
    assert {**after, "demands": None} == {**before, "demands": None}


def test_demand_refuses_an_unknown_subject(registry: Contract, outsider: str) -> None:
    assert registry.refusal("demand", outsider, 0, 0, sender=outsider) == ("NotEnrolled", outsider)


def test_demand_refuses_the_subject_and_its_operators(controlled: Agent, controller: str, operator: str) -> None:
    controlled.grant(operator, ALL_PERMISSIONS)
    for caller in (controlled.address, operator):
        refusal = controlled.registry.refusal("demand", controlled.address, 1, LATEST_TIME, sender=caller)
        assert refusal == ("NotController", controller, caller)


def test_demand_expects_nobody_where_there_is_no_controller(agent: Agent) -> None:
    refusal = agent.registry.refusal("demand", agent.address, 1, LATEST_TIME, sender=agent.address)
    assert refusal == ("NotController", NOBODY, agent.address)


@pytest.mark.parametrize("rights", [0, RIGHT_FLOOR, RIGHT_REVOKE_OPERATORS, RIGHT_FLOOR | RIGHT_REVOKE_OPERATORS])
def test_demand_refuses_a_controller_without_the_right(
    registry: Contract, subject: str, controller: str, rights: int
) -> None:
    Agent(registry, subject).enroll(controller=controller, rights=rights)
    refusal = registry.refusal("demand", subject, 0, 0, sender=controller)
    assert refusal == ("MissingRight", RIGHT_DEMAND, rights)


@pytest.mark.parametrize("mask", [0, 0x10, 0x1F, 0xFF])
def test_demand_refuses_a_mask_without_layers_or_beyond_them(controlled: Agent, controller: str, mask: int) -> None:
    refusal = controlled.registry.refusal("demand", controlled.address, mask, 0, sender=controller)
    assert refusal == ("InvalidLayerMask", mask)


@pytest.mark.parametrize("ahead", [-1, 0])
def test_demand_refuses_a_time_that_is_not_ahead(controlled: Agent, controller: str, ahead: int) -> None:
    now = controlled.clock.now
    refusal = controlled.registry.refusal("demand", controlled.address, 1, now + ahead, sender=controller)
    assert refusal == ("DueByNotInFuture", now, now + ahead)


def test_demand_accepts_the_very_next_second(controlled: Agent, controller: str) -> None:
    due_by = controlled.clock.now + 1
    controlled.registry.send("demand", controlled.address, 1, due_by, sender=controller)
    assert controlled.deadline(0) == due_by
