"""Fixtures of the contract tests: a node spoken to in raw calls, and actors named by their role."""

from __future__ import annotations

import pytest
from eth_utils import to_bytes

from anvil import Node
from isolation import rolled_back  # noqa: F401 - used by every test
from memory_state import Actor


@pytest.fixture(scope="session")
def node(networks) -> Node:
    return Node(networks.provider.web3.provider.make_request)


@pytest.fixture(scope="session")
def actors(accounts) -> list[Actor]:
    """Ape's test accounts, which have ether, with their keys."""
    return [Actor.from_key(to_bytes(hexstr=account.private_key)) for account in accounts]


@pytest.fixture(scope="session")
def controller(actors) -> Actor:
    return actors[0]


@pytest.fixture(scope="session")
def authorizer(actors) -> Actor:
    return actors[1]


@pytest.fixture(scope="session")
def relayer(actors) -> Actor:
    """Sends what others have signed."""
    return actors[2]


@pytest.fixture(scope="session")
def outsider(actors) -> Actor:
    """Has no part in anything, and tries."""
    return actors[3]


@pytest.fixture(scope="session")
def new_controller(actors) -> Actor:
    return actors[4]


@pytest.fixture(scope="session")
def new_authorizer(actors) -> Actor:
    return actors[5]


@pytest.fixture(scope="session")
def delegator(actors) -> Actor:
    """A key account that gets code by EIP-7702."""
    return actors[6]


@pytest.fixture(scope="session")
def deployer(accounts):
    """Deploys, and has no part in anything afterwards."""
    return accounts[9]
