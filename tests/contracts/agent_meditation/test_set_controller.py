"""setController: the subject appoints; then the position is the controller's, and its rights only shrink."""

from __future__ import annotations

from typing import Any

import pytest

from meditation_chain import Contract
from meditation_examples import ALL_RIGHTS, DAY, FLOOR, Agent
from models.meditation import NOBODY, RIGHT_DEMAND, RIGHT_FLOOR


def changed(agent: Agent, previous: str, new: str, rights: int) -> list[Any]:
    values = {
        "subject": agent.address,
        "previousController": previous,
        "newController": new,
        "rights": rights,
    }
    return [("ControllerChanged", values)]


@pytest.mark.parametrize("rights", range(8))
def test_subject_without_a_controller_appoints_one_with_any_rights(agent: Agent, controller: str, rights: int) -> None:
    events = agent.registry.send("setController", agent.address, controller, rights, sender=agent.address)
    assert events == changed(agent, NOBODY, controller, rights)
    assert (agent.head()["controller"], agent.head()["controllerRights"]) == (controller, rights)


@pytest.mark.parametrize("held", range(8))
@pytest.mark.parametrize("given", range(8))
def test_position_is_handed_on_with_a_subset_of_the_rights(
    registry: Contract, subject: str, controller: str, outsider: str, held: int, given: int
) -> None:
    agent = Agent(registry, subject).enroll(controller=controller, rights=held)
    if given & held == given:
        events = registry.send("setController", subject, outsider, given, sender=controller)
        assert events == changed(agent, controller, outsider, given)
    else:
        refusal = registry.refusal("setController", subject, outsider, given, sender=controller)
        assert refusal == ("InvalidRights", held, given)


def test_controller_shrinks_its_own_rights_for_good(controlled: Agent, controller: str) -> None:
    registry = controlled.registry
    registry.send("setController", controlled.address, controller, RIGHT_DEMAND, sender=controller)
    refusal = registry.refusal("setFloor", controlled.address, FLOOR, sender=controller)
    assert refusal == ("MissingRight", RIGHT_FLOOR, RIGHT_DEMAND)
    refusal = registry.refusal("setController", controlled.address, controller, ALL_RIGHTS, sender=controller)
    assert refusal == ("InvalidRights", RIGHT_DEMAND, ALL_RIGHTS)


def test_change_that_changes_nothing_is_accepted(controlled: Agent, controller: str) -> None:
    registry = controlled.registry
    events = registry.send("setController", controlled.address, controller, ALL_RIGHTS, sender=controller)
    assert events == changed(controlled, controller, controller, ALL_RIGHTS)


def test_subject_without_a_controller_may_appoint_nobody(agent: Agent) -> None:
    events = agent.registry.send("setController", agent.address, NOBODY, 0, sender=agent.address)
    assert events == changed(agent, NOBODY, NOBODY, 0)


def test_controller_renounces_and_its_requirements_stay(controlled: Agent, controller: str, outsider: str) -> None:
    registry, due_by = controlled.registry, controlled.clock.now + DAY
    registry.send("setFloor", controlled.address, FLOOR, sender=controller)
    registry.send("demand", controlled.address, 0b1000, due_by, sender=controller)
    events = registry.send("setController", controlled.address, NOBODY, 0, sender=controller)
    assert events == changed(controlled, controller, NOBODY, 0)
    head = controlled.head()
    assert (head["controller"], head["controllerRights"], head["floorVersion"]) == (NOBODY, 0, 1)
    assert controlled.requirements()["maxInterval"][0] == FLOOR.max_interval[0]
    assert controlled.demand(3)[1] == due_by

    registry.send("setController", controlled.address, outsider, RIGHT_FLOOR, sender=controlled.address)
    registry.send("setFloor", controlled.address, FLOOR, sender=outsider)
    assert controlled.head()["floorVersion"] == 2


def test_former_controller_has_no_say(controlled: Agent, controller: str, outsider: str) -> None:
    registry = controlled.registry
    registry.send("setController", controlled.address, outsider, 0, sender=controller)
    for function, arguments in [
        ("setFloor", (FLOOR,)),
        ("withdrawDemand", (1,)),
        ("setController", (controller, 0)),
    ]:
        refusal = registry.refusal(function, controlled.address, *arguments, sender=controller)
        assert refusal == ("NotController", outsider, controller)


def test_set_controller_refuses_an_unknown_subject(registry: Contract, outsider: str) -> None:
    refusal = registry.refusal("setController", outsider, outsider, 8, sender=outsider)
    assert refusal == ("NotEnrolled", outsider)


def test_set_controller_refuses_the_subject_once_it_has_a_controller(
    controlled: Agent, controller: str, outsider: str
) -> None:
    for new_controller, rights in [(outsider, 0), (NOBODY, 0), (controller, 1), (controller, 8)]:
        refusal = controlled.registry.refusal(
            "setController", controlled.address, new_controller, rights, sender=controlled.address
        )
        assert refusal == ("NotController", controller, controlled.address)


def test_set_controller_refuses_everybody_but_the_subject_without_a_controller(
    agent: Agent, operator: str, outsider: str
) -> None:
    agent.grant(operator, 7)
    for caller in (operator, outsider):
        refusal = agent.registry.refusal("setController", agent.address, caller, 8, sender=caller)
        assert refusal == ("NotSubject", agent.address, caller)


def test_set_controller_refuses_the_subject_as_controller(agent: Agent, stranger: Agent, controller: str) -> None:
    stranger.enroll(controller=controller, rights=ALL_RIGHTS)
    refusal = agent.registry.refusal("setController", agent.address, agent.address, 0, sender=agent.address)
    assert refusal == ("ControllerIsSubject", agent.address)
    refusal = agent.registry.refusal("setController", stranger.address, stranger.address, 0, sender=controller)
    assert refusal == ("ControllerIsSubject", stranger.address)


def test_set_controller_refuses_rights_for_nobody(controlled: Agent, controller: str) -> None:
    refusal = controlled.registry.refusal("setController", controlled.address, NOBODY, 1, sender=controller)
    assert refusal == ("RightsWithoutController", 1)


def test_set_controller_judges_rights_before_the_address(agent: Agent) -> None:
    registry = agent.registry
    refusal = registry.refusal("setController", agent.address, agent.address, 8, sender=agent.address)
    assert refusal == ("InvalidRights", 7, 8)
    refusal = registry.refusal("setController", agent.address, NOBODY, 8, sender=agent.address)
    assert refusal == ("InvalidRights", 7, 8)
