"""setFloor: the least that a controller requires, joined with every policy."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest

from meditation_chain import Contract
from meditation_examples import ALL_PERMISSIONS, DAY, FLOOR, HOUR, POLICY, Agent
from models.meditation import NOBODY, OVERDUE, RIGHT_DEMAND, RIGHT_FLOOR, RIGHT_REVOKE_OPERATORS, Floor


def set_floor(agent: Agent, by: str, **changes: Any) -> list[Any]:
    return agent.registry.send("setFloor", agent.address, replace(FLOOR, **changes), sender=by)


def test_set_floor_replaces_the_floor_and_counts_it(controlled: Agent, controller: str) -> None:
    assert controlled.head()["floorVersion"] == 0
    for version, floor in enumerate([FLOOR, Floor(0b1000, 7, (0, 0, 0, 5)), Floor()], start=1):
        events = controlled.registry.send("setFloor", controlled.address, floor, sender=controller)
        values = {
            "subject": controlled.address,
            "version": version,
            "effectiveFrom": controlled.clock.now,
            "by": controller,
        }
        assert events == [("FloorUpdated", values)]
        assert controlled.registry.call("floorOf", controlled.address) == astuple(floor)
        assert controlled.head()["floorVersion"] == version
    head = controlled.head()
    assert (head["controller"], head["controllerRights"]) == (controller, 7)


def test_effective_interval_is_the_shorter_of_those_who_require_the_layer(controlled: Agent, controller: str) -> None:
    controlled.set_policy(required_layers=0b0111, max_interval=(100, 100, 100, 100))
    set_floor(controlled, controller, required_layers=0b1011, max_interval=(50, 200, 10, 70))
    assert controlled.requirements()["requiredLayers"] == 0b1111
    assert controlled.requirements()["maxInterval"] == (50, 100, 100, 70)


def test_interval_of_a_layer_that_nobody_requires_is_zero(controlled: Agent, controller: str) -> None:
    controlled.set_policy(required_layers=0b0001)
    set_floor(controlled, controller, required_layers=0b0010, max_interval=(9, 9, 9, 9))
    assert controlled.requirements()["maxInterval"] == (DAY, 9, 0, 0)


@pytest.mark.parametrize(
    ("by_policy", "by_floor", "effective"),
    [(0, 0, 0), (0, 5, 5), (5, 0, 5), (5, 6, 5), (6, 5, 5), (5, 5, 5)],
)
def test_effective_pulse_interval_is_the_shorter_that_is_not_zero(
    controlled: Agent, controller: str, by_policy: int, by_floor: int, effective: int
) -> None:
    controlled.set_policy(pulse_interval=by_policy)
    set_floor(controlled, controller, pulse_interval=by_floor)
    assert controlled.requirements()["pulseInterval"] == effective


def test_supported_layers_and_due_window_are_the_policys(controlled: Agent, controller: str) -> None:
    controlled.set_policy(supported_layers=0b0111, required_layers=0b0001, due_window=77)
    set_floor(controlled, controller, required_layers=0b1000, max_interval=(0, 0, 0, DAY))
    assert controlled.requirements()["supportedLayers"] == 0b0111
    assert controlled.requirements()["dueWindow"] == 77


def test_floor_may_require_a_layer_that_the_policy_does_not_support(controlled: Agent, controller: str) -> None:
    controlled.set_policy(supported_layers=0b0001, required_layers=0b0001)
    set_floor(controlled, controller, required_layers=0b1000, max_interval=(0, 0, 0, HOUR))
    assert controlled.status(3) == OVERDUE
    assert controlled.deadline(3) == controlled.head()["enrolledAt"] + HOUR


def test_floor_may_require_nothing(controlled: Agent, controller: str) -> None:
    set_floor(controlled, controller)
    set_floor(controlled, controller, required_layers=0, pulse_interval=0, max_interval=(0, 0, 0, 0))
    assert controlled.requirements()["maxInterval"] == POLICY.max_interval


def test_set_floor_changes_no_checkpoint_and_is_no_record(controlled: Agent, controller: str) -> None:
    controlled.report()
    before = controlled.everything()
    set_floor(controlled, controller)
    after = controlled.everything()
    assert after["checkpoints"] == before["checkpoints"]
    assert after["head"] == {**before["head"], "floorVersion": 1}


def test_set_floor_refuses_an_unknown_subject(registry: Contract, outsider: str) -> None:
    assert registry.refusal("setFloor", outsider, FLOOR, sender=outsider) == ("NotEnrolled", outsider)


def test_set_floor_refuses_the_subject_and_its_operators(controlled: Agent, controller: str, operator: str) -> None:
    controlled.grant(operator, ALL_PERMISSIONS)
    for caller in (controlled.address, operator):
        refusal = controlled.registry.refusal("setFloor", controlled.address, FLOOR, sender=caller)
        assert refusal == ("NotController", controller, caller)


def test_set_floor_expects_nobody_where_there_is_no_controller(agent: Agent) -> None:
    refusal = agent.registry.refusal("setFloor", agent.address, FLOOR, sender=agent.address)
    assert refusal == ("NotController", NOBODY, agent.address)


@pytest.mark.parametrize("rights", [0, RIGHT_DEMAND, RIGHT_REVOKE_OPERATORS, RIGHT_DEMAND | RIGHT_REVOKE_OPERATORS])
def test_set_floor_refuses_a_controller_without_the_right(
    registry: Contract, subject: str, controller: str, rights: int
) -> None:
    Agent(registry, subject).enroll(controller=controller, rights=rights)
    floor = replace(FLOOR, required_layers=0x10)
    assert registry.refusal("setFloor", subject, floor, sender=controller) == (
        "MissingRight",
        RIGHT_FLOOR,
        rights,
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"required_layers": 0x10}, ("InvalidLayerMask", 0x10)),
        ({"required_layers": 0xFF, "max_interval": (0, 0, 0, 0)}, ("InvalidLayerMask", 0xFF)),
        ({"required_layers": 0x0F, "max_interval": (0, 1, 1, 1)}, ("MissingInterval", 0)),
        ({"required_layers": 0x0F, "max_interval": (1, 0, 1, 1)}, ("MissingInterval", 1)),
        ({"required_layers": 0x0F, "max_interval": (1, 1, 0, 0)}, ("MissingInterval", 2)),
        ({"required_layers": 0x08, "max_interval": (1, 1, 1, 0)}, ("MissingInterval", 3)),
    ],
)
def test_set_floor_refuses_an_invalid_floor(
    controlled: Agent, controller: str, changes: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    floor = replace(FLOOR, **changes)
    assert controlled.registry.refusal("setFloor", controlled.address, floor, sender=controller) == expected
