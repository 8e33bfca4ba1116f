"""Fixtures of the state machines: a node, what is deployed on it, and funded keys."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from eth_utils import to_bytes

from anvil import Node
from isolation import rolled_back  # noqa: F401 - used by every test
from memory_state import Actor, Behaviour, Registry, Wallet, deploy_registries, deploy_wallets


@pytest.fixture(scope="session")
def node(networks) -> Node:
    return Node(networks.provider.web3.provider.make_request)


@pytest.fixture(scope="session")
def actors(accounts) -> list[Actor]:
    """Ape's test accounts, which have ether, with their keys."""
    return [Actor.from_key(to_bytes(hexstr=account.private_key)) for account in accounts]


@pytest.fixture(scope="session")
def memory_registries(node, accounts, project) -> Mapping[str, Registry]:
    return deploy_registries(node, accounts[9], project)


@pytest.fixture(scope="session")
def wallets(accounts, project) -> Mapping[Behaviour, Wallet]:
    return deploy_wallets(accounts[9], project, Actor.from_seed("wallet owner"))
