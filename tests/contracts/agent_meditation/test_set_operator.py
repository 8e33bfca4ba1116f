"""setOperator: the subject grants, replaces and takes permissions."""

from __future__ import annotations

import pytest

from meditation_chain import Contract
from meditation_examples import Agent
from models.meditation import NOBODY, PERM_POLICY, PERM_PULSE, PERM_REPORT


@pytest.mark.parametrize("permissions", range(8))
def test_set_operator_grants_exactly_these_permissions(agent: Agent, operator: str, permissions: int) -> None:
    agent.grant(operator, 7)
    assert agent.grant(operator, permissions) == [
        (
            "OperatorSet",
            {
                "subject": agent.address,
                "operator": operator,
                "permissions": permissions,
                "by": agent.address,
            },
        )
    ]
    assert agent.registry.call("operatorPermissions", agent.address, operator) == permissions


def test_permission_is_held_for_one_subject_by_one_operator(
    agent: Agent, stranger: Agent, operator: str, outsider: str
) -> None:
    stranger.enroll()
    agent.grant(operator, PERM_REPORT)
    assert agent.registry.call("operatorPermissions", stranger.address, operator) == 0
    assert agent.registry.call("operatorPermissions", agent.address, outsider) == 0
    refusal = agent.registry.refusal("pulse", stranger.address, 0, sender=operator)
    assert refusal == ("MissingPermission", PERM_REPORT | PERM_PULSE, 0)


def test_set_operator_with_nothing_revokes(agent: Agent, operator: str) -> None:
    agent.grant(operator, PERM_REPORT)
    agent.grant(operator, 0)
    refusal = agent.registry.refusal("pulse", agent.address, 0, sender=operator)
    assert refusal == ("MissingPermission", PERM_REPORT | PERM_PULSE, 0)


def test_controller_may_be_an_operator_for_policy(controlled: Agent, controller: str) -> None:
    controlled.grant(controller, PERM_POLICY)
    assert controlled.registry.call("operatorPermissions", controlled.address, controller) == PERM_POLICY


def test_set_operator_refuses_a_caller_that_is_not_enrolled(registry: Contract, outsider: str, operator: str) -> None:
    assert registry.refusal("setOperator", operator, 1, sender=outsider) == ("NotEnrolled", outsider)


def test_set_operator_refuses_nobody_and_the_subject_itself(agent: Agent) -> None:
    for operator in (NOBODY, agent.address):
        for permissions in (0, 1, 8):
            refusal = agent.registry.refusal("setOperator", operator, permissions, sender=agent.address)
            assert refusal == ("InvalidOperator", operator)


@pytest.mark.parametrize("permissions", [8, 9, 0xF0, 0xFF])
def test_set_operator_refuses_permissions_that_do_not_exist(agent: Agent, operator: str, permissions: int) -> None:
    refusal = agent.registry.refusal("setOperator", operator, permissions, sender=agent.address)
    assert refusal == ("InvalidPermissions", 0b111, permissions)
