"""A node of Ape's with both registries, spoken to through the SDK; actors named by their role."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from web3 import Web3

from isolation import rolled_back  # noqa: F401 - used by every test
from melete import Address, Bytes32, CallableSigner, LocalSigner, MemoryRegistry, keccak256
from melete.chain.transactions import LocalSender, transact

REGISTRIES = ("AgentMemoryStateRegistry", "NormativeMemoryRegistry")
OWNER_SIGNED, SELF_SIGNED, SAYS_NO, WRITES_FIRST = 0, 1, 5, 20


@pytest.fixture(scope="session")
def w3(networks) -> Web3:
    return networks.provider.web3


@pytest.fixture(scope="session")
def keys(accounts) -> list[LocalSigner]:
    return [LocalSigner(account.private_key) for account in accounts]


@pytest.fixture(scope="session")
def controller(keys) -> LocalSigner:
    return keys[0]


@pytest.fixture(scope="session")
def authorizer(keys) -> LocalSigner:
    return keys[1]


@pytest.fixture(scope="session")
def relayer(keys) -> LocalSender:
    """Pays for what others approve, and approves nothing."""
    return LocalSender(keys[2])


@pytest.fixture(scope="session")
def outsider(keys) -> LocalSigner:
    return keys[3]


@pytest.fixture(scope="session")
def deploy(w3, keys, project) -> Callable[..., Address]:
    """Deploy a contract of the project by name."""
    project.load_contracts()

    def run(name: str, *arguments: object) -> Address:
        code = bytes(project.get_contract(name).constructor.serialize_transaction(*arguments).data)
        address = transact(w3, LocalSender(keys[9]), w3.eth.chain_id, None, code).contract_address
        assert address is not None
        return address

    return run


@pytest.fixture(scope="session", params=REGISTRIES)
def address(request, deploy) -> Address:
    """Each registry in turn: ours, and one that has the normative interface alone."""
    return deploy(request.param)


@pytest.fixture
def registry(w3, address, relayer) -> MemoryRegistry:
    return MemoryRegistry(w3, address, sender=relayer)


@pytest.fixture(scope="session")
def our_address(deploy) -> Address:
    return deploy("AgentMemoryStateRegistry")


@pytest.fixture
def our_registry(w3, our_address, relayer) -> MemoryRegistry:
    return MemoryRegistry(w3, our_address, sender=relayer)


@pytest.fixture
def salt(request) -> Bytes32:
    """A salt of the test's own, so that tests share a registry without meeting."""
    return keccak256(request.node.nodeid.encode())


@pytest.fixture
def space_id(registry, controller, authorizer, salt) -> Bytes32:
    return registry.register(authorizer.address, salt, controller=controller).space_id


@pytest.fixture(scope="session")
def wallet(deploy, keys) -> CallableSigner:
    """A contract wallet that approves what its owner's key signed."""
    return CallableSigner(deploy("ConfigurableWallet", OWNER_SIGNED, str(keys[4].address)), keys[4].sign_digest)
