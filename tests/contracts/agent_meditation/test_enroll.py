"""enroll: a subject registers itself, once."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest

from meditation_chain import Contract
from meditation_examples import ALL_RIGHTS, BASELINE, POLICY, POLICY_DEFECTS, Agent
from models.meditation import LAYERS, NOBODY, compute_root


def test_enroll_registers_the_baseline_and_the_first_policy(registry: Contract, subject: str, controller: str) -> None:
    agent = Agent(registry, subject).enroll(controller=controller, rights=ALL_RIGHTS)
    now, root = registry.clock.now, compute_root(BASELINE)
    assert agent.head() == {
        "enrolled": True,
        "controller": controller,
        "controllerRights": ALL_RIGHTS,
        "policyVersion": 1,
        "floorVersion": 0,
        "stateVersion": 1,
        "recordCount": 0,
        "root": root,
        "enrolledAt": now,
        "lastSignalAt": now,
        "nextPlannedAt": 0,
    }
    assert agent.root_at(1) == root
    assert registry.call("policyOf", subject, 1) == astuple(POLICY)
    assert registry.call("policyEffectiveFrom", subject, 1) == now


def test_baseline_completes_no_layer(registry: Contract, subject: str) -> None:
    agent = Agent(registry, subject).enroll()
    for layer in LAYERS:
        assert registry.call("checkpointOf", subject, layer) == (BASELINE[layer], 0, 0, 0, 1)
        assert registry.call("layerStatus", subject, layer)[2] is True
    assert agent.head()["recordCount"] == 0


def test_enroll_tells_of_the_enrollment_and_then_of_the_policy(
    registry: Contract, subject: str, controller: str
) -> None:
    now = registry.clock.now
    assert registry.send("enroll", BASELINE, POLICY, controller, 5, sender=subject) == [
        (
            "Enrolled",
            {
                "subject": subject,
                "controller": controller,
                "controllerRights": 5,
                "root": compute_root(BASELINE),
                "enrolledAt": now,
            },
        ),
        (
            "PolicyUpdated",
            {
                "subject": subject,
                "version": 1,
                "policyHash": POLICY.policy_hash,
                "effectiveFrom": now,
                "by": subject,
            },
        ),
    ]


def test_enroll_accepts_a_controller_without_rights(registry: Contract, subject: str, controller: str) -> None:
    head = Agent(registry, subject).enroll(controller=controller, rights=0).head()
    assert (head["controller"], head["controllerRights"]) == (controller, 0)


def test_enroll_accepts_an_all_zero_baseline(registry: Contract, subject: str) -> None:
    registry.send("enroll", (bytes(32),) * 4, POLICY, NOBODY, 0, sender=subject)
    assert Agent(registry, subject).head()["root"] == compute_root((bytes(32),) * 4)


def test_enroll_refuses_a_second_time(agent: Agent) -> None:
    refusal = agent.registry.refusal("enroll", BASELINE, POLICY, NOBODY, 0, sender=agent.address)
    assert refusal == ("AlreadyEnrolled", agent.address)


@pytest.mark.parametrize("rights", [0x08, 0x0F, 0xFF])
def test_enroll_refuses_rights_that_do_not_exist(
    registry: Contract, subject: str, controller: str, rights: int
) -> None:
    refusal = registry.refusal("enroll", BASELINE, POLICY, controller, rights, sender=subject)
    assert refusal == ("InvalidRights", 0b111, rights)


def test_enroll_refuses_the_subject_as_its_own_controller(registry: Contract, subject: str) -> None:
    refusal = registry.refusal("enroll", BASELINE, POLICY, subject, 1, sender=subject)
    assert refusal == ("ControllerIsSubject", subject)


def test_enroll_refuses_rights_for_nobody(registry: Contract, subject: str) -> None:
    refusal = registry.refusal("enroll", BASELINE, POLICY, NOBODY, 1, sender=subject)
    assert refusal == ("RightsWithoutController", 1)


@pytest.mark.parametrize(("changes", "expected"), POLICY_DEFECTS)
def test_enroll_refuses_an_invalid_policy(
    registry: Contract, subject: str, changes: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    policy = replace(POLICY, **changes)
    assert registry.refusal("enroll", BASELINE, policy, NOBODY, 0, sender=subject) == expected


def test_enroll_judges_the_controller_before_the_policy(registry: Contract, subject: str) -> None:
    policy = replace(POLICY, supported_layers=0)
    refusal = registry.refusal("enroll", BASELINE, policy, subject, 8, sender=subject)
    assert refusal == ("InvalidRights", 7, 8)
    refusal = registry.refusal("enroll", BASELINE, policy, subject, 7, sender=subject)
    assert refusal == ("ControllerIsSubject", subject)
    refusal = registry.refusal("enroll", BASELINE, policy, NOBODY, 7, sender=subject)
    assert refusal == ("RightsWithoutController", 7)
    refusal = registry.refusal("enroll", BASELINE, policy, NOBODY, 0, sender=subject)
    assert refusal == ("InvalidLayerMask", 0)


def test_enroll_refuses_the_second_time_before_anything_else(agent: Agent) -> None:
    policy = replace(POLICY, supported_layers=0)
    refusal = agent.registry.refusal("enroll", BASELINE, policy, agent.address, 8, sender=agent.address)
    assert refusal == ("AlreadyEnrolled", agent.address)


def test_subjects_do_not_share_anything(agent: Agent, stranger: Agent) -> None:
    before = agent.everything()
    stranger.enroll()
    stranger.change(0, 1)
    stranger.pulse()
    assert agent.everything() == before
