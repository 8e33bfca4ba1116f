"""A contract that relies on maintenance before it acts."""

from __future__ import annotations

from typing import Any

import pytest

from meditation_chain import Contract
from meditation_examples import BASELINE, DAY, Agent
from models.meditation import DUE, NOT_ENROLLED, OVERDUE, UNSCHEDULED, UNSUPPORTED


@pytest.fixture
def consumer(deployer: Any, project: Any, registry: Contract) -> Contract:
    deployed = deployer.deploy(project.MeditationConsumer, registry.address)
    abi = [entry.model_dump() for entry in deployed.contract_type.abi]
    request = deployed.provider.web3.provider.make_request
    registry.clock.wait(60)
    return Contract(request, registry.clock, deployed.address, abi)


def test_consumer_acts_with_a_counterparty_whose_layer_is_fresh(
    consumer: Contract, agent: Agent, outsider: str
) -> None:
    agent.report(layer_mask=0b0001)
    events = consumer.send("actWith", agent.address, 0, sender=outsider)
    values = {"counterparty": agent.address, "layer": 0, "freshUntil": agent.clock.now + DAY}
    assert events == [("Acted", values)]


def test_consumer_refuses_a_counterparty_from_its_window_on(consumer: Contract, agent: Agent, outsider: str) -> None:
    deadline = agent.deadline(0)
    agent.clock.wait_until(deadline - 3601)
    consumer.call("actWith", agent.address, 0, sender=outsider)
    for before, status in [(3600, DUE), (1, DUE), (0, OVERDUE)]:
        agent.clock.wait_until(deadline - before)
        refusal = consumer.refusal("actWith", agent.address, 0, sender=outsider)
        assert refusal == ("NotFresh", agent.address, 0, status)


def test_consumer_is_not_deceived_by_pulses(consumer: Contract, agent: Agent, outsider: str) -> None:
    agent.clock.wait(2 * DAY)
    agent.pulse()
    refusal = consumer.refusal("actWith", agent.address, 0, sender=outsider)
    assert refusal == ("NotFresh", agent.address, 0, OVERDUE)


def test_consumer_refuses_strangers_and_layers_that_nobody_requires(
    consumer: Contract, agent: Agent, stranger: Agent, outsider: str
) -> None:
    agent.set_policy(supported_layers=0b0011, required_layers=0b0001)
    for of, layer, status in [
        (stranger, 0, NOT_ENROLLED),
        (agent, 1, UNSCHEDULED),
        (agent, 2, UNSUPPORTED),
    ]:
        refusal = consumer.refusal("actWith", of.address, layer, sender=outsider)
        assert refusal == ("NotFresh", of.address, layer, status)


def test_consumer_recognizes_a_restored_state(consumer: Contract, agent: Agent) -> None:
    agent.change(0)
    assert consumer.call("isRestored", agent.address, 1) is False
    agent.report(post_commitments=BASELINE, restores_version=1)
    assert consumer.call("isRestored", agent.address, 1) is True
    assert consumer.call("isRestored", agent.address, 2) is False
    assert consumer.call("isRestored", agent.address, 3) is False


def test_consumer_recognizes_no_restore_where_there_is_no_history(
    consumer: Contract, agent: Agent, stranger: Agent
) -> None:
    for version in (0, 1, 2):
        assert consumer.call("isRestored", stranger.address, version) is False
        assert consumer.call("isRestored", agent.address, version) is False
