"""revokeOperator: the subject, or a controller with the right, takes every permission away."""

from __future__ import annotations

from typing import Any

import pytest

from meditation_chain import Contract
from meditation_examples import ALL_PERMISSIONS, ALL_RIGHTS, Agent
from models.meditation import NOBODY, RIGHT_DEMAND, RIGHT_FLOOR, RIGHT_REVOKE_OPERATORS


def revoked(agent: Agent, operator: str, by: str) -> list[Any]:
    return [("OperatorSet", {"subject": agent.address, "operator": operator, "permissions": 0, "by": by})]


def test_revoke_operator_takes_every_permission(agent: Agent, operator: str) -> None:
    agent.grant(operator, ALL_PERMISSIONS)
    events = agent.registry.send("revokeOperator", agent.address, operator, sender=agent.address)
    assert events == revoked(agent, operator, agent.address)
    assert agent.registry.call("operatorPermissions", agent.address, operator) == 0


def test_revoke_operator_is_open_to_a_controller_with_the_right(
    controlled: Agent, controller: str, operator: str
) -> None:
    controlled.grant(operator, ALL_PERMISSIONS)
    events = controlled.registry.send("revokeOperator", controlled.address, operator, sender=controller)
    assert events == revoked(controlled, operator, controller)
    assert controlled.registry.call("operatorPermissions", controlled.address, operator) == 0


def test_revoking_what_was_never_granted_is_no_error(agent: Agent, outsider: str) -> None:
    events = agent.registry.send("revokeOperator", agent.address, outsider, sender=agent.address)
    assert events == revoked(agent, outsider, agent.address)


def test_revoke_operator_leaves_other_operators_alone(agent: Agent, operator: str, outsider: str) -> None:
    agent.grant(operator, 1)
    agent.grant(outsider, 2)
    agent.registry.send("revokeOperator", agent.address, operator, sender=agent.address)
    assert agent.registry.call("operatorPermissions", agent.address, outsider) == 2


def test_revoke_operator_refuses_an_unknown_subject(registry: Contract, outsider: str, operator: str) -> None:
    assert registry.refusal("revokeOperator", outsider, operator, sender=outsider) == (
        "NotEnrolled",
        outsider,
    )


@pytest.mark.parametrize("rights", [0, RIGHT_FLOOR, RIGHT_DEMAND, RIGHT_FLOOR | RIGHT_DEMAND])
def test_revoke_operator_refuses_a_controller_without_the_right(
    registry: Contract, subject: str, controller: str, operator: str, rights: int
) -> None:
    Agent(registry, subject).enroll(controller=controller, rights=rights)
    refusal = registry.refusal("revokeOperator", subject, operator, sender=controller)
    assert refusal == ("MissingRight", RIGHT_REVOKE_OPERATORS, rights)


def test_revoke_operator_refuses_everybody_else(controlled: Agent, controller: str, operator: str) -> None:
    controlled.grant(operator, ALL_PERMISSIONS)
    refusal = controlled.registry.refusal("revokeOperator", controlled.address, operator, sender=operator)
    assert refusal == ("NotController", controller, operator)


def test_revoke_operator_expects_nobody_where_there_is_no_controller(agent: Agent, operator: str) -> None:
    refusal = agent.registry.refusal("revokeOperator", agent.address, operator, sender=operator)
    assert refusal == ("NotController", NOBODY, operator)


def test_former_controller_revokes_nothing(controlled: Agent, controller: str, operator: str, outsider: str) -> None:
    controlled.registry.send("setController", controlled.address, outsider, ALL_RIGHTS, sender=controller)
    refusal = controlled.registry.refusal("revokeOperator", controlled.address, operator, sender=controller)
    assert refusal == ("NotController", outsider, controller)
