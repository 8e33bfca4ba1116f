"""Who takes part in the meditation tests, by role, and the registry that they meet at."""

from __future__ import annotations

from typing import Any

import pytest

from meditation_chain import Clock, Contract
from meditation_examples import ALL_RIGHTS, HOUR, Agent


@pytest.fixture(scope="session")
def deployer(accounts: Any) -> Any:
    return accounts[0]


@pytest.fixture(scope="session")
def deployed_registry(deployer: Any, project: Any) -> Any:
    return deployer.deploy(project.AgentMeditationRegistry)


@pytest.fixture
def clock(deployed_registry: Any) -> Clock:
    """An hour after the registry was deployed."""
    clock = Clock(deployed_registry.provider.web3.provider.make_request)
    clock.wait(HOUR)
    return clock


@pytest.fixture
def registry(deployed_registry: Any, clock: Clock) -> Contract:
    abi = [entry.model_dump() for entry in deployed_registry.contract_type.abi]
    return Contract(deployed_registry.provider.web3.provider.make_request, clock, deployed_registry.address, abi)


@pytest.fixture(scope="session")
def subject(accounts: Any) -> str:
    return str(accounts[1].address).lower()


@pytest.fixture(scope="session")
def controller(accounts: Any) -> str:
    return str(accounts[2].address).lower()


@pytest.fixture(scope="session")
def operator(accounts: Any) -> str:
    return str(accounts[3].address).lower()


@pytest.fixture(scope="session")
def outsider(accounts: Any) -> str:
    return str(accounts[4].address).lower()


@pytest.fixture
def stranger(registry: Contract, accounts: Any) -> Agent:
    """An address that never enrolled."""
    return Agent(registry, str(accounts[5].address).lower())


@pytest.fixture
def agent(registry: Contract, subject: str) -> Agent:
    """An enrolled subject without a controller, an hour after its enrollment."""
    agent = Agent(registry, subject).enroll()
    registry.clock.wait(HOUR)
    return agent


@pytest.fixture
def controlled(registry: Contract, subject: str, controller: str) -> Agent:
    """An enrolled subject whose controller holds every right, an hour after its enrollment."""
    agent = Agent(registry, subject).enroll(controller=controller, rights=ALL_RIGHTS)
    registry.clock.wait(HOUR)
    return agent
