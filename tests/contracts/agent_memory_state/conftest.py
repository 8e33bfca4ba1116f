"""Both registries, every wallet, and a space. Deployed once a session; what a test changes is rolled back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from eth_utils import keccak

from memory_state import Actor, Behaviour, Registry, Wallet, deploy_registries, deploy_wallets

REGISTRIES = ("AgentMemoryStateRegistry", "NormativeMemoryRegistry")


@pytest.fixture(scope="session")
def wallet_owner() -> Actor:
    return Actor.from_seed("wallet owner")


@pytest.fixture(scope="session")
def deployed(node, deployer, project, wallet_owner) -> tuple[dict[str, Registry], dict[Behaviour, Wallet]]:
    return deploy_registries(node, deployer, project), deploy_wallets(deployer, project, wallet_owner)


@pytest.fixture(scope="session")
def wallets(deployed) -> Mapping[Behaviour, Wallet]:
    """A contract wallet of every behaviour."""
    return deployed[1]


@pytest.fixture(scope="session")
def memory_registry(deployed) -> Registry:
    """The project's registry, with all its views."""
    return deployed[0]["AgentMemoryStateRegistry"]


@pytest.fixture(params=REGISTRIES)
def registry(request, deployed) -> Registry:
    """Each registry in turn: what the standard says has to hold for both."""
    return deployed[0][request.param]


@pytest.fixture
def other_registry(registry, deployed) -> Registry:
    """The registry that `registry` is not."""
    (other,) = (candidate for candidate in deployed[0].values() if candidate is not registry)
    return other


def register(registry: Registry, controller: Actor, authorizer: Actor, salt: str, relayer: Actor) -> bytes:
    request = registry.registration(controller, authorizer.address, keccak(text=salt))
    registry.must_perform(request, relayer.address)
    return request.space_id


@pytest.fixture
def space(registry, controller, authorizer, relayer) -> bytes:
    """A space of `registry` without transitions."""
    return register(registry, controller, authorizer, "space", relayer)


@pytest.fixture
def other_space(registry, controller, authorizer, relayer) -> bytes:
    """A second one, of the same accounts."""
    return register(registry, controller, authorizer, "other space", relayer)


@pytest.fixture
def memory_space(memory_registry, controller, authorizer, relayer) -> bytes:
    """A space of `memory_registry` without transitions."""
    return register(memory_registry, controller, authorizer, "space", relayer)
