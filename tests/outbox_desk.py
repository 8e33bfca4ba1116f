"""A node, a registry and an outbox for tests, and what is done with them in all of these."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from web3 import Web3

from melete import (
    Bytes32,
    ExperienceDelta,
    LocalSigner,
    MemoryRegistry,
    Witness,
    compute_profile_id,
    compute_transition_id,
    keccak256,
    verify_history,
)
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.outbox import Outbox
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender
from melete.memory.outbox import MemoryOutbox, MemoryRules
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_store import WitnessStore

ANVIL_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
TEST_KEY = StoreKey(keccak256(b"a key for tests"))


@pytest.fixture
def witnesses(tmp_path) -> Iterator[WitnessStore]:
    with WitnessStore.create(tmp_path / "witnesses.db", TEST_KEY) as store:
        yield store


@pytest.fixture(scope="module")
def node() -> Iterator[Anvil]:
    with Anvil() as started:
        yield started


@pytest.fixture
def w3(node) -> Iterator[Web3]:
    w3 = connect(node.url)
    yield w3
    w3.provider.make_request("evm_setAutomine", [True])


@pytest.fixture(scope="module")
def payer() -> LocalSender:
    return LocalSender(LocalSigner(ANVIL_KEY))


@pytest.fixture(scope="module")
def author() -> LocalSigner:
    return LocalSigner(keccak256(b"author"))


@pytest.fixture(scope="module")
def registry_address(node, payer):
    registry, _ = MemoryRegistry.deploy(connect(node.url), payer)
    return registry.address


@pytest.fixture
def registry(w3, registry_address, payer) -> MemoryRegistry:
    return MemoryRegistry(w3, registry_address, sender=payer)


@pytest.fixture
def outbox(tmp_path) -> Iterator[Outbox]:
    with Outbox(tmp_path / "outbox.db") as opened:
        yield opened


@pytest.fixture
def memory(outbox, registry, witnesses) -> MemoryOutbox:
    return MemoryOutbox(outbox, registry, witnesses)


@pytest.fixture
def submitter(w3, outbox, payer) -> Submitter:
    return Submitter(w3, outbox, payer, MemoryRules(), confirmations=0, poll_seconds=0.01, patience_seconds=0.2)


def make_witnesses(count: int, name: str = "payload") -> list[Witness]:
    salt = keccak256(name.encode())
    return [Witness(compute_profile_id("test/1"), f"{name} {number}".encode(), salt) for number in range(count)]


def make_space(
    registry: MemoryRegistry, author: LocalSigner, request: pytest.FixtureRequest, number: int = 0
) -> Bytes32:
    return registry.register(author.address, keccak256(f"{request.node.nodeid} {number}".encode())).space_id


def committed(registry: MemoryRegistry, space_id: Bytes32) -> list[Bytes32]:
    """The transition ids of a space, in order, as one verified history."""
    events = list(registry.transitions(space_id))
    assert verify_history(space_id, (event.transition for event in events)) == registry.head(space_id)
    return [event.transition_id for event in events]


def ids(deltas: list[ExperienceDelta]) -> list[Bytes32]:
    return [compute_transition_id(delta) for delta in deltas]
