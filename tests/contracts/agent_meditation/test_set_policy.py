"""setPolicy: a new version, in effect from now, that moves no completion."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest

from meditation_chain import Contract
from meditation_examples import DAY, POLICY, POLICY_DEFECTS, Agent, a_commitment
from models.meditation import PERM_POLICY, PERM_PULSE, PERM_REPORT


def updated(agent: Agent, version: int, policy_hash: bytes, by: str) -> list[Any]:
    values = {
        "subject": agent.address,
        "version": version,
        "policyHash": policy_hash,
        "effectiveFrom": agent.clock.now,
        "by": by,
    }
    return [("PolicyUpdated", values)]


def test_set_policy_appends_a_version_in_effect_from_now(agent: Agent) -> None:
    policy = replace(POLICY, policy_hash=a_commitment("policy 2"), disclosure=2, due_window=5)
    events = agent.registry.send("setPolicy", agent.address, policy, sender=agent.address)
    assert events == updated(agent, 2, policy.policy_hash, agent.address)
    assert agent.head()["policyVersion"] == 2
    assert agent.registry.call("policyOf", agent.address, 2) == astuple(policy)
    assert agent.registry.call("policyEffectiveFrom", agent.address, 2) == agent.clock.now


def test_set_policy_leaves_earlier_versions_as_they_were(agent: Agent) -> None:
    first = (
        agent.registry.call("policyOf", agent.address, 1),
        agent.registry.call("policyEffectiveFrom", agent.address, 1),
    )
    agent.set_policy(supported_layers=1, required_layers=1, policy_uri="ipfs://another")
    assert first == (
        agent.registry.call("policyOf", agent.address, 1),
        agent.registry.call("policyEffectiveFrom", agent.address, 1),
    )


def test_set_policy_changes_no_checkpoint_and_is_no_record(agent: Agent) -> None:
    agent.change(1)
    agent.report(layer_mask=0b0101, reported_ended_at=agent.clock.now)
    agent.clock.wait(DAY)
    before = agent.everything()
    agent.set_policy(max_interval=(1, 1, 1, 1))
    after = agent.everything()
    assert after["checkpoints"] == before["checkpoints"]
    assert after["roots"] == before["roots"]
    assert after["head"] == {**before["head"], "policyVersion": 2}


def test_set_policy_is_open_to_an_operator_for_policy(agent: Agent, operator: str) -> None:
    agent.grant(operator, PERM_POLICY)
    events = agent.registry.send("setPolicy", agent.address, POLICY, sender=operator)
    assert events == updated(agent, 2, POLICY.policy_hash, operator)


def test_set_policy_is_open_to_a_controller_that_is_also_an_operator_for_policy(
    controlled: Agent, controller: str
) -> None:
    controlled.grant(controller, PERM_POLICY)
    controlled.registry.send("setPolicy", controlled.address, POLICY, sender=controller)
    assert controlled.head()["policyVersion"] == 2


def test_policy_may_commit_to_no_document(agent: Agent) -> None:
    agent.set_policy(policy_hash=bytes(32))
    assert agent.registry.call("policyOf", agent.address, 2)[0] == bytes(32)


def test_policy_may_require_nothing_and_have_no_intervals(agent: Agent) -> None:
    agent.set_policy(required_layers=0, max_interval=(0, 0, 0, 0))
    assert agent.requirements()["requiredLayers"] == 0


def test_set_policy_refuses_an_unknown_subject(registry: Contract, outsider: str) -> None:
    policy = replace(POLICY, supported_layers=0)
    assert registry.refusal("setPolicy", outsider, policy, sender=outsider) == ("NotEnrolled", outsider)


@pytest.mark.parametrize("permissions", [0, PERM_REPORT, PERM_PULSE, PERM_REPORT | PERM_PULSE])
def test_set_policy_refuses_an_operator_without_the_permission(agent: Agent, operator: str, permissions: int) -> None:
    agent.grant(operator, permissions)
    policy = replace(POLICY, supported_layers=0)
    refusal = agent.registry.refusal("setPolicy", agent.address, policy, sender=operator)
    assert refusal == ("MissingPermission", PERM_POLICY, permissions)


def test_set_policy_refuses_the_controller(controlled: Agent, controller: str) -> None:
    refusal = controlled.registry.refusal("setPolicy", controlled.address, POLICY, sender=controller)
    assert refusal == ("MissingPermission", PERM_POLICY, 0)


@pytest.mark.parametrize(("changes", "expected"), POLICY_DEFECTS)
def test_set_policy_refuses_an_invalid_policy(agent: Agent, changes: dict[str, Any], expected: tuple[Any, ...]) -> None:
    policy = replace(POLICY, **changes)
    assert agent.registry.refusal("setPolicy", agent.address, policy, sender=agent.address) == expected


def test_set_policy_refuses_for_the_first_reason_in_the_order_of_the_text(agent: Agent) -> None:
    policy = replace(
        POLICY,
        supported_layers=0x10,
        required_layers=0x1F,
        allowed_triggers=0,
        disclosure=3,
        max_interval=(0, 0, 0, 0),
    )
    repairs: list[tuple[str, dict[str, Any]]] = [
        ("InvalidLayerMask", {"supported_layers": 0x0F}),
        ("RequiredNotSupported", {"required_layers": 0x0F}),
        ("InvalidTriggers", {"allowed_triggers": 1}),
        ("InvalidDisclosure", {"disclosure": 0}),
        ("MissingInterval", {"max_interval": (1, 1, 1, 1)}),
    ]
    for error, repair in repairs:
        assert agent.registry.refusal("setPolicy", agent.address, policy, sender=agent.address)[0] == error
        policy = replace(policy, **repair)
    agent.registry.send("setPolicy", agent.address, policy, sender=agent.address)
