"""withdrawDemand: a controller no longer asks."""

from __future__ import annotations

import pytest

from meditation_chain import Contract
from meditation_examples import ALL_PERMISSIONS, DAY, HOUR, Agent
from models.meditation import LAYERS, NOBODY, RIGHT_DEMAND, RIGHT_FLOOR, RIGHT_REVOKE_OPERATORS


@pytest.mark.parametrize("mask", range(1, 16))
def test_withdraw_demand_drops_exactly_the_layers_named(controlled: Agent, controller: str, mask: int) -> None:
    ordinary = controlled.deadlines()
    made = (controlled.clock.now, controlled.clock.now + HOUR)
    controlled.registry.send("demand", controlled.address, 0x0F, made[1], sender=controller)
    controlled.clock.wait(60)
    events = controlled.registry.send("withdrawDemand", controlled.address, mask, sender=controller)
    values = {"subject": controlled.address, "layerMask": mask, "by": controller}
    assert events == [("DemandWithdrawn", values)]
    for layer in LAYERS:
        withdrawn = mask >> layer & 1
        assert controlled.demand(layer) == ((0, 0) if withdrawn else made)
        assert controlled.deadline(layer) == (ordinary[layer] if withdrawn else made[1])


def test_withdrawing_what_was_never_demanded_is_no_error(controlled: Agent, controller: str) -> None:
    before = controlled.everything()
    controlled.registry.send("withdrawDemand", controlled.address, 0x0F, sender=controller)
    assert controlled.everything() == before


def test_next_controller_withdraws_what_the_last_demanded(controlled: Agent, controller: str, outsider: str) -> None:
    registry = controlled.registry
    registry.send("demand", controlled.address, 1, controlled.clock.now + DAY, sender=controller)
    registry.send("setController", controlled.address, outsider, RIGHT_DEMAND, sender=controller)
    registry.send("withdrawDemand", controlled.address, 1, sender=outsider)
    assert controlled.demand(0) == (0, 0)


def test_withdraw_demand_refuses_an_unknown_subject(registry: Contract, outsider: str) -> None:
    assert registry.refusal("withdrawDemand", outsider, 0, sender=outsider) == ("NotEnrolled", outsider)


def test_withdraw_demand_refuses_the_subject_and_its_operators(
    controlled: Agent, controller: str, operator: str
) -> None:
    controlled.grant(operator, ALL_PERMISSIONS)
    for caller in (controlled.address, operator):
        refusal = controlled.registry.refusal("withdrawDemand", controlled.address, 1, sender=caller)
        assert refusal == ("NotController", controller, caller)


def test_withdraw_demand_expects_nobody_where_there_is_no_controller(agent: Agent) -> None:
    refusal = agent.registry.refusal("withdrawDemand", agent.address, 1, sender=agent.address)
    assert refusal == ("NotController", NOBODY, agent.address)


@pytest.mark.parametrize("rights", [0, RIGHT_FLOOR, RIGHT_REVOKE_OPERATORS, RIGHT_FLOOR | RIGHT_REVOKE_OPERATORS])
def test_withdraw_demand_refuses_a_controller_without_the_right(
    registry: Contract, subject: str, controller: str, rights: int
) -> None:
    Agent(registry, subject).enroll(controller=controller, rights=rights)
    refusal = registry.refusal("withdrawDemand", subject, 0, sender=controller)
    assert refusal == ("MissingRight", RIGHT_DEMAND, rights)


@pytest.mark.parametrize("mask", [0, 0x10, 0x1F, 0xFF])
def test_withdraw_demand_refuses_a_mask_without_layers_or_beyond_them(
    controlled: Agent, controller: str, mask: int
) -> None:
    refusal = controlled.registry.refusal("withdrawDemand", controlled.address, mask, sender=controller)
    assert refusal == ("InvalidLayerMask", mask)
